//! Draws how long a terminal waits for its user: clause 5.2.5.
//!
//! Invariant: no transaction waits for a user while it runs. The pause comes before the transaction.
//! The length of the pause is the keying time of the transaction plus a think time.

use rand::RngExt as _;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::Rng;

/// The keying times in seconds, by kind of transaction (clause 5.2.5.7).
const KEYING_S: [f64; 5] = [18.0, 3.0, 2.0, 2.0, 2.0];
/// The mean think times in seconds, by kind of transaction.
const THINKING_S: [f64; 5] = [12.0, 12.0, 10.0, 5.0, 5.0];

/// Draws a pause before a transaction of this kind. Think times have an exponential distribution, cut
/// off at ten times the mean (clause 5.2.5.4).
pub(super) fn pause(kind: usize, rng: &mut Rng) -> Nanos {
    let uniform: f64 = rng.random();
    let thinking = (-(1.0 - uniform).ln()).min(10.0) * THINKING_S[kind];
    Nanos(((KEYING_S[kind] + thinking) * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::rng::seeded;

    #[test]
    fn pauses_have_their_means() {
        let mut rng = seeded(4, 4);
        for kind in 0..5 {
            let mean_s = (0..20_000).map(|_| pause(kind, &mut rng).0 as f64 / 2e13).sum::<f64>();
            let expected = KEYING_S[kind] + THINKING_S[kind];
            assert!((mean_s / expected - 1.0).abs() < 0.03, "{mean_s} s, {expected} s expected");
        }
    }
}
