//! Stress tests with more real threads than cores. The tests stop threads at random points between
//! the verbs of a round and between the words of a line. In some tests the threads are pinned to
//! cores.
//!
//! Invariant checked: the corrected engine's histories are strictly serializable and its memory has
//! no fault, wherever its threads are stopped. Each planted bug causes a visible fault within
//! `FOUND_WITHIN` runs. The seed decides the places where threads are stopped. The operating system
//! decides the threads that run then, so a run cannot be repeated exactly. No test decides by elapsed
//! time. So the load of the machine changes only the time of a run and not its result.

use crate::common::{Cluster, Shape, Stress, all_ok, recorded, small};
use std::time::Instant;
use tarn_engine::cluster::info::ProtocolInfo;
use tarn_engine::protocol::ALL;
use tarn_fabric::local::preempt::{Rates, arm};
use tarn_fabric::local::{LineAtomicity, pin_to_core};
use tarn_workloads::Workload;
use tarn_workloads::kvs::Kvs;
use tarn_workloads::smallbank::SmallBank;
use tarn_workloads::ycsb::Ycsb;

/// The number of threads. The number of threads exceeds the number of cores of the machines on which
/// developers run these tests. Each thread is a compute node.
const THREADS: usize = 8;
/// A planted bug must have caused a visible fault after this many runs. Torn lines need by far the
/// most runs, some hundred on two cores.
const FOUND_WITHIN: u64 = 3_000;
/// The corrected engine counts as stuck if every thread has made this many turns and no thread has
/// ended a transaction. A pause between two tries takes a thousandth of these turns, and DSLR's
/// longest wait takes a fifth.
const PATIENCE_TURNS: u64 = 5_000_000;
/// With a planted bug a transaction may never release a lock. So runs with planted bugs count as
/// stuck after fewer turns.
const LITTLE_PATIENCE_TURNS: u64 = 200_000;

const RATES: [Rates; 3] = [
    Rates { yield_one_in: 4, sleep_one_in: 0, sleep_ns: 0 },
    Rates { yield_one_in: 20, sleep_one_in: 400, sleep_ns: 50_000 },
    Rates { yield_one_in: 0, sleep_one_in: 2_000, sleep_ns: 1_000_000 },
];

/// The reason why a run ended with a fault.
enum Wrong {
    /// A transaction failed, the run was stuck, or an assertion of ours failed.
    Failed,
    /// The history, the memory or a rule of the workload was wrong.
    Seen(String),
}

/// Runs one workload once. `number` is the number of this run. Returns the number of recorded tries.
fn run<W: Workload<Tally: Send> + Sync>(
    workload: &W,
    (shape, patience_turns): (Shape<'_>, u64),
    number: u64,
    transactions: usize,
) -> Result<usize, Wrong> {
    let cluster = Cluster::loaded(workload, shape, number);
    let stress = Stress { threads: THREADS, transactions, patience_turns, seed: number };
    let is_pinned = number % 2 == 1;
    let rates = RATES[number as usize / 2 % RATES.len()];
    let prepare = |thread: usize| {
        if is_pinned {
            pin_to_core(thread);
        }
        arm((number << 32) + thread as u64, Some(rates));
    };
    let (tally, history) = cluster.stress(workload, stress, &prepare).map_err(|_| Wrong::Failed)?;
    recorded::verdict(&history).map_err(Wrong::Seen)?;
    let audit = cluster.audit();
    if !audit.is_clean() {
        return Err(Wrong::Seen(audit.to_string()));
    }
    let invariants = cluster.check(workload, &tally);
    if all_ok(&invariants) {
        Ok(history.len())
    } else {
        Err(Wrong::Seen(format!("{invariants:?}")))
    }
}

/// Runs each of several workloads once. Faults in these workloads change sums of money, several
/// records, or single reads.
fn run_each(shape: (Shape<'_>, u64), number: u64) -> Result<usize, Wrong> {
    run_share(shape, number, 1)
}

/// Like [`run_each`], but with a share of its transactions: one in `of`.
fn run_share(shape: (Shape<'_>, u64), number: u64, of: usize) -> Result<usize, Wrong> {
    let bank = run(&small::<SmallBank>("spec", 6), shape, number, 30 / of)?;
    let store = run(&small::<Ycsb>("a4", 8), shape, number, 20 / of)?;
    Ok(bank + store + run(&small::<Kvs>("mixed", 3), shape, number, 60 / of)?)
}

fn survives_being_stopped(info: &ProtocolInfo, replicas: usize, (number, of): (u64, usize)) {
    let (name, shape) = (info.name, Shape::new(info.name, replicas));
    match run_share((shape, PATIENCE_TURNS), number, of) {
        Ok(tries) => assert!(tries >= THREADS * 8 * (90 / of), "{name}: {tries} tries recorded"),
        Err(Wrong::Failed) => panic!("{name}, run {number}: a transaction failed"),
        Err(Wrong::Seen(text)) => panic!("{name}, run {number}: {text}"),
    }
}

/// The first protocol runs with every way of stopping threads and half of the transactions. Each other
/// protocol runs with one way of stopping threads and a tenth of the transactions. Under some protocols threads wait for a
/// stopped thread (LOTUS's owners of locks, DSLR's turns). A run under such a protocol takes a minute
/// of processor time.
#[test]
fn the_corrected_engine_survives_being_stopped_anywhere() {
    for replicas in [1, 3] {
        (0..6).for_each(|number| survives_being_stopped(&ALL[0], replicas, (number, 2)));
        for (which, info) in ALL.iter().enumerate().skip(1) {
            survives_being_stopped(info, replicas, ((which + replicas) as u64 % 6, 10));
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures how long a bug stays hidden")]
fn planted_bugs_are_found_in_time() {
    let corrected = Shape::new("ford", 3);
    let torn = Shape { atomicity: LineAtomicity::PlantedTorn, ..corrected };
    let without = |variant| Shape { variant, ..corrected };
    // The last field says whether a failed transaction counts as finding the bug. A lock that is
    // never released has no other visible effect.
    for (what, shape, may_fail) in [
        ("-validate-reads", without("corrected,-validate-reads"), false),
        ("-refuse-locked", without("corrected,-refuse-locked"), false),
        ("-release-granted", without("corrected,-release-granted"), false),
        ("-write-after-validation", without("corrected,-write-after-validation"), false),
        ("-release-on-abort", without("corrected,-release-on-abort"), true),
        ("unsafe-no-lock-cas", without("corrected,unsafe-no-lock-cas"), false),
        ("torn lines", torn, false),
    ] {
        let (start, mut number) = (Instant::now(), 0);
        let seen = loop {
            match run_each((shape, LITTLE_PATIENCE_TURNS), number) {
                Err(Wrong::Seen(text)) => break text,
                Err(Wrong::Failed) if may_fail => break "a transaction failed".to_owned(),
                Ok(_) | Err(Wrong::Failed) => number += 1,
            }
            assert!(number < FOUND_WITHIN, "{what}: not found in {number} runs");
        };
        let seen: String = seen.lines().next().unwrap_or_default().chars().take(90).collect();
        println!("{what}: run {number}, {:.2} s: {seen}", start.elapsed().as_secs_f64());
    }
}
