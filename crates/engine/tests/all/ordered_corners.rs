//! Tests of rare uses of ordered indexes that are allowed.
//!
//! Invariant checked:
//! - The key of an index entry consists of columns that the transaction has read.
//! - If the heap is full, the transaction gets an error.
//! - The engine reports a violation of a unique index only for a state that may be committed.
//! - A scan shows the transaction's changes that were requested before the scan, as they are when its fetch begins.
//! - Coordinators that ran before a load find the records that were loaded later.

use crate::common::*;
use tarn_engine::admin::load::{Loader, Part};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::{IndexKey, Scan, ScanHandle, Transaction};
use tarn_engine::steps::trees;
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_fabric::round::Round;
use tarn_store::ids::Failure;
use tarn_store::index::btree::work::{TreeTask, TreeWork};
use tarn_store::schema::{Cells, ColumnId, IndexId, IndexPart, Key, TableId};

const T: TableId = TableId(0);
const C: ColumnId = ColumnId(2);

fn words(tx: &Transaction<'_>, handle: ScanHandle) -> Vec<u64> {
    let word = |key: Key<'_>| match key {
        Key::Word(word) => word,
        Key::Bytes(_) => panic!("keys are words"),
    };
    tx.scanned(handle).map(|entry| word(entry.record)).collect()
}

fn all(by: &mut Coordinator, index: IndexId) -> Vec<u64> {
    block_on(by.transact(async |tx| {
        let handle = tx.scan(index, Scan::prefix(IndexKey::new()));
        tx.fetch().await?;
        Ok(words(tx, handle))
    }))
    .unwrap()
}

/// Tests an index whose columns are in two lines. The transaction requests one of these columns only in a second
/// access to a record. The transaction's first access requested another column.
#[test]
fn an_index_key_is_made_of_columns_that_were_read() {
    let parts = [IndexPart::Column(A), IndexPart::Column(C)];
    let schema = apart("t", 64).index("by_a_and_c", &parts, false);
    let world = World::new(&Shape::of(&[schema]));
    let mut by = world.coordinator(0, 0);
    for key in 0..8 {
        block_on(by.transact(async |tx| {
            let row = tx.insert(T, key);
            tx.fetch().await?;
            tx.set(row, A, key);
            tx.set(row, C, 0x0101_0101 * (key + 1));
            Ok(())
        }))
        .unwrap();
    }
    for (how, key) in [(0, 3), (1, 4), (2, 5)] {
        // The read buffer has contained other rows before this transaction.
        block_on(by.transact(async |tx| {
            (6..8u64).for_each(|key| _ = tx.read(T, key, Cells::ALL));
            tx.fetch().await
        }))
        .unwrap();
        block_on(by.transact(async |tx| {
            let (a, b) = (Cells::one(A), Cells::one(B));
            let row = match how {
                0 => {
                    tx.read(T, key, a);
                    tx.update(T, key, b)
                }
                1 => {
                    tx.update(T, key, b);
                    tx.read(T, key, a)
                }
                _ => {
                    tx.read(T, key, a);
                    tx.fetch().await?;
                    tx.update(T, key, b)
                }
            };
            tx.fetch().await?;
            tx.set(row, A, key + 100);
            Ok(())
        }))
        .unwrap();
        let audit = world.audit();
        assert!(audit.is_clean(), "way {how}: {audit}");
    }
}

#[test]
fn a_full_heap_ends_an_insert_into_a_full_leaf() {
    let mut shape = Shape::of(&[narrow("narrow", 4_000).ordered("by_key"), apart("apart", 4)]);
    (shape.options.spare_bytes, shape.options.chunk_bytes) = (0, 4096);
    let world = World::new(&shape);
    let retry = Retry { deadline: Some(Nanos(3_000_000_000)), ..Retry::default() };
    let mut by = Coordinator::new(world.context(0, 0), 0, retry);
    let mut insert_into = |table: TableId| {
        for key in 0..4_000u64 {
            let inserted = block_on(by.transact(async |tx| {
                tx.insert_zeros(table, key);
                tx.fetch().await
            }));
            if let Err(failure) = inserted {
                return (key, failure);
            }
        }
        panic!("the heap is not full")
    };
    let (bodies, failure) = insert_into(TableId(1));
    assert_eq!(failure, Failure::OutOfMemory);
    let (entries, failure) = insert_into(T);
    println!("{bodies} bodies, {entries} entries");
    assert_eq!(failure, Failure::OutOfMemory);
    world.assert_clean();
}

