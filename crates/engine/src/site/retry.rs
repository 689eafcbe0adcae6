//! Rules for trying a transaction again after an abort.
//!
//! Invariant: pauses grow with the number of tries, up to a limit. A transaction that was refused often stops pausing
//! for some tries, which favours it over transactions that still pause. If other transactions still refuse it,
//! several transactions have stopped pausing and block each other. Then the transaction pauses again, for longer.

use tarn_fabric::clock::Nanos;

/// How many times the limit of pauses may double beyond `pause_max_ns`.
const LONGER_MAX: u32 = 8;

/// The limits and pauses of a transaction's tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// The caller abandons the transaction when this much time has passed since the first try. `None`: the caller
    /// never abandons it.
    pub deadline: Option<Nanos>,
    /// The caller abandons the transaction after this many tries, and gets the abort of the last try. 0: no limit.
    pub tries_max: u32,
    /// The limit of the first pause after an abort. This limit doubles with every further abort.
    pub pause_first_ns: u64,
    /// The limit of all pauses. Only a transaction that stopped pausing and was still refused may pause for longer.
    pub pause_max_ns: u64,
    /// After this many aborts the transaction makes the same number of tries without a pause. Then the transaction
    /// pauses again, up to twice as long as before. Tries with and without pauses alternate. 0: the transaction never
    /// pauses.
    pub patient_tries: u32,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry::PATIENT
    }
}

impl Retry {
    /// The default rules: try until the transaction commits, with growing pauses.
    pub const PATIENT: Retry = Retry {
        deadline: None,
        tries_max: 0,
        pause_first_ns: 500,
        pause_max_ns: 64_000,
        patient_tries: 24,
    };

    /// Whether a transaction that aborted this many times is not tried again.
    pub(crate) fn is_over(&self, aborts: u32) -> bool {
        self.tries_max != 0 && aborts >= self.tries_max
    }

    /// The upper limit from which the pause after this many aborts is drawn. `None`: the transaction does not pause.
    pub(crate) fn pause_limit_ns(&self, aborts: u32) -> Option<u64> {
        let turn = (aborts - 1).checked_div(self.patient_tries).unwrap_or(1);
        if aborts == 1 || turn % 2 == 1 {
            return None;
        }
        let doubled = self.pause_first_ns << (aborts - 2).min(16);
        Some((doubled.min(self.pause_max_ns) << (turn / 2).min(LONGER_MAX)).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_end_at_their_limit_if_there_is_one() {
        let once = Retry { tries_max: 1, ..Retry::PATIENT };
        let thrice = Retry { tries_max: 3, ..Retry::PATIENT };
        assert!(once.is_over(1) && !thrice.is_over(2) && thrice.is_over(3) && thrice.is_over(4));
        assert!(!Retry::PATIENT.is_over(u32::MAX));
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let limit = |aborts| Retry::PATIENT.pause_limit_ns(aborts);
        assert_eq!(limit(1), None, "the first try again is at once");
        assert_eq!([2, 3, 4, 8, 9, 10, 24].map(limit), {
            [500, 1_000, 2_000, 32_000, 64_000, 64_000, 64_000].map(Some)
        });
    }

    #[test]
    fn patience_is_spent_and_restored_in_turns() {
        let limit = |aborts| Retry::PATIENT.pause_limit_ns(aborts);
        assert!((25..=48).all(|aborts| limit(aborts).is_none()));
        assert!((49..=72).all(|aborts| limit(aborts) == Some(128_000)));
        assert!((73..=96).all(|aborts| limit(aborts).is_none()));
        let longest = Some(64_000 << LONGER_MAX);
        assert_eq!([16, 18, u32::MAX / 48 * 2 - 2].map(|turn| limit(turn * 24 + 1)), [longest; 3]);
    }

    #[test]
    fn without_patience_a_retry_never_pauses_or_draws() {
        let never = Retry { patient_tries: 0, ..Retry::PATIENT };
        assert!((1..200).all(|aborts| never.pause_limit_ns(aborts).is_none()));
        let first = Retry { patient_tries: 1, ..Retry::PATIENT };
        assert_eq!(
            [1, 2, 3, 4].map(|it| first.pause_limit_ns(it)),
            [None, None, Some(2_000), None]
        );
        let short = Retry { pause_first_ns: 0, ..Retry::PATIENT };
        assert_eq!(short.pause_limit_ns(2), Some(1), "below one nanosecond");
    }
}
