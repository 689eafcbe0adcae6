//! The random draws of random mode, which decide the work that is delayed, and the delay's place and
//! length.
//!
//! Invariant: each draw is a function of the seed and of the earlier draws. A draw can only delay work.
//! A delay breaks no promise, so the promises of the contract hold under every draw.
//!
//! Three kinds of faults overlap:
//! - Single pieces of work are delayed or stalled. In some seeds delays and stalls happen only in
//!   storms, with calm times between the storms. So transactions inside a storm meet transactions
//!   outside of the storm.
//! - NICs pause as a whole.
//! - At each change point random mode chooses another thread to delay. The chosen thread is slower than
//!   the other threads until the next change point. The priorities of threads in PCT change in the same
//!   way (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs",
//!   ASPLOS 2010). Most bugs appear when a few threads are late for a long time.

use crate::config::{Chaos, SCHEDULE_STREAM};
use rand::RngExt as _;
use tarn_fabric::rng::{Rng, seeded};

/// The source of random mode's delays.
#[derive(Debug)]
pub(crate) struct Dice {
    pub(crate) chaos: Chaos,
    rng: Rng,
    /// The time until which each memory node's NIC pauses.
    memory_nics: Vec<u64>,
    /// The time until which each compute node's NIC pauses.
    compute_nics: Vec<u64>,
    /// The thread that is delayed until the next change point, and the time of this change point.
    set_back: (u32, u64),
}

impl Dice {
    /// Creates the source of random draws for a cluster with `memory_nodes` memory nodes and
    /// `compute_nodes` compute nodes.
    pub(crate) fn new(chaos: Chaos, seed: u64, memory_nodes: usize, compute_nodes: usize) -> Dice {
        Dice {
            chaos,
            rng: seeded(seed, SCHEDULE_STREAM),
            memory_nics: vec![0; memory_nodes],
            compute_nics: vec![0; compute_nodes],
            set_back: (0, 0),
        }
    }

    /// Adds a node with processors. A node with processors may also send verbs.
    pub(crate) fn add_compute_node(&mut self) {
        self.compute_nics.push(0);
    }

    /// Draws a number from 0 to `most`.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        if most == 0 { 0 } else { self.rng.random_range(0..=most) }
    }

    /// Returns true in one of `times` draws on average. If `times` is 0, the result is always false.
    pub(crate) fn one_in(&mut self, times: u32) -> bool {
        times > 0 && self.rng.random_range(0..times) == 0
    }

    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Returns the number of bytes that a READ or WRITE moves in one step. A step moves one line, or
    /// one word if the bug of torn lines is planted.
    pub(crate) fn piece_bytes(&self) -> usize {
        if self.chaos.planted_torn_lines { 8 } else { tarn_fabric::address::LINE_BYTES }
    }

    /// Returns for how many picoseconds a piece of work at a memory node is delayed. This delay is
    /// usually 0.
    pub(crate) fn piece_ps(&mut self, now_ps: u64, memory_node: usize) -> u64 {
        let stall_ps = self.stall_ps(now_ps);
        let pause_ps = self.nic_pause_ps(now_ps);
        let Some(paused_until_ps) = self.memory_nics.get_mut(memory_node) else { return stall_ps };
        *paused_until_ps = (*paused_until_ps).max(now_ps + pause_ps);
        (*paused_until_ps - now_ps).max(stall_ps)
    }

    /// Returns the extra delay, in picoseconds, of a batch on its way to the memory node. The delay of
    /// the answer on its way back is drawn by the same function.
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

    /// Returns how much longer this thread's batches are in flight. The first thread that calls this
    /// function after a change point stays delayed until the next change point.
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
