//! Races around recovery and changes of the configuration, each driven to its moment.
//!
//! Invariant checked: one bad moment a test. What others do is let happen after every number of steps of
//! whoever is raced against, so that the moment is among them whatever the rounds are.

mod common;

use common::weak::WeakFabric;
use common::*;
use std::cell::Cell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_engine::catalog::Placement;
use tarn_engine::context::Context;
use tarn_engine::coordinator::Coordinator;
use tarn_engine::inspect;
use tarn_engine::mend::{self, Mended};
use tarn_engine::outcome::{Explanation, Failure, Resolution};
use tarn_engine::owner::OwnerTag;
use tarn_engine::reconfigure::{Changed, Terms, change, replaced};
use tarn_engine::recovery::{self, Attempt, Pace};
use tarn_engine::schema::{Cells, TableId};
use tarn_fabric::address::{Address, GroupId, NodeId, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;

const TABLE: TableId = TableId(0);
const KEY: u64 = 1;
const PACE: Pace = Pace { blocks: 6, pause_ns: 4, look_every_ns: 10 };
const TERMS: Terms = Terms { patience_ns: 3_000, look_every_ns: 4 };
/// Where the phase in which data are sent stands in the metrics.
const WRITE_PHASE: usize = 8;
/// Nothing here takes longer.
const STEPS_MAX: usize = 20_000;

/// One table, on memory nodes 0 and 1, the latter its backup; spares behind them.
fn pair(seed: u64, spares: u16) -> WeakFabric {
    let mut shape = Shape::of(&[narrow("narrow", 8)]).nodes(2, 2);
    shape.options.placement = Placement::Table;
    (shape.options.log_bytes, shape.options.coordinators_max) = (1024, 4);
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 0);
    let fabric = WeakFabric::with_spares(&shape, seed, spares);
    (0..spares).for_each(|at| fabric.database.configurations.add_spare(NodeSlot(2 + at)));
    fabric.calm();
    fabric
}

async fn put(by: &mut Coordinator, value: u64) -> Result<(), Failure> {
    by.transact(async |tx| {
        let row = tx.insert(TABLE, KEY);
        tx.fetch().await?;
        tx.set(row, A, value);
        Ok(())
    })
    .await
}

async fn update(by: &mut Coordinator, value: u64) -> Result<(), Failure> {
    by.transact(async |tx| {
        let row = tx.update(TABLE, KEY, Cells::ALL);
        tx.fetch().await?;
        tx.set(row, A, value);
        Ok(())
    })
    .await
}

/// Polls once.
fn poll<T>(future: &mut Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.as_mut().poll(&mut Waiting::from_waker(Waker::noop()))
}

/// Polls with a step of the fabric after each, until it is over, `stop` says so, or so many times.
fn drive<T>(
    fabric: &WeakFabric,
    future: &mut Pin<&mut impl Future<Output = T>>,
    times: usize,
    stop: impl Fn() -> bool,
) -> Option<T> {
    for _ in 0..times {
        if let Poll::Ready(value) = poll(future) {
            return Some(value);
        }
        if stop() {
            return None;
        }
        fabric.step();
    }
    None
}

fn writes(cx: &Context) -> u64 {
    cx.metrics.snapshot().phases[WRITE_PHASE]
}

/// Every dead node leaves the map, and every copy that joins is filled.
fn mend_all(fabric: &WeakFabric, by: &Context) {
    let configurations = &fabric.database.configurations;
    for _ in 0..20 {
        fabric.block_on(mend::step(by, TERMS, PACE, &mut |_| {})).unwrap();
        let is_joining = configurations.open().groups.is_joining();
        if configurations.dead().is_empty() && !is_joining {
            return;
        }
    }
    panic!("not mended: {:?}", configurations.open());
}

/// The dead nodes leave the map, and spares begin to join.
fn change_once(fabric: &WeakFabric, by: &Context) -> Changed {
    let configurations = &fabric.database.configurations;
    let mut nobody = |_: NodeId, _: &recovery::Recovery| {};
    let next = change(by, TERMS, &mut nobody, |map| replaced(configurations, map));
    fabric.block_on(next).unwrap()
}

/// What a memory node answers to a life.
fn ask(fabric: &WeakFabric, cx: &Context, at: u16) -> Result<(), FabricError> {
    let mut round = Round::new();
    round.read(Address::new(GroupId(0), 0).at(NodeSlot(at)), 8);
    fabric.block_on(cx.port.execute(&mut round)).map_err(|error| *error)
}

fn recovered(fabric: &WeakFabric, by: &Context, dead: NodeId) {
    let attempt = fabric.block_on(recovery::recover(by, dead)).unwrap();
    assert!(matches!(attempt, Attempt::Recovered(_)), "{attempt:?}");
}

