//! The machine inside a client: its host, its requests that wait, and its life.
//!
//! Invariants: all events of one lock go through one lane, in the order in which they happen. Nothing is granted without a lease. When a
//! life ends, its grants are lost, and its requests that wait are made again in the next life.

use super::slot::Slot;
use crate::config::{Config, LANES};
use crate::counters::Counters;
use crate::os::MS_NS;
use crate::outbox::{DECIDER, Outbox};
use crate::udp::Socket;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::net::SocketAddr;
use std::sync::Arc;
use tarn_locks::agent::Conduct;
use tarn_locks::decider::Setup;
use tarn_locks::host::{Host, HostSetup, Incoming, LockHasher};
use tarn_locks::links::{Moment, Output, Pace, Packet};
use tarn_locks::packet::{Ask, Question};
use tarn_locks::place::{Here, State};
use tarn_locks::recovery::{Seat, Submission};
use tarn_locks::service::{Grant, Refusal};
use tarn_locks::value::{LockId, Machine, Mode, Policy, RequestId, View};
use tarn_locks::wire::{self, Item, Key};

/// A packet without an answer is sent again after this time. Source: a hundred times the round trip of a sleeping process.
pub(crate) const RESEND_NS: u64 = 10 * MS_NS;
/// A packet that stays without an answer is sent again ever more rarely: at last three times in a quarter of the default lease.
const PACE: Pace = Pace { least: RESEND_NS, most: 8 * RESEND_NS };

/// A caller that asks for a lock so soon after a release will do so again. Source: two round trips of a spinning process.
const TIGHT_NS: u64 = 10_000;

/// A life of the machine, as one word: the machine above the view in which it began. 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LifeWord(pub(crate) u64);

impl LifeWord {
    fn new(machine: Machine, view: View) -> LifeWord {
        LifeWord(u64::from(machine.0) << 32 | u64::from(view.0))
    }

    /// Returns whether the grant was made to this run of the process. A machine's id serves one run in each view.
    pub(crate) fn has(self, grant: &Grant) -> bool {
        let (machine, view) = ((self.0 >> 32) as u16, self.0 as u32);
        machine == grant.request.machine.0 && view <= grant.token.view.0 && machine != 0
    }
}

/// The beginning of a request.
pub(crate) enum Start {
    /// It is granted at once.
    Granted(Grant),
    /// It waits for an answer.
    Waits(RequestId),
    /// The machine has no life yet.
    Later,
    /// It is refused.
    Refused(Refusal),
}

type Slots = HashMap<(u16, u32), Arc<Slot>, BuildHasherDefault<LockHasher>>;

/// A client's machine.
#[derive(Debug)]
pub(crate) struct Core {
    key: Key,
    locks: u32,
    policy: Policy,
    /// The decider sends copies and agents on; otherwise this machine does.
    decider_sends: bool,
    waiters_max: usize,
    pub(crate) host: Option<Host>,
    pub(crate) life: LifeWord,
    /// When the lease ends; `None`: the life has none yet.
    pub(crate) lease_until_ns: Option<u64>,
    output: Output,
    pub(crate) outbox: Outbox,
    pub(crate) counters: Counters,
    slots: Slots,
    /// Requests that wait for a life.
    orphans: Vec<Arc<Slot>>,
    /// Grants that were lost, and of which no one has been told yet.
    pub(crate) lost: Vec<Grant>,
    items: Vec<Item>,
    /// Packets between machines have gone to and fro in this life.
    pub(crate) has_peers: bool,
    /// A packet for which another machine waits is ready to leave.
    is_urgent: bool,
    /// When a lock was released last.
    released_ns: u64,
    /// Callers ask for a lock as soon as they have released one.
    is_tight: bool,
}

impl Core {
    pub(crate) fn new(config: &Config) -> Core {
        Core {
            key: config.key,
            locks: config.locks,
            policy: config.policy,
            decider_sends: !config.xdp,
            waiters_max: config.waiters_max(),
            host: None,
            life: LifeWord::default(),
            lease_until_ns: None,
            output: Output::default(),
            outbox: Outbox::new(DECIDER, View(0), config.key),
            counters: Counters::default(),
            slots: HashMap::default(),
            orphans: Vec::new(),
            lost: Vec::new(),
            items: Vec::new(),
            has_peers: false,
            is_urgent: false,
            released_ns: 0,
            is_tight: false,
        }
    }

