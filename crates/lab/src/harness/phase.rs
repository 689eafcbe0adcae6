//! A phase of a run: its planned length, its progress, and its counters, summed over its threads.
//!
//! Invariant: counters only grow, so the difference of two readings gives the amount of work between these readings.
//! A recorded phase has no warm-up, so its history begins with the phase.

use super::worker::{WorkerShared, histogram};
use hdrhistogram::Histogram;
use tarn_engine::site::Context;
use tarn_engine::site::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_fabric::counters::Counts;
use tarn_store::history::RecordedTxn;

/// The length of a phase, by the fabric's clock.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// The length of the warm-up, whose transactions are not counted. A recorded phase has no
    /// warm-up.
    pub warm_up: Nanos,
    /// The length of the part whose transactions are counted.
    pub measured: Nanos,
    /// The phase ends earlier when this number of transactions has been recorded.
    pub transactions_max: u64,
    /// Whether the phase records a history.
    pub record: bool,
}

impl Length {
    /// Returns the length of a phase that is measured and not recorded.
    pub fn measured(warm_up: Nanos, measured: Nanos) -> Length {
        Length { warm_up, measured, transactions_max: u64::MAX, record: false }
    }

    /// Returns the length of a phase that is recorded until its time ends or it has
    /// `transactions_max` transactions.
    pub fn recorded(measured: Nanos, transactions_max: u64) -> Length {
        Length { warm_up: Nanos(0), measured, transactions_max, record: true }
    }
}

/// The progress of a phase.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The virtual time since the phase began.
    pub passed: Nanos,
    /// The whole length of the phase, warm-up included.
    pub of: Nanos,
}

/// The results of one phase, summed over its threads.
pub struct Phase {
    /// The time between the first and the second reading of every thread's counters.
    pub seconds: f64,
    /// The numbers of transactions and of aborts between the two readings.
    pub tally: Tally,
    /// The numbers of verbs and of messages between the two readings.
    pub counts: Counts,
    /// The number of transactions that were drawn and finished between the two readings, by kind.
    pub mix: Vec<u64>,
    /// The number of transactions between the two readings whose tries were all aborted.
    pub given_up: u64,
    /// Sampled latencies in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Sampled times, in nanoseconds, until transactions were dropped because all their tries were aborted.
    pub dropped_ns: Histogram<u64>,
    /// The recorded transactions.
    pub history: Vec<RecordedTxn>,
    /// The failures of transactions that no retry could overcome, and transactions that never ended.
    pub failures: Vec<String>,
}

impl Phase {
    /// Returns the results of a phase without threads, for a workload with `kinds` kinds of transactions.
    pub(crate) fn empty(kinds: usize) -> Phase {
        Phase {
            seconds: 0.0,
            tally: Tally::default(),
            counts: Counts::default(),
            mix: vec![0; kinds],
            given_up: 0,
            latency_ns: histogram(),
            dropped_ns: histogram(),
            history: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Adds the results of another thread.
    pub(crate) fn add(&mut self, other: Phase) {
        self.seconds = self.seconds.max(other.seconds);
        self.tally.add(&other.tally);
        self.counts += other.counts;
        self.mix.iter_mut().zip(other.mix).for_each(|(mine, theirs)| *mine += theirs);
        self.given_up += other.given_up;
        self.latency_ns.add(other.latency_ns).expect("the same range");
        self.dropped_ns.add(other.dropped_ns).expect("the same range");
        self.history.extend(other.history);
        self.failures.extend(other.failures);
    }
}

/// The values of all counters of some threads at one moment.
pub(crate) struct Reading {
    at: Nanos,
    tally: Tally,
    counts: Counts,
    mix: Vec<u64>,
    given_up: u64,
}

impl Reading {
    /// Reads the counters of `threads` and of the desk that these threads share.
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
    /// Computes the results of the phase from the two readings, and returns these results with the tallies of the
    /// phase's coroutines.
    pub(crate) fn close(self, start: &Reading, end: &Reading) -> (Phase, Vec<T>) {
        let left = self.left.into_inner();
        let phase = Phase {
            seconds: (end.at - start.at).0 as f64 / 1e9,
            tally: end.tally.since(&start.tally),
            counts: end.counts - start.counts,
            mix: end.mix.iter().zip(&start.mix).map(|(end, start)| end - start).collect(),
            given_up: end.given_up - start.given_up,
            latency_ns: self.latency_ns.into_inner(),
            dropped_ns: self.dropped_ns.into_inner(),
            history: left.history,
            failures: left.failures,
        };
        (phase, left.tallies)
    }
}