/// A transaction is acknowledged and its node dies; another has its record next, and its data reach the
/// backup after so many steps of the recoverer, while the primary is gone.
fn follow_after(steps: usize) -> (Resolution, bool) {
    let fabric = pair(1, 0);
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
    let [(_, resolution)] = recovery.settled[..] else { panic!("{recovery:?}") };
    (resolution, is_early)
}

#[test]
fn a_follower_whose_data_land_meanwhile_undoes_nobody() {
    for steps in 0.. {
        let (resolution, is_early) = follow_after(steps);
        assert_eq!(
            resolution,
            Resolution::Committed,
            "acknowledged, and undone after {steps} steps"
        );
        if is_early {
            return assert!(steps > 10, "it takes some rounds");
        }
    }
}

#[test]
fn a_zombie_finds_no_way_in_at_a_spare() {
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

/// A life is expelled, and recovered by another node, after so many steps of a change that takes a spare
/// in. Whether the change had come to its end.
fn expel_during_change(steps: usize) -> bool {
    let fabric = pair(3, 1);
    let (zombie, by, other) = (fabric.context(0, 0), fabric.context(1, 0), fabric.context(2, 0));
    let mut undead = coordinator(&zombie, 0);
    fabric.block_on(put(&mut undead, 1)).unwrap();
    // One that is over already, and one that is not yet.
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

/// The map has changed since a thread ran last; a life that ran in the new one has left its log at the
/// copy that joined, and nowhere else.
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
fn an_area_is_asked_for_at_the_copies_that_there_are() {
    let (fabric, idle, dead) = logged_at_the_spare_alone();
    assert_eq!(fabric.block_on(recovery::is_settled(&idle, 1)), Ok(false));
    recovered(&fabric, &idle, dead);
    assert_eq!(fabric.block_on(recovery::is_settled(&idle, 1)), Ok(true));
    fabric.end();
}

#[test]
fn a_thread_whose_map_is_behind_sweeps() {
    let (fabric, idle, _) = logged_at_the_spare_alone();
    let swept = fabric.block_on(recovery::sweep(&idle, PACE)).expect("the primary of now lives");
    assert!(swept.looked_at > 0);
    fabric.end();
}

/// A life leaves a lock without a log at memory node 2; the sweep after its recovery fails, because another
/// memory node dies. Whoever mends sweeps again.
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
        tx.insert(TableId(2), KEY);
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
        turns.get() > 12
    };
    let report = |mended| dies.set(dies.get() || matches!(mended, Mended::Recovered(..)));
    let mut mending = pin!(mend::mend(&by, TERMS, PACE, stop, report));
    for _ in 0..STEPS_MAX {
        if poll(&mut mending).is_ready() {
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

/// A recovery is dropped after so many steps, on a node that lives; another node takes the life. Whether it
/// had come to its end.
fn drop_recovery_after(steps: usize) -> bool {
    let fabric = pair(6, 0);
    let (dead, first, second) = (fabric.context(0, 0), fabric.context(1, 0), fabric.context(2, 0));
    fabric.block_on(put(&mut coordinator(&second, 2), 1)).unwrap();
    {
        let mut dying = Box::pin(update(Box::leak(Box::new(coordinator(&dead, 0))), 2));
        let mut polled = dying.as_mut();
        drive(&fabric, &mut polled, STEPS_MAX, || writes(&dead) == 1);
        // At the primary it is written, at the backup it never is: to be undone.
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

/// A copy is dropped after so many steps, on a node that lives; another node makes it.
fn drop_copy_after(steps: usize) -> bool {
    let fabric = pair(7, 1);
    let (first, second) = (fabric.context(0, 0), fabric.context(1, 0));
    fabric.block_on(put(&mut coordinator(&second, 2), 1)).unwrap();
    fabric.fail_node(NodeSlot(0));
    fabric.database.configurations.report(NodeSlot(0));
    change_once(&fabric, &second);
    {
        let mut nobody = |_| {};
        let mut copying = pin!(mend::step(&first, TERMS, PACE, &mut nobody));
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
    // A thread of the first node is in the middle of a transaction for ever.
    let other = fabric.thread(&first.node, 1, 0);
    let mut idle = Box::pin(put(Box::leak(Box::new(coordinator(&other, 0))), 1));
    assert!(poll(&mut idle.as_mut()).is_pending());
    let turns = Cell::new(0);
    let stop = || turns.get() > 0;
    let mends = [&first, &second].map(|cx| mend::mend(cx, TERMS, PACE, stop, |_| {}));
    let [one, two] = mends;
    let (mut one, mut two) = (pin!(one), pin!(two));
    fabric.fail_node(NodeSlot(0));
    // The first has announced its change before the second looks.
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
