//! Tests compute nodes that die, or are declared dead while they still run, at any moment. Other nodes recover them.
//!
//! Invariant checked: nodes may die at any time, even while they recover another node. No acknowledged transaction is
//! lost and no transaction sees changes of an aborted transaction. The history is strictly serializable. After the
//! sweep replicas are equal and no lock is left. If a rule of recovery is turned off, the test finds a violation.

use crate::common::crash::{self, Found};
use crate::common::mix::{self, ANYTHING, COMING_AND_GOING, CROWDED, HALVES, Mix, OVERWRITING};
use crate::common::weak::WeakFabric;
use crate::common::*;
use std::cell::Cell;
use tarn_engine::admin::inspect;
use tarn_engine::cluster::membership::{EmbeddedMembership, LeaseTerms, Membership, Standing};
use tarn_engine::protocol::ALL;
use tarn_engine::recovery::{self, Attempt, Pace};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::ComputeNode;
use tarn_engine::site::admission_gate::Lease;
use tarn_engine::site::metrics::{RecoveryEvent, Tally};
use tarn_engine::steps::settle::logs;
use tarn_fabric::address::{GroupId, NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::{Executor, block_on};
use tarn_store::ids::{AbortReason, Explanation, Failure, OwnerTag, Resolution};
use tarn_store::index::growth::Shard;
use tarn_store::schema::{Cells, TableId};

const FORD: &str = ALL[0].name;
const OOCC: &str = "oocc";
/// The length of the leases of OOCC's readers. A lease lasts as long as some rounds.
const READ_LEASE_NS: u32 = 60;

/// Returns a shape with one to three replicas. For half of the seeds the number of nodes equals the number of
/// replicas.
fn shape(protocol: &'static str, seed: u64, variant: &str) -> Shape {
    let replicas = 1 + seed as usize % 3;
    let nodes = if seed % 6 < 3 { replicas } else { 3 };
    mix::shape(nodes, replicas, variant).protocol(protocol).leasing_reads(READ_LEASE_NS)
}

/// Runs schedules of every mix, in which nodes die.
fn whoever_dies(protocol: &'static str) -> Found {
    let seeds = seeds(80);
    let mut found = Found::default();
    for seed in 0..seeds {
        for mix in [ANYTHING, COMING_AND_GOING, CROWDED, HALVES] {
            crash::run(&shape(protocol, seed, "corrected"), mix, seed, &mut found)
                .unwrap_or_else(|text| panic!("{text}"));
        }
    }
    println!("{found:?}");
    found
}

#[test]
fn a_death_of_any_node_at_any_time_loses_nothing() {
    let found = whoever_dies(FORD);
    assert!(found.committed > 0 && found.aborted > found.nothing_written, "{found:?}");
    assert!(found.tally.splits > 0, "{found:?}");
    for event in REACHED {
        let reached = found.tally.recovery[event as usize];
        println!("  {}: {reached}", event.name());
        assert!(reached > 0, "{} never came about", event.name());
    }
}

/// Tests schedules in which indexes also grow, and deaths interrupt the growth, under redo logs.
#[test]
fn recovery_with_redo_logs_finishes_dead_transactions_and_loses_nothing() {
    let found = whoever_dies(OOCC);
    assert!(found.committed > 0 && found.aborted > 0, "{found:?}");
    assert!(found.tally.splits > 0, "{found:?}");
    assert!(found.tally.recovery[RecoveryEvent::Finished as usize] > 0, "{found:?}");
}

/// The recovery events that schedules must reach. In these schedules no node has a membership lease, and no memory
/// node dies.
const REACHED: [RecoveryEvent; 8] = [
    RecoveryEvent::Recovered,
    RecoveryEvent::TookOver,
    RecoveryEvent::FoundReleased,
    RecoveryEvent::Finished,
    RecoveryEvent::Undone,
    RecoveryEvent::StrayMet,
    RecoveryEvent::StraySwept,
    RecoveryEvent::AreaAwaited,
];

/// Prints the number of schedules after which the test finds the bug of the variant. The test first creates a
/// database of the variant once, because a panic in that step is a mistake of the test. In a schedule, a panic comes
/// from the engine, which has detected a broken invariant.
fn found_after(switch: &str, seeds: u64, mix: Mix) {
    let variant = format!("corrected,-{switch}");
    drop(shape(FORD, 0, &variant).database());
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| {
            crash::run(&shape(FORD, seed, &variant), mix, seed, &mut Found::default())
        });
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(text)) => return println!("{variant}: schedule {}: {text}", seed + 1),
            Err(_) => return println!("{variant}: schedule {}: a panic", seed + 1),
        }
    }
    panic!("{variant}: not found in {seeds} schedules");
}

