//! What callers of every lock service see: requests, grants and refusals.
//!
//! Invariant: a grant is released once, by [`LockService::release`]. A request whose future is dropped is given up: if the lock is granted
//! to the request later, the service releases the lock itself.

use crate::value::{LockId, Mode, RequestId, Token};
use std::fmt;

/// How long a request waits for its lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Patience {
    /// The request ends in [`Refusal::Busy`] if the lock is not free for it.
    Try,
    /// The request ends in [`Refusal::TimedOut`] after this number of nanoseconds.
    Nanos(u64),
    /// The request waits until the lock is granted. Two requests that wait for each other wait for ever.
    Forever,
}

/// A lock that is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grant {
    /// The lock.
    pub lock: LockId,
    /// The request that holds it.
    pub request: RequestId,
    /// How the lock is held.
    pub mode: Mode,
    /// The fencing token. A service without tokens grants [`Token::NONE`].
    pub token: Token,
}

/// A request that was not granted, or a grant that is lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Another request holds the lock, and this one does not wait.
    Busy,
    /// The request has waited as long as it may. Requests that wait for each other end so, too.
    TimedOut,
    /// The service has no such lock.
    OutOfRange {
        /// The lock.
        lock: LockId,
        /// The number of locks; the first is 0.
        locks: u32,
    },
    /// Too many requests of one machine wait for one lock.
    TooManyWaiters {
        /// The greatest number.
        max: usize,
    },
    /// The machine's lease has ended: others may hold the lock.
    LeaseEnded,
    /// The service has stopped, or cannot be reached.
    Unavailable,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Busy => f.write_str("another request holds the lock"),
            Refusal::TimedOut => f.write_str("the lock was not granted in time"),
            Refusal::OutOfRange { lock, locks } => {
                write!(
                    f,
                    "lock {} does not exist: the locks are 0 to {}",
                    lock.0,
                    locks.saturating_sub(1)
                )
            }
            Refusal::TooManyWaiters { max } => {
                write!(f, "{max} requests of this machine wait for the lock, which is the most")
            }
            Refusal::LeaseEnded => {
                f.write_str("the machine's lease has ended, and its locks with it")
            }
            Refusal::Unavailable => f.write_str("the lock service cannot be reached"),
        }
    }
}

impl std::error::Error for Refusal {}

/// A lock service, as one thread sees it.
#[expect(async_fn_in_trait, reason = "each thread drives its own service")]
pub trait LockService {
    /// Requests a lock. Dropping the future gives the request up.
    ///
    /// # Errors
    /// The lock is not held, and will not be.
    async fn acquire(&self, lock: LockId, mode: Mode, patience: Patience)
    -> Result<Grant, Refusal>;

    /// Releases a lock. It waits for nothing.
    fn release(&self, grant: Grant);

    /// Takes in whatever has arrived, and sends whatever is ready. Returns whether anything happened.
    fn poll(&self) -> bool;
}

/// The lock services whose parts are messages between machines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A decider in the network, and agents on the holders' machines.
    FissLock,
    /// FissLock, where locks that are declared local bypass the decider.
    FissLockLocal,
    /// A dedicated lock server.
    SrvLock,
    /// Lock servers on the application's machines, which share the locks by id.
    ParLock,
    /// A switch with bounded queues of hot locks, and a lock server.
    NetLock,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] =
        [Kind::FissLock, Kind::FissLockLocal, Kind::SrvLock, Kind::ParLock, Kind::NetLock];

    /// The name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::FissLock => "fisslock",
            Kind::FissLockLocal => "fisslock-local",
            Kind::SrvLock => "srvlock",
            Kind::ParLock => "parlock",
            Kind::NetLock => "netlock",
        }
    }
}
