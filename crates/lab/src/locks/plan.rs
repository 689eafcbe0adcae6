//! Where a lock is decided, and where messages for a lock go.
//!
//! Invariant: the way of a lock never changes during a run, so all threads send a lock's requests to one place.

use super::system::System;
use super::{HOSTS, MANAGER, SERVER_CORES};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::backend::Endpoint;
use tarn_fabric::rng::mix;
use tarn_locks::queue::{Homes, Profile};
use tarn_locks::service::Kind;
use tarn_locks::trace::Tpcc;
use tarn_locks::value::{LockId, Machine};

/// The name of the lock server, or of the part of the machines' share of locks, in messages.
pub const SERVER: Machine = Machine(1_000);
/// The name of the switch in messages.
pub const SWITCH: Machine = Machine(1_001);
/// The first name of threads that request locks.
const SEATS: u16 = 100;
/// Names of one machine's threads.
const SEATS_A_HOST: u16 = 16;

/// The machine to which a lock belongs, where machines share the locks.
#[derive(Clone, Debug)]
pub enum Shares {
    /// By the lock's number. Source: the public code of FissLock, for locks that the switch does not decide.
    ById,
    /// Ranges of locks of equal length. Source: the public code of ParLock (`get_lock_server`).
    ByRange,
    /// The machine of the lock's warehouse.
    ByWarehouse(Tpcc),
}

/// The way in which a lock is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By the decider in the switch, with an agent at a holder's machine.
    Decider,
    /// By a machine that shares the locks with the others. The machines count from 0.
    Home(u16),
    /// By a core of the lock server.
    Server(u16),
    /// By the switch, in a queue.
    Switch,
}

/// The places of all locks.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The service.
    pub kind: Kind,
    /// The number of locks.
    pub locks: u32,
    /// The locks that the decider has; the others belong to machines.
    pub on_switch: u32,
    /// How machines share locks.
    pub shares: Shares,
    /// The hot locks of NetLock.
    pub profile: Profile,
    /// The nodes of the machines, in order.
    pub hosts: Vec<NodeSlot>,
    /// The switch.
    pub switch: Endpoint,
    /// The lock server's node, if there is a lock server.
    pub server: Option<NodeSlot>,
}

impl Plan {
    /// Returns the way of a lock.
    pub fn way(&self, lock: LockId) -> Way {
        match self.kind {
            Kind::FissLock if lock.0 < self.on_switch => Way::Decider,
            Kind::FissLockLocal if !Tpcc::is_local(lock) => Way::Decider,
            Kind::FissLock | Kind::FissLockLocal | Kind::ParLock => Way::Home(self.home(lock)),
            Kind::NetLock if self.profile.hot.binary_search(&lock).is_ok() => Way::Switch,
            Kind::SrvLock | Kind::NetLock => Way::Server(core_of(lock)),
        }
    }

    /// Returns the machine, from 0, to which a lock belongs.
    fn home(&self, lock: LockId) -> u16 {
        match &self.shares {
            Shares::ById => (lock.0 % u32::from(HOSTS)) as u16,
            Shares::ByRange => (lock.0 / self.locks.div_ceil(u32::from(HOSTS)).max(1)) as u16,
            Shares::ByWarehouse(tpcc) => tpcc.home(lock).0 - 1,
        }
    }

    /// Returns the homes as the clients and the servers of queues know them. The threads replace the name
    /// [`SERVER`] by the place of the lock ([`Plan::place`]).
    pub fn homes(&self) -> Homes {
        match self.kind {
            Kind::NetLock => {
                Homes::Switch { switch: SWITCH, server: SERVER, profile: self.profile.clone() }
            }
            _ => Homes::One(SERVER),
        }
    }

    /// Returns the endpoint of the addressee of a message about a lock.
    pub fn place(&self, to: Machine, lock: LockId) -> Endpoint {
        if to == SWITCH {
            return self.switch;
        }
        if to != SERVER {
            let (host, thread) = host_of(to);
            return Endpoint { node: self.hosts[usize::from(host)], thread };
        }
        match (self.way(lock), self.server) {
            (Way::Home(host), _) => {
                Endpoint { node: self.hosts[usize::from(host)], thread: MANAGER }
            }
            (_, Some(node)) => Endpoint { node, thread: core_of(lock) },
            (way, None) => unreachable!("a lock decided by {way:?} needs no server"),
        }
    }

    /// Returns the endpoint of a thread of a machine that has agents; its number counts from 1.
    pub fn agent_place(&self, machine: Machine, thread: u16) -> Endpoint {
        Endpoint { node: self.hosts[usize::from(machine.0) - 1], thread }
    }

    /// Returns whether the service is FissLock with or without local locks.
    pub fn has_decider(&self) -> bool {
        matches!(self.kind, Kind::FissLock | Kind::FissLockLocal)
    }

    /// Returns the system.
    pub fn system(&self) -> System {
        System::Messages(self.kind)
    }
}

/// The core of the lock server that has a lock: as a NIC spreads flows over receive queues, by a hash.
fn core_of(lock: LockId) -> u16 {
    (mix(u64::from(lock.0)) % u64::from(SERVER_CORES)) as u16
}

/// Returns the name of a thread in messages of queues.
pub fn seat_name(host: u16, thread: u16) -> Machine {
    Machine(SEATS + host * SEATS_A_HOST + thread)
}

/// Returns the machine and the thread with this name.
pub fn host_of(seat: Machine) -> (u16, u16) {
    ((seat.0 - SEATS) / SEATS_A_HOST, (seat.0 - SEATS) % SEATS_A_HOST)
}
