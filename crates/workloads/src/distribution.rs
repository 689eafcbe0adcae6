//! Draws the keys of the records that transactions use. The distribution is uniform, or Zipf with its
//! ranks scattered over the keys.
//!
//! Invariant: the same generator state gives the same key on every machine. A bijection scatters the
//! ranks, so that the hottest keys are not neighbours. YCSB also scatters its keys (Cooper et al.,
//! SoCC 2010).

use rand::{Rng as _, RngExt};
use tarn_fabric::rng::{Rng, mix};
use tarn_store::ids::UsageError;
use tarn_zipf::Zipf;

/// A distribution of keys over `0..records`.
#[derive(Clone, Debug)]
pub struct Keys {
    records: u64,
    zipf: Option<Zipf>,
}

impl Keys {
    /// Creates the Zipf distribution with exponent `theta`. The exponent 0 means the uniform
    /// distribution.
    ///
    /// # Errors
    /// The exponent is negative or not finite, or the number of records is 0.
    pub fn new(records: u64, theta: f64) -> Result<Keys, UsageError> {
        let refuse = |field: &str, value: String, allowed: &str| UsageError {
            field: field.into(),
            value,
            allowed: allowed.into(),
        };
        if records == 0 {
            return Err(refuse("records", "0".into(), "1 or more"));
        }
        if !theta.is_finite() || !(0.0..=4.0).contains(&theta) {
            return Err(refuse("zipf", theta.to_string(), "0 (uniform) to 4"));
        }
        let zipf = match theta {
            0.0 => None,
            _ => Some(Zipf::new(records, theta)),
        };
        Ok(Keys { records, zipf })
    }

    /// Draws a key.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match &self.zipf {
            None => rng.random_range(0..self.records),
            Some(zipf) => self.scatter(zipf.draw(|| rng.random()) - 1),
        }
    }

    /// Draws a key, and creates dice for the transaction's other draws. If keys are uniform, one call
    /// of the generator gives both the key and the dice.
    #[inline]
    pub fn draw_with_dice(&self, rng: &mut Rng) -> (u64, Dice) {
        let mut dice = Dice::new(rng);
        let key = match &self.zipf {
            None => dice.roll(self.records),
            Some(_) => self.draw(rng),
        };
        (key, dice)
    }

    /// Returns the number of keys.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Maps a rank to a key by a bijection of `0..records`. The bijection is cycle-walking over a
    /// mixer of the next power of two.
    fn scatter(&self, rank: u64) -> u64 {
        let bits = 64 - (self.records - 1).leading_zeros();
        if bits == 0 {
            return 0;
        }
        let mask = u64::MAX >> (64 - bits);
        let mut key = rank;
        loop {
            // Each step (an xor-shift or an odd multiplication) is a bijection of numbers of `bits`
            // bits.
            key = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15 | 1)) & mask;
            key ^= key >> (bits / 2).max(1);
            key = (key.wrapping_mul(mix(u64::from(bits)) | 1)) & mask;
            key ^= key >> (bits / 3).max(1);
            if key < self.records {
                return key;
            }
        }
    }
}

/// A source of several small random draws, which takes them all from one word of the generator.
///
/// The word is treated as a fraction of 2^64. A roll multiplies the fraction by the number of sides,
/// returns the integer part and keeps the rest (Lemire, "Fast random integer generation in an
/// interval", TOMACS 2019, without the rejection). While the product of all sides stays below 2^44,
/// no outcome's probability is off by more than one part in 2^20.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Creates dice from the generator's next word.
    #[inline]
    pub fn new(rng: &mut Rng) -> Dice {
        Dice(rng.next_u64())
    }

    /// Creates dice from a word that is already uniform, for example a hash.
    #[inline]
    pub fn from_word(word: u64) -> Dice {
        Dice(word)
    }

    /// Draws a number from `0..sides`.
    #[inline]
    pub fn roll(&mut self, sides: u64) -> u64 {
        let product = u128::from(self.0) * u128::from(sides);
        self.0 = product as u64;
        (product >> 64) as u64
    }
}

/// Draws the kind of the next transaction. Each kind has a share in percent, and the draw uses no
/// branch.
#[derive(Clone, Copy, Debug)]
pub struct Mix([u8; 100]);

impl Mix {
    /// Creates a mix from the shares of the kinds of transactions.
    ///
    /// # Panics
    /// If the shares do not add up to 100. For a constant mix the compiler reports this panic.
    pub const fn new(percents: &[u8]) -> Mix {
        let mut kinds = [0; 100];
        let (mut kind, mut at) = (0, 0);
        while kind < percents.len() {
            let end = at + percents[kind] as usize;
            assert!(end <= 100, "shares add up to more than 100");
            while at < end {
                kinds[at] = kind as u8;
                at += 1;
            }
            kind += 1;
        }
        assert!(at == 100, "shares add up to less than 100");
        Mix(kinds)
    }

