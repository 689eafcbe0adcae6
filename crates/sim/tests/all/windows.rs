//! Tests of windows and waits on clocks that drift.
//!
//! Invariant checked: clocks run at arbitrary rates within the bounds that the nodes assume. A reader
//! whose window was shorter than its lease has seen all of a writer's writes or none of these writes.
//! If clocks drift more than the nodes assume, the reader may see half of a writer's writes.

use crate::common::{at, fabric, port};
use rand::RngExt as _;
use std::cell::Cell;
use tarn_fabric::address::Target;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_fabric::rng::{Rng, seeded};
use tarn_fabric::round::Round;
use tarn_sim::config::{Chaos, Mode};
use tarn_sim::scheduler::{Ended, Scheduler};

const LEASE: Nanos = Nanos(30_000);
/// The bound on drift is a tenth, so that the safety margins are a large part of a lease.
const DRIFT_PPM: u32 = 100_000;

/// Returns the addresses of two records of one word each. A record is free when its word is even, and
/// locked when its word is odd.
fn records() -> [Target; 2] {
    [at(0), at(64)]
}

#[derive(Default)]
struct Seen {
    in_lease: Cell<u64>,
    torn: Cell<u64>,
}

async fn add_to_both(port: &Port) {
    let mut round = Round::new();
    for record in records() {
        round.faa(record, 1);
    }
    port.execute(&mut round).await.expect("nothing breaks");
}

async fn write(port: Port, mut rng: Rng) {
    for _ in 0..60 {
        port.sleep(Nanos(rng.random_range(0..2 * LEASE.0))).await;
        add_to_both(&port).await;
        let wait = port.begin_wait().await;
        port.end_wait(wait, LEASE).await;
        add_to_both(&port).await;
    }
}

/// Reads one record, waits for a random time, and reads the other record.
async fn read(port: Port, mut rng: Rng, seen: &Seen) {
    for _ in 0..100 {
        let window = port.open_window().await;
        let mut words = [0; 2];
        for (word, record) in words.iter_mut().zip(records()) {
            let mut round = Round::new();
            let found = round.read(record, 8);
            port.execute(&mut round).await.expect("nothing breaks");
            *word = round.word(found);
            if record == at(0) {
                port.sleep(Nanos(rng.random_range(0..LEASE.0))).await;
            }
        }
        let is_shorter = port.close_window(window, LEASE).await.is_shorter;
        if is_shorter && words.iter().all(|it| it % 2 == 0) {
            seen.in_lease.set(seen.in_lease.get() + 1);
            seen.torn.set(seen.torn.get() + u64::from(words[0] != words[1]));
        }
    }
}

/// Counts the reads within a lease. Also counts the reads within a lease that have seen half of a
/// writer's writes.
fn run(mode: Mode, seed: u64) -> (u64, u64) {
    let fabric = fabric("cx5-100g", mode, seed);
    let seen = Seen::default();
    let mut scheduler = Scheduler::new(&fabric);
    for slot in 0..4 {
        let (by, rng) = (port(&fabric, slot, 0), seeded(seed, slot.into()));
        let port = by.clone();
        let seen = &seen;
        scheduler.spawn(&by, async move {
            match slot {
                0 => write(port, rng).await,
                _ => read(port, rng, seen).await,
            }
        });
    }
    assert_eq!(scheduler.run_until(Nanos(1 << 40)), Ended::Finished);
    drop(scheduler);
    (seen.in_lease.get(), seen.torn.get())
}

fn sum(modes: impl Iterator<Item = (Mode, u64)>) -> (u64, u64) {
    modes.fold((0, 0), |sum, (mode, seed)| {
        let (in_lease, torn) = run(mode, seed);
        (sum.0 + in_lease, sum.1 + torn)
    })
}

fn drifting(planted_drift_times: u32) -> impl Iterator<Item = (Mode, u64)> {
    (0..60).map(move |seed| {
        let chaos = Chaos {
            clock_drift_max_ppm: DRIFT_PPM,
            clock_offset_max_ns: 50_000,
            planted_drift_times,
            ..Chaos::of(seed)
        };
        (Mode::Random(chaos), seed)
    })
}

#[test]
fn no_reader_in_lease_sees_half_of_a_writer_under_any_drift() {
    let (in_lease, torn) = sum(drifting(0));
    println!("random: {in_lease} in lease");
    assert_eq!(torn, 0);
    assert!(in_lease > 500, "{in_lease}");
    let (in_lease, torn) = sum((0..4).map(|seed| (Mode::Timed, seed)));
    println!("timed: {in_lease} in lease");
    assert_eq!(torn, 0);
    assert!(in_lease > 100, "{in_lease}");
}

#[test]
fn clocks_beyond_their_stated_bound_are_noticed() {
    let (in_lease, torn) = sum(drifting(6));
    println!("{torn} of {in_lease} in lease have seen half");
    assert!(torn > 5);
}

/// If every clock is within the bounds, a wait ends neither before its length has passed nor much
/// later.
#[test]
fn a_wait_takes_as_long_as_it_says() {
    for (mode, seed) in drifting(0).chain((0..4).map(|seed| (Mode::Timed, seed))).step_by(3) {
        let fabric = fabric("cx5-100g", mode, seed);
        let mut scheduler = Scheduler::new(&fabric);
        let by = port(&fabric, 1, 0);
        scheduler.spawn(&by.clone(), async move {
            let (wait, begun) = (by.begin_wait().await, by.observed());
            by.end_wait(wait, LEASE).await;
            let passed = by.observed() - begun;
            assert!(passed >= LEASE, "seed {seed}: {passed}");
            // The wait may also be longer because threads may pause.
            assert!(passed < LEASE + LEASE + Nanos(100_000), "seed {seed}: {passed}");
            let (wait, begun) = (by.begin_wait().await, by.observed());
            by.end_wait(wait, Nanos(0)).await;
            assert_eq!(by.observed(), begun, "none is none");
        });
        assert_eq!(scheduler.run_until(Nanos(1 << 40)), Ended::Finished);
    }
}
