//! The clocks of nodes, and the interval in which each node knows that the true time lies.
//!
//! Invariant: `earliest ≤ true time ≤ latest`, however wrong a clock is. The reading of a node's clock
//! differs from the true time by the node's offset and drift. The simulation draws offset and drift
//! within the configured bounds. A node knows only the reading of its clock, so the interval is
//! computed from this reading and the two bounds. The reading of a clock never falls.
//!
//! In random mode a port's `now` is the reading of its node's clock, within the bounds of the run's
//! `Chaos`. An observer of a random run stamps histories with the true time. In timed mode `now` is the
//! true time, because latencies are measured by `now`. In timed mode the interval is still computed
//! from a clock within the profile's bounds.
//!
//! In both modes windows and waits are measured by how far a node's clock has advanced since 0, at the
//! clock's own rate. So the lengths of windows and waits depend only on the bound on clock rates. The
//! value of `now` could not measure windows and waits, because a clock that is behind shows 0 until its
//! reading is positive.

use crate::config::{CLOCK_STREAM, Mode};
use crate::profile::Clock as Bounds;
use rand::RngExt as _;
use tarn_fabric::clock::{ClockInterval, Nanos};
use tarn_fabric::rng::seeded;
use tarn_fabric::window::Drift;

/// The true time and the reading of a clock are each rounded to whole nanoseconds. The two roundings
/// together lose up to two nanoseconds.
const TICK_NS: u32 = 2;

/// The clock of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset_ns: f64,
    drift: f64,
    offset_bound_ns: f64,
    drift_bound: f64,
    /// Whether `now` returns the true time instead of the clock's reading (timed mode).
    is_measured_by: bool,
}

impl Clock {
    /// Returns the clock of compute node `slot`.
    pub(crate) fn of(bounds: &Bounds, mode: Mode, seed: u64, slot: usize) -> Clock {
        let mut rng = seeded(seed, CLOCK_STREAM ^ (slot as u64) << 32);
        let mut share = || f64::from(rng.random_range(-1_000..=1_000i32)) / 1e3;
        let (offset_bound_ns, drift_ppm) = match mode {
            Mode::Timed => (bounds.offset_ns.value, bounds.drift_ppm.value),
            Mode::Random(chaos) => {
                (chaos.clock_offset_max_ns as f64, f64::from(chaos.clock_drift_max_ppm))
            }
        };
        let drift_bound = drift_ppm / 1e6;
        let planted_times = match mode {
            Mode::Random(chaos) => chaos.planted_drift_times.max(1),
            Mode::Timed => 1,
        };
        Clock {
            offset_ns: share() * offset_bound_ns,
            drift: share() * drift_bound * f64::from(planted_times),
            offset_bound_ns,
            drift_bound,
            is_measured_by: mode == Mode::Timed,
        }
    }

    /// Returns the clock's reading at the true time `now`, in nanoseconds.
    fn reading(&self, now: Nanos) -> f64 {
        let now = now.0 as f64;
        now + self.offset_ns + self.drift * now
    }

    /// Returns the time that the node takes from its clock. The node's time begins at 0. A clock that
    /// is behind the true time shows 0 until its reading is positive.
    pub(crate) fn now(&self, now: Nanos) -> Nanos {
        if self.is_measured_by { now } else { Nanos(self.reading(now).max(0.0) as u64) }
    }

    /// Returns how far the clock has advanced by the true time `now`.
    pub(crate) fn ran(&self, now: Nanos) -> Nanos {
        Nanos((now.0 as f64 * (1.0 + self.drift)) as u64)
    }

    /// Returns the true time at which the clock has advanced as far as `until`.
    pub(crate) fn ran_at(&self, until: Nanos) -> Nanos {
        first(until.0 as f64 / (1.0 + self.drift), |at| self.ran(at) >= until)
    }

    /// Returns the bound on drift that the node assumes when it measures how far its clock has
    /// advanced.
    pub(crate) fn believed(&self) -> Drift {
        let ppm = (self.drift_bound * 1e6).ceil() as u32;
        Drift::new(ppm, TICK_NS).expect("profiles and chaos bound the drift")
    }

    /// Returns the first true time at which the node's clock shows `until` or later.
    pub(crate) fn shows_at(&self, until: Nanos) -> Nanos {
        if self.is_measured_by || until == Nanos(0) || until == Nanos(u64::MAX) {
            return until;
        }
        let about = (until.0 as f64 - self.offset_ns) / (1.0 + self.drift);
        first(about, |at| self.now(at) >= until)
    }

