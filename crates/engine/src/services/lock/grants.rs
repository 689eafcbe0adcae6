//! Locks that a compute node has granted to other nodes' transactions.
//!
//! Invariants: a transaction is listed while it holds anything here. A release is for the whole transaction, and may be
//! repeated. The locks of a message are granted together or not at all. The locks of a dead life stay until its
//! transactions are settled. Until then nothing else guards the records that it had begun to write.

use super::holds::Holds;
use super::message::Ask;
use super::name::LockName;
use super::table::LockTable;
use tarn_fabric::address::NodeId;
use tarn_store::ids::TxnId;
use tarn_store::placement::shard_map::ShardId;

/// One transaction's locks.
#[derive(Default, Debug)]
struct Granted {
    holds: Holds,
    /// The shards of these locks, with their epochs: each once.
    shards: Vec<(ShardId, u32)>,
}

/// The grants; see the module's text.
#[derive(Default, Debug)]
pub struct Grants {
    /// The holders, in no order. There are about as many as other nodes have coordinators; searching their words costs
    /// less than keeping them sorted.
    txns: Vec<TxnId>,
    /// Their locks, at the same places.
    held: Vec<Granted>,
    /// Empty entries, kept for their capacity.
    spare: Vec<Granted>,
}

const SPARE_MAX: usize = 64;

impl Grants {
    /// Locks all of `asks` for `txn`, or nothing more than it had. `on_write` is called as in [`LockTable::acquire`].
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

    /// Each transaction with its locks.
    fn all(&self) -> impl Iterator<Item = (TxnId, &Granted)> {
        self.txns.iter().copied().zip(&self.held)
    }

    /// Releases the locks of `txn`. Returns whether it held any.
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

    /// Releases the locks of these lives' transactions, and adds the names to `dropped`. Returns the number of
    /// transactions.
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

    /// The lives that hold anything, each once.
    pub fn lives(&self) -> Vec<NodeId> {
        let mut lives: Vec<NodeId> = self.txns.iter().map(|txn| txn.node()).collect();
        lives.sort_unstable();
        lives.dedup();
        lives
    }

    /// **Breaks the invariant** of moves: releases all locks of transactions that hold locks of a shard.
    pub(crate) fn planted_drop(&mut self, table: &LockTable, shard: ShardId) {
        let all: Vec<TxnId> = self.of_shard(shard).collect();
        for txn in all {
            self.release(table, txn);
        }
    }

    /// Transactions that hold locks of a shard.
    pub fn of_shard(&self, shard: ShardId) -> impl Iterator<Item = TxnId> {
        let has = move |granted: &Granted| granted.shards.iter().any(|(its, _)| *its == shard);
        self.all().filter(move |(_, granted)| has(granted)).map(|(txn, _)| txn)
    }

    /// The number of transactions that hold anything.
    pub fn len(&self) -> usize {
        self.txns.len()
    }

    /// Whether no transaction holds anything.
    pub fn is_empty(&self) -> bool {
        self.txns.is_empty()
    }

    /// A digest of all grants, for code that tells states apart.
    pub fn digest(&self) -> u64 {
        use tarn_fabric::rng::mix;
        let one = |(txn, granted): (TxnId, &Granted)| {
            let names = granted.holds.names();
            names.fold(mix(txn.word()), |all, (name, mode)| mix(all ^ name.hash() ^ mode as u64))
        };
        // The sum does not depend on the order of the list.
        self.all().map(one).fold(0, u64::wrapping_add)
    }
}
