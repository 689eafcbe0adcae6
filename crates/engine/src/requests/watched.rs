//! Reports accesses to locks to the explorer of every order. A report names the part of a compute node's state that
//! was read, the value that was read, and whether the part was changed.
//!
//! Invariant: this code reports only under [`Transport::Direct`], where nodes access each other's memory in one step.
//! Under this transport, coroutines of several nodes share state. Every read of this state is reported, with all
//! information that the reading coroutine gets from it. Every change of this state is reported too. The parts are:
//! each lock by itself, the grants to each node's transactions, the greatest timestamp seen, the view of the shards.
//! (docs/design/0018-explorer-beside-memory.md)

use crate::services::lock::message::{Ask, LockReply, Verdict};
use crate::services::lock::name::LockName;
use crate::services::lock::versions::{Stamp, Whose};
use crate::services::lock::watch::{SEEN, VIEW, bucket, grants, lock, part};
use crate::services::{NodeServices, Transport};
use crate::site::Context;
use tarn_fabric::address::{Address, NodeId};
use tarn_fabric::backend::Cost;
use tarn_fabric::rng::mix;
use tarn_store::ids::{Timestamp, TxnId};
use tarn_store::layout::RecordLayout;
use tarn_store::placement::shard_map::{ShardEntry, ShardId};
use tarn_store::schema::TableId;

impl Context {
    /// Whether this node reports its accesses to the explorer.
    #[inline]
    fn is_watched(&self) -> bool {
        let services = self.node.services.as_deref();
        services.is_some_and(|services| services.transport() == Transport::Direct)
    }

    /// The greatest timestamp that the node has seen.
    #[inline]
    pub(crate) fn heard(&self) -> Timestamp {
        let heard = self.node.seen.get();
        if self.is_watched() {
            self.port.looked_at(part(self.node.id, SEEN), heard.0, false);
        }
        heard
    }

    /// Records that the node has seen this timestamp.
    #[inline]
    pub(crate) fn hears(&self, of: Timestamp) {
        if self.is_watched() {
            let is_new = self.node.seen.get() < of;
            self.port.looked_at(part(self.node.id, SEEN), 0, is_new);
        }
        self.node.seen.raise(of);
    }

    /// The node's view of a shard.
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

    /// The present stamp of a lock; `None` if the lock's shard does not belong to this node, or if a lock service
    /// grants the locks.
    pub(crate) fn stamp_of(&self, name: LockName, shard: ShardId) -> Option<(Whose, Stamp)> {
        if self.locks.is_some() {
            return None;
        }
        let services = self.node_services();
        let epoch = match services.transport() {
            Transport::Own => 0,
            _ => {
                let entry = self.believed(services, shard)?;
                entry.is_served_by(services.id).then_some(entry.epoch)?
            }
        };
        let whose = Whose { hash: name.hash(), table: name.table, key: name.key };
        let grants = services.locks.count(whose.hash);
        if self.is_watched() {
            self.port.looked_at(bucket(services.id, whose.hash), u64::from(grants), false);
        }
        Some((whose, Stamp { grants, epoch }))
    }

    /// The stamp to take before a version table is read without a lock. `None` if a transaction holds the write lock
    /// of the record.
    pub(crate) fn stamp_unwritten(&self, (whose, now): (Whose, Stamp)) -> Option<Stamp> {
        let services = self.node_services();
        let grants = services.locks.unwritten(whose.hash);
        if self.is_watched() {
            let told = grants.map_or(u64::MAX, u64::from);
            self.port.looked_at(bucket(services.id, whose.hash), told, false);
        }
        Some(Stamp { grants: grants?, ..now })
    }

    /// Reads the version table that the node has cached with this stamp. See [`VersionCache::get`].
    ///
    /// [`VersionCache::get`]: crate::services::lock::versions::VersionCache::get
    pub(crate) fn remembered(&self, whose: Whose, at: Stamp, into: &mut [u64]) -> Option<Address> {
        if self.port.charges() {
            self.port.charge(Cost::LocalLookup);
        }
        let services = self.node_services();
        let found = services.versions.get(whose, at, into);
        if self.is_watched() {
            let seen = into.iter().fold(0, |all, word| mix(all ^ word));
            let told = found.map_or(0, |address| mix(address.to_word() ^ seen));
            self.port.looked_at(bucket(services.id, whose.hash), told, false);
        }
        found
    }

