//! The parts of a machine that its threads share: its requests and agents, its share of the locks, and its
//! threads' knowledge of queues elsewhere.
//!
//! Invariant: one thread at a time uses a part, as under a mutex. Threads of one machine reach each other
//! without messages.

use super::plan::{Plan, SERVER, seat_name};
use super::{ISSUING, MANAGER};
use std::cell::RefCell;
use tarn_locks::agent::Conduct;
use tarn_locks::client::Client;
use tarn_locks::host::HostSetup;
use tarn_locks::place::Here;
use tarn_locks::queue::{QueueClient, Server};
use tarn_locks::rules::Rules;
use tarn_locks::value::{Machine, Policy, View, Width};

/// The view of all runs that have only one.
pub(crate) const VIEW: View = View(1);
/// Questions of one lane that may be unanswered at one time.
pub(crate) const WINDOW: u32 = 64;
/// The lanes of a machine: its issuing threads, and the thread of its agents.
pub(crate) const LANES: u16 = ISSUING + 1;

/// A machine.
pub(crate) struct Host {
    /// Counts from 0.
    pub number: u16,
    pub fission: RefCell<Client>,
    pub server: RefCell<Server>,
    /// By thread.
    pub queues: Vec<RefCell<QueueClient>>,
}

/// How agents behave.
pub(crate) fn conduct(policy: Policy) -> Conduct {
    Conduct { policy, width: Width::SWITCH, rules: Rules::ALL }
}

/// Requests and agents of a machine that counts from 0.
pub(crate) fn fission(number: u16, policy: Policy) -> Client {
    let here = Here { machine: Machine(number + 1), conduct: conduct(policy), decider_sends: true };
    Client::new(HostSetup { here, threads: LANES, window: WINDOW }, VIEW)
}

impl Host {
    pub(crate) fn new(number: u16, plan: &Plan, policy: Policy) -> Host {
        let queue =
            |thread| RefCell::new(QueueClient::new(seat_name(number, thread), VIEW, plan.homes()));
        Host {
            number,
            fission: RefCell::new(fission(number, policy)),
            server: RefCell::new(Server::new(SERVER, VIEW, plan.homes(), &[])),
            queues: (0..=MANAGER).map(queue).collect(),
        }
    }
}
