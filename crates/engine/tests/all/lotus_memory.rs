//! Tests of LOTUS when memory nodes die: one test for each critical moment.
//!
//! Invariant checked: no acknowledged write is lost, and no value that a transaction has read is lost. No transaction
//! waits for ever for a version that will never be decided. One compute node has all locks and stays alive. At the
//! critical moments, the test holds back, executes and cuts another node's rounds. On this fabric a round stops when
//! one of its memory nodes is dead.

use crate::common::budget::phase;
use crate::common::race::*;
use crate::common::weak::WeakFabric;
use crate::common::*;
use std::pin::{Pin, pin};
use std::rc::Rc;
use tarn_engine::admin::{inspect, repair};
use tarn_engine::recovery::{self, Attempt};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::Context;
use tarn_engine::site::metrics::RecoveryEvent;
use tarn_fabric::address::NodeSlot;
use tarn_store::ids::{Explanation, Failure, Resolution};
use tarn_store::placement::catalog::Placement;
use tarn_store::schema::{Cells, TableId};

const ONE: TableId = TableId(0);
const TWO: TableId = TableId(1);
const THREE: TableId = TableId(2);

/// A cluster for the tests. A table's records are on the memory node with the table's number and on the next memory
/// node. The cluster has three compute nodes: the owner of all locks, the node whose rounds are watched, and another
/// node.
struct Stage {
    fabric: WeakFabric,
    owner: Rc<Context>,
    watched: Rc<Context>,
    other: Rc<Context>,
}

impl Stage {
    fn new(memory_nodes: usize, variant: &str) -> Stage {
        let tables: Vec<_> = ["one", "two", "three"].iter().map(|name| narrow(name, 8)).collect();
        let mut shape = Shape::of(&tables).protocol("lotus").variant(variant);
        shape = shape.nodes(memory_nodes, 2);
        shape.options.placement = Placement::Table;
        (shape.options.log_bytes, shape.options.coordinators_max) = (1024, 4);
        (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 0);
        let fabric = WeakFabric::new(&shape, 3);
        fabric.calm();
        fabric.stop_at_the_dead(true);
        let [owner, watched, other] = [0, 1, 2].map(|slot| fabric.context(slot, 0));
        let stage = Stage { fabric, owner, watched, other };
        let mut by = stage.by(&stage.owner, 0);
        for table in [ONE, TWO, THREE] {
            let inserted = by.transact(async |tx| {
                let row = tx.insert(table, KEY);
                tx.fetch().await?;
                tx.set(row, A, 1u64);
                Ok(())
            });
            stage.fabric.block_on(inserted).unwrap();
        }
        (0..400).for_each(|_| stage.step());
        stage
    }

    fn by(&self, cx: &Rc<Context>, number: u32) -> Coordinator {
        let retry = Retry { pause_max_ns: 40, tries_max: 40, ..Retry::default() };
        Coordinator::new(Rc::clone(cx), number, retry)
    }

    /// Takes one step of the fabric and of the threads' services.
    fn step(&self) {
        self.fabric.step();
        [&self.owner, &self.watched, &self.other].iter().for_each(|cx| cx.serve());
    }

    fn hold(&self, nodes: &[u16]) {
        nodes.iter().for_each(|node| self.fabric.hold(self.watched.node.id, NodeSlot(*node)));
    }

    fn land(&self, node: u16) {
        self.fabric.land(self.watched.node.id, NodeSlot(node));
    }

    /// Runs a future together with the services of every thread, until the future ends or after `steps` steps.
    fn drive<T>(&self, future: impl Future<Output = T>, steps: usize) -> Option<T> {
        poll_times(pin!(future), steps, || self.step())
    }

    /// Runs a future until its transaction has entered a phase and the transaction's rounds of that phase are in
    /// flight.
    fn until<T>(&self, future: &mut Pin<&mut impl Future<Output = T>>, cx: &Context, name: &str) {
        let before = phase(cx, name);
        for _ in 0..STEPS_MAX {
            assert!(poll(future).is_pending(), "it was to come to {name}");
            if phase(cx, name) > before {
                return;
            }
            self.step();
        }
        panic!("it never came to {name}");
    }

