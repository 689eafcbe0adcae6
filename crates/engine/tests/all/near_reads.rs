//! Tests of reads by loads instead of rounds, under protocols that keep locks beside the records.
//!
//! Invariant checked: for one coordinator the two access methods have the same visible effects: outcomes, reads and
//! writes, and every byte of the memory node. Between real threads, reads by loads are strictly serializable, with
//! leases and without. The tests find readers that ignore locks, and readers that do not validate. If no record was
//! away from its home bucket, or no reader was in lease, the tests fail, because they compared nothing.

#![allow(clippy::disallowed_methods, reason = "drives real threads and watches real time")]

use crate::common::budget::{measure, read, reading};
use crate::common::mix::{
    self, ANYTHING, COMING_AND_GOING, CROWDED, CROWDED_HALVES, HALVES, Mix, SKEW,
};
use crate::common::*;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tarn_check::{Isolation, check};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::metrics::Tally;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::{Executor, block_on};
use tarn_fabric::rng::{Rng, seeded};
use tarn_store::history::RecordedTxn;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, TableId};

const FIND_LIMIT: Duration = Duration::from_secs(60);
const SOUND_FOR: Duration = Duration::from_secs(1);
/// The length of leases. A lease is longer than an uninterrupted reader takes. A lease is also short enough that a
/// test can wait for the end of a lease at each write.
const LEASE_NS: u32 = 20_000;
/// The tested protocols, each with the time for which readers trust their reads.
const WHO: [(&str, u32); 4] = [("ford", 0), ("occ", 0), ("oocc", 0), ("oocc", LEASE_NS)];

/// The results of a run.
struct Left {
    outcomes: Vec<Result<(), Failure>>,
    history: Vec<RecordedTxn>,
    memory: Vec<u64>,
    /// The number of READs, and the number of all other verbs.
    verbs: (u64, u64),
}

fn memory(world: &World) -> Vec<u64> {
    let region = world.fabric.node(NodeSlot(0)).regions(1)[0];
    let mut words = vec![0; region.bytes() as usize / 8];
    region.read_words(0, &mut words).expect("nobody is writing");
    words
}

