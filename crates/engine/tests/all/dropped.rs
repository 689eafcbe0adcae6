//! Tests that drop a transaction's future at every possible point.
//!
//! Invariant checked: the test polls a transaction k times and drops it, for every k until it commits. The
//! transaction has happened as a whole or not at all. After its coordinator has run its next transaction, no lock is
//! held, and that next transaction succeeds.

use crate::common::*;
use std::pin::pin;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_fabric::address::GroupId;
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_store::index::growth::Shard;
use tarn_store::schema::{Cells, TableId};

const LAYOUTS: [TableId; 3] = [TableId(0), TableId(1), TableId(2)];

/// Runs a transaction with all kinds of accesses. In each table it moves one unit from record 1 to record 2, deletes
/// the record that the previous call inserted, and inserts the next record. The transaction fetches twice for each
/// table, and must validate one read.
async fn mixture(tx: &mut Transaction<'_>, next: u64) -> Result<(), Failure> {
    for table in LAYOUTS {
        let rows = [1u64, 2].map(|key| tx.update(table, key, Cells::ALL));
        tx.read(table, 4u64, Cells::ALL);
        tx.fetch().await?;
        let [one, two] = rows.map(|row| tx.get(row).expect("there").u64(A));
        tx.set(rows[0], A, one - 1);
        tx.set(rows[1], A, two + 1);
        tx.delete(table, 1000 + next);
        let fresh = tx.insert(table, 1001 + next);
        tx.fetch().await?;
        tx.set(fresh, A, 1001 + next);
    }
    Ok(())
}

/// Returns the number of times that `mixture` has happened, computed from the contents of the tables. The number must
/// be the same in each table.
fn happened(by: &mut Coordinator) -> u64 {
    let seen: Vec<_> = LAYOUTS
        .iter()
        .map(|&table| {
            let moved = 1_000_000 - value_of(by, table, 1).unwrap();
            assert_eq!(value_of(by, table, 2), Some(1_000_000 + moved));
            for key in moved.saturating_sub(2)..moved + 3 {
                let there = value_of(by, table, 1000 + key).is_some();
                assert_eq!(there, key == moved, "record {key} after {moved}");
            }
            moved
        })
        .collect();
    assert!(seen.iter().all(|&moved| moved == seen[0]), "torn: {seen:?}");
    seen[0]
}

#[derive(Clone, Copy, PartialEq)]
enum Index {
    Rests,
    /// The index requests a split each time a transaction was dropped.
    Grows,
}

fn drop_everywhere(
    (memory_nodes, replicas): (usize, usize),
    cache: usize,
    variant: &str,
    index: Index,
) -> usize {
    let schemas = [narrow("narrow", 8), double("double", 8), apart("apart", 8)];
    let world = World::new(&Shape::of(&schemas).nodes(memory_nodes, replicas).variant(variant));
    let (mut by, mut other) = (world.coordinator(0, cache), world.coordinator(1, 0));
    for table in LAYOUTS {
        fill(&mut by, table, [1, 2, 4, 1000]);
        block_on(by.transact(async |tx| {
            let rows = [1u64, 2].map(|key| tx.update(table, key, Cells::ALL));
            tx.fetch().await?;
            rows.into_iter().for_each(|row| tx.set(row, A, 1_000_000u64));
            Ok(())
        }))
        .unwrap();
    }
    let mut times = 0;
    for polls in 0.. {
        let ended =
            poll_times(pin!(by.transact(async |tx| mixture(tx, times).await)), polls, || {});
        if index == Index::Grows {
            by.context().growth.request(Shard { table: LAYOUTS[0], group: GroupId(0) });
        }
        if polls % 2 == 0 {
            // The same coordinator runs another transaction; the coordinator first resolves the transaction that was
            // left in doubt.
            block_on(by.transact(async |tx| Ok(tx.update(LAYOUTS[0], 4u64, Cells::ALL)))).unwrap();
        } else {
            block_on(by.transact(async |tx| Ok(tx.read(LAYOUTS[0], 4u64, Cells::ALL)))).unwrap();
        }
        world.assert_clean();
        let now = happened(&mut other);
        assert!(now == times || now == times + 1, "{times}, then {now}");
        assert!(ended.is_none() || now == times + 1, "acknowledged and lost");
        times = now;
        if ended.is_some() {
            assert_eq!(ended, Some(Ok(())));
            return polls;
        }
    }
    unreachable!("it ends")
}

#[test]
fn a_transaction_dropped_at_any_poll_happened_whole_or_not_at_all() {
    for (nodes, replicas) in [(1, 1), (2, 2), (3, 3), (3, 2)] {
        for cache in [0, 64] {
            let polls = drop_everywhere((nodes, replicas), cache, "corrected", Index::Rests);
            println!("{nodes} nodes, {replicas} replicas, cache {cache}: {polls} polls");
            assert!(polls > 6, "it must have waited several times");
        }
    }
}

#[test]
fn a_dropped_transaction_that_logs_apart_happened_whole_or_not_at_all() {
    drop_everywhere((3, 2), 0, "corrected,-fuse-log", Index::Rests);
}

#[test]
fn growth_waits_until_a_dropped_transaction_is_resolved() {
    for shape in [(1, 1), (2, 2), (3, 2)] {
        drop_everywhere(shape, 0, "corrected", Index::Grows);
    }
}

#[test]
fn dropping_transactions_without_end_takes_no_memory() {
    let mut shape = Shape::of(&[narrow("narrow", 1), apart("apart", 1)]);
    (shape.options.spare_bytes, shape.options.chunk_bytes) = (0, 4096);
    let world = World::new(&shape);
    let mut by = world.coordinator(0, 0);
    for turn in 0..2000 {
        let insert = by.transact(async |tx| {
            for table in [TableId(0), TableId(1)] {
                for key in 0..12u64 {
                    tx.insert_zeros(table, key);
                }
            }
            tx.fetch().await?;
            tx.abort::<()>()
        });
        let ended = poll_times(pin!(insert), turn % 12, || {});
        assert!(ended.is_none() || ended == Some(Err(Failure::user_abort())), "{turn} {ended:?}");
        if turn % 100 == 0 {
            world.assert_clean();
        }
    }
    fill(&mut by, TableId(1), 0..4);
    assert_eq!(world.assert_clean().records, 4);
}

/// Tests that the coordinator of a dropped transaction is dropped as well. Another coordinator of its thread runs
/// next, under the same number or under another number.
#[test]
fn a_coordinator_that_is_dropped_in_doubt_leaves_no_locks() {
    for number in [0, 2] {
        for polls in 0.. {
            let schemas = [narrow("narrow", 8), double("double", 8), apart("apart", 8)];
            let world = World::new(&Shape::of(&schemas).nodes(3, 2));
            let cx = world.context(0, 0);
            let mut by = coordinator(&cx, 1);
            LAYOUTS.into_iter().for_each(|table| fill(&mut by, table, [1, 2, 4, 1000]));
            let mut gone = coordinator(&cx, 0);
            let ended =
                poll_times(pin!(gone.transact(async |tx| mixture(tx, 0).await)), polls, || {});
            drop(gone);
            let mut next = coordinator(&cx, number);
            let read = async |tx: &mut Transaction<'_>| Ok(tx.read(LAYOUTS[0], 4u64, Cells::ALL));
            block_on(next.transact(read)).unwrap();
            world.assert_clean();
            if ended.is_some() {
                assert!(polls > 6, "it must have waited several times");
                break;
            }
        }
    }
}
