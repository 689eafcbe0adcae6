//! Tests that run all sequences of operations on one key within a transaction, and compare the results with a map.
//!
//! Invariant checked: a transaction may perform any operations on one record, in any order, with or without fetches
//! between them. Each operation finds the result of the previous operations, and the commit leaves the result of the
//! last operation. The test runs under every protocol, for rows within their slots and apart, with an ordered index
//! and without. For sequences up to the length `TARN_SEQUENCES`, the test tries every pattern of fetches. The test
//! tries longer sequences, up to four operations, with a fetch after each operation, and with one fetch after all
//! operations.

use crate::common::*;
use std::collections::BTreeMap;
use tarn_engine::protocol::ALL;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::{IndexKey, Scan, ScanHandle, Transaction};
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, IndexId, IndexPart, TableId, TableSchema};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Find,
    Put,
    InsertSet,
    UpdateSet,
    Modify,
    Delete,
    Scan,
}

use Operation::{Delete, Find, InsertSet, Modify, Put, Scan as ScanIt, UpdateSet};

const OPERATIONS: [Operation; 7] = [Find, Put, InsertSet, UpdateSet, Modify, Delete, ScanIt];

/// The value of a key in the map: column A, and the first byte of column B, which an update does not change.
type State = Option<(u64, u8)>;

/// One sequence: its operations, and after which of them a fetch comes.
#[derive(Clone, Debug)]
struct Plan {
    key: u64,
    operations: Vec<Operation>,
    fetches: u32,
    is_there: bool,
}

impl Plan {
    fn start(&self) -> State {
        self.is_there.then(|| (value(self.key, 0), 1))
    }

    fn fetches_behind(&self, at: usize) -> bool {
        at + 1 == self.operations.len() || self.fetches & (1 << at) != 0
    }
}

/// Returns a different value for each key and number.
fn value(key: u64, number: u64) -> u64 {
    key << 8 | number
}

/// Returns the sequences of at most `most` operations, and their keys. For sequences up to the length `thorough`, the
/// result contains every pattern of fetches.
fn plans(most: usize, thorough: usize) -> Vec<Plan> {
    let mut plans = Vec::new();
    for len in 1..=most {
        let last = (1u32 << (len - 1)) - 1;
        for number in 0..7usize.pow(len as u32) {
            let operations: Vec<_> =
                (0..len).map(|at| OPERATIONS[number / 7usize.pow(at as u32) % 7]).collect();
            for fetches in (0..=last).filter(|it| len <= thorough || *it == 0 || *it == last) {
                for is_there in [false, true] {
                    let (key, operations) = (plans.len() as u64 + 1, operations.clone());
                    plans.push(Plan { key, operations, fetches, is_there });
                }
            }
        }
    }
    plans
}

/// A request that the test has made and has not settled yet.
enum Asked {
    Row(Operation, Handle, State),
    /// Two requests: an update for an existing row, and an insert for an absent row.
    Put(Handle, Handle, State),
    Scans([ScanHandle; 2], State),
}

/// A table, and the table's index if it has one.
#[derive(Clone, Copy)]
struct Place {
    table: TableId,
    index: Option<IndexId>,
}

/// Requests the rows that an operation needs. Updates the map's state as the operation will change it, before the
/// function sets any value.
fn ask(
    tx: &mut Transaction<'_>,
    (place, key): (Place, u64),
    operation: Operation,
    state: &mut State,
) -> Option<Asked> {
    let (table, before) = (place.table, *state);
    let handle = match operation {
        Find => tx.read(table, key, Cells::ALL),
        UpdateSet | Modify => tx.update(table, key, Cells::ALL),
        InsertSet => {
            *state = before.or(Some((0, 0)));
            tx.insert(table, key)
        }
        Delete => {
            *state = None;
            tx.delete(table, key)
        }
        Put => {
            let found = tx.update(table, key, Cells::ALL);
            *state = before.or(Some((0, 0)));
            return Some(Asked::Put(found, tx.insert(table, key), before));
        }
        ScanIt => {
            let index = place.index?;
            let word = |word| IndexKey::new().u64(word);
            let own = Scan::range(word(value(key, 0)), word(value(key, 255)));
            return Some(Asked::Scans(
                [tx.scan(index, own), tx.scan(index, Scan::prefix(word(0)))],
                before,
            ));
        }
    };
    Some(Asked::Row(operation, handle, before))
}

