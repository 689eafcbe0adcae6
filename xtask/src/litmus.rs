//! The litmus suite of every order: exhausted without crashes, then a minute with one and two
//! crashes.
//!
//! Invariant: the time does not grow with the number of litmuses or crashes: it is a budget, which
//! is shared out. Without crashes there is no budget, and each litmus that ends is exhausted. A
//! violation ends the step with the command that replays it.

use std::path::Path;

use crate::cargo;
use crate::error::Error;
use crate::programs;

/// The budget with one crash, in seconds.
const SECONDS_WITH: &str = "45";
/// The budget with a second crash, which may hit the node that recovers or mends.
const SECONDS_WITH_TWO: &str = "15";

/// Runs the step.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    for what in [
        // It needs seconds, and ends when everything was seen.
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
