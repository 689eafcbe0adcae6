//! The size of a search, the steps of a cluster, and what must never be.
//!
//! Invariant: these are values for readers. The search itself works on their short names ([`super::intern`]).

use crate::agent::Conduct;
use crate::decider::{Fanout, Setup};
use crate::links::Packet;
use crate::packet::Reply;
use crate::place::Here;
use crate::recovery::Seat;
use crate::rules::Rules;
use crate::value::{Machine, Mode, Policy, RequestId, View, Width};
use std::fmt;

/// The size of a search.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The machine of each client, from 1, in order.
    pub clients: Vec<u16>,
    /// The number of machines, some of which may have no client.
    pub machines: u16,
    /// Requests in all.
    pub requests: u8,
    /// Packets that may be lost.
    pub losses: u8,
    /// Packets that may come twice.
    pub repetitions: u8,
    /// Requests that may be given up.
    pub time_outs: u8,
    /// Which waiter comes next.
    pub policy: Policy,
    /// The decider's way of sending.
    pub fanout: Fanout,
    /// Whether a machine, the decider, or both crash once.
    pub crashes: bool,
    /// The rules that are kept.
    pub rules: Rules,
}

impl Bounds {
    /// Whether the rules that are taken away make threads matter.
    pub(super) fn has_threads(&self) -> bool {
        self.rules != Rules::ALL
    }

    pub(super) fn setup(&self) -> Setup {
        Setup { width: Width::WIDE, fanout: self.fanout, window: 8, rules: self.rules }
    }

    pub(super) fn here(&self, machine: Machine) -> Here {
        let (width, rules) = self.setup().counts();
        let conduct = Conduct { policy: self.policy, width, rules };
        Here { machine, conduct, decider_sends: self.fanout == Fanout::Sends }
    }
}

/// A step of the cluster.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A client asks for the lock.
    Acquire {
        /// The client's machine.
        machine: Machine,
        /// The client's place there.
        client: usize,
        /// How it will hold the lock.
        mode: Mode,
    },
    /// A client releases the lock.
    Release {
        /// The client's machine.
        machine: Machine,
        /// The client's place there.
        client: usize,
    },
    /// A client gives its request up.
    GiveUp {
        /// The client's machine.
        machine: Machine,
        /// The client's place there.
        client: usize,
    },
    /// A packet arrives.
    Deliver(Flight),
    /// A packet is lost.
    Lose(Flight),
    /// A packet arrives, and will arrive again.
    Repeat(Flight),
    /// All that is neither answered nor acknowledged is sent again.
    Resend,
    /// A machine dies, or none: then the decider alone is replaced. The decider that is replaced goes on until the new view begins, and what
    /// it knows is not used.
    Crash(Option<Machine>),
    /// A machine stops in its view, and submits.
    Pause(Machine, View),
    /// A machine resumes in its new view.
    Resume(Machine, Vec<Seat>),
}

/// A packet in flight.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Flight {
    /// From a machine, or sent on by the decider.
    Packet(Packet),
    /// The decider's answer.
    Reply(Reply),
}

impl Flight {
    /// The machine whose state says whether it still matters.
    pub(super) fn decides(&self) -> Machine {
        match self {
            Flight::Packet(Packet::Question(question)) => question.lane.machine,
            Flight::Packet(Packet::Notice { to, .. } | Packet::Acknowledgement { to, .. }) => *to,
            Flight::Reply(reply) => reply.lane.machine,
        }
    }

    /// The view of its sender.
    pub(super) fn view(&self) -> View {
        match self {
            Flight::Packet(Packet::Question(question)) => question.view,
            Flight::Packet(Packet::Notice { view, .. } | Packet::Acknowledgement { view, .. }) => {
                *view
            }
            Flight::Reply(reply) => reply.view,
        }
    }

    /// The machine that it is for; `None`: the decider.
    pub(super) fn to(&self) -> Option<Machine> {
        match self {
            Flight::Packet(Packet::Question(_)) => None,
            Flight::Packet(Packet::Notice { to, .. } | Packet::Acknowledgement { to, .. }) => {
                Some(*to)
            }
            Flight::Reply(reply) => Some(reply.lane.machine),
        }
    }
}

/// What must never be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// Two requests hold the lock, one of them exclusively.
    NotAlone(RequestId, RequestId),
    /// Two machines have an agent.
    TwoAgents,
    /// A resource refused a holder.
    TokenRefused(RequestId),
    /// Nothing can happen any more, and a request waits.
    Stuck,
    /// Events go on for ever without an end.
    Endless,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::NotAlone(one, other) => {
                write!(f, "{one:?} and {other:?} hold the lock, one of them exclusively")
            }
            Violation::TwoAgents => f.write_str("two machines have an agent of the lock"),
            Violation::TokenRefused(request) => {
                write!(f, "the guarded resource refuses the holder {request:?}")
            }
            Violation::Stuck => f.write_str("a request waits, and nothing can happen any more"),
            Violation::Endless => f.write_str("packets go on without end, and a request waits"),
        }
    }
}
