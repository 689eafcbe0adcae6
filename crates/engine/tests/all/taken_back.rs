//! Tests OOCC's records of half a line, which do not name their writer. If a transaction has logged such a record and
//! does not write it, the transaction removes its log entry before it releases a lock.
//!
//! Invariant checked: when a refused transaction has released its locks, its log entry is gone at every copy, even if
//! a node does not answer. Suppose that both the transaction's incarnation and its locks are lost. Then recovery must
//! not mistake another transaction's later write under the same version for a write of the refused transaction. A
//! transaction keeps its log entry if its records name their writer, or are on one node only. In these two cases
//! recovery cannot mistake the entry.

use crate::common::scene::{PACE, TERMS};
use crate::common::*;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Waiting, Waker};
use tarn_engine::admin::repair;
use tarn_engine::recovery::logged;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::Context;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::placement::catalog::Placement;
use tarn_store::schema::{Cells, TableId, TableSchema};

/// The table that the test writes, in one group. The next constant is the table that the test reads, in the other
/// group.
const WRITTEN: TableId = TableId(0);
const READ: TableId = TableId(1);
/// The keys of two records of the written table.
const SHARED: u64 = 1;
const OTHER: u64 = 2;
/// The primary of the group of the written table.
const PRIMARY: NodeSlot = NodeSlot(0);
/// The value that the refused transaction would have written.
const NEVER: u64 = 666;

struct Scene {
    world: World,
    refused: Coordinator,
    other: Coordinator,
    keeper: Rc<Context>,
}

fn scene(of: fn(&str, u64) -> TableSchema, replicas: usize, missing: &str) -> Scene {
    scene_of("oocc", of, replicas, missing)
}

fn scene_of(
    protocol: &'static str,
    of: fn(&str, u64) -> TableSchema,
    replicas: usize,
    missing: &str,
) -> Scene {
    let schemas = [of("written", 400), half("read", 400)];
    let shape = Shape::of(&schemas).protocol(protocol).variant(&format!("corrected{missing}"));
    let mut shape = shape.nodes(2, replicas);
    shape.options.placement = Placement::Table;
    let world = World::new(&shape);
    let once = Retry { tries_max: 1, ..Retry::default() };
    let refused = Coordinator::new(world.context(0, 64), 0, once);
    let (mut other, keeper) = (world.coordinator(1, 64), world.context(2, 0));
    fill(&mut other, WRITTEN, [SHARED, OTHER]);
    fill(&mut other, READ, [7]);
    Scene { world, refused, other, keeper }
}

fn set(by: &mut Coordinator, table: TableId, key: u64, value: u64) {
    let body = async |tx: &mut tarn_engine::session::transaction::Transaction<'_>| {
        let row = tx.update(table, key, Cells::ALL);
        tx.fetch().await?;
        tx.set(row, A, value);
        Ok(())
    };
    block_on(by.transact(body)).expect("nobody is in its way");
}

impl Scene {
    /// Runs a transaction that reads one record, locks two others, and commits after `meanwhile` has run.
    fn refuse(&mut self, meanwhile: impl FnOnce(&mut Coordinator)) -> Result<(), Failure> {
        self.refuse_within(usize::MAX, meanwhile).expect("it ends")
    }

    /// Runs the same transaction as `refuse`, but drops it if it has not ended within `polls` polls.
    fn refuse_within(
        &mut self,
        polls: usize,
        meanwhile: impl FnOnce(&mut Coordinator),
    ) -> Option<Result<(), Failure>> {
        let (refused, other) = (&mut self.refused, &mut self.other);
        let meanwhile = Cell::new(Some(|| meanwhile(other)));
        let future = pin!(refused.transact(async |tx| {
            tx.read(READ, 7u64, Cells::ALL);
            let rows = [SHARED, OTHER].map(|key| tx.update(WRITTEN, key, Cells::ALL));
            tx.fetch().await?;
            for row in rows {
                tx.set(row, A, NEVER);
            }
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile();
            }
            Ok(())
        }));
        poll_times(future, polls, || {})
    }

    fn is_refused(&mut self) {
        let refused = self.refuse(|other| set(other, READ, 7, 8));
        assert_eq!(refused, Err(Failure::Abort(AbortReason::VersionChanged)));
    }

    /// The number of log entries of the incarnation of the refused coordinator.
    fn entries(&self) -> usize {
        let life = self.refused.context().node.id;
        block_on(logged(&self.keeper, life)).expect("an answer").len()
    }

    /// Ends the incarnation of the refused coordinator. Then the primary of its locks dies. Returns the records'
    /// values after the repair.
    fn loses_both(mut self) -> [Option<u64>; 2] {
        self.world.database.membership.expel(self.refused.context().node.id);
        self.loses(PRIMARY);
        [SHARED, OTHER].map(|key| value_of(&mut self.other, WRITTEN, key))
    }

    /// Lets a memory node die; the other node continues alone. Threads of living nodes serve requests, and
    /// coordinators run no transaction.
    fn loses(&mut self, node: NodeSlot) {
        let configurations = &self.world.database.configurations;
        self.world.fabric.fail_node(node);
        while configurations.open().groups.nodes().contains(&node) {
            // A repair step fails in the round that finds the dead node. The test then tries the step again.
            let mut told = |_| {};
            let mut step = pin!(repair::step(&self.keeper, TERMS, PACE, &mut told));
            let mut waiting = Waiting::from_waker(Waker::noop());
            while step.as_mut().poll(&mut waiting).is_pending() {
                for context in [self.refused.context(), self.other.context()] {
                    block_on(context.attend());
                }
            }
        }
    }
}

