//! Which record a transaction uses: uniform, or Zipf with its ranks scattered over the keys.
//!
//! Invariant: the same generator state gives the same key on every machine. Rejection-inversion
//! sampling (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone
//! discrete distributions", TOMACS 1996), by `rand_distr`; ranks are scattered by a bijection, so
//! that the hottest keys are not neighbours (as YCSB does: Cooper et al., SoCC 2010).

use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use tarn_engine::outcome::UsageError;
use tarn_fabric::rng::{Rng, mix};

/// A distribution over `0..records`.
#[derive(Clone, Debug)]
pub struct Keys {
    records: u64,
    zipf: Option<Zipf<f64>>,
}

impl Keys {
    /// Zipf with exponent `theta`; 0 is uniform.
    ///
    /// # Errors
    /// A negative or not finite exponent; no records.
    pub fn new(records: u64, theta: f64) -> Result<Keys, UsageError> {
        let refuse = |field: &str, value: String, allowed: &str| UsageError {
            field: field.into(),
            value,
            allowed: allowed.into(),
        };
        if records == 0 {
            return Err(refuse("records", "0".into(), "≥ 1"));
        }
        if !theta.is_finite() || !(0.0..=4.0).contains(&theta) {
            return Err(refuse("zipf", theta.to_string(), "0 (uniform) to 4"));
        }
        let zipf = match theta {
            0.0 => None,
            _ => Some(Zipf::new(records as f64, theta).map_err(|error| {
                refuse("zipf", theta.to_string(), &error.to_string())
            })?),
        };
        Ok(Keys { records, zipf })
    }

    /// A key.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match &self.zipf {
            None => rng.random_range(0..self.records),
            Some(zipf) => self.scatter(zipf.sample(rng) as u64 - 1),
        }
    }

    /// How many keys there are.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// A bijection of `0..records`: cycle-walking over a mixer of the next power of two.
    fn scatter(&self, rank: u64) -> u64 {
        let bits = 64 - (self.records - 1).leading_zeros();
        if bits == 0 {
            return 0;
        }
        let mask = u64::MAX >> (64 - bits);
        let mut key = rank;
        loop {
            // Each step is a bijection of `bits` bits: xor-shift and odd multiplication.
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
    fn skew_is_where_it_should_be() {
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
        // 1 / H(1000, .99) = 0.1285…
        assert!((share_of_hottest(0.99) - 0.1285).abs() < 0.01);
    }

    #[test]
    fn bad_skew_is_named() {
        let error = Keys::new(10, -1.0).expect_err("refused");
        assert_eq!((error.field.as_str(), error.value.as_str()), ("zipf", "-1"));
        assert!(Keys::new(10, f64::NAN).is_err());
        assert!(Keys::new(0, 0.0).is_err());
    }
}
