//! Draws ranks by Zipf's law: rank r is drawn r^theta times less often than rank 1.
//!
//! The keys of workloads and the locks of traces share this crate. Each scatters the ranks over its own ids.
//!
//! Invariants: the distribution is exact. The caller gives the random numbers, so the same numbers give the same ranks
//! on every machine. A rank is never 0 and never above the number of ranks.
//!
//! By rejection-inversion: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", TOMACS 1996. A draw nearly always takes one logarithm and one exponential. A draw by the crate
//! `rand_distr` takes several times as long.

/// The Zipf distribution over the ranks 1 to a number of ranks.
#[derive(Clone, Debug)]
pub struct Zipf {
    ranks: f64,
    theta: f64,
    /// The integrals of the hat function from 1 to the lower and to the upper end. The lower end includes the whole
    /// mass of the first rank.
    from: f64,
    to: f64,
    /// A rank that exceeds the drawn point by at most this distance is accepted without evaluating the hat function.
    near: f64,
}

impl Zipf {
    /// Creates the distribution with an exponent.
    ///
    /// # Panics
    /// If there are no ranks, or the exponent is negative or not finite.
    #[must_use]
    pub fn new(ranks: u64, theta: f64) -> Zipf {
        assert!(ranks > 0, "no ranks");
        assert!(theta.is_finite() && theta >= 0.0, "theta = {theta}");
        let ranks = ranks as f64;
        let mut zipf = Zipf { ranks, theta, from: 0.0, to: 0.0, near: 0.0 };
        zipf.from = zipf.integral(1.5) - 1.0;
        zipf.to = zipf.integral(ranks + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.hat(2.0));
        zipf
    }

    /// Draws a rank. `unit` returns the next uniform number of 0..1.
    #[inline]
    pub fn draw(&self, mut unit: impl FnMut() -> f64) -> u64 {
        loop {
            let area = self.to + unit() * (self.from - self.to);
            let point = self.inverse(area);
            let rank = (point + 0.5).floor().clamp(1.0, self.ranks);
            if rank - point <= self.near || area >= self.integral(rank + 0.5) - self.hat(rank) {
                return rank as u64;
            }
        }
    }

    /// The hat function: returns `x` to the power of `-theta`.
    fn hat(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// Returns the integral of the hat function from 1 to `x`, which is `(x^(1 - theta) - 1) / (1 - theta)`, or `ln x`.
    fn integral(&self, x: f64) -> f64 {
        let (log, rest) = (x.ln(), 1.0 - self.theta);
        if rest == 0.0 { log } else { (rest * log).exp_m1() / rest }
    }

    #[inline]
    fn inverse(&self, area: f64) -> f64 {
        let rest = 1.0 - self.theta;
        if rest == 0.0 {
            return area.exp();
        }
        // The lower bound -1 prevents rounding from leading below the pole of the logarithm.
        ((rest * area).max(-1.0).ln_1p() / rest).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that fill 0..1 evenly: the fractions of multiples of the golden ratio.
    fn even() -> impl FnMut() -> f64 {
        let mut word = 0u64;
        move || {
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            (word >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn each_rank_has_its_exact_share() {
        const DRAWS: u32 = 200_000;
        for theta in [0.0, 0.5, 0.99, 1.0, 1.3, 4.0] {
            let (zipf, mut unit, mut counts) = (Zipf::new(10, theta), even(), [0u32; 11]);
            (0..DRAWS).for_each(|_| counts[zipf.draw(&mut unit) as usize] += 1);
            let weight = |rank: u32| f64::from(rank).powf(-theta);
            let sum: f64 = (1..=10).map(weight).sum();
            assert_eq!(counts[0], 0, "{theta}");
            for rank in 1..=10 {
                let share = f64::from(counts[rank as usize]) / f64::from(DRAWS);
                let exact = weight(rank) / sum;
                assert!(
                    (share - exact).abs() < 0.003,
                    "{theta}, rank {rank}: {share}, not {exact}"
                );
            }
        }
    }

    #[test]
    fn one_rank_is_drawn_always() {
        let (zipf, mut unit) = (Zipf::new(1, 0.99), even());
        assert!((0..1_000).all(|_| zipf.draw(&mut unit) == 1));
    }

    #[test]
    #[should_panic(expected = "theta = NaN")]
    fn an_exponent_that_is_no_number_is_refused() {
        let _ = Zipf::new(10, f64::NAN);
    }
}
