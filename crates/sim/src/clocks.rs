//! What nodes believe of the time.
//!
//! Invariant: `earliest ≤ true time ≤ latest`, however far a clock is off: a reading is off by the
//! node's offset and drift, drawn within the bounds, and the interval allows for the bounds and is
//! computed from the reading, which is all that a node has. A reading never falls.
//!
//! In random mode a port's `now` is its node's reading, with the bounds of the run's `Chaos`; true time
//! is what an observer stamps histories with. In timed mode `now` is true time, because latencies are
//! measured by it, and the interval is that of a clock within the profile's bounds.

use crate::config::{CLOCK_STREAM, Mode};
use crate::profile::Clock as Bounds;
use rand::RngExt as _;
use tarn_fabric::clock::{ClockInterval, Nanos};
use tarn_fabric::rng::seeded;

/// One node's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset_ns: f64,
    drift: f64,
    offset_bound_ns: f64,
    drift_bound: f64,
    /// Whether `now` is the true time.
    is_measured_by: bool,
}

impl Clock {
    /// The clock of compute node `slot`.
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
        Clock {
            offset_ns: share() * offset_bound_ns,
            drift: share() * drift_bound,
            offset_bound_ns,
            drift_bound,
            is_measured_by: mode == Mode::Timed,
        }
    }

    /// What it shows at the true time `now`, in nanoseconds.
    fn reading(&self, now: Nanos) -> f64 {
        let now = now.0 as f64;
        now + self.offset_ns + self.drift * now
    }

    /// What its node takes for the time. It begins at 0, where a clock that is behind stays for as
    /// long as it is behind.
    pub(crate) fn now(&self, now: Nanos) -> Nanos {
        if self.is_measured_by { now } else { Nanos(self.reading(now).max(0.0) as u64) }
    }

    /// The true time from which on the node takes it for `until` or later.
    pub(crate) fn shows_at(&self, until: Nanos) -> Nanos {
        if self.is_measured_by || until == Nanos(0) || until == Nanos(u64::MAX) {
            return until;
        }
        let about = (until.0 as f64 - self.offset_ns) / (1.0 + self.drift);
        // Rounding may have cut a nanosecond or two.
        let mut at = Nanos((about.max(0.0) as u64).saturating_sub(2));
        while self.now(at) < until {
            at.0 += 1;
        }
        at
    }

    /// What its node knows of the true time `now`.
    pub(crate) fn read(&self, now: Nanos) -> ClockInterval {
        let reading = self.reading(now);
        // So much time may have passed since the run began, and drifted.
        let passed = (reading + self.offset_bound_ns) / (1.0 - self.drift_bound);
        // One more nanosecond for rounding.
        let bound = self.offset_bound_ns + self.drift_bound * passed + 1.0;
        let nanos = |at: f64| Nanos(at.max(0.0) as u64);
        ClockInterval { earliest: nanos(reading - bound), latest: nanos((reading + bound).ceil()) }
    }
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
    fn latencies_are_measured_by_true_time() {
        let clock = clocks(Mode::Timed)[1];
        assert_eq!(clock.now(Nanos(50_000_000)), Nanos(50_000_000));
        assert_eq!(clock.shows_at(Nanos(50_000_000)), Nanos(50_000_000));
        assert!(clocks(wild())[1].now(Nanos(50_000_000)) != Nanos(50_000_000));
    }
}
