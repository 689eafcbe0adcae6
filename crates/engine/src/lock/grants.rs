//! What a compute node has granted to transactions of others.
//!
//! Invariants: a transaction is here while it holds anything here; giving up is for the whole transaction, and
//! may be repeated. A message's locks are granted together or not at all. What a dead life held stays until
//! its transactions are settled, since until then what it had begun to write is guarded by nothing else.

use super::holds::Holds;
use super::message::Ask;
use super::name::LockName;
use super::table::LockTable;
use crate::outcome::TxnId;
use crate::shard_map::ShardId;
use std::collections::BTreeMap;
use tarn_fabric::address::NodeId;

/// One transaction's.
#[derive(Default, Debug)]
struct Granted {
    holds: Holds,
    /// Whose locks they are, and in which epoch: each once.
    shards: Vec<(ShardId, u32)>,
}

/// See the module's text.
#[derive(Default, Debug)]
pub struct Grants {
    /// A life's are next to one another.
    by_txn: BTreeMap<TxnId, Granted>,
    /// Empty, with their room.
    spare: Vec<Granted>,
}

const SPARE_MAX: usize = 64;

impl Grants {
    /// Locks all of `asks` for `txn`, or nothing more than it had; `on_write` as in
    /// [`LockTable::acquire`].
    pub fn ask(
        &mut self,
        table: &LockTable,
        txn: TxnId,
        asks: impl Iterator<Item = Ask>,
        mut on_write: impl FnMut(&Ask),
    ) -> bool {
        let spare = &mut self.spare;
        let granted = self.by_txn.entry(txn).or_insert_with(|| spare.pop().unwrap_or_default());
        let (names, shards) = (granted.holds.len(), granted.shards.len());
        for ask in asks {
            if !granted.holds.ask(table, ask.name, ask.mode, || on_write(&ask)) {
                granted.holds.keep_first(table, names);
                granted.shards.truncate(shards);
                if names == 0 {
                    self.release(table, txn);
                }
                return false;
            }
            if !granted.shards.contains(&(ask.shard, ask.epoch)) {
                granted.shards.push((ask.shard, ask.epoch));
            }
        }
        true
    }

    /// Gives up what `txn` holds; whether it held anything.
    pub fn release(&mut self, table: &LockTable, txn: TxnId) -> bool {
        let Some(mut granted) = self.by_txn.remove(&txn) else { return false };
        granted.holds.release(table);
        granted.shards.clear();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(granted);
        }
        true
    }

    /// Gives up what transactions of these lives hold, and adds the names to `dropped`; how many transactions there
    /// were.
    pub fn drop_lives(
        &mut self,
        table: &LockTable,
        is_over: impl Fn(NodeId) -> bool,
        dropped: &mut Vec<LockName>,
    ) -> usize {
        let over: Vec<TxnId> =
            self.by_txn.keys().copied().filter(|txn| is_over(txn.node())).collect();
        for txn in &over {
            dropped.extend(self.by_txn[txn].holds.names().map(|(name, _)| name));
            self.release(table, *txn);
        }
        over.len()
    }

    /// The lives that hold anything, each once.
    pub fn lives(&self) -> Vec<NodeId> {
        let mut lives: Vec<NodeId> = self.by_txn.keys().map(|txn| txn.node()).collect();
        lives.dedup();
        lives
    }

    /// **Breaks the invariant** of moves: gives up what transactions hold that have locks of a shard.
    pub(crate) fn planted_drop(&mut self, table: &LockTable, shard: ShardId) {
        let all: Vec<TxnId> = self.of_shard(shard).collect();
        for txn in all {
            self.release(table, txn);
        }
    }

    /// Transactions that hold locks of a shard.
    pub fn of_shard(&self, shard: ShardId) -> impl Iterator<Item = TxnId> {
        let has = move |granted: &Granted| granted.shards.iter().any(|(its, _)| *its == shard);
        self.by_txn.iter().filter(move |(_, granted)| has(granted)).map(|(txn, _)| *txn)
    }

    /// Transactions that hold anything.
    pub fn len(&self) -> usize {
        self.by_txn.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.by_txn.is_empty()
    }

    /// Stands for all that is granted, for whoever tells states apart.
    pub fn digest(&self) -> u64 {
        use tarn_fabric::rng::mix;
        let mut digest = 0u64;
        for (txn, granted) in &self.by_txn {
            digest = mix(digest ^ txn.word());
            for (name, mode) in granted.holds.names() {
                digest = mix(digest ^ name.hash() ^ mode as u64);
            }
        }
        digest
    }
}
