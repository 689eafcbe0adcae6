//! OOCC: optimistic readers that need only one round, because writers wait before they write. The locks lie beside
//! records, each line of a record contains its version, and OOCC uses only one-sided verbs.
//!
//! This implementation follows the paper "OOCC" (see docs/protocols/oocc.md for its full reference). A system that
//! follows the paper's text exactly loses serializability or data in thirteen places. A switch corrects each of these
//! thirteen places, and each rule that the variant `literal` lacks is a planted bug.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read-only, one record | 1 | |
//! | read-only, several records, the lease still holds | 1 | |
//! | read-only, several records, no lease or one that has run out | 2: read, validate | |
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
//! No read costs an atomic verb in OOCC. The numbers of rounds are the same for every number of replicas and every
//! length of records.
//!
//! # Deviations from the published system, each a switch
//! See [`Oocc::INFO`](crate::protocol::Protocol::INFO).

mod commit;
mod leases;
mod prepare;
mod switches;

use super::Protocol;
use crate::cluster::info::{IN_PLACE_ABORTS, Needs, ProtocolCaps, ProtocolInfo, Switches};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::RecordAccess;
use crate::steps::access::batch_read::{BatchOutcome, BatchRead};
use crate::steps::access::{Access, AtOnce, LockState, Validated, is_of_one_read, near};
use crate::steps::locks::ByCas;
use crate::steps::log::encode::redo_bytes;
use crate::steps::node_locks;
use crate::steps::settle::redo::{RedoLog, RedoRules, Rules};
use crate::steps::structure::Structure;
use crate::transaction::lock::{HeldAs, LockKind};
use crate::transaction::working_set::{Added, Handle, Txn, Upgrade};
use switches::{LIMITS, PHASES, SWITCHES, on, phase};
use tarn_fabric::address::Address;
use tarn_fabric::local::DirectMemory;
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag};
use tarn_store::layout::{LayoutKind, LockMode, LockWord};
use tarn_store::placement::catalog::{Options, Table};

/// The protocol OOCC with its switches.
pub struct Oocc {
    switches: Switches,
}

impl Oocc {
    /// Returns the mode in which a transaction locks records, according to the facts that the transaction knows so
    /// far. Once the transaction has read a record that it does not write, or has found a record absent, its locks
    /// must be exclusive. If the locks let readers pass, these readers could see the transaction both before and
    /// after another transaction.
    fn lock_mode(&self, txn: &Txn) -> HeldAs {
        let writes_all = || {
            let writes = |mode| mode == Mode::Update;
            txn.checks.is_empty() && txn.entries.iter().all(|entry| writes(entry.mode))
        };
        // Under explicit leases, a writer asks the other nodes whether they read its records. The writer must hold
        // exclusive locks when it asks the other nodes, so that no new reader can come.
        let may_pass =
            self.switches.is_on(on::IMPLICIT) || !self.switches.is_on(on::EXCLUSIVE_IF_EXPLICIT);
        let passes = self.switches.is_on(on::INTENT)
            && may_pass
            && (!self.switches.is_on(on::EXCLUSIVE_IF_READS) || writes_all());
        if passes { HeldAs::Intent } else { HeldAs::Exclusive }
    }
}

#[inline]
fn enter(cx: &Context, phase: usize) {
    cx.metrics.phase(phase);
}

impl Structure for Oocc {
    fn is_about_to_scan(&self, cx: &Context, txn: &mut Txn) {
        leases::count_nodes(self, cx, txn);
    }

    #[inline]
    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }

    async fn commit_structure(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        commit::commit_growth(self, cx, txn).await
    }

    fn log_bytes(&self, txn: &Txn) -> usize {
        redo_bytes(txn)
    }
}

impl Access for Oocc {
    type Locks = ByCas;

    /// Both modes of a lock refuse a writer, because the writer could not get the lock.
    #[inline(always)]
    fn judge(&self, lock: u64, me: OwnerTag, mode: Mode) -> LockState {
        match LockWord::from_word(lock).held_against(me) {
            None => LockState::Free,
            _ if !self.keeps(Rule::RefuseLocked) => LockState::Free,
            Some(LockMode::Intent) if mode == Mode::Read => LockState::Marked,
            Some(LockMode::Intent) if !self.switches.is_on(on::REFUSE_INTENT) => LockState::Marked,
            Some(_) => LockState::InTheWay,
        }
    }

    #[inline(always)]
    fn lock_record(&self, cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        let held_as = self.lock_mode(txn);
        node_locks::ask_as(cx, txn, address, (LockKind::Record, held_as))
    }

