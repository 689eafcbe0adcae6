//! Bounded time. A thread is told whether a *window* was shorter than a lease. A *wait* does not
//! end before its length has passed.
//!
//! Invariant: if a window is said to be shorter than its lease, no wait of the lease's length has
//! both begun and ended within it, on any nodes. Nothing else may be concluded. An explorer of
//! every order enforces nothing else: it has no time. Elsewhere both are [`Drift`]'s arithmetic on
//! one thread's clock. Each rounding makes a lease shorter and a wait longer; two clocks are never
//! compared.

use crate::clock::Nanos;
use std::fmt;

const MILLION: u64 = 1_000_000;

/// A window that is open ([`crate::port::Port::open_window`]); the backend gives the number its
/// meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window(pub u64);

/// A window that has closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Whether it was shorter than the lease that it was held against.
    pub is_shorter: bool,
    /// How long it was by this thread's clock; `None` where there is no time.
    pub passed: Option<Nanos>,
}

/// A wait that has begun ([`crate::port::Port::begin_wait`]); the backend gives the number its
/// meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait(pub u64);

/// How far a thread's clock is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drift {
    ppm: u32,
    tick_ns: u32,
}

impl Drift {
    /// The drift of threads that all read one clock, in whole nanoseconds.
    pub const ONE_CLOCK: Drift = Drift { ppm: 0, tick_ns: 1 };

    /// Clocks gain or lose no more than `ppm`, and show multiples of `tick_ns`.
    ///
    /// # Errors
    /// Names the impossible field, its value, and the allowed values.
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

    /// Given that one clock showed `passed`, returns whether a window was shorter than `lease` by
    /// every clock that drifts no further.
    #[inline]
    pub fn is_shorter(self, passed: Nanos, lease: Nanos) -> bool {
        // On a clock that is slow more time has passed than it shows, and up to a tick more.
        let trusted = u128::from(lease.0) * u128::from(MILLION - u64::from(self.ppm));
        passed.0.saturating_add(u64::from(self.tick_ns)) <= (trusted / u128::from(MILLION)) as u64
    }

    /// Returns the shortest lease that a window of `passed` is shorter than
    /// ([`Drift::is_shorter`]).
    pub fn lease_for(self, passed: Nanos) -> Nanos {
        let shown = u128::from(passed.0.saturating_add(u64::from(self.tick_ns)));
        let lease =
            (shown * u128::from(MILLION)).div_ceil(u128::from(MILLION - u64::from(self.ppm)));
        Nanos(u64::try_from(lease).unwrap_or(u64::MAX))
    }

    /// How far a clock may gain or lose, in parts per million.
    pub fn ppm(self) -> u32 {
        self.ppm
    }

    /// Returns the tick of a clock, in nanoseconds: the clock shows multiples of it.
    pub fn tick_ns(self) -> u32 {
        self.tick_ns
    }

    /// Returns the time on a clock at which a wait has ended that began when the clock showed
    /// `since`. By then at least `wait` has passed by every clock that drifts no further.
    #[inline]
    pub fn end_of(self, since: Nanos, wait: Nanos) -> Nanos {
        if wait == Nanos(0) {
            return since;
        }
        // On a clock that is fast less time has passed than it shows, and up to a tick less.
        let shown = u128::from(wait.0) * u128::from(MILLION + u64::from(self.ppm));
        let shown = u64::try_from(shown.div_ceil(u128::from(MILLION))).unwrap_or(u64::MAX);
        since + Nanos(shown.saturating_add(u64::from(self.tick_ns)))
    }
}

/// A drift that is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriftError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u32,
    /// The allowed values.
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
