//! Traits of the standard library: `Default`, `Debug`, `Extend`, `FromIterator`.
//!
//! Invariant: an entry that arrives by `extend` replaces the entry of its key, as in the standard library's map.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::batch::{BATCH_AHEAD, Request};
use crate::table::Table;

impl<K, V, S: Default> Default for Table<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K, V, S> Extend<(K, V)> for Table<K, V, S>
where
    K: Hash + Eq,
    V: Clone,
    S: BuildHasher,
{
    /// Stores all entries of an iterator, in batches.
    ///
    /// # Panics
    ///
    /// If an entry is refused: memory is short, or 15 keys have the same hash.
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        let mut batch = Vec::with_capacity(BATCH_AHEAD);
        let mut entries = entries.into_iter();
        loop {
            let next = entries.by_ref().take(BATCH_AHEAD);
            batch.extend(next.map(|(key, value)| Request::InsertOrReplace(key, value)));
            if batch.is_empty() {
                return;
            }
            self.execute(&mut batch);
            for answer in batch.drain(..) {
                if let Request::Stored(Err(refused)) = answer {
                    panic!("an entry was refused: {}", refused.reason);
                }
            }
        }
    }
}

impl<K, V, S> FromIterator<(K, V)> for Table<K, V, S>
where
    K: Hash + Eq,
    V: Clone,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let mut table = Self::with_capacity_and_hasher(entries.size_hint().0, S::default());
        table.extend(entries);
        table
    }
}

impl<K, V, S> fmt::Debug for Table<K, V, S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.raw.current();
        out.debug_struct("Table").field("bins", &index.bin_count()).finish_non_exhaustive()
    }
}
