//! LOTUS: locks in compute nodes, several versions in memory nodes.
//!
//! After Hu, Zuo, Hu, Chen, Wang and Yang, "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks";
//! the variant `literal` is the paper's text. Where that text, read literally, loses serializability or data, we
//! deviate; each deviation is a switch, and each switch that can be taken off is a planted bug
//! (docs/protocols/lotus.md has the table).
//!
//! # Round trips until the reply
//!
//! | transaction | rounds | then |
//! |---|---|---|
//! | read-only, declared | T_start (0 from a counter), table of versions, record | |
//! | not declared, writes nothing | locks (0 if they are this node's), tables, records | unlock |
//! | writes | locks, tables, records; C1 invisible and log, C2 timestamp, C3 decision and backups | C4 visible, unlock |
//!
//! A packed record's versions lie in its table: there is no round for the record. No verb of a transaction is an
//! atomic of a memory node.
//!
//! # Not built yet
//! Growth of tables whose slots take several lines.

mod add;
mod cached;
mod commit;
mod execute;
mod find;
mod ideal;
mod insert;
mod near;
mod near_commit;
mod nodes;
mod prepare;
mod recover;
mod short;
mod short_commit;
mod snapshot;

use crate::steps::settle::{Asker, Unsettled, is_settled, is_stray};
use crate::requests::fence::revoke_everywhere;
use crate::cluster::info::{Isolation, Limit, Needs, Only, ProtocolCaps, ProtocolInfo, Switch, Switches};
use super::Protocol;
use tarn_store::placement::catalog::{Options, Table};
use crate::site::Context;
use tarn_store::history::Undone;
use tarn_store::index::btree::work::{TreeDone, TreeWork};
use tarn_store::index::growth::{Grown, Shard};
use tarn_store::layout::{Discards, LayoutKind, Records, Rules};
use tarn_store::ids::{AbortReason, Failure, Mode, Resolution, TxnId};
use tarn_store::schema::TableId;
use crate::steps::structure::{buckets, sweeps, trees};
use crate::transaction::working_set::{Added, Entry, Further, Handle, Txn};
use recover::Left;
use tarn_fabric::local::Near;
use tarn_fabric::address::{Address, NodeId};

/// The switches, by position in [`SWITCHES`].
#[derive(Clone, Copy)]
enum On {
    LowerBound = 0,
    AnyVisible = 1,
    FenceBeforeRecovery = 2,
    BackupsFirst = 3,
    KeepNewest = 4,
    TooOld = 5,
    Checksum = 6,
    StrayCells = 7,
    SettleBeforeLog = 8,
    ReleaseOnAbort = 9,
    NewestInSr = 10,
    AwaitSurvivors = 11,
    ProtectRanges = 12,
    MarkNodes = 13,
    VersionCache = 14,
    KeepUnchanged = 15,
    DropAtGrant = 16,
    WholeDecision = 17,
    LocksApart = 18,
    SecondLook = 19,
    LockMoved = 20,
    BucketNames = 21,
    ForgetMoved = 22,
}

