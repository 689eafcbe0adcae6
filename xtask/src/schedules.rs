//! The swarm: the engine under random scenarios with crashes.
//!
//! Invariant: the seeds are the same on every machine and for every commit. So a failure was caused
//! by the change that is checked; longer runs of the same command look for rare faults. A seed that
//! fails ends the step with the command that replays it.

use std::path::Path;

use crate::cargo;
use crate::error::Error;
use crate::programs;

const FIRST_SEED: &str = "1000000";
const SEEDS: &str = "8000";

/// Runs the step.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    seeds(root, SEEDS, None)
}

/// Runs the first seeds of the swarm, under the protocol that the program chooses or under the
/// given one.
pub(crate) fn seeds(root: &Path, count: &str, protocol: Option<&str>) -> Result<(), Error> {
    let mut command = programs::tarn(root)?;
    command.args(["swarm", "--seeds", count, "--first-seed", FIRST_SEED]);
    if let Some(protocol) = protocol {
        command.args(["--protocol", protocol]);
    }
    cargo::run_visibly(command)
}
