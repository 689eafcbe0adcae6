//! One thread's part in a lock service: its machine, once it has requested a lock, and its ways to other machines.
//!
//! Invariant: a thread registers when it first requests a lock. A thread that never does need not answer anybody. A
//! thread that ends unregisters.

use crate::services::lock_stations::{LockStations, SharedStation};
use crate::services::{ServiceOptions, Transport};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rpc::RpcConfig;
use tarn_locks::links::Pace;
use tarn_locks::value::{Machine, RequestId};
use tarn_store::ids::{TxnId, UsageError};

/// How a thread's mail reaches other machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockWays {
    pub(crate) transport: Transport,
    /// The time after which mail that is not answered is sent again, for the first time.
    pub(crate) resend_after: Nanos,
}

impl Default for LockWays {
    fn default() -> LockWays {
        LockWays {
            transport: Transport::Near,
            resend_after: near(RpcConfig::DEFAULT.retransmit_after),
        }
    }
}

impl LockWays {
    /// The ways of a node with these options. Threads of a single node need no messages either.
    ///
    /// # Errors
    /// Mail would be sent again at once.
    pub(crate) fn of(options: &ServiceOptions) -> Result<LockWays, UsageError> {
        if options.rpc.retransmit_after == Nanos(0) {
            return Err(UsageError {
                field: "rpc.retransmit_after".into(),
                value: "0".into(),
                allowed: "at least 1 ns, under a protocol with a lock service".into(),
            });
        }
        let resend_after = options.rpc.retransmit_after;
        Ok(match options.transport {
            Transport::Own | Transport::Near => {
                LockWays { transport: Transport::Near, resend_after: near(resend_after) }
            }
            transport => LockWays { transport, resend_after },
        })
    }

    /// How soon mail without an answer is sent again.
    pub(crate) fn pace(&self) -> Pace {
        let least = self.resend_after.0;
        Pace { least, most: least.saturating_mul(WAIT_MOST) }
    }
}

/// The part of the network's time that [`LockWays::resend_after`] is where mail is handed over at once. None is lost
/// there, but two threads may change its order. It is also the unit of a waiting transaction's patience. With the default
/// a deadlock ends after 50 to 100 us, as under DSLR: holders commit within microseconds. With the network's time threads
/// were idle for most of a run.
const NEAR_PART: u64 = 40;

fn near(resend_after: Nanos) -> Nanos {
    Nanos((resend_after.0 / NEAR_PART).max(1))
}

/// The longest wait before mail is sent again, in units of the shortest. Without longer waits, a decider that is behind
/// gets ever more mail that was sent again, and answers only that.
const WAIT_MOST: u64 = 8;

/// A registered thread.
pub(crate) struct Joined {
    pub(crate) machine: Machine,
    pub(crate) station: SharedStation,
}

/// One thread's part in a lock service; see the module's text.
pub struct ThreadLocks {
    pub(crate) stations: Arc<LockStations>,
    pub(crate) life: NodeId,
    pub(crate) ways: LockWays,
    pub(crate) joined: RefCell<Option<Rc<Joined>>>,
    /// When the thread last looked for mail without an answer.
    pub(crate) looked_at: Cell<Nanos>,
    /// When the thread last looked for mail of other machines without an answer, where mail is handed over at once.
    pub(crate) swept_at: Cell<Nanos>,
    /// The number of coordinators of the thread.
    pub(crate) coordinators: Cell<u32>,
}

impl ThreadLocks {
    /// The part of a thread of the incarnation `life`.
    pub(crate) fn new(stations: &Arc<LockStations>, life: NodeId, ways: LockWays) -> ThreadLocks {
        ThreadLocks {
            stations: Arc::clone(stations),
            life,
            ways,
            joined: RefCell::new(None),
            looked_at: Cell::new(Nanos(0)),
            swept_at: Cell::new(Nanos(0)),
            coordinators: Cell::new(0),
        }
    }

    /// Whether the thread's mail is messages, so that the thread has to take part in the service while others run.
    pub(crate) fn has_messages(&self) -> bool {
        self.ways.transport == Transport::Rpc
    }

    /// Unregisters the thread, which ends. `doubts` are its transactions in doubt, with their requests.
    pub(crate) fn leave(&self, doubts: &[(TxnId, Vec<RequestId>)]) {
        if let Some(joined) = self.joined.take() {
            self.stations.leave(joined.machine, doubts);
        }
    }
}

impl Drop for ThreadLocks {
    fn drop(&mut self) {
        self.leave(&[]);
    }
}
