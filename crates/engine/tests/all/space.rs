//! Tests of memory that is reused. Deleted records leave enough memory for the same number of new records, however
//! many threads start and end and however many keys have existed.
//!
//! Invariant checked: after all records were deleted, the same number of records fits as before. The number of chunks
//! in use does not grow with the number of keys that have ever existed. The tests run under every protocol, for
//! records in the slot and apart. If the protocol has ordered indexes, the tests also run with ordered indexes.

use crate::common::*;
use std::rc::Rc;
use tarn_engine::admin::inspect;
use tarn_engine::cluster::info::ProtocolInfo;
use tarn_engine::protocol::ALL;
use tarn_engine::recovery;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::Transaction;
use tarn_fabric::address::Address;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_store::layout::KEY_AT;
use tarn_store::placement::catalog::Placement;
use tarn_store::schema::{Cells, TableId, TableSchema};

const TABLE: TableId = TableId(0);

/// The tested tables. A flag of each table tells whether it has ordered indexes.
fn tables() -> [(TableSchema, bool); 4] {
    let ordered = |schema: TableSchema| schema.ordered("by_key");
    [
        (narrow("narrow", 400), false),
        (apart("apart", 400), false),
        (ordered(narrow("narrow", 400)), true),
        (ordered(apart("apart", 400)), true),
    ]
}

/// Calls `test` for every protocol and table. Protocols without ordered indexes skip the tables with such indexes.
fn for_all(test: impl Fn(&'static ProtocolInfo, &TableSchema)) {
    for info in ALL {
        for (schema, is_ordered) in tables() {
            match is_ordered && !info.caps.ranges {
                true => println!("{}: no ordered indexes", info.name),
                false => test(info, &schema),
            }
        }
    }
}

fn world(info: &ProtocolInfo, schema: &TableSchema, spare_bytes: u64) -> World {
    let mut shape = Shape::of(std::slice::from_ref(schema)).protocol(info.name);
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, spare_bytes);
    World::new(&shape)
}

fn insert(by: &mut Coordinator, key: u64) -> Result<(), Failure> {
    block_on(by.transact(async |tx| {
        let row = tx.insert(TABLE, key);
        tx.fetch().await?;
        tx.set(row, A, key);
        Ok(())
    }))
}

fn delete(by: &mut Coordinator, key: u64) {
    let existed = block_on(by.transact(async |tx| {
        let row = tx.delete(TABLE, key);
        tx.fetch().await?;
        Ok(tx.existed(row))
    }));
    assert_eq!(existed, Ok(true), "{key}");
}

/// Inserts keys until the memory is full. Returns the inserted keys.
fn fill_up(by: &mut Coordinator, mut keys: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut stored = Vec::new();
    loop {
        let key = keys.next().expect("more keys than there is memory for");
        match insert(by, key) {
            Ok(()) => stored.push(key),
            Err(failure) => {
                assert_eq!(failure, Failure::OutOfMemory);
                return stored;
            }
        }
    }
}

/// Returns the keys that are stored in the table.
fn keys_of(world: &World) -> Vec<u64> {
    let mut keys = Vec::new();
    let cx = world.context(6, 0);
    block_on(inspect::scan(&cx, TABLE, |it| keys.push(it.key))).expect("memory that is there");
    keys
}

#[test]
fn a_table_whose_records_were_deleted_holds_as_many_again() {
    for_all(|info, schema| {
        let world = world(info, schema, 128 << 10);
        let node = world.join(0);
        let mut by = coordinator(&world.thread(&node, 0, 0), 0);
        let mut first = fill_up(&mut by, 0..);
        assert!(first.len() > 400, "{}: {} rows", info.name, first.len());
        for round in 0..3 {
            // Each round of this loop runs on a thread that has taken no memory yet.
            let thread = 1 + round;
            let mut by = coordinator(&world.thread(&node, thread, 0), 0);
            let before = world.assert_clean();
            first.iter().for_each(|&key| delete(&mut by, key));
            let what = format!("{}, {}, round {round}", info.name, schema.name);
            let inserted = first.iter().filter(|key| insert(&mut by, **key).is_ok()).count() as u64;
            let after = world.assert_clean();
            // Buckets that are split while there are few records take a part of the memory. A split-off bucket and
            // its original bucket need the first blocks of their chains at different times.
            let more = |of: fn(&inspect::Audit) -> u64| of(&after).saturating_sub(of(&before));
            let missing = more(|it| it.overflow_blocks) + more(|it| it.buckets);
            assert!(
                inserted + missing >= before.records,
                "{what}: {inserted} of {}",
                before.records
            );
            assert_eq!(after.records, inserted, "{what}");
            first.truncate(0);
            first.extend(keys_of(&world));
        }
    });
}

