//! The report of a simulated run: a JSON object for programs and a table for human readers, with the same figures in
//! both.
//!
//! Invariant: all times in seconds and microseconds are virtual. With the same configuration and seed, these times
//! are equal on every machine. All figures that depend on this machine are under `wall`.

use crate::harness::checks::Checks;
use crate::harness::leases::LeaseReport;
use crate::harness::lines::{named_values, row};
use crate::harness::measured::Measured;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use tarn_sim::profile::Change;
use tarn_sim::usage::{Part, PartUse, Usage};
use tarn_store::layout::BucketShape;

/// The result of a simulated run, together with the run's settings.
#[derive(Clone, Debug, Serialize)]
pub struct SimReport {
    /// The benchmark's name.
    pub workload: String,
    /// The protocol's name.
    pub protocol: String,
    /// The protocol's variant.
    pub variant: String,
    /// The fabric that the transactions ran on: always `sim`.
    pub fabric: &'static str,
    /// The hardware profile's name.
    pub profile: String,
    /// Whether the user changed constants of the hardware profile for this run.
    pub profile_modified: bool,
    /// The changed constants, with their new and old values.
    pub overrides: Vec<Change>,
    /// A description of the hardware profile.
    pub hardware: String,
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
    /// The requested length of the measured phase, in virtual milliseconds.
    pub virtual_ms: f64,
    /// The settings of the run that have no separate field in the report.
    pub config: Chosen,
    /// The number of bytes of memory laid out, over all memory nodes and replicas; the simulation
    /// takes fewer bytes.
    pub memory_bytes: u64,
    /// The number of records loaded.
    pub records: u64,
    /// The figures of the measured phase.
    #[serde(flatten)]
    pub measured: Measured,
    /// The readers' leases in all phases, if the run used any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_leases: Option<LeaseReport>,
    /// The number of verbs executed, completions delivered and messages sent in the measured phase.
    pub events: u64,
    /// The part of the hardware that was busy for the largest share of the measured phase.
    pub bottleneck: Option<Busy>,
    /// The shares of the measured phase for which the busiest part of each kind was busy.
    pub utilisation: Utilisation,
    /// The busiest hardware part of each kind, with the name of this part.
    pub busiest: Vec<Busy>,
    /// The digest of all events of all phases: equal runs have equal digests.
    pub digest: String,
    /// The results of the checks of this run.
    #[serde(flatten)]
    pub checks: Checks,
    /// The time and memory that the run took on this machine. Only these figures differ from run to run.
    pub wall: Wall,
}

/// The settings of the simulated run.
#[derive(Clone, Debug, Serialize)]
pub struct Chosen {
    /// The number of compute nodes.
    pub compute_nodes: usize,
    /// The number of threads of each compute node.
    pub threads: usize,
    /// The number of all coordinators.
    pub coordinators: usize,
    /// The number of memory nodes.
    pub memory_nodes: usize,
    /// The number of copies of every record.
    pub replicas: usize,
    /// The rule that places records on memory nodes.
    pub placement: &'static str,
    /// The shape of an index bucket.
    pub bucket: BucketShape,
    /// The number of slots laid out for 100 records.
    pub slots_per_100_records: u32,
    /// The number of addresses that each thread caches.
    pub address_cache: usize,
    /// `warm` if each node knows the addresses of all records when a phase begins, otherwise `cold`.
    pub caches: &'static str,
    /// `retry` if an aborted transaction is tried again, `drop` if its coordinator draws another one.
    pub on_abort: &'static str,
    /// The source of timestamps, if the protocol uses timestamps.
    pub timestamps: Option<&'static str>,
    /// The rule that routes transactions to compute nodes, if the protocol's locks have shards.
    pub routing: Option<&'static str>,
    /// The name of the workload's profile.
    pub mix_profile: &'static str,
    /// The source of the workload's profile, and the deviations from this source.
    pub mix_profile_note: &'static str,
    /// The workload's own parameters.
    pub workload: BTreeMap<&'static str, String>,
    /// The length of the warm-up before the measured phase, in virtual milliseconds. The warm-up is not counted.
    pub warm_up_ms: f64,
    /// The requested length of the verification phase in virtual milliseconds; 0 if no such phase
    /// was requested.
    pub verify_ms: f64,
}

