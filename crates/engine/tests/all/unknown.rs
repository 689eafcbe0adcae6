//! Tests of commits whose outcome was not reported to the caller, and of finding out this outcome.
//!
//! Invariant checked: whichever node dies at any moment, all callers get the same answer about an unknown
//! transaction. Memory agrees with this answer at every live replica, and the transaction's locks are released.

use crate::common::mix::{self, ANYTHING, COMING_AND_GOING, CROWDED, HALVES, Mix};
use crate::common::weak::{RETRY, WeakFabric};
use crate::common::*;
use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use tarn_check::{Isolation, check};
use tarn_engine::admin::inspect;
use tarn_engine::recovery::{self, Attempt, Pace};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::Transaction;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, TaskId, block_on};
use tarn_store::history::{RecordedOutcome, RecordedTxn};
use tarn_store::ids::{COUNT_MAX, Explanation, Failure, OwnerTag, Resolution, TxnId};
use tarn_store::placement::catalog::Placement;
use tarn_store::schema::{Cells, TableId};

/// The two tables of the tests. Table 0 is on nodes 0 and 1. Table 1 is on nodes 1 and 2.
const TABLES: [TableId; 2] = [TableId(0), TableId(1)];

fn two_tables() -> World {
    let schemas = [narrow("narrow", 64), apart("apart", 64)];
    let mut shape = Shape::of(&schemas).nodes(3, 2);
    shape.options.placement = Placement::Table;
    let world = World::new(&shape);
    let mut by = world.coordinator(5, 0);
    for table in TABLES {
        fill(&mut by, table, [1, 2, 3]);
    }
    world
}

/// Writes 100 to record 1 of both tables.
async fn write_both(tx: &mut Transaction<'_>, tables: [TableId; 2]) -> Result<(), Failure> {
    let rows = tables.map(|table| tx.update(table, 1u64, Cells::ALL));
    tx.fetch().await?;
    for row in rows {
        tx.set(row, A, 100u64);
    }
    Ok(())
}

fn unknown_id(by: &Coordinator, failure: Failure) -> TxnId {
    assert_eq!(failure, Failure::CommitUnknown);
    match by.context().explanation(failure) {
        Some(Explanation::Unknown(id)) => id,
        other => panic!("{other:?}"),
    }
}

/// Polls the transaction `polls` times, calls `fault`, and runs the transaction to its end.
fn run_into(
    by: &mut Coordinator,
    tables: [TableId; 2],
    polls: usize,
    fault: impl FnOnce(),
) -> Result<(), Failure> {
    let mut future = pin!(by.transact(async |tx| write_both(tx, tables).await));
    let ended = poll_times(future.as_mut(), polls, || {});
    fault();
    ended.unwrap_or_else(|| block_on(future))
}

/// Returns the values of record 1 of both tables, read by one transaction. Both values are 1 before the write and 100
/// after it.
fn values(by: &mut Coordinator) -> Result<[u64; 2], Failure> {
    block_on(by.transact(async |tx| {
        let rows = TABLES.map(|table| tx.read(table, 1u64, Cells::ALL));
        tx.fetch().await?;
        Ok(rows.map(|row| tx.get(row).expect("there").u64(A)))
    }))
}

fn patient_for_a_while(world: &World, slot: u16) -> Coordinator {
    let retry = Retry { deadline: Some(Nanos(3_000_000)), ..Retry::default() };
    Coordinator::new(world.context(slot, 0), u32::from(slot), retry)
}

#[test]
fn a_backup_that_dies_at_any_poll_leaves_one_answer() {
    let mut resolutions = [0; 2];
    for tables in [TABLES, [TABLES[1], TABLES[0]]] {
        for polls in 0..12 {
            let world = two_tables();
            let mut by = world.coordinator(0, 0);
            let result = run_into(&mut by, tables, polls, || world.fabric.fail_node(NodeSlot(2)));
            let mut other = patient_for_a_while(&world, 1);
            let Err(failure) = result else {
                assert_eq!(values(&mut other), Ok([100, 100]));
                continue;
            };
            let id = unknown_id(&by, failure);
            world.fabric.fence(by.context().node.id);
            let answers: Vec<_> =
                (0..3).map(|_| block_on(other.resolve_of(id, 0)).unwrap()).collect();
            assert!(answers.iter().all(|&answer| answer == answers[0]), "{answers:?}");
            let committed = answers[0] == Resolution::Committed;
            resolutions[usize::from(committed)] += 1;
            assert_eq!(values(&mut other), Ok(if committed { [100, 100] } else { [1, 1] }));
        }
    }
    println!("aborted, committed: {resolutions:?}");
    assert!(resolutions.iter().all(|&count| count > 0), "{resolutions:?}");
}

