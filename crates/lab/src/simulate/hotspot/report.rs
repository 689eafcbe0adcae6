//! The results of a moving hotspot, for human readers (`Display`) and for programs (`Serialize`).
//!
//! Invariant: times are virtual. The report compares the throughput after resharding with the throughput of the
//! balanced case in the same intervals. The report uses the last intervals before the hotspot moves on, or before the
//! run ends.

use super::run::HotspotPlan;
use super::trail::{Moved, Trail};
use crate::harness::checks::Checks;
use crate::harness::lines::row;
use crate::harness::phase::Phase;
use crate::simulate::cluster::SimCluster;
use serde::Serialize;
use std::fmt;
use tarn_engine::services::shard_rule::Terms;
use tarn_workloads::Workload;

/// The largest number of intervals, just before the hotspot moves on, that show the effect of resharding.
const LAST: usize = 3;

/// The results of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// The case's name: `balanced`, `not moved` or `moved`.
    pub name: &'static str,
    /// The number of transactions per second, for each interval.
    pub throughput_per_s: Vec<f64>,
    /// The mean throughput of the last intervals, for each period between two moves of the hotspot.
    pub at_last_per_s: Vec<f64>,
    /// The moves of shards.
    pub moved: Vec<Moved>,
    /// The number of moves that the old owner took back.
    pub taken_back: u64,
    /// The median and the 99th percentile of latencies in µs, including the wait for a coordinator.
    pub latency_us: [f64; 2],
    #[serde(skip)]
    pub(super) failures: Vec<String>,
}

impl Case {
    pub(super) fn of(name: &'static str, trail: &Trail, phase: Phase, it: &HotspotPlan) -> Case {
        let interval = it.terms.interval.0;
        let whole = (it.plan.virtual_ms * 1e6) as u64 / interval;
        let seconds = interval as f64 / 1e9;
        let mut ended = trail.ended.borrow().clone();
        ended.resize(whole as usize, 0);
        let throughput_per_s: Vec<f64> = ended.iter().map(|it| *it as f64 / seconds).collect();
        let stay = (it.hotspot.every.0 / interval).max(1) as usize;
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        let last = |stay: &[f64]| mean(&stay[stay.len().saturating_sub(LAST)..]);
        let us = |quantile: f64| phase.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        Case {
            name,
            at_last_per_s: throughput_per_s.chunks(stay).map(last).collect(),
            throughput_per_s,
            moved: trail.moved.borrow().clone(),
            taken_back: trail.taken_back.get(),
            latency_us: [us(0.5), us(0.99)],
            failures: phase.failures,
        }
    }
}

/// The results of the three cases of a hotspot, with the settings of the run.
#[derive(Clone, Debug, Serialize)]
pub struct HotspotReport {
    /// The benchmark's name.
    pub workload: String,
    /// The names of the protocol and of its variant.
    pub protocol: [String; 2],
    /// The hardware profile's name.
    pub profile: String,
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
    /// The number of compute nodes, the number of threads of each node, the number of all
    /// coordinators, and the number of all clients.
    pub compute: [usize; 4],
    /// The length of the whole run, in virtual milliseconds.
    pub virtual_ms: f64,
    /// The length of an interval, in milliseconds.
    pub interval_ms: f64,
    /// The number of hot shards, and the percentage of the writing transactions that these shards get.
    pub hot: [u32; 2],
    /// The time for which the same shards stay hot, in milliseconds.
    pub hot_ms: f64,
    /// The three cases.
    pub cases: Vec<Case>,
    /// The ratio of the final throughput with resharding to the balanced case's throughput, for
    /// each period between two moves of the hotspot.
    pub of_balanced: Vec<f64>,
    /// The mean and the longest interruption of a shard that moved, in µs; `None` if no shard moved.
    pub interruption_us: Option<[f64; 2]>,
    /// The results of the checks of the case in which shards move. No acknowledged transaction may be lost in this
    /// case.
    #[serde(flatten)]
    pub checks: Checks,
}

