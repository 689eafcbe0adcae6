//! One machine of a cluster: the lock's place, the links and the clients, as one value.
//!
//! Invariant: an event of a machine is a function of the machine's value, so that its results are remembered and used again wherever the
//! same machine meets the same event.

use super::bounds::{Action, Bounds, Flight};
use crate::host::{Host, HostSetup, Incoming};
use crate::links::{Moment, Output, Pace, Packet};
use crate::packet::{LaneId, Notice, NoticeKind, NoticeName};
use crate::place::{Place, State};
use crate::recovery::Submission;
use crate::value::{LockId, Machine, Mode, RequestId, Token, View};

pub(super) const LOCK: LockId = LockId(0);
pub(super) const VIEW: View = View(1);
const AT: Moment = Moment { now: 0, lane: 0 };

/// A client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Client {
    Idle,
    Waits(RequestId, Mode),
    Holds(RequestId, Mode, Token),
}

/// A client, without its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Idle,
    Waits,
    Holds,
}

/// A machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    host: Host,
    clients: Vec<Client>,
    is_dead: bool,
}

/// A use of the guarded resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) mode: Mode,
    pub(super) token: Token,
    pub(super) request: RequestId,
}

/// The results of an event.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) node: Node,
    pub(super) sent: Vec<Flight>,
    pub(super) accesses: Vec<Access>,
    pub(super) submission: Option<Submission>,
}

impl Node {
    pub(super) fn new(bounds: &Bounds, machine: u16) -> Node {
        let clients = bounds.clients.iter().filter(|of| **of == machine).count();
        let threads = if bounds.has_threads() { clients as u16 } else { 1 };
        let (here, window) = (bounds.here(Machine(machine)), bounds.setup().window);
        Node {
            host: Host::new(HostSetup { here, threads, window }, VIEW),
            clients: vec![Client::Idle; clients],
            is_dead: false,
        }
    }

    pub(super) fn view(&self) -> View {
        self.host.view()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// The machine dies, and its leases have ended.
    pub(super) fn die(&mut self) {
        self.is_dead = true;
        self.clients.clear();
    }

    fn place(&self) -> Option<&Place> {
        self.host.place(LOCK)
    }

    pub(super) fn machine(&self) -> Machine {
        self.host.machine()
    }

    /// Its clients, and whether a client is idle like the one before it. Idle clients of one machine are alike, unless threads matter.
    pub(super) fn clients(&self, bounds: &Bounds) -> impl Iterator<Item = (u8, Stage, bool)> {
        let has_threads = bounds.has_threads();
        self.clients.iter().enumerate().map(move |(at, client)| {
            let is_alike = at > 0 && !has_threads && self.clients[at - 1] == Client::Idle;
            let stage = match client {
                Client::Idle => Stage::Idle,
                Client::Waits(..) => Stage::Waits,
                Client::Holds(..) => Stage::Holds,
            };
            (at as u8, stage, is_alike)
        })
    }

    /// The requests that hold the lock.
    pub(super) fn holders(&self) -> impl Iterator<Item = (RequestId, Mode)> {
        self.clients.iter().filter_map(|client| match client {
            Client::Holds(request, mode, _) => Some((*request, *mode)),
            Client::Idle | Client::Waits(..) => None,
        })
    }

    /// The view of its agent.
    pub(super) fn agent(&self) -> Option<View> {
        self.place().filter(|_| !self.is_dead)?.agent().map(|_| self.view())
    }

    /// The questions that may be asked again.
    pub(super) fn asked(&self) -> Vec<(LaneId, u32)> {
        if self.is_dead { Vec::new() } else { self.host.links().asked().collect() }
    }

    /// Whether nothing is to be sent again.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_dead || self.host.links().is_quiet()
    }

    /// Whether it knows nothing of the lock any more.
    pub(super) fn is_clear(&self) -> bool {
        self.is_dead
            || self.host.places() == 0
                && !self.host.is_paused()
                && self.clients.iter().all(|client| *client == Client::Idle)
    }

