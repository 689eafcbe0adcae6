//! Requests between compute nodes of one process: a call in the asker's thread instead of a message.
//!
//! Invariant: the owner's side is the code that runs for a message ([`crate::services::lock::service`]), under the same
//! mutexes and with the same checks. So a node that closes a shard waits for requests that came before, and recovery of
//! a life finds its grants. A call runs once and in order by itself. A grant by an owner whose life is over is caught
//! where a message's reply would be: before anything is written ([`crate::transaction::lock_set::LockSet::secure`]).

use crate::services::Transport;
use crate::services::lock::message::{Ask, LockReply};
use crate::services::lock::name::LockName;
use crate::site::Context;
use tarn_fabric::address::NodeId;
use tarn_store::ids::{Timestamp, TxnId};
use tarn_store::placement::shard_map::ShardId;

impl Context {
    /// Asks another node for locks; no reply if it is no member.
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

    /// Releases all locks that another node has granted; `names` are all of them. Grants of a life that is over need no
    /// release.
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

    /// Tells another node the greatest timestamp that this one has seen. Returns whether it is a member.
    pub(crate) fn transfer_at_once(&self, to: NodeId, shard: ShardId, known: Timestamp) -> bool {
        if self.node_services().transport() == Transport::Direct {
            return self.transfer_directly(to, shard, known);
        }
        let services = self.thread_services().peer(&self.database().directory, to);
        services.inspect(|services| services.transfer(shard, known)).is_some()
    }
}