#[test]
fn a_live_coordinator_resolves_its_transaction_before_it_goes_on() {
    let world = two_tables();
    let mut by = world.coordinator(0, 0);
    by.record_history();
    world.fabric.fail_node(NodeSlot(2));
    let failure = block_on(by.transact(async |tx| write_both(tx, TABLES).await)).unwrap_err();
    let id = unknown_id(&by, failure);
    // The coordinator continues without asking for the outcome, so it uses its log area again.
    let only_first = async |tx: &mut Transaction<'_>| {
        let row = tx.update(TABLES[0], 2u64, Cells::ALL);
        tx.fetch().await?;
        tx.set(row, A, 50u64);
        Ok(())
    };
    block_on(by.transact(only_first)).unwrap();
    // The coordinator still knows the outcome when the test asks later. The log in the other table's group also
    // states it.
    assert_eq!(block_on(by.resolve(id)), Ok(Resolution::Committed));
    let mut other = patient_for_a_while(&world, 1);
    assert_eq!(block_on(other.resolve_of(id, 0)), Ok(Resolution::Committed));
    assert_eq!(values(&mut other), Ok([100, 100]));
    let outcomes: Vec<_> = by.take_history().iter().map(|txn| txn.outcome).collect();
    assert_eq!(outcomes, [RecordedOutcome::Committed; 2]);
}

#[test]
fn resolution_without_a_log_refuses_to_answer() {
    let world = two_tables();
    let (mut by, mut other) = (world.coordinator(0, 0), patient_for_a_while(&world, 1));
    by.record_history();
    for _ in 0..2 {
        block_on(by.transact(async |tx| write_both(tx, TABLES).await)).unwrap();
    }
    let ids: Vec<_> = by.take_history().iter().map(|txn| txn.id).collect();
    assert_eq!(block_on(other.resolve_of(ids[0], 0)), Err(Failure::Usage));
    assert_eq!(block_on(other.resolve_of(ids[1], 0)), Ok(Resolution::Committed));
}

#[test]
fn resolution_without_the_primary_refuses_to_answer() {
    let world = two_tables();
    let mut by = world.coordinator(0, 0);
    let result = run_into(&mut by, TABLES, 0, || world.fabric.fail_node(NodeSlot(1)));
    assert_eq!(result, Err(Failure::Fabric));
    assert!(matches!(by.context().explanation(Failure::Fabric), Some(Explanation::Fabric(_))));
    // The other table's locks were released although a memory node of the round is dead.
    let mut other = patient_for_a_while(&world, 1);
    assert_eq!(value_of(&mut other, TABLES[0], 1), Some(1));
}

#[test]
fn a_fenced_coordinator_changed_all_or_nothing() {
    for polls in 0..12 {
        let world = two_tables();
        let mut by = world.coordinator(0, 0);
        let id = by.context().node.id;
        let result = run_into(&mut by, TABLES, polls, || world.fabric.fence(id));
        let mut other = patient_for_a_while(&world, 1);
        match result {
            Ok(()) => assert_eq!(values(&mut other), Ok([100, 100])),
            Err(Failure::Fabric) => {}
            Err(failure) => {
                let id = unknown_id(&by, failure);
                let first = block_on(other.resolve_of(id, 0));
                assert_eq!(first, Ok(Resolution::Aborted), "nothing of it landed");
                assert_eq!(block_on(other.resolve_of(id, 0)), first);
            }
        }
        let mut after = Vec::new();
        let cx = world.context(2, 0);
        for table in TABLES {
            block_on(inspect::scan(&cx, table, |stored| {
                after.extend((stored.key == 1).then(|| stored.row.u64(A)));
            }))
            .unwrap();
        }
        assert_eq!(after, if result.is_ok() { [100, 100] } else { [1, 1] });
        assert_eq!(world.audit().replicas_differ, 0);
    }
}

#[test]
fn locks_of_a_dead_node_are_released() {
    let mut swept = 0;
    for polls in 0..12 {
        let world = two_tables();
        let mut by = world.coordinator(0, 0);
        let id = by.context().node.id;
        let _ = run_into(&mut by, TABLES, polls, || world.fabric.fence(id));
        let cx = world.context(1, 0);
        world.database.membership.expel(id);
        assert!(matches!(block_on(recovery::recover(&cx, id)), Ok(Attempt::Recovered(_))));
        swept += block_on(recovery::sweep(&cx, Pace::UNPACED)).unwrap().freed;
        assert_eq!(world.audit().locks_left, 0, "after {polls} polls");
    }
    assert!(swept > 0, "some died before they had a log");
}

/// The counts of transactions and locks that were left by crashes.
#[derive(Default, Debug)]
struct Found {
    committed: u64,
    aborted: u64,
    /// The number of locks of transactions that were resolved as aborted without a log.
    locks_without_log: u64,
}

