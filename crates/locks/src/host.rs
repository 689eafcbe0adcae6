//! A machine: the requests of its clients, the agents that are here, and its links, for all locks.
//!
//! Invariant: a machine is in one view. It drops every packet of another view, so that nothing that an earlier decider decided reaches it
//! later. While it is paused it sends nothing; what its clients do meanwhile takes effect when it resumes.

use crate::links::{LaneEnd, Links, Moment, Output, Pace, Packet};
use crate::packet::{LaneId, Notice, NoticeName, Reply, Waiter};
use crate::place::{Here, Place, State};
use crate::recovery::{Hold, Seat, Submission};
use crate::rules::Rule;
use crate::value::{LockId, Machine, Mode, RequestId, Thread, View};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A packet that a machine receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incoming {
    /// From the decider.
    Reply(Reply),
    /// From a machine, or from a decider that sends copies and agents on.
    Notice {
        /// The view of the sender.
        view: View,
        /// The lock.
        lock: LockId,
        /// The notice.
        notice: Notice,
    },
    /// From the machine that a notice went to.
    Acknowledgement {
        /// The view of the sender.
        view: View,
        /// The lock.
        lock: LockId,
        /// The notice.
        name: NoticeName,
    },
}

impl Incoming {
    /// A packet between machines, at its destination. `None`: the packet is for the decider.
    #[must_use]
    pub fn of(packet: &Packet) -> Option<Incoming> {
        match packet {
            Packet::Question(_) => None,
            Packet::Notice { view, lock, notice, .. } => {
                Some(Incoming::Notice { view: *view, lock: *lock, notice: notice.clone() })
            }
            Packet::Acknowledgement { view, lock, name, .. } => {
                Some(Incoming::Acknowledgement { view: *view, lock: *lock, name: *name })
            }
        }
    }

    /// The view of the sender.
    #[must_use]
    pub fn view(&self) -> View {
        match self {
            Incoming::Reply(reply) => reply.view,
            Incoming::Notice { view, .. } | Incoming::Acknowledgement { view, .. } => *view,
        }
    }
}

/// A packet that belongs to another view than the machine's. The machine drops the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherView {
    /// The packet's view.
    pub packet: View,
    /// The machine's view.
    pub current: View,
}

/// The size of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostSetup {
    /// The machine, and how its agents behave.
    pub here: Here,
    /// The number of threads with clients. Each thread has its own lane.
    pub threads: u16,
    /// The number of questions of one lane that may be unanswered at one time.
    pub window: u32,
}

/// A client's event that happened while the machine was paused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Deferred {
    Acquire(LockId, Waiter),
    Release(LockId, RequestId),
}

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    here: Here,
    view: View,
    is_paused: bool,
    places: HashMap<LockId, Place, BuildHasherDefault<LockHasher>>,
    links: Links,
    /// The last sequence number of each thread.
    sequence: Vec<u32>,
    deferred: Vec<Deferred>,
}

impl Hash for Host {
    #[expect(clippy::disallowed_methods, reason = "sorted")]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut locks: Vec<_> = self.places.iter().collect();
        locks.sort_unstable_by_key(|(lock, _)| **lock);
        locks.hash(state);
        (self.view, self.is_paused, &self.links, &self.sequence, &self.deferred).hash(state);
    }
}

impl Host {
    /// A machine without requests, in a view.
    #[must_use]
    pub fn new(setup: HostSetup, view: View) -> Host {
        let machine = setup.here.machine;
        let lane = |thread| LaneEnd::new(LaneId { machine, thread: Thread(thread) }, setup.window);
        Host {
            here: setup.here,
            view,
            is_paused: false,
            places: HashMap::default(),
            links: Links::new(view, (0..setup.threads).map(lane).collect()),
            sequence: vec![0; usize::from(setup.threads)],
            deferred: Vec::new(),
        }
    }

    /// The machine's view.
    #[must_use]
    pub fn view(&self) -> View {
        self.view
    }

