//! The clients of one machine: a [`Host`] that remembers how each of its clients' requests stands.
//!
//! Invariant: a request is remembered from its acquire to its release or until it is given up. A request that is given up after its grant is
//! released here, so that no caller has to know which came first.

use crate::host::{Host, HostSetup, Incoming, OtherView};
use crate::links::{Moment, Output, Pace, Packet};
use crate::place::State;
use crate::recovery::{Seat, Submission};
use crate::value::{LockId, Mode, RequestId, Token, View};
use std::collections::BTreeMap;

/// How a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Nothing is known of it yet.
    Asked,
    /// It is known to wait behind others.
    Queued,
    /// It holds its lock.
    Holds(Token),
}

/// The clients of one machine.
#[derive(Debug)]
pub struct Client {
    host: Host,
    requests: BTreeMap<RequestId, (LockId, Outcome)>,
    /// Requests that were given up, and that an agent has in its queue.
    queued: BTreeMap<RequestId, LockId>,
    output: Output,
}

/// The number of entries of `queued` above which ended requests are looked for.
const QUEUED_FEW: usize = 64;

impl Client {
    /// Clients without requests, in a view.
    #[must_use]
    pub fn new(setup: HostSetup, view: View) -> Client {
        let host = Host::new(setup, view);
        let (requests, queued) = (BTreeMap::new(), BTreeMap::new());
        Client { host, requests, queued, output: Output::default() }
    }

    /// The machine.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// A client requests a lock. If a request that was given up still waits for it, the client takes that request up. It counts as
    /// queued only if an agent has said so: the packet that carries it may be lost.
    pub fn acquire(&mut self, at: Moment, lock: LockId, mode: Mode) -> RequestId {
        if let Some(request) = self.host.take_up(lock, mode) {
            let outcome = match self.queued.remove(&request) {
                Some(_) => Outcome::Queued,
                None => Outcome::Asked,
            };
            self.requests.insert(request, (lock, outcome));
            return request;
        }
        let request = self.host.acquire(at, lock, mode, &mut self.output);
        self.requests.insert(request, (lock, Outcome::Asked));
        self.note();
        request
    }

    /// How a request stands; `None` if it was released or given up, or never made.
    #[must_use]
    pub fn outcome(&self, request: RequestId) -> Option<Outcome> {
        self.requests.get(&request).map(|(_, outcome)| *outcome)
    }

