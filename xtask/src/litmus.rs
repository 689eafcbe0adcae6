//! Runs the litmus suite under every order of events. The step first explores the suite completely
//! without crashes. Then the step explores the suite with one and with two crashes, for one minute in
//! all.
//!
//! Invariant: the runs with crashes share a budget of time. So the time of these runs does not grow
//! with the number of litmus tests or crashes. The run without crashes has no budget, so it explores
//! each litmus test completely. If a run finds a violation, the step fails and prints the command
//! that replays the violation.

use std::path::Path;

use crate::cargo;
use crate::error::Error;
use crate::programs;

/// The budget of the run with one crash, in seconds.
const SECONDS_WITH: &str = "45";
/// The budget of the run with a second crash, in seconds. The second crash may hit the node that
/// recovers the first crashed node.
const SECONDS_WITH_TWO: &str = "15";

/// Runs the litmus suite as a step.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    for what in [
        // The run without crashes needs seconds. The run without crashes ends when every order of
        // events was explored.
        &["explore", "all", "--crashes", "0"][..],
        &["explore", "all", "--budget", SECONDS_WITH, "--crashes", "1"],
        &["explore", "all", "--budget", SECONDS_WITH_TWO, "--crashes", "2"],
    ] {
        let mut command = programs::tarn(root)?;
        command.args(what);
        cargo::run_visibly(command)?;
    }
    Ok(())
}