#[test]
fn every_rule_of_recovery_that_is_switched_off_shows_a_violation() {
    found_after("fence-before-recovery", 300, ANYTHING);
    found_after("settle-before-log", 300, ANYTHING);
    found_after("release-own", 300, OVERWRITING);
}

const TABLES: [TableId; 2] = [TableId(0), TableId(1)];

/// Returns a shape with two tables. Table 0 is on nodes 0 and 1. Table 1 is on nodes 1 and 2. Both tables contain
/// records 1, 2 and 3.
fn two_tables_shape(variant: &str) -> Shape {
    let schemas = [narrow("narrow", 8), apart("apart", 8)];
    let mut shape = Shape::of(&schemas).nodes(3, 2).variant(variant);
    shape.options.placement = tarn_store::placement::catalog::Placement::Table;
    shape.options.coordinators_max = 8;
    shape
}

fn two_tables(variant: &str) -> World {
    let world = World::new(&two_tables_shape(variant));
    let mut by = world.coordinator(5, 0);
    TABLES.into_iter().for_each(|table| fill(&mut by, table, [1, 2, 3]));
    world
}

/// Updates record 1 of both tables, deletes record 2 of the first table, and inserts record 4 into the second table.
async fn change_both(by: &mut Coordinator) -> Result<(), Failure> {
    by.transact(async |tx| {
        let rows = TABLES.map(|table| tx.update(table, 1u64, Cells::ALL));
        tx.delete(TABLES[0], 2u64);
        let fresh = tx.insert(TABLES[1], 4u64);
        tx.fetch().await?;
        rows.into_iter().for_each(|row| tx.set(row, A, 100u64));
        tx.set(fresh, A, 100u64);
        Ok(())
    })
    .await
}

/// Returns which of the four changes of [`change_both`] have happened.
async fn seen(by: &mut Coordinator) -> [bool; 4] {
    let asked = [(TABLES[0], 1u64), (TABLES[1], 1), (TABLES[0], 2), (TABLES[1], 4)];
    let values = by.transact(async |tx| {
        let rows = asked.map(|(table, key)| tx.read(table, key, Cells::ALL));
        tx.fetch().await?;
        Ok(rows.map(|row| tx.get(row).map(|row| row.u64(A))))
    });
    let values = values.await.unwrap();
    std::array::from_fn(|at| values[at] == [Some(100), Some(100), None, Some(100)][at])
}

/// Returns whether the transaction has happened. Asserts that it has happened as a whole or not at all.
fn has_happened(by: &mut Coordinator) -> bool {
    let seen = block_on(seen(by));
    assert!(seen.iter().all(|&it| it == seen[0]), "torn: {seen:?}");
    seen[0]
}

/// Polls a future `polls` times and then never again. The function does not drop the future, as if the future's
/// thread had vanished.
fn die_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    let ended = poll_times(future.as_mut(), polls, || {});
    if ended.is_none() {
        std::mem::forget(future);
    }
    ended
}

/// Polls a future with `steps` steps of the fabric between the polls, and then never again. The function does not
/// drop the future.
fn die_after_steps<T>(
    fabric: &WeakFabric,
    steps: usize,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = Box::pin(future);
    let ended = poll_times(future.as_mut(), steps, || fabric.step());
    if ended.is_none() {
        std::mem::forget(future);
    }
    ended
}

/// The results of all tested points of death of a victim and of its first recovering node.
#[derive(Default, Debug)]
struct Deaths {
    /// The largest number of rounds that a complete recovery took.
    rounds: u64,
    victims: u64,
    recoverers: u64,
    committed: u64,
    tally: Tally,
}

