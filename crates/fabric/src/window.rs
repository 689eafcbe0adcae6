//! Intervals of time with bounds. When a thread closes a *window*, it learns whether the window was shorter than a
//! lease. A *wait* does not end before its length has passed.
//!
//! Invariant: a thread may learn that its window was shorter than its lease. If the window was shorter, no wait of
//! the lease's length, on any node, has both begun and ended within this window. No code may conclude more from the
//! answer. A backend that explores every order of events guarantees only this rule, because it has no time. In other
//! backends, [`Drift`] computes windows and waits from one thread's clock. Each rounding makes a lease shorter and a
//! wait longer. No code compares two clocks.

use crate::clock::Nanos;
use std::fmt;

const MILLION: u64 = 1_000_000;

/// A window that is open ([`crate::port::Port::open_window`]). The backend defines the meaning of the number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window(pub u64);

/// The result of closing a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Whether the window was shorter than the lease that the caller passed.
    pub is_shorter: bool,
    /// The length of the window by this thread's clock. If the backend has no time, the length is `None`.
    pub passed: Option<Nanos>,
}

/// A wait that has begun ([`crate::port::Port::begin_wait`]). The backend defines the meaning of the number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait(pub u64);

/// The maximum error of a thread's clock when it measures an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drift {
    ppm: u32,
    tick_ns: u32,
}

impl Drift {
    /// The drift of threads that all read the same clock, which shows whole nanoseconds.
    pub const ONE_CLOCK: Drift = Drift { ppm: 0, tick_ns: 1 };

    /// Creates the drift of clocks that gain or lose at most `ppm` parts per million, and that show multiples of
    /// `tick_ns`.
    ///
    /// # Errors
    /// The error names the impossible field, its value, and the allowed values.
    pub fn new(ppm: u32, tick_ns: u32) -> Result<Drift, DriftError> {
        if u64::from(ppm) >= MILLION {
            let allowed = "0 to 999999";
            return Err(DriftError { field: "drift_ppm", value: ppm, allowed });
        }
        if tick_ns == 0 {
            let allowed = "1 or more: clocks show whole ticks";
            return Err(DriftError { field: "tick_ns", value: tick_ns, allowed });
        }
        Ok(Drift { ppm, tick_ns })
    }

    /// Returns whether a window was shorter than `lease` by every clock within this drift, if one such clock has
    /// measured the length `passed`.
    #[inline]
    pub fn is_shorter(self, passed: Nanos, lease: Nanos) -> bool {
        // If the clock is slow, more time has passed than it shows. In addition, up to one tick more has passed.
        let trusted = u128::from(lease.0) * u128::from(MILLION - u64::from(self.ppm));
        passed.0.saturating_add(u64::from(self.tick_ns)) <= (trusted / u128::from(MILLION)) as u64
    }

    /// Returns the shortest lease for which [`Drift::is_shorter`] returns true for a window of the length `passed`.
    pub fn lease_for(self, passed: Nanos) -> Nanos {
        let shown = u128::from(passed.0.saturating_add(u64::from(self.tick_ns)));
        let lease =
            (shown * u128::from(MILLION)).div_ceil(u128::from(MILLION - u64::from(self.ppm)));
        Nanos(u64::try_from(lease).unwrap_or(u64::MAX))
    }

    /// The maximum rate by which a clock gains or loses time, in parts per million.
    pub fn ppm(self) -> u32 {
        self.ppm
    }

    /// Returns the length of a clock's tick in nanoseconds. The clock shows multiples of the tick's length.
    pub fn tick_ns(self) -> u32 {
        self.tick_ns
    }

    /// Returns the time on a clock at which a wait ends that began when this clock showed `since`. At that time, at
    /// least `wait` has passed by every clock within this drift.
    #[inline]
    pub fn end_of(self, since: Nanos, wait: Nanos) -> Nanos {
        if wait == Nanos(0) {
            return since;
        }
        // If the clock is fast, less time has passed than it shows. In addition, up to one tick less has passed.
        let shown = u128::from(wait.0) * u128::from(MILLION + u64::from(self.ppm));
        let shown = u64::try_from(shown.div_ceil(u128::from(MILLION))).unwrap_or(u64::MAX);
        since + Nanos(shown.saturating_add(u64::from(self.tick_ns)))
    }
}

/// The error for a drift that is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriftError {
    /// The name of the field whose value is not possible.
    pub field: &'static str,
    /// The value that the caller gave.
    pub value: u32,
    /// The values that the field may have.
    pub allowed: &'static str,
}

impl fmt::Display for DriftError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}; allowed: {}", self.field, self.value, self.allowed)
    }
}

impl std::error::Error for DriftError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_those_of_the_worst_clocks() {
        let drift = Drift::new(1_000, 1).expect("below a million");
        let lease = Nanos(20_000);
        assert!(drift.is_shorter(Nanos(19_979), lease), "20 ns in 20 µs, and a tick");
        assert!(!drift.is_shorter(Nanos(19_980), lease));
        assert_eq!(drift.end_of(Nanos(5), lease), Nanos(5 + 20_021));
        assert_eq!(drift.end_of(Nanos(5), Nanos(0)), Nanos(5));
        assert!(!drift.is_shorter(Nanos(0), Nanos(0)), "no time is still a tick");
        assert!(Drift::ONE_CLOCK.is_shorter(Nanos(9), Nanos(10)));
        assert!(!Drift::ONE_CLOCK.is_shorter(Nanos(10), Nanos(10)));
        assert_eq!(drift.end_of(Nanos(1), Nanos(u64::MAX)), Nanos(u64::MAX), "for ever");
    }

    #[test]
    fn the_lease_for_a_window_is_the_shortest_that_does() {
        for ppm in [0, 1, 1_000, 333_333, 999_999] {
            let drift = Drift::new(ppm, 3).expect("below a million");
            for passed in [0, 1, 2, 999, 20_000, 7_654_321].map(Nanos) {
                let lease = drift.lease_for(passed);
                assert!(drift.is_shorter(passed, lease), "{drift:?} {passed} {lease}");
                assert!(!drift.is_shorter(passed, lease - Nanos(1)), "{drift:?} {passed} {lease}");
            }
        }
    }

    #[test]
    fn impossible_values_are_refused_by_field() {
        let refused = |ppm, tick| Drift::new(ppm, tick).expect_err("refused").to_string();
        assert_eq!(refused(1_000_000, 1), "drift_ppm = 1000000; allowed: 0 to 999999");
        assert!(refused(999_999, 0).contains("tick_ns = 0"));
    }
}
