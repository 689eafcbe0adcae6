//! Runs the litmus suite under every order of events. First the suite is explored completely without
//! crashes. Then runs with one and two crashes get one minute.
//!
//! Invariant: the runs with crashes share a budget of time. So their time does not grow with the number
//! of litmuses or crashes. The run without crashes has no budget, so each litmus that ends is explored
//! completely. A violation ends the step with the command that replays it.

use std::path::Path;

use crate::cargo;
use crate::error::Error;
use crate::programs;

/// The budget of the run with one crash, in seconds.
const SECONDS_WITH: &str = "45";
/// The budget of the run with a second crash, in seconds. The second crash may hit the node that
/// recovers the first one.
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
