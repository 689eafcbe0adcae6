//! The effect of SIGINT and SIGTERM on a command that has something to finish first.
//!
//! Invariant: they set a flag and do nothing else, however often they come: `timeout` sends each
//! twice. SIGQUIT ends the command without waiting.

use super::Stop;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns a flag that a signal sets from now on.
///
/// # Errors
/// A handler that the system refuses.
pub(super) fn flag() -> Result<Arc<AtomicBool>, Stop> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(|error| Stop::Failed(format!("cannot handle signal {signal}: {error}")))?;
    }
    Ok(flag)
}
