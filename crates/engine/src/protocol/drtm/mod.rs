//! DrTM: two-phase locking with leases for readers, locks beside single-version records, one-sided verbs only.
//!
//! Wei, Shi, Chen, Chen, Chen, "Fast In-memory Transaction Processing using RDMA and HTM", SOSP 2015, as the evaluation of OOCC runs it: its
//! locks for records of other nodes, for all records, and no transactional memory. Logs and recovery are those of protocols with undo logs; see docs/protocols/drtm.md.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget_drtm.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read, address known: nobody has a lease, or one that still holds | 1: lease + read | |
//! | read, address known: a lease has run out | 2: lease refused, lease + read | |
//! | write, address known | 3: lock + read, log, write | unlock |
//! | write, a lease still holds | + 1, and what is left of the lease | |
//! | address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | absence found, or a lease has run out before the commit | + 1: validate | |
//! | abort | 1 at lock, 2 at validation | release |
//! | own abort | + 1: validate, as a commit would: none after one record that was only read, or if all that was read is locked | release |
//!
//! Every read costs an atomic, two if another's lease had run out.

mod commit;
mod leases;
mod switches;

use crate::steps::settle::{Asker, Unsettled, Whose, enumerate_logged};
use crate::protocol::settle::resolve_logged;
use crate::cluster::info::{Isolation, Needs, ProtocolCaps, ProtocolInfo, Switches};
use super::Protocol;
use crate::steps::access::{self, Access, Guard, Judged, Look, Taken};
use tarn_store::placement::catalog::{Options, Table};
use crate::site::Context;
use tarn_store::history::{Undone, WriteKind};
use tarn_store::index::btree::scan::Visit;
use tarn_store::index::btree::work::{TreeDone, TreeWork};
use tarn_store::layout::{LayoutKind, LockWord};
use crate::steps::node_locks::{self, Keeps, suspect_all_locks};
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag, Resolution, TxnId};
use crate::steps::settle::undo::{self, Left};
use crate::steps::structure::{Rule, Step, Structure, trees};
use crate::transaction::working_set::{Added, Further, Handle, Leases, Txn};
use switches::{ABORTS, LIMITS, On, PHASES, Phase, SWITCHES};
use tarn_fabric::address::{Address, NodeId};

/// Its recovery writes the old bytes of an update back under a version beyond the one that readers may have
/// seen; a record that came or went has its old version again.
fn undone(kind: WriteKind, version: u64) -> Option<u64> {
    (kind == WriteKind::Update).then_some(version + 1)
}

/// The protocol with its switches.
pub struct Drtm {
    switches: Switches,
}

impl Drtm {
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

impl Structure for Drtm {
    fn enter(&self, cx: &Context, step: Step) {
        enter(cx, match step {
            Step::Scan => Phase::Scan,
            Step::LockLeaf => Phase::LockLeaf,
            Step::Restructure => Phase::Restructure,
        });
    }

    #[inline(always)]
    fn keeps(&self, rule: Rule) -> bool {
        match rule {
            Rule::ReleaseGranted => self.on(On::ReleaseGranted),
            Rule::ProtectRanges => self.on(On::ProtectRanges),
            Rule::CheckFences => self.on(On::CheckFences),
            Rule::SiblingWithSplit => self.on(On::SiblingWithSplit),
        }
    }

    fn shows_leaf(&self, _: &Txn, _: Visit) -> Result<bool, AbortReason> {
        Ok(self.on(On::ProtectRanges))
    }

    async fn commit(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        commit::commit(self, cx, txn).await
    }
}

impl Access for Drtm {
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
            Guard::ValidateReads => true,
            Guard::ProtectAbsent => self.on(On::ProtectAbsent),
            Guard::LockCas => self.on(On::LockCas),
            // Records of several lines are read with a second look at the first.
            Guard::CheckLines => true,
        }
    }

    /// A lease keeps no reader off, and of a writer's is seen when he asks for the lock.
    #[inline(always)]
    fn judge(&self, lock: u64, me: OwnerTag, _: Mode) -> Judged {
        match LockWord::from_word(lock).held_against(me).is_some() && self.on(On::RefuseLocked) {
            true => Judged::InTheWay,
            false => Judged::Free,
        }
    }

    #[inline(always)]
    fn locks_reads(&self, leases: &Leases) -> bool {
        leases.reads_since.is_some()
    }

    #[inline(always)]
    fn locks_together(&self) -> bool {
        self.on(On::LockTogether)
    }

    fn share_record(&self, cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        leases::share(cx, txn, address)
    }

    fn lock_again(&self, cx: &Context, txn: &mut Txn, lock: u32, mode: Mode) {
        leases::ask_again(cx, txn, lock, mode);
    }

    fn taken(&self, cx: &Context, txn: &mut Txn, (lock, _): (u32, Mode)) -> Taken {
        leases::taken(self, cx, txn, lock)
    }

    fn has_to_wait(&self, txn: &Txn) -> bool {
        leases::has_to_wait(txn)
    }

    async fn wait(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        leases::wait(self, cx, txn).await;
        Ok(())
    }
}

#[inline]
fn enter(cx: &Context, phase: Phase) {
    cx.metrics.phase(phase as usize);
}

impl Protocol for Drtm {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "drtm",
        citation: "DrTM (SOSP 2015), as the evaluation of OOCC runs it",
        caps: ProtocolCaps {
            snapshot_isolation: false,
            ranges: true,
            growth: false,
            crash_recovery: true,
            memory_recovery: false,
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

    fn new(switches: Switches) -> Drtm {
        Drtm { switches }
    }

    fn isolation(&self) -> Isolation {
        Isolation::StrictSerializable
    }

    fn layout(&self, _: &Options) -> LayoutKind {
        LayoutKind::SingleVersion
    }

    fn needs(&self) -> Needs {
        Needs::READ_LEASES
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
    async fn fetch(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        leases::open(cx, txn).await;
        access::fetch(self, cx, txn).await
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
        // The window stays open: the transaction may go on.
        access::validate(self, cx, txn).await
    }

    fn rollback(&self, cx: &Context, txn: &mut Txn) {
        self.give_up(cx, txn);
    }

    fn abandon(&self, cx: &Context, txn: &mut Txn) {
        suspect_all_locks(txn);
        self.give_up(cx, txn);
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
