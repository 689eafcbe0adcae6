//! `rayon`: parallel iteration over a table, and parallel insertion.
//!
//! Invariant: the parts of a parallel iteration are ranges of bins of one index, so that no key is seen twice.

use std::hash::{BuildHasher, Hash};

use rayon::iter::{FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator};

use crate::iter::Iter;
use crate::table::Table;

/// Bins that one task visits.
const BINS_IN_TASK: usize = 4096;

impl<K, V, S> Table<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    V: Clone + Send + Sync,
    S: BuildHasher + Sync,
{
    /// Returns clones of all entries, in any order, as `iter` does, but by several threads.
    ///
    /// ```
    /// use rayon::iter::ParallelIterator;
    ///
    /// let table: tarn_table::Table<u64, u64> = (0..1000).map(|key| (key, 1)).collect();
    /// assert_eq!(table.par_iter().map(|(_, value)| value).sum::<u64>(), 1000);
    /// ```
    pub fn par_iter(&self) -> impl ParallelIterator<Item = (K, V)> + '_ {
        let (index, bins) = self.roots();
        let tasks = bins.end.div_ceil(BINS_IN_TASK);
        (0..tasks).into_par_iter().flat_map_iter(move |task| {
            let end = bins.end.min((task + 1) * BINS_IN_TASK);
            Iter::part(self, index, task * BINS_IN_TASK..end)
        })
    }
}

impl<K, V, S> ParallelExtend<(K, V)> for Table<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Clone + Send + Sync,
    S: BuildHasher + Send + Sync,
{
    /// Stores all entries. If a key occurs several times, any of its values stays.
    ///
    /// # Panics
    ///
    /// If an entry is refused: memory is short, or 15 keys have the same hash.
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_par_iter().for_each(|(key, value)| {
            if let Err(refused) = self.insert_or_replace(key, value) {
                panic!("an entry was refused: {}", refused.reason);
            }
        });
    }
}

impl<K, V, S> FromParallelIterator<(K, V)> for Table<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Clone + Send + Sync,
    S: BuildHasher + Default + Send + Sync,
{
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut table = Self::with_hasher(S::default());
        table.par_extend(entries);
        table
    }
}
