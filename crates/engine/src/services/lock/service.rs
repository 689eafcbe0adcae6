//! A compute node's answers to other nodes that request locks.
//!
//! Invariants: the node grants only locks of its own shards. In the shard map, each of these shards must belong to
//! this incarnation of the node, be open, and have the epoch that the requesting node knows. The node grants locks
//! only to members. A message runs at most once, because calls are at-most-once, and sessions are ordered. So if a
//! LOCK message comes twice, or late, it grants no lock that would never be released. (Hole L8 of the paper's text
//! allows such a lock.) No function of this module waits.
//!
//! The node does not compare the requester's whole view with its own view, though our plan did. Only two facts of
//! that view matter. The epoch tells which node owns the shard. The membership service tells whether the requester is
//! a member.

use super::message::{self, Ask, LOCK, LockReply, RELEASE, TRANSFER, Verdict};
use super::name::LockName;
use crate::services::{NodeServices, Planted};
use std::sync::Arc;
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Cost;
use tarn_fabric::port::Port;
use tarn_fabric::rpc::{Answer, Rpc};
use tarn_store::ids::{Timestamp, TxnId};
use tarn_store::placement::shard_map::{ShardEntry, ShardId};

impl NodeServices {
    /// Grants all locks of `asks` to `txn`, or none of these locks.
    pub(crate) fn lock(
        &self,
        txn: TxnId,
        known: Timestamp,
        asks: impl Iterator<Item = Ask> + Clone,
    ) -> LockReply {
        let reply = |verdict, entry| LockReply { known: self.seen.get(), verdict, entry };
        self.seen.raise(known);
        // The function locks the mutex of the grants first. A node that closes a shard waits for requests that hold
        // this mutex. A node that drops the grants of recovered incarnations also waits for requests that hold this
        // mutex.
        let grants = &mut *self.grants_of(txn);
        if !self.membership.is_member(txn.node()) {
            return reply(Verdict::NotMember, 0);
        }
        for ask in asks.clone() {
            let entry = self.entry_for(&ask);
            let is_planted = self.options().planted_move == Some(Planted::TransferDecides);
            let is_its = |it: ShardEntry| it.epoch == ask.epoch || is_planted;
            let is_here = entry.is_some_and(|it| it.is_served_by(self.id) && is_its(it));
            if !is_here {
                return reply(Verdict::WrongOwner, entry.map_or(0, ShardEntry::word));
            }
            if let Some(load) = self.load() {
                load.ask(ask.shard);
            }
        }
        let granted = grants.ask(&self.locks, txn, asks, |ask| self.write_granted(ask.name));
        reply(if granted { Verdict::Granted } else { Verdict::Conflict }, 0)
    }

    /// The map's entry of the shard of `ask`. The function reads the shard's record again if the requester knows
    /// another epoch.
    fn entry_for(&self, ask: &Ask) -> Option<ShardEntry> {
        let entry = self.shards.entry(ask.shard);
        match entry.is_some_and(|entry| entry.epoch == ask.epoch) {
            true => entry,
            false => self.shards.reread(&*self.membership, ask.shard),
        }
    }

    /// Releases the locks of `txn` at this node. The locks of an ended incarnation are released only after its
    /// recovery, since the last writes of an expelled incarnation may have been refused.
    pub(crate) fn release(&self, txn: TxnId, committed: Option<Timestamp>) {
        if !self.membership.is_member(txn.node()) {
            return;
        }
        // The node raises its greatest timestamp before any other transaction can get the lock.
        if let Some(committed) = committed {
            self.seen.raise(committed);
        }
        self.grants_of(txn).release(&self.locks, txn);
    }

    /// Handles a TRANSFER message: the shard's owner is about to give the shard to this node, and sends its greatest
    /// timestamp. Only the map decides which node owns the shard.
    pub(crate) fn transfer(&self, shard: ShardId, known: Timestamp) {
        self.seen.raise(known);
        self.shards.reread(&*self.membership, shard);
        if self.options().planted_move == Some(Planted::TransferDecides) {
            self.shards.planted_take(shard, self.id);
        }
    }

    /// Releases the locks of recovered incarnations, and adds the locks' names to `dropped`. Returns whether dead
    /// incarnations that are not recovered still hold any lock.
    pub(crate) fn drop_recovered(
        &self,
        by: impl Fn(NodeId) -> bool,
        dropped: &mut Vec<LockName>,
    ) -> bool {
        let mut is_any_left = false;
        for mut grants in self.all_grants() {
            grants.drop_lives(&self.locks, &by, dropped);
            is_any_left |= grants.lives().iter().any(|life| !self.membership.is_member(*life));
        }
        is_any_left
    }
}

/// Registers the thread's handlers of messages about locks. A malformed message has no effect, and is counted as
/// refused.
pub(crate) fn register(rpc: &Rpc, services: &Arc<NodeServices>) {
    let (its, port) = (Arc::clone(services), rpc.port().clone());
    rpc.register(LOCK, move |request, bytes| {
        let Some((txn, known, asks)) = message::take_lock(request.bytes) else {
            return Answer::Refused;
        };
        charge(&port, asks.clone().count());
        its.lock(txn, known, asks).put(bytes);
        Answer::Now
    });
    let (its, port) = (Arc::clone(services), rpc.port().clone());
    rpc.register(RELEASE, move |request, _| {
        let Some((txn, at)) = message::take_release(request.bytes) else {
            return Answer::Refused;
        };
        charge(&port, 1);
        its.release(txn, at);
        Answer::Now
    });
    let its = Arc::clone(services);
    rpc.register(TRANSFER, move |request, _| {
        let Some((shard, known)) = message::take_transfer(request.bytes) else {
            return Answer::Refused;
        };
        its.transfer(shard, known);
        Answer::Now
    });
}

/// Charges virtual time for one lookup of the transaction's grants, and one compare-and-swap for each lock.
fn charge(port: &Port, locks: usize) {
    if port.charges() {
        port.charge(Cost::LocalLookup);
        (0..locks).for_each(|_| port.charge(Cost::LocalAtomic));
    }
}
