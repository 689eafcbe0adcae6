//! DSLR: two-phase locking with tickets, taken by FAA, in single-version records; one-sided verbs only.
//!
//! Yoon, Chowdhury, Mozafari, "Distributed Lock Management with RDMA: Decentralization without Starvation", SIGMOD 2018: its locks, under
//! transactions as the evaluation of OOCC runs them. Logs are those of protocols with undo logs; see docs/protocols/dslr.md.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget_dslr.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read, address known | 1: ticket + read | unlock |
//! | write, address known | 3: ticket + read, log, write | unlock |
//! | somebody is before | + the looks until the turn has come, + 1: read | |
//! | address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | read, then written | + 1: ticket + read | |
//! | absence found | + 1: validate | |
//! | abort | as far as it came | release, in turn |
//! | own abort, an absence found | + 1: validate | release, in turn |
//!
//! Every record costs two atomics, read or written.

mod commit;
mod switches;
mod turns;

use crate::steps::settle::{Asker, Unsettled, Whose, enumerate_logged};
use crate::protocol::settle::resolve_logged;
use crate::cluster::info::{Isolation, ProtocolCaps, ProtocolInfo, Switches};
use super::Protocol;
use crate::steps::access::{self, Access, Guard, Judged, Look, Taken, Which};
use tarn_store::placement::catalog::{Options, Table};
use crate::site::Context;
use tarn_store::history::{Undone, WriteKind};
use tarn_store::index::btree::scan::Visit;
use tarn_store::index::btree::work::{TreeDone, TreeWork};
use tarn_store::layout::{LayoutKind, LockWord, Ticket, TicketWord};
use crate::steps::node_locks::{self, Keeps, suspect_all_locks};
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag, Resolution, TxnId};
use crate::steps::settle::undo::{self, Left};
use crate::steps::structure::{Rule, Step, Structure, trees};
use crate::transaction::working_set::{Added, Further, Handle, Leases, LockKind, Txn};
use switches::{ABORTS, LIMITS, On, PHASES, Phase, SWITCHES};
use tarn_fabric::address::{Address, NodeId};

/// Its recovery writes the old bytes of an update back under a version beyond the one that readers may have
/// seen; a record that came or went has its old version again.
fn undone(kind: WriteKind, version: u64) -> Option<u64> {
    (kind == WriteKind::Update).then_some(version + 1)
}

/// The protocol with its switches.
pub struct Dslr {
    switches: Switches,
}

impl Dslr {
    #[inline]
    fn on(&self, switch: On) -> bool {
        self.switches.is_on(switch as usize)
    }

    /// Rolls back; waits for nothing.
    fn give_up(&self, cx: &Context, txn: &mut Txn) {
        commit::take_back(txn);
        let keeps = Keeps { locks: !self.on(On::ReleaseOnAbort), others: true };
        if node_locks::give_up(cx, txn, keeps) {
            enter(cx, Phase::Release);
        }
    }
}

impl Structure for Dslr {
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
            Rule::ReleaseGranted => true,
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

impl Access for Dslr {
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
            // Tickets are never assumed; records of several lines are read under them.
            Guard::LockCas | Guard::CheckLines => true,
        }
    }

    /// Who has a record the word does not say, and who wants it takes a ticket: what was read before is where it lies.
    #[inline(always)]
    fn judge(&self, _: u64, _: OwnerTag, _: Mode) -> Judged {
        Judged::Free
    }

    #[inline(always)]
    fn judge_again(&self, kind: LockKind, lock: u64, me: OwnerTag, _: Mode) -> Judged {
        if !self.on(On::RefuseLocked) {
            return Judged::Free;
        }
        match kind {
            LockKind::Record if TicketWord(lock).has_writer() => Judged::Taken,
            LockKind::Directory if LockWord::from_word(lock).held_against(me).is_some() => {
                Judged::InTheWay
            }
            LockKind::Record | LockKind::Directory => Judged::Free,
        }
    }

    #[inline(always)]
    fn lock_record(&self, cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        node_locks::ask_in_turn(cx, txn, address, Ticket::Writer)
    }

    #[inline(always)]
    fn locks_reads(&self, _: &Leases) -> bool {
        true
    }

    fn share_record(&self, cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        node_locks::ask_in_turn(cx, txn, address, Ticket::Reader)
    }

    fn lock_again(&self, cx: &Context, txn: &mut Txn, lock: u32, mode: Mode) {
        turns::come_again(cx, txn, lock, mode);
    }

    fn taken(&self, _: &Context, txn: &mut Txn, lock: (u32, Mode)) -> Taken {
        turns::taken(self, txn, lock)
    }

    fn has_to_wait(&self, txn: &Txn) -> bool {
        turns::has_to_wait(txn)
    }

    async fn wait(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        turns::wait(cx, txn).await
    }
}

#[inline]
fn enter(cx: &Context, phase: Phase) {
    cx.metrics.phase(phase as usize);
}

impl Protocol for Dslr {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "dslr",
        citation: "DSLR (SIGMOD 2018), as the evaluation of OOCC runs it",
        caps: ProtocolCaps {
            snapshot_isolation: false,
            ranges: true,
            growth: false,
            crash_recovery: false,
            memory_recovery: false,
            survives_drops: false,
        },
        switches: SWITCHES,
        phases: PHASES,
        limits: LIMITS,
        aborts: ABORTS,
        undone,
        undone_node: |_, new| Some(Undone::always(new + 1)),
    };

    type Entry = Left;

    fn new(switches: Switches) -> Dslr {
        Dslr { switches }
    }

    fn isolation(&self) -> Isolation {
        Isolation::StrictSerializable
    }

    fn layout(&self, _: &Options) -> LayoutKind {
        LayoutKind::Ticketed
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
        let fetched = access::fetch(self, cx, txn).await;
        match fetched {
            Ok(()) => Ok(()),
            // Which tickets it had taken nobody knows.
            Err(Failure::Fabric) => Err(Failure::Fabric),
            Err(failure) => Err(turns::leave(self, cx, txn, failure).await),
        }
    }

    #[inline]
    fn is_committed(&self, txn: &Txn) -> bool {
        // Locks are to be released.
        txn.locks.is_empty() && access::is_of_one_read(txn)
    }

    #[inline]
    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }

    async fn validate(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        access::validate_those(self, cx, txn, Which::Apart).await
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
        undo::release(cx, left, Whose::Own).await
    }
}
