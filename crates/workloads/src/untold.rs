//! The possible effects of uncounted transactions: their coordinators could not count whether they
//! committed.
//!
//! Invariant: a range is exactly as wide as the uncertainty: without such a transaction it is a
//! number.

use std::fmt;

/// How a transaction ended that its coordinator could not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untold {
    /// It has committed: its coordinator learned that, but not its effects.
    Committed,
    /// It was in doubt, and has aborted: the versions of records that it had changed may have
    /// advanced.
    Aborted,
    /// Its outcome is unknown: its coordinator died during it.
    Unknown,
}

/// The amount that such transactions may add to a count, from and to, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slack {
    least: i64,
    most: i64,
}

impl Slack {
    /// Adds one such transaction, which changes the count by `least` to `most` if it has committed.
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

    /// Returns how far the found number lies outside the range of the counted number and this
    /// uncertainty.
    pub fn off(self, found: i64, counted: i64) -> u64 {
        let more = found - counted;
        more.abs_diff(more.clamp(self.least, self.most))
    }

    /// Whether the found number is possible, given the counted number and this uncertainty.
    pub fn admits(self, found: i64, counted: i64) -> bool {
        self.off(found, counted) == 0
    }
}

/// Shown behind a count; empty if all is known.
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