/// Lets the victim die after `steps` steps, and its first recovering node after `recoverer_steps` steps. Returns
/// whether each of the two nodes had finished.
fn die_twice(steps: usize, recoverer_steps: usize, deaths: &mut Deaths) -> (bool, bool) {
    let mut shape = two_tables_shape("corrected");
    (shape.options.log_bytes, shape.options.coordinators_max) = (1024, 4);
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 0);
    let fabric = WeakFabric::new(&shape, 7);
    fabric.calm();
    let mut by = coordinator(&fabric.context(5, 0), 1);
    for (table, key) in TABLES.into_iter().flat_map(|table| [1, 2, 3].map(|key| (table, key))) {
        fabric.block_on(by.transact(async |tx| Ok(tx.insert_zeros(table, key)))).unwrap();
    }
    let (membership, cx) = (&fabric.database.membership, fabric.context(0, 0));
    let victim = Box::leak(Box::new(coordinator(&cx, 0)));
    let ended = die_after_steps(&fabric, steps, change_both(victim));
    membership.expel(cx.node.id);
    let (first, second) = (fabric.context(1, 0), fabric.context(2, 0));
    let recovery = recovery::recover(&first, cx.node.id);
    let before = first.port.counts().rounds;
    let recovered = die_after_steps(&fabric, recoverer_steps, recovery);
    let rounds = first.port.counts().rounds - before;
    if recovered.is_none() {
        deaths.recoverers += 1;
        membership.expel(first.node.id);
        for dead in [cx.node.id, first.node.id] {
            let again = fabric.block_on(recovery::recover(&second, dead)).unwrap();
            assert!(matches!(again, Attempt::Recovered(_) | Attempt::Done), "{again:?}");
        }
    }
    assert_eq!(membership.standing(cx.node.id), Standing::Recovered);
    fabric.block_on(recovery::sweep(&second, Pace::UNPACED)).unwrap();
    let audit = fabric.block_on(inspect::audit(&second)).unwrap();
    assert!(audit.is_clean(), "{steps}, {recoverer_steps}: {audit}");
    let values = fabric.block_on(seen(&mut by));
    assert!(values.iter().all(|it| *it == values[0]), "{steps}, {recoverer_steps}: {values:?}");
    assert!(values[0] || ended.is_none(), "acknowledged and lost");
    let decided = cx.decisions().into_iter().chain(first.decisions()).chain(second.decisions());
    let committed = decided.map(|(_, it)| it == Resolution::Committed).collect::<Vec<bool>>();
    assert!(committed.iter().all(|it| *it == values[0]), "{committed:?}, {values:?}");
    deaths.victims += u64::from(ended.is_none());
    deaths.committed += u64::from(values[0]);
    deaths.tally.add(&second.metrics.snapshot());
    deaths.rounds = deaths.rounds.max(rounds);
    fabric.end();
    (ended.is_some(), recovered.is_some())
}

#[test]
fn a_recovery_that_dies_at_any_step_is_taken_over() {
    let mut deaths = Deaths::default();
    for steps in (0..).step_by(3) {
        let mut has_ended = false;
        for recoverer_steps in (0..).step_by(11) {
            let (ended, recovered) = die_twice(steps, recoverer_steps, &mut deaths);
            has_ended = ended;
            if recovered {
                break;
            }
        }
        if has_ended {
            println!("{steps} steps: {deaths:?}");
            assert!(
                deaths.rounds <= 8,
                "heads, entries, locks, versions, marks, bytes, clear, release"
            );
            let events = deaths.tally.recovery;
            for event in [RecoveryEvent::Undone, RecoveryEvent::Finished, RecoveryEvent::TookOver] {
                assert!(events[event as usize] > 0, "{}", event.name());
            }
            return;
        }
    }
}

fn impatient() -> Retry {
    Retry { deadline: Some(Nanos(2_000_000)), ..Retry::default() }
}

/// Creates a cluster whose node 0 died with locks and without a log.
fn locked_without_log() -> (World, NodeId) {
    for polls in 1..20 {
        let world = two_tables("corrected");
        let cx = world.context(0, 0);
        let victim = Box::leak(Box::new(coordinator(&cx, 0)));
        assert!(die_after(polls, change_both(victim)).is_none());
        let id = cx.node.id;
        let heads = block_on(logs::heads(&cx, 0..1)).unwrap().found;
        if world.audit().locks_left > 0 && heads.is_empty() {
            return (world, id);
        }
    }
    unreachable!("there is such a moment")
}

#[test]
fn a_transaction_releases_locks_of_a_recovered_life() {
    let (world, dead) = locked_without_log();
    let (membership, by) = (&world.database.membership, world.context(1, 0));
    let mut other = Coordinator::new(std::rc::Rc::clone(&by), 1, impatient());
    assert_eq!(block_on(change_both(&mut other)), Err(Failure::DeadlineExceeded));
    membership.expel(dead);
    assert_eq!(block_on(change_both(&mut other)), Err(Failure::DeadlineExceeded));
    block_on(recovery::recover(&by, dead)).unwrap();
    let before = by.metrics.snapshot();
    block_on(change_both(&mut other)).unwrap();
    let after = by.metrics.snapshot().since(&before);
    let refused = after.aborts[AbortReason::LockRefused as usize];
    assert!(after.recovery[RecoveryEvent::StrayMet as usize] > 0, "{after:?}");
    assert!(after.aborted() <= 8, "it waits for nobody: {refused} refused, {after:?}");
    block_on(recovery::sweep(&by, Pace::UNPACED)).unwrap();
    world.assert_clean();
}

/// Runs a transaction that also writes to both groups' logs, on other records than [`change_both`].
async fn change_others(by: &mut Coordinator) -> Result<(), Failure> {
    by.transact(async |tx| {
        let rows = TABLES.map(|table| tx.update(table, 3u64, Cells::ALL));
        tx.fetch().await?;
        rows.into_iter().for_each(|row| tx.set(row, A, 7u64));
        Ok(())
    })
    .await
}

