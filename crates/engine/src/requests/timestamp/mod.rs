//! Timestamps: the order of commits, for protocols that keep several versions of a record.
//!
//! Invariants, for every source and any crash:
//! - Each commit timestamp is given only once. A commit timestamp is above all timestamps that were given before the
//!   commit requested it. A commit timestamp is also above all timestamps that [`Timestamps::start`] had returned by
//!   then.
//! - A start timestamp is at least as great as the timestamp of every transaction that was acknowledged before the
//!   start was requested. A reader with start timestamp S sees the versions at S and below. A transaction that
//!   requests a timestamp after the reader has S gets a timestamp above S. So the state that the reader sees never
//!   changes again.
//! - [`Timestamps::known`] is a Lamport clock (Lamport, "Time, clocks, and the ordering of events in a distributed
//!   system", CACM 1978): the greatest timestamp that the node has seen. A node that releases a lock also sends its
//!   clock value. The node that gets the lock [observes](Timestamps::observe) the value. So after a grant the clock
//!   is at least the timestamp of each earlier holder. A commit timestamp is above the value of its node's clock at
//!   the time of the request.
//!
//! LOTUS takes timestamps from "a scalable timestamp service in the compute pool" (paper, §5). docs/timestamps.md
//! lists the errors that a restart of such a service must avoid. FORD takes no timestamps.

mod pool;
mod service;
#[cfg(test)]
mod tests;

pub use service::{ServiceConfig, StampService};

use crate::services::timestamp::{Caller, Timestamps};
use crate::site::Context;
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::error::FabricError;
use tarn_store::ids::{Failure, Timestamp};

/// The address of the timestamp words in the memory pool: group 0's superblock page, in the line after the stamp of
/// the plan. The first word is the counter of [`Timestamps::Pool`] or the bound of a service. The second word is the
/// view of that bound.
pub fn pool_word() -> Address {
    Address::new(GroupId(0), 64)
}

impl Context {
    /// This thread, as a caller of the timestamp service.
    fn caller(&self) -> Caller<'_> {
        Caller { membership: &*self.database().membership, node: self.node.id, port: &self.port }
    }
}

impl Timestamps {
    /// The greatest timestamp that the node has seen. The returned timestamp is below every timestamp that a
    /// transaction of the node requests from now on. The function sends no message.
    #[inline]
    pub fn known(&self, cx: &Context) -> Timestamp {
        match self {
            Timestamps::Counter => cx.database().counter.last(),
            _ => cx.heard(),
        }
    }

    /// Records that the node has seen this timestamp, which came with a lock that another transaction released.
    #[inline]
    pub fn observe(&self, cx: &Context, seen: Timestamp) {
        match self {
            // The process's counter knows every timestamp that it has given.
            Timestamps::Counter => debug_assert!(seen <= cx.database().counter.last()),
            _ => cx.hears(seen),
        }
    }

    /// A start timestamp: it is not below the timestamp of any transaction that was acknowledged before this call.
    /// All timestamps that are requested after the call has returned are above it.
    ///
    /// # Errors
    /// The fabric's errors.
    #[inline]
    pub async fn start(&self, cx: &Context) -> Result<Timestamp, Failure> {
        let start = match self {
            Timestamps::Counter => return Ok(cx.database().counter.last()),
            Timestamps::Pool(word) => pool::read(cx, *word).await?,
            Timestamps::Service(client) => client.start(cx.caller()).await?,
            Timestamps::Clock(stamps) => stamps.start(&cx.port).await,
        };
        cx.hears(start);
        Ok(start)
    }

    /// A commit timestamp: it is above all timestamps that this database gave before this call. No other call gets
    /// the same timestamp.
    ///
    /// # Errors
    /// The fabric's errors. In that case, a timestamp may have been used up without being given.
    #[inline]
    pub async fn commit(&self, cx: &Context) -> Result<Timestamp, Failure> {
        let commit = match self {
            Timestamps::Counter => return Ok(cx.database().counter.next()),
            Timestamps::Pool(word) => pool::add(cx, *word).await?,
            Timestamps::Service(client) => client.commit(cx.caller()).await?,
            Timestamps::Clock(stamps) => {
                stamps.commit(&cx.port, &cx.node.seen).map_err(|why| cx.explain(why))?
            }
        };
        cx.hears(commit);
        Ok(commit)
    }

    /// Takes commit timestamps until `is_late` returns true for one of them. If the memory node with the counter is
    /// dead, the counter gives no timestamps any more. The timestamps of the next configuration are above all
    /// timestamps of this configuration.
    ///
    /// # Errors
    /// The same errors as [`Timestamps::commit`].
    pub(crate) async fn pass(
        &self,
        cx: &Context,
        is_late: impl Fn(Timestamp) -> bool,
    ) -> Result<(), Failure> {
        loop {
            match self.commit(cx).await {
                Ok(given) if is_late(given) => return Ok(()),
                Ok(_) => {}
                Err(failure) => {
                    let Timestamps::Pool(word) = self else { return Err(failure) };
                    let its_node = FabricError::NodeDown(cx.groups.primary(*word).node());
                    let is_gone = cx.port.last_error() == Some(its_node);
                    return if is_gone { Ok(()) } else { Err(failure) };
                }
            }
        }
    }

    /// Waits until the next timestamp of every node is above `given`. A transaction with this timestamp waits before
    /// it is acknowledged or releases a lock. A recovering node waits before it releases the transaction's locks. The
    /// function returns immediately unless timestamps are taken from clocks.
    #[inline]
    pub async fn wait_out(&self, cx: &Context, given: Timestamp) {
        if let Timestamps::Clock(_) = self {
            crate::services::timestamp::wait_out(&cx.port, given).await;
        }
    }
}
