//! What a run says: an object for programs, a table for people; the same figures in both.
//!
//! Invariant: every figure stands beside its configuration, its seed, the machine and the verdicts
//! of the same run. Times are measured without recording; the verdict on serializability is of the
//! verification phase, and both forms say so.

use super::bare::BareLoop;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A run's result; see the module's text.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The benchmark.
    pub workload: String,
    /// The protocol.
    pub protocol: String,
    /// Its variant.
    pub variant: String,
    /// What the transactions ran on.
    pub fabric: &'static str,
    /// Seed of every generator.
    pub seed: u64,
    /// Everything else that was chosen.
    pub config: Chosen,
    /// Processor, cores, system.
    pub machine: String,
    /// What pages the memory nodes were granted.
    pub pages: &'static str,
    /// Memory laid out, over all memory nodes and replicas.
    pub memory_bytes: u64,
    /// Records loaded.
    pub records: u64,
    /// How long loading took.
    pub load_seconds: f64,
    /// Transactions of the measured phase by kind, as drawn and ended.
    pub mix_run: BTreeMap<&'static str, u64>,
    /// Transactions acknowledged in the measured phase.
    pub committed: u64,
    /// Length of the measured phase.
    pub seconds: f64,
    /// Committed transactions a second.
    pub throughput_per_s: f64,
    /// Latencies, sampled.
    pub latency_us: Latency,
    /// Aborted tries by reason; `user` is the transaction's own decision.
    pub aborts: BTreeMap<&'static str, u64>,
    /// Tries aborted by the protocol, of all tries.
    pub conflict_rate: f64,
    /// How often each phase of the protocol was entered.
    pub phases: BTreeMap<&'static str, u64>,
    /// What one committed transaction sends, aborted tries included.
    pub per_txn: PerTxn,
    /// What the workload tells beyond counts, over all phases.
    pub outcomes: BTreeMap<&'static str, String>,
    /// The workload's own rules, judged on the memory that was left.
    pub invariants: Invariants,
    /// The engine's rules, likewise.
    pub audit: AuditReport,
    /// The verdict on the verification phase.
    pub history: HistoryReport,
    /// What no retry could overcome, in either phase.
    pub failures: Vec<String>,
    /// How long a cacheline takes between two cores and back; with two threads or more.
    pub line_round_trip_ns: Option<f64>,
    /// What bare loads cost on this machine.
    pub baseline_loops: Vec<BareLoop>,
}

/// What was chosen.
#[derive(Clone, Debug, Serialize)]
pub struct Chosen {
    /// Coordinator threads.
    pub threads: usize,
    /// Of which on one compute node.
    pub threads_per_node: usize,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Coroutines of a thread.
    pub coroutines: usize,
    /// Whether threads kept to one core each.
    pub pinned: bool,
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Copies of every record.
    pub replicas: usize,
    /// Where records go.
    pub placement: &'static str,
    /// Addresses that each thread remembers.
    pub address_cache: usize,
    /// What memory was asked for.
    pub memory: &'static str,
    /// How lines are kept atomic.
    pub line_atomicity: &'static str,
    /// The workload's profile.
    pub mix_profile: &'static str,
    /// Where it is from and how it deviates.
    pub mix_profile_note: &'static str,
    /// The workload's own numbers.
    pub workload: BTreeMap<&'static str, String>,
    /// Not counted before the measured phase.
    pub warm_up_seconds: f64,
    /// Of the measured phase, as asked for.
    pub seconds: f64,
    /// Of the verification phase, as asked for; 0 for none.
    pub verify_seconds: f64,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// One in a hundred is longer.
    pub p99: f64,
    /// One in a thousand is longer.
    pub p999: f64,
    /// How many transactions were timed.
    pub samples: u64,
}

/// Per committed transaction.
#[derive(Clone, Debug, Serialize)]
pub struct PerTxn {
    /// Round trips, those that nobody waits for included.
    pub rounds: f64,
    /// Verbs by kind.
    pub verbs: BTreeMap<&'static str, f64>,
    /// Messages.
    pub messages: f64,
    /// Payload in both directions.
    pub bytes: f64,
}

