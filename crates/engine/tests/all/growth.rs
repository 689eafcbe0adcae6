//! Tests of tables that grow far beyond their first layout, while transactions run on them.
//!
//! Invariant checked: every record stays findable and no other record appears. A model, the checker, and an audit of
//! every replica check this. An abandoned split leaves no change. A full heap causes no error. Chains and lookups
//! stay short.

#![allow(clippy::disallowed_methods, reason = "measures how long real threads take")]

use crate::common::*;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use tarn_check::{Isolation, check};
use tarn_engine::admin::inspect;
use tarn_engine::protocol::ALL;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::Context;
use tarn_engine::site::metrics::Tally;
use tarn_fabric::address::GroupId;
use tarn_fabric::executor::{Executor, block_on};
use tarn_store::history::{RecordedOutcome, RecordedTxn, WriteKind};
use tarn_store::ids::Failure;
use tarn_store::index::growth::Shard;
use tarn_store::schema::{Cells, Key, TableId, TableSchema};

const T: TableId = TableId(0);
const KEY_BYTES: u8 = 20;

/// Creates a cluster with one memory node, a table laid out for a few records, and `spare` MiB of heap.
fn tiny(schema: &TableSchema, replicas: usize, spare: u64) -> World {
    tiny_of(ALL[0].name, schema, replicas, spare)
}

pub fn tiny_of(protocol: &'static str, schema: &TableSchema, replicas: usize, spare: u64) -> World {
    let shape = Shape::of(std::slice::from_ref(schema)).nodes(replicas, replicas);
    let mut shape = shape.protocol(protocol);
    shape.options.spare_bytes = spare << 20;
    World::new(&shape)
}

/// Returns tables with different kinds of slots.
fn kinds() -> [TableSchema; 4] {
    [
        narrow("narrow", 8),
        double("double", 8),
        apart("apart", 8),
        narrow("wide", 8).key_bytes(KEY_BYTES),
    ]
}

