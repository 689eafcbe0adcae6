//! Lets a command finish its work after the signal SIGINT or SIGTERM.
//!
//! Invariant: the two signals set a flag and do nothing else, however often they arrive: `timeout` sends each of them
//! twice. SIGQUIT ends the command without waiting.

use super::Stop;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns a flag that SIGINT and SIGTERM set from now on.
///
/// # Errors
/// If the operating system refuses a signal handler.
pub(super) fn flag() -> Result<Arc<AtomicBool>, Stop> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(|error| Stop::Failed(format!("cannot handle signal {signal}: {error}")))?;
    }
    Ok(flag)
}