/// Runs after a fetch. The function checks that the found rows equal the map's rows. The function then sets rows, one
/// operation after another.
fn settle(
    tx: &mut Transaction<'_>,
    (key, number): (u64, &mut u64),
    asked: &mut Vec<Asked>,
    state: &mut State,
) {
    let mut set = |tx: &mut Transaction<'_>, handle, whole: bool, state: &mut State| {
        let Some((_, b)) = *state else { return };
        *number += 1;
        tx.set(handle, A, value(key, *number));
        if whole {
            tx.set(handle, B, &[*number as u8; 1]);
        }
        *state = Some((value(key, *number), if whole { *number as u8 } else { b }));
    };
    for asked in asked.drain(..) {
        match asked {
            Asked::Row(operation, handle, before) => {
                assert_eq!(tx.existed(handle), before.is_some(), "{operation:?} existed");
                match operation {
                    InsertSet if before.is_none() => set(tx, handle, true, state),
                    UpdateSet if before.is_some() => set(tx, handle, false, state),
                    Modify if before.is_some() && state.is_some() => {
                        let (a, b) =
                            tx.get(handle).map(|row| (row.u64(A), row.bytes(B)[0])).unwrap();
                        let next = value(key, (a & 255) + 16);
                        tx.set(handle, A, next);
                        *state = Some((next, b));
                    }
                    _ => {}
                }
                let seen = tx.get(handle).map(|row| (row.u64(A), row.bytes(B)[0]));
                assert_eq!(seen, *state, "{operation:?}");
            }
            Asked::Put(found, inserted, before) => {
                assert_eq!(tx.existed(found), before.is_some(), "put existed");
                assert_eq!(tx.existed(inserted), before.is_some(), "put's insert existed");
                set(tx, if before.is_some() { found } else { inserted }, true, state);
            }
            Asked::Scans(handles, before) => {
                let seen: Vec<u64> = handles
                    .into_iter()
                    .flat_map(|handle| tx.scanned(handle))
                    .map(|entry| u64::from_be_bytes(entry.key[..8].try_into().unwrap()))
                    .collect();
                assert_eq!(seen, Vec::from_iter(before.map(|(a, _)| a)), "scan");
            }
        }
    }
}

/// Performs a put in the way in which callers write it. The put fetches first, and then knows whether to update or
/// insert.
async fn put(
    tx: &mut Transaction<'_>,
    (place, key): (Place, u64),
    number: &mut u64,
    state: &mut State,
) -> Result<(), Failure> {
    let mut handle = tx.update(place.table, key, Cells::ALL);
    tx.fetch().await?;
    assert_eq!(tx.existed(handle), state.is_some(), "put existed");
    if state.is_none() {
        handle = tx.insert(place.table, key);
        tx.fetch().await?;
        assert!(!tx.existed(handle), "put's insert existed");
    }
    *number += 1;
    tx.set(handle, A, value(key, *number));
    tx.set(handle, B, &[*number as u8; 1]);
    *state = Some((value(key, *number), *number as u8));
    Ok(())
}

/// Runs one sequence as one transaction. Returns the state that the sequence leaves.
async fn run(tx: &mut Transaction<'_>, place: Place, plan: &Plan) -> Result<State, Failure> {
    let (mut state, mut number, mut asked) = (plan.start(), 0, Vec::new());
    for (at, &operation) in plan.operations.iter().enumerate() {
        let fetches = plan.fetches_behind(at);
        if operation == Put && fetches && asked.is_empty() {
            put(tx, (place, plan.key), &mut number, &mut state).await?;
            continue;
        }
        asked.extend(ask(tx, (place, plan.key), operation, &mut state));
        if fetches {
            tx.fetch().await?;
            settle(tx, (plan.key, &mut number), &mut asked, &mut state);
        }
    }
    Ok(state)
}

fn tables(records: u64) -> Vec<TableSchema> {
    let wide = |name: &str, bytes| {
        let schema =
            TableSchema::new(name, records).column("a", tarn_store::schema::ColumnType::U64);
        schema.column("b", tarn_store::schema::ColumnType::Bytes(bytes))
    };
    let indexed = |schema: TableSchema| schema.index("by_a", &[IndexPart::Column(A)], false);
    vec![
        wide("line", 1),
        indexed(wide("line_indexed", 1)),
        wide("double", 80),
        wide("apart", 300),
        indexed(wide("apart_indexed", 300)),
    ]
}

fn fill_b(by: &mut Coordinator, place: Place, plans: &[Plan]) {
    for plans in plans.chunks(16) {
        block_on(by.transact(async |tx| {
            let there = plans.iter().filter(|plan| plan.is_there);
            let rows: Vec<_> = there.map(|plan| (plan, tx.insert(place.table, plan.key))).collect();
            tx.fetch().await?;
            for (plan, row) in rows {
                tx.set(row, A, value(plan.key, 0));
                tx.set(row, B, &[1; 1]);
            }
            Ok(())
        }))
        .unwrap();
    }
}

