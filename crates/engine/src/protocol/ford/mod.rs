//! FORD: locks beside single-version records, one-sided verbs only.
//!
//! After Zhang, Hua, Zuo and Liu, "FORD: Fast One-sided RDMA-based Distributed Transactions for
//! Disaggregated Persistent Memory", FAST 2022; the variant `literal` is the paper's text,
//! `measured` the public code that later papers measured (its own part is in `published.rs`). The classes of bugs that its public code was shown to have are kept as planted bugs
//! (Pandora, reported for one-sided transactions; see docs/protocols/ford.md).
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read-only, one record | 1 | |
//! | read-only, several records | 2: read, validate | |
//! | write, address known, nothing else read | 2: lock + read, log + write | unlock |
//! | write, address known, others read | 3: lock + read, validate, log + write | unlock |
//! | write, address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | payload of its own (rows beyond 104 B) | + 1 when its address is unknown | |
//! | write, all of it on one node, which has the only copy | as above | nothing: unlocked in the data's batch |
//! | abort | 1 at lock, 2 at validation | release |
//! | own abort | + 1: validate, as a commit would: none after one record that was only read, or if all that was read is locked | release |
//! | split of a bucket, before the next transaction | 4: header, buckets, slots, log + write; + 1 for each overflow block | unlock |
//!
//! The counts are the same for every number of replicas: the undo log needs no round of its own,
//! because at every node it precedes the data in the same batch (see [`tarn_store::log`]).
//!
//! # Deviations from the published system, each a switch
//! See [`Ford::INFO`](crate::protocol::Protocol::INFO).

mod commit;
mod published;
mod short;

use crate::steps::settle::{Asker, Unsettled, Whose, enumerate_logged};
use crate::protocol::settle::resolve_logged;
use crate::cluster::info::{Isolation, Limit, Only, ProtocolCaps, ProtocolInfo, Switch, Switches};
use super::Protocol;
use crate::steps::access::together::{self, Came, Together, far};
use crate::steps::access::{self, Access, Guard, Judged, Look, Which, near};
use tarn_store::placement::catalog::{Options, Table};
use crate::site::Context;
use tarn_store::history::{Undone, WriteKind};
use tarn_store::index::btree::scan::Visit;
use tarn_store::index::btree::work::{TreeDone, TreeWork};
use tarn_store::index::growth::{Grown, Shard};
use tarn_store::layout::LayoutKind;
use crate::steps::node_locks::{self, Keeps, suspect_all_locks};
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag, Resolution, TxnId};
use crate::steps::settle::undo::{self, Left};
use crate::steps::structure::{Rule, Step, Structure, buckets, trees};
use crate::transaction::working_set::{Added, Further, Handle, Txn};
use tarn_fabric::address::NodeId;
use tarn_fabric::local::Near;
use tarn_fabric::round::{BufferOffset, Round};

/// The switches, by position in [`SWITCHES`].
#[derive(Clone, Copy)]
enum On {
    ValidateReads = 0,
    RefuseLocked = 1,
    UnlockLate = 2,
    ReleaseGranted = 3,
    WriteAfterValidation = 4,
    FuseLog = 5,
    ProtectAbsent = 6,
    ReleaseOnAbort = 7,
    LogEveryGroup = 8,
    WriteChangesOnly = 9,
    LockAtPrimary = 10,
    LockCas = 11,
    FenceBeforeRecovery = 12,
    SettleBeforeLog = 13,
    ReleaseOwn = 14,
    ValidateAfterLocks = 15,
    KeepVersion = 16,
    ProtectRanges = 17,
    CheckFences = 18,
    SiblingWithSplit = 19,
}

