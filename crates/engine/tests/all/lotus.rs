//! Tests of LOTUS: one test counts its rounds, and checked runs execute its transactions on real threads.
//!
//! Invariant checked: no transaction sends an atomic to a memory node. The number of rounds until the reply equals
//! the number in the table in `protocol/lotus/mod.rs`, with timestamps from a counter. Threads run on one compute
//! node, and on two nodes that request locks from one another. The histories are strictly serializable, and the audit
//! of memory finds no error afterwards.

use crate::common::mix::{self, ANYTHING, COMING_AND_GOING, HALVES, Mix, OVERWRITING, SKEW};
use crate::common::*;
use std::rc::Rc;
use std::sync::Mutex;
use tarn_check::{Isolation, check};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::Transaction;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, block_on};
use tarn_fabric::rng::seeded;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, TableId};

const PACKED: TableId = TableId(0);
const APART: TableId = TableId(1);
const COROUTINES: u32 = 4;

/// The number of rounds until the reply, and the numbers of READs and WRITEs.
#[derive(PartialEq, Eq, Debug)]
struct Cost {
    rounds: u64,
    reads: u64,
    writes: u64,
}

fn cost(rounds: u64, reads: u64, writes: u64) -> Cost {
    Cost { rounds, reads, writes }
}

/// Runs one transaction. Returns the cost of the transaction until its reply.
fn measure(
    by: &mut Coordinator,
    read_only: bool,
    body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<(), Failure>,
) -> Cost {
    let cx = Rc::clone(by.context());
    let phases = cx.database().protocol.info().phases;
    let shown = phases.iter().position(|&phase| phase == "show").unwrap();
    let detached = || cx.metrics.snapshot().phases[shown];
    let (before, detached_before) = (cx.port.counts(), detached());
    let ended = match read_only {
        true => block_on(by.transact_read_only(body)),
        false => block_on(by.transact(body)),
    };
    assert_eq!(ended, Ok(()));
    let spent = cx.port.counts() - before;
    let [reads, writes, cas, faa, masked] = spent.verbs;
    assert_eq!((cas, faa, masked, spent.messages), (0, 0, 0, 0), "atomics and messages");
    Cost { rounds: spent.rounds - (detached() - detached_before), reads, writes }
}

async fn read(tx: &mut Transaction<'_>, table: TableId, key: u64) -> Result<(), Failure> {
    assert!(tx.get_row(table, key).await?.is_some());
    Ok(())
}

async fn add_one(tx: &mut Transaction<'_>, table: TableId, keys: &[u64]) -> Result<(), Failure> {
    let rows: Vec<_> = keys.iter().map(|&key| tx.update(table, key, Cells::one(A))).collect();
    tx.fetch().await?;
    for row in rows {
        let value = tx.get(row).expect("there").u64(A);
        tx.set(row, A, value + 1);
    }
    Ok(())
}

#[test]
fn rounds_are_those_of_the_table_and_no_verb_is_an_atomic() {
    for replicas in [1, 3] {
        let schemas = [half("packed", 4000), narrow("apart", 4000)];
        let mut shape = Shape::of(&schemas).protocol("lotus").nodes(replicas, replicas);
        shape.options.placement = tarn_store::placement::catalog::Placement::Table;
        let world = World::new(&shape);
        let mut by = world.coordinator(0, 0);
        for table in [PACKED, APART] {
            fill(&mut by, table, 1..10);
        }
        let copies = replicas as u64;
        // This transaction needs two READs: of the version table and of the record.
        let spent = measure(&mut by, true, async |tx| read(tx, APART, 1).await);
        assert_eq!(spent, cost(2, 2, 0));
        let spent = measure(&mut by, true, async |tx| read(tx, PACKED, 1).await);
        assert_eq!(spent, cost(1, 1, 0));
        // The transaction is not declared read-only. So it takes locks, which this node grants, and does not
        // validate. The previous reader has left the version table in the node's cache.
        let spent = measure(&mut by, false, async |tx| read(tx, APART, 1).await);
        assert_eq!(spent, cost(1, 1, 0));
        let spent = measure(&mut by, false, async |tx| read(tx, APART, 3).await);
        assert_eq!(spent, cost(2, 2, 0));
        // The transaction READs the version table and the record. C1 writes log, record and cell to each copy. C3
        // writes the decision to each log, and the cell to each backup. C4 writes the cell to the primary, and no
        // transaction awaits C4. If the record has one copy on one node, C3 and C4 are one batch.
        let spent = measure(&mut by, false, async |tx| add_one(tx, APART, &[4]).await);
        assert_eq!(spent, cost(4, 2, 3 * copies + copies + copies));
        let spent = measure(&mut by, false, async |tx| add_one(tx, APART, &[5, 6]).await);
        assert_eq!(spent, cost(4, 4, 5 * copies + copies + 2 * copies));
        // The values of the versions are in the version table itself, so C1 writes only the log and the record's
        // line.
        let spent = measure(&mut by, false, async |tx| add_one(tx, PACKED, &[1]).await);
        assert_eq!(spent, cost(3, 1, 2 * copies + copies + copies));
        world.assert_clean();
    }
}

