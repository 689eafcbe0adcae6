//! The report of a simulated run: an object for programs, a table for people; the same figures in both.
//!
//! Invariant: seconds and microseconds are virtual, and the same for the same configuration and seed on every machine; all
//! figures that depend on this machine stand under `wall`.

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

/// A run's result; see the module's text.
#[derive(Clone, Debug, Serialize)]
pub struct SimReport {
    /// The benchmark.
    pub workload: String,
    /// The protocol.
    pub protocol: String,
    /// Its variant.
    pub variant: String,
    /// The fabric that the transactions ran on: always `sim`.
    pub fabric: &'static str,
    /// The hardware profile.
    pub profile: String,
    /// Whether constants of it were set for this run.
    pub profile_modified: bool,
    /// The constants that were set, with their new and old values.
    pub overrides: Vec<Change>,
    /// A description of that hardware.
    pub hardware: String,
    /// Seed of every generator.
    pub seed: u64,
    /// Virtual milliseconds measured, as asked for.
    pub virtual_ms: f64,
    /// Everything else that was chosen.
    pub config: Chosen,
    /// Memory laid out, over all memory nodes and replicas; simulating it takes less.
    pub memory_bytes: u64,
    /// Records loaded.
    pub records: u64,
    /// The figures of the measured phase.
    #[serde(flatten)]
    pub measured: Measured,
    /// Readers' leases in all phases, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_leases: Option<LeaseReport>,
    /// Verbs executed, completions delivered and messages sent in the measured phase.
    pub events: u64,
    /// The part that was busy for most of the measured phase.
    pub bottleneck: Option<Busy>,
    /// Shares of the measured phase for which the busiest part of each kind was busy.
    pub utilisation: Utilisation,
    /// The busiest part of each kind by name.
    pub busiest: Vec<Busy>,
    /// Digest of all events of all phases: equal for equal runs.
    pub digest: String,
    /// The findings of the checks.
    #[serde(flatten)]
    pub checks: Checks,
    /// The cost on this machine: the only part that differs from run to run.
    pub wall: Wall,
}

/// The configuration that was chosen.
#[derive(Clone, Debug, Serialize)]
pub struct Chosen {
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Threads of each.
    pub threads: usize,
    /// Coordinators in all.
    pub coordinators: usize,
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Copies of every record.
    pub replicas: usize,
    /// Where records go.
    pub placement: &'static str,
    /// The shape of an index bucket.
    pub bucket: BucketShape,
    /// Slots laid out for 100 records.
    pub slots_per_100_records: u32,
    /// Addresses that each thread remembers.
    pub address_cache: usize,
    /// Where timestamps come from, if the protocol takes any.
    pub timestamps: Option<&'static str>,
    /// How transactions come to compute nodes, if the protocol's locks have shards.
    pub routing: Option<&'static str>,
    /// The workload's profile.
    pub mix_profile: &'static str,
    /// Where it is from and how it deviates.
    pub mix_profile_note: &'static str,
    /// The workload's own numbers.
    pub workload: BTreeMap<&'static str, String>,
    /// Not counted before the measured phase, in virtual milliseconds.
    pub warm_up_ms: f64,
    /// Length of the verification phase in virtual milliseconds, as asked for; 0 for none.
    pub verify_ms: f64,
}

/// A part of the hardware, and for which share of the measured phase it was busy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Busy {
    /// The kind of the part.
    pub part: &'static str,
    /// The machine or thread that it belongs to.
    pub of: String,
    /// Share of the time.
    pub share: f64,
}

/// The busiest of each kind.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Utilisation {
    /// A memory node's pipeline, or either side of a compute node's NIC.
    pub nic: f64,
    /// A thread of a compute node.
    pub cpu: f64,
    /// Atomics of a memory node that are executed at a time, on average: they run side by side, so this is no share.
    pub atomics: f64,
    /// One direction of a link.
    pub bandwidth: f64,
    /// A core of a timestamp node, if there is one.
    pub timestamp_cpu: Option<f64>,
    /// A core of a control node, if there is one.
    pub control_cpu: Option<f64>,
}

/// The cost on this machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Wall {
    /// Processor, cores, system.
    pub machine: String,
    /// Loading, in seconds.
    pub load_seconds: f64,
    /// The verification phase, its history's check included.
    pub verify_seconds: f64,
    /// The measured phase, warm-up included.
    pub measure_seconds: f64,
    /// Judging the memory.
    pub check_seconds: f64,
    /// Events of the measured phase, warm-up included, a second.
    pub events_per_s: f64,
    /// Memory that simulated pages took.
    pub simulated_bytes: u64,
}

/// Below this no part limits the cluster: transactions wait for round trips or for one another.
const SATURATED: f64 = 0.9;

impl Utilisation {
    /// Returns the utilisation of this usage.
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
    /// Atomics run side by side, so that a count stands there instead of a share.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Busy { part, of, share } = self;
        match *part == Part::Atomics.name() {
            true => write!(f, "{part} of {of} {share:.2} at a time"),
            false => write!(f, "{part} of {of} {:.0} %", share * 100.0),
        }
    }
}

/// The busiest part of each kind.
pub fn busiest(used: &Usage) -> Vec<Busy> {
    let busiest = |part: Part| {
        let (share, of) = used.busiest(part)?;
        Some(Busy { part: part.name(), of: of.to_owned(), share })
    };
    Part::ALL.into_iter().filter_map(busiest).collect()
}

/// The busiest part of all.
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
