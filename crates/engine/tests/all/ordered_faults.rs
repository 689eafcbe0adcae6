//! Tests of ordered indexes under every order that the contract allows, and under crashes.
//!
//! Invariant checked: histories that include leaves as records are strictly serializable, so there are no phantoms.
//! After every schedule the trees are complete, every record has its entries and every entry its record, replicas are
//! equal, and no lock is left. The invariant also holds if compute nodes die at any moment, even in the middle of a
//! split or merge. If a rule of ordered indexes is turned off, the test finds a violation.

use crate::common::crash::{self, Found};
use crate::common::mix::{self, Mix, PHANTOMS, RANGES};
use crate::common::orders::{self, COORDINATORS, NODES, Work};
use crate::common::weak::WeakFabric;
use crate::common::*;
use std::rc::Rc;
use tarn_engine::admin::inspect;
use tarn_engine::cluster::info::ProtocolInfo;
use tarn_engine::protocol::ALL;
use tarn_engine::recovery::{self, Pace};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_store::schema::TableId;

/// Selects a protocol by the seed: each protocol in turn that protects ranges and survives a death.
fn protocol(seed: u64) -> &'static str {
    of_those(seed, |info| info.caps.ranges && info.caps.crash_recovery)
}

/// Selects a protocol as [`protocol`] does, but no protocol that keeps several versions of a record apart from its
/// slot. Such protocols refuse a transaction of [`RANGES`] that deletes a record and inserts it again.
fn protocol_in_place(seed: u64) -> &'static str {
    of_those(seed, |info| {
        info.caps.ranges && info.caps.crash_recovery && !info.caps.snapshot_isolation
    })
}

fn of_those(seed: u64, is_meant: impl Fn(&ProtocolInfo) -> bool) -> &'static str {
    let meant: Vec<_> = ALL.iter().filter(|info| is_meant(info)).collect();
    meant[(seed / 3) as usize % meant.len()].name
}