/// Verdicts of the workload's invariants.
#[derive(Clone, Debug, Serialize)]
pub struct Invariants {
    /// Whether all hold.
    pub ok: bool,
    /// Their numbers, in words.
    pub detail: String,
    /// One by one.
    pub each: Vec<OneInvariant>,
}

/// One invariant's verdict.
#[derive(Clone, Debug, Serialize)]
pub struct OneInvariant {
    /// What must hold.
    pub name: &'static str,
    /// Whether it does.
    pub ok: bool,
    /// The numbers.
    pub detail: String,
}

/// The engine's audit.
#[derive(Clone, Debug, Serialize)]
pub struct AuditReport {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// The numbers in words.
    pub detail: String,
    /// Locks that nobody should hold any more.
    pub locks_left: u64,
    /// Lines of a backup that differ from the primary's.
    pub replicas_differ: u64,
    /// Records where their keys do not lead.
    pub misplaced: u64,
}

/// The verdict on what was recorded.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryReport {
    /// `accepted`, `violated`, or `not recorded`.
    pub verdict: &'static str,
    /// Transactions recorded.
    pub transactions: u64,
    /// What the history was held against.
    pub isolation: &'static str,
    /// Which phase recorded it: never the measured one.
    pub recorded_in: &'static str,
    /// Length of that phase.
    pub seconds: f64,
    /// Anomalies found, by name.
    pub anomalies: BTreeMap<&'static str, u64>,
    /// The checker's whole report, if it found any.
    pub counterexample: Option<String>,
    /// Where the history was written.
    pub file: Option<String>,
}

/// Kinds of checks that can fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CheckKind {
    /// The recorded history is not strictly serializable.
    History,
    /// A rule of the workload is broken.
    Invariant,
    /// Locks are left, replicas differ, or records are misplaced.
    Audit,
    /// A transaction failed, or never ended.
    Failure,
}

impl CheckKind {
    /// Every kind.
    pub const ALL: [CheckKind; 4] =
        [CheckKind::History, CheckKind::Invariant, CheckKind::Audit, CheckKind::Failure];

    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            CheckKind::History => "history",
            CheckKind::Invariant => "invariant",
            CheckKind::Audit => "audit",
            CheckKind::Failure => "failure",
        }
    }
}

impl Report {
    /// Which checks failed.
    pub fn failed(&self) -> Vec<CheckKind> {
        CheckKind::ALL
            .into_iter()
            .filter(|kind| match kind {
                CheckKind::History => self.history.verdict == "violated",
                CheckKind::Invariant => !self.invariants.ok,
                CheckKind::Audit => !self.audit.ok,
                CheckKind::Failure => !self.failures.is_empty(),
            })
            .collect()
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "  {name:<18} {value}")
}

fn verdict(ok: bool) -> &'static str {
    if ok { "ok" } else { "FAILED" }
}

/// The parts that are not zero, in order.
fn parts<V: Copy + PartialOrd + Default>(
    map: &BTreeMap<&'static str, V>,
    show: impl Fn(V) -> String,
) -> String {
    let parts: Vec<String> = map
        .iter()
        .filter(|(_, value)| **value > V::default())
        .map(|(name, value)| format!("{name} {}", show(*value)))
        .collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { workload, protocol, variant, fabric, seed, .. } = self;
        writeln!(f, "{workload} on {protocol} ({variant}), {fabric} fabric, seed {seed}")?;
        self.what_was_run(f)?;
        writeln!(f, "measured phase (no history recorded)")?;
        self.measured(f)?;
        writeln!(f, "checks")?;
        self.checks(f)?;
        writeln!(f, "the machine's own figures")?;
        self.bare(f)
    }
}