#[test]
fn a_refused_transaction_takes_back_entries_without_a_writer_s_name() {
    for (of, replicas, left) in [(half as fn(&str, u64) -> _, 2, 0), (half, 1, 1), (narrow, 2, 1)] {
        let mut scene = scene(of, replicas, "");
        scene.is_refused();
        assert_eq!(scene.entries(), left, "{replicas} copies");
        scene.world.assert_clean();
    }
    let mut lined = scene(half, 2, ",-half-lines");
    lined.is_refused();
    assert_eq!(lined.entries(), 1);
}

#[test]
fn another_transaction_s_version_does_not_finish_a_refused_one() {
    for (of, missing) in [(half as fn(&str, u64) -> _, ""), (narrow, ""), (half, ",-half-lines")] {
        let mut scene = scene(of, 2, missing);
        scene.is_refused();
        set(&mut scene.other, WRITTEN, SHARED, 55);
        assert_eq!(scene.loses_both(), [Some(55), Some(OTHER)], "{missing}");
    }
}

/// Tests the variant in which a refused transaction does not remove its log entry. Recovery mistakes another
/// transaction's VERSION for the VERSION of the refused transaction, and finishes the refused transaction.
#[test]
fn an_entry_that_is_not_taken_back_is_finished() {
    let mut scene = scene(half, 2, ",-take-log-back");
    scene.is_refused();
    assert_eq!(scene.entries(), 1);
    set(&mut scene.other, WRITTEN, SHARED, 55);
    assert_eq!(scene.loses_both(), [Some(55), Some(NEVER)]);
}

/// Tests that a copy of the log dies when the entry is sent. The entry at that copy is lost, and the transaction
/// removes the entry at the other copy. The locks at the other copy are released too.
#[test]
fn a_transaction_that_meets_a_dead_node_takes_its_entry_back_at_the_other() {
    let mut scene = scene(half, 2, "");
    let fabric = Arc::clone(&scene.world.fabric);
    let failed = scene.refuse(|_| fabric.fail_node(PRIMARY));
    assert_eq!(
        failed,
        Err(Failure::Fabric),
        "no data were sent: it knows that it has not committed"
    );
    assert_eq!(scene.entries(), 0);
    assert_eq!(scene.loses_both(), [Some(SHARED), Some(OTHER)]);
}

/// Drops the transaction at every poll. No verb takes effect later, so the drop settles the transaction. After that
/// another transaction may write, and recovery finds no entry.
#[test]
fn a_transaction_dropped_half_way_leaves_no_entry_to_finish() {
    for goes_on in [true, false] {
        let (mut polls, mut has_ended) = (0, false);
        while !has_ended {
            let mut scene = scene(half, 2, "");
            let ended = scene.refuse_within(polls, |other| set(other, READ, 7, 8));
            has_ended = ended.is_some();
            polls += 1;
            assert_eq!(scene.entries(), 0, "{polls} polls");
            let mut shared = SHARED;
            if goes_on {
                assert_eq!(value_of(&mut scene.refused, READ, 8), None);
                shared = 55;
                set(&mut scene.other, WRITTEN, SHARED, shared);
            }
            assert_eq!(scene.loses_both(), [Some(shared), Some(OTHER)], "{polls} polls");
        }
        assert!(polls > 3, "{polls} polls");
    }
}

/// Drops the transaction at every poll, on a living node. Then a memory node dies, and the next configuration is
/// opened while the coordinator is idle. The coordinator must have released its locks, even if no log names them. The
/// test covers every protocol in its list.
#[test]
fn a_dropped_transaction_keeps_no_lock_beyond_its_configuration() {
    let nodes = [PRIMARY, NodeSlot(1)];
    let all = ["oocc", "occ", "ford"].into_iter().flat_map(|it| nodes.map(|node| (it, node)));
    for ((protocol, dies), is_refused) in all.flat_map(|it| [(it, true), (it, false)]) {
        let (mut polls, mut has_ended) = (0, false);
        while !has_ended {
            let mut scene = scene_of(protocol, half, 2, "");
            let meanwhile = |other: &mut Coordinator| {
                if is_refused {
                    set(other, READ, 7, 8);
                }
            };
            has_ended = scene.refuse_within(polls, meanwhile).is_some();
            scene.loses(dies);
            let once = Retry { tries_max: 1, ..Retry::default() };
            let mut by = Coordinator::new(Rc::clone(scene.other.context()), 3, once);
            for key in [SHARED, OTHER] {
                set(&mut by, WRITTEN, key, 55);
            }
            polls += 1;
        }
        assert!(polls >= 3, "{protocol}: {polls} polls");
    }
}
