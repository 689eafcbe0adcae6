//! Random numbers from a seed: each coordinator has its own generator, which is derived from the run's seed.
//!
//! Invariant: the same seed and the same stream number give the same random numbers on every machine. Therefore the
//! generator is a fixed one (xoshiro256++; Blackman and Vigna, "Scrambled linear pseudorandom number generators",
//! TOMS 2021), and not a library's default generator, which may differ between platforms.

use rand::SeedableRng;

/// The random generator that workloads and the engine use.
pub type Rng = rand_xoshiro::Xoshiro256PlusPlus;

/// Returns the generator of the stream with number `stream`, for a run with `seed`. Streams do not overlap in
/// practice, because a 64-bit mixer mixes both numbers before they seed the generator.
pub fn seeded(seed: u64, stream: u64) -> Rng {
    Rng::seed_from_u64(mix(seed ^ mix(stream.wrapping_add(0x9e37_79b9_7f4a_7c15))))
}

/// A bijective 64-bit mixer (the finaliser of MurmurHash3; Appleby, public domain).
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng as _;

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, stream| seeded(seed, stream).next_u64();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
    }
}