    /// The machine's name.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.here.machine
    }

    /// Whether the machine waits for a new view to begin.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// A lock of which the machine knows something.
    #[must_use]
    pub fn place(&self, lock: LockId) -> Option<&Place> {
        self.places.get(&lock)
    }

    /// The number of locks of which the machine knows something.
    #[must_use]
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// The machine's links.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// A client of the thread `at.lane` requests a lock. The request is granted when `output.granted` names it, now or later.
    pub fn acquire(
        &mut self,
        at: Moment,
        lock: LockId,
        mode: Mode,
        output: &mut Output,
    ) -> RequestId {
        let seq = &mut self.sequence[at.lane];
        *seq = seq.wrapping_add(1);
        let thread = Thread(at.lane as u16);
        let request = RequestId { machine: self.here.machine, thread, seq: *seq };
        let waiter = Waiter { request, mode };
        if self.is_paused {
            self.deferred.push(Deferred::Acquire(lock, waiter));
            return request;
        }
        self.event(at, lock, output, |here, place, output| {
            place.acquire(here, waiter, &mut output.effects);
        });
        request
    }

    /// A client releases a lock. Returns whether the request held the lock.
    pub fn release(
        &mut self,
        at: Moment,
        lock: LockId,
        request: RequestId,
        output: &mut Output,
    ) -> bool {
        if self.is_paused {
            let holds = self.places.get_mut(&lock).is_some_and(|place| place.forget(request));
            if holds {
                self.deferred.push(Deferred::Release(lock, request));
            }
            return holds;
        }
        self.event(at, lock, output, |here, place, output| {
            place.release(here, request, &mut output.effects)
        })
    }

    /// A client gives up a request that waits. Returns whether the request did wait.
    pub fn give_up(
        &mut self,
        at: Moment,
        lock: LockId,
        request: RequestId,
        output: &mut Output,
    ) -> bool {
        let is_it = |it: &Deferred| matches!(it, Deferred::Acquire(of, waiter) if (*of, waiter.request) == (lock, request));
        if let Some(index) = self.deferred.iter().position(is_it) {
            self.deferred.remove(index);
            return true;
        }
        self.event(at, lock, output, |here, place, output| {
            place.give_up(here, request, &mut output.effects)
        })
    }

    /// Takes up a request for this lock that a client of this machine has given up, and that waits. The next clients of a lock whose clients
    /// give up need no further place in the queue, and so each comes to its turn.
    pub fn take_up(&mut self, lock: LockId, mode: Mode) -> Option<RequestId> {
        self.places.get_mut(&lock)?.take_up(mode)
    }

    /// A packet arrives.
    ///
    /// # Errors
    /// The packet belongs to another view, and nothing is changed.
    pub fn receive(
        &mut self,
        at: Moment,
        incoming: Incoming,
        output: &mut Output,
    ) -> Result<(), OtherView> {
        let checks = self.here.conduct.rules.keep(Rule::ViewsAreChecked);
        if (checks && incoming.view() != self.view) || self.is_paused {
            return Err(OtherView { packet: incoming.view(), current: self.view });
        }
        match incoming {
            Incoming::Reply(reply) => {
                let Some((lane, lock, ask)) = self.links.answered(&reply) else { return Ok(()) };
                self.event(Moment { lane, ..at }, lock, output, |here, place, output| {
                    let answer = (&ask, reply.answer, reply.token);
                    place.answered(here, answer, &mut output.effects);
                });
            }
            Incoming::Notice { lock, notice, .. } => {
                self.event(at, lock, output, |here, place, output| {
                    place.notice(here, notice, &mut output.effects);
                });
            }
            Incoming::Acknowledgement { lock, name, .. } => {
                let place = self.places.entry(lock).or_default();
                self.links.acknowledged((lock, place), name, &mut output.effects);
                self.carry_out(at, lock, output);
            }
        }
        Ok(())
    }

    /// Sends again all packets that are due and neither answered nor acknowledged.
    pub fn resend(&mut self, pace: Pace, now: u64, output: &mut Output) {
        if !self.is_paused {
            self.links.resend(pace, now, &mut output.packets);
        }
    }

    fn event<T>(
        &mut self,
        at: Moment,
        lock: LockId,
        output: &mut Output,
        event: impl FnOnce(Here, &mut Place, &mut Output) -> T,
    ) -> T {
        let place = self.places.entry(lock).or_default();
        let result = event(self.here, place, output);
        self.links.carry_out((self.here, lock, place), at, output);
        if place.is_idle() {
            self.places.remove(&lock);
        }
        result
    }

    fn carry_out(&mut self, at: Moment, lock: LockId, output: &mut Output) {
        let Some(place) = self.places.get_mut(&lock) else { return };
        self.links.carry_out((self.here, lock, place), at, output);
        if place.is_idle() {
            self.places.remove(&lock);
        }
    }

    /// The locks of which the machine knows something, in their order.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "sorted")]
    pub fn locks(&self) -> Vec<LockId> {
        let mut locks: Vec<LockId> = self.places.keys().copied().collect();
        locks.sort_unstable();
        locks
    }

    /// Begins a new view: everything of the old view is dropped but what the clients hold and wait for, which is returned.
    /// Until [`Host::resume`] the machine sends nothing. `None` if the machine is in this view or in a later one.
    pub fn pause(&mut self, view: View) -> Option<Submission> {
        if view <= self.view {
            return None;
        }
        self.view = view;
        self.links.begin(view);
        // A machine that is paused again has not resumed: requests made meanwhile are still unknown to any decider.
        self.is_paused = true;
        let all = self.here.conduct.rules.keep(Rule::AllHoldsAreSubmitted);
        let mut submission = Submission { view, ..Submission::default() };
        for lock in self.locks() {
            let Some(place) = self.places.get_mut(&lock) else { continue };
            let queue = place.reset();
            if !queue.is_empty() {
                submission.queues.push((lock, queue));
            }
            for it in place.requests() {
                match it.state {
                    State::Holds { agent, token, .. } if all || agent == self.here.machine => {
                        submission.holds.push(Hold { lock, waiter: it.waiter, token });
                    }
                    State::Waits => submission.waits.push((lock, it.waiter)),
                    State::GivenUp | State::Holds { .. } => {}
                }
            }
            if place.is_idle() {
                self.places.remove(&lock);
            }
        }
        // A hold that ended while the machine was paused is not in the new submission.
        self.deferred.retain(|it| matches!(it, Deferred::Acquire(..)));
        Some(submission)
    }

    /// Resumes in the view of the last pause, with the agents that the recovery gives to this machine.
    pub fn resume(&mut self, now: u64, seats: &[Seat], output: &mut Output) {
        if !std::mem::take(&mut self.is_paused) {
            return;
        }
        for seat in seats {
            let view = self.view;
            let deferred = &self.deferred;
            let is_gone =
                |request: RequestId| deferred.contains(&Deferred::Release(seat.lock, request));
            let place = self.places.entry(seat.lock).or_default();
            place.seat(self.here, view, seat, is_gone, &mut output.effects);
            self.carry_out(Moment { now, lane: 0 }, seat.lock, output);
        }
        for it in std::mem::take(&mut self.deferred) {
            match it {
                Deferred::Acquire(lock, waiter) => {
                    let lane = usize::from(waiter.request.thread.0);
                    self.event(Moment { now, lane }, lock, output, |here, place, output| {
                        place.acquire(here, waiter, &mut output.effects);
                    });
                }
                Deferred::Release(lock, request) => {
                    let agent = seats.iter().find(|seat| seat.lock == lock).map(|seat| seat.agent);
                    let Some(agent) = agent.filter(|agent| *agent != self.here.machine) else {
                        continue;
                    };
                    let lane = usize::from(request.thread.0);
                    self.event(Moment { now, lane }, lock, output, |here, place, output| {
                        place.give_back(here, request, (agent, None), &mut output.effects);
                    });
                }
            }
        }
    }
}

/// Spreads lock ids over a table: one multiplication.
#[derive(Clone, Copy, Default, Debug)]
pub struct LockHasher(u64);

impl Hasher for LockHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        let product = (self.0 ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