    /// Returns the interval in which the node knows that the true time lies, when the true time is
    /// `now`.
    pub(crate) fn read(&self, now: Nanos) -> ClockInterval {
        let reading = self.reading(now);
        // `passed` is the largest time that can have passed since the run began. The clock has drifted
        // for at most this time.
        let passed = (reading + self.offset_bound_ns) / (1.0 - self.drift_bound);
        // The bound on the clock's error grows by one nanosecond because the readings are rounded.
        let bound = self.offset_bound_ns + self.drift_bound * passed + 1.0;
        let nanos = |at: f64| Nanos(at.max(0.0) as u64);
        ClockInterval { earliest: nanos(reading - bound), latest: nanos((reading + bound).ceil()) }
    }
}

/// Returns the first moment for which `is_there` holds. The caller must choose `about` so that this
/// moment is near `about`.
fn first(about: f64, is_there: impl Fn(Nanos) -> bool) -> Nanos {
    // Rounding may have removed one or two nanoseconds, so the search for the moment begins two
    // nanoseconds earlier.
    let mut at = Nanos((about.max(0.0) as u64).saturating_sub(2));
    while at.0 < u64::MAX && !is_there(at) {
        at.0 += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Chaos;
    use crate::profile::Profile;

    const TIMES: [u64; 6] = [0, 1, 1_000, 60_000, 50_000_000, 3_600_000_000_000];

    fn clocks(mode: Mode) -> Vec<Clock> {
        let profile = Profile::load("cx3-56g").unwrap();
        (0..20).map(|slot| Clock::of(&profile.clock, mode, 3, slot)).collect()
    }

    fn wild() -> Mode {
        Mode::Random(Chaos {
            clock_offset_max_ns: 50_000,
            clock_drift_max_ppm: 100_000,
            ..Chaos::CALM
        })
    }

    #[test]
    fn the_interval_holds_the_truth_and_the_clocks_differ() {
        for mode in [Mode::Timed, wild()] {
            let clocks = clocks(mode);
            for now in TIMES {
                for clock in &clocks {
                    let ClockInterval { earliest, latest } = clock.read(Nanos(now));
                    assert!(earliest.0 <= now && now <= latest.0, "{clock:?} at {now}");
                }
            }
            let read = |slot: usize| clocks[slot].read(Nanos(50_000_000));
            assert!((1..20).any(|slot| read(slot) != read(0)));
        }
        let read = clocks(Mode::Timed)[1].read(Nanos(50_000_000));
        assert!(read.latest.0 - read.earliest.0 < 12_000);
    }

    #[test]
    fn a_sleeper_wakes_when_its_clock_shows_the_time() {
        for clock in clocks(wild()) {
            for until in TIMES {
                let at = clock.shows_at(Nanos(until));
                assert!(clock.now(at) >= Nanos(until), "{clock:?}: woken early");
                assert!(at == Nanos(0) || clock.now(at - Nanos(1)) < Nanos(until), "woken late");
            }
        }
    }

    #[test]
    fn windows_and_waits_keep_their_promise_by_true_time() {
        let clocks: Vec<_> = [Mode::Timed, wild()].into_iter().map(clocks).collect();
        for clock in clocks.iter().flatten() {
            for (since, length) in TIMES.iter().flat_map(|it| [(*it, 3), (*it, 70_001)]) {
                let (since, length) = (Nanos(since), Nanos(length));
                let end = clock.believed().end_of(clock.ran(since), length);
                let over = clock.ran_at(end);
                assert!(clock.ran(over) >= end && over - since >= length, "{clock:?} at {since}");
                // Because of the rounding, a node that closes a window of this length is never told
                // that the window was shorter than the lease.
                let passed = clock.ran(since + length) - clock.ran(since);
                assert!(!clock.believed().is_shorter(passed, length), "{clock:?} at {since}");
            }
        }
    }

    #[test]
    fn latencies_are_measured_by_true_time() {
        let clock = clocks(Mode::Timed)[1];
        assert_eq!(clock.now(Nanos(50_000_000)), Nanos(50_000_000));
        assert_eq!(clock.shows_at(Nanos(50_000_000)), Nanos(50_000_000));
        assert!(clocks(wild())[1].now(Nanos(50_000_000)) != Nanos(50_000_000));
    }
}
