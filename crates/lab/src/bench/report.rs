//! The report of a run: an object for programs, a table for people; the same figures in both.
//!
//! Invariant: every figure stands beside its configuration, its seed, the machine and the verdicts of the same run. Times
//! are measured without recording; the verdict on serializability is of the verification phase, and both forms say so.

use super::bare::BareLoop;
use crate::harness::checks::Checks;
use crate::harness::leases::LeaseReport;
use crate::harness::lines::{named_values, row};
use crate::harness::measured::Measured;
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
    /// The fabric that the transactions ran on.
    pub fabric: &'static str,
    /// Seed of every generator.
    pub seed: u64,
    /// Everything else that was chosen.
    pub config: Chosen,
    /// Processor, cores, system.
    pub machine: String,
    /// The kind of pages that the memory nodes were granted.
    pub pages: &'static str,
    /// Memory laid out, over all memory nodes and replicas.
    pub memory_bytes: u64,
    /// Records loaded.
    pub records: u64,
    /// How long loading took.
    pub load_seconds: f64,
    /// The figures of the measured phase.
    #[serde(flatten)]
    pub measured: Measured,
    /// Readers' leases in all phases, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_leases: Option<LeaseReport>,
    /// The findings of the checks.
    #[serde(flatten)]
    pub checks: Checks,
    /// How long a cacheline takes between two cores and back; with two threads or more.
    pub line_round_trip_ns: Option<f64>,
    /// The cost of bare loads on this machine.
    pub baseline_loops: Vec<BareLoop>,
}

/// The configuration that was chosen.
#[derive(Clone, Debug, Serialize)]
pub struct Chosen {
    /// Coordinator threads.
    pub threads: usize,
    /// Coordinator threads of one compute node.
    pub threads_per_node: usize,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Coroutines of a thread.
    pub coroutines: usize,
    /// How transactions come to compute nodes, if the protocol's locks have shards.
    pub routing: Option<&'static str>,
    /// How compute nodes ask each other for locks, if there are several and the protocol's locks have shards.
    pub lock_transport: Option<&'static str>,
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
    /// The kind of memory that was asked for.
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
    /// Length of the measured phase, as asked for.
    pub seconds: f64,
    /// Length of the verification phase, as asked for; 0 for none.
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
