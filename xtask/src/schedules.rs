//! Runs the engine under many random scenarios with crashes.
//!
//! Invariant: the seeds are the same on every machine and for every commit. So a new failure is
//! caused by the change that is checked. Longer runs of the same command search for rare faults. If a
//! seed fails, the step fails and prints the command that replays this seed.

use std::path::Path;

use crate::cargo;
use crate::error::Error;
use crate::programs;

const FIRST_SEED: &str = "1000000";
const SEEDS: &str = "8000";

/// Runs the random scenarios as a step.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    seeds(root, SEEDS, None)
}

/// Runs the first `count` seeds. The seeds run under the given protocol, or under the protocol that the
/// program chooses.
pub(crate) fn seeds(root: &Path, count: &str, protocol: Option<&str>) -> Result<(), Error> {
    let mut command = programs::tarn(root)?;
    command.args(["swarm", "--seeds", count, "--first-seed", FIRST_SEED]);
    if let Some(protocol) = protocol {
        command.args(["--protocol", protocol]);
    }
    cargo::run_visibly(command)
}