const SWITCHES: &[Switch] = &[
    switch(
        "validate-reads",
        "commit re-reads the version of every record that was read and not locked",
        (true, true),
    ),
    switch(
        "refuse-locked",
        "a record locked by another transaction is neither read nor validated",
        (true, true),
    ),
    switch(
        "unlock-late",
        "locks are released when every replica has acknowledged its data; \
         off: in one batch with the primary's data",
        (false, true),
    ),
    switch(
        "release-granted",
        "an abort releases the locks that were granted, by CAS of its own tag; \
         off: it clears every lock that it asked for",
        (true, true),
    ),
    switch(
        "write-after-validation",
        "data are written when validation has passed; \
         off: before, and an abort's rollback is lost",
        (true, true),
    ),
    switch(
        "fuse-log",
        "the undo log travels in the data's batch; \
         off: in a round of its own before validation",
        (false, false),
    ),
    switch(
        "protect-absent",
        "an absent read, an insert and a delete protect the bucket's directory record",
        (true, true),
    ),
    switch(
        "release-on-abort",
        "an abort releases its locks at all; off: they outlive the transaction",
        (true, true),
    ),
    switch(
        "log-every-group",
        "a log of its own goes to the replicas of every group that is written; \
         off: of one of them",
        (true, false),
    ),
    switch(
        "write-changes-only",
        "a replica gets the bytes up to the last change; \
         off: the whole item, and a READ that flushes it at the last record's backups",
        (true, false),
    ),
    switch(
        "lock-at-primary",
        "LOCK lives at the primary, where a CAS releases it; \
         off: every replica's is written before its data, and cleared by WRITE",
        (true, false),
    ),
    Switch {
        simulated_only: true,
        ..switch(
            "lock-cas",
            "a lock is taken by CAS; off: it is only assumed, and transactions are not isolated",
            (true, true),
        )
    },
    switch(
        "fence-before-recovery",
        "recovery reads nothing before the dead node's access is revoked everywhere; \
         off: the dead, if it still runs, writes on beside it",
        (true, true),
    ),
    switch(
        "settle-before-log",
        "a log area is used again only when nobody needs what it holds: earlier unlocks have settled, \
         the recovery of a dead coordinator of the same number is over; off: at once",
        (true, true),
    ),
    switch(
        "release-own",
        "recovery takes away only locks that carry the dead transaction's tag, by CAS; \
         off: it clears the LOCK of every record in the log, whoever holds it by now",
        (true, true),
    ),
    switch(
        "validate-after-locks",
        "what was read is validated when all locks are held; \
         off: in the round that still takes locks",
        (true, true),
    ),
    switch(
        "keep-version",
        "a record that comes back counts on from the slot's and its directory's VERSION; \
         off: it begins anew",
        (true, true),
    ),
    switch(
        "protect-ranges",
        "the leaves that a scan has read are validated; off: what comes into its range is not noticed",
        (true, true),
    ),
    switch(
        "check-fences",
        "a leaf says by its fences which keys it covers; off: what inner nodes led to is believed",
        (true, true),
    ),
    switch(
        "sibling-with-split",
        "a split writes the new node and the old one in one transaction; \
         off: the old one first, in a transaction of its own",
        (true, true),
    ),
];

/// A switch that `literal` and `measured` keep, or do not.
const fn switch(
    name: &'static str,
    effect: &'static str,
    (in_literal, in_measured): (bool, bool),
) -> Switch {
    Switch { name, effect, in_literal, in_measured, simulated_only: false }
}

/// The phases, in the order of [`PHASES`].
#[derive(Clone, Copy)]
enum Phase {
    Locate = 0,
    ReadDirect = 1,
    Lock = 2,
    LockDirect = 3,
    LockDirectory = 4,
    ReadBody = 5,
    Validate = 6,
    LogApart = 7,
    Write = 8,
    Unlock = 9,
    Release = 10,
    Resolve = 11,
    Restructure = 12,
    UnlockWithData = 13,
    Scan = 14,
    LockLeaf = 15,
}

const PHASES: &[&str] = &[
    "locate",
    "read_direct",
    "lock",
    "lock_direct",
    "lock_directory",
    "read_body",
    "validate",
    "log_apart",
    "write",
    "unlock",
    "release",
    "resolve",
    "restructure",
    "unlock_with_data",
    "scan",
    "lock_leaf",
];

const LIMITS: &[Limit] = &[
    Limit {
        phase: "log_apart",
        only: Only::InVariant("corrected,-fuse-log"),
        why: "with fuse-log on, the undo log travels with the data and has no round of its own",
    },
    Limit {
        phase: "unlock_with_data",
        only: Only::WithoutMemoryDeath,
        why: "locks are released together with the data where there is one copy, and where there is one \
              copy no memory node dies",
    },
    Limit { phase: "scan", only: Only::WithOrderedIndexes, why: "it reads an ordered index" },
    Limit { phase: "lock_leaf", only: Only::WithOrderedIndexes, why: "leaves are of ordered indexes" },
];

