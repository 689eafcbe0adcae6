//! Keys: which entry each operation uses.
//!
//! Invariant: a stream depends on its seed alone, so that all tables get the same keys in the same order.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Returns the key of an entry: a bijection on 64 bits (the finalizer of SplitMix64: Steele, Lea, Flood, "Fast Splittable
/// Pseudorandom Number Generators", OOPSLA 2014).
#[inline(always)]
pub fn key_of(entry: u64) -> u64 {
    let mixed = entry.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Returns uniformly chosen entries.
pub fn uniform(entries: u64, seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    std::iter::repeat_with(move || {
        let draw: u64 = random.random();
        ((u128::from(draw) * u128::from(entries)) >> 64) as u64
    })
}

/// The exponent of the skewed stream, as in YCSB (Cooper et al., SoCC 2010).
const ZIPF_THETA: f64 = 0.99;

/// A skewed choice of entries (Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994).
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    entries: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// Prepares the choice between a number of entries.
    pub fn new(entries: u64) -> Self {
        let zeta = zeta(entries);
        let n = entries as f64;
        let eta = (1.0 - (2.0 / n).powf(1.0 - ZIPF_THETA)) / (1.0 - zeta_exact(2) / zeta);
        Self { entries: n, zeta, alpha: 1.0 / (1.0 - ZIPF_THETA), eta }
    }

    /// Returns chosen entries.
    pub fn stream(self, seed: u64) -> impl Iterator<Item = u64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        std::iter::repeat_with(move || {
            let u: f64 = random.random();
            let uz = u * self.zeta;
            if uz < 1.0 {
                return 0;
            }
            if uz < 1.0 + 0.5_f64.powf(ZIPF_THETA) {
                return 1;
            }
            let rank = self.entries * (self.eta * u - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.entries as u64 - 1)
        })
    }
}

fn zeta_exact(n: u64) -> f64 {
    (1..=n).map(|rank| (rank as f64).powf(-ZIPF_THETA)).sum()
}

/// Returns the sum of `rank^-theta`: exact for the first million ranks, and by the integral for the rest.
fn zeta(n: u64) -> f64 {
    const EXACT: u64 = 1_000_000;
    if n <= EXACT {
        return zeta_exact(n);
    }
    let power = 1.0 - ZIPF_THETA;
    zeta_exact(EXACT) + ((n as f64).powf(power) - (EXACT as f64).powf(power)) / power
}
