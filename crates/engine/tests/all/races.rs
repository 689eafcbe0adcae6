//! Tests of races around recovery and changes of the configuration. Each test brings the race to one exact moment.
//!
//! Invariant checked: each test is about one critical moment. The other participants act after every possible number
//! of steps of the participant under test. So the test tries the critical moment, however many rounds there are.

use crate::common::race::*;
use crate::common::weak::WeakFabric;
use crate::common::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use tarn_engine::admin::repair::{self, Repaired};
use tarn_engine::recovery::reconfigure::{Changed, change, replaced};
use tarn_engine::recovery::{self, Attempt};
use tarn_engine::site::Context;
use tarn_engine::steps::settle::is_settled;
use tarn_fabric::address::{GroupId, NodeId, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_store::ids::{Explanation, Failure, OwnerTag, Resolution};
use tarn_store::placement::catalog::Placement;
use tarn_store::schema::TableId;

/// Tests a transaction that is acknowledged before its node dies. A following transaction then locks the same record.
/// The data of this following transaction reach the backup after `steps` steps of the recovering node, while the
/// primary is gone. Returns recovery's answer about the first transaction, if any. Also returns whether recovery
/// ended before the data reached the backup.
fn follow_after(protocol: &'static str, steps: usize) -> (Option<Resolution>, bool) {
    let fabric = pair_of(protocol, 1, 0);
    let (dead, alive, by) = (fabric.context(0, 0), fabric.context(1, 0), fabric.context(2, 0));
    let mut first = coordinator(&dead, 0);
    fabric.block_on(put(&mut first, 1)).unwrap();
    fabric.block_on(update(&mut first, 100)).unwrap();
    (0..200).for_each(|_| fabric.step());
    fabric.database.membership.expel(dead.node.id);
    let mut second = coordinator(&alive, 1);
    let mut following = pin!(update(&mut second, 200));
    drive(&fabric, &mut following, STEPS_MAX, || writes(&alive) == 1);
    fabric.hold(alive.node.id, NodeSlot(1));
    fabric.fail_node(NodeSlot(0));
    let mut recovery = pin!(recovery::recover(&by, dead.node.id));
    let early = drive(&fabric, &mut recovery, steps, || false);
    fabric.land(alive.node.id, NodeSlot(1));
    let is_early = early.is_some();
    let attempt = match early {
        Some(attempt) => attempt,
        None => fabric.block_on(recovery),
    };
    let Ok(Attempt::Recovered(recovery)) = attempt else { panic!("{attempt:?}") };
    assert!(recovery.settled.len() <= 1, "{recovery:?}");
    (recovery.settled.first().map(|&(_, resolution)| resolution), is_early)
}

#[test]
fn a_follower_whose_data_land_late_does_not_undo_its_predecessor() {
    for steps in 0.. {
        let (resolution, is_early) = follow_after("ford", steps);
        let committed = Some(Resolution::Committed);
        assert_eq!(resolution, committed, "acknowledged, and undone after {steps} steps");
        if is_early {
            return assert!(steps > 10, "it takes some rounds");
        }
    }
}

/// Tests the race of [`follow_after`] with redo logs. Suppose that the record already names the following
/// transaction. Then no record names the first transaction, and recovery does not need the first transaction's
/// outcome.
#[test]
fn a_follower_whose_data_land_late_does_not_abort_its_predecessor() {
    let mut told = BTreeSet::new();
    for steps in 0.. {
        let (resolution, is_early) = follow_after("oocc", steps);
        assert_ne!(resolution, Some(Resolution::Aborted), "acknowledged, after {steps} steps");
        told.insert(resolution.is_some());
        if is_early {
            assert!(steps > 10, "it takes some rounds");
            break;
        }
    }
    assert_eq!(told.len(), 2, "the data landed before the look, and behind it");
}

#[test]
fn a_zombie_cannot_write_to_a_spare() {
    let fabric = pair(2, 2);
    let (zombie, by) = (fabric.context(0, 0), fabric.context(1, 0));
    let mut undead = coordinator(&zombie, 0);
    fabric.block_on(put(&mut undead, 1)).unwrap();
    fabric.database.membership.expel(zombie.node.id);
    recovered(&fabric, &by, zombie.node.id);
    for node in [0, 1] {
        fabric.fail_node(NodeSlot(node));
        mend_all(&fabric, &by);
    }
    for spare in [2, 3] {
        assert_eq!(ask(&fabric, &zombie, spare), Err(FabricError::Fenced));
    }
    let refused = fabric.block_on(update(&mut undead, 666));
    assert_eq!(refused, Err(Failure::Fabric));
    let why = zombie.explanation(Failure::Fabric);
    assert_eq!(why, Some(Explanation::Fabric(FabricError::Fenced)));
}

/// Expels an incarnation after `steps` steps of a change that adds a spare node. Another node recovers the
/// incarnation. Returns whether the change had ended.
fn expel_during_change(steps: usize) -> bool {
    let fabric = pair(3, 1);
    let (zombie, by, other) = (fabric.context(0, 0), fabric.context(1, 0), fabric.context(2, 0));
    let mut undead = coordinator(&zombie, 0);
    fabric.block_on(put(&mut undead, 1)).unwrap();
    // One incarnation is recovered already, and the other incarnation is not.
    let before = fabric.context(3, 0);
    fabric.database.membership.expel(before.node.id);
    recovered(&fabric, &other, before.node.id);
    fabric.fail_node(NodeSlot(0));
    fabric.database.configurations.report(NodeSlot(0));
    let configurations = &fabric.database.configurations;
    let mut nobody = |_: NodeId, _: &recovery::Recovery| {};
    let mut changing = pin!(change(&by, TERMS, &mut nobody, |map| replaced(configurations, map)));
    let early = drive(&fabric, &mut changing, steps, || false).is_some();
    fabric.database.membership.expel(zombie.node.id);
    let mut recovering = pin!(recovery::recover(&other, zombie.node.id));
    let (mut ended, mut is_recovered) = (early, false);
    for _ in 0..STEPS_MAX {
        is_recovered = is_recovered || poll(&mut recovering).is_ready();
        ended = ended || poll(&mut changing).is_ready();
        if ended && is_recovered {
            break;
        }
        fabric.step();
    }
    assert!(ended && is_recovered, "after {steps} steps");
    assert_eq!(configurations.open().groups.joining(GroupId(0)), [NodeSlot(2)]);
    assert_eq!(ask(&fabric, &before, 2), Err(FabricError::Fenced), "after {steps} steps");
    assert_eq!(ask(&fabric, &zombie, 2), Err(FabricError::Fenced), "after {steps} steps");
    early
}

#[test]
fn a_life_that_ends_during_a_change_is_revoked_at_its_spare() {
    assert!((0..STEPS_MAX).any(expel_during_change));
}

/// Creates a cluster whose map has changed since a thread ran last. An incarnation that ran with the new map has left
/// its log only at the copy that joined.
fn logged_at_the_spare_alone() -> (WeakFabric, Rc<Context>, NodeId) {
    let fabric = pair(4, 1);
    let (idle, dead, by) = (fabric.context(0, 0), fabric.context(1, 0), fabric.context(2, 0));
    fabric.block_on(put(&mut coordinator(&by, 2), 1)).unwrap();
    fabric.fail_node(NodeSlot(0));
    fabric.database.configurations.report(NodeSlot(0));
    assert!(matches!(change_once(&fabric, &by), Changed::Opened { .. }));
    let before = writes(&dead);
    {
        let mut dying = Box::pin(update(Box::leak(Box::new(coordinator(&dead, 1))), 2));
        let mut polled = dying.as_mut();
        drive(&fabric, &mut polled, STEPS_MAX, || writes(&dead) > before);
        fabric.hold(dead.node.id, NodeSlot(1));
        fabric.land(dead.node.id, NodeSlot(2));
        std::mem::forget(dying);
    }
    let id = dead.node.id;
    fabric.database.membership.expel(id);
    std::mem::forget(dead);
    (fabric, idle, id)
}

#[test]
fn recovery_reads_a_log_area_at_its_present_copies() {
    let (fabric, idle, dead) = logged_at_the_spare_alone();
    assert_eq!(fabric.block_on(is_settled(&idle, 1)), Ok(false));
    recovered(&fabric, &idle, dead);
    assert_eq!(fabric.block_on(is_settled(&idle, 1)), Ok(true));
    fabric.end();
}

#[test]
fn a_thread_with_an_old_map_sweeps_the_new_primaries() {
    let (fabric, idle, _) = logged_at_the_spare_alone();
    let swept = fabric.block_on(recovery::sweep(&idle, PACE)).expect("the primary of now lives");
    assert!(swept.looked_at > 0);
    fabric.end();
}

/// Tests an incarnation that leaves a lock without a log at memory node 2. The sweep after the incarnation's recovery
/// fails, because another memory node dies. Then the repairing thread sweeps again.
#[test]
fn a_sweep_that_fails_is_made_again() {
    let tables: Vec<_> = ["one", "two", "three"].iter().map(|name| narrow(name, 8)).collect();
    let mut shape = Shape::of(&tables).nodes(3, 3);
    shape.options.placement = Placement::Table;
    (shape.options.log_bytes, shape.options.coordinators_max) = (1024, 4);
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 0);
    let fabric = WeakFabric::new(&shape, 5);
    fabric.calm();
    let (dead, by) = (fabric.context(0, 0), fabric.context(1, 0));
    let mut victim = coordinator(&dead, 0);
    victim.record_history();
    let mut dying = Box::pin(Box::leak(Box::new(victim)).transact(async |tx| {
        tx.insert_zeros(TableId(2), KEY);
        tx.fetch().await?;
        Ok(())
    }));
    let mut polled = dying.as_mut();
    let locked =
        || (1..9).any(|count| fabric.has_word(OwnerTag::new(dead.node.id, 0, count).word()));
    assert_eq!(drive(&fabric, &mut polled, STEPS_MAX, locked), None);
    std::mem::forget(dying);
    fabric.database.membership.expel(dead.node.id);
    fabric.fail_node(NodeSlot(0));
    let (turns, dies) = (Cell::new(0), Cell::new(false));
    let stop = || {
        turns.set(turns.get() + 1);
        turns.get() > 100 // a sweep takes one step in each turn
    };
    let report = |repaired| dies.set(dies.get() || matches!(repaired, Repaired::Recovered(..)));
    let mut repairing = pin!(repair::repair(&by, TERMS, PACE, stop, report));
    for _ in 0..STEPS_MAX {
        if poll(&mut repairing).is_ready() {
            break;
        }
        if dies.take() {
            fabric.fail_node(NodeSlot(1));
        }
        fabric.step();
    }
    assert_eq!(fabric.database.configurations.open().groups.members(GroupId(2)), [NodeSlot(2)]);
    assert!(!locked(), "nobody has met it, and it is still there");
    fabric.end();
}