const ABORTS: &[AbortReason] = &[
    AbortReason::LockRefused,
    AbortReason::ReadLocked,
    AbortReason::VersionChanged,
    AbortReason::ValidationLocked,
    AbortReason::IndexChanged,
    AbortReason::StaleAddress,
    AbortReason::LeafFull,
    AbortReason::UniqueViolation,
    AbortReason::User,
];

/// Its recovery writes the old bytes of an update back under a version beyond the one that readers may have
/// seen; a record that came or went has its old version again.
fn undone(kind: WriteKind, version: u64) -> Option<u64> {
    (kind == WriteKind::Update).then_some(version + 1)
}

/// The protocol with its switches.
pub struct Ford {
    switches: Switches,
}

impl Ford {
    #[inline]
    fn on(&self, switch: On) -> bool {
        self.switches.is_on(switch as usize)
    }

    /// Rolls back; waits for nothing.
    fn give_up(&self, cx: &Context, txn: &mut Txn) {
        let keeps = Keeps { locks: !self.on(On::ReleaseOnAbort), others: self.on(On::ReleaseGranted) };
        if node_locks::give_up(cx, txn, keeps) {
            enter(cx, Phase::Release);
        }
    }

    fn whose(&self) -> Whose {
        if self.on(On::ReleaseOwn) { Whose::Own } else { Whose::Anybodys }
    }
}

impl Structure for Ford {
    #[inline(always)]
    fn enter(&self, cx: &Context, step: Step) {
        enter(cx, match step {
            Step::Scan => Phase::Scan,
            Step::LockLeaf => Phase::LockLeaf,
            Step::Restructure => Phase::Restructure,
        });
    }

    #[inline(always)]
    fn keeps(&self, rule: Rule) -> bool {
        self.on(match rule {
            Rule::ReleaseGranted => On::ReleaseGranted,
            Rule::ProtectRanges => On::ProtectRanges,
            Rule::CheckFences => On::CheckFences,
            Rule::SiblingWithSplit => On::SiblingWithSplit,
        })
    }

    #[inline(always)]
    fn shows_leaf(&self, _: &Txn, _: Visit) -> Result<bool, AbortReason> {
        Ok(self.on(On::ProtectRanges))
    }

    async fn commit(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        commit::commit(self, cx, txn).await
    }
}

impl Access for Ford {
    #[inline(always)]
    fn look(&self, cx: &Context, look: Look) {
        enter(cx, match look {
            Look::Locate => Phase::Locate,
            Look::ReadDirect => Phase::ReadDirect,
            Look::Lock => Phase::Lock,
            Look::LockDirect => Phase::LockDirect,
            Look::LockDirectory => Phase::LockDirectory,
            Look::ReadBody => Phase::ReadBody,
            Look::Validate => Phase::Validate,
        });
    }

    #[inline(always)]
    fn minds(&self, guard: Guard) -> bool {
        match guard {
            Guard::ValidateReads => self.on(On::ValidateReads),
            Guard::ProtectAbsent => self.on(On::ProtectAbsent),
            Guard::LockCas => self.on(On::LockCas),
            // Records of several lines are read with a second look at the first.
            Guard::CheckLines => true,
        }
    }

    #[inline(always)]
    fn judge(&self, lock: u64, me: OwnerTag, _: Mode) -> Judged {
        match lock != 0 && lock != me.word() && self.on(On::RefuseLocked) {
            true => Judged::InTheWay,
            false => Judged::Free,
        }
    }

    #[inline(always)]
    fn ride(&self, cx: &Context, txn: &mut Txn) -> Option<BufferOffset> {
        match self.on(On::ValidateAfterLocks) {
            true => None,
            false => access::plan_early(self, cx, txn),
        }
    }

    fn arrive(&self, cx: &Context, txn: &mut Txn, at: BufferOffset) -> Result<(), AbortReason> {
        access::absorb_early(self, cx, txn, at)
    }
}

#[inline]
fn enter(cx: &Context, phase: Phase) {
    cx.metrics.phase(phase as usize);
}