    /// Whether the lease has ended. A life without a lease so far does not end here.
    pub(crate) fn has_expired(&self, now_ns: u64) -> bool {
        self.lease_until_ns.is_some_and(|until_ns| now_ns >= until_ns)
    }

    /// Whether requests can be made.
    pub(crate) fn is_ready(&self) -> bool {
        self.host.is_some() && self.lease_until_ns.is_some()
    }

    /// Begins a life. Requests are made as soon as it has a lease.
    pub(crate) fn begin_life(&mut self, machine: Machine, view: View) {
        let (width, rules) = Setup::PROCESS.counts();
        let conduct = Conduct { policy: self.policy, width, rules };
        let here = Here { machine, conduct, decider_sends: self.decider_sends };
        let setup = HostSetup { here, threads: LANES, window: Setup::PROCESS.window };
        self.host = Some(Host::new(setup, view));
        self.life = LifeWord::new(machine, view);
        self.lease_until_ns = None;
        self.has_peers = false;
        self.outbox.begin(machine, view);
    }

    /// The lease is longer. Makes the requests that have waited for it.
    pub(crate) fn extend_lease(&mut self, until_ns: u64, now_ns: u64) {
        if self.host.is_none() {
            return;
        }
        self.lease_until_ns = self.lease_until_ns.max(Some(until_ns));
        for slot in std::mem::take(&mut self.orphans) {
            if slot.waits() {
                self.start_waiting(now_ns, &slot);
            }
        }
    }

    /// Ends the life: its grants are lost. Returns whether there was one.
    pub(crate) fn end_life(&mut self) -> bool {
        let Some(host) = self.host.take() else { return false };
        for lock in host.locks() {
            for it in host.place(lock).into_iter().flat_map(|place| place.requests()) {
                if let State::Holds { token, .. } = it.state {
                    let (request, mode) = (it.waiter.request, it.waiter.mode);
                    self.lost.push(Grant { lock, request, mode, token });
                }
            }
        }
        (self.life, self.lease_until_ns) = (LifeWord::default(), None);
        self.output = Output::default();
        self.outbox.begin(DECIDER, View(0));
        let mut slots: Vec<_> = std::mem::take(&mut self.slots).into_iter().collect();
        slots.sort_unstable_by_key(|(name, _)| *name);
        for (_, slot) in slots {
            slot.set_request(None);
            self.orphans.push(slot);
        }
        true
    }

    /// Ends all requests that wait: the client is closed.
    pub(crate) fn refuse_all(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        let mut slots: Vec<_> = slots.into_iter().collect();
        slots.sort_unstable_by_key(|(name, _)| *name);
        let slots = slots.into_iter().map(|(_, slot)| slot);
        slots.chain(std::mem::take(&mut self.orphans)).for_each(|slot| {
            slot.end(Err(Refusal::Unavailable));
        });
    }

    /// Begins a request.
    #[inline]
    pub(crate) fn start(&mut self, now_ns: u64, lock: LockId, mode: Mode) -> Start {
        if lock.0 >= self.locks {
            return Start::Refused(Refusal::OutOfRange { lock, locks: self.locks });
        }
        if self.has_expired(now_ns) {
            self.end_life();
        }
        let Some(host) = self.host.as_mut().filter(|_| self.lease_until_ns.is_some()) else {
            return Start::Later;
        };
        let max = self.waiters_max;
        if host.place(lock).is_some_and(|place| is_crowded(place.requests(), max)) {
            return Start::Refused(Refusal::TooManyWaiters { max });
        }
        self.is_tight = now_ns.saturating_sub(self.released_ns) < TIGHT_NS;
        let request = host.acquire(moment(now_ns, lock), lock, mode, &mut self.output);
        let granted = self.output.granted.pop_if(|(_, granted, _)| *granted == request);
        if let Some((_, request, token)) = granted {
            return Start::Granted(Grant { lock, request, mode, token });
        }
        Start::Waits(request)
    }

