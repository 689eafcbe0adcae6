//! OOCC: optimistic readers of one round, because writers wait before they write; locks beside records that say their
//! version in every line, one-sided verbs only.
//!
//! After the paper "OOCC" (see docs/protocols/oocc.md for its full reference), whose text loses serializability and data in
//! thirteen places; each is a switch here, and what `literal` lacks is a planted bug.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget_oocc.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read-only, one record | 1 | |
//! | read-only, several records | 2: read, validate | |
//! | write, address remembered | 3: lock + read, raise + validate + log, write | unlock |
//! | write, address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | absence found, or more read, beside locks that let readers pass | + 1 at most: raise | |
//! | write, all of it on one node, which has the only copy | as above | nothing: unlocked in the data's batch |
//! | a range, its way remembered | 1, beside the records of that fetch | |
//! | a change of an index | + 1: the leaves | |
//! | abort | 1 at lock, 2 at validation; + 1 if it has logged a record of half a line that has copies: take the log back | release |
//! | own abort | + 1: validate, as a commit would: none after one record that was only read, or if all that was read is locked | release |
//!
//! No read costs an atomic. The counts are the same for every number of replicas and every length of records.
//!
//! # Deviations from the published system, each a switch
//! See [`Oocc::INFO`](crate::protocol::Protocol::INFO).

mod commit;
mod leases;
mod prepare;
mod switches;

use crate::steps::settle::{Asker, Unsettled, Whose, enumerate_logged};
use crate::protocol::settle::resolve_logged;
use crate::cluster::info::{Isolation, Needs, ProtocolCaps, ProtocolInfo, Switches};
use super::Protocol;
use crate::steps::access::together::{Came, Together};
use crate::steps::access::{self, Access, Guard, Judged, Look, near};
use tarn_store::placement::catalog::{Options, Table};
use crate::site::Context;
use tarn_store::index::btree::scan::Visit;
use tarn_store::index::btree::work::{TreeDone, TreeWork};
use tarn_store::index::growth::{Grown, Shard};
use tarn_store::layout::{LayoutKind, LockMode, LockWord};
use crate::steps::log::encode::redo_bytes;
use crate::steps::node_locks::{self, Keeps, suspect_all_locks};
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag, Resolution, TxnId};
use crate::steps::settle::redo::{Left, Rules, self as recovery_of};
use crate::steps::structure::{Rule, Step, Structure, buckets, trees};
use crate::transaction::working_set::{Added, Further, Handle, HeldAs, LockKind, Txn};
use switches::{ABORTS, LIMITS, On, PHASES, Phase, SWITCHES};
use tarn_fabric::address::{Address, NodeId};
use tarn_fabric::local::Near;
use tarn_fabric::round::{BufferOffset, Round};

/// The protocol with its switches.
pub struct Oocc {
    switches: Switches,
}

impl Oocc {
    #[inline]
    fn on(&self, switch: On) -> bool {
        self.switches.is_on(switch as usize)
    }

    /// Rolls back; waits for nothing.
    fn give_up(&self, cx: &Context, txn: &mut Txn) {
        cx.leave_reading(txn);
        let keeps = Keeps { locks: false, others: self.on(On::ReleaseGranted) };
        if node_locks::give_up(cx, txn, keeps) {
            enter(cx, Phase::Release);
        }
    }

    /// In which mode the records of a transaction are locked, by what is known of it: once it has read what it does not
    /// write, or found something absent, readers that pass could order it before and behind the same other.
    fn lock_mode(&self, txn: &Txn) -> HeldAs {
        let writes_all = || {
            let writes = |mode| mode == Mode::Update;
            txn.checks.is_empty() && txn.entries.iter().all(|entry| writes(entry.mode))
        };
        // Who asks whether anybody reads, and waits if so, is to have kept readers away by then.
        let may_pass = self.on(On::Implicit) || !self.on(On::ExclusiveIfExplicit);
        let passes = self.on(On::Intent)
            && may_pass
            && (!self.on(On::ExclusiveIfReads) || writes_all());
        if passes { HeldAs::Intent } else { HeldAs::Exclusive }
    }
}

#[inline]
fn enter(cx: &Context, phase: Phase) {
    cx.metrics.phase(phase as usize);
}

impl Structure for Oocc {
    fn enter(&self, cx: &Context, step: Step) {
        match step {
            Step::Restructure => enter(cx, Phase::Restructure),
            Step::Scan => enter(cx, Phase::Scan),
            Step::LockLeaf => enter(cx, Phase::LockLeaf),
        }
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

    fn is_about_to_scan(&self, cx: &Context, txn: &mut Txn) {
        leases::count_nodes(self, cx, txn);
    }

    fn shows_leaf(&self, _: &Txn, _: Visit) -> Result<bool, AbortReason> {
        Ok(self.on(On::ProtectRanges))
    }

    async fn commit(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        commit::commit_growth(self, cx, txn).await
    }

    fn log_bytes(&self, txn: &Txn) -> usize {
        redo_bytes(txn)
    }
}

impl Access for Oocc {
    #[inline(always)]
    fn look(&self, cx: &Context, look: Look) {
        enter(cx, match look {
            Look::Locate => Phase::Locate,
            Look::ReadDirect => Phase::ReadDirect,
            Look::Lock => Phase::Lock,
            Look::LockDirect => Phase::LockDirect,
            Look::LockDirectory => Phase::LockDirectory,
            Look::ReadBody => unreachable!("a record lies in its slot"),
            Look::Validate => Phase::Validate,
        });
    }

