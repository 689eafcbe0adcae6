//! Timestamps: the order of commits, for protocols that keep several versions of a record.
//!
//! Invariants, for every source, whoever crashes:
//! - A commit's timestamp is given once, and is above all that were given, and all that [`Timestamps::start`]
//!   returned, before it was asked for.
//! - A start is at least every timestamp whose transaction was acknowledged before the start was asked for.
//!   A reader with start S sees the versions at S and below: whoever gets a timestamp after the reader has
//!   S gets one above S, so that what the reader sees does not change any more.
//! - [`Timestamps::known`] is a Lamport clock (Lamport, "Time, clocks, and the ordering of events in a
//!   distributed system", CACM 1978): the greatest timestamp that the node has heard of. Whoever gives a
//!   lock up sends along what he knows, and whoever gets it [observes](Timestamps::observe) that, so that
//!   after a grant it is at least the timestamp of each earlier holder. The timestamp of a commit is above
//!   what its node knew when it asked.
//!
//! LOTUS takes timestamps from "a scalable timestamp service in the compute pool" (paper, §5); what a
//! restart of it must not do is in docs/timestamps.md. FORD takes none.

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

/// Where timestamps' words stand in the pool: group 0's superblock page, in the line after the stamp of
/// the plan. First the counter of [`Timestamps::Pool`] or the bound of a service, then the bound's view.
pub fn pool_word() -> Address {
    Address::new(GroupId(0), 64)
}

impl Context {
    /// The thread as one that asks a service.
    fn caller(&self) -> Caller<'_> {
        Caller { membership: &*self.database().membership, node: self.node.id, port: &self.port }
    }
}

impl Timestamps {
    /// What the node knows: below every timestamp that one of its transactions asks for from now on.
    /// Free of messages.
    #[inline]
    pub fn known(&self, cx: &Context) -> Timestamp {
        match self {
            Timestamps::Counter => cx.database().counter.last(),
            _ => cx.heard(),
        }
    }

    /// The node has heard of this one, with a lock that somebody gave up.
    #[inline]
    pub fn observe(&self, cx: &Context, seen: Timestamp) {
        match self {
            // All that is given is known.
            Timestamps::Counter => debug_assert!(seen <= cx.database().counter.last()),
            _ => cx.hears(seen),
        }
    }

    /// Not below any timestamp whose transaction was acknowledged before this was called; all that are
    /// asked for once it has returned are above it.
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

    /// Above all that anybody has got from this database before this was called, and given once.
    ///
    /// # Errors
    /// The fabric's; a timestamp may have been used up, and nobody has it.
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

    /// Takes timestamps until one is late enough: then every later one is. A pool's counter whose memory node is
    /// gone gives none any more, and those of the next configuration are above all of this one.
    ///
    /// # Errors
    /// As [`Timestamps::commit`].
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

    /// Waits until everybody's next timestamp is above `given`: before a transaction that has it is
    /// acknowledged, or one of its locks released, and before a recoverer releases what it held. Ready at
    /// once unless timestamps are taken from clocks.
    #[inline]
    pub async fn wait_out(&self, cx: &Context, given: Timestamp) {
        if let Timestamps::Clock(_) = self {
            crate::services::timestamp::wait_out(&cx.port, given).await;
        }
    }
}
