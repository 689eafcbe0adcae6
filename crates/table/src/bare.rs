//! Bare loops over the table's memory, as a measure of the machine.
//!
//! Invariant: a loop touches the same bins as a stream of operations, and does nothing else. So no table can be faster
//! that answers from one cache line for each key, or changes this line by locked steps.

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

    /// Loads the header of each key's bin, and then takes `steps` locked steps on it that change nothing. For benchmarks:
    /// no table can update faster, one key after another, that reads an entry's line and takes such steps on it.
    #[doc(hidden)]
    pub fn bare_locked_loop(&self, keys: impl IntoIterator<Item = K>, steps: usize) -> u64 {
        let index = self.raw.current();
        let mut sum = 0_u64;
        for key in keys {
            let bin = index.bin_of(self.hash_of(&key));
            let header = bin.header.load(Ordering::Acquire);
            for _ in 0..steps {
                // A step that adds a known zero would become a fence and a load.
                let same = bin.header.compare_exchange(
                    header,
                    header,
                    Ordering::SeqCst,
                    Ordering::Acquire,
                );
                sum = sum.wrapping_add(same.unwrap_or_else(|now| now));
            }
        }
        sum
    }
}
