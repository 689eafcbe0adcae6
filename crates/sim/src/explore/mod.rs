//! The exhaustive scheduler: every order of whatever the contract leaves open, within stated bounds.
//!
//! Map:
//! - [`ExploreConfig`]: the cluster, its faults, the bounds. [`Model`]: what is explored.
//! - [`explore`], [`replay`], [`shrink`]: what can be done with a model.
//! - [`ExploreFabric`]: the cluster as a model holds it. [`End`]: a final state, for the judge.
//!
//! A coroutine cannot be copied, so an execution is run from the start along its choices, as loom and
//! shuttle do, and then goes on depth first. What identifies a state, which choices are left out and
//! why that loses nothing: `docs/design/0011-explorer.md`.
//!
//! Invariant: no cost, no clock, no randomness: an execution is a function of model, configuration and
//! choices. What is left out is left out by an argument, and tests compare it with plain enumeration.

mod actor;
mod backend;
mod config;
mod enabled;
mod fabric;
mod flight;
mod hash;
mod land;
mod machine;
mod memory;
mod messages;
mod moments;
mod objects;
mod parts;
mod replay;
mod report;
mod schedule;
mod search;
mod sharing;
mod shrink;
mod state;
mod table;
mod time;
#[cfg(test)]
mod time_tests;
mod trace;
mod transition;
mod world;

pub use actor::{Actor, Fault, Trigger};
pub use config::{Bounds, ExploreConfig, FaultBudget, GROUP_BYTES_MAX, Planted, Reduction};
pub use fabric::{Begin, End, ExploreFabric};
pub use moments::has_moments;
pub use report::{
    ActorEnd, Bound, Explored, Fate, Mark, Marked, Outcome, Progress, Replayed, Summary, Violation,
};
pub use schedule::{Schedule, ScheduleError};
pub use trace::{Step, What};

use crate::config::ConfigError;
use std::ops::ControlFlow;

/// What is explored: a loaded database, the coroutines that run on it, and what must hold afterwards.
pub trait Model {
    /// Writes what memory holds before anything runs. Called once; what it leaves in memory is there at
    /// the start of each execution. Rounds of ports are done at once.
    fn load(&self, cluster: &ExploreFabric);

    /// Builds the coroutines, for each execution anew. Rounds of ports are done at once here too. Must
    /// do the same each time, and has to be fast: it is called as often as there are executions.
    fn build(&self, cluster: &ExploreFabric) -> Vec<Actor>;

    /// Judges a final state; called once for each that is new, and for some that are not.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    fn judge(&self, end: &End<'_>) -> Result<(), String>;
}

/// Explores `model`; `progress` is told now and then, and may end it.
///
/// # Errors
/// A configuration that cannot be.
///
/// # Panics
/// If the model is no function of its schedule.
pub fn explore(
    model: &dyn Model,
    config: &ExploreConfig,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Explored, ConfigError> {
    config.check()?;
    Ok(search::Search::new(model, config).run(progress))
}

/// Runs one schedule, and judges where it ends. Where the schedule ends before the execution does, the
/// first thing happens that must.
///
/// # Errors
/// A configuration that cannot be, or a schedule that names a choice that was not there.
pub fn replay(
    model: &dyn Model,
    config: &ExploreConfig,
    schedule: &Schedule,
) -> Result<Replayed, ConfigError> {
    replay::by_schedule(model, config, schedule)
}

/// Makes a violation's schedule shorter and lets it change less often between actors, as long as the
/// judge objects to something.
///
/// # Errors
/// A configuration that cannot be, or a schedule that names a choice that was not there.
pub fn shrink(
    model: &dyn Model,
    config: &ExploreConfig,
    violation: &Violation,
) -> Result<Violation, ConfigError> {
    shrink::shrink(model, config, violation)
}
