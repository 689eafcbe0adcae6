//! Published figures, run again on a simulated cluster: the paper's values beside the model's.
//!
//! Map: [`figure`] is one figure as a data file of `crates/lab/data` describes it: which series of points to run, and
//! which published value each of them stands beside. [`stage`] loads a cluster once and runs points on it; [`curve`] is
//! a series of points; [`row`] holds a published value against it; [`report`] is the whole, for programs and for people,
//! [`page`] its curves to look at. [`charge`] is the time that a system's own software spends otherwise than the profile
//! says. [`paper`] makes one page of a paper's whole evaluation, from such a file. `systems` reads systems and layouts,
//! [`text`] keeps texts.
//!
//! Invariant: one hardware profile for each testbed, and no constant of it is chosen for a figure. A charge beside it has
//! its source and standing, and is printed with the series. A value that is missed is shown with the busiest parts, and
//! one that cannot be simulated yet is shown without a figure. A report is a function of the scale and the seed, but for
//! `wall`.

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

/// How much of a figure is run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// `full`, `quick`, or a caller's own.
    #[serde(deserialize_with = "text::kept_from")]
    pub name: Kept,
    /// Accounts, subscribers, warehouses, whatever the workload counts: a layout is loaded with each of
    /// these, one after the other.
    #[serde(default)]
    pub sizes: Vec<u64>,
    /// Virtual milliseconds measured at each point.
    pub virtual_ms: f64,
    /// Not counted before.
    pub warm_up_ms: f64,
    /// Virtual milliseconds of a series before its first point, with its largest number of coordinators, for the memory that transactions leave
    /// behind them; 0: none.
    pub soak_ms: f64,
    /// Coordinators of each point.
    pub coordinators: Vec<usize>,
}

impl Scale {
    /// The largest database of it.
    pub fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or_default()
    }
}
