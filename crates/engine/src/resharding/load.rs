//! What a node is asked for, and how long its transactions take: what resharding goes by.
//!
//! Invariant: nothing of it decides who may do what. Counts are raised without an atomic addition: of two threads
//! that raise one at the same moment one may be lost, which a ranking of shards survives.

use crate::shard_map::{SHARDS, ShardId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// See the module's text.
pub struct Load {
    /// By shard: locks that this node was asked for as its owner, by anybody.
    asked: Box<[AtomicU32]>,
    transactions: AtomicU64,
    latency_ns: AtomicU64,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            asked: (0..SHARDS).map(|_| AtomicU32::new(0)).collect(),
            transactions: AtomicU64::new(0),
            latency_ns: AtomicU64::new(0),
        }
    }
}

impl Load {
    /// A lock of this shard was asked for.
    #[inline]
    pub(crate) fn ask(&self, shard: ShardId) {
        let count = &self.asked[usize::from(shard.0)];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// How often locks of this shard were asked for.
    pub fn asked(&self, shard: ShardId) -> u32 {
        self.asked[usize::from(shard.0)].load(Ordering::Relaxed)
    }

    /// A transaction has ended at this node that took so long, the wait for one of its coordinators included.
    #[inline]
    pub fn ended(&self, latency_ns: u64) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.latency_ns.fetch_add(latency_ns, Ordering::Relaxed);
    }

    fn totals(&self) -> (u64, u64) {
        (self.transactions.load(Ordering::Relaxed), self.latency_ns.load(Ordering::Relaxed))
    }
}

/// What a load has become since it was looked at last.
pub struct Recent {
    asked: Box<[u32]>,
    totals: (u64, u64),
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { asked: vec![0; SHARDS].into(), totals: (0, 0) }
    }
}

impl Recent {
    /// The average latency in nanoseconds of what has ended since the last look, 0 if nothing has; `each` is told of
    /// every shard that was asked for since then, and how often.
    pub fn look(&mut self, load: &Load, mut each: impl FnMut(ShardId, u32)) -> u64 {
        for ((shard, now), before) in ShardId::all().zip(&load.asked).zip(&mut self.asked) {
            let now = now.load(Ordering::Relaxed);
            let count = now.wrapping_sub(std::mem::replace(before, now));
            if count > 0 {
                each(shard, count);
            }
        }
        let (transactions, latency_ns) = load.totals();
        let (before, before_ns) = std::mem::replace(&mut self.totals, (transactions, latency_ns));
        (latency_ns - before_ns).checked_div(transactions - before).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_shows_what_came_since_the_last_one() {
        let (load, mut recent) = (Load::default(), Recent::default());
        let look = |recent: &mut Recent| {
            let mut asked = Vec::new();
            let latency_ns = recent.look(&load, |shard, count| asked.push((shard.0, count)));
            (latency_ns, asked)
        };
        assert_eq!(look(&mut recent), (0, vec![]));
        [7, 9, 7].iter().for_each(|shard| load.ask(ShardId(*shard)));
        [100, 300].iter().for_each(|latency_ns| load.ended(*latency_ns));
        assert_eq!(look(&mut recent), (200, vec![(7, 2), (9, 1)]));
        load.ask(ShardId(9));
        assert_eq!(look(&mut recent), (0, vec![(9, 1)]));
    }
}
