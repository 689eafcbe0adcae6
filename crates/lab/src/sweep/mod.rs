//! Sweeps: one command run over a grid of parameters, every point a process of its own.
//!
//! Map: [`grid`] makes points out of axes; [`pool`] runs points side by side and brings back their reports, as far as
//! memory goes by [`estimate`]. [`report`] puts them together for programs and in a table, [`page`] in figures. A point is
//! run with arguments of this program, so a list of configurations (a sweep, a reproduction of a paper's figures) needs
//! nothing else:
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
//! Invariant: a point's report is the report of the same arguments when they are run alone: points share nothing but the
//! machine, and only the part under `wall` in a report depends on the machine.

pub(crate) mod chart;
pub mod estimate;
pub mod page;
pub mod pool;
pub mod report;
pub(crate) mod style;

use serde::Serialize;
use tarn_store::ids::UsageError;

/// Most points of one sweep.
pub const POINTS_MAX: usize = 1_000;

/// A parameter and its values.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Axis {
    /// The flag's name, without dashes.
    pub name: String,
    /// Values in the order in which they were given; none twice.
    pub values: Vec<String>,
}

impl Axis {
    /// Reads `NAME=VALUE,VALUE,…`; values that contain commas are separated by semicolons.
    ///
    /// # Errors
    /// Describes the mistake in the text.
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
    /// The parameters that tell it from the others, with their values.
    pub labels: Vec<(String, String)>,
    /// Arguments of the program, its command first; `--json` is added when it is run.
    pub arguments: Vec<String>,
    /// Memory that it takes, in bytes, as far as one can tell beforehand; 0 if that is unknown. Points run side by side
    /// only as far as this much memory is there.
    pub memory_bytes: u64,
}

impl Point {
    /// Its name for people: `coordinators=9 replicas=1`, or all arguments if it has no labels.
    pub fn name(&self) -> String {
        if self.labels.is_empty() {
            return self.arguments.join(" ");
        }
        let labels: Vec<String> =
            self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        labels.join(" ")
    }
}

/// All combinations of the axes' values on top of `base`, the first axis varying slowest.
///
/// # Errors
/// No axis, one parameter twice, or more than [`POINTS_MAX`] points.
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

/// `point` with each value of one more axis.
fn extended<'a>(point: &'a Point, axis: &'a Axis) -> impl Iterator<Item = Point> + 'a {
    axis.values.iter().map(move |value| {
        let mut point = point.clone();
        point.labels.push((axis.name.clone(), value.clone()));
        // One word: the value may begin with a dash.
        point.arguments.push(format!("--{}={value}", axis.name));
        point
    })
}

#[cfg(test)]
mod tests;