    /// Whether a packet changes nothing here, now or later, but that it is acknowledged. It commutes with all other events.
    pub(super) fn ignores(&self, bounds: &Bounds, flight: &Flight) -> bool {
        if self.is_dead || flight.view() < self.view() {
            return true;
        }
        if self.host.is_paused() || flight.view() > self.view() {
            return false;
        }
        let requests = self.place().map_or(&[][..], Place::requests);
        let waits = |request: RequestId| {
            requests.iter().any(|it| {
                it.waiter.request == request && matches!(it.state, State::Waits | State::GivenUp)
            })
        };
        let links = self.host.links();
        match flight {
            // Of all acknowledgements, only that of an agent changes more than what is sent again.
            Flight::Packet(Packet::Acknowledgement { name, .. }) => {
                name.kind != NoticeKind::Install
                    || !self.place().is_some_and(|place| place.hands_over(name.request))
            }
            Flight::Packet(Packet::Notice { notice, .. }) => match notice {
                Notice::Grant { request, .. } => !waits(*request),
                Notice::Install { holder, .. } => !waits(holder.request),
                Notice::Copy { .. } | Notice::Release { .. } => {
                    let conduct = bounds.here(self.host.machine()).conduct;
                    self.place().is_none_or(|place| place.has_counted(notice, conduct))
                }
            },
            Flight::Reply(reply) => !links.waits_for(reply.lane, reply.number),
            // Once it is answered, the decider has accepted it, and answers it again.
            Flight::Packet(Packet::Question(it)) => !links.waits_for(it.lane, it.number),
        }
    }

    /// Whether the machine sends a notice again until it is acknowledged.
    pub(super) fn awaits(&self, name: NoticeName) -> bool {
        self.host.links().awaits(LOCK, name)
    }

    /// Takes an event in.
    pub(super) fn turn(&self, bounds: &Bounds, action: &Action) -> Turn {
        let mut turn =
            Turn { node: self.clone(), sent: Vec::new(), accesses: Vec::new(), submission: None };
        if self.is_dead {
            return turn;
        }
        let mut output = Output::default();
        turn.event(bounds, action, &mut output);
        turn.sent.extend(output.packets.into_iter().map(Flight::Packet));
        for (_, request, token) in output.granted {
            turn.granted(request, token);
        }
        if !bounds.has_threads() {
            turn.node.clients.sort_unstable();
        }
        turn
    }
}

impl Turn {
    fn event(&mut self, bounds: &Bounds, action: &Action, output: &mut Output) {
        let Node { host, clients, .. } = &mut self.node;
        match action {
            Action::Acquire { client, mode, .. } => {
                let lane = if bounds.has_threads() { *client } else { 0 };
                let request = host.acquire(Moment { lane, ..AT }, LOCK, *mode, output);
                clients[*client] = Client::Waits(request, *mode);
            }
            Action::Release { client, .. } => {
                let Client::Holds(request, mode, token) = clients[*client] else { return };
                clients[*client] = Client::Idle;
                host.release(at(request), LOCK, request, output);
                self.accesses.push(Access { mode, token, request });
            }
            Action::GiveUp { client, .. } => {
                let Client::Waits(request, _) = clients[*client] else { return };
                clients[*client] = Client::Idle;
                host.give_up(at(request), LOCK, request, output);
            }
            Action::Resend => host.resend(Pace::constant(0), 0, output),
            Action::Deliver(flight) | Action::Repeat(flight) => {
                let incoming = match flight {
                    Flight::Packet(packet) => Incoming::of(packet),
                    Flight::Reply(reply) => Some(Incoming::Reply(*reply)),
                };
                // A packet of another view is dropped.
                _ = incoming.map(|incoming| host.receive(AT, incoming, output));
            }
            Action::Pause(_, view) => self.submission = host.pause(*view),
            Action::Resume(_, seats) => host.resume(0, seats, output),
            Action::Lose(_) | Action::Crash(_) => {}
        }
    }

    fn granted(&mut self, request: RequestId, token: Token) {
        let waits = |client: &&mut Client| matches!(client, Client::Waits(waiting, _) if *waiting == request);
        let Some(client) = self.node.clients.iter_mut().find(waits) else { return };
        let Client::Waits(_, mode) = *client else { return };
        *client = Client::Holds(request, mode, token);
        self.accesses.push(Access { mode, token, request });
    }
}

fn at(request: RequestId) -> Moment {
    Moment { lane: usize::from(request.thread.0), ..AT }
}
