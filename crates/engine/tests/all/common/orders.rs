//! Schedules without faults, in which the verbs of transactions take effect in any order that the contract allows.
//!
//! Invariant: a schedule depends only on shape, mix and seed. Three compute nodes run two coordinators each, and the
//! nodes' threads also serve lock requests.

use super::mix::{self, Mix};
use super::weak::{RETRY, WeakFabric};
use super::{Shape, history};
use std::cell::RefCell;
use tarn_check::{Isolation, check};
use tarn_engine::admin::inspect;
use tarn_engine::session::coordinator::Retry;
use tarn_engine::site::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, TaskId};
use tarn_store::history::RecordedTxn;
use tarn_store::ids::Failure;

pub const NODES: u16 = 3;
pub const COORDINATORS: usize = 2;

/// The work of the coordinators of a schedule.
#[derive(Clone, Copy)]
pub struct Work {
    pub mix: Mix,
    /// The number of transactions of each coordinator.
    pub count: u64,
    pub deadline: Nanos,
    /// Whether some nodes cache the addresses of records.
    pub remembers: bool,
}

/// Runs one schedule. Returns the counts, and the violation if there is one. A violation is a history that is not
/// strictly serializable, memory that is not clean, or a transaction that failed. Only a missed deadline may end a
/// coordinator early.
pub fn run(shape: &Shape, work: Work, seed: u64) -> (Tally, Result<(), String>) {
    let Work { mix, count, deadline, remembers } = work;
    let fabric = WeakFabric::new(shape, seed);
    let recorded: RefCell<Vec<RecordedTxn>> = RefCell::default();
    let failed: RefCell<Vec<String>> = RefCell::default();
    let retry = Retry { deadline: Some(deadline), ..RETRY };
    let cache = || if remembers { fabric.draw(2) * 16 } else { 0 };
    let contexts: Vec<_> = (0..NODES).map(|slot| fabric.context(slot, cache())).collect();
    let mut executor = Executor::new();
    for (index, cx) in contexts.iter().flat_map(|cx| [cx; COORDINATORS]).enumerate() {
        let mut by = mix::coordinator(cx, index as u32, retry, seed);
        let (recorded, failed) = (&recorded, &failed);
        executor.spawn(async move {
            by.record_history();
            let ended = mix::run(&mut by, mix, count).await.err();
            let ended = ended.filter(|&it| it != Failure::DeadlineExceeded);
            let why = ended.map(|it| format!("{it}: {:?}", by.context().explanation(it)));
            failed.borrow_mut().extend(why);
            recorded.borrow_mut().extend(by.take_history());
        });
    }
    let serve = || contexts.iter().for_each(|cx| cx.serve());
    let tasks = NODES as usize * COORDINATORS;
    while executor.live() > 0 {
        (0..fabric.draw(6)).for_each(|_| fabric.step());
        executor.poll(TaskId(fabric.draw(tasks)));
        serve();
    }
    for _ in 0..4_000 {
        fabric.step();
        serve();
    }
    let audit = fabric.block_on(inspect::audit(&contexts[0])).unwrap();
    let mut tally = Tally::default();
    contexts.iter().for_each(|cx| tally.add(&cx.metrics.snapshot()));
    let report = check(&history(&fabric.database, recorded.take()), Isolation::StrictSerializable);
    let failed = failed.take();
    let (protocol, variant) = (shape.protocol, &shape.variant);
    let is_sound = report.is_accepted() && audit.is_clean() && failed.is_empty();
    let text = || {
        format!("{protocol} {variant}, seed {seed}, {mix:?}: {report}{audit}; failed: {failed:?}")
    };
    (tally, if is_sound { Ok(()) } else { Err(text()) })
}
