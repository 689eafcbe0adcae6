//! The report of a run: a JSON object for programs and a table for human readers, with the same figures in both.
//!
//! Invariant: the report shows every figure together with the configuration, the seed, the machine and the verdicts
//! of the same run. No history is recorded while times are measured. The verdict on serializability concerns the
//! verification phase, and both forms of the report state this.

use super::bare::BareLoop;
use crate::harness::checks::Checks;
use crate::harness::leases::LeaseReport;
use crate::harness::lines::{named_values, row};
use crate::harness::measured::Measured;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The result of a benchmark run, together with the run's settings.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The benchmark's name.
    pub workload: String,
    /// The protocol's name.
    pub protocol: String,
    /// The protocol's variant.
    pub variant: String,
    /// The name of the fabric on which the transactions ran.
    pub fabric: &'static str,
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
    /// The settings of the run that have no separate field in the report.
    pub config: Chosen,
    /// The processor, the number of cores, and the operating system.
    pub machine: String,
    /// The kind of pages that the memory nodes were granted.
    pub pages: &'static str,
    /// The number of bytes of memory laid out, over all memory nodes and replicas.
    pub memory_bytes: u64,
    /// The number of records loaded.
    pub records: u64,
    /// The time that loading took.
    pub load_seconds: f64,
    /// The figures of the measured phase.
    #[serde(flatten)]
    pub measured: Measured,
    /// The readers' leases in all phases, if the run used any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_leases: Option<LeaseReport>,
    /// The results of the checks of this run.
    #[serde(flatten)]
    pub checks: Checks,
    /// The time that a cacheline takes from one core to another and back; present with two threads
    /// or more.
    pub line_round_trip_ns: Option<f64>,
    /// The cost of bare loads on this machine.
    pub baseline_loops: Vec<BareLoop>,
}

/// The settings of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Chosen {
    /// The number of coordinator threads.
    pub threads: usize,
    /// The number of coordinator threads of one compute node.
    pub threads_per_node: usize,
    /// The number of compute nodes.
    pub compute_nodes: usize,
    /// The number of coroutines of a thread.
    pub coroutines: usize,
    /// The rule that routes transactions to compute nodes, if the protocol's locks have shards.
    pub routing: Option<&'static str>,
    /// The way in which compute nodes request locks from each other, if the cluster has several
    /// nodes and the protocol's locks have shards.
    pub lock_transport: Option<&'static str>,
    /// Whether each thread was pinned to one core.
    pub pinned: bool,
    /// The number of memory nodes.
    pub memory_nodes: usize,
    /// The number of copies of every record.
    pub replicas: usize,
    /// The rule that places records on memory nodes.
    pub placement: &'static str,
    /// The number of addresses that each thread caches.
    pub address_cache: usize,
    /// The kind of memory that the user requested.
    pub memory: &'static str,
    /// The method that keeps reads and writes of a line atomic.
    pub line_atomicity: &'static str,
    /// The name of the workload's profile.
    pub mix_profile: &'static str,
    /// The source of the workload's profile, and the deviations from this source.
    pub mix_profile_note: &'static str,
    /// The parameters that only this workload has, each with its value.
    pub workload: BTreeMap<&'static str, String>,
    /// The length of the warm-up before the measured phase. Transactions of the warm-up are not counted.
    pub warm_up_seconds: f64,
    /// The requested length of the measured phase.
    pub seconds: f64,
    /// The requested length of the verification phase; 0 if no such phase was requested.
    pub verify_seconds: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { workload, protocol, variant, fabric, seed, .. } = self;
        writeln!(f, "{workload} on {protocol} ({variant}), {fabric} fabric, seed {seed}")?;
        self.what_was_run(f)?;
        writeln!(f, "measured phase (no history recorded)")?;
        self.measured.fmt(f)?;
        if let Some(leases) = &self.read_leases {
            leases.fmt(f)?;
        }
        writeln!(f, "checks")?;
        self.checks.fmt(f)?;
        writeln!(f, "the machine's own figures")?;
        self.bare(f)
    }
}

impl Report {
    fn what_was_run(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Chosen { threads, coroutines, compute_nodes, memory_nodes, replicas, .. } = self.config;
        let placement = self.config.placement;
        let numbers = named_values(&self.config.workload);
        row!(f, "profile" => "{} ({numbers})", self.config.mix_profile)?;
        row!(f, "compute" =>
            "{threads} threads × {coroutines} coroutines on {compute_nodes} compute nodes")?;
        row!(f, "memory" =>
            "{memory_nodes} memory nodes, {replicas} replicas, placed by {placement}; {:.1} MiB \
             laid out, {}",
            self.memory_bytes as f64 / f64::from(1 << 20), self.pages)?;
        match self.config.routing {
            Some("by-shard") => row(f, "routing", "by shard: whoever draws, owners run")?,
            Some(_) => row(f, "routing", "none: threads run what they draw")?,
            None => {}
        }
        match self.config.lock_transport {
            Some("calls") => row(f, "others' locks", "by calls within the process")?,
            Some(_) => row(f, "others' locks", "by messages")?,
            None => {}
        }
        row(f, "machine", &self.machine)?;
        row!(f, "loaded" => "{} records in {:.2} s", self.records, self.load_seconds)
    }

    fn bare(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for each in &self.baseline_loops {
            let depth = match each.depth {
                Some(depth) => format!("{depth} in flight"),
                None => "as many in flight as the processor allows".to_owned(),
            };
            let mib = each.bytes as f64 / f64::from(1 << 20);
            row!(f, each.name =>
                "{:.1} ns a line; {depth}; one thread, {mib:.0} MiB, {}",
                each.ns_per_line, each.pages)?;
        }
        match self.line_round_trip_ns {
            None => Ok(()),
            Some(ns) => row!(f, "line round trip" =>
                "{ns:.0} ns from one core to another and back"),
        }
    }
}
