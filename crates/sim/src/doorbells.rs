//! The doorbell registers of a node's NIC, and the threads that wait for them.
//!
//! Invariant: a register accepts one ring at a time, in the order in which threads ask for it. A lock
//! protects each register that several threads use. The cost of a ring depends on the other threads
//! that wait for the register at this moment, and not on the threads that could use it: a shared
//! register costs no more than a private register while only one thread uses it.
//!
//! Source: Ren et al., "Scaling up memory disaggregated applications with SMART", ASPLOS 2024: the stock
//! driver gives each context sixteen registers, and gives these registers to queue pairs in the order
//! of their creation. The first four queue pairs get registers of their own, the others share.

use crate::costs::{Costs, SPEED};
use crate::nic::Resource;
use crate::profile::Doorbells;

/// The register of a queue pair that does not exist yet.
pub(crate) const NONE: u32 = u32::MAX;

/// The costs of ringing a doorbell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DoorbellCosts {
    pub(crate) alone_ps: u64,
    pub(crate) shared_ps: u64,
    pub(crate) handoff_ps: u64,
    /// The number of waiting threads beyond which further ones add nothing.
    pub(crate) waiting_max: u64,
}

/// The thread that rings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ringer {
    pub(crate) thread: u32,
    /// How long the thread's work takes, in units of 1 / [`SPEED`] of the time on a core of its own.
    pub(crate) slowness: u64,
    /// The extra time of a ring because the thread's core is far from the NIC.
    pub(crate) far_ps: u64,
    /// The time of the thread's processor.
    pub(crate) local_ps: u64,
}

/// A doorbell register.
#[derive(Debug)]
struct Register {
    part: Resource,
    /// The thread that rang last, and the time until which it posts to this register.
    last: (u32, u64),
    /// The other threads that may still post to this register, with these times.
    others: Vec<(u32, u64)>,
}

/// No thread has rung yet.
const NOBODY: (u32, u64) = (u32::MAX, 0);

impl Register {
    fn new() -> Register {
        Register { part: Resource::default(), last: NOBODY, others: Vec::new() }
    }

    /// Returns the number of other threads that post while `thread` rings.
    #[inline]
    fn waiting(&mut self, thread: u32, now_ps: u64) -> u64 {
        let (last, until_ps) = self.last;
        match self.others.is_empty() && (last == thread || until_ps <= now_ps) {
            true => 0,
            false => self.waiting_among_many(thread, now_ps),
        }
    }

    /// Does the same for a register to which several threads post. Threads that have rung are forgotten.
    fn waiting_among_many(&mut self, thread: u32, now_ps: u64) -> u64 {
        if self.last.0 != thread {
            self.others.push(self.last);
        }
        self.others.retain(|&(other, until_ps)| other != thread && until_ps > now_ps);
        self.others.len() as u64
    }
}

/// The doorbell registers of one node.
#[derive(Debug)]
pub(crate) struct Registers {
    all: Vec<Register>,
    of: Doorbells,
    /// The number of registers, counted from the first, that belong to one queue pair each.
    private: usize,
    /// The number of queue pairs, or of threads with a register of their own, of the node's current
    /// incarnation.
    given: usize,
    counted_to_ps: u64,
}

impl Registers {
    pub(crate) fn new(costs: &Costs) -> Registers {
        let of = costs.doorbells_of;
        let count = match of {
            Doorbells::OfQueuePairs => costs.doorbell_registers as usize,
            Doorbells::OneAThread => 0,
        };
        Registers {
            all: (0..count).map(|_| Register::new()).collect(),
            of,
            private: (costs.doorbell_private as usize).min(count.saturating_sub(1)),
            given: 0,
            counted_to_ps: u64::MAX,
        }
    }

    /// Begins again without queue pairs, for a new incarnation of the node.
    pub(crate) fn clear(&mut self) {
        self.given = 0;
        for register in &mut self.all {
            register.last = NOBODY;
            register.others.clear();
        }
    }

    /// Gives a register to a new queue pair of a thread. `own` is the thread's own register.
    pub(crate) fn give(&mut self, own: &mut u32) -> u32 {
        if *own != NONE {
            return *own;
        }
        let number = self.given;
        self.given += 1;
        match self.of {
            Doorbells::OneAThread => {
                if number == self.all.len() {
                    let mut register = Register::new();
                    register.part.count_to(self.counted_to_ps);
                    self.all.push(register);
                }
                *own = number as u32;
                *own
            }
            Doorbells::OfQueuePairs => match number.checked_sub(self.private) {
                None => number as u32,
                Some(later) => (self.private + later % (self.all.len() - self.private)) as u32,
            },
        }
    }

