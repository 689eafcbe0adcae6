//! Timestamps for the protocols that order transactions by them.
//!
//! Invariant: of two calls of which one returned before the other began, the later returns the
//! greater timestamp, across crashes of whoever serves them. FORD needs none; the multi-version
//! protocols take theirs through this seam.

use std::sync::atomic::{AtomicU64, Ordering};

/// A point in the order of commits. Zero is before all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Before every commit.
    pub const ZERO: Timestamp = Timestamp(0);
    /// Of records that were loaded before any transaction ran.
    pub const LOADED: Timestamp = Timestamp(1);
    /// The last one: the two bits above it are free for marks beside it in memory.
    pub const MAX: Timestamp = Timestamp((1 << 62) - 1);
}

/// Where timestamps come from.
#[expect(async_fn_in_trait, reason = "used by generic code of this workspace only")]
pub trait TimestampSource {
    /// A timestamp above all that were returned before this was called.
    async fn next(&self) -> Timestamp;
}

/// A counter in this process's memory.
#[derive(Debug, Default)]
pub struct SharedCounter {
    last: AtomicU64,
}

impl TimestampSource for SharedCounter {
    async fn next(&self) -> Timestamp {
        Timestamp(self.last.fetch_add(1, Ordering::AcqRel) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::executor::block_on;

    #[test]
    fn timestamps_grow() {
        let source = SharedCounter::default();
        let (first, second) = block_on(async { (source.next().await, source.next().await) });
        assert!(first < second);
    }
}