#[test]
fn a_snapshot_does_not_see_later_commits() {
    // Packed records have a separate code path. The code for packed records must check T_start too.
    for table in [PACKED, APART] {
        let schemas = [half("packed", 100), narrow("apart", 100)];
        let world = World::new(&Shape::of(&schemas).protocol("lotus"));
        let (mut by, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
        fill(&mut by, table, 1..3);
        let seen = block_on(by.transact_read_only(async |tx| {
            let first = tx.get_row(table, 1).await?.expect("there").u64(A);
            other.transact(async |tx| add_one(tx, table, &[1, 2]).await).await?;
            let second = tx.get_row(table, 2).await?.expect("there").u64(A);
            Ok((first, second))
        }));
        assert_eq!(seen, Ok((1, 2)));
        assert_eq!(value_of(&mut by, table, 2), Some(3));
        // If a transaction that is declared read-only changes a record, it is tried again with locks.
        let changed = block_on(by.transact_read_only(async |tx| add_one(tx, table, &[1]).await));
        assert_eq!((changed, value_of(&mut other, table, 1)), (Ok(()), Some(3)));
    }
}

/// Runs a mix on two threads, on two compute nodes or on one.
fn run(mix: Mix, replicas: usize, one_node: bool, seed: u64) -> u64 {
    let nodes = if mix.keys > 10 { replicas } else { 3 };
    let world = World::new(&mix::shape(nodes, replicas, "corrected").protocol("lotus"));
    let first = world.join(0);
    let second = if one_node { first.clone() } else { world.join(1) };
    let recorded = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (thread, node) in [first, second].into_iter().enumerate() {
            let (world, recorded) = (&world, &recorded);
            scope.spawn(move || {
                let cx = world.thread(&node, thread as u16, thread * 64);
                let mut executor = Executor::new();
                for coroutine in 0..COROUTINES {
                    let number = thread as u32 * COROUTINES + coroutine;
                    let deadline = Some(Nanos(20_000_000));
                    let retry = Retry { deadline, pause_max_ns: 8_000, ..Retry::default() };
                    let mut by = Coordinator::new(Rc::clone(&cx), number, retry);
                    *by.rng() = seeded(seed, u64::from(number));
                    executor.spawn(async move {
                        by.record_history();
                        let _ = mix::run(&mut by, mix, 120).await;
                        recorded.lock().unwrap().extend(by.take_history());
                    });
                }
                executor.run();
            });
        }
    });
    let history = history(&world.database, recorded.into_inner().unwrap());
    let report = check(&history, Isolation::StrictSerializable);
    let what = format!("seed {seed}, one node: {one_node}, {mix:?}, {replicas} replicas");
    assert!(report.anomalies.is_empty(), "{what}: {}", report.anomalies[0]);
    let audit = world.audit();
    assert!(audit.is_clean(), "{what}: {audit}");
    history.transactions.len() as u64
}

#[test]
fn histories_of_threads_are_strictly_serializable() {
    let mixes = [
        (ANYTHING, 3),
        (ANYTHING, 1),
        (SKEW, 1),
        (COMING_AND_GOING, 1),
        (HALVES, 2),
        (OVERWRITING, 3),
    ];
    let mut transactions = 0;
    for seed in 0..3 {
        for (mix, replicas) in mixes {
            transactions += run(mix, replicas, true, seed) + run(mix, replicas, false, seed);
        }
    }
    assert!(transactions > 10_000, "{transactions} transactions only");
}
