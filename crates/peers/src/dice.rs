//! Seeded randomness of the measurements.
//!
//! Invariant: the same seed gives the same numbers on every machine. SplitMix64: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
//! Generators", OOPSLA 2014.

/// A generator.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of one stream of a seed.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Dice {
        let mut dice = Dice(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        dice.word();
        dice
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence_follows_seed_0() {
        let mut dice = Dice(0);
        assert_eq!([dice.word(), dice.word()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn streams_differ() {
        assert_ne!(Dice::new(1, 0).word(), Dice::new(1, 1).word());
        assert!((0..1000).all(|seed| Dice::new(seed, 0).below(7) < 7));
    }
}
