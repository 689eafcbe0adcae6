//! Tests that no thread waits for ever because of a dropped future or a busy thread on a living node.
//!
//! Invariant checked: the test drops work after every possible number of steps. Each time another node completes the
//! work, and no lock or unfinished change is left.

use crate::common::race::*;
use crate::common::*;
use std::cell::Cell;
use std::pin::pin;
use tarn_engine::admin::{inspect, repair};
use tarn_engine::recovery;
use tarn_engine::recovery::reconfigure::{Changed, Terms, change};
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_store::placement::replica_groups::ReplicaGroups;

/// Drops a recovery on a living node after `steps` steps. Then another node takes the recovery over. Returns whether
/// the recovery had ended before.
fn drop_recovery_after(steps: usize) -> bool {
    let fabric = pair(6, 0);
    let (dead, first, second) = (fabric.context(0, 0), fabric.context(1, 0), fabric.context(2, 0));
    fabric.block_on(put(&mut coordinator(&second, 2), 1)).unwrap();
    {
        let mut dying = Box::pin(update(Box::leak(Box::new(coordinator(&dead, 0))), 2));
        let mut polled = dying.as_mut();
        drive(&fabric, &mut polled, STEPS_MAX, || writes(&dead) == 1);
        // The data are written at the primary and never at the backup, so the transaction must be undone.
        fabric.hold(dead.node.id, NodeSlot(1));
        fabric.land(dead.node.id, NodeSlot(0));
        std::mem::forget(dying);
    }
    fabric.database.membership.expel(dead.node.id);
    {
        let mut recovering = pin!(recovery::recover(&first, dead.node.id));
        if drive(&fabric, &mut recovering, steps, || false).is_some() {
            return true;
        }
    }
    recovered(&fabric, &second, dead.node.id);
    if !fabric.database.membership.is_member(first.node.id) {
        recovered(&fabric, &second, first.node.id);
    }
    fabric.block_on(recovery::sweep(&second, PACE)).unwrap();
    let audit = fabric.block_on(inspect::audit(&second)).unwrap();
    assert!(audit.is_clean(), "after {steps} steps: {audit}");
    fabric.end();
    false
}

#[test]
fn a_dropped_recovery_is_taken_over() {
    assert!((0..STEPS_MAX).any(drop_recovery_after));
}

/// Drops the filling of a copy on a living node after `steps` steps. Then another node fills the copy.
fn drop_copy_after(steps: usize) -> bool {
    let fabric = pair(7, 1);
    let (first, second) = (fabric.context(0, 0), fabric.context(1, 0));
    fabric.block_on(put(&mut coordinator(&second, 2), 1)).unwrap();
    fabric.fail_node(NodeSlot(0));
    fabric.database.configurations.report(NodeSlot(0));
    change_once(&fabric, &second);
    {
        let mut nobody = |_| {};
        let mut copying = pin!(repair::step(&first, TERMS, PACE, &mut nobody));
        if drive(&fabric, &mut copying, steps, || false).is_some() {
            return true;
        }
    }
    mend_all(&fabric, &second);
    assert!(fabric.database.membership.unrecovered().is_empty());
    (0..500).for_each(|_| fabric.step());
    let audit = fabric.block_on(inspect::audit(&second)).unwrap();
    assert!(audit.is_clean(), "after {steps} steps: {audit}");
    fabric.end();
    false
}

#[test]
fn a_dropped_copy_is_taken_over() {
    assert!((0..STEPS_MAX).step_by(7).any(drop_copy_after));
}

#[test]
fn a_changer_whose_own_node_is_busy_lets_others_have_the_turn() {
    let fabric = pair(8, 0);
    let (first, second) = (fabric.context(0, 0), fabric.context(1, 0));
    // A thread of the first node stays in the middle of a transaction for ever.
    let other = fabric.thread(&first.node, 1, 0);
    let mut idle = Box::pin(put(Box::leak(Box::new(coordinator(&other, 0))), 1));
    assert!(poll(&mut idle.as_mut()).is_pending());
    let turns = Cell::new(0);
    let stop = || turns.get() > 0;
    let repairs = [&first, &second].map(|cx| repair::repair(cx, TERMS, PACE, stop, |_| {}));
    let [one, two] = repairs;
    let (mut one, mut two) = (pin!(one), pin!(two));
    fabric.fail_node(NodeSlot(0));
    // The first node has announced its change before the second node checks.
    let configurations = &fabric.database.configurations;
    drive(&fabric, &mut one, STEPS_MAX, || {
        configurations.announced() != configurations.open().number
    });
    let mut ended = [false; 2];
    for _ in 0..8 * STEPS_MAX {
        ended[0] = ended[0] || poll(&mut one).is_ready();
        ended[1] = ended[1] || poll(&mut two).is_ready();
        fabric.step();
        if !configurations.open().groups.nodes().contains(&NodeSlot(0)) {
            std::mem::forget(idle);
            return assert!(!fabric.database.membership.is_member(first.node.id));
        }
    }
    panic!("{:?} announced, {:?}", configurations.announced(), configurations.open());
}

/// Tests a transaction whose body takes ten milliseconds of virtual time during a change of configuration. No node
/// knows how long bodies take.
#[test]
fn a_node_that_only_takes_long_is_not_expelled() {
    let fabric = pair(10, 0);
    let (changer, slow) = (fabric.context(1, 0), fabric.context(0, 0));
    let mut by = coordinator(&slow, 0);
    let goes_on = Cell::new(false);
    let mut long = pin!(by.transact(async |tx| {
        let row = tx.insert(TABLE, KEY);
        tx.fetch().await?;
        while !goes_on.get() {
            slow.port.sleep(Nanos(1_000)).await;
        }
        tx.set(row, A, 7u64);
        Ok(())
    }));
    assert!(drive(&fabric, &mut long, 500, || false).is_none(), "in its body");
    let mut nobody = |_: NodeId, _: &recovery::Recovery| {};
    let next = |map: &ReplicaGroups| Some(map.clone());
    let mut changing = pin!(change(&changer, Terms::default(), &mut nobody, next));
    let began = changer.port.now();
    while changer.port.now() - began < Nanos(10_000_000) {
        assert!(poll(&mut changing).is_pending() && poll(&mut long).is_pending());
        fabric.step();
        assert!(fabric.database.membership.is_member(slow.node.id));
    }
    goes_on.set(true);
    let committed = drive(&fabric, &mut long, STEPS_MAX, || false);
    assert_eq!(committed, Some(Ok(())));
    let changed = drive(&fabric, &mut changing, STEPS_MAX, || false);
    assert!(matches!(changed, Some(Ok(Changed::Opened { .. }))), "{changed:?}");
}
