//! OCC: optimistic concurrency control in four awaited rounds, locks beside single-version records, one-sided verbs only.
//!
//! The baseline that OOCC is compared with in its evaluation (Wu, Zhang, Chen, Liao, Shan, Wu, "OOCC: One-round Optimistic
//! Concurrency Control for Read-Only Disaggregated Transactions"), which calls it FORD-style: FORD without the
//! fused log. Locks, logs and recovery are those of protocols with undo logs; see docs/protocols/occ.md.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget_occ.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read-only, one record | 1 | |
//! | read-only, several records | 2: read, validate | |
//! | write, address known, nothing else read | 3: lock + read, log, write | unlock |
//! | write, address known, others read | 4: lock + read, validate, log, write | unlock |
//! | write, address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | abort | 1 at lock, 2 at validation | release |
//! | own abort | + 1: validate, as a commit would: none after one record that was only read, or if all that was read is locked | release |

mod commit;
mod switches;

use crate::steps::settle::{Asker, Unsettled, Whose, enumerate_logged};
use crate::protocol::settle::resolve_logged;
use crate::cluster::info::{Isolation, ProtocolCaps, ProtocolInfo, Switches};
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
use switches::{ABORTS, LIMITS, On, PHASES, Phase, SWITCHES};
use tarn_fabric::address::NodeId;
use tarn_fabric::local::Near;
use tarn_fabric::round::Round;

/// Its recovery writes the old bytes of an update back under a version beyond the one that readers may have
/// seen; a record that came or went has its old version again.
fn undone(kind: WriteKind, version: u64) -> Option<u64> {
    (kind == WriteKind::Update).then_some(version + 1)
}

/// The protocol with its switches.
pub struct Occ {
    switches: Switches,
}

impl Occ {
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

impl Structure for Occ {
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

impl Access for Occ {
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
}

#[inline]
fn enter(cx: &Context, phase: Phase) {
    cx.metrics.phase(phase as usize);
}

impl Protocol for Occ {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "occ",
        citation: "OCC, as the evaluation of OOCC describes it",
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

    fn new(switches: Switches) -> Occ {
        Occ { switches }
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
