//! Locks that a compute node has granted to other nodes' transactions.
//!
//! Invariants: a transaction is listed while it holds any lock of this node. One release covers all locks of a
//! transaction, and may be repeated. The locks of one message are granted together or not at all. The locks of a dead
//! node's incarnation stay until its transactions are settled. Until then, only these locks guard the records that
//! its transactions had begun to write.

use super::holds::Holds;
use super::message::Ask;
use super::name::LockName;
use super::table::LockTable;
use tarn_fabric::address::NodeId;
use tarn_store::ids::TxnId;
use tarn_store::placement::shard_map::ShardId;

/// The locks of one transaction of another node.
#[derive(Default, Debug)]
struct Granted {
    holds: Holds,
    /// The shards of the transaction's locks, with the shards' epochs. Each shard is listed once.
    shards: Vec<(ShardId, u32)>,
}

/// The granted locks of all transactions of other nodes; see the module's text.
#[derive(Default, Debug)]
pub struct Grants {
    /// The transactions that hold locks of this node, in no order. The number of listed transactions is about the
    /// number of coordinators on other nodes. A linear search of this list costs less than keeping it sorted.
    txns: Vec<TxnId>,
    /// The locks of the transactions in `txns`, at the same indexes.
    held: Vec<Granted>,
    /// Empty entries that are kept for reuse, because their vectors have capacity already.
    spare: Vec<Granted>,
}

const SPARE_MAX: usize = 64;

impl Grants {
    /// Locks all names of `asks` for `txn`, or none of them. `on_write` is called as in [`LockTable::acquire`].
    pub fn ask(
        &mut self,
        table: &LockTable,
        txn: TxnId,
        asks: impl Iterator<Item = Ask>,
        mut on_write: impl FnMut(&Ask),
    ) -> bool {
        let at = self.place(txn).unwrap_or_else(|| {
            self.txns.push(txn);
            self.held.push(self.spare.pop().unwrap_or_default());
            self.held.len() - 1
        });
        let granted = &mut self.held[at];
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

    #[inline]
    fn place(&self, txn: TxnId) -> Option<usize> {
        self.txns.iter().position(|it| *it == txn)
    }

    /// All listed transactions, each with its locks.
    fn all(&self) -> impl Iterator<Item = (TxnId, &Granted)> {
        self.txns.iter().copied().zip(&self.held)
    }

    /// Releases all locks of `txn`. Returns whether `txn` held any lock.
    pub fn release(&mut self, table: &LockTable, txn: TxnId) -> bool {
        let Some(at) = self.place(txn) else { return false };
        self.txns.swap_remove(at);
        let mut granted = self.held.swap_remove(at);
        granted.holds.release(table);
        granted.shards.clear();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(granted);
        }
        true
    }

    /// Releases the locks of all transactions of the incarnations for which `is_over` is true. Adds the locks' names
    /// to `dropped`. Returns the number of these transactions.
    pub fn drop_lives(
        &mut self,
        table: &LockTable,
        is_over: impl Fn(NodeId) -> bool,
        dropped: &mut Vec<LockName>,
    ) -> usize {
        let over = |txn: &TxnId| is_over(txn.node());
        let mut over: Vec<TxnId> = self.txns.iter().copied().filter(over).collect();
        over.sort_unstable();
        for txn in &over {
            let granted = self.place(*txn).map(|at| &self.held[at]);
            dropped
                .extend(granted.into_iter().flat_map(|it| it.holds.names()).map(|(name, _)| name));
            self.release(table, *txn);
        }
        over.len()
    }

    /// The node incarnations whose transactions hold any lock of this node. Each incarnation is listed once.
    pub fn lives(&self) -> Vec<NodeId> {
        let mut lives: Vec<NodeId> = self.txns.iter().map(|txn| txn.node()).collect();
        lives.sort_unstable();
        lives.dedup();
        lives
    }

    /// **Breaks the invariant** of moves: releases all locks of the transactions that hold a lock of this shard.
    pub(crate) fn planted_drop(&mut self, table: &LockTable, shard: ShardId) {
        let all: Vec<TxnId> = self.of_shard(shard).collect();
        for txn in all {
            self.release(table, txn);
        }
    }

    /// The transactions of other nodes that hold locks of a shard.
    pub fn of_shard(&self, shard: ShardId) -> impl Iterator<Item = TxnId> {
        let has = move |granted: &Granted| granted.shards.iter().any(|(its, _)| *its == shard);
        self.all().filter(move |(_, granted)| has(granted)).map(|(txn, _)| txn)
    }

    /// The number of other nodes' transactions that hold any lock of this node.
    pub fn len(&self) -> usize {
        self.txns.len()
    }

    /// Whether no transaction of another node holds any lock of this node.
    pub fn is_empty(&self) -> bool {
        self.txns.is_empty()
    }

    /// A digest of all grants, for code that compares states.
    pub fn digest(&self) -> u64 {
        use tarn_fabric::rng::mix;
        let one = |(txn, granted): (TxnId, &Granted)| {
            let names = granted.holds.names();
            names.fold(mix(txn.word()), |all, (name, mode)| mix(all ^ name.hash() ^ mode as u64))
        };
        // The sum of the digests does not depend on the order of the list of transactions.
        self.all().map(one).fold(0, u64::wrapping_add)
    }
}
