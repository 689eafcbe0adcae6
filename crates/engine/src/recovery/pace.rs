//! The share of a cluster that walks beside transactions may take: the sweep, and the copier.
//!
//! Invariant: a walk goes in steps, one at a time. After a step that took t it pauses for so long that its
//! steps make up no more than its share of time. A memory node executes a step's verbs between the step's
//! beginning and its end. So the share bounds how much of any memory node's pipeline a walk takes. Under load
//! a step takes longer and asks for no more, so that a walk gives way by itself. A walk whose steps take w in
//! all is over after w / share.

use tarn_fabric::clock::Nanos;

/// A share of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Share {
    percent: u16,
}

impl Share {
    /// Step after step, without a pause.
    pub const ALL: Share = Share::percent(100);

    /// A share of this many hundredths.
    ///
    /// # Panics
    /// Unless `percent` is 1 to 100.
    pub const fn percent(percent: u16) -> Share {
        assert!(percent >= 1 && percent <= 100);
        Share { percent }
    }

    /// The share in hundredths.
    pub const fn as_percent(self) -> u16 {
        self.percent
    }

    /// How long to pause after a step.
    pub fn pause_after(self, took: Nanos) -> Nanos {
        let percent = u64::from(self.percent);
        Nanos(took.0.saturating_mul(100 - percent) / percent)
    }
}

/// How recoveries, sweeps and copies make room for transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Blocks (buckets, and blocks of chains) of one step.
    pub blocks: usize,
    /// The least pause between two steps.
    pub pause_ns: u64,
    /// The share of a sweep. No transaction waits for it.
    pub sweep_share: Share,
    /// The share of a copier. Until it is done, the cluster survives one death less.
    pub copy_share: Share,
    /// How often a node looks for lives to recover and for dead memory nodes.
    pub look_every_ns: u64,
}

impl Pace {
    /// No pause but those between looks.
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
