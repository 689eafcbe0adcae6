//! Planted bugs on real threads: the test turns off each rule of a protocol and finds the violation. The corrected
//! protocol passes the same runs.
//!
//! Invariant checked: for every switch in the tables of this file, the checker or the audit finds the anomaly within
//! [`FIND_LIMIT`]. With all switches on, the same runs for the time [`SOUND_FOR`] find nothing, and reach every phase
//! and every reason to abort. Each run has two threads with four coroutines each.

#![allow(clippy::disallowed_methods, reason = "drives real threads and watches real time")]

use crate::common::mix::{
    self, ANYTHING, COMING_AND_GOING, CROWDED, CROWDED_HALVES, HALVES, Mix, OVERWRITING, SKEW,
};
use crate::common::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tarn_check::{Isolation, check};
use tarn_engine::cluster::info::{Limit, Only, ProtocolInfo};
use tarn_engine::protocol::ALL;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, block_on};
use tarn_fabric::local::LineAtomicity;
use tarn_store::history::RecordedTxn;
use tarn_store::ids::AbortReason;
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};

/// The time within which a test must find a planted bug. A test usually takes milliseconds. On a busy machine it may
/// take a thousand times as long.
const FIND_LIMIT: Duration = Duration::from_secs(60);
const SOUND_FOR: Duration = Duration::from_secs(2);
const THREADS: u16 = 2;
const COROUTINES: u32 = 4;
/// The length of readers' leases in nanoseconds, for protocols with leases.
const READ_LEASE_NS: u32 = 10_000;

/// For each bug: protocol, switch, the mix that exposes the bug, the number of replicas, and the number of
/// transactions of a coroutine. The table contains every switch without which a history or the memory is wrong. Other
/// switches change only the cost.
const MUST_BE_CAUGHT: &[(&str, &str, Mix, usize, u64)] = &[
    ("ford", "validate-reads", SKEW, 1, 120),
    ("ford", "refuse-locked", ANYTHING, 3, 120),
    ("ford", "release-granted", ANYTHING, 1, 120),
    ("ford", "write-after-validation", SKEW, 1, 120),
    ("ford", "protect-absent", COMING_AND_GOING, 1, 120),
    ("ford", "release-on-abort", ANYTHING, 1, 120),
    // Later writes repair the damage of earlier writes, so only the last writes can show damage. Therefore these runs
    // are short.
    ("ford", "lock-cas", OVERWRITING, 3, 12),
    ("ford", "validate-after-locks", SKEW, 1, 120),
    ("ford", "keep-version", COMING_AND_GOING, 1, 120),
    ("motor", "validate-reads", SKEW, 1, 120),
    ("motor", "refuse-locked", ANYTHING, 3, 120),
    ("motor", "release-granted", ANYTHING, 1, 120),
    ("motor", "protect-absent", COMING_AND_GOING, 1, 120),
    ("motor", "release-on-abort", ANYTHING, 1, 120),
    ("motor", "lock-cas", OVERWRITING, 3, 12),
];

/// The switches that have an effect when a compute node dies. recovery.rs shows that its tests find each missing
/// rule.
const MUST_BE_CAUGHT_IN_CRASHES: &[(&str, &str)] =
    &[("ford", "fence-before-recovery"), ("ford", "settle-before-log"), ("ford", "release-own")];

/// The switches that change only the cost of transactions.
const HARMLESS: &[(&str, &str)] = &[
    ("ford", "fuse-log"),
    ("ford", "log-every-group"),
    ("ford", "write-changes-only"),
    ("ford", "lock-at-primary"),
    ("ford", "share-doorbells"),
    ("ford", "await-log"),
    ("motor", "read-together"),
    ("motor", "deltas"),
    ("motor", "at-once"),
    ("motor", "share-doorbells"),
];

/// The switches that have an effect on scans. ordered.rs and ordered_faults.rs show that their tests find each
/// missing rule.
const MUST_BE_CAUGHT_IN_RANGES: &[(&str, &str)] =
    &[("ford", "protect-ranges"), ("ford", "check-fences"), ("ford", "sibling-with-split")];

/// The switches whose absence shows in simulations, by random schedules or in every order:
/// `crates/cli/tests/all/schedules.rs`, `crates/cli/tests/all/explore.rs`.
const MUST_BE_CAUGHT_IN_SIMULATIONS: &[(&str, &str)] = &[
    // Replicas differ only if a thread loses its core between the writes of two copies. Such a difference lasts only
    // until the record is written again. On a busy machine a test needed longer than any time limit to find such a
    // difference.
    ("ford", "unlock-late"),
    ("motor", "wait-for-locked"),
    ("motor", "stamp-first"),
    ("motor", "unlock-late"),
    ("motor", "check-head"),
    ("motor", "too-old"),
    ("motor", "await-replicas"),
    ("motor", "undo-log"),
    ("motor", "fence-before-recovery"),
    ("motor", "settle-before-log"),
    ("motor", "protect-ranges"),
    ("motor", "release-own"),
    // Lines of one READ come in another order only in simulations.
    ("ford", "prove-absent"),
    ("motor", "prove-absent"),
];

