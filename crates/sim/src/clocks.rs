//! What nodes believe of the time.
//!
//! Invariant: `earliest ≤ true time ≤ latest`, however far a clock is off: a reading is off by the
//! node's offset and drift, drawn within the profile's bounds, and the interval allows for the bounds.
//! A port's `now` is the true time, one for the cluster: it stamps histories, which are judged across
//! nodes. Protocols that compare times of different nodes ask for the interval.

use crate::config::CLOCK_STREAM;
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
}

impl Clock {
    /// The clock of compute node `slot`.
    pub(crate) fn of(bounds: &Bounds, seed: u64, slot: usize) -> Clock {
        let mut rng = seeded(seed, CLOCK_STREAM ^ (slot as u64) << 32);
        let mut share = || f64::from(rng.random_range(-1_000..=1_000i32)) / 1e3;
        let offset_bound_ns = bounds.offset_ns.value;
        let drift_bound = bounds.drift_ppm.value / 1e6;
        Clock {
            offset_ns: share() * offset_bound_ns,
            drift: share() * drift_bound,
            offset_bound_ns,
            drift_bound,
        }
    }

    /// What it shows at the true time `now`.
    pub(crate) fn read(&self, now: Nanos) -> ClockInterval {
        let now = now.0 as f64;
        let reading = now + self.offset_ns + self.drift * now;
        // One more nanosecond for rounding.
        let bound = self.offset_bound_ns + self.drift_bound * now + 1.0;
        let nanos = |at: f64| Nanos(at.max(0.0) as u64);
        ClockInterval { earliest: nanos(reading - bound), latest: nanos((reading + bound).ceil()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn the_interval_holds_the_truth_and_the_clocks_differ() {
        let profile = Profile::load("cx3-56g").unwrap();
        let clocks: Vec<Clock> = (0..20).map(|slot| Clock::of(&profile.clock, 3, slot)).collect();
        for now in [0, 1, 1_000, 50_000_000, 3_600_000_000_000] {
            for clock in &clocks {
                let ClockInterval { earliest, latest } = clock.read(Nanos(now));
                assert!(earliest.0 <= now && now <= latest.0);
            }
        }
        let read = |slot: usize| clocks[slot].read(Nanos(50_000_000));
        assert!((1..20).any(|slot| read(slot) != read(0)));
        assert!(read(1).latest.0 - read(1).earliest.0 < 12_000);
    }
}