/// Tests a table that is emptied and then filled with other keys. Blocks of chains stay with their buckets, and other
/// buckets may be full sooner. For rows stored apart, the rows need most of the memory, so at most a tenth fewer rows
/// fit. For rows in slots, in a table laid out for a fourth of the rows, chains take nearly all memory.
#[test]
fn a_table_whose_records_were_deleted_holds_as_many_other_keys() {
    for_all(|info, schema| {
        let world = world(info, schema, 128 << 10);
        let node = world.join(0);
        let mut by = coordinator(&world.thread(&node, 0, 0), 0);
        let mut stored = fill_up(&mut by, 0..);
        let first = stored.len();
        for round in 1..=3u64 {
            stored.iter().for_each(|&key| delete(&mut by, key));
            stored = fill_up(&mut by, round << 32..);
            let what = format!("{}, {}, round {round}", info.name, schema.name);
            println!("{what}: {} of {first}", stored.len());
            let slot = &world.database.catalog.table(TABLE).slot;
            let lies_apart = schema.name == "apart" && slot.body_at.is_some();
            let share = if lies_apart { (9, 10) } else { (1, 4) };
            assert!(stored.len() * share.1 >= first * share.0, "{what}: {}", stored.len());
            assert_eq!(world.assert_clean().records, stored.len() as u64, "{what}");
        }
    });
}

/// Runs the steps of a queue: each step inserts a new row under a new key, and deletes the oldest row.
fn queue(steps: u64) {
    const LENGTH: u64 = 50;
    for_all(|info, schema| {
        let world = world(info, schema, 1 << 20);
        let mut by = world.coordinator(0, 0);
        (0..LENGTH).for_each(|key| insert(&mut by, key).expect("room"));
        let mut turn = |from: u64, to: u64| {
            for key in from..to {
                let done = block_on(by.transact(async |tx| {
                    tx.insert_zeros(TABLE, LENGTH + key);
                    let oldest = tx.delete(TABLE, key);
                    tx.fetch().await?;
                    Ok(tx.existed(oldest))
                }));
                assert_eq!(done, Ok(true), "{}, {}: step {key}", info.name, schema.name);
            }
            (chunks_taken(&world), world.audit().overflow_blocks)
        };
        let before = turn(0, steps / 4);
        let after = turn(steps / 4, steps);
        assert_eq!(before, after, "{}, {}: chunks, blocks of chains", info.name, schema.name);
        assert_eq!(world.assert_clean().records, LENGTH);
    });
}

#[test]
fn a_queue_of_new_keys_takes_no_memory() {
    queue(20_000);
}

#[test]
#[ignore = "half an hour"]
fn a_queue_of_ten_million_new_keys_takes_no_memory() {
    queue(10_000_000);
}

/// Tests keys that are inserted and deleted within one transaction. Such keys find full buckets, and must leave no
/// block.
#[test]
fn records_inserted_and_deleted_in_one_transaction_take_no_memory() {
    for_all(|info, schema| {
        let world = world(info, schema, 1 << 20);
        let mut by = world.coordinator(0, 0);
        (0..400).for_each(|key| insert(&mut by, key).expect("room"));
        let mut turn = |from: u64, to: u64| {
            for step in from..to {
                come_and_go(&mut by, (1 << 32) + step * 16..(1 << 32) + step * 16 + 16);
            }
            chunks_taken(&world)
        };
        let before = turn(0, 200);
        let after = turn(200, 1_000);
        // A bucket that has not been full before may get the first block of its chain now.
        let most = before + before / 10;
        assert!(after <= most, "{}, {}: {before}, then {after}", info.name, schema.name);
        assert_eq!(world.assert_clean().records, 400);
    });
}