    /// Begins a request whose caller waits.
    pub(crate) fn start_waiting(&mut self, now_ns: u64, slot: &Arc<Slot>) {
        let start = self.start(now_ns, slot.lock, slot.mode);
        self.wait_for(now_ns, slot, start);
    }

    /// Connects a request that has begun with its caller.
    pub(crate) fn wait_for(&mut self, now_ns: u64, slot: &Arc<Slot>, start: Start) {
        match start {
            Start::Granted(grant) => {
                if !slot.end(Ok(grant)) {
                    self.release(now_ns, &grant);
                }
            }
            Start::Refused(refusal) => _ = slot.end(Err(refusal)),
            Start::Later => self.orphans.push(Arc::clone(slot)),
            Start::Waits(request) => {
                slot.set_request(Some(request));
                self.slots.insert((request.thread.0, request.seq), Arc::clone(slot));
            }
        }
        self.settle(now_ns);
    }

    /// Releases a lock of this life.
    #[inline]
    pub(crate) fn release(&mut self, now_ns: u64, grant: &Grant) {
        let Some(host) = self.host.as_mut().filter(|_| self.life.has(grant)) else { return };
        host.release(moment(now_ns, grant.lock), grant.lock, grant.request, &mut self.output);
        self.released_ns = now_ns;
        self.settle(now_ns);
    }

    /// Whether the packets that are ready may leave together with the next request. They do no more than free locks for which no other
    /// machine is known to wait.
    pub(crate) fn may_wait(&self) -> bool {
        self.is_tight && !self.is_urgent
    }

    /// Gives up a request that waits.
    pub(crate) fn give_up(&mut self, now_ns: u64, slot: &Slot) {
        if let (Some(request), Some(host)) = (slot.request(), &mut self.host) {
            self.slots.remove(&(request.thread.0, request.seq));
            host.give_up(moment(now_ns, slot.lock), slot.lock, request, &mut self.output);
            self.settle(now_ns);
        }
    }

    /// Hands on the results of events.
    #[inline]
    pub(crate) fn settle(&mut self, now_ns: u64) {
        let Core { output, outbox, counters, decider_sends, .. } = self;
        for packet in output.packets.drain(..) {
            let to = match &packet {
                Packet::Question(Question { ask: Ask::Free { .. }, .. }) => DECIDER,
                Packet::Question(_) => {
                    self.is_urgent = true;
                    DECIDER
                }
                Packet::Notice { to, .. } | Packet::Acknowledgement { to, .. } => {
                    let is_acknowledgement = matches!(packet, Packet::Acknowledgement { .. });
                    counters.acknowledgements_out += u64::from(is_acknowledgement);
                    (self.has_peers, self.is_urgent) = (true, true);
                    *to
                }
            };
            match &packet {
                // A queue that the decider does not send on stays here.
                Packet::Question(question) if !*decider_sends => {
                    outbox.put(to, 0, counters, |it| it.question_alone(question));
                }
                _ => outbox.put(to, wire::waiters_of(&packet), counters, |it| it.packet(&packet)),
            }
        }
        if !self.output.granted.is_empty() || !self.output.queued.is_empty() {
            self.settle_slots(now_ns);
        }
    }

    fn settle_slots(&mut self, now_ns: u64) {
        let granted = std::mem::take(&mut self.output.granted);
        let queued = std::mem::take(&mut self.output.queued);
        if !granted.is_empty() && self.has_expired(now_ns) {
            self.end_life();
            return;
        }
        for (lock, request, token) in granted {
            let slot = self.slots.remove(&(request.thread.0, request.seq));
            let Some(slot) = slot else { continue };
            let grant = Grant { lock, request, mode: slot.mode, token };
            if !slot.end(Ok(grant)) {
                self.release(now_ns, &grant);
            }
        }
        for (_, request) in queued {
            let slot = self.slots.get(&(request.thread.0, request.seq));
            if let Some(slot) = slot.filter(|slot| slot.is_try).cloned() {
                slot.end(Err(Refusal::Busy));
                self.give_up(now_ns, &slot);
            }
        }
    }