    /// Rings a doorbell for a thread. Returns the time at which the thread continues. If one turn rings
    /// several times, each ring reserves the register from the beginning of the turn on. So the register
    /// does not wait for the thread's work between the rings.
    #[inline]
    pub(crate) fn ring(
        &mut self,
        register: u32,
        by: Ringer,
        costs: DoorbellCosts,
        now_ps: u64,
    ) -> u64 {
        let register = &mut self.all[register as usize];
        let others = register.waiting(by.thread, now_ps);
        let shared_ps = match others.min(costs.waiting_max) {
            0 => 0,
            others => costs.shared_ps + costs.handoff_ps * others,
        };
        let service_ps = (costs.alone_ps + by.far_ps) * by.slowness / SPEED + shared_ps;
        let rung_ps = register.part.reserve(now_ps, service_ps);
        let until_ps = rung_ps.max(by.local_ps + service_ps);
        register.last = (by.thread, until_ps);
        until_ps
    }

    /// Returns how long the busiest register was occupied.
    pub(crate) fn busy_ps(&self) -> u64 {
        self.all.iter().map(|register| register.part.busy_ps()).max().unwrap_or(0)
    }

    /// Adds the registers' busy time before `end_ps` to their count. The rest waits for the next count.
    pub(crate) fn count_to(&mut self, end_ps: u64) {
        self.counted_to_ps = end_ps;
        self.all.iter_mut().for_each(|register| register.part.count_to(end_ps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    const COSTS: DoorbellCosts =
        DoorbellCosts { alone_ps: 100, shared_ps: 10, handoff_ps: 1, waiting_max: 2 };

    fn registers(of: &str) -> Registers {
        let profile = Profile::load("cx6-200g").unwrap().set("form.doorbells", of).unwrap();
        Registers::new(&Costs::of(&profile))
    }

    #[test]
    fn the_first_queue_pairs_get_registers_of_their_own_and_the_others_share_in_turn() {
        let mut stock = registers("of-queue-pairs");
        let given: Vec<u32> = (0..30).map(|_| stock.give(&mut NONE.clone())).collect();
        let shared = (4..16).chain(4..16).chain(4..6);
        assert_eq!(given, (0..4).chain(shared).collect::<Vec<u32>>());
    }

    #[test]
    fn a_thread_with_a_register_of_its_own_rings_it_for_all_its_queue_pairs() {
        let (mut own, mut one, mut other) = (registers("one-a-thread"), NONE, NONE);
        assert_eq!([own.give(&mut one), own.give(&mut other), own.give(&mut one)], [0, 1, 0]);
    }

    #[test]
    fn a_ring_costs_more_only_while_others_post() {
        let mut stock = registers("of-queue-pairs");
        let mut ring = |thread, now_ps| {
            let by = Ringer { thread, slowness: SPEED, far_ps: 0, local_ps: now_ps };
            stock.ring(5, by, COSTS, now_ps)
        };
        assert_eq!([ring(0, 0), ring(0, 0)], [100, 200], "alone");
        assert_eq!([ring(1, 50), ring(1, 50)], [311, 422], "one other posts");
        assert_eq!(ring(2, 60), 534, "two others post");
        assert_eq!(ring(3, 70), 646, "a third one adds nothing");
        assert_eq!(ring(0, 430), 758, "two have rung");
        assert_eq!(ring(0, 900), 1_000, "all have rung");
    }

    #[test]
    fn a_thread_posts_until_its_processor_is_through() {
        let mut stock = registers("of-queue-pairs");
        let by = |thread, local_ps| Ringer { thread, slowness: 2 * SPEED, far_ps: 5, local_ps };
        assert_eq!(stock.ring(5, by(0, 500), COSTS, 0), 710, "a slow thread, far from the NIC");
        assert_eq!(stock.ring(5, by(1, 600), COSTS, 600), 821, "the first still posts");
        assert_eq!(stock.ring(5, by(2, 900), COSTS, 900), 1_110, "both are through");
    }
}
