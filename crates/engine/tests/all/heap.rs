//! Tests of buckets that overflow into chains, and of memory that later records reuse.
//!
//! Invariant checked: a lookup finds every inserted record, and finds no deleted record. If the number of records
//! stays the same, the database does not grow.

use crate::common::*;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::executor::block_on;
use tarn_fabric::round::Round;
use tarn_store::ids::{Explanation, Failure};
use tarn_store::schema::{Cells, TableId};

/// The three tables have slots of one line, slots of two lines, and records stored apart from their slots.
const LAYOUTS: [TableId; 3] = [TableId(0), TableId(1), TableId(2)];

fn world() -> World {
    let mut shape = Shape::of(&[narrow("narrow", 1), double("double", 1), apart("apart", 1)]);
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 32 << 20);
    World::new(&shape)
}

/// Runs one transaction for each batch of keys.
fn in_batches(
    by: &mut Coordinator,
    keys: &[u64],
    mut wish: impl FnMut(&mut tarn_engine::session::transaction::Transaction<'_>, u64) -> Handle,
) {
    for batch in keys.chunks(5) {
        block_on(by.transact(async |tx| {
            for &key in batch {
                wish(tx, key);
            }
            tx.fetch().await
        }))
        .unwrap();
    }
}

#[test]
fn chains_keep_thousands_of_records() {
    for (grows, count) in [(false, 700u64), (true, 5_000)] {
        let world = world();
        let mut by = world.coordinator(0, 0);
        by.context().growth.enable(grows);
        for table in LAYOUTS {
            let keys: Vec<u64> = (0..count).map(|key| key * 7).collect();
            in_batches(&mut by, &keys, |tx, key| tx.insert_zeros(table, key));
            for key in 0..count * 7 {
                if key % 7 != 0 && key % 11 != 0 {
                    continue;
                }
                let there = block_on(by.transact(async |tx| {
                    let row = tx.read(table, key, Cells::NONE);
                    tx.fetch().await?;
                    Ok(tx.existed(row))
                }));
                assert_eq!(there, Ok(key % 7 == 0), "{table:?} {key}");
            }
        }
        let audit = world.assert_clean();
        assert_eq!(audit.records, 3 * count);
        assert!(grows || audit.overflow_blocks > 200, "{audit:?}");
    }
}

#[test]
fn inserts_and_deletes_without_end_take_no_memory() {
    let world = world();
    let mut by = world.coordinator(0, 0);
    for table in LAYOUTS {
        let keys: Vec<u64> = (0..60).collect();
        let mut turn = |turns: u64| {
            for _ in 0..turns {
                in_batches(&mut by, &keys, |tx, key| tx.insert_zeros(table, key));
                in_batches(&mut by, &keys, |tx, key| tx.delete(table, key));
            }
        };
        turn(50);
        let before = (chunks_taken(&world), world.audit().overflow_blocks);
        turn(400);
        let after = (chunks_taken(&world), world.audit().overflow_blocks);
        assert_eq!(before, after, "{table:?}");
        assert_eq!(world.assert_clean().records, 0);
    }
}

#[test]
fn inserts_that_are_taken_back_or_aborted_take_no_memory() {
    let world = world();
    let mut by = world.coordinator(0, 0);
    let mut attempts = |turns: u64, commit: bool| {
        for _ in 0..turns {
            let result = block_on(by.transact(async |tx| {
                for table in LAYOUTS {
                    for key in 0..12u64 {
                        tx.insert_zeros(table, key);
                    }
                }
                tx.fetch().await?;
                for table in LAYOUTS {
                    for key in 0..12u64 {
                        tx.delete(table, key);
                    }
                }
                if commit { Ok(()) } else { tx.abort() }
            }));
            assert_eq!(result.is_ok(), commit);
        }
    };
    attempts(20, false);
    attempts(20, true);
    let before = chunks_taken(&world);
    attempts(200, false);
    assert_eq!(before, chunks_taken(&world), "aborted");
    attempts(200, true);
    assert_eq!(before, chunks_taken(&world), "taken back");
    assert_eq!(world.assert_clean().records, 0);
}

#[test]
fn a_full_heap_is_an_error_and_everything_is_released() {
    let mut shape = Shape::of(&[apart("apart", 4), narrow("narrow", 4)]);
    (shape.options.spare_bytes, shape.options.chunk_bytes) = (0, 4096);
    let world = World::new(&shape);
    let mut by = world.coordinator(0, 0);
    let (apart, narrow) = (TableId(0), TableId(1));
    fill(&mut by, narrow, 0..4);
    let mut stored = 0u64;
    let failure = loop {
        let result = block_on(by.transact(async |tx| {
            tx.update(narrow, 1u64, Cells::ALL);
            tx.insert_zeros(apart, stored);
            tx.insert_zeros(apart, 1_000_000 + stored);
            tx.fetch().await
        }));
        match result {
            Ok(()) => stored += 1,
            Err(failure) => break failure,
        }
    };
    assert_eq!(failure, Failure::OutOfMemory);
    let explanation = by.context().explanation(failure);
    assert!(matches!(explanation, Some(Explanation::OutOfMemory { .. })), "{explanation:?}");
    assert!(stored > 10);
    assert_eq!(world.assert_clean().records, 4 + 2 * stored);
    // Transactions can still change existing records, and can reuse a deleted row's memory.
    block_on(by.transact(async |tx| Ok(tx.delete(apart, 1_000_000u64)))).unwrap();
    fill(&mut by, apart, [0]);
    assert_eq!(value_of(&mut by, narrow, 1), Some(1));
    world.assert_clean();
}

/// Tests a large database in which nearly all chunks are taken when a thread needs its first chunk. The thread must
/// not read the chunks' owner words one after another.
#[test]
fn the_only_free_chunk_of_thousands_is_found_in_few_rounds() {
    let rounds_of_an_insert = |is_taken: &dyn Fn(u64) -> bool| {
        let world = world();
        let cx = world.context(6, 0);
        let catalog = &world.database.catalog;
        assert!(catalog.chunks() > 5_000, "{}", catalog.chunks());
        for group in 0..world.database.groups().count() {
            let group = tarn_fabric::address::GroupId(group as u16);
            for chunk in (0..catalog.chunks()).filter(|chunk| is_taken(*chunk)) {
                let mut round = Round::new();
                let somebody = round.reserve(8);
                round.set_word(somebody, u64::MAX);
                let target = world.database.groups().primary(catalog.chunk_word(group, chunk));
                round.write(target, somebody, 8);
                block_on(cx.port.execute(&mut round)).unwrap();
            }
        }
        let mut by = world.coordinator(0, 0);
        let before = by.context().port.counts().rounds;
        fill(&mut by, LAYOUTS[2], [1]);
        by.context().port.counts().rounds - before
    };
    let at_once = rounds_of_an_insert(&|_| false);
    let searched = rounds_of_an_insert(&|chunk| chunk != 4_321);
    // The search reads 1, 8, 64, 512 and 4,096 words and then the rest. The search wraps around the end of the table
    // twice.
    assert!(
        (at_once..at_once + 10).contains(&searched),
        "{searched}, of {at_once} without a search"
    );
}
