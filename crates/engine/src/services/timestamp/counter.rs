//! Timestamps of one process: the process's threads share one counter.
//!
//! Invariant: each timestamp is above all earlier ones, since all additions to one word have one order. A load that
//! starts after an addition has returned sees that addition. The counter exists as long as the memory nodes do. The
//! memory nodes are mapped memory of the same process, or belong to a fabric that ends with the process.

use std::sync::atomic::{AtomicU64, Ordering};
use tarn_store::ids::Timestamp;

/// The timestamp counter, in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub struct SharedCounter {
    last: AtomicU64,
}

impl Default for SharedCounter {
    fn default() -> SharedCounter {
        SharedCounter { last: AtomicU64::new(Timestamp::LOADED.0) }
    }
}

impl SharedCounter {
    /// Creates a counter whose next timestamp is above `last`. Versions in memory may have timestamps up to `last`.
    pub fn after(last: Timestamp) -> SharedCounter {
        SharedCounter { last: AtomicU64::new(last.0) }
    }

    /// Makes the counter give only timestamps above `last` from now on. A caller calls this function if memory
    /// contains versions whose timestamps came from another source.
    pub fn raise(&self, last: Timestamp) {
        self.last.fetch_max(last.0, Ordering::AcqRel);
    }

    /// The greatest timestamp that the counter has given.
    #[inline]
    pub fn last(&self) -> Timestamp {
        Timestamp(self.last.load(Ordering::Acquire))
    }

    /// Returns the counter's next timestamp.
    #[inline]
    pub fn next(&self) -> Timestamp {
        Timestamp(self.last.fetch_add(1, Ordering::AcqRel) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn two_threads_get_each_timestamp_once_and_ascending() {
        let counter = SharedCounter::default();
        let take = || {
            let mut taken = Vec::new();
            for _ in 0..20_000 {
                let before = counter.last();
                let given = counter.next();
                assert!(before < given && given <= counter.last());
                taken.push(given);
            }
            taken
        };
        let all: Vec<Vec<Timestamp>> = std::thread::scope(|scope| {
            let threads = [scope.spawn(take), scope.spawn(take)];
            threads.map(|thread| thread.join().expect("no panic")).into()
        });
        assert!(all.iter().all(|taken| taken.is_sorted_by(|a, b| a < b)));
        let once: BTreeSet<Timestamp> = all.concat().into_iter().collect();
        assert_eq!(once.len(), 40_000);
        assert_eq!(once.last(), Some(&Timestamp(Timestamp::LOADED.0 + 40_000)), "none is left out");
    }
}
