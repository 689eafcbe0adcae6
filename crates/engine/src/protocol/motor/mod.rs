//! Motor: several versions of each record, locks beside them, one-sided verbs only.
//!
//! After Zhang, Hua, Yang, "Motor: Enabling Multi-Versioning for Distributed Transactions on Disaggregated
//! Memory", OSDI 2024, as its public code does it, which later papers measured (Hu, Zuo, Hu, Chen, Wang, Yang:
//! "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks", among them): `literal` and
//! `measured`. We had no copy of the paper: where its text says more than its code, we do not know it. What
//! that form loses under crashes and concurrency, and what `corrected` does instead, is in
//! docs/protocols/motor.md.
//!
//! # Round trips (asserted by the tests of budgets)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | declared read-only | 2: head, value; 1 with a remembered address | |
//! | write, address unknown, nothing else read | 3: head, lock + head + value, log + write | unlock |
//! | write, address remembered | 2: lock + head + value, log + write | unlock |
//! | the same, and others read | + 1: validate | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | a declared reader finds a chain without it | + 1: the directory's head once more | |
//! | a timestamp from elsewhere than this process | + 1 to start a snapshot, + 1 to commit | |
//! | write, all of it on one node, which has the only copy | as above | nothing |
//! | abort | 1 or 2 at lock, + 1 at validation | release |
//! | own abort | + 1: validate, as a commit would: none after one record that was only read, or if all that was read is locked or of a snapshot | release |
//! | scan, its way remembered | 1 for eight leaves; declared read-only nothing more | |
//! | entries of ordered indexes that come or go | + 1: lock + leaf | |
//! | split of buckets, before the next transaction | 4: header, buckets, slots, log + write; + 1 for each overflow block | unlock |
//!
//! # Deviations from the published system, each a switch
//! See [`Motor::INFO`](crate::protocol::Protocol::INFO).

mod absorb;
mod commit;
mod execute;
mod nodes;
mod prepare;
mod switches;
mod validate;
mod value;

use crate::steps::settle::{Asker, Unsettled, Whose, enumerate_logged};
use crate::protocol::settle::resolve_logged;
use crate::cluster::info::{Isolation, Needs, ProtocolCaps, ProtocolInfo, Switches};
use super::Protocol;
use tarn_store::placement::catalog::{Options, Table};
use crate::site::Context;
use tarn_store::history::{Undone, WriteKind};
use tarn_store::index::btree::work::{TreeDone, TreeWork};
use tarn_store::index::growth::{Grown, Shard};
use tarn_store::layout::LayoutKind;
use crate::steps::node_locks::{self, Keeps, suspect_all_locks};
use tarn_store::ids::{Failure, Resolution, TxnId};
use crate::steps::settle::undo::{self, Left};
use crate::steps::structure::{buckets, trees};
use crate::transaction::working_set::{Added, Further, Handle, Intent, Txn};
use switches::{ABORTS, LIMITS, On, PHASES, Phase, SWITCHES};
use tarn_fabric::address::NodeId;

/// Versions of a record, unless the database asks for another number.
const VERSIONS: u8 = 2;

/// What was undone leaves the version that readers name as it was.
fn undone(_: WriteKind, _: u64) -> Option<u64> {
    None
}

/// The protocol with its switches.
pub struct Motor {
    switches: Switches,
}

impl Motor {
    #[inline]
    fn on(&self, switch: On) -> bool {
        self.switches.is_on(switch as usize)
    }

    /// Whether what it reads is of one moment, T_start: what was declared to read alone, and all under
    /// snapshot isolation.
    fn reads_snapshot(&self, txn: &Txn) -> bool {
        txn.intent == Intent::ReadOnly
            || self.switches.isolation() == Isolation::SnapshotIsolation
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

#[inline]
fn enter(cx: &Context, phase: Phase) {
    cx.metrics.phase(phase as usize);
}

impl Protocol for Motor {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "motor",
        citation: "Zhang, Hua, Yang: Motor, OSDI 2024",
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
        undone,
        undone_node: |_, new| Some(Undone::always(new + 1)),
    };

    type Entry = Left;

    fn new(switches: Switches) -> Motor {
        Motor { switches }
    }

    fn isolation(&self) -> Isolation {
        self.switches.isolation()
    }

    fn layout(&self, asked: &Options) -> LayoutKind {
        let cells = match asked.layout {
            LayoutKind::MultiVersion { cells, .. }
            | LayoutKind::Deltas { cells }
            | LayoutKind::Wholes { cells } => cells,
            LayoutKind::SingleVersion | LayoutKind::Ticketed | LayoutKind::Lined { .. } => VERSIONS,
        };
        match self.on(On::Deltas) {
            true => LayoutKind::Deltas { cells },
            false => LayoutKind::Wholes { cells },
        }
    }

    fn needs(&self) -> Needs {
        Needs::TIMESTAMPS
    }

    fn add(&self, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
        execute::add(cx, txn, table, added)
    }

    fn wish_again(&self, cx: &Context, txn: &mut Txn, index: usize, further: Further) {
        execute::wish_again(cx, txn, index, further);
    }

    fn switches(&self) -> Switches {
        self.switches
    }

    fn fetch(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        execute::fetch(self, cx, txn)
    }

    fn is_committed(&self, txn: &Txn) -> bool {
        commit::is_committed(self, txn)
    }

    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }

    async fn validate(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        match txn.intent == Intent::ReadOnly || self.reads_snapshot(txn) {
            true => Ok(()),
            false => validate::validate(self, cx, txn).await,
        }
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
