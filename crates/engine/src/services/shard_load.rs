//! How often a node is asked for locks, and how long its transactions take: the figures that resharding uses.
//!
//! Invariant: these figures do not decide which node may do something. Counts are incremented without an atomic
//! addition. If two threads increment one at the same moment, one increment may be lost; a ranking of shards survives
//! that.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tarn_fabric::clock::Nanos;
use tarn_store::placement::shard_map::{SHARDS, ShardId};

/// A node's load; see the module's text.
pub struct Load {
    /// By shard: requests for locks to this node as the shard's owner, from any node.
    asked: Box<[AtomicU32]>,
    begun: AtomicU64,
    transactions: AtomicU64,
    latency_ns: AtomicU64,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            asked: (0..SHARDS).map(|_| AtomicU32::new(0)).collect(),
            begun: AtomicU64::new(0),
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

    /// This node has taken on a transaction; [`Load::ended`] follows.
    #[inline]
    pub fn began(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// A transaction has ended at this node. `latency_ns` includes its wait for a coordinator.
    #[inline]
    pub fn ended(&self, latency_ns: u64) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.latency_ns.fetch_add(latency_ns, Ordering::Relaxed);
    }

    fn totals(&self) -> (u64, u64) {
        (self.transactions.load(Ordering::Relaxed), self.latency_ns.load(Ordering::Relaxed))
    }
}

/// The change of a load since the last look.
pub struct Recent {
    asked: Box<[u32]>,
    totals: (u64, u64),
    /// The number of transactions that had begun at the last look, and the time of that look.
    begun: (u64, Nanos),
    /// How long no transaction has ended though some ran.
    stuck_ns: u64,
}

impl Default for Recent {
    fn default() -> Recent {
        let asked = vec![0; SHARDS].into();
        Recent { asked, totals: (0, 0), begun: (0, Nanos(0)), stuck_ns: 0 }
    }
}

impl Recent {
    /// The average latency in nanoseconds of the transactions that have ended since the last look. If none has ended,
    /// it returns how long none has, provided that some ran all the while; otherwise 0. So a node on which nothing ends
    /// does not seem fast. `each` is told of every shard that was asked for since the last look, and how often.
    pub fn look(&mut self, load: &Load, now: Nanos, mut each: impl FnMut(ShardId, u32)) -> u64 {
        for ((shard, now), before) in ShardId::all().zip(&load.asked).zip(&mut self.asked) {
            let now = now.load(Ordering::Relaxed);
            let count = now.wrapping_sub(std::mem::replace(before, now));
            if count > 0 {
                each(shard, count);
            }
        }
        let (transactions, latency_ns) = load.totals();
        let (before, before_ns) = std::mem::replace(&mut self.totals, (transactions, latency_ns));
        let begun = (load.begun.load(Ordering::Relaxed), now);
        let (begun_before, looked) = std::mem::replace(&mut self.begun, begun);
        if let Some(average) = (latency_ns - before_ns).checked_div(transactions - before) {
            self.stuck_ns = 0;
            return average;
        }
        // Compare with the transactions that had begun at the last look.
        match begun_before > transactions {
            true => self.stuck_ns += now.0.saturating_sub(looked.0),
            false => self.stuck_ns = 0,
        }
        self.stuck_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_of_load_shows_the_transactions_since_the_last_one() {
        let (load, mut recent) = (Load::default(), Recent::default());
        let look = |recent: &mut Recent| {
            let mut asked = Vec::new();
            let each = |shard: ShardId, count| asked.push((shard.0, count));
            let latency_ns = recent.look(&load, Nanos(0), each);
            (latency_ns, asked)
        };
        assert_eq!(look(&mut recent), (0, vec![]));
        [7, 9, 7].iter().for_each(|shard| load.ask(ShardId(*shard)));
        [100, 300].iter().for_each(|latency_ns| load.ended(*latency_ns));
        assert_eq!(look(&mut recent), (200, vec![(7, 2), (9, 1)]));
        load.ask(ShardId(9));
        assert_eq!(look(&mut recent), (0, vec![(9, 1)]));
    }

    #[test]
    fn a_node_whose_transactions_do_not_end_is_slow_and_an_idle_node_is_not() {
        let (load, mut recent) = (Load::default(), Recent::default());
        let mut look = |load: &Load, now| recent.look(load, Nanos(now), |_, _| ());
        assert_eq!(look(&load, 1_000), 0);
        load.began();
        assert_eq!(look(&load, 2_000), 0, "it began just now, for all that is known");
        assert_eq!([3_000, 4_500].map(|now| look(&load, now)), [1_000, 2_500]);
        load.ended(3_000);
        load.began();
        assert_eq!(look(&load, 6_000), 3_000);
        assert_eq!(look(&load, 7_000), 1_000);
        load.ended(1_500);
        assert_eq!([8_000, 9_000].map(|now| look(&load, now)), [1_500, 0], "nothing runs");
    }
}
