//! A thread of a machine: the requests of its clients, and the mail that it handles for its machine.
//!
//! Invariants: a thread sends the mail of an event before it takes in the next event. A request whose future is
//! dropped is given up. Each request that a thread sends or serves takes [`super::REQUEST_NS`] of its processor,
//! whatever the service. A notice that comes a second time takes it again, because a thread knows a duplicate only
//! when it has handled it.

use super::MANAGER;
use super::host::{Host, VIEW};
use super::plan::{Plan, Way};
use super::programs::{DECIDER, KEY, count, thread_of};
use super::tally::Tally;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use tarn_fabric::backend::{Cost, Endpoint};
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_locks::client::Outcome;
use tarn_locks::host::Incoming;
use tarn_locks::links::{Moment, Pace, Packet};
use tarn_locks::packet::Notice;
use tarn_locks::queue::{Addressed, Content, MESSAGE_BYTES, Message};
use tarn_locks::service::{Grant, LockService, Patience, Refusal};
use tarn_locks::value::{LockId, Machine, Mode, RequestId, Token};
use tarn_locks::wire::{
    Datagram, HEADER_BYTES, Item, PACKET_BYTES, WAITER_BYTES, open, waiters_of,
};

/// The number of datagrams that a thread takes in before it sends with one doorbell. Source: DPDK's burst.
const BURST: usize = 32;

/// The time after which a question or a notice without an answer is sent again. It is longer than the queues at
/// busy agents, and no datagram is lost.
const RESEND_AFTER: Nanos = Nanos(2_000_000);

/// A thread of a machine.
pub struct Seat {
    port: Port,
    thread: u16,
    host: Rc<Host>,
    plan: Rc<Plan>,
    tally: Rc<Tally>,
    datagram: RefCell<Datagram>,
    resent_at: Cell<Nanos>,
    /// The work of a request, beside the profile's costs of its messages.
    work_ns: u64,
}

impl Seat {
    pub(crate) fn new(
        (port, work_ns): (Port, u64),
        thread: u16,
        host: &Rc<Host>,
        (plan, tally): (&Rc<Plan>, &Rc<Tally>),
    ) -> Seat {
        Seat {
            port,
            thread,
            host: Rc::clone(host),
            plan: Rc::clone(plan),
            tally: Rc::clone(tally),
            datagram: RefCell::new(Datagram::new(VIEW, DECIDER, DECIDER)),
            resent_at: Cell::new(Nanos(0)),
            work_ns,
        }
    }