const SWITCHES: &[Switch] = &[
    switch(
        "lower-bound",
        "a reader passes over an INVISIBLE version only if its lower bound says that it comes later; \
         off: always (L1)",
        false,
    ),
    switch(
        "any-visible",
        "recovery commits what a log has decided or any version of which is visible; \
         off: only if all are (L2)",
        false,
    ),
    switch(
        "fence-before-recovery",
        "recovery reads nothing before the dead node's access is revoked everywhere; \
         off: the dead, if it still runs, writes on beside it (L3)",
        false,
    ),
    switch(
        "backups-first",
        "versions are visible at the backups before they are at the primary; off: in one round (L4)",
        false,
    ),
    switch(
        "keep-newest",
        "the newest committed version is never overwritten; off: it is the one that goes (L9)",
        false,
    ),
    switch(
        "too-old",
        "what was discarded is missing to a snapshot that needs it; off: it has never been (L9)",
        false,
    ),
    switch(
        "checksum",
        "a version's record says whose it is; off: whatever its memory holds is believed (L16)",
        false,
    ),
    switch(
        "stray-cells",
        "an INVISIBLE version of a recovered life is none; off: readers wait for it (L21)",
        false,
    ),
    switch(
        "settle-before-log",
        "a log area is used again only when what it decided is visible everywhere; off: at once",
        true,
    ),
    switch(
        "release-on-abort",
        "an abort gives up its locks; off: they outlive the transaction",
        true,
    ),
    switch(
        "newest-in-sr",
        "a transaction with locks changes the newest version, however new; \
         off: it is aborted if that is newer than its beginning, which costs a timestamp (L12)",
        false,
    ),
    switch(
        "await-survivors",
        "the shards of a dead owner open when nothing that survivors write rests on its grants; \
         off: when it is recovered (L10)",
        false,
    ),
    switch(
        "protect-ranges",
        "leaves that a scan has shown are locked, and looked at again under their locks; off: neither",
        true,
    ),
    switch(
        "mark-nodes",
        "a node says that it is being changed before any of it is; off: readers take half a change",
        true,
    ),
    switch(
        "version-cache",
        "version tables of a node's own shards are remembered; off: they are read, which costs a round",
        true,
    ),
    switch(
        "keep-unchanged",
        "what was read without a lock is remembered only if no write was granted meanwhile; off: in any case (L5)",
        false,
    ),
    switch(
        "drop-at-grant",
        "a write grant makes what is remembered unusable until the writer's end; off: only grants to others do (L6)",
        false,
    ),
    switch(
        "whole-decision",
        "a snapshot believes a decision that all logs of a group have; off: that one has, which may die with its coordinator",
        false,
    ),
    switch(
        "locks-apart",
        "a lock costs memory nodes nothing; off: an FAA when a node's first holder comes and its last goes, as with the \
         ideal lock of the paper's comparison",
        true,
    ),
    switch(
        "second-look",
        "who finds a key in no block of a chain without a lock looks whether the bucket was split meanwhile; off: it is absent",
        true,
    ),
    switch(
        "lock-moved",
        "a split locks the records that it moves; off: writers and readers beside it find their slots another's",
        true,
    ),
    switch(
        "bucket-names",
        "a split locks buckets by the names that inserts lock; off: by names of its own",
        true,
    ),
    switch(
        "forget-moved",
        "where a record's version table was is not remembered once a split has moved it; off: it is",
        true,
    ),
];

/// A switch that `literal` keeps, or does not. There is no public code that was measured by others: `measured`
/// keeps what `literal` does.
const fn switch(name: &'static str, effect: &'static str, in_literal: bool) -> Switch {
    Switch { name, effect, in_literal, in_measured: in_literal, simulated_only: false }
}

/// The phases, in the order of [`PHASES`].
#[derive(Clone, Copy)]
enum Phase {
    Lock = 0,
    Locate = 1,
    ReadDirect = 2,
    ReadRecord = 3,
    Snapshot = 4,
    Invisible = 5,
    Stamp = 6,
    Decide = 7,
    Show = 8,
    Release = 9,
    Resolve = 10,
    Scan = 11,
    ProtectLeaf = 12,
    LockLeaf = 13,
    Restructure = 14,
    Cached = 15,
}

const PHASES: &[&str] = &[
    "lock",
    "locate",
    "read_direct",
    "read_record",
    "snapshot",
    "invisible",
    "stamp",
    "decide",
    "show",
    "release",
    "resolve",
    "scan",
    "protect_leaf",
    "lock_leaf",
    "restructure",
    "cached",
];

