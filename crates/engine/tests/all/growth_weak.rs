//! Splits under every order that the contract allows: tables that grow from four buckets on, over
//! the weakest fabric, with three compute nodes whose beliefs fall behind.
//!
//! Invariant checked: histories are strictly serializable, nothing stays locked, replicas are
//! equal, every record is where its key leads. Deterministic: a seed that fails once fails always.

use crate::common::mix::{self, Mix};
use crate::common::weak::WeakFabric;
use crate::common::*;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_check::{Isolation, check};
use tarn_engine::coordinator::{Coordinator, Retry};
use tarn_engine::history::RecordedTxn;
use tarn_engine::inspect;
use tarn_engine::metrics::Tally;
use tarn_engine::protocol::ALL;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, TaskId};

/// Mostly inserts, of keys that nobody has seen yet.
const GROWING: Mix = Mix {
    first: 0,
    tables: 4,
    keys: 80,
    wishes: 3,
    modes: [3, 1, 6, 1],
    read_only_in: 4,
    user_abort_in: 0,
    scans_in: 0,
};
const NODES: u16 = 3;
const COORDINATORS: usize = 2;

/// Runs one schedule, of each protocol in turn; returns what was counted.
fn run(seed: u64) -> Tally {
    let protocol = ALL[seed as usize % ALL.len()].name;
    let replicas = 1 + seed as usize % 3;
    let shape = mix::shape(replicas, replicas, "corrected").protocol(protocol);
    let fabric = WeakFabric::new(&shape, seed);
    let recorded: RefCell<Vec<RecordedTxn>> = RefCell::default();
    let retry = Retry {
        deadline: Some(Nanos(80_000)),
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
            let _ = rand::RngExt::random::<u64>(by.rng()); // another seed, other transactions
        }
        let recorded = &recorded;
        executor.spawn(async move {
            by.record_history();
            let _ = mix::run(&mut by, GROWING, 60).await;
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
    (0..4_000).for_each(|_| fabric.step());
    let audit = fabric.block_on(inspect::audit(&contexts[0])).unwrap();
    let mut tally = Tally::default();
    contexts.iter().for_each(|cx| tally.add(&cx.metrics.snapshot()));
    let report = check(&history(&fabric.database, recorded.take()), Isolation::StrictSerializable);
    assert!(report.is_accepted() && audit.is_clean(), "{protocol}, seed {seed}: {report}{audit}");
    tally
}

#[test]
fn splits_are_strictly_serializable_under_any_order() {
    let seeds = std::env::var("TARN_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    let mut tally = Tally::default();
    for seed in 0..seeds {
        tally.add(&run(seed));
    }
    println!("{tally:?}");
    assert!(tally.splits > 10 * seeds, "{} splits in {seeds} schedules", tally.splits);
}
