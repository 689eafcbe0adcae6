//! The random draws of random mode: which work is held up, where, and for how long.
//!
//! Invariant: each draw is a function of the seed and of the earlier draws, and a draw only adds time.
//! So the promises of the contract hold under every draw.
//!
//! Three kinds of trouble overlap:
//! - Single pieces of work are delayed or stalled. In some seeds this happens only in storms, with calm
//!   between them, so that transactions inside a storm meet transactions outside of it.
//! - NICs pause as a whole.
//! - At each change point another thread is set back, and it stays behind until the next change point.
//!   Priorities in PCT work like this (Burckhardt et al., "A Randomized Scheduler with Probabilistic
//!   Guarantees of Finding Bugs", ASPLOS 2010). Most bugs need few threads to be late, but for a long
//!   time.

use crate::config::{Chaos, SCHEDULE_STREAM};
use rand::RngExt as _;
use tarn_fabric::rng::{Rng, seeded};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Dice {
    pub(crate) chaos: Chaos,
    rng: Rng,
    /// The time until which each memory node's NIC pauses.
    memory_nics: Vec<u64>,
    /// The time until which each compute node's NIC pauses.
    compute_nics: Vec<u64>,
    /// The thread that is set back, and until when.
    set_back: (u32, u64),
}

impl Dice {
    /// Creates the dice of a cluster with this many nodes of each kind.
    pub(crate) fn new(chaos: Chaos, seed: u64, memory_nodes: usize, compute_nodes: usize) -> Dice {
        Dice {
            chaos,
            rng: seeded(seed, SCHEDULE_STREAM),
            memory_nics: vec![0; memory_nodes],
            compute_nics: vec![0; compute_nodes],
            set_back: (0, 0),
        }
    }

    /// Adds a node with processors, which may send verbs as well.
    pub(crate) fn add_compute_node(&mut self) {
        self.compute_nics.push(0);
    }

    /// Draws a number from 0 to `most`.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        if most == 0 { 0 } else { self.rng.random_range(0..=most) }
    }

    /// Returns true once in `times` draws; never if `times` is 0.
    pub(crate) fn one_in(&mut self, times: u32) -> bool {
        times > 0 && self.rng.random_range(0..times) == 0
    }

    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Bytes that a READ or WRITE moves at once: a line, unless torn lines are planted.
    pub(crate) fn piece_bytes(&self) -> usize {
        if self.chaos.planted_torn_lines { 8 } else { tarn_fabric::address::LINE_BYTES }
    }

    /// Picoseconds for which a piece of work at a memory node is held up; usually 0.
    pub(crate) fn piece_ps(&mut self, now_ps: u64, memory_node: usize) -> u64 {
        let stall_ps = self.stall_ps(now_ps);
        let pause_ps = self.nic_pause_ps(now_ps);
        let Some(paused_until_ps) = self.memory_nics.get_mut(memory_node) else { return stall_ps };
        *paused_until_ps = (*paused_until_ps).max(now_ps + pause_ps);
        (*paused_until_ps - now_ps).max(stall_ps)
    }

    /// Picoseconds of extra delay of a batch on its way out, or of its answer on its way back.
    pub(crate) fn way_ps(&mut self, now_ps: u64, thread: u32, compute_node: usize) -> u64 {
        let delay_ps = if self.is_calm(now_ps) {
            0
        } else {
            self.up_to(self.chaos.delay_max_ns) * 1_000 + self.stall_ps(now_ps)
        };
        let pause_ps = self.nic_pause_ps(now_ps);
        let paused_until_ps = &mut self.compute_nics[compute_node];
        *paused_until_ps = (*paused_until_ps).max(now_ps + pause_ps);
        delay_ps + (*paused_until_ps - now_ps) + self.set_back_ps(now_ps, thread)
    }

    fn is_calm(&self, now_ps: u64) -> bool {
        let storm_ps = self.chaos.storm_ns * 1_000;
        storm_ps > 0 && (now_ps / storm_ps).is_multiple_of(2)
    }

    fn stall_ps(&mut self, now_ps: u64) -> u64 {
        if !self.is_calm(now_ps) && self.one_in(self.chaos.stall_one_in) {
            self.up_to(self.chaos.stall_max_ns) * 1_000
        } else {
            0
        }
    }

    fn nic_pause_ps(&mut self, now_ps: u64) -> u64 {
        if !self.is_calm(now_ps) && self.one_in(self.chaos.nic_pause_one_in) {
            self.up_to(self.chaos.nic_pause_max_ns) * 1_000
        } else {
            0
        }
    }

    /// How much longer this thread's batches are in flight. After a change point the first thread that
    /// asks is set back, until the next change point.
    fn set_back_ps(&mut self, now_ps: u64, thread: u32) -> u64 {
        if self.chaos.set_back_ns == 0 {
            return 0;
        }
        if now_ps >= self.set_back.1 {
            let lasts_ns = self.up_to(2 * self.chaos.change_every_ns);
            self.set_back = (thread, now_ps + lasts_ns * 1_000);
        }
        let is_late = self.set_back.0 == thread;
        if is_late { self.up_to(self.chaos.set_back_ns) * 1_000 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dice(chaos: Chaos) -> Dice {
        Dice::new(chaos, 5, 2, 2)
    }

    #[test]
    fn in_calm_weather_no_request_is_delayed() {
        let mut calm = dice(Chaos::CALM);
        assert!((0..100).all(|at| calm.way_ps(at, 0, 1) + calm.piece_ps(at, 1) == 0));
    }

    #[test]
    fn a_pausing_nic_delays_all_requests() {
        let chaos = Chaos { nic_pause_one_in: 1, nic_pause_max_ns: 1_000, ..Chaos::CALM };
        let mut paused = dice(chaos);
        let until_ps = (0..100).map(|_| paused.piece_ps(0, 1)).max().expect("some");
        paused.chaos.nic_pause_one_in = 0;
        assert!(until_ps > 0);
        assert_eq!(paused.piece_ps(0, 1), until_ps);
        assert_eq!(paused.piece_ps(until_ps, 1), 0);
        assert_eq!(paused.piece_ps(0, 0), 0, "the other node's");
    }

    #[test]
    fn one_thread_at_a_time_is_set_back_in_turns() {
        let chaos = Chaos { set_back_ns: 1_000, change_every_ns: 1_000, ..Chaos::CALM };
        let mut dice = dice(chaos);
        let mut late = Vec::new();
        for at in 0..2_000u64 {
            let thread = (at % 3) as u32;
            if dice.way_ps(at * 10_000, thread, 0) > 0 && late.last() != Some(&thread) {
                late.push(thread);
            }
        }
        assert!(late.len() > 3 && (0..3).all(|thread| late.contains(&thread)), "{late:?}");
    }

    #[test]
    fn storms_come_and_go() {
        let chaos = Chaos { delay_max_ns: 1_000, storm_ns: 1_000, ..Chaos::CALM };
        let mut dice = dice(chaos);
        let mut delayed = |at: u64| (0..20).any(|_| dice.way_ps(at, 0, 0) > 0);
        assert_eq!([0, 1_000_000, 2_000_000].map(&mut delayed), [false, true, false]);
    }
}