    /// The requests that wait or hold a lock, in their order.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, LockId, Outcome)> {
        self.requests.iter().map(|(request, (lock, outcome))| (*request, *lock, *outcome))
    }

    /// A client ends a request, which holds its lock or waits. Returns whether the request was remembered.
    pub fn end(&mut self, at: Moment, request: RequestId) -> bool {
        let Some((lock, outcome)) = self.requests.remove(&request) else { return false };
        match outcome {
            Outcome::Holds(_) => _ = self.host.release(at, lock, request, &mut self.output),
            Outcome::Asked | Outcome::Queued => {
                self.host.give_up(at, lock, request, &mut self.output);
            }
        }
        if outcome == Outcome::Queued {
            self.keep_queued(lock, request);
        }
        self.note();
        true
    }

    /// A packet arrives.
    ///
    /// # Errors
    /// The packet belongs to another view, and nothing is changed.
    pub fn receive(&mut self, at: Moment, incoming: Incoming) -> Result<(), OtherView> {
        self.host.receive(at, incoming, &mut self.output)?;
        self.note();
        Ok(())
    }

    /// Sends again all packets that are due and neither answered nor acknowledged.
    pub fn resend(&mut self, pace: Pace, now: u64) {
        if self.host.links().may_be_due(pace, now) {
            self.host.resend(pace, now, &mut self.output);
        }
    }

    /// Remembers that an agent has a request in its queue which was given up.
    fn keep_queued(&mut self, lock: LockId, request: RequestId) {
        let Client { host, queued, .. } = self;
        let is_given_up = |request: RequestId, lock: LockId| {
            let of = host.place(lock).map_or(&[][..], |place| place.requests());
            of.iter().any(|it| it.waiter.request == request && it.state == State::GivenUp)
        };
        if is_given_up(request, lock) {
            queued.insert(request, lock);
        }
        if queued.len() > QUEUED_FEW + self.requests.len() {
            queued.retain(|request, lock| is_given_up(*request, *lock));
        }
    }

    /// See [`Host::pause`].
    pub fn pause(&mut self, view: View) -> Option<Submission> {
        self.output.packets.clear();
        self.queued.clear();
        self.host.pause(view)
    }

    /// See [`Host::resume`].
    pub fn resume(&mut self, now: u64, seats: &[Seat]) {
        self.host.resume(now, seats, &mut self.output);
        self.note();
    }

    /// Takes the packets that are to be sent, in their order.
    pub fn packets(&mut self) -> impl Iterator<Item = Packet> {
        self.output.packets.drain(..)
    }

    fn note(&mut self) {
        for at in 0..self.output.queued.len() {
            let (lock, request) = self.output.queued[at];
            if !self.requests.contains_key(&request) {
                self.keep_queued(lock, request);
            }
        }
        let Client { requests, output, .. } = self;
        let mut set = |request: RequestId, outcome: Outcome| {
            if let Some((_, known)) = requests.get_mut(&request)
                && !matches!(known, Outcome::Holds(_))
            {
                *known = outcome;
            }
        };
        output.queued.drain(..).for_each(|(_, request)| set(request, Outcome::Queued));
        output
            .granted
            .drain(..)
            .for_each(|(_, request, token)| set(request, Outcome::Holds(token)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Conduct;
    use crate::decider::{Decider, Sent, Setup};
    use crate::place::Here;
    use crate::rules::Rules;
    use crate::value::{Machine, Policy, Width};

    const AT: Moment = Moment { now: 0, lane: 0 };
    const LOCK: LockId = LockId(0);

    fn clients(machine: u16) -> Client {
        let conduct = Conduct { policy: Policy::InOrder, width: Width::WIDE, rules: Rules::ALL };
        let here = Here { machine: Machine(machine), conduct, decider_sends: true };
        Client::new(HostSetup { here, threads: 1, window: 64 }, View(1))
    }

    /// Delivers all packets of two machines and their decider.
    fn settle(all: &mut [Client; 2], decider: &mut Decider) {
        let of = |machine: Machine| usize::from(machine.0) - 1;
        let mut packets: Vec<Packet> = all.iter_mut().flat_map(Client::packets).collect();
        while let Some(packet) = packets.pop() {
            let mut incoming = Vec::new();
            match (&packet, Incoming::of(&packet)) {
                (Packet::Question(question), _) => decider
                    .receive(question, &mut |sent| match sent {
                        Sent::Reply(reply) => {
                            incoming.push((reply.lane.machine, Incoming::Reply(reply)));
                        }
                        Sent::Notice { to, view, lock, notice } => {
                            incoming.push((to, Incoming::Notice { view, lock, notice }));
                        }
                    })
                    .expect("taken"),
                (Packet::Notice { to, .. } | Packet::Acknowledgement { to, .. }, Some(it)) => {
                    incoming.push((*to, it));
                }
                (_, None) => unreachable!("only questions are for the decider"),
            }
            for (to, it) in incoming {
                all[of(to)].receive(AT, it).expect("of this view");
                packets.extend(all[of(to)].packets());
            }
        }
    }

    #[test]
    fn a_request_that_waits_is_granted_by_the_release_before_it() {
        let (mut all, mut decider) =
            ([clients(1), clients(2)], Decider::new(Setup::PROCESS, View(1), 1));
        let first = all[0].acquire(AT, LOCK, Mode::Exclusive);
        settle(&mut all, &mut decider);
        assert!(matches!(all[0].outcome(first), Some(Outcome::Holds(_))));
        let second = all[1].acquire(AT, LOCK, Mode::Exclusive);
        settle(&mut all, &mut decider);
        assert_eq!(all[1].outcome(second), Some(Outcome::Queued));
        assert!(all[0].end(AT, first) && !all[0].end(AT, first));
        settle(&mut all, &mut decider);
        assert!(matches!(all[1].outcome(second), Some(Outcome::Holds(_))));
        assert_eq!(all[0].outcome(first), None);
    }

    #[test]
    fn a_request_that_is_given_up_holds_nothing_later() {
        let (mut all, mut decider) =
            ([clients(1), clients(2)], Decider::new(Setup::PROCESS, View(1), 1));
        let first = all[0].acquire(AT, LOCK, Mode::Exclusive);
        let second = all[1].acquire(AT, LOCK, Mode::Exclusive);
        settle(&mut all, &mut decider);
        let holder = usize::from(matches!(all[1].outcome(second), Some(Outcome::Holds(_))));
        let ids = [first, second];
        assert!(all[1 - holder].end(AT, ids[1 - holder]));
        settle(&mut all, &mut decider);
        assert!(all[holder].end(AT, ids[holder]));
        settle(&mut all, &mut decider);
        assert!(all.iter().all(|it| it.host().places() == 0 && it.requests().count() == 0));
        assert!(decider.entry(LOCK).is_some_and(|entry| entry.held.is_none()));
    }

    #[test]
    fn a_request_that_is_taken_up_is_queued_only_once_its_agent_has_said_so() {
        let (mut all, mut decider) =
            ([clients(1), clients(2)], Decider::new(Setup::PROCESS, View(1), 1));
        let held = all[0].acquire(AT, LOCK, Mode::Exclusive);
        settle(&mut all, &mut decider);
        let waits = all[1].acquire(AT, LOCK, Mode::Exclusive);
        // The question is lost: nothing has arrived anywhere.
        all[1].packets().for_each(drop);
        assert!(all[1].end(AT, waits));
        assert_eq!(all[1].acquire(AT, LOCK, Mode::Exclusive), waits);
        assert_eq!(all[1].outcome(waits), Some(Outcome::Asked), "no agent knows it");
        assert!(all[1].end(AT, waits));
        all[1].resend(Pace::constant(0), 0);
        // The agent takes it in after it was given up.
        settle(&mut all, &mut decider);
        assert_eq!(all[1].acquire(AT, LOCK, Mode::Exclusive), waits);
        assert_eq!(all[1].outcome(waits), Some(Outcome::Queued));
        assert!(all[1].queued.is_empty());
        assert!(all[0].end(AT, held));
        settle(&mut all, &mut decider);
        assert!(matches!(all[1].outcome(waits), Some(Outcome::Holds(_))));
    }

    #[test]
    fn a_client_takes_up_a_request_that_waits_and_was_given_up() {
        let (mut all, mut decider) =
            ([clients(1), clients(2)], Decider::new(Setup::PROCESS, View(1), 1));
        let held = all[0].acquire(AT, LOCK, Mode::Exclusive);
        settle(&mut all, &mut decider);
        let waits = all[1].acquire(AT, LOCK, Mode::Exclusive);
        settle(&mut all, &mut decider);
        for _ in 0..100 {
            assert!(all[1].end(AT, waits));
            assert_ne!(all[1].acquire(AT, LOCK, Mode::Shared), waits, "in another mode");
            let shared = all[1].requests().last().expect("it waits").0;
            all[1].end(AT, shared);
            assert_eq!(all[1].acquire(AT, LOCK, Mode::Exclusive), waits);
            settle(&mut all, &mut decider);
        }
        assert_eq!(all[1].host().place(LOCK).expect("waits").requests().len(), 2);
        assert!(all[0].end(AT, held));
        settle(&mut all, &mut decider);
        assert!(matches!(all[1].outcome(waits), Some(Outcome::Holds(_))));
    }
}
