//! The machine's clock: this crate measures processes that run in real time.
//!
//! Invariant: no other file of the crate asks for the time, sleeps, or starts a thread that outlives its function.

use std::time::{Duration, Instant};

/// The time now.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "rates of real processes are measured in real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Sleeps.
#[expect(clippy::disallowed_methods, reason = "a real process takes its time to start")]
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Nanoseconds since `start`.
#[must_use]
pub fn ns_since(start: Instant) -> u64 {
    now().duration_since(start).as_nanos() as u64
}
