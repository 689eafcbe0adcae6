//! A curve is a series of measured points. Each point has the throughput and the latency for one number of
//! coordinators.
//!
//! Invariant: the saturation point is the measured point with the fewest coordinators whose throughput reaches
//! [`SATURATED`] of the highest throughput. The saturation point is never interpolated between measured points.

use super::charge::Charge;
use crate::bench::measured::Latency;
use crate::simulate::report::Busy;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The share of the highest throughput from which on a cluster counts as saturated.
pub const SATURATED: f64 = 0.95;

/// The quantity in which the points of a series differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// The points differ in the number of transactions that are in progress at the same time.
    Coordinators,
    /// The points differ in the size of the database, in the workload's unit.
    Size(&'static str),
}

impl Axis {
    /// Returns a point's position on this axis.
    pub fn of(self, point: &Point) -> u64 {
        match self {
            Axis::Coordinators => point.coordinators as u64,
            Axis::Size(_) => point.size,
        }
    }

    /// Returns the unit of the axis.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Coordinators => "coordinators",
            Axis::Size(name) => name,
        }
    }

    /// Returns the unit of the axis in the form that a sentence needs.
    pub fn what(self) -> &'static str {
        match self {
            Axis::Coordinators => "concurrent transactions",
            Axis::Size(name) => name,
        }
    }
}

/// One point: the results of one measured phase.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// The number of transactions in progress at the same time, in the whole cluster.
    pub coordinators: usize,
    /// The number of threads of each compute node.
    pub threads: usize,
    /// The size of the database, in the workload's unit.
    pub size: u64,
    /// The number of transactions that were abandoned because all tries that the system allows were aborted.
    pub given_up: u64,
    /// The number of transactions acknowledged in the measured phase.
    pub committed: u64,
    /// The number of committed transactions per second.
    pub throughput_per_s: f64,
    /// Latencies in virtual microseconds.
    pub latency_us: Latency,
    /// The share of all tries that the protocol aborted.
    pub conflict_rate: f64,
    /// The number of verbs per committed transaction, by kind, including the verbs of aborted
    /// tries.
    pub verbs: BTreeMap<&'static str, f64>,
    /// The number of messages that coordinators send per committed transaction, including messages
    /// of aborted tries. Messages that services send are not counted.
    pub messages: f64,
    /// The number of rounds per committed transaction, including rounds of aborted tries and rounds
    /// for which no coordinator waits.
    #[serde(skip)]
    pub rounds: f64,
    /// The number of times that a transaction enters each phase of its protocol, per committed
    /// transaction, including aborted tries.
    #[serde(skip)]
    pub phases: BTreeMap<&'static str, f64>,
    /// The share of the requested version tables that the nodes had cached; `None` for protocols
    /// that cache no version tables.
    pub remembered: Option<f64>,
    /// The number of payload bytes that one transaction reads.
    pub read_bytes: f64,
    /// The number of payload bytes that one transaction writes.
    pub written_bytes: f64,
    /// The busiest part of each kind of hardware.
    pub busiest: Vec<Busy>,
    /// The busiest part of all the hardware.
    pub bottleneck: Option<Busy>,
}

/// The points of one system, in ascending order along the axis.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The series' name in rows.
    pub name: &'static str,
    /// A description of the system and its layout.
    pub about: &'static str,
    /// The protocol's variant.
    pub variant: &'static str,
    /// The source from which the system takes timestamps, if the system uses timestamps.
    pub timestamps: Option<&'static str>,
    /// Whether the system's transactions run at the nodes that the router chooses.
    pub is_routed: bool,
    /// The charges: constants of the testbed's profile that have other values for this system's own software.
    pub charges: &'static [Charge],
    /// The quantity in which the points differ.
    pub over: Axis,
    /// Whether the system isolates transactions. If it does not, its histories are not checked.
    pub is_safe: bool,
    /// The checker's verdict on the history of a recorded phase with the same configuration.
    pub history: &'static str,
    /// The number of transactions in the recorded phase.
    pub history_transactions: u64,
    /// The failures of transactions that no retry could overcome.
    pub failures: Vec<String>,
    /// The points of the series.
    pub points: Vec<Point>,
}

impl Series {
    /// Returns the point with the highest throughput.
    pub fn peak(&self) -> Option<&Point> {
        let by =
            |one: &&Point, other: &&Point| one.throughput_per_s.total_cmp(&other.throughput_per_s);
        // `max_by` returns the last of several equal points. So the code reverses the points, to get the first of the
        // equal points.
        self.points.iter().rev().max_by(by)
    }

    /// Returns the saturation point, as the text at the top of this file defines it; `None` if the
    /// axis is not the number of coordinators.
    pub fn saturation(&self) -> Option<&Point> {
        if self.over != Axis::Coordinators {
            return None;
        }
        let enough = self.peak()?.throughput_per_s * SATURATED;
        self.points.iter().find(|point| point.throughput_per_s >= enough)
    }

    /// Returns the last point whose throughput is near the highest throughput. The curve is flat beyond the
    /// saturation point, so the highest point of all may be anywhere on the flat part.
    pub fn last_at_peak(&self) -> Option<&Point> {
        let enough = self.peak()?.throughput_per_s * SATURATED;
        self.points.iter().rev().find(|point| point.throughput_per_s >= enough)
    }

    /// Returns the point at this position of the axis.
    pub fn at(&self, place: usize) -> Option<&Point> {
        self.points.iter().find(|point| self.over.of(point) == place as u64)
    }

    /// Appends the points of the same system on a database of another size.
    pub fn join(&mut self, other: Series) {
        if self.history == "accepted" {
            self.history = other.history;
        }
        self.history_transactions += other.history_transactions;
        self.failures.extend(other.failures);
        self.points.extend(other.points);
    }

