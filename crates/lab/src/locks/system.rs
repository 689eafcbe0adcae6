//! The lock services that are compared.
//!
//! Invariant: a service's name here is its name on command lines and in data files.

use tarn_locks::service::Kind;

/// A lock service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum System {
    /// A service of messages.
    Messages(Kind),
    /// Words of memory nodes.
    Words(WordKind),
}

/// Services whose locks are words of memory nodes, changed by verbs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WordKind {
    /// Tickets, taken by fetch-and-add: Yoon, Chowdhury, Mozafari, "Distributed Lock Management with RDMA",
    /// SIGMOD 2018.
    Dslr,
    /// A word that compare-and-swap changes until it succeeds.
    CompareAndSwap,
    /// One fetch-and-add for an acquire and one for a release, which excludes no holder: a bound for services of
    /// verbs, not a lock.
    Ideal,
}

impl System {
    /// All services.
    pub const ALL: [System; 8] = [
        System::Messages(Kind::FissLock),
        System::Messages(Kind::FissLockLocal),
        System::Messages(Kind::SrvLock),
        System::Messages(Kind::ParLock),
        System::Messages(Kind::NetLock),
        System::Words(WordKind::Dslr),
        System::Words(WordKind::CompareAndSwap),
        System::Words(WordKind::Ideal),
    ];

    /// Returns the service's name.
    pub fn name(self) -> &'static str {
        match self {
            System::Messages(kind) => kind.name(),
            System::Words(WordKind::Dslr) => "dslr",
            System::Words(WordKind::CompareAndSwap) => "cas",
            System::Words(WordKind::Ideal) => "ideal-faa",
        }
    }

    /// Returns the service with a name.
    pub fn by_name(name: &str) -> Option<System> {
        System::ALL.into_iter().find(|system| system.name() == name)
    }

    /// Returns whether one machine is the lock server, so that one machine fewer has clients.
    pub fn has_server(self) -> bool {
        matches!(self, System::Messages(Kind::SrvLock | Kind::NetLock))
    }
}
