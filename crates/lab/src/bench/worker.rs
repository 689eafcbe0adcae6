//! One thread of a phase: its coroutines and its counters.
//!
//! Invariant: each thread reads its own counters as soon as the thread sees that the phase has begun or ended.

use super::inboxes::Routed;
use crate::harness::phase::{Length, Phase, Reading};
use crate::harness::worker::{STOP, Signals, WARM_UP, Worker, WorkerShared, coroutine};
use std::rc::Rc;
use tarn_engine::requests::read_lease::manager::LeaseKeeper;
use tarn_engine::requests::serve;
use tarn_engine::services::Transport;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::Executor;
use tarn_workloads::Workload;

/// Out of this number of transactions, the thread measures the latency of one.
const LATENCY_SAMPLE: u64 = 64;
/// If a transaction has not ended this long after the end of its phase, the run reports that the transaction never
/// ends.
const PATIENCE: Nanos = Nanos(2_000_000_000);

/// Runs the coordinators with these numbers until the driver stops the phase.
pub(super) fn run<W: Workload>(
    workload: &W,
    cx: &Rc<Context>,
    numbers: std::ops::Range<u32>,
    length: Length,
    (signals, routed): (&Signals, Option<&Routed<'_, W>>),
) -> (Phase, Vec<W::Tally>) {
    let desk = WorkerShared::<W::Tally>::new(W::TRANSACTIONS.len(), LATENCY_SAMPLE, PATIENCE);
    let mut executor = Executor::new();
    for number in numbers {
        let mut coordinator = Coordinator::new(Rc::clone(cx), number, Retry::default());
        if length.record {
            coordinator.record_history();
        }
        let seat = Worker::<W>::new(coordinator, &desk);
        let record = length.record;
        match routed {
            Some(routed) => {
                executor.spawn(coroutine(workload, seat, signals, record, ((), routed)))
            }
            None => executor.spawn(coroutine(workload, seat, signals, record, ((), ()))),
        };
    }
    // In a cluster with one node, threads answer no requests of other nodes. On mapped memory, a transaction leaves
    // no unfinished work after its reply. So only clusters with several nodes need the coroutine that answers
    // requests.
    if cx.node.services().is_some_and(|its| its.transport() != Transport::Own) {
        executor.spawn(serve::run(cx, || !cx.has_coordinators()));
    }
    // The first thread of each node manages the readers' leases of the node.
    let keeper = (cx.port.endpoint().thread == 0).then(|| LeaseKeeper::near(Rc::clone(cx)));
    if let Some(keeper) = keeper.flatten() {
        executor.spawn(async move { keeper.run(|| signals.stage() != STOP).await });
    }
    let mut readings: Vec<Reading> = Vec::with_capacity(3);
    let mut seen = WARM_UP;
    let mut until = None;
    while executor.live() > 0 {
        let now = signals.stage();
        if now != seen {
            seen = now;
            readings.push(Reading::take([&**cx], &desk, cx.port.now()));
            until = (now == STOP).then(|| cx.port.now() + PATIENCE);
        }
        executor.turn();
        if until.is_some_and(|until| cx.port.now() > until) {
            break;
        }
    }
    drop(executor);
    while readings.len() < 2 {
        readings.push(Reading::take([&**cx], &desk, cx.port.now()));
    }
    desk.close(&readings[0], &readings[1])
}
