//! Runs a sweep: one command, run with every combination of the values of some parameters. Every combination is a
//! point of a grid, and every point is a process of its own.
//!
//! Map:
//! - [`grid`]: makes the points of a sweep from its axes.
//! - [`pool`]: runs points side by side, as far as memory suffices by [`estimate`], and collects the points' reports.
//! - [`report`]: combines the reports for programs and in a table. [`page`]: shows the reports in figures.
//!
//! A point is a list of arguments of this program. So the pool needs only a list of configurations, for example the
//! configurations of a sweep or of a paper's figures:
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use tarn_lab::sweep::{Axis, grid, pool::{Pool, Silent}};
//!
//! let base: Vec<String> = ["sim", "smallbank"].map(String::from).into();
//! let points = grid(&base, &[Axis::parse("replicas=1,3")?, Axis::parse("seed=1,2")?])?;
//! let done = Pool::of_this_program(2)?.run(&points, &Silent, &AtomicBool::new(false))?;
//! for (point, done) in points.iter().zip(&done) {
//!     println!("{}: {}", point.name(), done.report["throughput_per_s"]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariant: a point's report equals the report of a run with the same arguments alone. Points share only the
//! machine, and only the part under `wall` in a report depends on the machine.

pub(crate) mod chart;
pub mod estimate;
pub mod page;
pub mod pool;
pub mod report;
pub(crate) mod style;

use serde::Serialize;
use tarn_store::ids::UsageError;

/// The largest number of points in one sweep.
pub const POINTS_MAX: usize = 1_000;

/// A parameter and its values.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Axis {
    /// The flag's name, without dashes.
    pub name: String,
    /// The values in the order in which the user gave them; each value occurs only once.
    pub values: Vec<String>,
}

impl Axis {
    /// Reads `NAME=VALUE,VALUE,…`; values that contain commas are separated by semicolons.
    ///
    /// # Errors
    /// The error describes the mistake in the text.
    pub fn parse(text: &str) -> Result<Axis, UsageError> {
        let refuse = |allowed: &str| UsageError {
            field: "sweep".into(),
            value: if text.is_empty() { "nothing".into() } else { text.into() },
            allowed: allowed.into(),
        };
        let Some((name, list)) = text.split_once('=') else {
            return Err(refuse("PARAMETER=VALUE,VALUE,…"));
        };
        let name = name.trim().trim_start_matches("--");
        if name.is_empty() {
            return Err(refuse("PARAMETER=VALUE,VALUE,…"));
        }
        let comma = if list.contains(';') { ';' } else { ',' };
        let values: Vec<String> = list.split(comma).map(|value| value.trim().into()).collect();
        if values.iter().any(String::is_empty) {
            return Err(refuse("at least one value, and none empty"));
        }
        if (1..values.len()).any(|at| values[..at].contains(&values[at])) {
            return Err(refuse("every value once"));
        }
        Ok(Axis { name: name.to_owned(), values })
    }
}

/// One run of a sweep.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Point {
    /// The parameters that distinguish the point from the other points, with their values.
    pub labels: Vec<(String, String)>,
    /// The arguments of the program, beginning with the command; the pool adds `--json` when it
    /// runs the point.
    pub arguments: Vec<String>,
    /// The estimated number of bytes of memory that the point takes; 0 if no estimate is known. The
    /// pool runs points side by side only if the machine has enough memory.
    pub memory_bytes: u64,
}

impl Point {
    /// Returns the point's name for human readers: `coordinators=9 replicas=1`, or all arguments if
    /// the point has no labels.
    pub fn name(&self) -> String {
        if self.labels.is_empty() {
            return self.arguments.join(" ");
        }
        let labels: Vec<String> =
            self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        labels.join(" ")
    }
}

/// Returns all combinations of the axes' values, added to the arguments `base`. The first axis
/// varies slowest.
///
/// # Errors
/// Fails if the list of axes is empty, if a parameter occurs twice, or if the sweep would have more than
/// [`POINTS_MAX`] points.
pub fn grid(base: &[String], axes: &[Axis]) -> Result<Vec<Point>, UsageError> {
    let refuse =
        |value: String, allowed: String| Err(UsageError { field: "sweep".into(), value, allowed });
    if axes.is_empty() {
        return refuse("nothing".into(), "PARAMETER=VALUE,VALUE,…".into());
    }
    for (at, axis) in axes.iter().enumerate() {
        if axis.values.is_empty() {
            return refuse(format!("{}=", axis.name), "at least one value".into());
        }
        if axes[..at].iter().any(|earlier| earlier.name == axis.name) {
            return refuse(format!("{} twice", axis.name), "every parameter once".into());
        }
    }
    let count = axes.iter().fold(1usize, |count, axis| count.saturating_mul(axis.values.len()));
    if count > POINTS_MAX {
        return refuse(format!("{count} points"), format!("at most {POINTS_MAX}"));
    }
    let mut points = vec![Point { arguments: base.to_vec(), ..Point::default() }];
    for axis in axes {
        points = points.iter().flat_map(|point| extended(point, axis)).collect();
    }
    Ok(points)
}

/// Returns copies of `point`, one for each value of one more axis.
fn extended<'a>(point: &'a Point, axis: &'a Axis) -> impl Iterator<Item = Point> + 'a {
    axis.values.iter().map(move |value| {
        let mut point = point.clone();
        point.labels.push((axis.name.clone(), value.clone()));
        // The flag and its value are one argument, because the value may begin with a dash.
        point.arguments.push(format!("--{}={value}", axis.name));
        point
    })
}

#[cfg(test)]
mod tests;