const LIMITS: &[Limit] = &[
    Limit { phase: "scan", only: Only::WithOrderedIndexes, why: "it reads an ordered index" },
    Limit { phase: "protect_leaf", only: Only::WithOrderedIndexes, why: "leaves are of ordered indexes" },
    Limit { phase: "lock_leaf", only: Only::WithOrderedIndexes, why: "leaves are of ordered indexes" },
];

const ABORTS: &[AbortReason] = &[
    AbortReason::LockRefused,
    AbortReason::TooOld,
    AbortReason::Undecided,
    AbortReason::WrongOwner,
    AbortReason::OwnerLost,
    AbortReason::WriteConflict,
    AbortReason::NeedsLocks,
    AbortReason::VersionChanged,
    AbortReason::ReadLocked,
    AbortReason::StaleAddress,
    AbortReason::IndexChanged,
    AbortReason::LeafFull,
    AbortReason::UniqueViolation,
    AbortReason::User,
];

/// The protocol with its switches.
pub struct Lotus {
    switches: Switches,
}

impl Lotus {
    #[inline]
    fn on(&self, switch: On) -> bool {
        self.switches.is_on(switch as usize)
    }

    /// Which rules versions are chosen by.
    #[inline]
    fn rules(&self) -> Rules {
        let discards = if self.on(On::TooOld) { Discards::Above } else { Discards::Forgotten };
        let (lower_bound, keep_newest) = (self.on(On::LowerBound), self.on(On::KeepNewest));
        Rules { lower_bound, discards, keep_newest }
    }

    /// Whether it offers snapshot isolation and no more.
    #[inline]
    fn is_snapshot(&self) -> bool {
        self.switches.isolation() == Isolation::SnapshotIsolation
    }

    /// Whether transactions that write have a T_start: what they change must not be newer.
    #[inline]
    fn starts_writers(&self) -> bool {
        self.is_snapshot() || !self.on(On::NewestInSr)
    }

    /// Whether this entry of a transaction that may write is read from its snapshot, without a lock.
    #[inline]
    fn reads_snapshot(&self, entry: &Entry) -> bool {
        self.is_snapshot() && entry.mode == Mode::Read
    }

    /// Whether an INVISIBLE version is what a recovered life left without a log: none.
    #[inline]
    fn is_stray(&self, cx: &Context, txn: u64) -> bool {
        self.on(On::StrayCells) && is_stray(cx, txn)
    }
}

#[inline]
fn enter(cx: &Context, phase: Phase) {
    cx.metrics.phase(phase as usize);
}

impl Protocol for Lotus {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "lotus",
        citation: "Hu, Zuo, Hu, Chen, Wang, Yang: LOTUS, Optimizing Disaggregated Transactions with Disaggregated Locks",
        caps: ProtocolCaps {
            snapshot_isolation: true,
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
        // What is undone was INVISIBLE, and nobody has seen it.
        undone: |_, _| None,
        // A node that no mark has reached is as it was.
        undone_node: |old, _| Some(Undone::if_found(nodes::undone_version(old))),
    };

    type Entry = Left;

    fn new(switches: Switches) -> Lotus {
        Lotus { switches }
    }

    fn isolation(&self) -> Isolation {
        self.switches.isolation()
    }

    fn layout(&self, asked: &Options) -> LayoutKind {
        match asked.layout {
            several @ LayoutKind::MultiVersion { .. } => several,
            LayoutKind::SingleVersion
            | LayoutKind::Ticketed
            | LayoutKind::Deltas { .. }
            | LayoutKind::Wholes { .. }
            | LayoutKind::Lined { .. } => {
                LayoutKind::MultiVersion { cells: 2, records: Records::Auto }
            }
        }
    }

    fn needs(&self) -> Needs {
        Needs::LOCKS_AND_TIMESTAMPS
    }

    #[inline(always)]
    fn add(&self, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
        add::add(cx, txn, table, added)
    }

    fn wish_again(&self, cx: &Context, txn: &mut Txn, index: usize, further: Further) {
        add::wish_again(cx, txn, index, further);
    }