fn shape(seed: u64, (protocol, variant): (&'static str, &str)) -> Shape {
    let replicas = 1 + seed as usize % 3;
    mix::ordered_shape(replicas, replicas, variant).protocol(protocol)
}

fn work(mix: Mix, count: u64) -> Work {
    Work { mix, count, deadline: Nanos(200_000), remembers: false }
}

#[test]
fn there_are_no_phantoms_under_any_order() {
    let (mut tally, mut planned) = (Tally::default(), 0);
    for seed in 0..seeds(40) {
        for (mix, count) in [(RANGES, 20), (PHANTOMS, 12)] {
            planned += count * u64::from(NODES) * COORDINATORS as u64;
            // One of the two indexes is unique: the index by the primary key.
            let shape = shape(seed, (protocol_in_place(seed), "corrected"));
            let (counts, verdict) = orders::run(&shape, work(mix, count), seed);
            verdict.unwrap_or_else(|text| panic!("{text}"));
            tally.add(&counts);
        }
    }
    println!("{tally:?}");
    assert!(tally.node_splits > 20 && tally.node_merges > 5, "{tally:?}");
    // Some transactions abort themselves, and only a few miss their deadline.
    assert!(tally.committed * 10 > planned * 9, "{} of {planned}", tally.committed);
}

#[test]
fn a_death_of_any_node_at_any_time_leaves_trees_whole() {
    let mut found = Found::default();
    for seed in 0..seeds(80) {
        crash::run(&shape(seed, (protocol(seed), "corrected")), RANGES, seed, &mut found)
            .unwrap_or_else(|text| panic!("{text}"));
    }
    println!("{found:?}");
    assert!(found.committed > 0 && found.aborted > 0, "{found:?}");
    assert!(found.tally.node_splits > 0 && found.tally.node_merges > 0, "{found:?}");
}

/// Prints the number of schedules after which the test finds the bug of the variant. A panic does not count as a
/// finding.
fn found_after(switch: &str, limit: u64, mut run: impl FnMut(&str, u64) -> Result<(), String>) {
    let variant = format!("corrected,-{switch}");
    for seed in 0..limit {
        if let Err(text) = run(&variant, seed) {
            return println!("{variant}: schedule {}: {text}", seed + 1);
        }
    }
    panic!("{variant}: nothing found in {limit} schedules");
}

#[test]
fn an_unprotected_gap_is_noticed() {
    found_after("protect-ranges", 40, |variant, seed| {
        orders::run(&shape(seed, (ALL[0].name, variant)), work(PHANTOMS, 12), seed).1
    });
}

/// The distance between two tested points of death. A coordinator dies after each multiple of this number of steps.
const STRIDE: usize = 5;

/// A step of the test: a key, and whether the step deletes the key (`true`) or inserts it.
type Step = (u64, bool);

/// The steps that fill a tree, and then empty it from the middle.
fn steps() -> Vec<Step> {
    let deletes = (20..110).map(|key| (key, true));
    (0..120).map(|key| (key, false)).chain(deletes).collect()
}

async fn run_step(by: &mut Coordinator, (key, deletes): Step) {
    by.transact(async |tx| {
        if deletes {
            tx.delete(TableId(0), key);
            return Ok(());
        }
        let row = tx.insert(TableId(0), key);
        tx.fetch().await?;
        tx.set(row, A, key % 7);
        Ok(())
    })
    .await
    .unwrap();
}

/// The steps during which a node is split (`false`) or merged (`true`).
fn restructuring(replicas: usize, merges: bool) -> Vec<usize> {
    let fabric = WeakFabric::new(&mix::ordered_shape(replicas, replicas, "corrected"), 3);
    fabric.calm();
    let mut by = Coordinator::new(fabric.context(0, 0), 0, Retry::default());
    let mut found = Vec::new();
    for (at, step) in steps().into_iter().enumerate() {
        let before = by.context().metrics.snapshot();
        fabric.block_on(run_step(&mut by, step));
        let news = by.context().metrics.snapshot().since(&before);
        let count = if merges { news.node_merges } else { news.node_splits };
        found.extend((count > 0).then_some(at));
    }
    fabric.end();
    found
}

/// Lets a coordinator die in the step at index `at`, after `moves` steps of the fabric. Recovers its node, and
/// compares tree, records and replicas. Returns whether the coordinator was still in that step.
fn die_at(variant: &str, (replicas, at): (usize, usize), moves: usize) -> Result<bool, String> {
    let fabric = WeakFabric::new(&mix::ordered_shape(replicas, replicas, variant), 3);
    fabric.calm();
    let (cx, other) = (fabric.context(0, 0), fabric.context(1, 0));
    let mut by = Coordinator::new(Rc::clone(&cx), 0, Retry::default());
    let steps = steps();
    for &step in &steps[..at] {
        fabric.block_on(run_step(&mut by, step));
    }
    let mut dying = Box::pin(run_step(&mut by, steps[at]));
    let is_alive = poll_times(dying.as_mut(), moves, || fabric.step()).is_none();
    std::mem::forget(dying);
    fabric.database.membership.expel(cx.node.id);
    let judged = fabric.block_on(async {
        recovery::recover(&other, cx.node.id).await.map_err(|it| it.to_string())?;
        recovery::sweep(&other, Pace::default()).await.map_err(|it| it.to_string())?;
        inspect::audit(&other).await.map_err(|it| it.to_string())
    })?;
    fabric.end();
    if judged.is_clean() { Ok(is_alive) } else { Err(format!("after {moves} moves: {judged}")) }
}

#[test]
fn a_death_in_a_split_or_merge_at_any_moment_leaves_trees_whole() {
    for (replicas, merges) in [(1, false), (2, false), (2, true)] {
        let found = restructuring(replicas, merges);
        assert!(!found.is_empty(), "no step restructures");
        let at = found[found.len() / 2];
        let (mut moves, mut is_alive) = (0, true);
        while is_alive {
            is_alive = die_at("corrected", (replicas, at), moves)
                .unwrap_or_else(|text| panic!("{replicas} replicas, step {at}: {text}"));
            moves += STRIDE;
        }
        println!("{replicas} replicas, step {at}: {} deaths", moves / STRIDE);
        assert!(moves > 400, "{moves} moves");
    }
}

#[test]
fn a_split_that_is_visible_before_its_sibling_is_noticed() {
    let at = *restructuring(1, false).last().expect("a split");
    let mut moves = 0;
    found_after("sibling-with-split", 1_000, |variant, _| {
        moves += 11;
        die_at(variant, (1, at), moves).map(|_| ())
    });
}
