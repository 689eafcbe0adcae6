//! Time as a coroutine may see it: a count of nanoseconds and how wrong it may be.
//!
//! Invariant: `earliest ≤ true time ≤ latest`. Backends on one machine have an exact clock; the
//! simulator skews it; protocols that lean on time must use the interval. Only the code that stamps
//! histories sees true time; no protocol does.

use std::fmt;
use std::ops::{Add, Sub};

/// Nanoseconds since the fabric started.
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

/// A reading of the cluster's clock with its bound (the shape of TrueTime: Corbett et al.,
/// "Spanner", OSDI 2012).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockInterval {
    /// True time is not before this.
    pub earliest: Nanos,
    /// True time is not after this.
    pub latest: Nanos,
}