/// A part of the hardware, and the share of the measured phase for which this part was busy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Busy {
    /// The kind of the hardware part.
    pub part: &'static str,
    /// The machine or thread to which the part belongs.
    pub of: String,
    /// The share of the measured phase for which the part was busy.
    pub share: f64,
}

/// The share of time for which the busiest part of each kind of hardware was busy.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Utilisation {
    /// The utilisation of a memory node's pipeline, or of either side of a compute node's NIC.
    pub nic: f64,
    /// The utilisation of a compute node's thread.
    pub cpu: f64,
    /// The average number of atomics that a memory node executes at the same time. Atomics run in
    /// parallel, so this figure is no share.
    pub atomics: f64,
    /// The utilisation of one direction of a link.
    pub bandwidth: f64,
    /// The utilisation of a timestamp node's core, if the cluster has such a node.
    pub timestamp_cpu: Option<f64>,
    /// The utilisation of a control node's core, if the cluster has such a node.
    pub control_cpu: Option<f64>,
}

/// The time and memory that the run took on this machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Wall {
    /// The processor, the number of cores, and the operating system.
    pub machine: String,
    /// The number of seconds that loading took.
    pub load_seconds: f64,
    /// The number of seconds of the verification phase, including the check of its history.
    pub verify_seconds: f64,
    /// The number of seconds of the measured phase, including the warm-up.
    pub measure_seconds: f64,
    /// The number of seconds that the judgement of the memory took.
    pub check_seconds: f64,
    /// The number of events per second of the measured phase, including the warm-up.
    pub events_per_s: f64,
    /// The number of bytes of memory that simulated pages took.
    pub simulated_bytes: u64,
}

/// If even the busiest hardware part is busy for less than this share of the time, no part limits the cluster. In
/// this case, transactions mostly wait for round trips or for each other.
const SATURATED: f64 = 0.9;

impl Utilisation {
    /// Computes the utilisation of the hardware from the usage that the simulator counted.
    pub fn of(used: &Usage) -> Utilisation {
        let most = |parts: &[Part]| {
            let shares = parts.iter().filter_map(|part| used.busiest(*part));
            shares.map(|(share, _)| share).fold(0.0, f64::max)
        };
        Utilisation {
            nic: most(&[Part::Pipeline, Part::Transmit, Part::Receive]),
            cpu: most(&[Part::Processor]),
            atomics: most(&[Part::Atomics]),
            bandwidth: most(&[Part::LinkOut, Part::LinkIn]),
            timestamp_cpu: used.busiest(Part::TimestampCore).map(|(share, _)| share),
            control_cpu: used.busiest(Part::ControlCore).map(|(share, _)| share),
        }
    }
}

impl fmt::Display for Busy {
    /// For atomics, the text shows the number of atomics instead of a share, because atomics run in parallel.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Busy { part, of, share } = self;
        match *part == Part::Atomics.name() {
            true => write!(f, "{part} of {of} {share:.2} at a time"),
            false => write!(f, "{part} of {of} {:.0} %", share * 100.0),
        }
    }
}

/// Returns the busiest hardware part of each kind.
pub fn busiest(used: &Usage) -> Vec<Busy> {
    let busiest = |part: Part| {
        let (share, of) = used.busiest(part)?;
        Some(Busy { part: part.name(), of: of.to_owned(), share })
    };
    Part::ALL.into_iter().filter_map(busiest).collect()
}

/// Returns the hardware part that was busier than all other parts.
pub fn bottleneck(used: &Usage) -> Option<Busy> {
    let (share, PartUse { part, of, .. }) = used.bottleneck()?;
    Some(Busy { part: part.name(), of: of.clone(), share })
}