/// Runs one schedule of three compute nodes. The first node loses its access in the middle. The other nodes resolve
/// its transactions in doubt while they run their own transactions.
fn crash(mix: Mix, seed: u64, torn_writes: bool, found: &mut Found) -> Result<(), String> {
    let replicas = 1 + seed as usize % 3;
    // If one memory node has the only copies, locks are released after the data are written.
    let nodes = if seed % 6 < 3 { replicas } else { 3 };
    let fabric = WeakFabric::new(&mix::shape(nodes, replicas, "corrected"), seed);
    let recorded: RefCell<Vec<RecordedTxn>> = RefCell::default();
    let in_doubt: RefCell<Vec<(TxnId, u32)>> = RefCell::default();
    let resolved: RefCell<Vec<(TxnId, Resolution, Nanos)>> = RefCell::default();
    let retry = Retry { deadline: Some(Nanos(6_000)), ..RETRY };
    let contexts: Vec<_> = (0..3).map(|slot| fabric.context(slot, 0)).collect();
    let mut executor = Executor::new();
    for number in 0..6u32 {
        let mut by = mix::coordinator(&contexts[number as usize / 2], number, retry, seed);
        let (recorded, in_doubt) = (&recorded, &in_doubt);
        executor.spawn(async move {
            by.record_history();
            let _ = mix::run(&mut by, mix, 12).await;
            let history = by.take_history();
            let unknown = history.iter().filter(|txn| txn.outcome == RecordedOutcome::Unknown);
            in_doubt.borrow_mut().extend(unknown.map(|txn| (txn.id, number)));
            recorded.borrow_mut().extend(history);
        });
    }
    // This coordinator resolves the transactions in doubt.
    let mut solver = Coordinator::new(Rc::clone(&contexts[1]), 8, retry);
    let fence_at = fabric.draw(4_000);
    let mut turn = 0;
    while executor.live() > 0 {
        turn += 1;
        if turn == fence_at {
            fabric.fence(contexts[0].node.id, torn_writes);
        }
        (0..fabric.draw(6)).for_each(|_| fabric.step());
        executor.poll(TaskId(fabric.draw(6)));
        let next = in_doubt.borrow_mut().pop();
        if let Some((id, number)) = next {
            let answer = fabric.block_on(solver.resolve_of(id, number)).unwrap();
            let again = fabric.block_on(solver.resolve_of(id, number)).unwrap();
            assert_eq!(answer, again);
            resolved.borrow_mut().push((id, answer, contexts[1].port.now()));
        }
    }
    (0..2_000).for_each(|_| fabric.step());
    settle(&mut recorded.borrow_mut(), &resolved.borrow(), &fabric, found);
    let audit = fabric.block_on(inspect::audit(&contexts[1])).unwrap();
    let recorded = history(&fabric.database, recorded.take());
    let report = check(&recorded, Isolation::StrictSerializable);
    let sound = report.is_accepted() && audit.replicas_differ == 0 && audit.misplaced == 0;
    if sound { Ok(()) } else { Err(format!("seed {seed}, {mix:?}: {report}{audit}")) }
}

/// Adds the answers to the history, and searches for locks of the transactions about which there is an answer.
fn settle(
    recorded: &mut Vec<RecordedTxn>,
    resolved: &[(TxnId, Resolution, Nanos)],
    fabric: &WeakFabric,
    found: &mut Found,
) {
    for (index, &(id, answer, at)) in resolved.iter().enumerate() {
        let txn = recorded.iter_mut().find(|txn| txn.id == id).expect("it was recorded");
        txn.completed = at;
        let locked = fabric.has_word(id.word());
        match answer {
            Resolution::Committed => {
                txn.outcome = RecordedOutcome::Committed;
                found.committed += 1;
                assert!(!locked, "{id} has committed and still holds a lock");
            }
            Resolution::Aborted => {
                txn.outcome = RecordedOutcome::Aborted;
                found.aborted += 1;
                found.locks_without_log += u64::from(locked);
                let name = || OwnerTag::new(id.node(), id.thread(), COUNT_MAX - index as u64);
                let undoing = txn.undone(name, at);
                recorded.extend(undoing);
            }
        }
    }
}

#[test]
fn compute_nodes_that_crash_under_any_order_leave_one_answer() {
    let seeds = seeds(150);
    let mut found = Found::default();
    for seed in 0..seeds {
        for mix in [ANYTHING, COMING_AND_GOING, CROWDED, HALVES] {
            crash(mix, seed, seed % 2 == 0, &mut found).unwrap_or_else(|text| panic!("{text}"));
        }
    }
    println!("{found:?}");
    assert!(found.committed > 0 && found.aborted > 0, "{found:?}");
}
