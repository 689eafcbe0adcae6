//! Which lock a request is for: uniform, or Zipf, whose ranks are the locks' own order or scattered over them.
//!
//! Invariant: a lock is below the number of locks. Ranks are scattered by a bijection.
//! Workloads scatter theirs by another bijection (`tarn-workloads`, keys of 64 bits); the ranks are of one crate.

use super::{Words, below};
use tarn_zipf::Zipf;

/// How unevenly locks are requested.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Skew {
    /// All locks alike.
    Uniform,
    /// The lock of rank r is requested r^theta times less often than the first.
    Zipf {
        /// The exponent.
        theta: f64,
        /// Neighbours in rank are no neighbours in the order of the locks.
        scattered: bool,
    },
}

impl Skew {
    /// FissLock's text: YCSB's .99, with scattered ranks.
    pub const TEXT: Skew = Skew::Zipf { theta: 0.99, scattered: true };
    /// FissLock's public generator of traces: .90, and lock 0 is the hottest.
    pub const CODE: Skew = Skew::Zipf { theta: 0.90, scattered: false };
    /// The exponent with which the shares that FissLock's text reports come out: 56.7 % of the requests at the first of eight ranges, 27 % at
    /// the 10,000 hottest of a million locks.
    pub const SHARES: Skew = Skew::Zipf { theta: 0.73, scattered: false };
}

/// Draws locks.
#[derive(Clone, Debug)]
pub struct Picker {
    locks: u32,
    zipf: Option<(Zipf, bool)>,
}

impl Picker {
    /// Draws from locks 0 to `locks`, which is not 0.
    ///
    /// # Panics
    /// If there are no locks, or the exponent is not between 0 and 4.
    #[must_use]
    pub fn new(locks: u32, skew: Skew) -> Picker {
        assert!(locks > 0, "no locks");
        let zipf = match skew {
            Skew::Uniform => None,
            Skew::Zipf { theta, scattered } => {
                assert!((0.0..=4.0).contains(&theta), "theta = {theta}");
                Some((Zipf::new(u64::from(locks), theta), scattered))
            }
        };
        Picker { locks, zipf }
    }

    /// The number of locks.
    #[must_use]
    pub fn locks(&self) -> u32 {
        self.locks
    }

    /// Draws a lock.
    pub fn pick(&self, words: Words) -> u32 {
        match &self.zipf {
            None => below(words, u64::from(self.locks)) as u32,
            Some((zipf, scattered)) => {
                // 53 bits: as many as the fraction of a number has.
                let unit = || (words() >> 11) as f64 / (1u64 << 53) as f64;
                let rank = (zipf.draw(unit) - 1) as u32;
                if *scattered { self.scatter(rank) } else { rank }
            }
        }
    }

    /// A bijection: steps over a mixer of the next power of two until a lock is hit.
    fn scatter(&self, rank: u32) -> u32 {
        let bits = 32 - (self.locks - 1).leading_zeros();
        if bits == 0 {
            return 0;
        }
        let mask = u32::MAX >> (32 - bits);
        let mut lock = rank;
        loop {
            lock = lock.wrapping_mul(0x9e37_79b1) & mask;
            lock ^= lock >> (bits / 2).max(1);
            lock = lock.wrapping_mul(0x85eb_ca6b) & mask;
            lock ^= lock >> (bits / 3).max(1);
            if lock < self.locks {
                return lock;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::words;
    use super::*;

    const MILLION: u32 = 1_000_000;

    /// The exact share of the ranks, from 1, for which `is_in` holds.
    fn share(theta: f64, is_in: impl Fn(u32) -> bool) -> f64 {
        let weight = |rank: u32| f64::from(rank).powf(-theta);
        let sum: f64 = (1..=MILLION).map(weight).sum();
        (1..=MILLION).filter(|rank| is_in(rank - 1)).map(weight).sum::<f64>() / sum
    }

    fn drawn(skew: Skew, is_in: impl Fn(u32) -> bool) -> f64 {
        let (picker, mut words) = (Picker::new(MILLION, skew), words(7));
        let hits = (0..200_000).filter(|_| is_in(picker.pick(&mut words))).count();
        hits as f64 / 200_000.0
    }

    #[test]
    fn the_shares_of_the_text_need_another_exponent_than_its_code_has() {
        let first_range = |lock| lock < MILLION / 8;
        let hottest = |lock| lock < 10_000;
        let first_home = |lock| lock % 8 == 0;
        for (theta, is_in, expected) in [
            (0.73, first_range as fn(u32) -> bool, 0.567),
            (0.73, hottest, 0.27),
            (0.90, first_home, 0.15),
            (0.90, hottest, 0.52),
        ] {
            let exact = share(theta, is_in);
            assert!((exact - expected).abs() < 0.01, "{theta}: {exact}, not {expected}");
            let drawn = drawn(Skew::Zipf { theta, scattered: false }, is_in);
            assert!((drawn - exact).abs() < 0.005, "{theta}: drawn {drawn}, exact {exact}");
        }
        assert_eq!(Skew::SHARES, Skew::Zipf { theta: 0.73, scattered: false });
    }

    #[test]
    fn scattered_ranks_are_a_permutation() {
        for locks in [1, 2, 3, 1_000, 4_096, 5_001] {
            let picker = Picker::new(locks, Skew::TEXT);
            let mut seen: Vec<_> = (0..locks).map(|rank| picker.scatter(rank)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..locks), "{locks}");
        }
        let homes = drawn(Skew::TEXT, |lock| lock < MILLION / 8);
        assert!(homes < 0.25, "the first range has {homes} of the requests");
    }

    #[test]
    fn uniform_picks_reach_both_ends() {
        let (picker, mut words) = (Picker::new(10, Skew::Uniform), words(1));
        let mut counts = [0; 10];
        (0..1_000_000).for_each(|_| counts[picker.pick(&mut words) as usize] += 1);
        // Each count has a deviation of 300.
        assert!(counts.iter().all(|count| (98_500..101_500).contains(count)), "{counts:?}");
    }
}