    /// Kills a node's incarnation and recovers it when only a part of its transaction's C1 has taken effect. Only the
    /// verbs at one of four memory nodes have taken effect.
    fn lose_in_c1<T>(
        &self,
        cx: &Rc<Context>,
        mut lost: Pin<Box<impl Future<Output = T>>>,
        at: u16,
    ) {
        self.until(&mut lost.as_mut(), cx, "invisible");
        let others = (0..4).filter(|node| *node != at);
        others.for_each(|node| self.fabric.hold(cx.node.id, NodeSlot(node)));
        self.fabric.land(cx.node.id, NodeSlot(at));
        std::mem::forget(lost);
        self.fabric.database.membership.expel(cx.node.id);
        recovered(&self.fabric, &self.other, cx.node.id);
        (0..40).for_each(|_| self.step());
    }

    /// Repairs the cluster, so that dead memory nodes leave the map. Meanwhile the services of the nodes in `also`
    /// run.
    fn repair(&self, also: &[&Rc<Context>]) {
        let services = also.iter().map(|cx| tarn_engine::requests::serve::settle(cx));
        let mut services: Vec<_> = services.map(Box::pin).collect();
        let configurations = &self.fabric.database.configurations;
        let mut nobody = |_| {};
        let mut changing = pin!(repair::step(&self.other, TERMS, PACE, &mut nobody));
        for _ in 0..STEPS_MAX {
            services.retain_mut(|it| poll(&mut it.as_mut()).is_pending());
            if poll(&mut changing).is_ready() {
                assert!(configurations.dead().is_empty(), "{:?}", configurations.open());
                return;
            }
            self.step();
        }
        panic!("not mended: {:?}", configurations.open());
    }

    /// Reads the tables without locks, and changes them with locks. Returns the values that the function read.
    fn values(&self, tables: &[TableId]) -> Vec<u64> {
        let mut by = self.by(&self.other, 2);
        let read = async |tx: &mut tarn_engine::session::transaction::Transaction<'_>| {
            let mut values = Vec::new();
            for &table in tables {
                values.push(tx.get_row(table, KEY).await?.expect("there").u64(A));
            }
            Ok(values)
        };
        let seen = self.drive(by.transact_read_only(read), STEPS_MAX);
        let locked = self.drive(by.transact(read), STEPS_MAX);
        assert_eq!(seen, locked, "a snapshot and locks show the same");
        let seen = seen.expect("it ends").expect("it commits");
        for (&table, &value) in tables.iter().zip(&seen) {
            let again = [table];
            let again = set(&mut by, &again, value);
            assert_eq!(self.drive(again, STEPS_MAX), Some(Ok(())), "nobody has it locked");
        }
        seen
    }

    #[track_caller]
    fn assert_clean(&self) {
        (0..400).for_each(|_| self.step());
        let audit = self.fabric.block_on(inspect::audit(&self.other)).unwrap();
        assert!(audit.is_clean(), "{audit}");
    }
}

async fn set(by: &mut Coordinator, tables: &[TableId], value: u64) -> Result<(), Failure> {
    by.transact(async |tx| {
        let rows: Vec<_> = tables.iter().map(|&it| tx.update(it, KEY, Cells::one(A))).collect();
        tx.fetch().await?;
        rows.into_iter().for_each(|row| tx.set(row, A, value));
        Ok(())
    })
    .await
}

/// Tests that the reply was sent, the last writes have not taken effect at any node, and one of their two primaries
/// dies. At the other primary the last writes may never have been executed.
#[test]
fn acknowledged_writes_become_visible_at_live_primaries() {
    let stage = Stage::new(2, "corrected");
    let mut by = stage.by(&stage.watched, 1);
    assert_eq!(stage.drive(set(&mut by, &[ONE, TWO], 2), STEPS_MAX), Some(Ok(())));
    // The last writes have been posted, and no step has run since then.
    assert_eq!(phase(&stage.watched, "show"), 1);
    stage.hold(&[0, 1]);
    stage.fabric.fail_node(NodeSlot(0));
    stage.land(1);
    (0..40).for_each(|_| stage.step());
    assert_eq!(phase(&stage.watched, "resolve"), 0, "nobody has had a turn to settle it");
    stage.repair(&[&stage.watched]);
    assert_eq!(phase(&stage.watched, "resolve"), 1);
    assert_eq!(stage.drive(set(&mut by, &[THREE], 3), STEPS_MAX), Some(Ok(())));
    assert_eq!(stage.values(&[ONE, TWO, THREE]), [2, 2, 3]);
    stage.assert_clean();
}

