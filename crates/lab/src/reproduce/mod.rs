//! Published figures, run again on a simulated cluster: what the paper says beside what the model says.
//!
//! Map: a figure is one file and one line of the macro call `figures!`: it says which series of points
//! to run, and which published value each of them stands beside. [`stage`] loads a cluster once and runs
//! points on it; [`curve`] is what came out of a series; [`row`] holds a published value against it;
//! [`report`] is the whole, for programs and for people, [`page`] its curves to look at. [`charge`] is
//! what a system's own software spends otherwise than the profile says, `ford_software` FORD's. [`paper`]
//! makes one page of a paper's whole evaluation: [`lotus`], [`oocc`].
//!
//! Invariant: one hardware profile for each testbed, and no constant of it is chosen for a figure; what a
//! series is charged beside it has its source and standing, and is printed with it. A value that is missed is shown with what was busiest, and one that cannot be simulated yet is shown without
//! a figure. What is printed is a function of the scale and the seed, but for what stands under `wall`.

pub mod charge;
pub mod curve;
mod ford_software;
pub mod lotus;
pub mod oocc;
pub mod page;
pub mod paper;
pub mod report;
pub mod row;
pub mod stage;

use crate::bench::run::RunError;
use crate::harness::watch::Watch;
use report::Reproduction;
use serde::Serialize;
use tarn_store::ids::UsageError;

/// How much of a figure is run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Scale {
    /// `full`, `quick`, or what a caller made up.
    pub name: &'static str,
    /// Accounts, subscribers, warehouses, whatever the workload counts: a layout is loaded with each of
    /// these, one after the other.
    pub sizes: Vec<u64>,
    /// Virtual milliseconds measured at each point.
    pub virtual_ms: f64,
    /// Not counted before.
    pub warm_up_ms: f64,
    /// Virtual milliseconds of a series before its first point, with as many coordinators as it has at most, for what transactions leave
    /// in the memory behind them; 0: none.
    pub soak_ms: f64,
    /// Coordinators of each point.
    pub coordinators: Vec<usize>,
}

/// A published figure that can be run.
#[derive(Clone, Copy)]
pub struct Figure {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Authors, title, where the values stand.
    pub source: &'static str,
    /// All of it, as it was published.
    pub full: fn() -> Scale,
    /// Little enough for a minute.
    pub quick: fn() -> Scale,
    /// Runs it on a seed.
    pub run: fn(&Scale, u64, &dyn Watch) -> Result<Reproduction, RunError>,
}

macro_rules! figures {
    ($($module:ident),+ $(,)?) => {
        $(pub mod $module;)+

        /// Every figure there is.
        pub const ALL: &[Figure] = &[$($module::FIGURE),+];
    };
}

// One line a figure.
figures! {
    lotus_fig_2,
    crest_fig_2,
}

impl Scale {
    /// The largest database of it.
    pub fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or_default()
    }
}

impl Figure {
    /// The figure called `name`.
    ///
    /// # Errors
    /// Names all that there are.
    pub fn by_name(name: &str) -> Result<&'static Figure, UsageError> {
        ALL.iter().find(|figure| figure.name == name).ok_or_else(|| UsageError {
            field: "figure".into(),
            value: name.to_owned(),
            allowed: ALL.iter().map(|figure| figure.name).collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_names_of_their_own() {
        for (index, figure) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|other| other.name != figure.name));
            assert_eq!(Figure::by_name(figure.name).expect("listed").title, figure.title);
        }
        let error = Figure::by_name("fig-none").err().expect("refused").to_string();
        assert!(error.contains("figure = fig-none"), "{error}");
        assert!(error.contains("lotus-fig-2"), "{error}");
    }
}