    /// Returns the thread's port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    fn machine(&self) -> Machine {
        Machine(self.host.number + 1)
    }

    fn moment(&self) -> Moment {
        Moment { now: self.port.now().0, lane: usize::from(self.thread.min(MANAGER)) }
    }

    fn work(&self) {
        self.port.charge(Cost::WorkNanos(self.work_ns));
    }

    /// Requests a lock. The request's mail leaves now.
    fn ask(&self, lock: LockId, mode: Mode) -> RequestId {
        self.work();
        let before = self.tally.sent.get().messages;
        let request = match self.plan.way(lock) {
            Way::Decider => {
                let request = self.host.fission.borrow_mut().acquire(self.moment(), lock, mode);
                self.send_packets();
                request
            }
            _ => {
                let mut addressed = Vec::new();
                let queue = &self.host.queues[usize::from(self.thread)];
                let now = self.port.now().0;
                let request = queue.borrow_mut().acquire(now, lock, mode, &mut addressed);
                self.send_messages(addressed);
                request
            }
        };
        // A question that waits for its lane has sent nothing either, and nothing is known of it yet.
        let is_local = self.tally.sent.get().messages == before
            && match self.plan.way(lock) {
                Way::Decider => self.outcome(lock, request) != Some(Outcome::Asked),
                _ => true,
            };
        self.tally.count(|sent| sent.local += u64::from(is_local));
        request
    }

    fn outcome(&self, lock: LockId, request: RequestId) -> Option<Outcome> {
        match self.plan.way(lock) {
            Way::Decider => self.host.fission.borrow().outcome(request),
            _ => self.host.queues[usize::from(self.thread)].borrow().outcome(request),
        }
    }

    /// Ends a request, which holds its lock or waits.
    fn end(&self, lock: LockId, request: RequestId) {
        self.work();
        match self.plan.way(lock) {
            Way::Decider => {
                self.host.fission.borrow_mut().end(self.moment(), request);
                self.send_packets();
            }
            _ => {
                let mut addressed = Vec::new();
                let queue = &self.host.queues[usize::from(self.thread)];
                queue.borrow_mut().end(self.port.now().0, request, &mut addressed);
                self.send_messages(addressed);
            }
        }
    }

    /// Sends the packets of the machine's requests and agents.
    fn send_packets(&self) {
        let packets: Vec<Packet> = self.host.fission.borrow_mut().packets().collect();
        for packet in packets {
            if !self.fits(&packet) {
                continue;
            }
            if let Packet::Notice { lock, notice: Notice::Copy { .. }, .. } = &packet {
                self.tally.copy_leaves(*lock);
            }
            let (machine, place) = match &packet {
                Packet::Question(_) => (DECIDER, self.plan.switch),
                Packet::Notice { to, notice, .. } => {
                    (*to, self.plan.agent_place(*to, thread_of(*to, notice)))
                }
                Packet::Acknowledgement { to, name, .. } => {
                    let is_own = name.request.machine == *to;
                    let thread = if is_own { name.request.thread.0 } else { MANAGER };
                    (*to, self.plan.agent_place(*to, thread))
                }
            };
            self.tally.count(|sent| match packet {
                Packet::Acknowledgement { .. } => sent.acknowledgements += 1,
                _ => sent.messages += 1,
            });
            let datagram = &mut *self.datagram.borrow_mut();
            datagram.begin(VIEW, self.machine(), machine);
            datagram.packet(&packet);
            self.send(place, datagram.seal(&KEY));
        }
    }

    /// The thread of the agents sends packets again that were sent long ago and have no answer.
    fn resend(&self) {
        let now = self.port.now();
        if self.thread != MANAGER || now - self.resent_at.get() < RESEND_AFTER {
            return;
        }
        self.resent_at.set(now);
        self.host.fission.borrow_mut().resend(Pace::constant(RESEND_AFTER.0), now.0);
        let sent = self.tally.sent.get();
        self.send_packets();
        let again = self.tally.sent.get().messages - sent.messages;
        self.tally.count(|sent| {
            (sent.messages, sent.resends) = (sent.messages - again, sent.resends + again)
        });
    }

    /// Returns whether a packet fits one datagram. If not, the run ends without a result: an agent and its queue
    /// travel in one packet, and no switch could put two together.
    fn fits(&self, packet: &Packet) -> bool {
        let bytes_max = self.port.caps().datagram_bytes_max;
        let waiters_max = (bytes_max - HEADER_BYTES - PACKET_BYTES) / WAITER_BYTES;
        let waiters = waiters_of(packet);
        if waiters > waiters_max {
            let allowed = format!("0 to {waiters_max}, which fit {bytes_max} bytes");
            self.tally.stop("requests that wait for one lock", waiters, allowed);
        }
        waiters <= waiters_max
    }

    fn send(&self, to: Endpoint, bytes: &[u8]) {
        self.port.send(to, bytes).expect("a lock packet that fits a datagram");
    }

    /// Sends messages of queues. A message to this machine is taken in at once, under the part's mutex.
    fn send_messages(&self, mut addressed: Vec<Addressed>) {
        let mut next = 0;
        while let Some((to, message)) = addressed.get(next).copied() {
            next += 1;
            let place = self.plan.place(to, message.lock);
            if place.node == self.port.endpoint().node {
                self.take(&message, place.thread, &mut addressed);
                continue;
            }
            count(&self.tally, &message);
            self.send(place, &message.encode());
        }
    }

    /// A part of this machine takes in a message of queues.
    fn take(&self, message: &Message, thread: u16, addressed: &mut Vec<Addressed>) {
        if message.is_for_client() {
            let queue = &self.host.queues[usize::from(thread)];
            queue.borrow_mut().receive(self.port.now().0, message, addressed);
            return;
        }
        if matches!(message.content, Content::Acquire(_)) {
            let share = match self.plan.way(message.lock) {
                Way::Home(host) => host,
                _ => self.thread,
            };
            self.tally.served.borrow_mut()[usize::from(share)] += 1;
        }
        self.host.server.borrow_mut().receive(self.port.now().0, message, addressed);
    }

    /// A datagram arrives.
    fn arrive(&self, bytes: &[u8]) {
        if bytes.len() == MESSAGE_BYTES {
            let Some(message) = Message::decode(bytes) else { return };
            if !message.is_for_client() {
                self.work();
            }
            let mut addressed = Vec::new();
            self.take(&message, self.thread, &mut addressed);
            return self.send_messages(addressed);
        }
        let mut arrived: Option<Incoming> = None;
        let opened = open(bytes, (self.machine(), &KEY), &mut |_, item| {
            if let Item::Incoming(it) = item {
                arrived = Some(it);
            }
        });
        let Some(incoming) = arrived.filter(|_| opened.is_ok()) else { return };
        if let Incoming::Notice { notice: Notice::Copy { .. } | Notice::Release { .. }, .. } =
            incoming
        {
            self.work();
        }
        if let Incoming::Notice { lock, notice: Notice::Copy { .. }, .. } = &incoming {
            self.tally.copy_arrives(*lock);
        }
        // A packet of another view is dropped.
        let _ = self.host.fission.borrow_mut().receive(self.moment(), incoming);
        self.send_packets();
    }
}

/// A request that waits. Dropping it gives the request up.
struct Waiting<'a> {
    seat: &'a Seat,
    lock: LockId,
    request: RequestId,
    is_done: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.seat.end(self.lock, self.request);
        }
    }
}

impl LockService for Seat {
    async fn acquire(
        &self,
        lock: LockId,
        mode: Mode,
        patience: Patience,
    ) -> Result<Grant, Refusal> {
        let locks = self.plan.locks;
        if lock.0 >= locks {
            return Err(Refusal::OutOfRange { lock, locks });
        }
        let request = self.ask(lock, mode);
        let mut waiting = Waiting { seat: self, lock, request, is_done: false };
        let deadline = match patience {
            Patience::Nanos(nanos) => Some(self.port.now() + Nanos(nanos)),
            Patience::Try | Patience::Forever => None,
        };
        let token: Token = poll_fn(|_| match self.outcome(lock, request) {
            Some(Outcome::Holds(token)) => Poll::Ready(Ok(token)),
            Some(Outcome::Queued) if patience == Patience::Try => Poll::Ready(Err(Refusal::Busy)),
            _ if deadline.is_some_and(|end| self.port.now() >= end) => {
                Poll::Ready(Err(Refusal::TimedOut))
            }
            _ => Poll::Pending,
        })
        .await?;
        waiting.is_done = true;
        Ok(Grant { lock, request, mode, token })
    }

    fn release(&self, grant: Grant) {
        self.end(grant.lock, grant.request);
    }

    fn poll(&self) -> bool {
        self.resend();
        self.port.receive(BURST, &mut |_, bytes| self.arrive(bytes)) > 0
    }
}
