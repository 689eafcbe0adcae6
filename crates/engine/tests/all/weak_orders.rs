//! FORD under every order that the contract allows: seeded schedules over the weakest fabric.
//!
//! Invariant checked: the corrected protocol's histories are strictly serializable, and its memory is clean
//! at the end, in every order. If a rule is switched off, its anomaly is found within a stated number of
//! schedules. Runs are deterministic: a seed that fails once fails always.

use crate::common::mix::{
    self, ANYTHING, COMING_AND_GOING, CROWDED, CROWDED_HALVES, HALVES, Mix, SKEW,
};
use crate::common::weak::WeakFabric;
use crate::common::*;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_check::{Isolation, Report, check};
use tarn_engine::admin::inspect::{self, Audit};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, TaskId};
use tarn_store::history::RecordedTxn;

struct Outcome {
    report: Report,
    audit: Audit,
    tally: Tally,
}

impl Outcome {
    fn is_sound(&self) -> bool {
        self.report.is_accepted() && self.audit.is_clean()
    }

    fn finding(&self) -> String {
        match self.report.anomalies.first() {
            Some(anomaly) => anomaly.to_string(),
            None => self.audit.to_string(),
        }
    }
}

const NODES: u16 = 3;
const COORDINATORS: usize = 2;

/// Runs one schedule: three compute nodes, two coordinators each.
fn run(shape: &Shape, mix: Mix, seed: u64, count: u64) -> Outcome {
    let fabric = WeakFabric::new(shape, seed);
    let recorded: RefCell<Vec<RecordedTxn>> = RefCell::default();
    let retry = Retry {
        deadline: Some(Nanos(40_000)),
        pause_first_ns: 10,
        pause_max_ns: 300,
        tries_max: 0,
        patient_tries: 64,
    };
    let contexts: Vec<_> =
        (0..NODES).map(|slot| fabric.context(slot, fabric.draw(2) * 16)).collect();
    let mut executor = Executor::new();
    for (index, cx) in contexts.iter().flat_map(|cx| [cx; COORDINATORS]).enumerate() {
        let mut by = Coordinator::new(Rc::clone(cx), index as u32, retry);
        for _ in 0..seed {
            let _ = rand::RngExt::random::<u64>(by.rng()); // another seed draws other transactions
        }
        let recorded = &recorded;
        executor.spawn(async move {
            by.record_history();
            let _ = mix::run(&mut by, mix, count).await;
            recorded.borrow_mut().extend(by.take_history());
        });
    }
    let tasks = NODES as usize * COORDINATORS;
    while executor.live() > 0 {
        for _ in 0..fabric.draw(6) {
            fabric.step();
        }
        executor.poll(TaskId(fabric.draw(tasks)));
    }
    (0..2_000).for_each(|_| fabric.step());
    let audit = fabric.block_on(inspect::audit(&contexts[0])).unwrap();
    let mut tally = Tally::default();
    contexts.iter().for_each(|cx| tally.add(&cx.metrics.snapshot()));
    let history = history(&fabric.database, recorded.take());
    Outcome { report: check(&history, Isolation::StrictSerializable), audit, tally }
}

/// Every mix, with the number of transactions of a coordinator.
fn mixes() -> [(Mix, u64); 6] {
    [
        (ANYTHING, 12),
        (COMING_AND_GOING, 12),
        (SKEW, 12),
        (CROWDED, 25),
        (HALVES, 12),
        (CROWDED_HALVES, 25),
    ]
}

#[test]
fn the_corrected_protocol_is_strictly_serializable_under_any_order() {
    let seeds = std::env::var("TARN_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let replicas = 1 + seed as usize % 3;
        for (mix, count) in mixes() {
            // On few nodes keys share buckets.
            let nodes = if mix.keys > 5 { replicas } else { 3 };
            let outcome = run(&mix::shape(nodes, replicas, "corrected"), mix, seed, count);
            assert!(
                outcome.is_sound(),
                "seed {seed}, {replicas} replicas, {mix:?}: {}{}",
                outcome.report,
                outcome.audit
            );
            tally.add(&outcome.tally);
        }
    }
    println!("{tally:?}");
    assert!(tally.committed > tally.aborted() / 20);
}

/// Prints how many schedules it takes to find the bug of the variant.
fn found_after(variant: &str, seeds: u64, mix: Mix, replicas: usize) {
    let nodes = if mix.keys > 5 { replicas } else { 3 };
    let shape = mix::shape(nodes, replicas, variant);
    for seed in 0..seeds {
        let outcome = run(&shape, mix, seed, 12);
        if !outcome.is_sound() {
            println!("{variant}: schedule {}: {}", seed + 1, outcome.finding());
            return;
        }
    }
    panic!("{variant}: not found in {seeds} schedules");
}

#[test]
fn every_rule_that_is_switched_off_shows_a_violation() {
    found_after("corrected,-validate-reads", 20, SKEW, 1);
    found_after("corrected,-refuse-locked", 60, ANYTHING, 3);
    found_after("corrected,-unlock-late", 60, ANYTHING, 3);
    found_after("corrected,-release-granted", 20, ANYTHING, 1);
    found_after("corrected,-write-after-validation", 20, SKEW, 1);
    found_after("corrected,-protect-absent", 200, COMING_AND_GOING, 1);
    found_after("corrected,-release-on-abort", 5, ANYTHING, 1);
    found_after("corrected,-validate-after-locks", 100, SKEW, 1);
    found_after("corrected,-keep-version", 20, COMING_AND_GOING, 1);
    found_after("literal", 60, ANYTHING, 3);
}