fn come_and_go(by: &mut Coordinator, keys: std::ops::Range<u64>) {
    block_on(by.transact(async |tx| {
        for key in keys.clone() {
            tx.insert_zeros(TABLE, key);
        }
        tx.fetch().await?;
        for key in keys.clone() {
            tx.delete(TABLE, key);
        }
        tx.fetch().await
    }))
    .expect("room");
}

/// Tests a transaction whose inserts were undone, so its log names no block for them. Other transactions have
/// lengthened the chains since then.
#[test]
fn recovery_after_undone_inserts_leaves_later_chains_alone() {
    const OTHER: TableId = TableId(1);
    for info in ALL.iter().filter(|it| it.caps.crash_recovery) {
        let schemas = [narrow("first", 60), narrow("second", 60)];
        let mut shape = Shape::of(&schemas).protocol(info.name).nodes(2, 1);
        shape.options.placement = Placement::Table;
        let world = World::new(&shape);
        let (mut other, mut victim) = (world.coordinator(0, 0), world.coordinator(1, 0));
        fill(&mut other, TABLE, 0..200);
        fill(&mut other, OTHER, 0..1);
        let keys = 1_000..1_030u64;
        let done = block_on(victim.transact(async |tx| {
            keys.clone().for_each(|key| _ = tx.insert_zeros(TABLE, key));
            tx.fetch().await?;
            keys.clone().for_each(|key| _ = tx.delete(TABLE, key));
            let row = tx.update(OTHER, 0u64, Cells::ALL);
            tx.fetch().await?;
            tx.set(row, A, 77u64);
            Ok(())
        }));
        assert_eq!(done, Ok(()), "{}", info.name);
        fill(&mut other, TABLE, keys.clone());
        let dead = victim.context().node.id;
        world.database.membership.expel(dead);
        block_on(recovery::recover(other.context(), dead)).expect("nothing is broken");
        for key in (0..200).chain(keys) {
            assert_eq!(value_of(&mut other, TABLE, key), Some(key), "{}: {key}", info.name);
        }
        assert_eq!(value_of(&mut other, OTHER, 0), Some(77), "{}", info.name);
        world.assert_clean();
    }
}

/// Tests slots of deleted records that another transaction has locked. A transaction cannot empty such slots. Inserts
/// into several such buckets continue, and try once for each bucket to empty its slots.
#[test]
fn inserts_go_on_beside_slots_that_cannot_be_emptied() {
    let schema = narrow("narrow", 400);
    let info = ALL.iter().find(|it| it.name == "lotus").expect("it is listed");
    let world = world(info, &schema, 1 << 20);
    let node = world.join(0);
    let (one, two) = (world.thread(&node, 0, 0), world.thread(&node, 1, 0));
    let mut one = coordinator(&one, 0);
    let retry = Retry { deadline: Some(Nanos(5_000_000_000)), ..Retry::default() };
    let mut other = Coordinator::new(two, 1, retry);
    (0..800).for_each(|key| insert(&mut one, key).expect("room"));
    (0..40).for_each(|key| delete(&mut one, key));
    let done = block_on(one.transact(async |tx| {
        (0..40u64).for_each(|key| _ = tx.read(TABLE, key, Cells::ALL));
        tx.fetch().await?;
        let done = other.transact(async |tx| {
            (1 << 32..(1 << 32) + 400u64).for_each(|key| _ = tx.insert_zeros(TABLE, key));
            tx.fetch().await
        });
        Ok(done.await)
    }));
    assert_eq!(done, Ok(Ok(())));
}

/// Tests one thread that inserts and another thread that deletes. The inserting thread finds the memory that the
/// deleting thread gives back.
#[test]
fn a_thread_reuses_memory_that_another_has_freed() {
    for_all(|info, schema| {
        let world = world(info, schema, 64 << 10);
        let node = world.join(0);
        let thread = |number: u16| coordinator(&world.thread(&node, number, 0), u32::from(number));
        let (mut one, mut other) = (thread(0), thread(1));
        for key in 0..5_000u64 {
            assert_eq!(insert(&mut one, key), Ok(()), "{}, {}: {key}", info.name, schema.name);
            if let Some(oldest) = key.checked_sub(50) {
                delete(&mut other, oldest);
            }
        }
        assert_eq!(world.assert_clean().records, 50);
    });
}

