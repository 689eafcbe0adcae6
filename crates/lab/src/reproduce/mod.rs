//! Published figures, run again on a simulated cluster: the paper's values beside the model's
//! values.
//!
//! Map:
//! - [`figure`]: one figure, described by a data file of `crates/lab/data`. The file lists the series of points
//!   to run, and the published values to compare with each series.
//! - [`stage`]: loads a cluster once and runs points on it. [`curve`]: a series of points.
//! - [`row`]: compares a published value with a simulated value.
//! - [`report`]: the whole result, for programs and for human readers. [`page`]: the curves as a page.
//! - [`charge`]: the times of a system's own software that differ from the profile.
//! - [`paper`]: one page for a paper's whole evaluation, described by a data file.
//! - `systems`: reads systems and layouts. [`text`]: keeps the texts of data files.
//!
//! Invariant: each testbed has one hardware profile, and no constant of the profile is chosen for a
//! single figure. A charge has its source and its reliability, and is printed with the series. If a
//! simulated value misses the published value, the row shows the busiest parts. A value that cannot
//! be simulated yet has a row without a simulated value. A report depends only on the scale and the
//! seed, except for `wall`.

pub mod charge;
pub mod curve;
pub mod figure;
pub mod page;
pub mod paper;
pub mod report;
pub mod row;
pub mod stage;
mod systems;
pub mod text;

use serde::{Deserialize, Serialize};
use text::Kept;

/// The extent to which a figure is run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The scale's name: `full`, `quick`, or a name that the caller chose.
    #[serde(deserialize_with = "text::kept_from")]
    pub name: Kept,
    /// The sizes of the database: the numbers of accounts, subscribers, warehouses, or other units
    /// that the workload counts. The layout is loaded with each size of the database, one after the
    /// other.
    #[serde(default)]
    pub sizes: Vec<u64>,
    /// The number of virtual milliseconds that are measured at each point.
    pub virtual_ms: f64,
    /// The number of virtual milliseconds before the measurement, which are not counted.
    pub warm_up_ms: f64,
    /// The number of virtual milliseconds that a series runs before its first point, with its
    /// largest number of coordinators. The uncounted run brings the memory into the state in which
    /// transactions leave it. The value 0 omits the uncounted run.
    pub soak_ms: f64,
    /// The number of coordinators of each point.
    pub coordinators: Vec<usize>,
}

impl Scale {
    /// Returns the size of the scale's largest database.
    pub fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or_default()
    }
}
