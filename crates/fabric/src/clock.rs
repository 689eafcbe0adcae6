//! The time as a coroutine can read it: a number of nanoseconds, with bounds on its error.
//!
//! Invariant: `earliest ≤ true time ≤ latest`. Backends on one machine have an exact clock, and the simulator gives
//! each node a wrong clock. Protocols whose correctness depends on time must use the interval. Only the code that
//! stamps histories reads the true time. No protocol reads the true time.

use std::fmt;
use std::ops::{Add, Sub};

/// A time, as the number of nanoseconds since the fabric started, or a duration in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Nanos(pub u64);

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} µs", self.0 as f64 / 1e3)
    }
}

/// A reading of the cluster's clock, as an interval that contains the true time (the form follows TrueTime: Corbett
/// et al., "Spanner", OSDI 2012).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockInterval {
    /// The true time is not before `earliest`.
    pub earliest: Nanos,
    /// The true time is not after `latest`.
    pub latest: Nanos,
}