/// Splits a leaf of index and table 0 or 1, and merges the new leaf away again. Returns the dead node that is left.
/// Entries 0 to 11 stay in the index.
fn with_dead_node(by: &mut Coordinator, number: u16) -> Address {
    let (cx, table) = (std::rc::Rc::clone(by.context()), TableId(number));
    let index = cx.database().catalog.ordered(IndexId(number));
    let below = || block_on(trees::below_root(&cx, index)).unwrap();
    fill(by, table, 0..64);
    let mut nodes = below();
    block_on(by.transact(async |tx| {
        (10..64u64).for_each(|key| _ = tx.delete(table, key));
        tx.fetch().await
    }))
    .unwrap();
    fill(by, table, 10..12);
    let alive = below();
    nodes.retain(|node| !alive.contains(node));
    assert_eq!(nodes.len(), 1);
    nodes[0]
}

/// Tests a thread with an outdated path. The thread has locked a dead node, and then pauses for as long as a lease
/// lasts.
#[test]
fn a_dead_node_that_is_locked_does_not_keep_leaves_from_being_split() {
    let world = World::new(&Shape::of(&[narrow("t", 4_000).ordered("by_key")]));
    let (mut by, looking) = (world.coordinator(0, 0), world.context(1, 0));
    let dead = with_dead_node(&mut by, 0);
    let lock = |word: u64| {
        let mut round = Round::new();
        let at = round.reserve(8);
        round.set_word(at, word);
        round.write(looking.groups.primary(dead), at, 8);
        block_on(looking.port.execute(&mut round)).unwrap();
    };
    lock(looking.next_tag().word());
    let retry = Retry { deadline: Some(Nanos(500_000_000)), ..Retry::default() };
    let mut by = Coordinator::new(std::rc::Rc::clone(by.context()), 2, retry);
    for key in 12..400u64 {
        let inserted = block_on(by.transact(async |tx| {
            tx.insert_zeros(T, key);
            tx.fetch().await
        }));
        assert_eq!(inserted, Ok(()), "key {key}");
    }
    assert!(by.context().metrics.snapshot().node_splits > 8);
    lock(0);
    world.assert_clean();
}

/// Tests that another index of the thread needs a split for which there is no memory. This lack of memory is no
/// failure of the present transaction.
#[test]
fn an_insert_learns_only_of_its_own_split() {
    let tables = ["t", "u"].map(|name| narrow(name, 4_000).ordered("by_key"));
    let mut shape = Shape::of(&tables);
    shape.options.spare_bytes = 0;
    let world = World::new(&shape);
    let mut by = world.coordinator(0, 0);
    let cx = std::rc::Rc::clone(by.context());
    let (other, mine) = (TableId(0), TableId(1));
    with_dead_node(&mut by, mine.0);
    while block_on(cx.allocate(GroupId(0), 1024)).is_ok() {}
    fill(&mut by, other, 0..60);
    fill(&mut by, mine, 12..54);
    let splits = cx.metrics.snapshot().node_splits;
    let inserted = block_on(by.transact(async |tx| {
        let work = TreeWork { index: IndexId(0), task: TreeTask::Split, level: 0, key: [0; 64] };
        cx.tree_works.request(work);
        (100..120u64).for_each(|key| _ = tx.insert_zeros(mine, key));
        tx.fetch().await
    }));
    assert_eq!(inserted, Ok(()));
    let tally = cx.metrics.snapshot();
    assert_eq!((tally.node_splits - splits, tally.splits_refused), (1, 1), "{tally:?}");
    world.assert_clean();
}

