//! What whoever explores every order is told of locks: which part of which compute node's memory was looked at,
//! what came of it, and whether it was changed.
//!
//! Invariant: where nodes look into each other's memory in one step ([`Transport::Direct`]), every look at what
//! coroutines of several nodes share is named, with all that the looker learns by it; every change is named too. The
//! parts are each lock by itself, what each node's transactions were granted, the last timestamp seen, the view of
//! the shards. Elsewhere nothing is named. (docs/design/0018-explorer-beside-memory.md)

use super::message::{Ask, LockReply, Verdict};
use super::name::LockName;
use crate::context::Context;
use crate::outcome::TxnId;
use crate::services::{NodeServices, Transport};
use crate::shard_map::{ShardEntry, ShardId};
use crate::timestamp::Timestamp;
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::{LOCAL_PARTS, LocalPart};
use tarn_fabric::port::Port;

/// The last timestamp that the node has heard of.
const SEEN: u16 = 0;
/// Its view of the shards.
const VIEW: u16 = 1;
/// What was granted to others, by their slots.
const GRANTS: std::ops::Range<u16> = 2..10;

fn part(node: NodeId, number: u16) -> LocalPart {
    LocalPart { node: node.slot, number }
}

/// A lock's part.
fn lock(node: NodeId, name: LockName) -> LocalPart {
    let (first, hash) = (GRANTS.end, name.hash());
    part(node, first + (hash % u64::from(LOCAL_PARTS - first)) as u16)
}

/// What the transactions of a node were granted.
fn grants(owner: NodeId, to: NodeId) -> LocalPart {
    part(owner, GRANTS.start + to.slot.0 % GRANTS.len() as u16)
}

impl Context {
    /// Whether anybody wants to be told.
    #[inline]
    fn is_watched(&self) -> bool {
        let services = self.node.services.as_deref();
        services.is_some_and(|services| services.transport() == Transport::Direct)
    }

    /// What the node has heard of.
    #[inline]
    pub(crate) fn heard(&self) -> Timestamp {
        let heard = self.node.seen.get();
        if self.is_watched() {
            self.port.looked_at(part(self.node.id, SEEN), heard.0, false);
        }
        heard
    }

    /// The node has heard of this one.
    #[inline]
    pub(crate) fn hears(&self, of: Timestamp) {
        if self.is_watched() {
            let is_new = self.node.seen.get() < of;
            self.port.looked_at(part(self.node.id, SEEN), 0, is_new);
        }
        self.node.seen.raise(of);
    }

    /// What the node believes of a shard.
    pub(super) fn believed(&self, services: &NodeServices, shard: ShardId) -> Option<ShardEntry> {
        if services.transport() != Transport::Direct {
            return services.entry_of(shard);
        }
        let before = services.shards.entry(shard);
        let entry = services.entry_of(shard);
        let told = entry.map_or(0, ShardEntry::word);
        self.port.looked_at(part(services.id, VIEW), told, entry != before);
        entry
    }

    /// The node takes over the record of the shards.
    pub(crate) fn refresh_view(&self) {
        let services = self.node_services();
        let has_changed = services.shards.refresh(&*services.membership);
        if self.is_watched() && has_changed {
            self.port.looked_at(part(services.id, VIEW), 0, true);
        }
    }

    /// The node takes over what the record says of these shards, and of no other: for whoever knows that there is
    /// nothing in the others, and begins anew too often to go through all of them.
    pub fn reread_shards(&self, shards: &[ShardId]) {
        let services = self.node_services();
        let view = |shard: &ShardId| services.shards.entry(*shard);
        for shard in shards {
            let before = view(shard);
            services.shards.reread(&*services.membership, *shard);
            if view(shard) != before && self.is_watched() {
                self.port.looked_at(part(services.id, VIEW), 0, true);
            }
        }
    }

    /// The node has granted one of its own coroutines a lock, or refused it.
    #[cold]
    pub(super) fn saw_own(&self, name: LockName, granted: bool) {
        self.port.looked_at(lock(self.node.id, name), u64::from(granted), granted);
    }

    /// One of its own coroutines gives locks up.
    #[cold]
    pub(super) fn gives_own(&self, names: impl Iterator<Item = LockName>) {
        names.for_each(|name| self.port.looked_at(lock(self.node.id, name), 0, true));
    }

    /// Asks another node for locks, in one step; no reply if it is no member.
    pub(super) fn lock_directly(
        &self,
        owner: NodeId,
        (id, known): (TxnId, Timestamp),
        asks: impl Iterator<Item = Ask> + Clone,
    ) -> Option<LockReply> {
        let services = self.database().directory.find(owner)?;
        let is_new = services.seen.get() < known;
        let view = |shard: ShardId| services.shards.entry(shard);
        let before: Vec<_> = asks.clone().map(|ask| view(ask.shard)).collect();
        let reply = services.lock(id, known, asks.clone());
        let granted = reply.verdict == Verdict::Granted;
        self.port.looked_at(part(owner, SEEN), reply.known.0, is_new);
        let has_changed = asks.clone().zip(before).any(|(ask, before)| view(ask.shard) != before);
        self.port.looked_at(part(owner, VIEW), reply.entry, has_changed);
        self.port.looked_at(grants(owner, id.node()), 0, granted);
        for ask in asks {
            self.port.looked_at(lock(owner, ask.name), reply.verdict as u64, granted);
        }
        Some(reply)
    }

    /// Tells another node what this one knows of timestamps, in one step; whether it is a member.
    pub(crate) fn transfer_directly(&self, to: NodeId, shard: ShardId, known: Timestamp) -> bool {
        let Some(services) = self.database().directory.find(to) else { return false };
        let (is_new, before) = (services.seen.get() < known, services.shards.entry(shard));
        services.transfer(shard, known);
        self.port.looked_at(part(to, SEEN), 0, is_new);
        self.port.looked_at(part(to, VIEW), 0, services.shards.entry(shard) != before);
        true
    }

    /// Gives back what another node has granted, in one step: `names` are all of it.
    pub(super) fn release_directly(
        &self,
        owner: NodeId,
        (id, committed): (TxnId, Option<Timestamp>),
        names: impl Iterator<Item = LockName>,
    ) {
        let Some(services) = self.database().directory.find(owner) else { return };
        let is_new = committed.is_some_and(|at| services.seen.get() < at);
        services.release(id, committed);
        self.port.looked_at(part(owner, SEEN), 0, is_new);
        self.port.looked_at(grants(owner, id.node()), 0, true);
        names.for_each(|name| self.port.looked_at(lock(owner, name), 0, true));
    }
}

/// A node has looked whether transactions of the dead still hold anything, and has dropped these locks.
pub(crate) fn looked_after(port: &Port, node: &NodeServices, dropped: &[LockName]) {
    // Where nobody is lost nothing was looked for.
    if node.transport() != Transport::Direct || node.membership.ended().is_empty() {
        return;
    }
    let is_lost = |life: &NodeId| !node.membership.is_member(*life);
    let lives: Vec<NodeId> = node.holders().filter(is_lost).collect();
    for number in GRANTS {
        let holds = lives.iter().any(|life| grants(node.id, *life).number == number);
        port.looked_at(part(node.id, number), u64::from(holds), !dropped.is_empty());
    }
    dropped.iter().for_each(|name| port.looked_at(lock(node.id, *name), 0, true));
}