impl HotspotReport {
    pub(super) fn of<W: Workload>(
        it: &HotspotPlan,
        cluster: &SimCluster,
        cases: Vec<Case>,
        checks: Checks,
    ) -> HotspotReport {
        let shape = &it.plan.config.cluster;
        let [balanced, _, moved] = &cases[..] else { unreachable!("three cases") };
        let ratio = |(is, may): (&f64, &f64)| is / may;
        let of_balanced = moved.at_last_per_s.iter().zip(&balanced.at_last_per_s).map(ratio);
        let took: Vec<f64> = moved.moved.iter().filter_map(|it| it.interruption_us).collect();
        let longest = took.iter().copied().fold(0.0, f64::max);
        let mean = took.iter().sum::<f64>() / took.len().max(1) as f64;
        HotspotReport {
            workload: W::NAME.to_owned(),
            protocol: [shape.protocol.clone(), shape.variant.clone()],
            profile: cluster.config().profile.name.clone(),
            seed: shape.seed,
            compute: [
                shape.compute_nodes,
                it.plan.config.threads,
                it.plan.config.coordinators,
                it.clients,
            ],
            virtual_ms: it.plan.virtual_ms,
            interval_ms: it.terms.interval.0 as f64 / 1e6,
            hot: [it.hotspot.shards, it.hotspot.share_percent],
            hot_ms: it.hotspot.every.0 as f64 / 1e6,
            of_balanced: of_balanced.collect(),
            interruption_us: (!took.is_empty()).then_some([mean, longest]),
            cases,
            checks,
        }
    }
}

fn list(values: &[f64], show: impl Fn(f64) -> String) -> String {
    values.iter().map(|value| show(*value)).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for HotspotReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [protocol, variant] = &self.protocol;
        let [nodes, threads, coordinators, clients] = self.compute;
        let [shards, share] = self.hot;
        let Terms { overload_percent, .. } = Terms::default();
        writeln!(
            f,
            "a hotspot of {} on {protocol} ({variant}), simulated, seed {}",
            self.workload, self.seed
        )?;
        row(f, "hardware", &self.profile)?;
        row!(f, "compute" =>
            "{nodes} compute nodes × {threads} threads, {coordinators} coordinators, {clients} \
             clients")?;
        row!(f, "hot" =>
            "{shards} shards of one node have {share} % of what writes, others every {} ms",
            self.hot_ms)?;
        row!(f, "rule" =>
            "looked at every {} ms; overloaded is {overload_percent} % of the mean unless told \
             otherwise",
            self.interval_ms)?;
        let thousands = |per_s: f64| format!("{:.0}", per_s / 1e3);
        for case in &self.cases {
            writeln!(f, "{}", case.name)?;
            row(f, "ktxn/s", list(&case.throughput_per_s, thousands))?;
            row(f, "at last", list(&case.at_last_per_s, thousands))?;
            let [p50, p99] = case.latency_us;
            row!(f, "latency" => "p50 {p50:.0} µs, p99 {p99:.0} µs")?;
            for it in &case.moved {
                let took =
                    it.interruption_us.map_or("nobody asked".into(), |us| format!("{us:.1} µs"));
                row!(f, "moved" =>
                    "shard {} from {} to {} at {:.1} ms: interrupted for {took}, {} tries refused",
                    it.shard, it.from, it.to, it.at_ms, it.refused)?;
            }
            if case.taken_back > 0 {
                row!(f, "taken back" => "{} moves", case.taken_back)?;
            }
        }
        writeln!(f, "resharding")?;
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        row(f, "of balanced", list(&self.of_balanced, percent))?;
        if let Some([mean, longest]) = self.interruption_us {
            row!(f, "interruption" => "{mean:.1} µs on average, {longest:.1} at most")?;
        }
        writeln!(f, "checks")?;
        self.checks.fmt(f)
    }
}