    /// The transaction does not lock the records that it reads from now on. So the transaction must raise the locks
    /// that it already holds to exclusive locks before it validates these reads.
    fn plan_piggyback(&self, cx: &Context, txn: &mut Txn) -> Option<BufferOffset> {
        let has_intents = txn.locks.iter().any(|lock| lock.held_as == HeldAs::Intent);
        let is_late = has_intents && self.lock_mode(txn) == HeldAs::Exclusive;
        if !is_late || !self.switches.is_on(on::RAISE_BEFORE_VALIDATION) {
            return None;
        }
        enter(cx, phase::RAISE);
        node_locks::add_raises(cx, txn);
        Some(BufferOffset::default())
    }

    fn absorb_piggyback(
        &self,
        _: &Context,
        txn: &mut Txn,
        _: BufferOffset,
    ) -> Result<(), AbortReason> {
        match node_locks::note_raises(txn) {
            true => Ok(()),
            false => Err(AbortReason::LockRefused),
        }
    }
}

impl Described for Oocc {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "oocc",
        citation: "OOCC: one-round optimistic concurrency control under leases",
        caps: ProtocolCaps { snapshot_isolation: false, ..ProtocolCaps::ALL },
        switches: SWITCHES,
        phases: PHASES,
        limits: LIMITS,
        aborts: IN_PLACE_ABORTS,
        undone: |_, _| None,
        undone_node: |_, _| None,
    };

    #[inline(always)]
    fn switches(&self) -> Switches {
        self.switches
    }
}

impl RedoRules for Oocc {
    fn redo_rules(&self) -> Rules {
        Rules {
            by_writer: self.switches.is_on(on::WRITER_TAG),
            by_followers: self.switches.is_on(on::FOLLOWED_IS_RELEASED),
        }
    }
}

/// Access to records that consist of lines; a transaction does not validate reads that took no longer than a lease.
pub struct InLease;

impl RecordAccess<Oocc> for InLease {
    #[inline(always)]
    fn add(oocc: &Oocc, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
        Validated::add(oocc, cx, txn, table, added)
    }

    fn upgrade(oocc: &Oocc, cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
        Validated::upgrade(oocc, cx, txn, index, further);
    }

    #[inline]
    fn fetch(
        oocc: &Oocc,
        cx: &Context,
        txn: &mut Txn,
    ) -> impl Future<Output = Result<(), Failure>> {
        leases::fetch(oocc, cx, txn)
    }

    #[inline]
    fn is_committed(_: &Oocc, txn: &Txn) -> bool {
        is_of_one_read(txn) && !txn.reading.is_counted()
    }

    async fn validate(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        Validated::validate(oocc, cx, txn).await
    }

    #[inline]
    fn notes_reads(cx: &Context, txn: &Txn, table: &Table) -> bool {
        near::notes_reads(cx, txn, table)
    }

    #[inline]
    fn note_looks(oocc: &Oocc, cx: &Context, count: usize) {
        Validated::note_looks(oocc, cx, count);
    }

    #[inline(always)]
    fn ask_near<'a>(_: &Oocc, cx: &'a Context, txn: &mut Txn) -> Option<DirectMemory<'a>> {
        near::ask(cx, txn)
    }

    #[inline]
    fn fetch_near(oocc: &Oocc, cx: &Context, txn: &mut Txn, near: DirectMemory<'_>) -> AtOnce {
        leases::fetch_near(oocc, cx, txn, near)
    }

    #[inline]
    fn commit_near(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> AtOnce {
        let memory = near::ends_near(cx, txn)?;
        Some(leases::end_reading_near(oocc, cx, txn, memory))
    }

    #[inline]
    fn reads_together(cx: &Context) -> bool {
        // A thread whose readers are counted at their records uses no batches of reads, because the count needs a
        // working set.
        !cx.counts_readers()
    }

    #[inline]
    fn read_together(
        oocc: &Oocc,
        cx: &Context,
        to: (&mut BatchRead, &mut Round),
        look: (DirectMemory<'_>, bool),
    ) -> BatchOutcome {
        leases::read_together(oocc, cx, to, look)
    }
}

impl Protocol for Oocc {
    type Records = InLease;
    type Log = RedoLog;

    fn new(switches: Switches) -> Oocc {
        Oocc { switches }
    }

    fn layout(&self, _: &Options) -> LayoutKind {
        LayoutKind::Lined { halves: self.switches.is_on(on::HALF_LINES) }
    }

    fn needs(&self) -> Needs {
        match (self.switches.is_on(on::LEASE), self.switches.is_on(on::IMPLICIT)) {
            (true, true) => Needs::READ_LEASES,
            (true, false) => Needs::EXPLICIT_LEASES,
            (false, _) => Needs::NONE,
        }
    }

    fn rollback(&self, cx: &Context, txn: &mut Txn) {
        cx.leave_reading(txn);
        node_locks::give_up(self, cx, txn);
    }
}
