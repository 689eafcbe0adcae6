//! Compute nodes die, or are taken for dead, at any moment; others recover them.
//!
//! Invariant checked: whatever dies when, also while it recovers another, no acknowledged transaction is
//! lost and no aborted one is seen, the history is strictly serializable, replicas are equal and no lock
//! is left after the sweep; and each rule of recovery that is switched off is missed.

mod common;

use common::crash::{self, Found};
use common::mix::{self, ANYTHING, COMING_AND_GOING, CROWDED, HALVES, Mix, OVERWRITING};
use common::*;
use std::cell::Cell;
use std::pin::pin;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_engine::coordinator::Coordinator;
use tarn_engine::membership::{EmbeddedMembership, LeaseTerms, Membership, Standing};
use tarn_engine::metrics::RecoveryEvent;
use tarn_engine::outcome::{AbortReason, Explanation, Failure};
use tarn_engine::recovery::{self, Attempt, Pace};
use tarn_engine::schema::{Cells, TableId};
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;

/// One to three replicas; every second time on as many nodes as there are replicas.
fn shape(seed: u64, variant: &str) -> Shape {
    let replicas = 1 + seed as usize % 3;
    let nodes = if seed % 6 < 3 { replicas } else { 3 };
    mix::shape(nodes, replicas, variant)
}

#[test]
fn whoever_dies_when_nothing_is_lost() {
    let seeds = std::env::var("TARN_SEEDS").map_or(120, |seeds| seeds.parse().unwrap());
    let mut found = Found::default();
    for seed in 0..seeds {
        for mix in [ANYTHING, COMING_AND_GOING, CROWDED, HALVES] {
            crash::run(&shape(seed, "corrected"), mix, seed, &mut found)
                .unwrap_or_else(|text| panic!("{text}"));
        }
    }
    println!("{found:?}");
    assert!(found.committed > 0 && found.aborted > found.nothing_written, "{found:?}");
    assert!(found.tally.splits > 0, "{found:?}");
    for event in RecoveryEvent::ALL {
        let reached = found.tally.recovery[event as usize];
        println!("  {}: {reached}", event.name());
        // No node keeps a lease here.
        assert!(reached > 0 || event == RecoveryEvent::Barred, "{} never came about", event.name());
    }
}

/// How many schedules it takes to find what the variant breaks.
fn found_after(switch: &str, seeds: u64, mix: Mix) {
    let variant = format!("corrected,-{switch}");
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| {
            crash::run(&shape(seed, &variant), mix, seed, &mut Found::default())
        });
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(text)) => return println!("{variant}: schedule {}: {text}", seed + 1),
            Err(_) => return println!("{variant}: schedule {}: a panic", seed + 1),
        }
    }
    panic!("{variant}: not found in {seeds} schedules");
}

#[test]
fn every_rule_of_recovery_that_is_switched_off_is_missed() {
    found_after("fence-before-recovery", 300, ANYTHING);
    found_after("settle-before-log", 300, ANYTHING);
    found_after("release-own", 300, OVERWRITING);
}
