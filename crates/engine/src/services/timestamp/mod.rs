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

/// The handler number of the timestamp service on every node. LOCK and the other lock messages have smaller numbers.
pub const STAMP: HandlerId = HandlerId(8);

/// The number of bytes of a reply.
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
        // Usually the timestamp is known already. Then no thread writes the cache line, and the line stays in the
        // cache of every reader.
        if self.0.load(Ordering::Relaxed) < to {
            self.0.fetch_max(to, Ordering::AcqRel);
        }
    }
}

/// The source of a thread's timestamps: all threads of a database have the same source.
pub enum Timestamps {
    /// The counter of the process that all compute nodes run in ([`crate::site::Database::counter`]).
    Counter,
    /// A counter in the memory pool: a READ for a start, a FETCH_AND_ADD for a commit, at the primary alone. The
    /// explorer and simulated clusters use this counter.
    Pool(Address),
    /// A service on a node of the compute pool, which threads call by messages.
    Service(Box<StampClient>),
    /// Clocks of bounded uncertainty. A commit waits until its timestamp is past.
    Clock(ClockStamps),
}