/// Runs threads one after another, each with one insert and one delete. No thread may keep a chunk.
fn threads(count: u64) {
    for_all(|info, schema| {
        let world = world(info, schema, 64 << 10);
        let node = world.join(0);
        let mut tags = std::collections::BTreeSet::new();
        let mut turn = |from: u64, to: u64| {
            for key in from..to {
                let number = node.threads.reserve().expect("a number");
                let cx = world.thread(&node, number, 0);
                tags.insert(cx.next_tag());
                let mut by = coordinator(&cx, 0);
                assert_eq!(insert(&mut by, key), Ok(()), "{}, {}", info.name, schema.name);
                delete(&mut by, key);
            }
            chunks_taken(&world)
        };
        let before = turn(0, count / 4);
        assert_eq!(before, turn(count / 4, count), "{}, {}", info.name, schema.name);
        assert_eq!(tags.len() as u64, count, "{}: a transaction's name came twice", info.name);
    });
}

#[test]
fn starting_and_ending_threads_takes_no_memory() {
    threads(2_000);
}

/// Polls a transaction `polls` times, lets other transactions run, and then lets it end. Returns the transaction's
/// result.
fn beside<R>(polls: usize, reading: impl Future<Output = R>, others: impl FnOnce()) -> R {
    let mut reading = std::pin::pin!(reading);
    if let Some(seen) = poll_times(reading.as_mut(), polls, || {}) {
        return seen;
    }
    others();
    block_on(reading)
}