/// Tests a unique violation that is found by an old read. The record with the unique key got this key in a
/// transaction that also changed a record that the present transaction had read. In no serial order would the present
/// transaction see both.
#[test]
fn a_unique_violation_found_by_an_old_read_is_no_verdict() {
    let schemas = [narrow("t", 64).index("by_a", &[IndexPart::Column(A)], true), narrow("x", 64)];
    let world = World::new(&Shape::of(&schemas));
    let (mut one, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
    let counter = TableId(1);
    fill(&mut one, counter, [5]);
    let mut tries = 0;
    let result = block_on(one.transact(async |tx| {
        tries += 1;
        let seen = tx.get_row(counter, 5u64).await?.expect("there").u64(A);
        if tries == 1 {
            other
                .transact(async |tx| {
                    let (row, next) = (tx.insert(T, 50u64), tx.update(counter, 5u64, Cells::ALL));
                    tx.fetch().await?;
                    tx.set(row, A, seen);
                    tx.set(next, A, seen + 1);
                    Ok(())
                })
                .await?;
        }
        let row = tx.insert(T, 60u64);
        tx.fetch().await?;
        tx.set(row, A, seen);
        Ok(seen)
    }));
    assert_eq!((result, tries), (Ok(6), 2));
    world.assert_clean();
}

/// Runs scans of several rounds before and after an insert and a delete that are in the same fetch.
#[test]
fn a_scan_shows_earlier_operations_and_no_later_ones() {
    let schema = narrow("t", 2_000).index("by_a", &[IndexPart::Column(A)], false);
    let world = World::new(&Shape::of(&[schema]));
    let by_a = world.database.catalog.index_id("t", "by_a").unwrap();
    let mut by = world.coordinator(0, 0);
    fill(&mut by, T, 1..=900);
    let expected: Vec<u64> = (1..=900).rev().collect();
    for slot in 1..3 {
        let mut cold = world.coordinator(slot, 0);
        let seen = block_on(cold.transact(async |tx| {
            let handle = tx.scan(by_a, Scan::prefix(IndexKey::new()).backward());
            tx.insert_zeros(T, 5_000u64);
            tx.delete(T, 3u64);
            let behind = tx.scan(by_a, Scan::prefix(IndexKey::new()).backward());
            tx.fetch().await?;
            let seen = words(tx, handle);
            let behind = words(tx, behind);
            assert!(!behind.contains(&3) && behind.contains(&5_000));
            let after = tx.scan(by_a, Scan::prefix(IndexKey::new()));
            tx.fetch().await?;
            let after = words(tx, after);
            assert!(!after.contains(&3) && after.contains(&5_000));
            assert!(tx.abort::<()>().is_err());
            Ok(seen)
        }))
        .unwrap();
        assert_eq!(seen, expected);
        let back = block_on(cold.transact(async |tx| {
            tx.insert_zeros(T, 3u64);
            tx.delete(T, 5_000u64);
            tx.fetch().await?;
            Ok(())
        }));
        back.unwrap();
        block_on(cold.transact(async |tx| {
            let row = tx.update(T, 3u64, Cells::ALL);
            tx.fetch().await?;
            tx.set(row, A, 3u64);
            Ok(())
        }))
        .unwrap();
    }
    world.assert_clean();
}

#[test]
fn records_loaded_later_are_found_through_an_old_cached_tree() {
    let world = World::new(&Shape::of(&[narrow("t", 5_000).ordered("by_key")]));
    let by_key = world.database.catalog.index_id("t", "by_key").unwrap();
    let load = |slot: u16, rest: u64| {
        let cx = world.context(slot, 0);
        block_on(async {
            let mut loader = Loader::new(&cx, Part { index: 0, of: 1 });
            for key in (0..1_000u64).filter(|key| key % 2 == rest) {
                loader.insert(T, key, |row| row.set(A, key)).await?;
            }
            loader.finish().await
        })
        .unwrap();
    };
    load(0, 0);
    let mut by = world.coordinator(1, 0);
    assert_eq!(all(&mut by, by_key).len(), 500);
    load(2, 1);
    assert_eq!(all(&mut by, by_key), (0..1_000).collect::<Vec<u64>>());
    fill(&mut by, T, 2_000..2_100);
    world.assert_clean();
}
