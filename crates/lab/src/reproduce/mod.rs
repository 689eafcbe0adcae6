//! Runs published figures again on a simulated cluster, and shows the paper's values beside the model's values.
//!
//! Map:
//! - [`figure`]: one figure, described by a data file of `crates/lab/data`. The data file lists the series of points
//!   to run, and the published values of each series.
//! - [`stage`]: loads a cluster once and runs points on it. [`curve`]: a series of points.
//! - [`row`]: compares a published value with a simulated value.
//! - [`report`]: the whole result of a figure, for programs and for human readers. [`page`]: the curves as a page.
//! - [`charge`]: the times of a system's own software that differ from the hardware profile.
//! - [`locks`]: runs a paper's evaluation of a lock service, and shows it on one page.
//! - [`paper`]: runs a paper's whole evaluation, which a data file describes, and shows it on one page.
//! - `systems`: reads systems and layouts. [`text`]: keeps the texts of data files.
//!
//! Invariant: each testbed has one hardware profile, and no constant of the profile is chosen for a single figure.
//! Each charge states its source and its reliability, and the report prints it with the series. If a simulated value
//! misses the published value, its row names the busiest hardware parts. A value that cannot be simulated yet has a
//! row without a simulated value. A report depends only on the scale and the seed, except for `wall`.

pub mod charge;
pub mod curve;
pub mod figure;
pub mod locks;
pub mod page;
pub mod paper;
pub mod report;
pub mod row;
pub mod stage;
mod systems;
pub mod text;

use serde::{Deserialize, Serialize};
use text::Kept;

/// The scale of a run: the sizes of the database, the lengths of phases, and the numbers of coordinators.
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
    /// The number of virtual milliseconds for which a series runs before its first point, without counting. The
    /// uncounted run uses the largest number of coordinators, so that the memory reaches the state of a longer run.
    /// The value 0 omits the uncounted run.
    pub soak_ms: f64,
    /// The numbers of coordinators; each number gives one point.
    pub coordinators: Vec<usize>,
}

impl Scale {
    /// Returns the size of the scale's largest database.
    pub fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or_default()
    }
}