impl fmt::Display for SimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SimReport { workload, protocol, variant, seed, .. } = self;
        writeln!(f, "{workload} on {protocol} ({variant}), simulated, seed {seed}")?;
        self.what_was_run(f)?;
        writeln!(f, "measured phase, in virtual time (no history recorded)")?;
        self.measured.fmt(f)?;
        if let Some(leases) = &self.read_leases {
            leases.fmt(f)?;
        }
        self.limits(f)?;
        writeln!(f, "checks")?;
        self.checks.fmt(f)?;
        writeln!(f, "what simulating it took")?;
        self.took(f)
    }
}

impl SimReport {
    fn what_was_run(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Chosen { compute_nodes, threads, coordinators, memory_nodes, replicas, .. } =
            self.config;
        let placement = self.config.placement;
        let numbers = named_values(&self.config.workload);
        row!(f, "hardware" => "{}: {}", self.profile, self.hardware)?;
        for Change { key, value, was } in &self.overrides {
            row!(f, "modified" => "{key} = {value} instead of {was}")?;
        }
        row!(f, "profile" => "{} ({numbers})", self.config.mix_profile)?;
        row!(f, "compute" =>
            "{compute_nodes} compute nodes × {threads} threads, {coordinators} coordinators in all")?;
        row!(f, "memory" =>
            "{memory_nodes} memory nodes, {replicas} replicas, placed by {placement}; {:.1} MiB \
             laid out, {} records",
            self.memory_bytes as f64 / f64::from(1 << 20), self.records)?;
        if let Some(source) = self.config.timestamps {
            row!(f, "timestamps" => "by {source}")?;
        }
        if self.config.caches == "warm" {
            row(f, "caches", "warm: each node knows the addresses of all records")?;
        }
        match self.config.routing {
            Some("by-shard") => row(f, "routing", "by shard: clients draw, owners run")?,
            Some(_) => row(f, "routing", "none: coordinators draw their own")?,
            None => {}
        }
        let BucketShape { slots, slot_bytes_min, read_whole } = self.config.bucket;
        let read = if read_whole { "whole buckets" } else { "bins of two slots" };
        row!(f, "index" =>
            "buckets of {slots} slots of {slot_bytes_min} B or more, {} slots for 100 records; \
             lookups read {read}",
            self.config.slots_per_100_records)
    }

    fn limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Utilisation { nic, cpu, atomics, bandwidth, timestamp_cpu, control_cpu } =
            self.utilisation;
        let percent = |share: f64| share * 100.0;
        let mut services = String::new();
        for (name, share) in [("timestamp cpu", timestamp_cpu), ("control cpu", control_cpu)] {
            if let Some(share) = share {
                let _ = write!(services, ", {name} {:.1} %", percent(share));
            }
        }
        row!(f, "utilisation" =>
            "nic {:.1} %, cpu {:.1} %, bandwidth {:.1} %{services}: the busiest of each; atomics \
             {atomics:.2} at a time",
            percent(nic), percent(cpu), percent(bandwidth))?;
        let Some(Busy { part, of, share }) = &self.bottleneck else { return Ok(()) };
        let meaning = match *share >= SATURATED {
            true => "the limit",
            false => "not the limit: transactions wait for round trips or for one another",
        };
        row!(f, "busiest" => "{part} of {of}, {:.1} %: {meaning}", percent(*share))
    }

    fn took(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wall = &self.wall;
        row!(f, "events" =>
            "{} in the measured phase; {:.2} M/s of real time",
            self.events, wall.events_per_s / 1e6)?;
        row!(f, "real time" =>
            "loading {:.2} s, verification {:.2} s, measured {:.2} s, judging {:.2} s",
            wall.load_seconds, wall.verify_seconds, wall.measure_seconds, wall.check_seconds)?;
        let mib = wall.simulated_bytes as f64 / f64::from(1 << 20);
        row!(f, "memory" => "{mib:.1} MiB for simulated pages")?;
        row(f, "machine", &wall.machine)?;
        row(f, "digest", &self.digest)
    }
}
