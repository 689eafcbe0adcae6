//! The possible effects of uncounted transactions. The coordinator of an uncounted transaction could
//! not count the transaction in its tally.
//!
//! Invariant: the range of a count is exactly as wide as the uncertainty. Without uncounted
//! transactions the range is a single number.

use std::fmt;

/// The end of a transaction that its coordinator could not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untold {
    /// The transaction has committed. Its coordinator learned of the commit, but not of the
    /// transaction's effects.
    Committed,
    /// The transaction was in doubt and has aborted. The versions of records that it had changed may
    /// have advanced.
    Aborted,
    /// The outcome of the transaction is unknown, because its coordinator died during the
    /// transaction.
    Unknown,
}

/// The amount that uncounted transactions may add to a count: a smallest and a largest amount, both
/// included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slack {
    least: i64,
    most: i64,
}

impl Slack {
    /// Adds one uncounted transaction, which changes the count by `least` to `most` if the
    /// transaction has committed.
    ///
    /// # Panics
    /// If `least` is larger than `most`.
    pub fn note(&mut self, ended: Untold, least: i64, most: i64) {
        assert!(least <= most, "{least} to {most}");
        let (least, most) = match ended {
            Untold::Committed => (least, most),
            Untold::Aborted => (0, 0),
            Untold::Unknown => (least.min(0), most.max(0)),
        };
        self.least += least;
        self.most += most;
    }

    /// Adds the uncertainty of another coordinator.
    pub fn add(&mut self, other: Slack) {
        self.least += other.least;
        self.most += other.most;
    }

    /// Returns the uncertainty of the difference of two counts.
    #[must_use]
    pub fn less(self, other: Slack) -> Slack {
        Slack { least: self.least - other.most, most: self.most - other.least }
    }

    /// Returns how far the number `found` lies outside the possible range. The range is the number
    /// `counted` plus this uncertainty.
    pub fn off(self, found: i64, counted: i64) -> u64 {
        let more = found - counted;
        more.abs_diff(more.clamp(self.least, self.most))
    }

    /// Returns whether the number `found` is possible, given the number `counted` and this
    /// uncertainty.
    pub fn admits(self, found: i64, counted: i64) -> bool {
        self.off(found, counted) == 0
    }
}

/// Prints the uncertainty as text that follows a printed count. The text is empty if the count is
/// certain.
impl fmt::Display for Slack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (0, 0) => Ok(()),
            (least, most) if least == most => write!(f, " and {least} uncounted"),
            (least, most) => write!(f, " and {least} to {most} uncounted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_as_wide_as_the_unknown_outcomes() {
        let mut slack = Slack::default();
        assert!(slack.admits(7, 7) && !slack.admits(8, 7) && !slack.admits(6, 7));
        slack.note(Untold::Committed, 5, 5);
        assert!(slack.admits(12, 7) && !slack.admits(7, 7));
        slack.note(Untold::Aborted, 9, 9);
        slack.note(Untold::Unknown, -6, -5);
        assert_eq!([0, 1, 12, 13].map(|more| slack.off(more, 0)), [0, 0, 7, 8]);
        assert_eq!([-1, -2].map(|more| slack.off(more, 0)), [0, 1]);
        assert_eq!(Slack::default().less(slack), Slack { least: -5, most: 1 });
    }
}
