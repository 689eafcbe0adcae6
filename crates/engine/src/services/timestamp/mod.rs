//! Sources of timestamps, as compute nodes and threads hold them.
//!
//! Invariant: [`crate::requests::timestamp`], where threads request timestamps, states which source gives which
//! timestamp, and the guarantees of each source.

mod client;
mod clock;
mod counter;

pub use client::{Caller, ClientConfig, StampClient};
pub use clock::ClockStamps;
pub(crate) use clock::wait_out;
pub use counter::SharedCounter;

use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::address::Address;
use tarn_fabric::rpc::HandlerId;
use tarn_store::ids::Timestamp;

/// The handler number of the timestamp service on every node. The lock messages such as LOCK have smaller numbers.
pub const STAMP: HandlerId = HandlerId(8);

/// The number of bytes of a reply from the timestamp service.
pub const REPLY_BYTES: usize = 16;

/// The greatest timestamp that a compute node has seen.
#[derive(Debug)]
#[repr(align(64))]
pub struct LastSeen(AtomicU64);

impl Default for LastSeen {
    fn default() -> LastSeen {
        LastSeen(AtomicU64::new(Timestamp::LOADED.0))
    }
}

impl LastSeen {
    /// The greatest timestamp that the node has seen.
    #[inline]
    pub fn get(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Acquire))
    }

    /// Records that the node has seen this timestamp.
    #[inline]
    pub fn raise(&self, Timestamp(to): Timestamp) {
        // Usually the node has already seen this timestamp. Then no thread writes the cache line, and the line stays
        // in the cache of every reader.
        if self.0.load(Ordering::Relaxed) < to {
            self.0.fetch_max(to, Ordering::AcqRel);
        }
    }
}

/// The source of a thread's timestamps. All threads of a database have the same source.
pub enum Timestamps {
    /// The counter of the process in which all compute nodes run ([`crate::site::Database::counter`]).
    Counter,
    /// A counter in the memory pool. A start uses a READ and a commit uses a FETCH_AND_ADD, at the primary alone. The
    /// explorer and simulated clusters use this counter.
    Pool(Address),
    /// A timestamp service on a node of the compute pool, which threads call by messages.
    Service(Box<StampClient>),
    /// Clocks of bounded uncertainty. A commit waits until its timestamp has passed by every clock.
    Clock(ClockStamps),
}