/// Returns the stored records, read by transactions that change nothing.
fn stored(by: &mut Coordinator, place: Place, plans: &[Plan]) -> BTreeMap<u64, (u64, u8)> {
    let mut stored = BTreeMap::new();
    for plans in plans.chunks(64) {
        block_on(by.transact(async |tx| {
            let rows: Vec<_> =
                plans.iter().map(|it| (it.key, tx.read(place.table, it.key, Cells::ALL))).collect();
            tx.fetch().await?;
            stored.extend(rows.into_iter().filter_map(|(key, row)| {
                Some((key, tx.get(row).map(|row| (row.u64(A), row.bytes(B)[0]))?))
            }));
            Ok(())
        }))
        .unwrap();
    }
    stored
}

/// Runs all sequences under one variant of a protocol. All data have copies on `nodes` nodes, and a thread caches at
/// most `cache` addresses. If the history is recorded, returns the history.
fn try_all(
    (protocol, variant): (&'static str, &str),
    plans: &[Plan],
    (nodes, cache, records): (usize, usize, bool),
) -> tarn_check::History {
    let info = ALL.iter().find(|info| info.name == protocol).unwrap();
    let schemas: Vec<TableSchema> = tables(plans.len() as u64)
        .into_iter()
        .filter(|schema| info.caps.ranges || schema.indexes.is_empty())
        .collect();
    let mut shape = Shape::of(&schemas).protocol(protocol).variant(variant).nodes(nodes, nodes);
    (shape.options.spare_bytes, shape.options.chunk_bytes) = (64 << 20, 256 << 10);
    let world = World::new(&shape);
    let mut by = world.coordinator(0, cache);
    if records {
        by.record_history();
    }
    let mut left_there = 0;
    for (at, schema) in schemas.iter().enumerate() {
        let index = world.database.catalog.index_id(&schema.name, "by_a");
        let place = Place { table: TableId(at as u16), index };
        fill_b(&mut by, place, plans);
        let mut expected = BTreeMap::new();
        for plan in plans {
            if index.is_none() && plan.operations.contains(&ScanIt) {
                expected.extend(plan.start().map(|state| (plan.key, state)));
                continue;
            }
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                block_on(by.transact(async |tx| run(tx, place, plan).await))
            }));
            let told = |what: &dyn std::fmt::Debug| {
                panic!("{protocol} {variant} {}: {plan:?}: {what:?}", schema.name)
            };
            match result {
                Ok(Ok(state)) => expected.extend(state.map(|state| (plan.key, state))),
                Ok(Err(failure)) => told(&(failure, by.context().explanation(failure))),
                Err(_) => told(&"it panicked"),
            }
        }
        let stored = stored(&mut by, place, plans);
        for plan in plans {
            let (seen, left) = (stored.get(&plan.key), expected.get(&plan.key));
            assert_eq!(seen, left, "{protocol} {variant} {}: {plan:?}", schema.name);
        }
        left_there += expected.len() as u64;
    }
    assert_eq!(world.assert_clean().records, left_there, "{protocol} {variant}");
    history(&world.database, by.take_history())
}

fn length() -> usize {
    std::env::var("TARN_SEQUENCES").map_or(3, |length| length.parse().unwrap())
}

#[test]
fn every_sequence_of_four_operations_on_one_key_agrees_with_a_map() {
    let plans = plans(4.max(length()), length());
    for info in ALL {
        try_all((info.name, "corrected"), &plans, (1, 0, false));
    }
    let without: Vec<_> =
        ALL.iter().filter(|info| !info.caps.ranges).map(|info| info.name).collect();
    println!("without scans, for they have no ordered indexes: {without:?}");
}

/// Tests the sequences with a backup of all data and cached addresses, and on snapshots if a protocol has snapshots.
/// The checker must accept the recorded history.
#[test]
fn every_sequence_of_three_agrees_with_backups_and_on_snapshots() {
    let plans = plans(3, 3);
    for info in ALL {
        let mut histories = vec![try_all((info.name, "corrected"), &plans, (2, 64, true))];
        if info.caps.snapshot_isolation {
            histories.push(try_all((info.name, "corrected,si"), &plans, (1, 0, true)));
        }
        for history in histories {
            let report = tarn_check::check(&history, tarn_check::Isolation::StrictSerializable);
            assert!(report.is_accepted(), "{}: {report}", info.name);
        }
    }
}