#[test]
fn a_dead_coordinators_number_waits_for_its_recovery() {
    let mut waited = 0;
    for polls in 0..14 {
        let world = two_tables("corrected");
        let (cx, by) = (world.context(0, 0), world.context(1, 0));
        let victim = Box::leak(Box::new(coordinator(&cx, 0)));
        let ended = die_after(polls, change_both(victim));
        world.database.membership.expel(cx.node.id);
        let tags = || -> Vec<OwnerTag> {
            let heads = block_on(logs::heads(&by, 0..1)).unwrap().found;
            heads.iter().map(|head| head.tag).collect()
        };
        let logged = tags();
        // An index of this coordinator's thread should grow, and the growth would write a log too.
        by.growth.request(Shard { table: TABLES[0], group: GroupId(0) });
        let mut heir = Coordinator::new(std::rc::Rc::clone(&by), 0, impatient());
        let first = block_on(change_others(&mut heir));
        if !logged.is_empty() {
            assert_eq!(first, Err(Failure::DeadlineExceeded), "after {polls} polls");
            assert_eq!(tags(), logged, "after {polls} polls");
            waited += 1;
        }
        block_on(recovery::recover(&by, cx.node.id)).unwrap();
        block_on(change_others(&mut heir)).unwrap();
        block_on(recovery::sweep(&by, Pace::UNPACED)).unwrap();
        world.assert_clean();
        assert!(has_happened(&mut world.coordinator(3, 0)) || ended.is_none());
        world.database.membership.join(cx.node.id.slot).expect("its last life is recovered");
    }
    assert!(waited > 0, "some died with a log");
}

#[test]
fn a_node_without_a_lease_begins_no_transaction() {
    let world = two_tables("corrected");
    let terms = LeaseTerms { lease_ns: 1_000_000, renew_every_ns: 1_000, drift_ppm: 200 };
    let service = EmbeddedMembership::with_leases(4, terms);
    let id = service.join(NodeSlot(0)).unwrap();
    let database = world.with_membership(std::sync::Arc::new(service));
    let node = std::sync::Arc::new(ComputeNode::new(std::sync::Arc::clone(&database), id));
    let cx = world.thread(&node, 0, 0);
    let mut by = coordinator(&cx, 0);
    let mut lease = Lease::ask(&cx);
    assert!(lease.renew(&cx) && !node.admission_gate.is_barred());
    block_on(change_others(&mut by)).unwrap();
    database.membership.expel(id);
    assert!(!lease.renew(&cx) && node.admission_gate.is_barred());
    let refused = block_on(change_others(&mut by));
    assert_eq!(refused, Err(Failure::Fabric));
    let why = cx.explanation(Failure::Fabric);
    assert_eq!(why, Some(Explanation::Fabric(FabricError::Fenced)));
    assert_eq!(cx.metrics.snapshot().recovery[RecoveryEvent::Barred as usize], 1);
}

#[test]
fn attending_nodes_recover_each_other_and_free_every_lock() {
    let (world, dead) = locked_without_log();
    world.database.membership.expel(dead);
    let (done, told) = (Cell::new(0), Cell::new(0));
    let contexts = [world.context(1, 0), world.context(2, 0)];
    let stop = || world.database.membership.unrecovered().is_empty() && done.get() > 1_000;
    let mut executor = Executor::new();
    for by in &contexts {
        let (done, told) = (&done, &told);
        let looks = move || {
            done.set(done.get() + 1);
            stop()
        };
        executor.spawn(async move {
            let pace = Pace { look_every_ns: 0, ..Pace::UNPACED };
            let tell = |_, _: &recovery::Recovery| told.set(told.get() + 1);
            recovery::attend(by, pace, looks, tell).await.unwrap();
        });
    }
    executor.run();
    assert_eq!(told.get(), 1, "one of them recovered it");
    world.assert_clean();
}

#[test]
fn recovery_takes_few_rounds() {
    let mut seen = Vec::new();
    for polls in 0..12 {
        let world = two_tables("corrected");
        let (cx, by) = (world.context(0, 0), world.context(1, 0));
        let victim = Box::leak(Box::new(coordinator(&cx, 0)));
        die_after(polls, change_both(victim));
        world.database.membership.expel(cx.node.id);
        let before = by.port.counts().rounds;
        block_on(recovery::recover(&by, cx.node.id)).unwrap();
        seen.push(by.port.counts().rounds - before);
    }
    println!("rounds of a recovery, by polls of the dead: {seen:?}");
    // A recovery reads the heads of logs. If there is a log, the recovery also reads entries, locks, versions, and
    // the locks that it must release.
    assert_eq!(seen.iter().min(), Some(&1));
    // On this backend a batch is executed as a whole or not at all, so recovery undoes nothing.
    assert!(seen.iter().all(|rounds| *rounds <= 5), "{seen:?}");
}
