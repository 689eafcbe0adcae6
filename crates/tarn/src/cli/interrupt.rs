//! What SIGINT and SIGTERM do to a command that has something to finish first.
//!
//! Invariant: the first signal sets a flag and does nothing else; a second one ends the program as if
//! nobody had asked for it.

use super::Stop;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// From now on a signal sets this.
///
/// # Errors
/// A handler that the system refuses.
pub(super) fn flag() -> Result<Arc<AtomicBool>, Stop> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: handlers are called as they were registered, and the first signal is to find
        // the flag unset.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| Stop::Failed(format!("a handler of signal {signal}: {error}")))?;
    }
    Ok(flag)
}