/// Runs one seed of a mix. Returns the violation that was found, if any, and the counts.
fn run(
    (protocol, variant): (&'static str, &str),
    (mix, replicas, count): (Mix, usize, u64),
    seed: u64,
) -> (Option<String>, Tally) {
    let nodes = if mix.keys > 10 { replicas } else { 3 };
    let shape = mix::shape(nodes, replicas, variant).protocol(protocol);
    let world = World::new(&shape.leasing_reads(READ_LEASE_NS));
    let recorded: Mutex<Vec<RecordedTxn>> = Mutex::default();
    let tally: Mutex<Tally> = Mutex::default();
    std::thread::scope(|scope| {
        for slot in 0..THREADS {
            let (world, recorded, tally) = (&world, &recorded, &tally);
            scope.spawn(move || {
                let (history, counts) = run_thread(world, slot, (mix, count), seed);
                recorded.lock().unwrap().extend(history);
                tally.lock().unwrap().add(&counts);
            });
        }
    });
    let history = history(&world.database, recorded.into_inner().unwrap());
    let report = check(&history, Isolation::StrictSerializable);
    let audit = world.audit();
    let finding = match report.anomalies.first() {
        Some(anomaly) => Some(anomaly.to_string()),
        None if !audit.is_clean() => Some(audit.to_string()),
        None => None,
    };
    (finding, tally.into_inner().unwrap())
}

fn run_thread(
    world: &World,
    slot: u16,
    (mix, count): (Mix, u64),
    seed: u64,
) -> (Vec<RecordedTxn>, Tally) {
    // One of the two threads caches addresses, and the other thread reads the index every time.
    let cx = world.context(slot, usize::from(slot) * 64);
    let deadline = Some(Nanos(20_000_000));
    let retry = Retry { deadline, pause_max_ns: 8_000, ..Retry::default() };
    let recorded = Mutex::new(Vec::new());
    let mut executor = Executor::new();
    for coroutine in 0..COROUTINES {
        let number = u32::from(slot) * COROUTINES + coroutine;
        let mut by = Coordinator::new(std::rc::Rc::clone(&cx), number, retry);
        *by.rng() = tarn_fabric::rng::seeded(seed, u64::from(number));
        let recorded = &recorded;
        executor.spawn(async move {
            by.record_history();
            let _ = mix::run(&mut by, mix, count).await;
            recorded.lock().unwrap().extend(by.take_history());
        });
    }
    executor.run();
    drop(executor);
    (recorded.into_inner().unwrap(), cx.metrics.snapshot())
}

/// Runs seeds until a violation is found. Returns the violation, and the time that it took.
fn find(subject: (&'static str, &str), what: (Mix, usize, u64)) -> Option<(Duration, String)> {
    let start = Instant::now();
    for seed in 0.. {
        if let (Some(finding), _) = run(subject, what, seed) {
            return Some((start.elapsed(), finding));
        }
        if start.elapsed() > FIND_LIMIT {
            return None;
        }
    }
    unreachable!("time passes")
}

#[test]
fn planted_bugs_are_found_and_the_corrected_protocol_passes() {
    for &(protocol, switch, mix, replicas, count) in MUST_BE_CAUGHT {
        let variant = match switch {
            "lock-cas" => format!("corrected,unsafe-no-{switch}"),
            switch => format!("corrected,-{switch}"),
        };
        let found = find((protocol, &variant), (mix, replicas, count));
        let Some((after, finding)) = found else { panic!("{protocol} {variant}: not found") };
        println!("{protocol} {variant}: {:.0} ms: {finding}", after.as_secs_f64() * 1e3);
    }
    ALL.iter().for_each(passes_and_reaches_everything);
}

fn passes_and_reaches_everything(info: &ProtocolInfo) {
    let start = Instant::now();
    let mut total = Tally::default();
    let mut seed = 0;
    let mixes = [
        (ANYTHING, 3),
        (ANYTHING, 1),
        (SKEW, 1),
        (COMING_AND_GOING, 1),
        (CROWDED, 2),
        (HALVES, 1),
        (CROWDED_HALVES, 2),
        (OVERWRITING, 3),
    ];
    while start.elapsed() < SOUND_FOR {
        for (mix, replicas) in mixes {
            let (finding, tally) = run((info.name, "corrected"), (mix, replicas, 120), seed);
            assert_eq!(finding, None, "{}, seed {seed}, {mix:?}, {replicas} replicas", info.name);
            total.add(&tally);
            seed += 1;
        }
    }
    if is_planted_here(info) {
        report(info, &total);
    }
}

/// Whether the tests on real threads must also reach all phases and abort reasons of the protocol. For the other
/// protocols simulations reach all of them (`crates/cli/tests/all/schedules.rs`, `crates/cli/tests/all/explore.rs`).
fn is_planted_here(info: &ProtocolInfo) -> bool {
    MUST_BE_CAUGHT.iter().any(|it| it.0 == info.name)
}

/// Prints how often each phase and abort reason was reached, and asserts that all were reached.
fn report(info: &ProtocolInfo, tally: &Tally) {
    println!("{} committed", tally.committed);
    for reason in AbortReason::ALL {
        let (count, may) = (tally.aborts[reason as usize], info.aborts.contains(&reason));
        println!("  aborted, {}: {count}", reason.name());
        assert!(may || count == 0, "{} says that it never gives {}", info.name, reason.name());
        let of_ranges = reason.needs_ordered_indexes();
        assert!(!may || of_ranges || count > 0, "no run was aborted for {}", reason.name());
    }
    for (phase, count) in info.phases.iter().zip(tally.phases) {
        println!("  phase {phase}: {count}");
        // A transaction reaches the phase `resolve` only after a crash.
        let here = [Only::WithoutMemoryDeath, Only::InPassing];
        let elsewhere = |limit: &Limit| limit.phase == *phase && !here.contains(&limit.only);
        let is_elsewhere = *phase == "resolve" || info.limits.iter().any(elsewhere);
        assert!(is_elsewhere || count > 0, "no run of {} reached {phase}", info.name);
    }
}

#[test]
fn every_switch_is_noticed_or_harmless() {
    for info in ALL.iter().filter(|info| is_planted_here(info)) {
        for switch in info.switches {
            let caught = MUST_BE_CAUGHT
                .iter()
                .any(|&(protocol, name, ..)| (protocol, name) == (info.name, switch.name));
            let harmless = HARMLESS.contains(&(info.name, switch.name));
            let in_crashes = MUST_BE_CAUGHT_IN_CRASHES.contains(&(info.name, switch.name));
            let in_ranges = MUST_BE_CAUGHT_IN_RANGES.contains(&(info.name, switch.name));
            let in_simulations = MUST_BE_CAUGHT_IN_SIMULATIONS.contains(&(info.name, switch.name));
            let kinds = [caught, in_crashes, in_ranges, in_simulations, harmless];
            let kinds = kinds.into_iter().filter(|it| *it).count();
            assert!(kinds == 1, "{} {}: planted or harmless?", info.name, switch.name);
        }
    }
    let alone =
        HARMLESS.iter().map(|&(protocol, switch)| (protocol, format!("corrected,-{switch}")));
    // FORD's public code has all these switches off at the same time, and no other switches.
    for (protocol, variant) in alone.chain([("ford", "measured".to_owned())]) {
        for seed in 0..5 {
            let (finding, _) = run((protocol, &variant), (ANYTHING, 3, 120), seed);
            assert_eq!(finding, None, "{protocol} {variant}");
        }
    }
}

/// Runs readers without locks, which read five equal words in one line while other transactions write these words. A
/// reader that copies the line normally checks LOCK first, which would hide nearly every torn line. So these readers
/// ignore LOCK.
fn torn_reads(atomicity: LineAtomicity, limit: Duration) -> (u64, u64) {
    let mut schema = TableSchema::new("words", 8);
    for name in ["a", "b", "c", "d", "e"] {
        schema = schema.column(name, ColumnType::U64);
    }
    let mut shape = Shape::of(&[schema]).variant("corrected,-refuse-locked");
    shape.atomicity = atomicity;
    let world = World::new(&shape);
    let table = TableId(0);
    block_on(world.coordinator(5, 0).transact(async |tx| Ok(tx.insert_zeros(table, 1u64))))
        .unwrap();
    let (stop, torn, reads) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut by = world.coordinator(0, 16);
            for value in 1u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                block_on(by.transact(async |tx| {
                    let row = tx.update(table, 1u64, Cells::ALL);
                    tx.fetch().await?;
                    (0..5).for_each(|column| tx.set(row, ColumnId(column), value));
                    Ok(())
                }))
                .unwrap();
            }
        });
        let mut by = world.coordinator(1, 16);
        while torn.load(Ordering::Relaxed) == 0 && start.elapsed() < limit {
            let words = block_on(by.transact(async |tx| {
                let row = tx.get_row(table, 1u64).await?.expect("there");
                Ok([0, 1, 2, 3, 4].map(|column| row.u64(ColumnId(column))))
            }))
            .unwrap();
            reads.fetch_add(1, Ordering::Relaxed);
            torn.fetch_add(u64::from(words != [words[0]; 5]), Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("{atomicity:?}: {reads:?} reads in {:?}, torn: {torn:?}", start.elapsed());
    (torn.into_inner(), reads.into_inner())
}

#[test]
fn torn_lines_are_noticed() {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
        println!("skipped: needs two threads at once, and there is one core");
        return;
    }
    let (torn, _) = torn_reads(LineAtomicity::PlantedTorn, FIND_LIMIT);
    assert!(torn > 0, "plain copies were not noticed");
    let (torn, reads) = torn_reads(LineAtomicity::Striped { bits: 10 }, SOUND_FOR);
    assert_eq!(torn, 0);
    assert!(reads > 1000);
}