/// Calls `then` with a key of the table's key type.
fn with_key<R>(schema: &TableSchema, key: u64, then: impl FnOnce(Key<'_>) -> R) -> R {
    if schema.stored_key_bytes() == 0 {
        return then(Key::Word(key));
    }
    let mut bytes = [7; KEY_BYTES as usize];
    bytes[4..12].copy_from_slice(&key.to_be_bytes());
    then(Key::Bytes(&bytes))
}

/// Inserts a record, or sets column A of the existing record.
async fn put(
    tx: &mut Transaction<'_>,
    schema: &TableSchema,
    key: u64,
    value: u64,
) -> Result<(), Failure> {
    let row = with_key(schema, key, |key| tx.insert(T, key));
    tx.fetch().await?;
    if tx.existed(row) {
        let row = with_key(schema, key, |key| tx.update(T, key, Cells::ALL));
        tx.fetch().await?;
        tx.set(row, A, value);
        return Ok(());
    }
    tx.set(row, A, value);
    Ok(())
}

pub async fn get(
    tx: &mut Transaction<'_>,
    schema: &TableSchema,
    key: u64,
) -> Result<Option<u64>, Failure> {
    let row = with_key(schema, key, |key| tx.read(T, key, Cells::ALL));
    tx.fetch().await?;
    Ok(tx.get(row).map(|row| row.u64(A)))
}

pub fn splits(cx: &Context) -> u64 {
    cx.metrics.snapshot().splits
}

#[test]
fn a_tiny_table_grows_large_and_loses_nothing() {
    for schema in kinds() {
        for replicas in [1, 3] {
            grow_against_a_model(ALL[0].name, &schema, replicas);
        }
    }
    for info in ALL[1..].iter().filter(|info| info.caps.growth) {
        // Under these protocols a record of this table takes one cache line. LOTUS's tables with longer slots do not
        // grow.
        for replicas in [1, 3] {
            grow_against_a_model(info.name, &half("half", 8), replicas);
        }
    }
}

/// Tests the growth of tables whose records take one line or several lines, under protocols with redo logs.
#[test]
fn a_tiny_table_of_records_in_lines_grows_large_and_loses_nothing() {
    kinds().iter().for_each(|schema| grow_against_a_model("oocc", schema, 3));
    grow_against_a_model("oocc", &narrow("narrow", 8), 1);
}

pub fn grow_against_a_model(protocol: &'static str, schema: &TableSchema, replicas: usize) {
    let world = tiny_of(protocol, schema, replicas, 4);
    let mut by = world.coordinator(0, 512);
    // This coordinator never splits a bucket, so its view of the index is always older than the index.
    let mut reader = world.coordinator(1, 0);
    let mut model = BTreeMap::new();
    for turn in 0..4_000u64 {
        let key = by.rng().random_range(0..2_500u64);
        let delete = turn > 1_000 && by.rng().random_range(0..4) == 0;
        block_on(by.transact(async |tx| {
            if delete {
                with_key(schema, key, |key| tx.delete(T, key));
                return Ok(());
            }
            put(tx, schema, key, turn).await
        }))
        .unwrap();
        if delete {
            model.remove(&key)
        } else {
            model.insert(key, turn)
        };
        if turn % 8 == 0 {
            let probe = by.rng().random_range(0..2_500u64);
            let seen = block_on(reader.transact(async |tx| get(tx, schema, probe).await));
            assert_eq!(seen.unwrap(), model.get(&probe).copied(), "{} {probe}", schema.name);
        }
    }
    for key in 0..2_500 {
        let seen = block_on(reader.transact(async |tx| get(tx, schema, key).await)).unwrap();
        assert_eq!(seen, model.get(&key).copied(), "{} {key}", schema.name);
    }
    let audit = world.assert_clean();
    assert_eq!(audit.records, model.len() as u64);
    assert!(splits(by.context()) > 100, "{} splits", splits(by.context()));
    assert!(audit.buckets * 8 > model.len() as u64 * 5 / 4, "{} buckets", audit.buckets);
}

/// Runs one coroutine of the concurrent test, which changes and reads one to three keys at a time.
async fn work(by: &mut Coordinator, schema: &TableSchema, turns: u64, keys: u64) {
    by.record_history();
    let number = by.context().node.id.slot.0;
    for turn in 0..turns {
        // The range of keys widens, so that the table grows all the time.
        let range = (keys * (turn + 1) / turns).max(8);
        let kind = by.rng().random_range(0..10u32);
        let picks: BTreeSet<u64> =
            (0..by.rng().random_range(1..4)).map(|_| by.rng().random_range(0..range)).collect();
        let value = (u64::from(number) << 48) | turn;
        let done = by
            .transact(async |tx| {
                for &key in &picks {
                    match kind {
                        0..4 => put(tx, schema, key, value).await?,
                        4 => {
                            with_key(schema, key, |key| tx.delete(T, key));
                        }
                        5 => {
                            let row = with_key(schema, key, |key| tx.update(T, key, Cells::ALL));
                            tx.fetch().await?;
                            if tx.existed(row) {
                                tx.set(row, A, value);
                            }
                        }
                        _ => {
                            get(tx, schema, key).await?;
                        }
                    }
                }
                Ok(())
            })
            .await;
        assert_eq!(done, Ok(()));
    }
}

struct Run {
    history: Vec<RecordedTxn>,
    tally: Tally,
}

/// Runs two threads, each on its own compute node with eight coroutines.
fn run_two_threads(world: &World, schema: &TableSchema, turns: u64, keys: u64) -> Run {
    let nodes = [world.join(0), world.join(1)];
    let mut run = Run { history: Vec::new(), tally: Tally::default() };
    std::thread::scope(|scope| {
        let threads = [0u32, 1].map(|thread| {
            let node = &nodes[thread as usize];
            scope.spawn(move || {
                let cx = world.thread(node, 0, 64);
                let mut all: Vec<Coordinator> =
                    (0..8).map(|each| coordinator(&cx, thread * 8 + each)).collect();
                let mut executor = Executor::new();
                for by in &mut all {
                    executor.spawn(work(by, schema, turns, keys));
                }
                executor.run();
                drop(executor);
                let history: Vec<RecordedTxn> =
                    all.iter_mut().flat_map(Coordinator::take_history).collect();
                (history, cx.metrics.snapshot())
            })
        });
        for thread in threads {
            let (history, tally) = thread.join().unwrap();
            run.history.extend(history);
            run.tally.add(&tally);
        }
    });
    run
}

/// Returns the number of records that should exist. The function computes it from the last write of each key.
fn records_left(history: &[RecordedTxn]) -> u64 {
    let mut last = BTreeMap::new();
    for txn in history.iter().filter(|txn| txn.outcome == RecordedOutcome::Committed) {
        for write in &txn.writes {
            let newest = last.entry(write.key).or_insert((write.version, write.kind));
            if write.version > newest.0 {
                *newest = (write.version, write.kind);
            }
        }
    }
    last.values().filter(|(_, kind)| *kind != WriteKind::Delete).count() as u64
}

#[test]
fn transactions_during_splits_are_strictly_serializable() {
    for schema in kinds() {
        for replicas in [1, 3] {
            grow_under_threads(ALL[0].name, &schema, replicas);
        }
    }
}

#[test]
fn transactions_during_splits_are_strictly_serializable_under_every_protocol() {
    for info in ALL[1..].iter().filter(|info| info.caps.growth) {
        grow_under_threads(info.name, &half("half", 8), 1);
    }
}

pub fn grow_under_threads(protocol: &'static str, schema: &TableSchema, replicas: usize) {
    let world = tiny_of(protocol, schema, replicas, 8);
    let run = run_two_threads(&world, schema, 1_200, 6_000);
    let records = records_left(&run.history);
    let report = check(&history(&world.database, run.history), Isolation::StrictSerializable);
    assert!(report.is_accepted(), "{} × {replicas}: {report}", schema.name);
    assert_eq!(world.assert_clean().records, records, "{} × {replicas}", schema.name);
    let Tally { splits, splits_refused, .. } = run.tally;
    println!(
        "{} × {replicas}: {records} records, {splits} splits, {splits_refused} refused",
        schema.name
    );
    assert!(splits > 200, "{splits}");
}

/// Inserts keys until a split is needed, and prevents splits meanwhile.
pub fn crowd(by: &mut Coordinator, keys: std::ops::Range<u64>) {
    by.context().growth.enable(false);
    fill(by, T, keys);
    by.context().growth.enable(true);
}

pub const SHARD: Shard = Shard { table: T, group: GroupId(0) };

#[test]
fn a_split_dropped_at_any_moment_leaves_nothing() {
    drop_at_any_moment(ALL[0].name, &narrow("narrow", 8));
}

pub fn drop_at_any_moment(protocol: &'static str, schema: &TableSchema) {
    let mut committed = 0;
    for polls in 0..40 {
        let world = tiny_of(protocol, schema, 3, 4);
        let mut by = world.coordinator(0, 0);
        crowd(&mut by, 0..60);
        by.context().growth.request(SHARD);
        {
            let future = pin!(by.transact(async |tx| get(tx, schema, 1).await));
            if let Some(seen) = poll_times(future, polls, || {}) {
                assert_eq!(seen, Ok(Some(1)));
                committed += 1;
            }
        }
        // The next transaction resolves the transaction that was left in doubt.
        assert_eq!(value_of(&mut by, T, 2), Some(2));
        let audit = world.assert_clean();
        assert_eq!(audit.records, 60, "after {polls} polls");
        let mut other = world.coordinator(1, 0);
        for key in 0..60 {
            assert_eq!(value_of(&mut other, T, key), Some(key), "after {polls} polls");
        }
        // The table can still grow.
        fill(&mut other, T, 60..120);
        assert!(splits(other.context()) > 0);
        world.assert_clean();
    }
    assert!(committed > 0 && committed < 40, "{committed}");
}

#[test]
fn a_split_gives_way_to_a_transaction_and_a_transaction_to_a_split() {
    give_way(ALL[0].name, &narrow("narrow", 8));
}

pub fn give_way(protocol: &'static str, schema: &TableSchema) {
    let world = tiny_of(protocol, schema, 1, 4);
    let mut by = world.coordinator(0, 0);
    let mut holder = world.coordinator(1, 0);
    crowd(&mut by, 0..60);
    block_on(holder.transact(async |tx| {
        let rows: Vec<_> = (0..60).map(|key| tx.update(T, key, Cells::ALL)).collect();
        tx.fetch().await?;
        let cx = Rc::clone(by.context());
        let before = cx.metrics.snapshot();
        cx.growth.request(SHARD);
        // The split adds the segment. After that it finds the bucket's records locked.
        assert_eq!(by.transact(async |_| Ok(())).await, Ok(()));
        let spent = cx.metrics.snapshot().since(&before);
        assert_eq!((spent.splits, spent.splits_refused), (0, 1));
        for row in rows {
            tx.set(row, A, 7u64);
        }
        Ok(())
    }))
    .unwrap();
    by.context().growth.request(SHARD);
    block_on(by.transact(async |_| Ok(()))).unwrap();
    assert!(splits(by.context()) > 0);
    for key in 0..60 {
        assert_eq!(value_of(&mut holder, T, key), Some(7));
    }
    world.assert_clean();
}

#[test]
fn a_full_heap_is_no_error_of_the_transaction_that_asked_for_growth() {
    let schema = narrow("narrow", 8);
    let mut shape = Shape::of(std::slice::from_ref(&schema));
    shape.options.spare_bytes = 0; // the heap has four chunks
    let world = World::new(&shape);
    let mut by = world.coordinator(0, 0);
    let mut inserted = 0;
    loop {
        let done = block_on(by.transact(async |tx| put(tx, &schema, inserted, inserted).await));
        match done {
            Ok(()) => inserted += 1,
            Err(failure) => {
                assert_eq!(failure, Failure::OutOfMemory);
                break;
            }
        }
    }
    let tally = by.context().metrics.snapshot();
    assert!(tally.splits > 10 && tally.splits_refused > 0, "{tally:?}");
    assert_eq!(world.assert_clean().records, inserted);
    for key in 0..inserted {
        assert_eq!(value_of(&mut by, T, key), Some(key));
    }
    println!("{inserted} records in 64 KiB of heap beyond the plan");
}

#[test]
fn growth_without_room_in_its_log_area_is_counted_but_no_error() {
    let schema = narrow("narrow", 8);
    let mut shape = Shape::of(std::slice::from_ref(&schema));
    (shape.options.log_bytes, shape.options.log_bytes_max) = (1024, 1024);
    let world = World::new(&shape);
    let mut by = world.coordinator(0, 0);
    crowd(&mut by, 0..400);
    by.context().growth.request(SHARD);
    block_on(by.transact(async |_| Ok(()))).unwrap();
    let tally = by.context().metrics.snapshot();
    assert_eq!((tally.splits, tally.splits_refused), (0, 1));
    assert_eq!(world.assert_clean().records, 400);
}

#[test]
fn records_apart_are_neither_lost_nor_shared() {
    let schema = apart("apart", 8);
    let world = tiny(&schema, 1, 4);
    let mut by = world.coordinator(0, 0);
    // Deletes leave the memory of record bodies unused, inserts reuse this memory, and splits move the pointers to
    // bodies.
    for turn in 0..6_000u64 {
        let key = by.rng().random_range(0..800u64);
        let delete = by.rng().random_range(0..3) == 0;
        block_on(by.transact(async |tx| {
            if delete {
                tx.delete(T, key);
                return Ok(());
            }
            put(tx, &schema, key, turn).await
        }))
        .unwrap();
    }
    let mut seen = BTreeSet::new();
    let cx = world.context(2, 0);
    let mut records = 0;
    block_on(inspect::scan(&cx, T, |stored| {
        records += 1;
        seen.insert(stored.key);
    }))
    .unwrap();
    assert_eq!(records, seen.len());
    let bodies = block_on(bodies(&cx));
    let distinct: BTreeSet<u64> = bodies.iter().copied().collect();
    assert_eq!(distinct.len(), bodies.len(), "a body belongs to one slot");
    assert!(bodies.len() >= records);
    world.assert_clean();
}

/// Returns the body pointers of all slots of the table, whether they hold a record or not.
async fn bodies(cx: &Rc<Context>) -> Vec<u64> {
    let table = cx.table(T);
    let body_at = table.slot.body_at.expect("rows of their own");
    let mut bodies = Vec::new();
    inspect::blocks(cx, T, |round, at| {
        for slot in inspect::slots(table, at) {
            bodies.push(round.word(slot.plus(body_at)));
        }
    })
    .await
    .unwrap();
    bodies.retain(|&body| body != 0);
    bodies
}

/// Returns the key for an index. The keys are spread over all values of a word.
fn scattered(index: u64) -> u64 {
    tarn_fabric::rng::mix(index)
}

#[test]
fn chains_and_lookups_stay_short() {
    let records: u64 = if cfg!(debug_assertions) { 50_000 } else { 1_000_000 };
    let schema = narrow("narrow", 64);
    let mut shape = Shape::of(std::slice::from_ref(&schema));
    shape.options.spare_bytes = records * 400;
    shape.options.chunk_bytes = 256 << 10;
    let world = World::new(&shape);
    let node = world.join(0);
    let cx = world.thread(&node, 0, 0);
    let mut all: Vec<Coordinator> = (0..16).map(|each| coordinator(&cx, each)).collect();
    let start = std::time::Instant::now();
    let before = cx.port.counts();
    let mut executor = Executor::new();
    for (number, by) in all.iter_mut().enumerate() {
        executor.spawn(async move {
            for index in (number as u64..records).step_by(16) {
                let key = scattered(index);
                let done = by.transact(async |tx| {
                    let row = tx.insert(T, key);
                    tx.fetch().await?;
                    tx.set(row, A, index);
                    Ok(())
                });
                assert_eq!(done.await, Ok(()));
            }
        });
    }
    executor.run();
    drop(executor);
    let (spent, seconds) = (cx.port.counts() - before, start.elapsed().as_secs_f64());
    let tally = cx.metrics.snapshot();
    let audit = world.assert_clean();
    assert_eq!(audit.records, records);
    let blocks = (audit.buckets + audit.overflow_blocks) as f64 / audit.buckets as f64;
    let load = records as f64 / (audit.buckets * 8) as f64;

    // This node has just joined. In its view of the index, nothing has grown.
    let mut reader = world.coordinator(1, 0);
    let before = reader.context().port.counts();
    let probes = records / 4;
    for _ in 0..probes {
        let index = reader.rng().random_range(0..records);
        assert_eq!(value_of(&mut reader, T, scattered(index)), Some(index));
    }
    let rounds = (reader.context().port.counts() - before).rounds as f64 / probes as f64;
    println!(
        "{records} inserts: {:.2} s, {:.2} rounds each; {} splits, {} refused; {} buckets, load {load:.2}, \
         {blocks:.3} blocks a bucket, {:.0} bytes a record; {rounds:.3} rounds a read",
        seconds,
        spent.rounds as f64 / records as f64,
        tally.splits,
        tally.splits_refused,
        audit.buckets,
        (audit.buckets + audit.overflow_blocks) as f64 * 576.0 / records as f64,
    );
    assert!(blocks < 1.3, "{blocks} blocks a bucket");
    assert!(rounds < 1.5, "{rounds} rounds a read");
}
