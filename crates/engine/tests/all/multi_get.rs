//! Tests of calls that read several records in one transaction.
//!
//! Invariant checked: the call returns the same values as a transaction that reads the same records, under every
//! protocol, near and far, wherever the records are. Between real threads the calls are strictly serializable, even
//! with inserts, deletes and growth, and the test finds planted bugs. A call that is abandoned before its end leaves
//! nothing. Some records must be away from home, in a chain, or read while a writer runs. If no record was in such a
//! state, the test fails, because it compared nothing.

#![allow(clippy::disallowed_methods, reason = "drives real threads and watches real time")]

use crate::common::budget::{measure, measure_call, phase, reading};
use crate::common::mix::{self, COMING_AND_GOING, CROWDED, CROWDED_HALVES, HALVES, Mix, SKEW};
use crate::common::*;
use rand::RngExt as _;
use std::rc::Rc;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use tarn_check::{Isolation, check};
use tarn_engine::cluster::membership::ReadLeaseChange;
use tarn_engine::protocol::ALL;
use tarn_engine::recovery::{self, Pace};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::{Executor, block_on};
use tarn_fabric::rng::{Rng, seeded};
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::schema::{Cells, TableId};

/// The time within which a test must find a planted bug. On an idle machine a test takes milliseconds to seconds.
const FIND_LIMIT: Duration = Duration::from_secs(60);
const SOUND_FOR: Duration = Duration::from_secs(1);
const LEASE_NS: u32 = 20_000;
/// The protocols that read without a working set, each with the time for which readers trust their reads.
const WHO: [(&str, u32); 4] = [("ford", 0), ("occ", 0), ("oocc", 0), ("oocc", LEASE_NS)];

/// Returns each of these protocols twice: once with near memory and once with far memory.
fn everywhere() -> impl Iterator<Item = ((&'static str, u32), bool)> {
    WHO.into_iter().flat_map(|who| [true, false].map(|near| (who, near)))
}

fn got(by: &mut Coordinator, table: TableId, keys: &[u64]) -> Result<Vec<Option<u64>>, Failure> {
    let mut seen = Vec::new();
    block_on(by.multi_get(table, keys.iter().copied(), |at, row| {
        assert_eq!(at, seen.len(), "in the order of the keys, each once");
        seen.push(row.map(|row| row.u64(A)));
    }))?;
    Ok(seen)
}

fn read(by: &mut Coordinator, table: TableId, keys: &[u64]) -> Vec<Option<u64>> {
    let body = async |tx: &mut tarn_engine::session::transaction::Transaction<'_>| {
        let handles: Vec<_> = keys.iter().map(|&key| tx.read(table, key, Cells::ALL)).collect();
        tx.fetch().await?;
        Ok(handles.iter().map(|&it| tx.get(it).map(|row| row.u64(A))).collect())
    };
    block_on(by.transact(body)).expect("nobody is in the way")
}

