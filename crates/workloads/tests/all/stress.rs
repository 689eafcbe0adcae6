//! Real threads, more of them than cores, stopped at random points between the verbs of a round and
//! between the words of a line; pinned to cores or not.
//!
//! Invariant checked: the corrected engine's histories are strictly serializable and its memory is
//! sound, however it is stopped; each planted bug shows within `FOUND_WITHIN` runs. The places
//! where threads are stopped are drawn by seed; the threads that the operating system then runs are
//! not, so a run does not repeat. Nothing is decided by elapsed time: the load of the machine
//! changes when a run ends, and not how.

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

/// More than the cores of the machines on which these tests are run by hand; each thread is a
/// compute node.
const THREADS: usize = 8;
/// A planted bug must have shown after this many runs. Torn lines take the longest by far, some
/// hundred runs on two cores.
const FOUND_WITHIN: u64 = 3_000;
/// The corrected engine is stuck if every thread has made this many turns and none has ended a
/// transaction. A pause between two tries takes a thousandth of these turns, and DSLR's longest
/// wait takes a fifth.
const PATIENCE_TURNS: u64 = 5_000_000;
/// With a planted bug a lock may never be released; threads do not wait for it as long.
const LITTLE_PATIENCE_TURNS: u64 = 200_000;

const RATES: [Rates; 3] = [
    Rates { yield_one_in: 4, sleep_one_in: 0, sleep_ns: 0 },
    Rates { yield_one_in: 20, sleep_one_in: 400, sleep_ns: 50_000 },
    Rates { yield_one_in: 0, sleep_one_in: 2_000, sleep_ns: 1_000_000 },
];

/// A run that ended badly.
enum Wrong {
    /// A transaction failed, the run was stuck, or an assertion of ours failed.
    Failed,
    /// The history, the memory or a rule of the workload was wrong.
    Seen(String),
}

/// Makes one run, the `number`th of its kind; returns how many tries it recorded.
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

/// Makes one run of each workload that has something to lose: money, several records, single reads.
fn run_each(shape: (Shape<'_>, u64), number: u64) -> Result<usize, Wrong> {
    run_share(shape, number, 1)
}

/// Like [`run_each`], with one in `of` of its transactions.
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

/// The first protocol runs with every way of stopping threads. Each other protocol runs with one of
/// them and a sixth of the transactions. Where threads wait for a stopped one (LOTUS's owners of
/// locks, DSLR's turns), a run takes a minute of processors.
#[test]
fn the_corrected_engine_survives_being_stopped_anywhere() {
    for replicas in [1, 3] {
        (0..6).for_each(|number| survives_being_stopped(&ALL[0], replicas, (number, 1)));
        for (which, info) in ALL.iter().enumerate().skip(1) {
            survives_being_stopped(info, replicas, ((which + replicas) as u64 % 6, 6));
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures how long a bug stays hidden")]
fn planted_bugs_are_found_in_time() {
    let corrected = Shape::new("ford", 3);
    let torn = Shape { atomicity: LineAtomicity::PlantedTorn, ..corrected };
    let without = |variant| Shape { variant, ..corrected };
    // The last field says whether a failed transaction is enough: a lock that stays shows in no
    // other way.
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