    /// Stores a version table in the node's cache. See [`VersionCache::put`].
    ///
    /// [`VersionCache::put`]: crate::services::lock::versions::VersionCache::put
    pub(crate) fn remember(&self, whose: Whose, at: Stamp, address: Address, slot: &[u64]) {
        self.changes_bucket(whose);
        self.node_services().versions.put(whose, at, address, slot);
    }

    /// Runs `act`, which stores version tables in the cache, if the node granted no write lock after the stamp
    /// `before`.
    pub(crate) fn keep_versions(&self, (whose, before): (Whose, Stamp), act: impl FnOnce()) {
        self.node_services().locks.keep(whose.hash, before.grants, act);
    }

    /// Whether the node may cache the version table of this record. The version table must refer to a record, and the
    /// node must grant the record's locks.
    pub fn may_remember(&self, table: TableId, key: u64) -> bool {
        let of = self.table(table);
        matches!(of.slot.record, RecordLayout::Cells(_))
            && of.slot.full_key_bytes == 0
            && self.has_services()
            && self.node_services().versions.is_on()
            && self.stamp_of(LockName::row(table.0, key), of.shard_of(key)).is_some()
    }

    /// Caches a record's version table from a database in which no transaction runs, for a run that starts in the
    /// middle. `slot` contains the used words of the table's slot.
    pub fn remember_at_rest(&self, table: TableId, key: u64, address: Address, slot: &[u64]) {
        if self.may_remember(table, key) {
            let name = LockName::row(table.0, key);
            let (whose, stamp) = self.stamp_of(name, self.table(table).shard_of(key)).expect(
                "a record that may be \
                    remembered has a stamp",
            );
            self.remember(whose, stamp, address, slot);
        }
    }

    /// Gives a cached version table a new stamp after the holder of a write lock releases the lock without a change.
    pub(crate) fn versions_unchanged(&self, whose: Whose, now: Stamp) {
        self.changes_bucket(whose);
        self.node_services().versions.restamp(whose, now.before_grant(), now);
    }

    fn changes_bucket(&self, whose: Whose) {
        if self.is_watched() {
            self.port.looked_at(bucket(self.node.id, whose.hash), 0, true);
        }
    }

    /// Updates the node's view of the shards from the shard map of record.
    pub(crate) fn refresh_view(&self) {
        let services = self.node_services();
        let has_changed = services.shards.refresh(&*services.membership);
        if self.is_watched() && has_changed {
            self.port.looked_at(part(services.id, VIEW), 0, true);
        }
    }

    /// Updates the node's view of these shards only. The caller knows that the other shards are empty, and starts
    /// again too often to read all shards.
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

    /// Reports that the node has granted a lock to one of its own coroutines, or refused the lock.
    #[cold]
    pub(super) fn saw_own(&self, name: LockName, granted: bool) {
        self.port.looked_at(lock(self.node.id, name), u64::from(granted), granted);
    }

    /// Reports that one of the node's own coroutines releases locks.
    #[cold]
    pub(super) fn gives_own(&self, names: impl Iterator<Item = LockName>) {
        names.for_each(|name| self.port.looked_at(lock(self.node.id, name), 0, true));
    }

    /// Requests locks from another node, in one step. Returns no reply if the other node is not a member.
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

    /// Sends another node the greatest timestamp that this node has seen, in one step. Returns whether the other node
    /// is a member.
    pub(super) fn transfer_directly(&self, to: NodeId, shard: ShardId, known: Timestamp) -> bool {
        let Some(services) = self.database().directory.find(to) else { return false };
        let (is_new, before) = (services.seen.get() < known, services.shards.entry(shard));
        services.transfer(shard, known);
        self.port.looked_at(part(to, SEEN), 0, is_new);
        self.port.looked_at(part(to, VIEW), 0, services.shards.entry(shard) != before);
        true
    }

    /// Releases all locks that another node has granted, in one step; `names` lists all of these locks.
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