    fn switches(&self) -> Switches {
        self.switches
    }

    #[inline]
    fn fetch(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        execute::fetch(self, cx, txn)
    }

    #[inline]
    fn ask_near<'a>(&self, cx: &'a Context, txn: &mut Txn) -> Option<Near<'a>> {
        near::begin(self, cx, txn)
    }

    #[inline]
    fn fetch_near(
        &self,
        cx: &Context,
        txn: &mut Txn,
        near: Near<'_>,
    ) -> Option<Result<(), Failure>> {
        near::end(self, cx, txn, near)
    }

    #[inline]
    fn commit_near(&self, cx: &Context, txn: &mut Txn) -> Option<Result<(), Failure>> {
        near_commit::commit(self, cx, txn)
    }

    #[inline]
    fn is_committed(&self, txn: &Txn) -> bool {
        txn.held.is_empty()
    }

    #[inline]
    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }

    async fn validate(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        txn.held.check(cx)
    }

    fn rollback(&self, cx: &Context, txn: &mut Txn) {
        cached::unchanged(self, cx, txn);
        commit::roll_back(self, cx, txn);
    }

    fn abandon(&self, cx: &Context, txn: &mut Txn) {
        match txn.in_doubt {
            true => commit::abandon(self, cx, txn),
            // What is prepared and not sent is nobody's affair: the locks may not hold any more.
            false => self.rollback(cx, txn),
        }
    }

    async fn restructure(
        &self,
        cx: &Context,
        txn: &mut Txn,
        shard: Shard,
    ) -> Result<Grown, Failure> {
        if !find::may_grow(cx.table(shard.table)) {
            return Ok(Grown::TooLarge);
        }
        // The locks of the growth before are given up when all of it is over.
        commit::settle_log(self, cx, txn).await?;
        cx.advance_closing();
        let grown = buckets::restructure(self, cx, txn, shard).await;
        if matches!(grown, Err(Failure::Abort(_))) {
            // Locks come all or none: a shorter row is refused less often.
            cx.growth.note_fit(shard, false);
        }
        grown
    }

    async fn sweep(
        &self,
        cx: &Context,
        txn: &mut Txn,
        bucket: (TableId, Address),
    ) -> Result<usize, Failure> {
        commit::settle_log(self, cx, txn).await?;
        cx.advance_closing();
        sweeps::sweep(self, cx, txn, bucket).await
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
        recover::resolve(self, cx, (id, asker), coordinator).await
    }

    async fn fence(&self, cx: &Context, whom: NodeId) -> Result<(), Failure> {
        match self.on(On::FenceBeforeRecovery) {
            true => revoke_everywhere(cx, whom).await,
            false => Ok(()),
        }
    }

    async fn enumerate(
        &self,
        cx: &Context,
        dead: NodeId,
    ) -> Result<Vec<Unsettled<Left>>, Failure> {
        recover::enumerate(cx, dead).await
    }

    async fn decide(&self, cx: &Context, left: &mut [Unsettled<Left>]) -> Result<(), Failure> {
        recover::decide(self, cx, left).await
    }

    async fn apply(&self, cx: &Context, left: &[Unsettled<Left>]) -> Result<(), Failure> {
        recover::apply(cx, left).await
    }

    async fn release(&self, cx: &Context, left: &[Unsettled<Left>]) -> Result<(), Failure> {
        recover::release(cx, left).await;
        Ok(())
    }

    async fn may_log(&self, cx: &Context, coordinator: u32) -> Result<bool, Failure> {
        match self.on(On::SettleBeforeLog) {
            // A coordinator that is no more may have left writes on their way. As they end its transaction may
            // go in doubt, and as that is settled what was there before be written back.
            true => Ok(!cx.is_closing(coordinator)
                && cx.is_number_free(coordinator).await?
                && !cx.is_closing(coordinator)
                && is_settled(cx, coordinator).await?),
            false => Ok(true),
        }
    }
}
