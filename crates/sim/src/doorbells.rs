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

/// A thread's access to a register: the register, and the thread's place among those that use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Doorbell {
    register: u32,
    place: u32,
}

impl Doorbell {
    /// The doorbell of a queue pair that does not exist yet.
    pub(crate) const NONE: Doorbell = Doorbell { register: u32::MAX, place: 0 };
}

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
    pub(crate) doorbell: Doorbell,
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
    /// The threads that use the register.
    users: Vec<u32>,
    /// The time until which each of them posts to the register.
    posts_until_ps: Vec<u64>,
}

impl Register {
    fn new() -> Register {
        Register { part: Resource::default(), users: Vec::new(), posts_until_ps: Vec::new() }
    }

    /// Returns the number of other threads that post now.
    #[inline]
    fn waiting(&self, own_until_ps: u64, now_ps: u64) -> u64 {
        let all_until_ps = self.posts_until_ps.as_slice();
        if all_until_ps.len() == 1 {
            return 0;
        }
        let posts = |until_ps: u64| u64::from(until_ps > now_ps);
        all_until_ps.iter().map(|until_ps| posts(*until_ps)).sum::<u64>() - posts(own_until_ps)
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

    /// Begins again without queue pairs, for a new incarnation of the node. Threads of earlier incarnations
    /// keep their places.
    pub(crate) fn clear(&mut self) {
        self.given = 0;
        for register in &mut self.all {
            register.posts_until_ps.fill(0);
        }
    }

    /// Gives a register to a new queue pair of a thread. `own` is the thread's own doorbell.
    pub(crate) fn give(&mut self, thread: u32, own: &mut Doorbell) -> Doorbell {
        if *own != Doorbell::NONE {
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
                *own = self.doorbell_of(number, thread);
                *own
            }
            Doorbells::OfQueuePairs => match number.checked_sub(self.private) {
                None => self.doorbell_of(number, thread),
                Some(later) => {
                    let shared = self.all.len() - self.private;
                    self.doorbell_of(self.private + later % shared, thread)
                }
            },
        }
    }

    /// Lets a thread use a register.
    fn doorbell_of(&mut self, number: usize, thread: u32) -> Doorbell {
        let register = &mut self.all[number];
        let place = register.users.iter().position(|user| *user == thread).unwrap_or_else(|| {
            register.users.push(thread);
            register.posts_until_ps.push(0);
            register.users.len() - 1
        });
        Doorbell { register: number as u32, place: place as u32 }
    }

    /// Rings a doorbell for a thread. Returns the time at which the thread continues. If one turn rings
    /// several times, each ring reserves the register from the beginning of the turn on. So the register
    /// does not wait for the thread's work between the rings.
    #[inline]
    pub(crate) fn ring(&mut self, by: Ringer, costs: &DoorbellCosts, now_ps: u64) -> u64 {
        let register = &mut self.all[by.doorbell.register as usize];
        let own_until_ps = register.posts_until_ps[by.doorbell.place as usize];
        let shared_ps = match register.waiting(own_until_ps, now_ps).min(costs.waiting_max) {
            0 => 0,
            others => costs.shared_ps + costs.handoff_ps * others,
        };
        let service_ps = (costs.alone_ps + by.far_ps) * by.slowness / SPEED + shared_ps;
        let rung_ps = register.part.reserve(now_ps, service_ps);
        let until_ps = rung_ps.max(by.local_ps + service_ps);
        register.posts_until_ps[by.doorbell.place as usize] = until_ps;
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
        let mut give = |thread| stock.give(thread, &mut Doorbell::NONE.clone()).register;
        let given: Vec<u32> = (0..30).map(&mut give).collect();
        let shared = (4..16).chain(4..16).chain(4..6);
        assert_eq!(given, (0..4).chain(shared).collect::<Vec<u32>>());
    }

    #[test]
    fn a_thread_with_a_register_of_its_own_rings_it_for_all_its_queue_pairs() {
        let mut own = registers("one-a-thread");
        let (mut one, mut other) = (Doorbell::NONE, Doorbell::NONE);
        let given = [own.give(7, &mut one), own.give(8, &mut other), own.give(7, &mut one)];
        assert_eq!(given.map(|doorbell| doorbell.register), [0, 1, 0]);
    }

    #[test]
    fn a_thread_has_one_place_at_a_register_for_all_its_queue_pairs() {
        let mut stock = registers("of-queue-pairs");
        let mut give = |thread| stock.give(thread, &mut Doorbell::NONE.clone());
        let of_one: Vec<Doorbell> = (0..17).map(|_| give(7)).collect();
        let of_other = give(8);
        assert_eq!(of_one[4], of_one[16]);
        assert_eq!((of_one[5].register, of_one[5].place), (5, 0));
        assert_eq!((of_other.register, of_other.place), (5, 1));
    }

    #[test]
    fn a_ring_costs_more_only_while_others_post() {
        let mut stock = registers("of-queue-pairs");
        let mut ring = |thread, now_ps| {
            let doorbell = stock.doorbell_of(5, thread);
            let by = Ringer { doorbell, slowness: SPEED, far_ps: 0, local_ps: now_ps };
            stock.ring(by, &COSTS, now_ps)
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
        let mut ring = |thread, local_ps, now_ps| {
            let doorbell = stock.doorbell_of(5, thread);
            stock.ring(
                Ringer { doorbell, slowness: 2 * SPEED, far_ps: 5, local_ps },
                &COSTS,
                now_ps,
            )
        };
        assert_eq!(ring(0, 500, 0), 710, "a slow thread, far from the NIC");
        assert_eq!(ring(1, 600, 600), 821, "the first still posts");
        assert_eq!(ring(2, 900, 900), 1_110, "both are through");
    }
}
