//! Summarizes a measured phase in the figures that every fabric reports.
//!
//! Invariant: all times are measured by the fabric's own clock, which is virtual on a simulated cluster. No history
//! was recorded while the figures were measured.

use super::lines::{length, parts, row};
use super::phase::Phase;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use tarn_engine::cluster::info::ProtocolInfo;
use tarn_fabric::counters::VERB_NAMES;
use tarn_store::ids::AbortReason;
use tarn_workloads::Workload;

/// The figures of one measured phase.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The number of transactions of the measured phase that were drawn and ended, by kind.
    pub mix_run: BTreeMap<&'static str, u64>,
    /// The number of transactions acknowledged in the measured phase.
    pub committed: u64,
    /// The length of the measured phase.
    pub seconds: f64,
    /// The number of committed transactions per second.
    pub throughput_per_s: f64,
    /// The number of tries per second, committed and aborted.
    pub attempts_per_s: f64,
    /// The latencies of the transactions that were timed: only a sample is timed.
    pub latency_us: Latency,
    /// The transactions that were dropped, because all their tries were aborted.
    pub dropped: Dropped,
    /// The number of aborted tries by reason; the reason `user` is the transaction's own decision.
    pub aborts: BTreeMap<&'static str, u64>,
    /// The reason for which the workload's own transactions abort themselves, in words for the
    /// table.
    #[serde(skip)]
    pub gives_up: &'static str,
    /// The share of all tries that the protocol aborted.
    pub conflict_rate: f64,
    /// The number of times that each phase of the protocol was entered.
    pub phases: BTreeMap<&'static str, u64>,
    /// The cost of one committed transaction, including the cost of its aborted tries.
    pub per_txn: PerTxn,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// The mean latency.
    pub mean: f64,
    /// The median latency.
    pub p50: f64,
    /// The 99th percentile: one latency in a hundred is longer.
    pub p99: f64,
    /// The 99.9th percentile: one latency in a thousand is longer.
    pub p999: f64,
    /// The number of transactions that were timed.
    pub samples: u64,
}

/// The transactions whose tries were all aborted.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Dropped {
    /// The number of these transactions.
    pub transactions: u64,
    /// The mean time from the beginning of such a transaction until it was dropped, in microseconds; 0 if none was
    /// timed.
    pub mean_us: f64,
}

/// Averages per committed transaction.
#[derive(Clone, Debug, Serialize)]
pub struct PerTxn {
    /// The number of round trips, including the round trips for which no coroutine waits.
    pub rounds: f64,
    /// The number of verbs by kind.
    pub verbs: BTreeMap<&'static str, f64>,
    /// The number of messages.
    pub messages: f64,
    /// The number of payload bytes in both directions.
    pub bytes: f64,
}

impl Measured {
    /// Returns the figures of `phase` for workload `W` under a protocol.
    pub fn of<W: Workload>(phase: &Phase, protocol: &ProtocolInfo) -> Measured {
        let tally = &phase.tally;
        let user = tally.aborts[AbortReason::User as usize];
        let tries = (tally.committed + tally.aborted()).max(1) as f64;
        let reasons = protocol.aborts.iter();
        let quantile = |at| phase.latency_ns.value_at_quantile(at) as f64 / 1e3;
        Measured {
            mix_run: W::TRANSACTIONS.iter().copied().zip(phase.mix.iter().copied()).collect(),
            committed: tally.committed,
            seconds: phase.seconds,
            throughput_per_s: tally.committed as f64 / phase.seconds.max(1e-9),
            attempts_per_s: (tally.committed + tally.aborted()) as f64 / phase.seconds.max(1e-9),
            latency_us: Latency {
                mean: phase.latency_ns.mean() / 1e3,
                p50: quantile(0.5),
                p99: quantile(0.99),
                p999: quantile(0.999),
                samples: phase.latency_ns.len(),
            },
            dropped: Dropped {
                transactions: phase.given_up,
                mean_us: phase.dropped_ns.mean() / 1e3,
            },
            aborts: reasons.map(|&why| (why.name(), tally.aborts[why as usize])).collect(),
            gives_up: W::GIVES_UP,
            conflict_rate: (tally.aborted() - user) as f64 / tries,
            phases: protocol.phases.iter().copied().zip(tally.phases).collect(),
            per_txn: PerTxn::of(phase),
        }
    }
}

impl PerTxn {
    fn of(phase: &Phase) -> PerTxn {
        let committed = phase.tally.committed.max(1) as f64;
        let each = |count: u64| count as f64 / committed;
        let counts = &phase.counts;
        PerTxn {
            rounds: each(counts.rounds),
            verbs: VERB_NAMES.into_iter().zip(counts.verbs.map(each)).collect(),
            messages: each(counts.messages),
            bytes: each(counts.bytes_in + counts.bytes_out),
        }
    }
}

impl Measured {
    /// Writes the number of tries that the protocol aborted, by reason. Separately, it writes the number of
    /// transactions that aborted themselves, which is no failure.
    fn aborts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut conflicts = self.aborts.clone();
        let own = conflicts.remove(AbortReason::User.name()).unwrap_or_default();
        let reasons = parts(&conflicts, |count| count.to_string());
        let rate = self.conflict_rate * 100.0;
        row!(f, "aborted tries" => "{reasons}; conflicts {rate:.3} % of tries")?;
        let Dropped { transactions, mean_us } = self.dropped;
        if transactions != 0 {
            row!(f, "dropped" => "{transactions} transactions after an abort, mean {mean_us:.2} µs")?;
        }
        if own == 0 {
            return Ok(());
        }
        let why = if self.gives_up.is_empty() { "its own decision" } else { self.gives_up };
        row!(f, "own aborts" =>
            "{own} transactions gave up as the workload has it ({why}): no failures")
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row!(f, "throughput" =>
            "{:.3} M transactions/s ({} committed in {}), {:.3} M attempts/s",
            self.throughput_per_s / 1e6, self.committed, length(self.seconds),
            self.attempts_per_s / 1e6)?;
        let Latency { mean, p50, p99, p999, samples } = self.latency_us;
        row!(f, "latency" =>
            "mean {mean:.2} µs, p50 {p50:.2} µs, p99 {p99:.2} µs, p99.9 {p999:.2} µs ({samples} samples)")?;
        let ended = self.mix_run.values().sum::<u64>().max(1) as f64;
        let share = |count: u64| format!("{:.1} %", count as f64 * 100.0 / ended);
        row(f, "mix run", parts(&self.mix_run, share))?;
        self.aborts(f)?;
        let PerTxn { rounds, verbs, messages, bytes } = &self.per_txn;
        let verbs = parts(verbs, |count| format!("{count:.2}"));
        row!(f, "per transaction" =>
            "{rounds:.2} rounds; verbs: {verbs}; {messages:.2} messages; {bytes:.0} bytes")?;
        row(f, "phases", parts(&self.phases, |count| count.to_string()))
    }
}