    /// Draws the kind of a transaction, as its position in the list of shares.
    #[inline]
    pub fn draw(&self, dice: &mut Dice) -> u8 {
        self.0[dice.roll(100) as usize]
    }

    /// Returns the shares in percent, as text for reports.
    pub fn percents(&self, kinds: usize) -> String {
        let share = |kind: usize| self.0.iter().filter(|&&at| usize::from(at) == kind).count();
        (0..kinds).map(|kind| share(kind).to_string()).collect::<Vec<_>>().join("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::rng::seeded;

    #[test]
    fn scattering_is_a_bijection() {
        for records in [1, 2, 3, 10, 1000, 1024, 4097] {
            let keys = Keys::new(records, 0.99).expect("valid");
            let mut seen: Vec<u64> = (0..records).map(|rank| keys.scatter(rank)).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..records), "{records}");
        }
    }

    #[test]
    fn zipf_draws_have_the_expected_skew() {
        let share_of_hottest = |theta| {
            let keys = Keys::new(1000, theta).expect("valid");
            let mut rng = seeded(1, 1);
            let mut counts = vec![0u32; 1000];
            for _ in 0..100_000 {
                counts[keys.draw(&mut rng) as usize] += 1;
            }
            f64::from(*counts.iter().max().expect("some")) / 100_000.0
        };
        assert!(share_of_hottest(0.0) < 0.003);
        // The exact share of the hottest key is 1 / H(1000, .99) = 0.1285…
        assert!((share_of_hottest(0.99) - 0.1285).abs() < 0.01);
    }

    #[test]
    fn dice_are_fair_and_independent() {
        let mut rng = seeded(1, 1);
        let mut counts = [[0u32; 10]; 100];
        for _ in 0..1_000_000 {
            let mut dice = Dice::new(&mut rng);
            let _ = dice.roll(10_000_000);
            let percent = dice.roll(100);
            counts[percent as usize][dice.roll(10) as usize] += 1;
        }
        // Each cell should have 1000 draws. The tolerance is six standard deviations.
        assert!(counts.iter().flatten().all(|&count| count.abs_diff(1000) < 190));
    }

    #[test]
    fn a_mix_has_its_shares() {
        let mix = Mix::new(&[15, 0, 85]);
        assert_eq!(mix.percents(3), "15/0/85");
        assert_eq!(mix.draw(&mut Dice::from_word(0)), 0);
        assert_eq!(mix.draw(&mut Dice::from_word(u64::MAX)), 2);
    }

    #[test]
    fn zipf_gives_every_rank_its_share() {
        const DRAWS: u32 = 1_000_000;
        for theta in [0.1, 0.6, 0.99, 1.0, 1.3, 4.0] {
            let zipf = Zipf::new(50, theta);
            let mut rng = seeded(3, 3);
            let mut counts = [0u32; 51];
            for _ in 0..DRAWS {
                counts[zipf.draw(|| rng.random()) as usize] += 1;
            }
            let weight = |rank: usize| (rank as f64).powf(-theta);
            let total: f64 = (1..=50).map(weight).sum();
            for (rank, &count) in counts.iter().enumerate().skip(1) {
                let expected = f64::from(DRAWS) * weight(rank) / total;
                let off = (f64::from(count) - expected).abs();
                assert!(off <= 5.0 * expected.sqrt() + 1.0, "{theta}: rank {rank}, {off} off");
            }
        }
    }

    #[test]
    fn zipf_agrees_with_a_library_over_a_million_ranks() {
        use rand_distr::Distribution;
        const DRAWS: u32 = 500_000;
        for theta in [0.6, 0.99, 1.3] {
            let ours = Zipf::new(1_000_000, theta);
            let theirs = rand_distr::Zipf::new(1e6, theta).expect("valid");
            let (mut rng, mut counts) = (seeded(8, 8), [[0u32; 20]; 2]);
            for _ in 0..DRAWS {
                counts[0][ours.draw(|| rng.random()).ilog2() as usize] += 1;
                counts[1][(theirs.sample(&mut rng) as u64).ilog2() as usize] += 1;
            }
            for (one, other) in counts[0].into_iter().zip(counts[1]) {
                let limit = 6.0 * f64::from(one + other).sqrt() + 1.0;
                assert!(f64::from(one.abs_diff(other)) <= limit, "{theta}: {counts:?}");
            }
        }
    }

    #[test]
    fn bad_skew_is_named() {
        let error = Keys::new(10, -1.0).expect_err("refused");
        assert_eq!((error.field.as_str(), error.value.as_str()), ("zipf", "-1"));
        assert!(Keys::new(10, f64::NAN).is_err());
        assert!(Keys::new(0, 0.0).is_err());
    }
}
