//! A phase of a run: how long it is to be, how far it is, and the sums of its threads.
//!
//! Invariant: counters only grow, so the difference of two readings is the work between them. A recorded phase has no
//! warm-up: its history begins with the phase.

use super::worker::{WorkerShared, histogram};
use hdrhistogram::Histogram;
use tarn_engine::site::Context;
use tarn_engine::site::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_fabric::counters::Counts;
use tarn_store::history::RecordedTxn;

/// How long a phase runs, by the fabric's clock.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Not counted. A recorded phase has none.
    pub warm_up: Nanos,
    /// Counted.
    pub measured: Nanos,
    /// Ends earlier when so many transactions have been recorded.
    pub transactions_max: u64,
    /// Whether to record history.
    pub record: bool,
}

impl Length {
    /// A phase that is measured and not recorded.
    pub fn measured(warm_up: Nanos, measured: Nanos) -> Length {
        Length { warm_up, measured, transactions_max: u64::MAX, record: false }
    }

    /// A phase that is recorded until it has lasted so long or has so many transactions.
    pub fn recorded(measured: Nanos, transactions_max: u64) -> Length {
        Length { warm_up: Nanos(0), measured, transactions_max, record: true }
    }
}

/// How far a phase is.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Virtual time since the phase began.
    pub passed: Nanos,
    /// The whole length of the phase, warm-up included.
    pub of: Nanos,
}

/// The sums of one phase's threads.
pub struct Phase {
    /// Between the two readings of every thread's counters.
    pub seconds: f64,
    /// Transactions and aborts in that time.
    pub tally: Tally,
    /// Verbs and messages in that time.
    pub counts: Counts,
    /// Transactions by kind in that time, as drawn and finished.
    pub mix: Vec<u64>,
    /// Transactions that were given up in that time.
    pub given_up: u64,
    /// Sampled latencies in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Recorded transactions.
    pub history: Vec<RecordedTxn>,
    /// Failures that no retry could overcome, and transactions that never ended.
    pub failures: Vec<String>,
}

impl Phase {
    /// A phase of no threads yet, for workloads with so many kinds of transactions.
    pub(crate) fn empty(kinds: usize) -> Phase {
        Phase {
            seconds: 0.0,
            tally: Tally::default(),
            counts: Counts::default(),
            mix: vec![0; kinds],
            given_up: 0,
            latency_ns: histogram(),
            history: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Adds another thread's part.
    pub(crate) fn add(&mut self, other: Phase) {
        self.seconds = self.seconds.max(other.seconds);
        self.tally.add(&other.tally);
        self.counts += other.counts;
        self.mix.iter_mut().zip(other.mix).for_each(|(mine, theirs)| *mine += theirs);
        self.given_up += other.given_up;
        self.latency_ns.add(other.latency_ns).expect("the same range");
        self.history.extend(other.history);
        self.failures.extend(other.failures);
    }
}

/// All counters of some threads at one moment.
pub(crate) struct Reading {
    at: Nanos,
    tally: Tally,
    counts: Counts,
    mix: Vec<u64>,
    given_up: u64,
}

impl Reading {
    /// Reads the counters of these threads and of the desk that they share.
    pub(crate) fn take<'a, T>(
        threads: impl IntoIterator<Item = &'a Context>,
        desk: &WorkerShared<T>,
        at: Nanos,
    ) -> Reading {
        let (mut tally, mut counts) = (Tally::default(), Counts::default());
        for cx in threads {
            tally.add(&cx.metrics.snapshot());
            counts += cx.port.counts();
        }
        Reading { at, tally, counts, mix: desk.mix(), given_up: desk.given_up() }
    }
}

impl<T> WorkerShared<T> {
    /// Returns the phase between two readings, and the tallies of its coroutines.
    pub(crate) fn close(self, start: &Reading, end: &Reading) -> (Phase, Vec<T>) {
        let left = self.left.into_inner();
        let phase = Phase {
            seconds: (end.at - start.at).0 as f64 / 1e9,
            tally: end.tally.since(&start.tally),
            counts: end.counts - start.counts,
            mix: end.mix.iter().zip(&start.mix).map(|(end, start)| end - start).collect(),
            given_up: end.given_up - start.given_up,
            latency_ns: self.latency_ns.into_inner(),
            history: left.history,
            failures: left.failures,
        };
        (phase, left.tallies)
    }
}
