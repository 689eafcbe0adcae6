//! What a phase's counters say at one moment, and what came to them between two.
//!
//! Invariant: counters only grow, so that the difference of two readings is what happened between them.

use super::driver::{Crew, SimPhase};
use crate::bench::desk::Desk;
use crate::bench::driver::Phase;
use tarn_engine::site::metrics::Tally;
use tarn_fabric::counters::Counts;
use tarn_sim::usage::Usage;

/// All counters at one moment.
pub(super) struct Reading {
    tally: Tally,
    counts: Counts,
    mix: Vec<u64>,
    given_up: u64,
    usage: Usage,
}

impl Reading {
    pub(super) fn take<T>(contexts: &[Crew], desk: &Desk<T>, usage: Usage) -> Reading {
        let (mut tally, mut counts) = (Tally::default(), Counts::default());
        for (cx, _) in contexts {
            tally.add(&cx.metrics.snapshot());
            counts += cx.port.counts();
        }
        Reading { tally, counts, mix: desk.mix(), given_up: desk.given_up(), usage }
    }

    pub(super) fn since(self, earlier: &Reading, kinds: usize) -> SimPhase {
        let used = self.usage.since(&earlier.usage);
        let mut phase = Phase::empty(kinds);
        phase.seconds = used.at.0 as f64 / 1e9;
        phase.tally = self.tally.since(&earlier.tally);
        phase.counts = self.counts - earlier.counts;
        let mix = self.mix.iter().zip(&earlier.mix);
        phase.mix = mix.map(|(end, start)| end - start).collect();
        SimPhase { phase, used, given_up: self.given_up - earlier.given_up }
    }
}
