//! Limits the share of time that a background walk (the sweep or the copier) may use.
//!
//! Invariant: a walk runs one step at a time. After a step that took the time t, the walk pauses until its steps make
//! up no more than its share of the time. A memory node executes a step's verbs between the beginning and the end of
//! the step. So the share limits the part of any memory node's pipeline that a walk uses. Under load a step takes
//! longer but requests the same work, so a walk slows down automatically. If the steps of a walk take w in total, the
//! walk ends after w / share.

use tarn_fabric::clock::Nanos;

/// The share of time that a walk may use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Share {
    percent: u16,
}

impl Share {
    /// The full share: the walk runs its steps without a pause.
    pub const ALL: Share = Share::percent(100);

    /// A share of this many hundredths.
    ///
    /// # Panics
    /// If `percent` is not in the range from 1 to 100.
    pub const fn percent(percent: u16) -> Share {
        assert!(percent >= 1 && percent <= 100);
        Share { percent }
    }

    /// The share as a percentage.
    pub const fn as_percent(self) -> u16 {
        self.percent
    }

    /// The time to pause after a step that took `took`.
    pub fn pause_after(self, took: Nanos) -> Nanos {
        let percent = u64::from(self.percent);
        Nanos(took.0.saturating_mul(100 - percent) / percent)
    }
}

/// The limits of recoveries, sweeps and copies, so that transactions are not slowed down too much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The number of blocks (buckets, and blocks of chains) that one step reads.
    pub blocks: usize,
    /// The minimum pause between two steps.
    pub pause_ns: u64,
    /// The share of time for a sweep. No transaction waits for a sweep.
    pub sweep_share: Share,
    /// The share of time for a copier. Until the copier is done, the cluster survives one node failure less than
    /// normal.
    pub copy_share: Share,
    /// The time between two checks for expelled incarnations that need recovery and for dead memory nodes.
    pub look_every_ns: u64,
}

impl Pace {
    /// A pace at which steps follow each other without a pause. Only the checks for dead nodes pause.
    pub const UNPACED: Pace = Pace {
        blocks: 64,
        pause_ns: 0,
        sweep_share: Share::ALL,
        copy_share: Share::ALL,
        look_every_ns: 20_000,
    };

    /// The pause after a step of a sweep.
    pub(crate) fn after_sweeping(&self, took: Nanos) -> Nanos {
        self.sweep_share.pause_after(took).max(Nanos(self.pause_ns))
    }

    /// The pause after a step of a copier.
    pub(crate) fn after_copying(&self, took: Nanos) -> Nanos {
        self.copy_share.pause_after(took).max(Nanos(self.pause_ns))
    }
}

impl Default for Pace {
    fn default() -> Pace {
        let (sweep_share, copy_share) = (Share::percent(5), Share::percent(50));
        Pace { sweep_share, copy_share, ..Pace::UNPACED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_and_its_pause_have_the_configured_share() {
        let took = Nanos(10_000);
        assert_eq!(Share::ALL.pause_after(took), Nanos(0));
        assert_eq!(Share::percent(20).pause_after(took), Nanos(40_000));
        assert_eq!(Share::percent(5).pause_after(took), Nanos(190_000));
        let pace = Pace { pause_ns: 50_000, ..Pace::default() };
        assert_eq!(pace.after_copying(took), Nanos(50_000), "the least pause");
        assert_eq!(pace.after_sweeping(took), Nanos(190_000));
    }
}