/// Runs one coordinator's transactions, some of which only read. For some seeds the coordinator caches the addresses
/// of records.
fn run((protocol, lease_ns): (&'static str, u32), mix: Mix, near: bool, seed: u64) -> Left {
    let shape = mix::shape(1, 1, "corrected").protocol(protocol).leasing_reads(lease_ns);
    let world = World::new(&Shape { near, ..shape });
    let mut by = world.coordinator(0, if seed.is_multiple_of(3) { 64 } else { 0 });
    by.record_history();
    let cx = Rc::clone(by.context());
    let mut rng: Rng = seeded(seed, 1);
    let outcomes = (1..250).map(|value| {
        let plan = mix.plan(&mut rng);
        block_on(by.transact(async |tx| plan.run(tx, value).await))
    });
    let outcomes = outcomes.collect();
    let [reads, others @ ..] = cx.port.counts().verbs;
    let history = by.take_history();
    world.assert_clean();
    Left { outcomes, history, memory: memory(&world), verbs: (reads, others.iter().sum()) }
}

/// Returns a transaction as text, as other transactions see it. So the text contains no time.
fn seen(txn: &RecordedTxn) -> String {
    format!("{:?} {} {:?} {:?} {:?}", txn.id, txn.coordinator, txn.outcome, txn.reads, txn.writes)
}

#[test]
fn loads_return_what_rounds_return() {
    let crowded = [CROWDED, CROWDED_HALVES].map(|mix| Mix { read_only_in: 2, ..mix });
    for who in WHO {
        for mix in [HALVES, ANYTHING, COMING_AND_GOING, SKEW, crowded[0], crowded[1]] {
            for seed in 0..4 {
                let (near, far) = (run(who, mix, true, seed), run(who, mix, false, seed));
                let what = format!("{who:?}, seed {seed}, {mix:?}");
                assert_eq!(near.outcomes, far.outcomes, "{what}");
                let (one, other) = (near.history.iter().map(seen), far.history.iter().map(seen));
                assert!(one.eq(other), "{what}: other histories");
                let differs =
                    near.memory.iter().zip(&far.memory).position(|(one, other)| one != other);
                assert_eq!(
                    differs.map(|word| word * 8),
                    None,
                    "{what}: the first byte that differs"
                );
                assert_eq!(near.verbs.1, far.verbs.1, "{what}: WRITEs and atomics");
                // For records away from their home buckets, the two methods need different READs.
                if mix.keys == CROWDED.keys && who.1 == 0 {
                    assert_ne!(near.verbs.0, far.verbs.0, "{what}: nothing was compared");
                }
            }
        }
    }
}

#[test]
fn a_reader_in_lease_reads_once_and_others_twice() {
    // The lease in the last entry is longer than a test takes to read.
    for (protocol, lease_ns) in [("ford", 0), ("occ", 0), ("oocc", 0), ("oocc", 10_000_000)] {
        let shape = Shape::of(&[narrow("t", 4000), half("h", 4000)]).protocol(protocol);
        let world = World::new(&shape.leasing_reads(lease_ns));
        let mut by = world.coordinator(0, 0);
        for table in [TableId(0), TableId(1)] {
            fill(&mut by, table, 1..5);
            let keys = [1, 2, 3, 4];
            let cost = measure(&mut by, true, async |tx| read(tx, table, &keys).await);
            let looks = if lease_ns > 0 { 1 } else { 2 };
            assert_eq!(cost, reading(looks, 4 * looks), "{protocol}, {lease_ns} ns, {table:?}");
        }
    }
}

#[test]
fn records_read_together_equal_records_read_one_by_one() {
    let others = [("lotus", 0), ("motor", 0), ("drtm", 0)];
    for ((protocol, lease_ns), near) in
        WHO.into_iter().chain(others).zip([true, false].into_iter().cycle())
    {
        let shape = Shape::of(&[narrow("t", 100)]).protocol(protocol).leasing_reads(lease_ns);
        let world = World::new(&Shape { near, ..shape });
        let (table, mut by) = (TableId(0), world.coordinator(0, 0));
        fill(&mut by, table, 1..9);
        // The keys include keys that were requested before, the same key twice, and an absent key. The test requests
        // the record that it will change before the other records or between them.
        for changes in [None, Some(3), Some(7)] {
            let plan = async |tx: &mut Transaction<'_>, at_once: bool| {
                let first = tx.read(table, 2, Cells::ALL);
                let (mut handles, keys) = (vec![first], [1, 2, 3, 3, 50, 4]);
                if changes == Some(7) {
                    handles.push(tx.update(table, 7, Cells::ALL));
                }
                match at_once {
                    true => tx.read_each(table, keys, Cells::ALL, |it| handles.push(it)),
                    false => handles.extend(keys.map(|key| tx.read(table, key, Cells::ALL))),
                }
                if changes == Some(3) {
                    handles.push(tx.update(table, 3, Cells::ALL));
                }
                tx.fetch().await?;
                tx.read_each(table, [5, 1], Cells::ALL, |it| handles.push(it));
                tx.fetch().await?;
                let rows = handles.iter().map(|&it| tx.get(it).map(|row| row.u64(A)));
                // Handles differ between transactions. So the test compares only which handles of a transaction are
                // equal.
                let first = |it| handles.iter().position(|other| other == it);
                Ok((rows.collect::<Vec<_>>(), handles.iter().map(first).collect::<Vec<_>>()))
            };
            let at_once = block_on(by.transact(async |tx| plan(tx, true).await)).unwrap();
            let one_by_one = block_on(by.transact(async |tx| plan(tx, false).await)).unwrap();
            assert_eq!(at_once, one_by_one, "{protocol}, near {near}, {changes:?}");
            assert!(at_once.0.contains(&None) && at_once.0.contains(&Some(5)), "{at_once:?}");
        }
    }
}

#[test]
fn a_further_operation_before_the_fetch_is_done() {
    for (protocol, lease_ns) in WHO {
        let shape = Shape::of(&[narrow("t", 100)]).protocol(protocol).leasing_reads(lease_ns);
        let world = World::new(&shape);
        let (table, mut by) = (TableId(0), world.coordinator(0, 0));
        fill(&mut by, table, 1..4);
        let after = |key| value_of(&mut world.coordinator(1, 0), table, key);
        // This transaction reads a record and then changes it. The transaction also reads more records together with
        // the changed records, and reads a record after a fetch.
        block_on(by.transact(async |tx| {
            let (first, row) = (tx.read(table, 1, Cells::ALL), tx.read(table, 2, Cells::ALL));
            let again = tx.update(table, 2, Cells::ALL);
            let third = tx.update(table, 3, Cells::ALL);
            tx.fetch().await?;
            let late = tx.read(table, 4, Cells::ALL);
            tx.fetch().await?;
            assert!(tx.get(late).is_none());
            let sum = [first, row, third].map(|it| tx.get(it).map_or(0, |row| row.u64(A)));
            assert_eq!(sum, [1, 2, 3], "{protocol}");
            tx.set(again, A, 20u64);
            tx.set(third, A, 30u64);
            Ok(())
        }))
        .unwrap();
        assert_eq!((after(2), after(3)), (Some(20), Some(30)), "{protocol}");
    }
}

