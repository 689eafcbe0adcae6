//! Timestamps: the order of commits, for protocols that keep several versions of a record.
//!
//! Invariants, for every source and any crash:
//! - A commit's timestamp is given once. It is above all timestamps that were given, and all that [`Timestamps::start`]
//!   returned, before it was asked for.
//! - A start is at least every timestamp whose transaction was acknowledged before the start was asked for. A reader
//!   with start S sees the versions at S and below. A transaction that asks for a timestamp after the reader has S gets
//!   one above S. So the state that the reader sees changes no more.
//! - [`Timestamps::known`] is a Lamport clock (Lamport, "Time, clocks, and the ordering of events in a distributed
//!   system", CACM 1978): the greatest timestamp that the node has seen. A node that releases a lock sends its clock
//!   along, and the node that gets the lock [observes](Timestamps::observe) it. So after a grant the clock is at least
//!   the timestamp of each earlier holder. The timestamp of a commit is above its node's clock when it asked.
//!
//! LOTUS takes timestamps from "a scalable timestamp service in the compute pool" (paper, §5). docs/timestamps.md lists
//! the errors that a restart of it must avoid. FORD takes none.

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

/// The place of the timestamps' words in the pool: group 0's superblock page, in the line after the stamp of the plan.
/// The first word is the counter of [`Timestamps::Pool`] or the bound of a service, the second is the bound's view.
pub fn pool_word() -> Address {
    Address::new(GroupId(0), 64)
}

impl Context {
    /// The thread, as a caller of a service.
    fn caller(&self) -> Caller<'_> {
        Caller { membership: &*self.database().membership, node: self.node.id, port: &self.port }
    }
}

impl Timestamps {
    /// The greatest timestamp that the node has seen. It is below every timestamp that one of its transactions asks for
    /// from now on. It needs no message.
    #[inline]
    pub fn known(&self, cx: &Context) -> Timestamp {
        match self {
            Timestamps::Counter => cx.database().counter.last(),
            _ => cx.heard(),
        }
    }

    /// The node has seen this timestamp, with a lock that another transaction released.
    #[inline]
    pub fn observe(&self, cx: &Context, seen: Timestamp) {
        match self {
            // Every timestamp that was given is known.
            Timestamps::Counter => debug_assert!(seen <= cx.database().counter.last()),
            _ => cx.hears(seen),
        }
    }

    /// A timestamp not below that of any transaction that was acknowledged before this call. All timestamps that are
    /// asked for after it has returned are above it.
    ///
    /// # Errors
    /// The fabric's.
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

    /// A timestamp above all that this database gave before this call. It is given once.
    ///
    /// # Errors
    /// The fabric's. A timestamp may then have been used up without being given.
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

    /// Takes timestamps until one is late enough; every later one is late enough too. A pool's counter whose memory
    /// node is gone gives none any more, and those of the next configuration are above all of this one.
    ///
    /// # Errors
    /// Those of [`Timestamps::commit`].
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

    /// Waits until every node's next timestamp is above `given`. A transaction with this timestamp waits before it is
    /// acknowledged or releases a lock; a recoverer waits before it releases the transaction's locks. Ready at once
    /// unless timestamps are taken from clocks.
    #[inline]
    pub async fn wait_out(&self, cx: &Context, given: Timestamp) {
        if let Timestamps::Clock(_) = self {
            crate::services::timestamp::wait_out(&cx.port, given).await;
        }
    }
}