/// Creates a cluster in which threads access memory by rounds, each of which takes one poll. Returns the cluster and
/// two of its threads.
fn two(
    schema: TableSchema,
    spare_bytes: u64,
    (protocol, variant): (&'static str, &str),
) -> (World, [Coordinator; 2]) {
    let mut shape = Shape::of(&[schema]).protocol(protocol).variant(variant);
    (shape.near, shape.options.chunk_bytes) = (false, 4096);
    shape.options.spare_bytes = spare_bytes;
    let world = World::new(&shape);
    let node = world.join(0);
    let thread = |number: u16| coordinator(&world.thread(&node, number, 16), u32::from(number));
    let both = [thread(0), thread(1)];
    (world, both)
}

/// Deletes one key and inserts other keys, unless a reader's lock prevents it. The test does not poll this reader
/// meanwhile.
fn try_to_replace(by: &mut Coordinator, gone: u64, keys: impl Iterator<Item = u64>) {
    let retry = Retry { tries_max: 3, ..Retry::default() };
    let mut once = Coordinator::new(Rc::clone(by.context()), 5, retry);
    let deleted = block_on(once.transact(async |tx| {
        tx.delete(TABLE, gone);
        tx.fetch().await
    }));
    if deleted.is_ok() {
        keys.for_each(|key| {
            let _ = insert(&mut once, key);
        });
    }
}

/// Tests a reader that follows an index to a record that is deleted before the reader reads it. By then another
/// record has the deleted record's memory. The memory is so small that freed memory is reused immediately.
#[test]
fn a_late_reader_does_not_mistake_a_new_record_for_a_deleted_one() {
    let get =
        async |tx: &mut Transaction<'_>| Ok(tx.get_row(TABLE, 7u64).await?.map(|row| row.u64(A)));
    for info in ALL {
        for polls in 0..12 {
            for is_declared in [false, true] {
                for is_known in [false, true] {
                    let (world, [mut writer, mut reader]) =
                        two(apart("apart", 8), 0, (info.name, "corrected"));
                    let stored = fill_up(&mut writer, 0..);
                    if is_known {
                        block_on(reader.transact(get)).expect("it is there");
                    }
                    let more = stored.len() as u64..stored.len() as u64 + 8;
                    let others = || try_to_replace(&mut writer, 7, more);
                    let seen = match is_declared {
                        true => beside(polls, reader.transact_read_only(get), others),
                        false => beside(polls, reader.transact(get), others),
                    };
                    let what = format!("{}, {polls} polls", info.name);
                    assert!(matches!(seen, Ok(Some(7) | None)), "{what}: {seen:?}");
                    drop((writer, reader));
                    world.assert_clean();
                }
            }
        }
    }
}

/// Returns the address of the record of key 7, if the record is stored apart from its slot.
fn record_of_seven(world: &World) -> Option<Address> {
    let (cx, mut found) = (world.context(6, 0), None);
    let table = world.database.catalog.table(TABLE);
    block_on(inspect::blocks(&cx, TABLE, |round, at| {
        for image in inspect::slots(table, at).filter(|at| round.word(at.plus(KEY_AT)) == 7) {
            let bytes = round.bytes(image, table.slot.slot_bytes);
            found = found.or(table.slot.apart(bytes).next());
        }
    }))
    .expect("memory that is there");
    found
}

/// Tests a planted bug: the memory of a record is free while the record exists. A reader then sees another record, or
/// no record.
#[test]
fn memory_that_is_reused_too_soon_is_noticed() {
    for info in ALL {
        let (world, [mut writer, reader]) = two(apart("apart", 8), 0, (info.name, "corrected"));
        fill_up(&mut writer, 0..);
        let Some(record) = record_of_seven(&world) else {
            println!("{}: no record lies apart", info.name);
            continue;
        };
        writer.context().discard_record(record, TABLE);
        (1 << 20..(1 << 20) + 400).any(|key| insert(&mut writer, key).is_ok());
        let retry = Retry { tries_max: 4, ..Retry::default() };
        let mut reader = Coordinator::new(Rc::clone(reader.context()), 2, retry);
        let seen = block_on(
            reader.transact(async |tx| Ok(tx.get_row(TABLE, 7u64).await?.map(|row| row.u64(A)))),
        );
        assert_ne!(seen, Ok(Some(7)), "{}: the planted bug goes unnoticed", info.name);
    }
}

/// Returns a snapshot's view of two keys, one of which is deleted when the other changes. The bucket of the deleted
/// key is full of deleted keys. Inserts of new keys empty this bucket.
fn seen_beside_a_sweep(schema: TableSchema, variant: &str, polls: usize) -> (bool, bool) {
    let (world, [mut writer, mut reader]) = two(schema, 64 << 10, ("lotus", variant));
    fill(&mut writer, TABLE, 0..40);
    let both = async |tx: &mut Transaction<'_>| {
        let one = tx.get_row(TABLE, 0u64).await?.map(|row| row.u64(A) == 0);
        let other = tx.get_row(TABLE, 1u64).await?.is_some();
        Ok((one.expect("it stays"), other))
    };
    let others = || {
        block_on(writer.transact(async |tx| {
            let row = tx.update(TABLE, 0u64, Cells::ALL);
            tx.delete(TABLE, 1u64);
            tx.fetch().await?;
            tx.set(row, A, 1000u64);
            Ok(())
        }))
        .expect("no reader locks");
        for turn in 0..20 {
            fill(&mut writer, TABLE, 1000 + turn * 40..1040 + turn * 40);
            (1000 + turn * 40..1040 + turn * 40).for_each(|key| delete(&mut writer, key));
        }
    };
    let seen = beside(polls, reader.transact_read_only(both), others).expect("it is tried again");
    drop((writer, reader));
    world.assert_clean();
    seen
}

#[test]
fn a_snapshot_misses_no_key_whose_slot_was_emptied_since() {
    let schemas = || [narrow("narrow", 8), narrow("narrow", 8).apart()];
    for schema in schemas() {
        for polls in 0..12 {
            let (is_old, is_there) = seen_beside_a_sweep(schema.clone(), "corrected", polls);
            assert_eq!(is_old, is_there, "after {polls} polls");
        }
    }
    for schema in schemas() {
        let mut all =
            (0..12).map(|polls| seen_beside_a_sweep(schema.clone(), "corrected,-too-old", polls));
        assert!(all.any(|seen| seen == (true, false)), "the planted bug goes unnoticed");
    }
}
