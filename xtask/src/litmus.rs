//! Explores the litmus suite with one and with two crashes, for half a minute in all. A test of the
//! laboratory explores the suite completely without crashes (`crates/lab/tests/all/explore.rs`).
//!
//! Invariant: the runs share a budget of time. So the time of these runs does not grow with the number
//! of litmus tests or crashes. If a run finds a violation, the step fails and prints the command that
//! replays the violation.

use std::path::Path;

use crate::cargo;
use crate::error::Error;
use crate::programs;

/// The budget of the run with one crash, in seconds.
const SECONDS_WITH: &str = "20";
/// The budget of the run with a second crash, in seconds. The second crash may hit the node that
/// recovers the first crashed node.
const SECONDS_WITH_TWO: &str = "10";

/// Runs the litmus suite as a step.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    for what in [
        &["explore", "all", "--budget", SECONDS_WITH, "--crashes", "1"],
        &["explore", "all", "--budget", SECONDS_WITH_TWO, "--crashes", "2"],
    ] {
        let mut command = programs::tarn(root)?;
        command.args(what);
        cargo::run_visibly(command)?;
    }
    Ok(())
}
