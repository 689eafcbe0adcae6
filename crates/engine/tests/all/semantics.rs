//! Tests of a transaction's guarantees to its caller: the transaction sees its own writes, each record has one entry,
//! errors name exceeded limits, and a failed transaction leaves nothing.
//!
//! Invariant checked: one coordinator runs at a time, and the audit at the end of every test finds no error.

use crate::common::*;
use std::rc::Rc;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::{Block, Transaction};
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{AbortReason, Explanation, Failure, Mode};
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};

const T: TableId = TableId(0);
/// The tables with the three layouts: slots of one line, slots of two lines, and records stored apart from their
/// slots.
const LAYOUTS: [TableId; 3] = [TableId(0), TableId(1), TableId(2)];
const C: ColumnId = ColumnId(2);

fn layouts(records: u64) -> World {
    let schemas = [narrow("narrow", records), double("double", records), apart("apart", records)];
    World::new(&Shape::of(&schemas).nodes(2, 2))
}

fn usage(by: &Coordinator, failure: Failure) -> String {
    assert_eq!(failure, Failure::Usage);
    match by.context().explanation(failure) {
        Some(Explanation::Usage(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn ask(tx: &mut Transaction<'_>, table: TableId, key: u64, mode: Mode) -> Handle {
    match mode {
        Mode::Read => tx.read(table, key, Cells::ALL),
        Mode::Update => tx.update(table, key, Cells::ALL),
        Mode::Insert => tx.insert_zeros(table, key),
        Mode::Delete => tx.delete(table, key),
    }
}

const MODES: [Mode; 4] = [Mode::Read, Mode::Update, Mode::Insert, Mode::Delete];

/// The model of the test: returns a record's value after one step.
fn step(before: Option<u64>, mode: Mode, value: u64) -> Option<u64> {
    match mode {
        Mode::Read => before,
        Mode::Update => before.map(|_| value),
        Mode::Insert => before.or(Some(value)),
        Mode::Delete => None,
    }
}

/// Performs one step of the test within a transaction, in the way in which callers write it.
async fn perform(
    tx: &mut Transaction<'_>,
    table: TableId,
    key: u64,
    (mode, before, value): (Mode, Option<u64>, u64),
) -> Result<(), Failure> {
    let row = ask(tx, table, key, mode);
    tx.fetch().await?;
    match mode {
        Mode::Update if before.is_some() => tx.set(row, A, value),
        Mode::Insert if before.is_none() => tx.set(row, A, value),
        _ => {}
    }
    let seen = tx.get(row).map(|row| row.u64(A));
    assert_eq!(seen, step(before, mode, value), "{mode:?} of {before:?}");
    Ok(())
}

#[test]
fn every_sequence_of_three_operations_on_one_record_keeps_its_order() {
    for cache in [0, 64] {
        let world = layouts(64);
        let mut by = world.coordinator(0, cache);
        for table in LAYOUTS {
            for number in 0..128u64 {
                let (there, wishes) = (number >= 64, number % 64);
                let modes = [0, 2, 4].map(|shift| MODES[(wishes >> shift) as usize % 4]);
                let key = 1000 + number;
                let mut expected = there.then_some(7);
                if there {
                    fill(&mut by, table, [key]);
                    let set = async |tx: &mut Transaction<'_>| {
                        perform(tx, table, key, (Mode::Update, Some(key), 7)).await
                    };
                    block_on(by.transact(set)).unwrap();
                }
                let start = expected;
                block_on(by.transact(async |tx| {
                    expected = start;
                    for (value, mode) in modes.into_iter().enumerate() {
                        let value = 100 + value as u64;
                        perform(tx, table, key, (mode, expected, value)).await?;
                        expected = step(expected, mode, value);
                    }
                    Ok(())
                }))
                .unwrap();
                assert_eq!(value_of(&mut by, table, key), expected, "{there} {modes:?}");
            }
        }
        world.assert_clean();
    }
}

#[test]
fn two_operations_without_a_fetch_between_run_in_order() {
    let world = layouts(64);
    let mut by = world.coordinator(0, 0);
    for table in LAYOUTS {
        fill(&mut by, table, [1]);
        for (first, second) in MODES.iter().flat_map(|&a| MODES.map(|b| (a, b))) {
            for (key, there) in [(1, Some(1)), (2, None)] {
                let result = block_on(by.transact(async |tx| {
                    let (one, two) = (ask(tx, table, key, first), ask(tx, table, key, second));
                    tx.fetch().await?;
                    let between = step(there, first, 0);
                    assert_eq!(tx.existed(one), there.is_some(), "{first:?} {second:?}");
                    assert_eq!(tx.existed(two), between.is_some(), "{first:?} {second:?}");
                    let after = step(between, second, 0).is_some();
                    assert_eq!(tx.get(one).is_some(), after, "{first:?} {second:?}");
                    assert_eq!(tx.get(two).is_some(), after, "{first:?} {second:?}");
                    tx.abort::<()>()
                }));
                assert_eq!(result, Err(Failure::user_abort()), "{first:?} {second:?}");
            }
        }
    }
    world.assert_clean();
}

#[test]
fn blocks_fetch_when_they_close_and_later_blocks_see_earlier_ones() {
    let world = layouts(64);
    let mut by = world.coordinator(0, 0);
    fill(&mut by, T, [1, 2]);
    let sum = block_on(by.transact(async |tx| {
        let first = tx
            .block(async |b: &mut Block<'_, '_>| {
                let row = b.update(T, 1u64, Cells::ALL);
                b.fetch().await?;
                b.set(row, A, 40u64);
                Ok(row)
            })
            .await?;
        let second = tx.block(async |b| Ok(b.read(T, 2u64, Cells::ALL))).await?;
        let again = tx.get_row(T, 1u64).await?.unwrap().u64(A);
        Ok(again + tx.get(first).unwrap().u64(A) + tx.get(second).unwrap().u64(A))
    }));
    assert_eq!(sum, Ok(82));
    assert_eq!(value_of(&mut by, T, 1), Some(40));
}

/// Adds one to columns A and C of record 1.
async fn change(by: &mut Coordinator, table: TableId) -> Result<(), Failure> {
    by.transact(async |tx| {
        let row = tx.update(table, 1u64, Cells::ALL);
        tx.fetch().await?;
        let value = tx.get(row).unwrap().u64(A) + 1;
        tx.set(row, A, value);
        tx.set(row, C, value);
        Ok(())
    })
    .await
}

#[test]
fn cells_read_one_after_the_other_are_of_one_version() {
    let world = layouts(64);
    let (mut by, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
    let apart = TableId(2);
    fill(&mut by, apart, [1]);
    block_on(change(&mut other, apart)).unwrap();
    let mut tries = 0;
    block_on(by.transact(async |tx| {
        tries += 1;
        let row = tx.read(apart, 1u64, Cells::one(A));
        tx.fetch().await?;
        let a = tx.get(row).unwrap().u64(A);
        if tries == 1 {
            change(&mut other, apart).await?;
        }
        tx.read(apart, 1u64, Cells::one(C));
        tx.fetch().await?;
        let c = tx.get(row).unwrap().u64(C);
        assert!(a == c || tries == 1);
        Ok(())
    }))
    .unwrap();
    assert_eq!(tries, 2, "the first try saw two versions");
    world.assert_clean();
}

#[test]
fn a_delete_after_a_read_deletes_the_version_read() {
    let world = layouts(64);
    let (mut by, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
    for table in LAYOUTS {
        fill(&mut by, table, [9]);
        let mut tries = 0;
        block_on(by.transact(async |tx| {
            tries += 1;
            let row = tx.read(table, 9u64, Cells::ALL);
            tx.fetch().await?;
            if tries == 1 {
                let write = async |tx: &mut Transaction<'_>| {
                    perform(tx, table, 9, (Mode::Update, Some(9), 90)).await
                };
                other.transact(write).await?;
            }
            let seen = tx.get(row).unwrap().u64(A);
            tx.delete(table, 9u64);
            tx.fetch().await?;
            assert!(seen == 90 || tries == 1);
            Ok(())
        }))
        .unwrap();
        assert_eq!(tries, 2, "the first try deleted a version that it had not read");
    }
    world.assert_clean();
}

#[test]
fn a_record_found_absent_stays_absent_within_its_transaction() {
    let world = layouts(64);
    let (mut by, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
    let mut tries = 0;
    block_on(by.transact(async |tx| {
        tries += 1;
        let row = tx.delete(T, 77u64);
        tx.fetch().await?;
        let there = tx.existed(row);
        if tries == 1 {
            other.transact(async |tx| Ok(tx.insert_zeros(T, 77u64))).await?;
        }
        if !there {
            tx.insert_zeros(T, 77u64);
            tx.fetch().await?;
            assert!(tries > 1 || tx.existed(row));
        }
        Ok(())
    }))
    .unwrap();
    assert_eq!(tries, 2, "the first try saw the record absent and present");
    world.assert_clean();
}

#[test]
fn inserting_an_existing_record_reads_it_whole() {
    let world = layouts(1);
    let mut by = world.coordinator(0, 0);
    by.context().growth.enable(false);
    for table in LAYOUTS {
        // The buckets overflow, so there are records at home, away from home, and in chains.
        fill(&mut by, table, 0..100);
        for key in 0..100u64 {
            block_on(by.transact(async |tx| {
                let row = tx.insert(table, key);
                tx.fetch().await?;
                assert!(tx.existed(row));
                assert_eq!(tx.get(row).unwrap().u64(A), key);
                Ok(())
            }))
            .unwrap();
            assert_eq!(value_of(&mut by, table, key), Some(key));
        }
    }
    world.assert_clean();
}

#[test]
fn versions_of_a_slot_never_fall() {
    for table in LAYOUTS {
        let world = layouts(1);
        let mut by = world.coordinator(0, 0);
        by.record_history();
        for turn in 0..60u64 {
            let key = turn % 3;
            let wish = if turn % 6 < 3 { Mode::Insert } else { Mode::Delete };
            block_on(by.transact(async |tx| {
                let row = ask(tx, table, key, wish);
                tx.fetch().await?;
                assert_eq!(tx.existed(row), wish == Mode::Delete);
                Ok(())
            }))
            .unwrap();
        }
        let recorded = by.take_history();
        for key in 0..3 {
            let versions: Vec<u64> = recorded
                .iter()
                .flat_map(|txn| &txn.writes)
                .filter(|write| write.key == key)
                .map(|write| write.version)
                .collect();
            assert_eq!(versions.len(), 20);
            assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
        }
        let report = tarn_check::check(
            &history(&world.database, recorded),
            tarn_check::Isolation::StrictSerializable,
        );
        assert!(report.is_accepted(), "{report}");
        world.assert_clean();
    }
}

#[test]
fn mistakes_are_named_and_leave_no_lock() {
    let mut shape = Shape::of(&[
        narrow("narrow", 8000),
        narrow("keyed", 8).key_bytes(12),
        TableSchema::new("huge", 8)
            .column("a", ColumnType::U64)
            .column("b", ColumnType::Bytes(16000)),
    ]);
    (shape.options.records_max, shape.options.log_bytes_max) = (4096, 64 << 10);
    let world = World::new(&shape);
    let mut by = world.coordinator(0, 0);
    fill(&mut by, T, 0..10);
    let result = block_on(by.transact(async |tx| {
        tx.update(T, 1u64, Cells::ALL);
        tx.fetch().await?;
        tx.read(T, b"twelve bytes", Cells::ALL);
        tx.fetch().await
    }));
    assert!(usage(&by, result.unwrap_err()).contains("key of table narrow"));
    world.assert_clean();
    let result = block_on(by.transact(async |tx| Ok(tx.read(TableId(1), 5u64, Cells::ALL))));
    assert!(usage(&by, result.unwrap_err()).contains("key of table keyed"));
    let result = block_on(by.transact(async |tx| {
        tx.update(T, 0u64, Cells::ALL);
        tx.fetch().await?;
        for key in 0..=4096u64 {
            tx.read(T, key, Cells::ALL);
        }
        tx.fetch().await
    }));
    assert!(usage(&by, result.unwrap_err()).contains("records of one transaction = 4097"));
    world.assert_clean();
    // Undo images may fill the log area, even if each verb is small enough.
    let huge = TableId(2);
    fill(&mut by, huge, 0..8);
    let change = async |tx: &mut Transaction<'_>, keys: u64| {
        let rows: Vec<_> = (0..keys).map(|key| tx.update(huge, key, Cells::ALL)).collect();
        tx.fetch().await?;
        for row in rows {
            tx.set(row, B, &[1; 16000]);
        }
        Ok(())
    };
    for keys in 1..=4 {
        block_on(by.transact(async |tx| change(tx, keys).await)).unwrap();
    }
    let result = block_on(by.transact(async |tx| change(tx, 5).await));
    assert!(usage(&by, result.unwrap_err()).contains("log entry of one transaction"));
    world.assert_clean();
    assert_eq!(value_of(&mut by, huge, 4), Some(4));
}

#[test]
fn an_aborted_transaction_leaves_nothing() {
    let world = layouts(1);
    let mut by = world.coordinator(0, 0);
    for table in LAYOUTS {
        fill(&mut by, table, 0..20);
    }
    // Abandoned inserts request growth of the index. The test disables growth, because growth would leave a change.
    by.context().growth.enable(false);
    let before = world.assert_clean();
    for _ in 0..50 {
        let result = block_on(by.transact(async |tx| {
            for table in LAYOUTS {
                let row = tx.update(table, 1u64, Cells::ALL);
                tx.delete(table, 2u64);
                let rows: Vec<_> = (100..120u64).map(|key| tx.insert(table, key)).collect();
                tx.fetch().await?;
                tx.set(row, A, 9u64);
                tx.set(rows[0], A, 9u64);
            }
            tx.abort::<()>()
        }));
        assert_eq!(result, Err(Failure::user_abort()));
        assert_eq!(world.assert_clean(), before);
    }
    for table in LAYOUTS {
        assert_eq!(value_of(&mut by, table, 1), Some(1));
        assert_eq!(value_of(&mut by, table, 2), Some(2));
        assert_eq!(value_of(&mut by, table, 100), None);
    }
    let user = by.context().metrics.snapshot().aborts[AbortReason::User as usize];
    assert_eq!(user, 50);
}

#[test]
fn going_on_after_a_failed_or_dropped_fetch_cannot_commit() {
    let world = layouts(64);
    let (mut by, mut other) = (world.coordinator(0, 64), world.coordinator(1, 0));
    fill(&mut by, T, 0..4);
    block_on(other.transact(async |tx| {
        tx.update(T, 1u64, Cells::ALL);
        tx.fetch().await?;
        let mut tries = 0;
        let result = by
            .transact(async |tx| {
                tries += 1;
                if tries == 3 {
                    return tx.abort();
                }
                for key in 0..3u64 {
                    tx.update(T, key, Cells::ALL);
                }
                let _ = tx.fetch().await; // the fetch is refused, and the caller ignores this
                tx.update(T, 3u64, Cells::ALL);
                let _ = tx.fetch().await;
                Ok(())
            })
            .await;
        assert_eq!((result, tries), (Err(Failure::user_abort()), 3));
        Ok(())
    }))
    .unwrap();
    world.assert_clean();
    // The test polls a fetch once and drops it, as a timeout would do.
    let result = block_on(by.transact(async |tx| {
        tx.update(TableId(2), 1u64, Cells::ALL);
        tx.update(T, 1u64, Cells::ALL);
        {
            let mut fetch = std::pin::pin!(tx.fetch());
            std::future::poll_fn(|context| {
                let _ = fetch.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
        }
        tx.update(T, 2u64, Cells::ALL);
        Ok(())
    }));
    assert!(usage(&by, result.unwrap_err()).contains("fetch"));
    world.assert_clean();
}

#[test]
fn a_deadline_ends_the_tries() {
    let world = layouts(64);
    let mut holder = world.coordinator(0, 0);
    fill(&mut holder, T, [1]);
    let retry = Retry { deadline: Some(Nanos(2_000_000)), ..Retry::default() };
    let cx = world.context(1, 0);
    let mut by = Coordinator::new(Rc::clone(&cx), 1, retry);
    block_on(holder.transact(async |tx| {
        tx.update(T, 1u64, Cells::ALL);
        tx.fetch().await?;
        let result = by.transact(async |tx| Ok(tx.update(T, 1u64, Cells::ALL))).await;
        assert_eq!(result.unwrap_err(), Failure::DeadlineExceeded);
        Ok(())
    }))
    .unwrap();
    match cx.explanation(Failure::DeadlineExceeded) {
        Some(Explanation::DeadlineExceeded { tries, waited }) => {
            assert!(tries > 1 && waited.contains("lock_refused"), "{waited}");
        }
        other => panic!("{other:?}"),
    }
    world.assert_clean();
}