    /// Returns the number of transactions in flight that keeps the bottleneck busy if no
    /// transaction waits for another. By Little's law, this number is the highest throughput times
    /// the shortest latency.
    pub fn full_at(&self) -> f64 {
        let peak = self.peak().map(|point| point.throughput_per_s);
        peak.unwrap_or_default() * self.shortest_us() / 1e6
    }

    /// Returns the shortest median latency, in virtual microseconds; 0 without points.
    pub fn shortest_us(&self) -> f64 {
        let medians = self.points.iter().map(|point| point.latency_us.p50);
        medians.reduce(f64::min).unwrap_or_default()
    }

    /// Returns the names of the busiest hardware parts at the point with the highest throughput.
    pub fn limit(&self) -> String {
        self.peak().map(Point::limits).unwrap_or_default()
    }
}

impl Point {
    /// Returns the number of verbs of this kind per transaction.
    pub fn verbs_of(&self, kind: &str) -> f64 {
        self.verbs.get(kind).copied().unwrap_or_default()
    }

    /// Returns the names of the busiest hardware parts, and the shares of time for which they were busy.
    pub fn limits(&self) -> String {
        let wanted = ["nic pipeline", "nic atomics", "link out", "cpu"];
        let part = |name| self.busiest.iter().find(|busy| busy.part == name);
        wanted.into_iter().filter_map(part).map(Busy::to_string).collect::<Vec<_>>().join(", ")
    }
}

const BAR: usize = 32;

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} ({})", self.name, self.about, self.variant)?;
        for charge in self.charges {
            writeln!(f, "  {charge}")?;
        }
        if self.is_safe {
            let count = self.history_transactions;
            writeln!(f, "  history {} ({count} transactions recorded apart)", self.history)?;
        } else {
            writeln!(f, "  UNSAFE, simulated for its speed alone: history {}", self.history)?;
        }
        let peak = self.peak().map_or(1.0, |point| point.throughput_per_s).max(1.0);
        let saturation = self.saturation().map(|point| self.over.of(point));
        writeln!(
            f,
            "  {:>12} {:>7} {:>8} {:>8} {:>9}",
            self.over.name(),
            "M txn/s",
            "p50 µs",
            "p99 µs",
            "conflicts"
        )?;
        for point in &self.points {
            let share = point.throughput_per_s / peak;
            let bar = "#".repeat((share * BAR as f64).round() as usize);
            let mark = if saturation == Some(self.over.of(point)) { " <- saturated" } else { "" };
            let Latency { p50, p99, .. } = point.latency_us;
            writeln!(
                f,
                "  {:>12} {:>7.3} {p50:>8.1} {p99:>8.1} {:>7.3} %  {bar}{mark}",
                self.over.of(point),
                point.throughput_per_s / 1e6,
                point.conflict_rate * 100.0
            )?;
        }
        writeln!(f, "  busiest at the peak: {}", self.limit())?;
        for failure in self.failures.iter().take(3) {
            writeln!(f, "  FAILED: {failure}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes a series with these throughputs, for tests.
    pub fn series(throughputs: &[(usize, f64)]) -> Series {
        let latency_us = Latency { mean: 1.1, p50: 1.0, p99: 2.0, p999: 3.0, samples: 1 };
        let points = throughputs.iter().map(|&(coordinators, throughput_per_s)| Point {
            coordinators,
            threads: 1,
            size: 1_000,
            given_up: 0,
            committed: 1,
            throughput_per_s,
            latency_us,
            conflict_rate: 0.0,
            messages: 0.0,
            rounds: 0.0,
            phases: BTreeMap::new(),
            remembered: None,
            verbs: BTreeMap::new(),
            read_bytes: 0.0,
            written_bytes: 0.0,
            busiest: vec![Busy { part: "nic pipeline", of: "memory node 1".into(), share: 0.987 }],
            bottleneck: None,
        });
        Series {
            name: "one",
            about: "a system",
            variant: "corrected",
            timestamps: None,
            is_routed: false,
            charges: &[],
            over: Axis::Coordinators,
            is_safe: true,
            history: "accepted",
            history_transactions: 1,
            failures: Vec::new(),
            points: points.collect(),
        }
    }

    #[test]
    fn the_last_point_near_the_peak_is_found_beyond_the_peak_and_not_where_it_has_fallen() {
        let series = series(&[(9, 5e5), (45, 1e6), (90, 9.9e5), (180, 9.6e5), (540, 9e5)]);
        assert_eq!(series.last_at_peak().map(|point| point.coordinators), Some(180));
    }

    #[test]
    fn saturation_is_the_first_point_near_the_peak() {
        let series = series(&[(9, 5e5), (18, 9e5), (27, 9.6e5), (45, 1e6), (90, 9.9e5)]);
        assert_eq!(series.peak().map(|point| point.coordinators), Some(45));
        assert_eq!(series.saturation().map(|point| point.coordinators), Some(27));
        assert!((series.full_at() - 1.0).abs() < 1e-9); // 1 M transactions/s of 1 µs each
        assert_eq!(series.at(9).map(|point| point.throughput_per_s), Some(5e5));
        assert_eq!(series.limit(), "nic pipeline of memory node 1 99 %");
        let text = series.to_string();
        let saturated: Vec<&str> = text.lines().filter(|line| line.contains("saturated")).collect();
        assert_eq!(saturated.len(), 1);
        assert!(saturated[0].trim_start().starts_with("27 "), "{text}");
    }

    #[test]
    fn a_series_without_points_has_no_saturation() {
        let empty = series(&[]);
        assert!(empty.saturation().is_none() && empty.peak().is_none());
        assert_eq!(empty.limit(), "");
    }
}