    #[inline(always)]
    fn minds(&self, guard: Guard) -> bool {
        match guard {
            Guard::ValidateReads => true,
            Guard::ProtectAbsent => self.on(On::ProtectAbsent),
            Guard::LockCas => self.on(On::LockCas),
            Guard::CheckLines => self.on(On::CheckLines),
        }
    }

    /// Who wants to write is refused by both modes: it could not have the lock.
    #[inline(always)]
    fn judge(&self, lock: u64, me: OwnerTag, mode: Mode) -> Judged {
        match LockWord::from_word(lock).held_against(me) {
            None => Judged::Free,
            _ if !self.on(On::RefuseLocked) => Judged::Free,
            Some(LockMode::Intent) if mode == Mode::Read => Judged::Marked,
            Some(LockMode::Intent) if !self.on(On::RefuseIntent) => Judged::Marked,
            Some(_) => Judged::InTheWay,
        }
    }

    #[inline(always)]
    fn lock_record(&self, cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        let held_as = self.lock_mode(txn);
        node_locks::ask_as(cx, txn, address, (LockKind::Record, held_as))
    }

    /// What is read from now on is not locked: then earlier locks must keep readers away before it is validated.
    fn ride(&self, cx: &Context, txn: &mut Txn) -> Option<BufferOffset> {
        let has_intents = txn.locks.iter().any(|lock| lock.held_as == HeldAs::Intent);
        let is_late = has_intents && self.lock_mode(txn) == HeldAs::Exclusive;
        if !is_late || !self.on(On::RaiseBeforeValidation) {
            return None;
        }
        enter(cx, Phase::Raise);
        node_locks::add_raises(cx, txn);
        Some(BufferOffset::default())
    }

    fn arrive(&self, _: &Context, txn: &mut Txn, _: BufferOffset) -> Result<(), AbortReason> {
        match node_locks::note_raises(txn) {
            true => Ok(()),
            false => Err(AbortReason::LockRefused),
        }
    }
}

impl Protocol for Oocc {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "oocc",
        citation: "OOCC: one-round optimistic concurrency control under leases",
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
        undone: |_, _| None,
        undone_node: |_, _| None,
    };

    type Entry = Left;

    fn new(switches: Switches) -> Oocc {
        Oocc { switches }
    }

    fn isolation(&self) -> Isolation {
        Isolation::StrictSerializable
    }

    fn layout(&self, _: &Options) -> LayoutKind {
        LayoutKind::Lined { halves: self.on(On::HalfLines) }
    }

    fn needs(&self) -> Needs {
        match (self.on(On::Lease), self.on(On::Implicit)) {
            (true, true) => Needs::READ_LEASES,
            (true, false) => Needs::EXPLICIT_LEASES,
            (false, _) => Needs::NONE,
        }
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
        leases::fetch(self, cx, txn)
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
        leases::fetch_near(self, cx, txn, near)
    }

    #[inline]
    fn commit_near(&self, cx: &Context, txn: &mut Txn) -> Option<Result<(), Failure>> {
        let memory = near::ends_near(cx, txn)?;
        Some(leases::end_reading_near(self, cx, txn, memory))
    }

    #[inline]
    fn reads_together(&self, cx: &Context) -> bool {
        // Who is counted where he reads has a working set.
        !cx.counts_readers()
    }

    #[inline]
    fn read_together(
        &self,
        cx: &Context,
        to: (&mut Together, &mut Round),
        look: (Near<'_>, bool),
    ) -> Came {
        leases::read_together(self, cx, to, look)
    }

    #[inline]
    fn fetch_together(
        &self,
        cx: &Context,
        to: (&mut Together, &mut Round),
    ) -> impl Future<Output = Came> {
        leases::fetch_together(self, cx, to)
    }

    #[inline]
    fn is_committed(&self, txn: &Txn) -> bool {
        access::is_of_one_read(txn) && !txn.reading.is_counted()
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
        let rules = Rules {
            by_writer: self.on(On::WriterTag),
            by_followers: self.on(On::FollowedIsReleased),
        };
        recovery_of::decide(cx, left, rules).await
    }

    async fn apply(&self, cx: &Context, left: &[Unsettled<Left>]) -> Result<(), Failure> {
        recovery_of::apply(cx, left).await
    }

    async fn release(&self, cx: &Context, left: &[Unsettled<Left>]) -> Result<(), Failure> {
        let whose = if self.on(On::ReleaseOwn) { Whose::Own } else { Whose::Anybodys };
        recovery_of::release(cx, left, whose).await
    }

    fn settles(&self) -> bool {
        self.on(On::SettleBeforeLog)
    }
}