impl Protocol for Ford {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "ford",
        citation: "Zhang, Hua, Zuo, Liu: FORD, FAST 2022",
        caps: ProtocolCaps {
            snapshot_isolation: false,
            ranges: true,
            growth: true,
            crash_recovery: true,
            memory_recovery: true,
            survives_drops: true,
        },
        switches: SWITCHES,
        phases: PHASES,
        limits: LIMITS,
        aborts: ABORTS,
        undone,
        undone_node: |_, new| Some(Undone::always(new + 1)),
    };

    type Entry = Left;

    fn new(switches: Switches) -> Ford {
        Ford { switches }
    }

    fn isolation(&self) -> Isolation {
        Isolation::StrictSerializable
    }

    fn layout(&self, _: &Options) -> LayoutKind {
        LayoutKind::SingleVersion
    }

    #[inline(always)]
    fn add(&self, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
        access::add(self, cx, txn, table, added)
    }

    fn wish_again(&self, cx: &Context, txn: &mut Txn, index: usize, further: Further) {
        access::wish_again(cx, txn, index, further);
    }

    fn switches(&self) -> Switches {
        self.switches
    }

    #[inline]
    fn fetch(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        access::fetch(self, cx, txn)
    }

    #[inline]
    fn notes_reads(&self, cx: &Context, txn: &Txn, table: &Table) -> bool {
        near::notes_reads(cx, txn, table)
    }

    #[inline]
    fn note_looks(&self, cx: &Context, count: usize) {
        (0..count).for_each(|_| self.look(cx, Look::Locate));
    }

    #[inline(always)]
    fn ask_near<'a>(&self, cx: &'a Context, txn: &mut Txn) -> Option<Near<'a>> {
        near::ask(cx, txn)
    }

    #[inline]
    fn fetch_near(
        &self,
        cx: &Context,
        txn: &mut Txn,
        near: Near<'_>,
    ) -> Option<Result<(), Failure>> {
        near::read(self, cx, txn, near)
    }

    #[inline]
    fn commit_near(&self, cx: &Context, txn: &mut Txn) -> Option<Result<(), Failure>> {
        let memory = near::ends_near(cx, txn)?;
        Some(near::validate(self, cx, txn, (memory, Which::All)))
    }

    #[inline]
    fn reads_together(&self, _: &Context) -> bool {
        true
    }

    #[inline]
    fn read_together(
        &self,
        cx: &Context,
        to: (&mut Together, &mut Round),
        look: (Near<'_>, bool),
    ) -> Came {
        together::read_and_look_again(self, cx, to, look)
    }

    #[inline]
    fn fetch_together(
        &self,
        cx: &Context,
        to: (&mut Together, &mut Round),
    ) -> impl Future<Output = Came> {
        far::fetch_and_look_again(self, cx, to)
    }

    #[inline]
    fn is_committed(&self, txn: &Txn) -> bool {
        access::is_of_one_read(txn)
    }

    #[inline]
    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }

    async fn validate(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        access::validate(self, cx, txn).await
    }

    fn rollback(&self, cx: &Context, txn: &mut Txn) {
        self.give_up(cx, txn);
    }

    fn abandon(&self, cx: &Context, txn: &mut Txn) {
        suspect_all_locks(txn);
        self.give_up(cx, txn);
    }

    async fn restructure(
        &self,
        cx: &Context,
        txn: &mut Txn,
        shard: Shard,
    ) -> Result<Grown, Failure> {
        buckets::restructure(self, cx, txn, shard).await
    }

    async fn reshape(
        &self,
        cx: &Context,
        txn: &mut Txn,
        work: TreeWork,
    ) -> Result<TreeDone, Failure> {
        trees::reshape(self, cx, txn, work).await
    }

    async fn resolve(
        &self,
        cx: &Context,
        id: TxnId,
        coordinator: u32,
        asker: Asker,
    ) -> Result<Resolution, Failure> {
        enter(cx, Phase::Resolve);
        resolve_logged(self, cx, (id, asker), coordinator).await
    }

    fn fences(&self) -> bool {
        self.on(On::FenceBeforeRecovery)
    }

    async fn enumerate(
        &self,
        cx: &Context,
        dead: NodeId,
    ) -> Result<Vec<Unsettled<Left>>, Failure> {
        enter(cx, Phase::Resolve);
        enumerate_logged(cx, dead).await
    }

    async fn decide(&self, cx: &Context, left: &mut [Unsettled<Left>]) -> Result<(), Failure> {
        undo::decide(cx, left).await
    }

    async fn apply(&self, cx: &Context, left: &[Unsettled<Left>]) -> Result<(), Failure> {
        undo::apply(cx, left).await
    }

    async fn release(&self, cx: &Context, left: &[Unsettled<Left>]) -> Result<(), Failure> {
        undo::release(cx, left, self.whose()).await
    }

    fn settles(&self) -> bool {
        self.on(On::SettleBeforeLog)
    }
}
