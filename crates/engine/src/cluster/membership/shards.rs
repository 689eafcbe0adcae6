//! The shard map of record, for a membership service in one process.
//!
//! Invariant: every change of an entry is made under the register's lock and increments the entry's epoch. Threads
//! read entries without the lock. The map increments its number of changes after threads can see the change.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::address::NodeId;
use tarn_store::placement::shard_map::{SHARDS, ShardEntry, ShardId, ShardState};

#[derive(Debug)]
pub(super) struct Shards {
    words: Box<[AtomicU64]>,
    changes: AtomicU64,
    /// The number of shards whose owner's incarnation has ended. No node grants the locks of such a shard until the
    /// service opens the shard again.
    recovering: AtomicU64,
}

impl Default for Shards {
    fn default() -> Shards {
        let words = (0..SHARDS).map(|_| AtomicU64::new(0)).collect();
        Shards { words, changes: AtomicU64::new(0), recovering: AtomicU64::new(0) }
    }
}

impl Shards {
    pub(super) fn entry(&self, shard: ShardId) -> Option<ShardEntry> {
        ShardEntry::from_word(self.words.get(usize::from(shard.0))?.load(Ordering::Acquire))
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Sets the entry of a shard. This function and all functions below run under the register's lock.
    pub(super) fn set(&self, shard: ShardId, entry: ShardEntry) {
        self.put(shard, entry);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn put(&self, shard: ShardId, entry: ShardEntry) {
        let word = &self.words[usize::from(shard.0)];
        debug_assert!(word.load(Ordering::Relaxed) < entry.word(), "epochs grow");
        word.store(entry.word(), Ordering::Release);
    }

    /// Distributes the shards that never had an owner among `owners`, in turn. An exploration calls this function in
    /// each of its executions.
    pub(super) fn open(&self, owners: &[NodeId]) {
        let mut opened = 0;
        for shard in ShardId::all().filter(|&shard| self.entry(shard).is_none()) {
            let owner = owners[usize::from(shard.0) % owners.len()];
            self.put(shard, ShardEntry { owner, state: ShardState::Open, epoch: 1 });
            opened += 1;
        }
        self.changes.fetch_add(opened, Ordering::AcqRel);
    }

    /// Records that an incarnation has ended: no node grants the locks of its shards.
    pub(super) fn bereave(&self, dead: NodeId) {
        let mut bereft = 0;
        for (shard, entry) in self.of(dead) {
            self.put(shard, entry.next(dead, ShardState::Recovering));
            bereft += 1;
        }
        self.recovering.fetch_add(bereft, Ordering::AcqRel);
        self.changes.fetch_add(bereft, Ordering::AcqRel);
    }

    /// The ended incarnations whose shards are not open again, in ascending order.
    pub(super) fn bereaved(&self) -> Vec<NodeId> {
        if self.recovering.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let entries = ShardId::all().filter_map(|shard| self.entry(shard));
        let lost = entries.filter(|entry| entry.state == ShardState::Recovering);
        let lives: BTreeSet<NodeId> = lost.map(|entry| entry.owner).collect();
        lives.into_iter().collect()
    }

    /// Distributes the shards of an ended incarnation among its heirs, in turn.
    pub(super) fn inherit(&self, dead: NodeId, heirs: &[NodeId]) {
        for (turn, (shard, entry)) in self.of(dead).enumerate() {
            self.set(shard, entry.next(heirs[turn % heirs.len()], ShardState::Open));
            self.recovering.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn of(&self, owner: NodeId) -> impl Iterator<Item = (ShardId, ShardEntry)> {
        let entries = ShardId::all().filter_map(|shard| Some((shard, self.entry(shard)?)));
        entries.filter(move |(_, entry)| entry.owner == owner)
    }
}