/// Tests a transaction whose T_commit is in only one of two logs. The coordinator dies, and so does the memory node
/// whose log contains T_commit. Returns the new values if a reader saw them before the deaths, and the values after
/// the deaths.
fn read_beside_half_a_decision(variant: &str) -> (Option<Vec<u64>>, Vec<u64>) {
    let stage = Stage::new(2, variant);
    let mut by = stage.by(&stage.watched, 1);
    let mut setting = Box::pin(async move { set(&mut by, &[ONE], 2).await });
    stage.until(&mut setting.as_mut(), &stage.watched, "decide");
    stage.hold(&[1]);
    stage.land(0);
    let mut reader = stage.by(&stage.other, 2);
    let reading = reader.transact_read_only(async |tx| {
        Ok(vec![tx.get_row(ONE, KEY).await?.expect("there").u64(A)])
    });
    let seen = stage.drive(reading, 400).and_then(Result::ok);
    stage.fabric.database.membership.expel(stage.watched.node.id);
    stage.fabric.fail_node(NodeSlot(0));
    std::mem::forget(setting);
    stage.repair(&[]);
    let values = stage.values(&[ONE]);
    stage.assert_clean();
    (seen, values)
}

#[test]
fn a_version_that_was_read_outlives_a_memory_node_and_its_coordinator() {
    let (seen, after) = read_beside_half_a_decision("corrected");
    assert_eq!((seen, after), (None, vec![1]), "nobody may know of it yet");
    // The test plants two bugs. In the first bug, a reader trusts the word of one log. In the second bug, the primary
    // immediately shows a value that its backup may never get.
    for variant in ["corrected,-whole-decision", "corrected,-backups-first"] {
        let (seen, after) = read_beside_half_a_decision(variant);
        assert_eq!((seen, after), (Some(vec![2]), vec![1]), "{variant}: seen, and undone");
    }
}

/// Tests versions that have reached nodes without a log of the transaction, while the log has reached no node. The
/// transaction's coordinator removes the versions. One of the memory nodes with versions is dead.
#[test]
fn versions_without_a_log_are_removed_at_live_nodes() {
    let stage = Stage::new(4, "corrected");
    let mut by = stage.by(&stage.watched, 1);
    let outcome = {
        let mut setting = pin!(set(&mut by, &[ONE, THREE], 2));
        stage.until(&mut setting, &stage.watched, "invisible");
        stage.hold(&[0, 1]);
        stage.land(2);
        stage.land(3);
        stage.fabric.fail_node(NodeSlot(0));
        stage.land(1);
        stage.drive(setting, STEPS_MAX)
    };
    assert_eq!(outcome, Some(Err(Failure::CommitUnknown)));
    let Some(Explanation::Unknown(id)) = stage.watched.explanation(Failure::CommitUnknown) else {
        panic!("it says which");
    };
    let resolved = stage.drive(by.resolve(id), STEPS_MAX);
    assert_eq!(resolved, Some(Ok(Resolution::Aborted)), "no log is anywhere");
    stage.repair(&[&stage.watched]);
    assert_eq!(stage.values(&[ONE, THREE]), [1, 1]);
    stage.assert_clean();
}

/// Tests a version without a log that is at one of two copies when its node's incarnation has been recovered. A later
/// writer overwrites this version and dies before its own version is at both copies. Recovery undoes this writer. The
/// older version is still at the other copy. The older version is no evidence that another transaction followed the
/// later writer.
#[test]
fn a_version_at_one_copy_without_a_log_is_no_follower() {
    let stage = Stage::new(4, "corrected");
    let stray = stage.fabric.context(3, 0);
    let lost = Box::pin({
        let mut by = stage.by(&stray, 3);
        async move { set(&mut by, &[ONE, THREE], 666).await }
    });
    stage.lose_in_c1(&stray, lost, 2);
    let mut dying = Box::pin({
        let mut by = stage.by(&stage.watched, 1);
        async move { set(&mut by, &[THREE], 2).await }
    });
    stage.until(&mut dying.as_mut(), &stage.watched, "invisible");
    stage.hold(&[3]);
    stage.land(2);
    std::mem::forget(dying);
    stage.fabric.database.membership.expel(stage.watched.node.id);
    let attempt = stage.fabric.block_on(recovery::recover(&stage.other, stage.watched.node.id));
    let Ok(Attempt::Recovered(recovery)) = attempt else { panic!("{attempt:?}") };
    let [(_, resolution)] = recovery.settled[..] else { panic!("{recovery:?}") };
    (0..40).for_each(|_| stage.step());
    assert_eq!((resolution, stage.values(&[THREE])), (Resolution::Aborted, vec![1]));
    stage.assert_clean();
}

