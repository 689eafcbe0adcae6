//! One thread of a phase: its coroutines, its counters, what it leaves behind.
//!
//! Invariant: counters are read by the thread that owns them, when it first sees the phase begin
//! and end. What a coroutine tallied and recorded is handed over when its future is dropped, so
//! that a transaction which never ends costs its own outcome and nothing else.

use super::driver::Length;
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tarn_engine::context::Context;
use tarn_engine::coordinator::{Coordinator, Retry};
use tarn_engine::history::RecordedTxn;
use tarn_engine::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_fabric::counters::Counts;
use tarn_fabric::executor::Executor;
use tarn_workloads::Workload;

/// One transaction in so many is timed.
const LATENCY_SAMPLE: u64 = 64;
/// A transaction that has not ended so long after its phase never will.
const PATIENCE: Nanos = Nanos(2_000_000_000);

/// What a phase's threads look at between turns.
const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// How the driver and its threads talk during a phase.
#[derive(Default)]
pub(super) struct Signals {
    stage: AtomicU8,
    recorded: AtomicU64,
}

impl Signals {
    pub(super) fn measure(&self) {
        self.stage.store(MEASURE, Ordering::Release);
    }

    pub(super) fn stop(&self) {
        self.stage.store(STOP, Ordering::Release);
    }

    /// Transactions finished while recording.
    pub(super) fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    fn stage(&self) -> u8 {
        self.stage.load(Ordering::Relaxed)
    }
}

/// What a thread did between the beginning and the end of its phase.
pub(super) struct ThreadResult<T> {
    pub(super) seconds: f64,
    pub(super) tally: Tally,
    pub(super) counts: Counts,
    pub(super) mix: Vec<u64>,
    pub(super) latency_ns: Histogram<u64>,
    pub(super) left: Left<T>,
}

/// What coroutines leave behind.
#[derive(Default)]
pub(super) struct Left<T> {
    pub(super) tallies: Vec<T>,
    pub(super) history: Vec<RecordedTxn>,
    pub(super) failures: Vec<String>,
}

/// Nanoseconds up to a minute, to three digits.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

/// Runs `coroutines` coordinators, numbered from `first` on, until the driver says stop.
pub(super) fn run<W: Workload>(
    workload: &W,
    cx: &Rc<Context>,
    numbers: std::ops::Range<u32>,
    length: Length,
    signals: &Signals,
) -> ThreadResult<W::Tally> {
    let desk = Desk::<W::Tally>::new(W::TRANSACTIONS.len());
    let mut executor = Executor::new();
    for number in numbers {
        let mut coordinator = Coordinator::new(Rc::clone(cx), number, Retry::default());
        if length.record {
            coordinator.record_history();
        }
        let tally = W::Tally::default();
        let seat = Seat::<W> { coordinator, tally, desk: &desk, stands: true };
        executor.spawn(coroutine(workload, seat, signals, length.record));
    }
    let mut readings: Vec<Reading> = Vec::with_capacity(3);
    let mut seen = WARM_UP;
    let mut until = None;
    while executor.live() > 0 {
        let now = signals.stage();
        if now != seen {
            seen = now;
            readings.push(Reading::take(cx, &desk));
            until = (now == STOP).then(|| cx.port.now() + PATIENCE);
        }
        executor.turn();
        if until.is_some_and(|until| cx.port.now() > until) {
            break;
        }
    }
    drop(executor);
    while readings.len() < 2 {
        readings.push(Reading::take(cx, &desk));
    }
    let (start, end) = (&readings[0], &readings[1]);
    ThreadResult {
        seconds: (end.at - start.at).0 as f64 / 1e9,
        tally: end.tally.since(&start.tally),
        counts: end.counts - start.counts,
        mix: end.mix.iter().zip(&start.mix).map(|(end, start)| end - start).collect(),
        latency_ns: desk.latency_ns.into_inner(),
        left: desk.left.into_inner(),
    }
}

async fn coroutine<W: Workload>(
    workload: &W,
    mut seat: Seat<'_, W>,
    signals: &Signals,
    record: bool,
) {
    let mut rng = seat.coordinator.context().port.rng();
    let mut count = 0u64;
    while signals.stage() != STOP {
        let input = workload.draw(&mut rng);
        count += 1;
        let timed = count.is_multiple_of(LATENCY_SAMPLE) && signals.stage() == MEASURE;
        let start = timed.then(|| seat.coordinator.context().port.now());
        let ended = workload.run(&mut seat.coordinator, &input, &mut seat.tally).await;
        if let Err(failure) = ended {
            let explanation = seat.coordinator.context().explanation(failure);
            let text = explanation.map_or_else(|| failure.to_string(), |it| it.to_string());
            let kind = W::TRANSACTIONS[W::kind(&input)];
            seat.desk.left.borrow_mut().failures.push(format!("{kind}: {text}"));
            break;
        }
        if let Some(start) = start {
            let taken = seat.coordinator.context().port.now() - start;
            seat.desk.latency_ns.borrow_mut().saturating_record(taken.0);
        }
        seat.desk.finished(W::kind(&input));
        if record {
            signals.recorded.fetch_add(1, Ordering::Relaxed);
        }
    }
    seat.stands = false;
}

/// A coroutine's place at its thread's desk: what it has is handed over when it leaves.
struct Seat<'a, W: Workload> {
    coordinator: Coordinator,
    tally: W::Tally,
    desk: &'a Desk<W::Tally>,
    /// Still in a transaction.
    stands: bool,
}

impl<W: Workload> Drop for Seat<'_, W> {
    fn drop(&mut self) {
        let mut left = self.desk.left.borrow_mut();
        left.tallies.push(std::mem::take(&mut self.tally));
        left.history.extend(self.coordinator.take_history());
        if self.stands {
            let seconds = PATIENCE.0 / 1_000_000_000;
            left.failures.push(format!("a transaction had not ended {seconds} s after its phase"));
        }
    }
}

/// What the coroutines of one thread share.
struct Desk<T> {
    mix: Vec<Cell<u64>>,
    latency_ns: RefCell<Histogram<u64>>,
    left: RefCell<Left<T>>,
}

impl<T> Desk<T> {
    fn new(kinds: usize) -> Desk<T> {
        let left = Left { tallies: Vec::new(), history: Vec::new(), failures: Vec::new() };
        Desk {
            mix: vec![Cell::new(0); kinds],
            latency_ns: RefCell::new(histogram()),
            left: RefCell::new(left),
        }
    }

    #[inline]
    fn finished(&self, kind: usize) {
        self.mix[kind].set(self.mix[kind].get() + 1);
    }
}

/// A thread's counters at one moment.
struct Reading {
    at: Nanos,
    tally: Tally,
    counts: Counts,
    mix: Vec<u64>,
}

impl Reading {
    fn take<T>(cx: &Context, desk: &Desk<T>) -> Reading {
        Reading {
            at: cx.port.now(),
            tally: cx.metrics.snapshot(),
            counts: cx.port.counts(),
            mix: desk.mix.iter().map(Cell::get).collect(),
        }
    }
}
