//! Tests of the meaning of seeds.
//!
//! Invariant checked: a seed always has the same meaning, and every kind of fault is drawn by some seed.

use super::*;

#[test]
fn without_ranges_nothing_is_drawn_that_needs_them() {
    let (mut same, mut other) = (0, 0);
    for seed in 0..400 {
        let (with, without) = (Drawn::of(seed, None), Drawn::within(seed, None, false));
        assert!(without.mix.ordered.is_none() && without.mix.name != mixture::RANGES);
        match with.mix.ordered {
            Some(_) => other += 1,
            None => {
                assert_eq!(with.to_string(), without.to_string());
                same += 1;
            }
        }
    }
    assert!(same > 200 && other > 20, "{same}, {other}");
}

#[test]
fn a_seed_always_means_the_same_and_every_kind_is_drawn() {
    let all: Vec<String> = (0..400).map(|seed| Drawn::of(seed, None).to_string()).collect();
    assert_eq!(all[7], Drawn::of(7, None).to_string());
    let words = ["mixture", "smallbank", "ycsb", "tatp", "kvs", "growth on", "growth off"];
    let more = ["half", "apart", "1 replicas", "3 replicas", "no fault", "dies", "expelled"];
    let last =
        ["crashes", "leases", "dropped", "come back", "2 spares", "read whole", "taken over"];
    let last = last.into_iter().chain(["narrow unique on", "wide on"]);
    for word in words.into_iter().chain(more).chain(last) {
        assert!(all.iter().any(|text| text.contains(word)), "{word} is never drawn");
    }
    assert_eq!(Drawn::of(7, Some("tatp")).workload, "tatp");
    assert!((0..400).all(|seed| Drawn::of(seed, None).coordinators() >= 3));
}

#[test]
fn who_promises_no_recovery_loses_memory_nodes_alone() {
    let all: Vec<Drawn> =
        (0..400).map(|seed| Drawn::of(seed, None).without_compute_deaths()).collect();
    let deaths = |drawn: &Drawn| drawn.memory_deaths();
    assert!(all.iter().all(|it| it.faults.len() == deaths(it) && it.lease.is_none()));
    assert!(all.iter().any(|it| deaths(it) > 0));
    let drawn = Drawn::of(7, None);
    assert_eq!(drawn.clone().without_compute_deaths().coordinators(), drawn.coordinators());
}