    /// Takes in a datagram.
    pub(crate) fn datagram(&mut self, bytes: &[u8], source: Option<SocketAddr>, now_ns: u64) {
        self.counters.datagrams_in += 1;
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        let machine = self.host.as_ref().map(Host::machine);
        let opened = match machine {
            Some(machine) => wire::open(bytes, (machine, &self.key), &mut |_, it| items.push(it)),
            None => {
                self.counters.other_views += 1;
                self.items = items;
                return;
            }
        };
        match opened {
            Err(malformed) => self.counters.refuse(malformed),
            Ok(ends) if source.is_none() || self.outbox.peer(ends.from) != source => {
                self.counters.strangers += 1;
            }
            Ok(_) => {
                self.counters.packets_in += items.len() as u64;
                for item in items.drain(..) {
                    if let Item::Incoming(incoming) = item {
                        self.incoming(incoming, now_ns);
                    }
                }
            }
        }
        self.items = items;
    }

    fn incoming(&mut self, incoming: Incoming, now_ns: u64) {
        let lock = match &incoming {
            Incoming::Reply(reply) => reply.lock,
            Incoming::Notice { lock, .. } | Incoming::Acknowledgement { lock, .. } => *lock,
        };
        if lock.0 >= self.locks {
            self.counters.out_of_range += 1;
            return;
        }
        let Some(host) = &mut self.host else { return };
        if host.receive(moment(now_ns, lock), incoming, &mut self.output).is_err() {
            self.counters.other_views += 1;
        }
        self.settle(now_ns);
    }

    /// Begins to wait for a view. `None`: the machine waits for it already, or is in it.
    pub(crate) fn pause(&mut self, view: View) -> Option<Submission> {
        let host = self.host.as_mut()?;
        let submission = host.pause(view)?;
        self.outbox.begin(host.machine(), view);
        Some(submission)
    }

    /// A view begins.
    pub(crate) fn resume(&mut self, now_ns: u64, view: View, seats: &[Seat]) {
        let Some(host) = self.host.as_mut().filter(|host| host.view() == view) else { return };
        host.resume(now_ns, seats, &mut self.output);
        self.settle(now_ns);
    }

    /// Sets the machines that take part.
    pub(crate) fn set_members(&mut self, members: &[(u16, SocketAddr)]) {
        let is_member = |machine: Machine| members.iter().any(|(member, _)| *member == machine.0);
        self.outbox.retain(|machine| machine == DECIDER || is_member(machine));
        for (machine, at) in members {
            self.outbox.set_peer(Machine(*machine), *at);
        }
    }

    /// Whether nothing waits for an answer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.host.as_ref().is_none_or(|host| host.links().is_quiet())
    }

    /// Sends again whatever has had no answer for too long, and ends a life without a lease.
    pub(crate) fn maintain(&mut self, now_ns: u64) {
        if self.has_expired(now_ns) {
            self.end_life();
            return;
        }
        let Some(host) = &mut self.host else { return };
        if host.links().may_be_due(PACE, now_ns) {
            host.resend(PACE, now_ns, &mut self.output);
            self.counters.resent += self.output.packets.len() as u64;
            self.settle(now_ns);
        }
    }

    /// Sends everything that is ready.
    pub(crate) fn flush(&mut self, socket: &Socket) {
        self.is_urgent = false;
        self.outbox.flush(socket, &mut self.counters);
    }
}

fn moment(now_ns: u64, lock: LockId) -> Moment {
    Moment { now: now_ns, lane: (lock.0 % u32::from(LANES)) as usize }
}

fn is_crowded(requests: &[tarn_locks::place::Request], max: usize) -> bool {
    let waits = |it: &&tarn_locks::place::Request| !matches!(it.state, State::Holds { .. });
    requests.len() >= max && requests.iter().filter(waits).count() >= max
}