#[test]
fn near_reads_of_unreachable_memory_fail() {
    for (protocol, lease_ns) in WHO {
        let shape = Shape::of(&[narrow("t", 100)]).protocol(protocol).leasing_reads(lease_ns);
        let world = World::new(&shape);
        let (table, mut by) = (TableId(0), world.coordinator(0, 0));
        fill(&mut by, table, 1..3);
        world.fabric.fence(by.context().node.id);
        let read = block_on(by.transact(async |tx| {
            let rows = [1, 2].map(|key| tx.read(table, key, Cells::ALL));
            tx.fetch().await?;
            Ok(rows.map(|row| tx.existed(row)))
        }));
        assert_eq!(read, Err(Failure::Fabric), "{protocol}");
        assert_eq!(by.context().port.last_error(), Some(FabricError::Fenced), "{protocol}");
    }
}

/// Runs two threads with four coroutines each. Returns the checker's finding, if any, and the counts.
fn race(
    (protocol, lease_ns): (&'static str, u32),
    variant: &str,
    mix: Mix,
    seed: u64,
) -> (Option<String>, Tally) {
    let shape = mix::shape(1, 1, variant).protocol(protocol).leasing_reads(lease_ns);
    let world = World::new(&shape);
    let (recorded, tally) = (Mutex::new(Vec::new()), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for slot in 0..2 {
            let (world, recorded, tally) = (&world, &recorded, &tally);
            scope.spawn(move || {
                let cx = world.context(slot, 0);
                let mut executor = Executor::new();
                for coroutine in 0..4 {
                    let (deadline, number) =
                        (Some(Nanos(20_000_000)), u32::from(slot) * 4 + coroutine);
                    let retry = Retry { deadline, pause_max_ns: 8_000, ..Retry::default() };
                    let mut by = Coordinator::new(Rc::clone(&cx), number, retry);
                    *by.rng() = seeded(seed, u64::from(number));
                    executor.spawn(async move {
                        by.record_history();
                        let _ = mix::run(&mut by, mix, 200).await;
                        recorded.lock().unwrap().extend(by.take_history());
                    });
                }
                executor.run();
                drop(executor);
                tally.lock().unwrap().add(&cx.metrics.snapshot());
            });
        }
    });
    let history = history(&world.database, recorded.into_inner().unwrap());
    let report = check(&history, Isolation::StrictSerializable);
    let audit = world.audit();
    let finding = report.anomalies.first().map(ToString::to_string);
    let finding = finding.or_else(|| (!audit.is_clean()).then(|| audit.to_string()));
    (finding, tally.into_inner().unwrap())
}

/// Runs for the time `limit`, or until the checker finds a violation.
fn find(who: (&'static str, u32), variant: &str, limit: Duration) -> (Option<String>, Tally) {
    // In these mixes most transactions read. A record takes one cache line or half a line.
    let mixes = [SKEW, HALVES, CROWDED_HALVES].map(|mix| Mix { read_only_in: 2, ..mix });
    let (begun, mut total) = (Instant::now(), Tally::default());
    for seed in 0.. {
        let (finding, tally) = race(who, variant, mixes[seed as usize % mixes.len()], seed);
        total.add(&tally);
        if finding.is_some() || begun.elapsed() > limit {
            return (finding, total);
        }
    }
    unreachable!("time passes")
}

#[test]
fn near_reads_are_serializable_and_planted_bugs_are_found() {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
        println!("skipped: needs two threads at once, and there is one core");
        return;
    }
    for who in WHO {
        let (finding, tally) = find(who, "corrected", SOUND_FOR);
        assert_eq!(finding, None, "{who:?}");
        let names = tarn_engine::protocol::AnyProtocol::by_name(who.0, "corrected").unwrap();
        let in_lease = names.info().phases.iter().position(|&phase| phase == "in_lease");
        let in_lease = in_lease.map_or(0, |phase| tally.phases[phase]);
        assert_eq!(in_lease > 0, who.1 > 0, "{who:?}: readers in lease");
    }
    let planted = [
        (("occ", 0), "corrected,-validate-reads"),
        (("occ", 0), "corrected,-refuse-locked"),
        (("oocc", 0), "corrected,-refuse-locked"),
        (("oocc", LEASE_NS), "corrected,-refuse-locked"),
    ];
    for (who, variant) in planted {
        let (finding, _) = find(who, variant, FIND_LIMIT);
        assert!(finding.is_some(), "{who:?} {variant}: not found");
    }
}
