//! Requests between compute nodes of one process: the requesting thread calls the owner's code directly and sends no
//! message.
//!
//! Invariant: the owner's side is the same code that handles a message ([`crate::services::lock::service`]), under
//! the same mutexes and with the same checks. So a node that closes a shard waits for requests that came earlier, and
//! the recovery of a node's incarnation finds the incarnation's grants. A direct call runs exactly once and in order.
//! An owner whose incarnation has ended may grant a lock. The requester detects this before it writes anything, at
//! the point where it would check a message's reply ([`crate::transaction::lock_set::LockSet::secure`]).

use crate::services::Transport;
use crate::services::lock::message::{Ask, LockReply};
use crate::services::lock::name::LockName;
use crate::site::Context;
use tarn_fabric::address::NodeId;
use tarn_store::ids::{Timestamp, TxnId};
use tarn_store::placement::shard_map::ShardId;

impl Context {
    /// Requests locks from another node by a direct call. Returns no reply if the other node is not a member.
    pub(super) fn lock_at_once(
        &self,
        owner: NodeId,
        (id, known): (TxnId, Timestamp),
        asks: impl Iterator<Item = Ask> + Clone,
    ) -> Option<LockReply> {
        if self.node_services().transport() == Transport::Direct {
            return self.lock_directly(owner, (id, known), asks);
        }
        let services = self.thread_services().peer(&self.database().directory, owner)?;
        services.look_after_by_asker();
        Some(services.lock(id, known, asks))
    }

    /// Releases all locks that another node has granted; `names` lists all of these locks. Grants that an ended
    /// incarnation has made need no release.
    pub(super) fn release_at_once(
        &self,
        owner: NodeId,
        (id, committed): (TxnId, Option<Timestamp>),
        names: impl Iterator<Item = LockName>,
    ) {
        if self.node_services().transport() == Transport::Direct {
            return self.release_directly(owner, (id, committed), names);
        }
        if let Some(services) = self.thread_services().peer(&self.database().directory, owner) {
            services.release(id, committed);
        }
    }

    /// Sends another node the greatest timestamp that this node has seen. Returns whether the other node is a member.
    pub(crate) fn transfer_at_once(&self, to: NodeId, shard: ShardId, known: Timestamp) -> bool {
        if self.node_services().transport() == Transport::Direct {
            return self.transfer_directly(to, shard, known);
        }
        let services = self.thread_services().peer(&self.database().directory, to);
        services.inspect(|services| services.transfer(shard, known)).is_some()
    }
}
