//! The results of a sweep: a JSON object for programs, and a table for human readers.
//!
//! Invariant: the sweep's report contains the points' reports unchanged. The table shows only figures of these
//! reports. If a report does not have a figure, the table shows a dash.

use super::pool::Done;
use super::{Axis, Point};
use crate::harness::checks::UNSAFE_VARIANT;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// The report of a whole sweep.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepReport {
    /// The arguments that all points have in common: the command and its flags.
    pub arguments: Vec<String>,
    /// The varied parameters.
    pub axes: Vec<Axis>,
    /// The points; the first axis varies slowest.
    pub points: Vec<Ran>,
}

/// A point that was run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ran {
    /// The point's parameters, in the order of the axes.
    pub labels: Vec<(String, String)>,
    /// All arguments of the point: the program prints the same report again when it runs with these
    /// arguments and `--json`.
    pub arguments: Vec<String>,
    /// Whether all of the point's checks passed.
    pub passed: bool,
    /// The report that the point's process printed.
    pub report: Value,
}

/// A figure of the points' reports that tables and drawings show.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// The figure's JSON path in the report.
    pub path: &'static str,
    /// The figure's name, unit included.
    pub name: &'static str,
    /// The factor by which the report's value is multiplied before it is shown.
    pub scale: f64,
}

/// The throughput of committed transactions.
pub const THROUGHPUT: Figure =
    Figure { path: "/throughput_per_s", name: "throughput, k transactions/s", scale: 1e-3 };
/// The median latency.
pub const P50: Figure = Figure { path: "/latency_us/p50", name: "p50, µs", scale: 1.0 };
/// The tail latency: the 99th percentile.
pub const P99: Figure = Figure { path: "/latency_us/p99", name: "p99, µs", scale: 1.0 };
/// The far tail latency: the 99.9th percentile.
pub const P999: Figure = Figure { path: "/latency_us/p999", name: "p99.9, µs", scale: 1.0 };
/// The share of tries that the protocol aborted.
pub const CONFLICTS: Figure =
    Figure { path: "/conflict_rate", name: "aborted tries, %", scale: 100.0 };
/// The utilisation of the busiest part of each kind of hardware.
pub const UTILISATION: [Figure; 4] = [
    Figure { path: "/utilisation/nic", name: "NIC", scale: 100.0 },
    Figure { path: "/utilisation/cpu", name: "processors", scale: 100.0 },
    Figure { path: "/utilisation/atomics", name: "atomics at a time, × 100", scale: 100.0 },
    Figure { path: "/utilisation/bandwidth", name: "links", scale: 100.0 },
];

impl Figure {
    /// Returns the figure's value in a report, multiplied by the scale.
    pub fn of(&self, report: &Value) -> Option<f64> {
        report.pointer(self.path)?.as_f64().map(|value| value * self.scale)
    }

    fn shown(&self, report: &Value) -> String {
        self.of(report).map_or_else(|| "–".to_owned(), brief)
    }
}

/// Formats a value with three digits. If the value has more than three digits before the decimal point, all of these
/// digits are shown.
pub(crate) fn brief(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl Ran {
    /// Returns the name of the busiest part of the hardware, and the share of the time for which this part was busy.
    pub fn bottleneck(&self) -> String {
        let of = |name: &str| self.report.pointer(&format!("/bottleneck/{name}"));
        let text = |name: &str| of(name).and_then(Value::as_str);
        match (text("part"), text("of"), of("share").and_then(Value::as_f64)) {
            (Some(part), Some(whose), Some(share)) => {
                format!("{part} of {whose}, {:.1} %", share * 100.0)
            }
            _ => "–".to_owned(),
        }
    }

    /// Returns the verdict on the point's checks. The verdict also says whether the checker judged the point's
    /// history.
    pub fn verdict(&self) -> &'static str {
        match self.report.pointer("/history/verdict").and_then(Value::as_str) {
            _ if !self.passed => "FAILED",
            Some("not recorded") => "ok, no history",
            Some(UNSAFE_VARIANT) => "unsafe variant",
            _ => "ok",
        }
    }

    /// Returns the point's name for human readers.
    pub fn name(&self) -> String {
        Point { labels: self.labels.clone(), ..Point::default() }.name()
    }
}

/// The columns of tables, in this order. These columns follow the columns of the parameters, and precede the columns
/// of the bottleneck and of the verdict.
pub const COLUMNS: [Figure; 5] = [THROUGHPUT, P50, P99, P999, CONFLICTS];

impl SweepReport {
    /// Makes a report from points and their results.
    ///
    /// # Panics
    /// Panics if the number of points and the number of results differ.
    pub fn new(arguments: &[String], axes: &[Axis], points: &[Point], done: Vec<Done>) -> Self {
        assert_eq!(points.len(), done.len(), "a report for every point");
        let ran = |(point, done): (&Point, Done)| Ran {
            labels: point.labels.clone(),
            arguments: point.arguments.clone(),
            passed: done.passed,
            report: done.report,
        };
        SweepReport {
            arguments: arguments.to_vec(),
            axes: axes.to_vec(),
            points: points.iter().zip(done).map(ran).collect(),
        }
    }

    /// Returns the names of the points with a failed check.
    pub fn failed(&self) -> Vec<String> {
        self.points.iter().filter(|point| !point.passed).map(Ran::name).collect()
    }

    /// Returns the table's rows as text; the heading is the first row.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let parameters = self.axes.iter().map(|axis| axis.name.clone());
        let figures = COLUMNS.iter().map(|figure| figure.name.to_owned());
        let rest = ["busiest part".to_owned(), "checks".to_owned()];
        let heading = parameters.chain(figures).chain(rest).collect();
        let row = |point: &Ran| {
            let parameters = point.labels.iter().map(|(_, value)| value.clone());
            let figures = COLUMNS.iter().map(|figure| figure.shown(&point.report));
            let rest = [point.bottleneck(), point.verdict().to_owned()];
            parameters.chain(figures).chain(rest).collect()
        };
        std::iter::once(heading).chain(self.points.iter().map(row)).collect()
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tarn {}: {} points", self.arguments.join(" "), self.points.len())?;
        let rows = self.rows();
        let columns = rows[0].len();
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        // Columns of figures are aligned to the right, and columns of names are aligned to the left.
        let left = self.axes.len() + COLUMNS.len();
        for row in &rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| match at {
                at if at < left => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            });
            writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