/// Tests that a coordinator is dropped while its last writes are in flight. Another thread of the same node runs the
/// next coordinator with the same number.
#[test]
fn other_threads_may_use_a_number_when_its_last_writes_are_over() {
    let stage = Stage::new(2, "corrected");
    let mut by = stage.by(&stage.watched, 1);
    assert_eq!(stage.drive(set(&mut by, &[ONE], 2), STEPS_MAX), Some(Ok(())));
    stage.hold(&[0]);
    drop(by);
    let second = stage.fabric.thread(&stage.watched.node, 1, 0);
    let mut next = stage.by(&second, 1);
    let awaited =
        |cx: &Context| cx.metrics.snapshot().recovery[RecoveryEvent::AreaAwaited as usize];
    {
        let mut setting = pin!(set(&mut next, &[TWO], 3));
        assert_eq!(stage.drive(setting.as_mut(), 400), None);
        assert!(awaited(&second) > 0, "its log is needed");
        stage.land(0);
        assert_eq!(stage.drive(setting, STEPS_MAX), Some(Ok(())));
    }
    assert_eq!(stage.drive(tarn_engine::requests::serve::settle(&second), STEPS_MAX), Some(()));
    assert_eq!(stage.values(&[ONE, TWO]), [2, 3]);
    stage.assert_clean();
}

/// Tests an incarnation that dies when its insert has reached only the primary, without its log. A later insert of
/// the key is acknowledged, and then the primary dies. The other copy must have the whole slot, not only the version.
#[test]
fn a_record_inserted_over_a_stray_slot_is_whole_at_every_copy() {
    const NEW: u64 = KEY + 1;
    let stage = Stage::new(4, "corrected");
    let stray = stage.fabric.context(3, 0);
    let lost = Box::pin({
        let mut by = stage.by(&stray, 3);
        async move {
            by.transact(async |tx| {
                let logged = tx.update(ONE, KEY, Cells::one(A));
                let new = tx.insert(THREE, NEW);
                tx.fetch().await?;
                tx.set(logged, A, 666u64);
                tx.set(new, A, 666u64);
                Ok(())
            })
            .await
        }
    });
    stage.lose_in_c1(&stray, lost, 2);
    let mut by = stage.by(&stage.watched, 1);
    let inserting = by.transact(async |tx| {
        let new = tx.insert(THREE, NEW);
        tx.fetch().await?;
        tx.set(new, A, 2u64);
        Ok(())
    });
    assert_eq!(stage.drive(inserting, STEPS_MAX), Some(Ok(())));
    (0..40).for_each(|_| stage.step());
    stage.fabric.fail_node(NodeSlot(2));
    stage.repair(&[&stage.watched]);
    let mut reader = stage.by(&stage.other, 2);
    let reading =
        reader.transact(async |tx| Ok(tx.get_row(THREE, NEW).await?.map(|row| row.u64(A))));
    assert_eq!(stage.drive(reading, STEPS_MAX), Some(Ok(Some(2))), "it was acknowledged");
    stage.assert_clean();
}

/// Tests the case of `acknowledged_writes_become_visible_at_live_primaries`, but the coordinator is dropped. Another
/// coordinator under its number is the first to learn how the last writes ended. This coordinator must not overwrite
/// the log that states which work is left.
#[test]
fn a_number_is_not_used_again_before_its_last_writes_are_settled() {
    let stage = Stage::new(2, "corrected");
    let mut by = stage.by(&stage.watched, 1);
    assert_eq!(stage.drive(set(&mut by, &[ONE, TWO], 2), STEPS_MAX), Some(Ok(())));
    stage.hold(&[0, 1]);
    stage.fabric.fail_node(NodeSlot(1));
    stage.land(0);
    // From now on, a round to both memory nodes takes effect at the node that is alive.
    stage.fabric.stop_at_the_dead(false);
    drop(by);
    let mut next = stage.by(&stage.watched, 1);
    let inserting = next.transact(async |tx| {
        let new = tx.insert(ONE, KEY + 1);
        tx.fetch().await?;
        tx.set(new, A, 3u64);
        Ok(())
    });
    let inserted = stage.drive(inserting, STEPS_MAX);
    assert!(matches!(inserted, Some(Err(_))), "one copy is dead: {inserted:?}");
    stage.repair(&[&stage.watched]);
    assert_eq!(stage.values(&[ONE, TWO]), [2, 2], "it was acknowledged");
    stage.assert_clean();
}
