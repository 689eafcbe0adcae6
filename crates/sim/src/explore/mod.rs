//! The exhaustive scheduler: it tries every order that the contract leaves open, within stated bounds.
//!
//! Map:
//! - [`ExploreConfig`]: the cluster, its faults and the bounds. [`Model`]: the program that is
//!   explored.
//! - [`explore`], [`replay`], [`shrink`]: the operations on a model.
//! - [`ExploreFabric`]: the cluster, as a model sees it. [`End`]: a final state, for the judge.
//!
//! A coroutine cannot be copied. So the explorer runs each execution from the start along chosen
//! transitions, as loom and shuttle do. After these transitions the explorer continues depth first.
//! `docs/design/0011-explorer.md` says how the explorer identifies a state and which choices it
//! omits. The document also says why the omitted choices hide no violation.
//!
//! Invariant: an exploration uses no costs, no clock and no randomness. An execution is a function of
//! model, configuration and choices. The design document justifies every omission of choices. Tests
//! compare the results with those of plain enumeration.

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

/// The program that is explored: a loaded database, the coroutines that run on it, and the condition
/// that must hold at the end.
pub trait Model {
    /// Writes the initial contents of memory. The explorer calls this function once, and each
    /// execution starts with these contents. During the call of `load` the explorer executes rounds
    /// of ports immediately.
    fn load(&self, cluster: &ExploreFabric);

    /// Builds the coroutines. The explorer calls this function once for each execution, so it must be
    /// fast. Each call must build the same coroutines. During the call of `build` the explorer
    /// executes rounds of ports immediately.
    fn build(&self, cluster: &ExploreFabric) -> Vec<Actor>;

    /// Judges a final state. The explorer calls this function once for each new final state, and again
    /// for some final states that are not new.
    ///
    /// # Errors
    /// A readable description of the fault in the final state.
    fn judge(&self, end: &End<'_>) -> Result<(), String>;
}

/// Explores `model`. The explorer calls `progress` from time to time, and `progress` may end the
/// exploration.
///
/// # Errors
/// The configuration is impossible.
///
/// # Panics
/// If an execution of the model does not depend on its schedule alone.
pub fn explore(
    model: &dyn Model,
    config: &ExploreConfig,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Explored, ConfigError> {
    config.check()?;
    Ok(search::Search::new(model, config).run(progress))
}

/// Runs one schedule, and judges the final state. If the schedule ends before the execution, each
/// further step takes the first transition that must happen.
///
/// # Errors
/// The configuration is impossible, or the schedule names a choice that did not exist.
pub fn replay(
    model: &dyn Model,
    config: &ExploreConfig,
    schedule: &Schedule,
) -> Result<Replayed, ConfigError> {
    replay::by_schedule(model, config, schedule)
}

/// Shortens a violation's schedule, and reduces the number of changes between actors in it. The judge
/// must still object to the shortened execution.
///
/// # Errors
/// The configuration is impossible, or the schedule names a choice that did not exist.
pub fn shrink(
    model: &dyn Model,
    config: &ExploreConfig,
    violation: &Violation,
) -> Result<Violation, ConfigError> {
    shrink::shrink(model, config, violation)
}
