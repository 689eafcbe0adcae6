//! Ordered indexes under every order that the contract allows, and under crashes.
//!
//! Invariant checked: histories in which leaves are records are strictly serializable, so there are no
//! phantoms; after every schedule the trees are whole, every record has its entries and every entry its
//! record, replicas are equal, no lock is left; also if compute nodes die at any moment, in the middle of
//! a split or merge as well. And each rule of ordered indexes that is switched off is missed.

mod common;

use common::crash::{self, Found};
use common::mix::{self, Mix, PHANTOMS, RANGES};
use common::weak::WeakFabric;
use common::*;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_check::{Isolation, check};
use tarn_engine::coordinator::{Coordinator, Retry};
use tarn_engine::history::RecordedTxn;
use tarn_engine::inspect;
use tarn_engine::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, TaskId};

const NODES: u16 = 3;
const COORDINATORS: usize = 2;

fn shape(seed: u64, variant: &str) -> Shape {
    let replicas = 1 + seed as usize % 3;
    mix::ordered_shape(replicas, replicas, variant)
}

/// Runs one schedule: three compute nodes, two coordinators each. What is wrong, if anything.
fn run(variant: &str, mix: Mix, seed: u64, count: u64) -> (Result<(), String>, Tally) {
    let fabric = WeakFabric::new(&shape(seed, variant), seed);
    let recorded: RefCell<Vec<RecordedTxn>> = RefCell::default();
    let retry = Retry {
        deadline: Some(Nanos(200_000)),
        pause_first_ns: 10,
        pause_max_ns: 300,
        patient_tries: 64,
    };
    let contexts: Vec<_> = (0..NODES).map(|slot| fabric.context(slot, 0)).collect();
    let mut executor = Executor::new();
    for (index, cx) in contexts.iter().flat_map(|cx| [cx; COORDINATORS]).enumerate() {
        let mut by = Coordinator::new(Rc::clone(cx), index as u32, retry);
        for _ in 0..seed {
            let _ = rand::RngExt::random::<u64>(by.rng()); // another seed, other transactions
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
        (0..fabric.draw(6)).for_each(|_| fabric.step());
        executor.poll(TaskId(fabric.draw(tasks)));
    }
    (0..2_000).for_each(|_| fabric.step());
    let audit = fabric.block_on(inspect::audit(&contexts[0])).unwrap();
    let mut tally = Tally::default();
    contexts.iter().for_each(|cx| tally.add(&cx.metrics.snapshot()));
    let report = check(&history(&fabric.database, recorded.take()), Isolation::StrictSerializable);
    let sound = report.is_accepted() && audit.is_clean();
    (if sound { Ok(()) } else { Err(format!("seed {seed}, {mix:?}: {report}{audit}")) }, tally)
}

fn seeds(default: u64) -> u64 {
    std::env::var("TARN_SEEDS").map_or(default, |seeds| seeds.parse().unwrap())
}

#[test]
fn there_are_no_phantoms_under_any_order() {
    let mut tally = Tally::default();
    for seed in 0..seeds(40) {
        for (mix, count) in [(RANGES, 20), (PHANTOMS, 12)] {
            let (verdict, counts) = run("corrected", mix, seed, count);
            verdict.unwrap_or_else(|text| panic!("{text}"));
            tally.add(&counts);
        }
    }
    println!("{tally:?}");
    assert!(tally.node_splits > 20 && tally.node_merges > 5, "{tally:?}");
    assert!(tally.committed > tally.aborted() / 20);
}

#[test]
fn whoever_dies_when_trees_stay_whole() {
    let mut found = Found::default();
    for seed in 0..seeds(80) {
        crash::run(&shape(seed, "corrected"), RANGES, seed, &mut found)
            .unwrap_or_else(|text| panic!("{text}"));
    }
    println!("{found:?}");
    assert!(found.committed > 0 && found.aborted > 0, "{found:?}");
    assert!(found.tally.node_splits > 0 && found.tally.node_merges > 0, "{found:?}");
}

/// How many schedules it takes to find what the variant breaks.
fn found_after(switch: &str, limit: u64, mut run: impl FnMut(&str, u64) -> Result<(), String>) {
    let variant = format!("corrected,-{switch}");
    for seed in 0..limit {
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&variant, seed)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(text)) => return println!("{variant}: schedule {}: {text}", seed + 1),
            Err(_) => return println!("{variant}: schedule {}: a panic", seed + 1),
        }
    }
    panic!("{variant}: nothing found in {limit} schedules");
}

#[test]
fn a_gap_that_is_not_protected_is_found() {
    found_after("protect-ranges", 40, |variant, seed| run(variant, PHANTOMS, seed, 12).0);
}

#[test]
fn an_old_way_that_is_believed_is_found() {
    found_after("check-fences", 40, |variant, seed| run(variant, RANGES, seed, 20).0);
}

#[test]
fn a_split_that_is_shown_before_its_sibling_is_found() {
    found_after("sibling-with-split", 400, |variant, seed| {
        crash::run(&shape(seed, variant), RANGES, seed, &mut Found::default())
    });
}
