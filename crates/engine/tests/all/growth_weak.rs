//! Tests of splits under every order that the contract allows. Tables with four buckets at first grow on the weakest
//! fabric. Three compute nodes have views of the index that are older than the index.
//!
//! Invariant checked: histories are strictly serializable, no lock stays held, replicas are equal, and every record
//! is at the position to which its key leads. Runs are deterministic: if a seed fails once, it fails always.

use crate::common::mix::{self, ANYTHING, Mix};
use crate::common::orders::{self, Work};
use crate::common::seeds;
use tarn_engine::protocol::ALL;
use tarn_engine::site::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_store::layout::{LayoutKind, Records};

/// A mix with mostly inserts, of keys that have not been used yet.
const GROWING: Mix = Mix { keys: 80, wishes: 3, modes: [3, 1, 6, 1], user_abort_in: 0, ..ANYTHING };
const WORK: Work = Work { mix: GROWING, count: 60, deadline: Nanos(80_000), remembers: true };
const LOTUS: &str = "lotus";
const OOCC: &str = "oocc";
/// The length of the leases of OOCC's readers. A lease lasts as long as some rounds.
const READ_LEASE_NS: u32 = 60;
/// The number of seeds within which a planted bug must show, counted from the seed that its test names.
const WITHIN: u64 = 200;

/// Runs one schedule. Returns the counts, and the violation if there is one.
fn run(protocol: &'static str, variant: &str, seed: u64) -> (Tally, Result<(), String>) {
    let replicas = 1 + seed as usize % 3;
    let mut shape = mix::shape(replicas, replicas, variant).protocol(protocol);
    shape = shape.leasing_reads(READ_LEASE_NS);
    if protocol == LOTUS {
        // A slot with one version takes one cache line, and only buckets of such slots can be split.
        shape.options.layout = LayoutKind::MultiVersion { cells: 1, records: Records::Auto };
    }
    orders::run(&shape, WORK, seed)
}

/// Runs these schedules, none of which may find a violation. Returns the number of buckets that were split.
fn splits_in(seeds: std::ops::Range<u64>, protocol: impl Fn(u64) -> &'static str) -> u64 {
    let mut tally = Tally::default();
    for seed in seeds {
        let (one, wrong) = run(protocol(seed), "corrected", seed);
        assert_eq!(wrong, Ok(()));
        tally.add(&one);
    }
    println!("{tally:?}");
    tally.splits
}

#[test]
fn splits_are_strictly_serializable_under_any_order() {
    let seeds = seeds(60);
    let growing: Vec<_> = ALL.iter().filter(|info| info.caps.growth).collect();
    let splits = splits_in(0..seeds, |seed| growing[seed as usize % growing.len()].name);
    assert!(splits > 3 * seeds, "{splits} splits in {seeds} schedules");
}

#[test]
fn splits_beside_readers_in_lease_are_strictly_serializable_under_any_order() {
    let seeds = seeds(60);
    let splits = splits_in(0..seeds, |_| OOCC);
    assert!(splits > 3 * seeds, "{splits} splits in {seeds} schedules");
}

#[test]
fn splits_under_lotus_are_strictly_serializable_under_any_order() {
    let seeds = seeds(60);
    let splits = splits_in(0..seeds, |_| LOTUS);
    assert!(splits > 3 * seeds, "{splits} splits in {seeds} schedules");
}

/// Turns off each rule of splits whose absence these schedules show. The list contains each rule with the first seed
/// that shows a violation. The test runs at most [`WITHIN`] seeds from that seed on.
#[test]
fn each_rule_of_lotus_for_splits_that_is_off_shows_a_violation() {
    let within = seeds(WITHIN);
    for (rule, first) in [("lock-moved", 12), ("mark-nodes", 541), ("bucket-names", 0)] {
        let variant = format!("corrected,-{rule}");
        let found = (first..first + within)
            .find_map(|seed| Some((seed, run(LOTUS, &variant, seed).1.err()?)));
        let Some((seed, wrong)) = found else { panic!("{rule}: not found from {first} on") };
        println!("{rule}: seed {seed}: {}", wrong.lines().next().unwrap_or_default());
    }
}
