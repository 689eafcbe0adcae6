//! A bare loop over the table's memory, as a measure of the machine.
//!
//! Invariant: the loop touches the same bins as a stream of gets, and does nothing else.

use std::hash::{BuildHasher, Hash};

use crate::batch::BATCH_AHEAD;
use crate::sync::Ordering;
use crate::table::Table;

impl<K: Hash + Eq, V, S: BuildHasher> Table<K, V, S> {
    /// Loads the bin of each key, `BATCH_AHEAD` keys ahead, and adds up one word of each. For benchmarks: no table can
    /// answer faster.
    #[doc(hidden)]
    pub fn bare_loop(&self, keys: impl IntoIterator<Item = K>) -> u64 {
        let index = self.raw.current();
        let mut bins = [index.bin(0); BATCH_AHEAD];
        let mut sum = 0_u64;
        for (at, key) in keys.into_iter().enumerate() {
            let bin = index.bin_of(self.hash_of(&key));
            crate::prefetch::read(bin);
            let oldest = std::mem::replace(&mut bins[at % BATCH_AHEAD], bin);
            sum = sum.wrapping_add(oldest.header.load(Ordering::Relaxed));
        }
        bins.iter().fold(sum, |sum, bin| sum.wrapping_add(bin.header.load(Ordering::Relaxed)))
    }
}