#[test]
fn multi_get_returns_what_a_transaction_reads() {
    for (info, lease_ns) in ALL.iter().map(|it| (it, 0)).chain([(&ALL[4], 10_000_000)]) {
        for near in [true, false] {
            let shape = mix::shape(1, 1, "corrected").protocol(info.name).leasing_reads(lease_ns);
            let world = World::new(&Shape { near, ..shape });
            let (mut by, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
            let mut rng: Rng = seeded(7, 7);
            for table in [0, 1, 2, 3].map(TableId) {
                // The test inserts far more records than the slots of the four buckets can hold.
                fill(&mut by, table, (0..120).filter(|key| key % 5 != 4));
                for count in [0, 1, 2, 4, 16, 17, 40] {
                    let keys: Vec<u64> = (0..count).map(|_| rng.random_range(0..120)).collect();
                    let (one, all) = (got(&mut by, table, &keys), read(&mut other, table, &keys));
                    assert_eq!(one, Ok(all), "{}, near {near}, {table:?}, {keys:?}", info.name);
                }
            }
            world.assert_clean();
        }
    }
}

#[test]
fn multi_get_records_the_reads_that_it_returns() {
    for ((protocol, lease_ns), near) in everywhere() {
        let shape = Shape::of(&[narrow("t", 100)]).protocol(protocol).leasing_reads(lease_ns);
        let world = World::new(&Shape { near, ..shape });
        let (table, mut by) = (TableId(0), world.coordinator(0, 0));
        fill(&mut by, table, 1..9);
        let _ = got(&mut by, table, &[1]);
        by.record_history();
        assert_eq!(got(&mut by, table, &[3, 5, 3]), Ok(vec![Some(3), Some(5), Some(3)]));
        let _ = read(&mut by, table, &[3, 5]);
        assert_eq!(got(&mut by, table, &[3, 77, 5]), Ok(vec![Some(3), None, Some(5)]));
        let _ = read(&mut by, table, &[3, 77, 5]);
        let history = by.take_history();
        assert_eq!(history.len(), 4, "{protocol}: {history:?}");
        for (pair, reads) in history.chunks(2).zip([2, 3]) {
            let [one, other] = pair else { panic!("{protocol}: {history:?}") };
            assert_eq!((&one.reads, one.outcome), (&other.reads, other.outcome), "{protocol}");
            assert_eq!(one.reads.len(), reads, "{protocol}");
            assert!(one.id != other.id && one.completed <= other.invoked, "{protocol}");
        }
    }
}

#[test]
fn a_reader_in_lease_or_without_a_writer_reads_once_and_others_twice() {
    // No transaction writes in this test. So the length of the lease does not matter, only whether the lease has
    // ended.
    const LONG_NS: u32 = 10_000_000;
    for ((protocol, lease_ns), near) in everywhere() {
        let shape = Shape::of(&[narrow("t", 4000), half("h", 4000)]).protocol(protocol);
        let leased = shape.leasing_reads(if lease_ns > 0 { LONG_NS } else { 0 });
        let world = World::new(&Shape { near, ..leased });
        let mut by = world.coordinator(0, 0);
        for table in [TableId(0), TableId(1)] {
            fill(&mut by, table, 1..5);
            // No transaction writes in this test. So with near memory one read of the records needs no lease.
            let is_one = lease_ns > 0 || near && protocol == "oocc";
            let looks = if is_one { 1 } else { 2 };
            let cost = measure_call(&mut by, |by| assert!(got(by, table, &[1, 2, 3, 4]).is_ok()));
            assert_eq!(cost, reading(looks, 4 * looks), "{protocol}, {lease_ns} ns, {table:?}");
            let cost = measure_call(&mut by, |by| assert!(got(by, table, &[2]).is_ok()));
            assert_eq!(cost, reading(1, 1), "{protocol}: one record is of one moment");
        }
    }
}

#[test]
fn multi_get_of_far_memory_takes_the_rounds_of_a_transaction() {
    let mut seen = Seen::default();
    for who in WHO {
        for (cache, read_whole) in [(0, false), (0, true), (64, false), (64, true)] {
            compare_rounds(who, (cache, read_whole), &mut seen);
        }
    }
    assert!(seen.strays > 0 && seen.absent > 0, "nothing was compared but records at home");
    assert!(seen.remembered > 0 && seen.moved > 0, "nothing was compared that was remembered");
}

#[derive(Default)]
struct Seen {
    strays: u64,
    absent: u64,
    remembered: u64,
    moved: u64,
}

/// Reads the same records by one call and by a transaction, on nodes with equal caches. Compares the costs of both.
fn compare_rounds(
    (protocol, lease_ns): (&'static str, u32),
    (cache, read_whole): (usize, bool),
    sum: &mut Seen,
) {
    let leased = if lease_ns > 0 { 10_000_000 } else { 0 };
    let mut shape = mix::shape(1, 1, "corrected").protocol(protocol).leasing_reads(leased);
    (shape.near, shape.options.bucket.read_whole) = (false, read_whole);
    let world = World::new(&shape);
    let mut writer = world.coordinator(2, 0);
    let (mut by, mut other) = (world.coordinator(0, cache), world.coordinator(1, cache));
    let mut rng: Rng = seeded(9, 9);
    let phases = |by: &Coordinator| by.context().metrics.snapshot().phases;
    let mut costs = Vec::new();
    for table in [0, 1, 2, 3].map(TableId) {
        fill(&mut writer, table, (0..60).filter(|key| key % 5 != 4));
        // The test runs calls until all requested splits of buckets are done.
        (0..20).for_each(|_| drop(got(&mut writer, table, &[1])));
        let mut before = [phases(&by), phases(&other)];
        for step in 0..24 {
            if step == 12 {
                let gone: Vec<u64> = (0..60).filter(|key| key % 5 == 3).collect();
                block_on(writer.transact(async |tx| {
                    gone.iter().for_each(|&key| _ = tx.delete(table, key));
                    tx.fetch().await
                }))
                .expect("nobody is in the way");
                fill(&mut writer, table, 60..72);
            }
            let count = [1, 2, 4, 16][step % 4];
            let mut keys: Vec<u64> = (0..count).map(|_| rng.random_range(0..72)).collect();
            keys.sort_unstable();
            keys.dedup();
            let one = measure_call(&mut by, |by| assert!(got(by, table, &keys).is_ok()));
            let all = measure(&mut other, true, async |tx| {
                tx.read_each(table, keys.iter().copied(), Cells::ALL, |_| ());
                tx.fetch().await
            });
            costs.push((one, all));
            let what = format!("{protocol}, {lease_ns} ns, {cache}, {read_whole}, {table:?}");
            assert_eq!(one, all, "{what}, {keys:?}");
            let now = [phases(&by), phases(&other)];
            let entered = |at: usize| -> Vec<u64> {
                now[at].iter().zip(&before[at]).map(|(now, before)| now - before).collect()
            };
            assert_eq!(entered(0), entered(1), "{what}, {keys:?}");
            before = now;
            sum.strays += u64::from(one.rounds > 2);
            sum.absent += keys.iter().filter(|&key| key % 5 == 4 && *key < 60).count() as u64;
        }
    }
    if cache > 0 {
        sum.remembered += phase(by.context(), "read_direct");
        sum.moved += u64::from(costs.iter().skip(12).any(|(one, _)| one.rounds > 2));
    }
}

#[test]
fn multi_get_of_unreachable_memory_fails_and_shows_nothing() {
    for ((protocol, lease_ns), near) in everywhere() {
        let shape = Shape::of(&[narrow("t", 100)]).protocol(protocol).leasing_reads(lease_ns);
        let world = World::new(&Shape { near, ..shape });
        let (table, mut by) = (TableId(0), world.coordinator(0, 0));
        fill(&mut by, table, 1..3);
        let _ = got(&mut by, table, &[1]);
        let before = by.context().port.counts().rounds;
        world.fabric.fence(by.context().node.id);
        let read = block_on(by.multi_get(table, [1, 2].into_iter(), |_, _| panic!("shown")));
        assert_eq!(read, Err(Failure::Fabric), "{protocol}");
        assert_eq!(by.context().port.last_error(), Some(FabricError::Fenced), "{protocol}");
        if !near {
            let rounds = by.context().port.counts().rounds - before;
            assert_eq!(rounds, 2, "{protocol}: once without a working set, once as a transaction");
        }
    }
}

#[test]
fn a_refused_try_counts_once_for_multi_get_and_transactions() {
    for (near, protocol) in
        [true, false].into_iter().flat_map(|near| [(near, "ford"), (near, "occ")])
    {
        let world =
            World::new(&Shape { near, ..Shape::of(&[narrow("t", 100)]).protocol(protocol) });
        let (table, mut other) = (TableId(0), world.coordinator(1, 0));
        fill(&mut other, table, 1..3);
        let cx = world.context(0, 0);
        let aborted = |retry: Retry| {
            let mut by = Coordinator::new(Rc::clone(&cx), 0, retry);
            // The coordinator's first call is an ordinary transaction.
            assert!(got(&mut by, table, &[1]).is_ok());
            let before = cx.metrics.snapshot().aborted();
            let ended = got(&mut by, table, &[1, 2]);
            (ended, cx.metrics.snapshot().aborted() - before)
        };
        let locked = Err(Failure::Abort(AbortReason::ReadLocked));
        block_on(other.transact(async |tx| {
            tx.update(table, 2u64, Cells::ALL);
            tx.fetch().await?;
            for tries_max in [1, 2, 5] {
                let ended = aborted(Retry { tries_max, ..Retry::default() });
                let asked = (locked.clone(), u64::from(tries_max));
                assert_eq!(ended, asked, "{protocol}, near {near}");
            }
            // The deadline applies to the whole call.
            let late = Retry { deadline: Some(Nanos(0)), ..Retry::default() };
            let (ended, aborts) = aborted(late);
            assert!(ended.is_err() && ended != locked, "{protocol}, near {near}");
            assert!(aborts == 1 || near, "{protocol}: {aborts} tries in no time");
            Ok(())
        }))
        .expect("nobody is in the way");
        world.assert_clean();
    }
}

#[test]
fn readers_without_a_lease_follow_changes_of_its_length() {
    for near in [true, false] {
        let shape = Shape::of(&[narrow("t", 100)]).protocol("oocc").leasing_reads(LEASE_NS);
        let world = World::new(&Shape { near, ..shape });
        let (table, mut by) = (TableId(0), world.coordinator(0, 0));
        fill(&mut by, table, 1..3);
        let (membership, me) = (&world.database.membership, by.context().node.id);
        let begun = membership.change_read_lease(me, 2 * LEASE_NS);
        assert!(matches!(begun, Ok(ReadLeaseChange::Begun(_))), "{begun:?}");
        for _ in 0..2 {
            assert_eq!(membership.read_lease_missing(), [me]);
            assert!(got(&mut by, table, &[1]).is_ok());
        }
        assert_eq!(membership.read_lease_missing(), [], "near {near}: it is waited for");
        assert_eq!(membership.read_lease().read_ns(), 2 * LEASE_NS);
    }
}

#[test]
fn a_multi_get_that_is_dropped_leaves_nothing() {
    for near in [true, false] {
        give_up(near);
    }
}

fn give_up(near: bool) {
    let shape = Shape::of(&[narrow("t", 100)]).protocol("oocc").leasing_reads(LEASE_NS);
    let world = World::new(&Shape { near, ..shape });
    let (table, mut by) = (TableId(0), world.coordinator(0, 0));
    fill(&mut by, table, 1..3);
    let _ = got(&mut by, table, &[1]);
    let cx = Rc::clone(by.context());
    for _ in 0..3 {
        let mut task = Box::pin(by.multi_get(table, [1, 2].into_iter(), |_, _| panic!("shown")));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(task.as_mut().poll(&mut context).is_pending());
        drop(task);
        assert!(cx.is_at_rest(), "its thread may take another configuration");
    }
    assert_eq!(got(&mut by, table, &[1, 2]), Ok(vec![Some(1), Some(2)]));
    assert!(cx.is_at_rest());
    world.assert_clean();
}

/// Runs writers, and readers that read several records by one call, on two threads. Returns the checker's finding, if
/// any, and the counts. For every second seed all records have two copies. Under OOCC, for every third seed, the
/// second thread expels and recovers the first thread's node in the middle of the run.
fn race(
    ((protocol, lease_ns), near): ((&'static str, u32), bool),
    variant: &str,
    mix: Mix,
    seed: u64,
) -> (Option<String>, Tally) {
    let copies = 1 + seed as usize % 2;
    let shape = mix::shape(copies, copies, variant).protocol(protocol).leasing_reads(lease_ns);
    let world = World::new(&Shape { near, ..shape });
    let (recorded, tally) = (Mutex::new(Vec::new()), Mutex::new(Tally::default()));
    let victim = OnceLock::new();
    std::thread::scope(|scope| {
        for slot in 0..2 {
            let (world, recorded, tally, victim) = (&world, &recorded, &tally, &victim);
            scope.spawn(move || {
                let cx = world.context(slot, 0);
                if slot == 0 {
                    victim.set(cx.node.id).expect("once");
                }
                let mut executor = Executor::new();
                for coroutine in 0..4 {
                    let number = u32::from(slot) * 4 + coroutine;
                    let (deadline, pause_max_ns) = (Some(Nanos(20_000_000)), 8_000);
                    let retry = Retry { deadline, pause_max_ns, ..Retry::default() };
                    let mut by = Coordinator::new(Rc::clone(&cx), number, retry);
                    let mut rng: Rng = seeded(seed, u64::from(number));
                    // If a recovery undid writes, the history would have to contain this. So only OOCC's runs have a
                    // recovery.
                    let attends = protocol == "oocc" && seed % 3 == 2 && number == 5;
                    executor.spawn(async move {
                        by.record_history();
                        for value in 1..200 {
                            if attends && value == 50 {
                                let dead = *victim.wait();
                                world.database.membership.expel(dead);
                                recovery::recover(by.context(), dead).await.expect("it can be");
                            }
                            if coroutine % 2 == 0 {
                                let plan = mix.plan(&mut rng);
                                let value = u64::from(number) << 32 | value;
                                let _ = by.transact(async |tx| plan.run(tx, value).await).await;
                                continue;
                            }
                            let table = TableId(mix.first + rng.random_range(0..mix.tables));
                            let count = rng.random_range(1..=mix.keys.min(6) as usize);
                            let keys: Vec<u64> =
                                (0..count).map(|_| rng.random_range(0..mix.keys)).collect();
                            let _ = by.multi_get(table, keys.iter().copied(), |_, _| ()).await;
                        }
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
    // The dead node had taken some locks and written no log entry for them. The sweep removes these locks.
    block_on(recovery::sweep(&world.context(3, 0), Pace::UNPACED)).expect("all nodes are there");
    let audit = world.audit();
    let finding = report.anomalies.first().map(ToString::to_string);
    let finding = finding.or_else(|| (!audit.is_clean()).then(|| audit.to_string()));
    (finding, tally.into_inner().unwrap())
}

/// Runs for the time `limit`, or until the checker finds a violation. The run is longer while no two transactions
/// have met.
fn find(
    who: ((&'static str, u32), bool),
    variant: &str,
    limit: Duration,
) -> (Option<String>, Tally) {
    let mixes = [SKEW, HALVES, COMING_AND_GOING, CROWDED, CROWDED_HALVES];
    let (begun, mut total) = (Instant::now(), Tally::default());
    for seed in 0.. {
        let (finding, tally) = race(who, variant, mixes[seed as usize % mixes.len()], seed);
        total.add(&tally);
        // On a busy machine threads run one after the other, so they get more time to meet.
        let has_met = total.aborted() > 0 && total.splits > 0;
        let limit = if has_met { limit } else { 20 * limit };
        if finding.is_some() || begun.elapsed() > limit {
            return (finding, total);
        }
    }
    unreachable!("time passes")
}

#[test]
fn multi_get_is_serializable_and_planted_bugs_are_found() {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
        println!("skipped: needs two threads at once, and there is one core");
        return;
    }
    for who in everywhere() {
        let (finding, tally) = find(who, "corrected", SOUND_FOR);
        assert_eq!(finding, None, "{who:?}");
        assert!(tally.aborted() > 0 && tally.splits > 0, "{who:?}: nobody met anybody");
        let names = tarn_engine::protocol::AnyProtocol::by_name(who.0.0, "corrected").unwrap();
        let count = |name: &str| {
            let phase = names.info().phases.iter().position(|&phase| phase == name);
            phase.map_or(0, |phase| tally.phases[phase])
        };
        let ((protocol, lease_ns), near) = who;
        assert!(lease_ns == 0 || near || count("in_lease") > 0, "{who:?}: readers in lease");
        assert_eq!(count("still") > 0, near && protocol == "oocc", "{who:?}: beside no writer");
    }
    let planted = [
        (("occ", 0), "corrected,-validate-reads"),
        (("ford", 0), "corrected,-refuse-locked"),
        (("oocc", 0), "corrected,-refuse-locked"),
        (("oocc", LEASE_NS), "corrected,-refuse-locked"),
    ];
    for (who, variant) in planted {
        for near in [true, false] {
            let (finding, _) = find((who, near), variant, FIND_LIMIT);
            assert!(finding.is_some(), "{who:?} {variant}, near {near}: not found");
        }
    }
    // No writer waits for readers in this run, because such a wait would hide the bug. (Threads cannot show that
    // intents are set before validation, since their rounds are executed in order. The fabric's model
    // `stillness_of_validated` tests that order.)
    let (finding, _) = find((("oocc", 0), true), "corrected,-announce-writes", FIND_LIMIT);
    assert!(finding.is_some(), "who is about to write did not say so: not found");
}

/// Tests that the caller's code panics. No round is in flight at that time. So the thread runs no transaction
/// afterwards, and other transactions can use the records.
#[test]
fn a_panic_of_the_callers_code_leaves_nothing() {
    for info in ALL {
        for near in [true, false] {
            let world =
                World::new(&Shape { near, ..mix::shape(1, 1, "corrected").protocol(info.name) });
            let (mut by, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
            let table = TableId(0);
            fill(&mut by, table, 0..8);
            for place in 0..PANICS {
                let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    panic_at(&mut by, table, place);
                }));
                assert!(panicked.is_err(), "{} near {near}: place {place}", info.name);
                assert!(
                    by.context().is_at_rest(),
                    "{} near {near}: busy after place {place}",
                    info.name
                );
                for key in 0..8 {
                    block_on(other.transact(async |tx| {
                        let row = tx.update(table, key, Cells::ALL);
                        tx.fetch().await?;
                        tx.set(row, A, place as u64);
                        Ok(())
                    }))
                    .expect("nobody is in the way");
                }
                let keys = [0, 1, 2, 3];
                let expected = vec![Some(place as u64); 4];
                assert_eq!(got(&mut by, table, &keys), Ok(expected), "{} near {near}", info.name);
            }
            world.assert_clean();
        }
    }
}

const PANICS: usize = 7;

/// Calls code that panics at one of the places where the caller's code runs.
fn panic_at(by: &mut Coordinator, table: TableId, place: usize) {
    let bad = |key: u64| if key == 2 { panic!("the caller's") } else { key };
    let keys = |count: u32| (0..count).map(u64::from);
    let result: Result<(), Failure> = match place {
        0 => block_on(by.multi_get(table, keys(4).map(bad), |_, _| ())),
        1 => block_on(by.multi_get(table, keys(4), |at, _| _ = bad(at as u64))),
        // In this case the call requests too many records for one batch read.
        2 => block_on(by.multi_get(table, keys(40).map(bad), |_, _| ())),
        3 => block_on(by.transact(async |tx| {
            tx.read_each(table, (0..4).map(bad), Cells::ALL, |_| ());
            tx.fetch().await
        })),
        4 => block_on(by.transact(async |tx| {
            let mut count = 0;
            tx.read_each(table, 0..4, Cells::ALL, |_| {
                bad(count);
                count += 1;
            });
            tx.fetch().await
        })),
        // The panic happens after the locks are taken, or after a change.
        5 | 6 => block_on(by.transact(async |tx| {
            let rows = [0, 1].map(|key| tx.update(table, key, Cells::ALL));
            tx.fetch().await?;
            if place == 6 {
                rows.iter().for_each(|&row| tx.set(row, A, 77u64));
                let row = tx.update(table, 2, Cells::ALL);
                tx.fetch().await?;
                tx.set(row, A, 77u64);
            }
            bad(2);
            Ok(())
        })),
        _ => unreachable!("there are so many"),
    };
    result.expect("it panics before");
}
