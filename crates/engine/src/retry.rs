//! How a transaction is tried again after an abort.
//!
//! Invariant: pauses grow with the number of tries up to a limit; one that was refused often stops pausing
//! for a while, which gives it the better chance against those that still do. If that does not help,
//! several have stopped, and each keeps the others from their locks: it pauses again, for longer.

use tarn_fabric::clock::Nanos;

/// So often a pause may double beyond `pause_max_ns`.
const LONGER_MAX: u32 = 8;

/// How a transaction is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// Give up when this much time has passed since the first try; `None`: never.
    pub deadline: Option<Nanos>,
    /// Give up after so many tries, by the last one's abort; 0: never.
    pub tries_max: u32,
    /// First pause after an abort is below this, doubling with every further abort.
    pub pause_first_ns: u64,
    /// No pause is longer, but for those of a transaction that lost its patience and got nothing by it.
    pub pause_max_ns: u64,
    /// After so many aborts the transaction does not pause for so many tries, then pauses again, up to
    /// twice as long as before, and so on in turns. 0: it never pauses.
    pub patient_tries: u32,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry::PATIENT
    }
}

impl Retry {
    /// Until it commits, with growing pauses: the default.
    pub const PATIENT: Retry = Retry {
        deadline: None,
        tries_max: 0,
        pause_first_ns: 500,
        pause_max_ns: 64_000,
        patient_tries: 24,
    };

    /// Whether a transaction that was aborted so often is not tried again.
    pub(crate) fn is_over(&self, aborts: u32) -> bool {
        self.tries_max != 0 && aborts >= self.tries_max
    }

    /// Below what the pause after so many aborts is drawn; `None`: there is none.
    pub(crate) fn pause_limit_ns(&self, aborts: u32) -> Option<u64> {
        let turn = (aborts - 1).checked_div(self.patient_tries).unwrap_or(1);
        if aborts == 1 || turn % 2 == 1 {
            return None;
        }
        let doubled = self.pause_first_ns << (aborts - 2).min(16);
        Some((doubled.min(self.pause_max_ns) << (turn / 2).min(LONGER_MAX)).max(1))
    }
}
