//! The number of lock requests to a node, and the latency of its transactions: the figures that resharding uses.
//!
//! Invariant: these figures never give a node permission to do something. Threads increment the counts without an
//! atomic addition. If two threads increment one count at the same moment, one increment may be lost. The ranking of
//! shards tolerates this loss.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tarn_fabric::clock::Nanos;
use tarn_store::placement::shard_map::{SHARDS, ShardId};

/// The load of one node; see the module's text.
pub struct Load {
    /// For each shard, the number of lock requests to this node as the shard's owner, from any node.
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
    /// Counts one request for a lock of this shard.
    #[inline]
    pub(crate) fn ask(&self, shard: ShardId) {
        let count = &self.asked[usize::from(shard.0)];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The number of requests for locks of this shard.
    pub fn asked(&self, shard: ShardId) -> u32 {
        self.asked[usize::from(shard.0)].load(Ordering::Relaxed)
    }

    /// Counts a transaction that this node has accepted; a call of [`Load::ended`] follows.
    #[inline]
    pub fn began(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a transaction that has ended at this node. `latency_ns` includes the transaction's wait for a
    /// coordinator.
    #[inline]
    pub fn ended(&self, latency_ns: u64) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.latency_ns.fetch_add(latency_ns, Ordering::Relaxed);
    }

    fn totals(&self) -> (u64, u64) {
        (self.transactions.load(Ordering::Relaxed), self.latency_ns.load(Ordering::Relaxed))
    }
}

/// The change of a node's load since the previous sample.
pub struct Recent {
    asked: Box<[u32]>,
    totals: (u64, u64),
    /// The number of transactions that had begun at the previous sample, and the time of the previous sample.
    begun: (u64, Nanos),
    /// How long the node has had running transactions without any of them ending, in nanoseconds.
    stuck_ns: u64,
}

impl Default for Recent {
    fn default() -> Recent {
        let asked = vec![0; SHARDS].into();
        Recent { asked, totals: (0, 0), begun: (0, Nanos(0)), stuck_ns: 0 }
    }
}

impl Recent {
    /// The average latency in nanoseconds of the transactions that have ended since the previous sample. If no
    /// transaction has ended, the function returns how long transactions have run without an end. If no transaction
    /// ran, it returns 0. So a node on which no transaction ends does not seem fast. The function calls `each` for
    /// every shard with lock requests since the previous sample, with the number of these requests.
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
        // The number of ended transactions is compared with the number of transactions that had begun at the previous
        // sample.
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