impl Report {
    fn what_was_run(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Chosen { threads, coroutines, compute_nodes, memory_nodes, replicas, .. } = self.config;
        let placement = self.config.placement;
        let numbers: Vec<String> =
            self.config.workload.iter().map(|(name, value)| format!("{name} {value}")).collect();
        row(f, "profile", format_args!("{} ({})", self.config.mix_profile, numbers.join(", ")))?;
        row(
            f,
            "compute",
            format_args!(
                "{threads} threads × {coroutines} coroutines on {compute_nodes} compute nodes"
            ),
        )?;
        row(
            f,
            "memory",
            format_args!(
                "{memory_nodes} memory nodes, {replicas} replicas, placed by {placement}; {:.1} MiB \
                 laid out, {}",
                self.memory_bytes as f64 / f64::from(1 << 20),
                self.pages
            ),
        )?;
        row(f, "machine", &self.machine)?;
        row(f, "loaded", format_args!("{} records in {:.2} s", self.records, self.load_seconds))
    }

    fn measured(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(
            f,
            "throughput",
            format_args!(
                "{:.3} M transactions/s ({} committed in {:.2} s)",
                self.throughput_per_s / 1e6,
                self.committed,
                self.seconds
            ),
        )?;
        let Latency { p50, p99, p999, samples } = self.latency_us;
        row(
            f,
            "latency",
            format_args!(
                "p50 {p50:.2} µs, p99 {p99:.2} µs, p99.9 {p999:.2} µs ({samples} samples)"
            ),
        )?;
        let ended = self.mix_run.values().sum::<u64>().max(1) as f64;
        let share = |count: u64| format!("{:.1} %", count as f64 * 100.0 / ended);
        row(f, "mix run", parts(&self.mix_run, share))?;
        let aborts = parts(&self.aborts, |count| count.to_string());
        let rate = self.conflict_rate * 100.0;
        row(f, "aborted tries", format_args!("{aborts}; conflicts {rate:.3} % of tries"))?;
        let PerTxn { rounds, verbs, messages, bytes } = &self.per_txn;
        let verbs = parts(verbs, |count| format!("{count:.2}"));
        row(
            f,
            "per transaction",
            format_args!(
                "{rounds:.2} rounds; verbs: {verbs}; {messages:.2} messages; {bytes:.0} bytes"
            ),
        )?;
        row(f, "phases", parts(&self.phases, |count| count.to_string()))?;
        match self.outcomes.is_empty() {
            true => Ok(()),
            false => {
                let outcomes: Vec<String> =
                    self.outcomes.iter().map(|(name, value)| format!("{name} {value}")).collect();
                row(f, "outcomes", format_args!("{} (all phases)", outcomes.join(", ")))
            }
        }
    }

    fn checks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HistoryReport { verdict: judged, transactions, isolation, seconds, .. } = &self.history;
        match *judged {
            "not recorded" => row(f, "history", "not recorded: there was no verification phase")?,
            judged => row(
                f,
                "history",
                format_args!(
                    "{judged}: {isolation}, {transactions} transactions recorded in the \
                     verification phase ({seconds:.2} s)"
                ),
            )?,
        }
        if let Some(file) = &self.history.file {
            row(f, "", format_args!("written to {file}"))?;
        }
        for invariant in &self.invariants.each {
            let (name, detail) = (invariant.name, &invariant.detail);
            row(f, "invariant", format_args!("{}: {name}: {detail}", verdict(invariant.ok)))?;
        }
        row(f, "audit", format_args!("{}: {}", verdict(self.audit.ok), self.audit.detail))?;
        for failure in self.failures.iter().take(5) {
            row(f, "failure", failure)?;
        }
        if self.failures.len() > 5 {
            row(f, "", format_args!("and {} more failures", self.failures.len() - 5))?;
        }
        match &self.history.counterexample {
            Some(text) => write!(f, "{text}"),
            None => Ok(()),
        }
    }

    fn bare(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for each in &self.baseline_loops {
            let depth = match each.depth {
                Some(depth) => format!("{depth} in flight"),
                None => "as many in flight as the processor allows".to_owned(),
            };
            let mib = each.bytes as f64 / f64::from(1 << 20);
            row(
                f,
                each.name,
                format_args!(
                    "{:.1} ns a line; {depth}; one thread, {mib:.0} MiB, {}",
                    each.ns_per_line, each.pages
                ),
            )?;
        }
        match self.line_round_trip_ns {
            None => Ok(()),
            Some(ns) => row(
                f,
                "line round trip",
                format_args!("{ns:.0} ns from one core to another and back"),
            ),
        }
    }
}
