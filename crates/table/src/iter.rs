//! Iteration and counting.
//!
//! Invariant: a walk visits the bins of the index with which it began. For a bin that was moved it visits the bins that
//! got the entries. Each bin is copied at one moment. So a walk sees each key at most once, and sees each key that is
//! present during the whole walk exactly once. It may or may not see entries that change during the walk.

use std::hash::{BuildHasher, Hash};
use std::ops::Range;

use crate::header::{Header, Phase};
use crate::index::Index;
use crate::look::{Found, Snapshot, header_of};
use crate::table::Table;
use crate::word::Form;

/// The bins that `len` counts in a table that has more. With 1.5 entries in a bin, the error is about 0.3 %.
const COUNTED_BINS: usize = 1 << 16;

/// Calls `f` with each valid entry of a bin, wherever its entries are now.
fn visit(index: &Index, number: usize, f: &mut impl FnMut(&Found)) {
    let bin = index.bin(number);
    let copy = loop {
        if let Some(copy) = Snapshot::of(index, bin, Header::valid) {
            break copy;
        }
    };
    copy.entries().iter().for_each(&mut *f);
    // A bin that was frozen while it was empty can have got entries further on (`growth.rs`).
    if copy.header.phase() != Phase::Open
        && copy.entries().is_empty()
        && let Some(next) = index.next()
    {
        let parts = next.bin_count() / index.bin_count();
        (number * parts..(number + 1) * parts).for_each(|part| visit(next, part, f));
    }
}

impl<K, V, S> Table<K, V, S> {
    /// Returns the approximate number of entries.
    ///
    /// The function counts the entries of up to 65,536 bins. In a larger table it counts every n-th bin, and multiplies.
    /// While other threads change the table, the number may be wrong by their changes.
    pub fn len(&self) -> usize {
        let index = self.raw.current();
        let step = index.bin_count().div_ceil(COUNTED_BINS);
        let mut count = 0;
        let mut bins = 0;
        for number in (0..index.bin_count()).step_by(step) {
            bins += 1;
            let header = header_of(index.bin(number));
            if header.phase() == Phase::Open {
                count += header.valid().count_ones() as usize;
            } else {
                visit(index, number, &mut |_| count += 1);
            }
        }
        if step == 1 {
            count
        } else {
            (count as f64 / f64::from(bins) * index.bin_count() as f64) as usize
        }
    }

    /// Returns whether the table has no entry. The function stops at the first entry.
    pub fn is_empty(&self) -> bool {
        let index = self.raw.current();
        (0..index.bin_count()).all(|number| {
            let mut is_empty = true;
            visit(index, number, &mut |_| is_empty = false);
            is_empty
        })
    }

    /// Returns the number of bins. It changes only when the table grows.
    pub fn bins(&self) -> usize {
        self.raw.current().bin_count()
    }

    /// Removes all entries.
    ///
    /// # Panics
    ///
    /// If the system has no memory for an empty table of the same size.
    pub fn clear(&mut self)
    where
        S: Clone,
    {
        let (bins, huge_pages) = (self.bins(), self.raw.huge_pages);
        let empty = Self::with_bins(bins, huge_pages, self.hasher.clone());
        *self = empty.expect("memory for an empty table");
    }

    /// Returns the numbers of the bins with which a walk begins, and their index.
    pub(crate) fn roots(&self) -> (&Index, Range<usize>) {
        let index = self.raw.current();
        (index, 0..index.bin_count())
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Table<K, V, S> {
    /// Calls `f` with each entry. See `iter` for the entries that it sees.
    pub fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        let (index, numbers) = self.roots();
        for number in numbers {
            let _guard = self.guard();
            visit(index, number, &mut |found| {
                // SAFETY: the words are from one snapshot, and the guard keeps their box.
                unsafe {
                    Form::<K, V>::with_key(found.key, found.value, |key| {
                        Form::<K, V>::with_value(found.value, |value| f(key, value));
                    });
                }
            });
        }
    }

    /// Returns clones of all entries, in any order.
    ///
    /// The iterator is weakly consistent. It sees each key at most once. It sees each key that is present from its
    /// first to its last step. It may miss entries that other threads insert or remove in between.
    ///
    /// ```
    /// let table: tarn_table::Table<u32, char> = [(1, 'a'), (2, 'b')].into_iter().collect();
    /// let mut entries: Vec<_> = table.iter().collect();
    /// entries.sort();
    /// assert_eq!(entries, [(1, 'a'), (2, 'b')]);
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        let (index, bins) = self.roots();
        Iter { table: self, index, bins, ready: Vec::new() }
    }
}

/// Clones of a table's entries (`Table::iter`).
pub struct Iter<'a, K, V, S> {
    table: &'a Table<K, V, S>,
    index: &'a Index,
    bins: Range<usize>,
    ready: Vec<(K, V)>,
}

impl<'a, K, V, S> Iter<'a, K, V, S> {
    /// Returns an iterator over the entries of some bins of the walk's first index.
    #[cfg(feature = "rayon")]
    pub(crate) fn part(table: &'a Table<K, V, S>, index: &'a Index, bins: Range<usize>) -> Self {
        Self { table, index, bins, ready: Vec::new() }
    }
}

impl<K: Clone, V: Clone, S> Iterator for Iter<'_, K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        while self.ready.is_empty() {
            let number = self.bins.next()?;
            let _guard = self.table.guard();
            let ready = &mut self.ready;
            visit(self.index, number, &mut |found| {
                // SAFETY: the words are from one snapshot, and the guard keeps their box.
                let pair = unsafe {
                    let key = Form::<K, V>::with_key(found.key, found.value, K::clone);
                    (key, Form::<K, V>::with_value(found.value, V::clone))
                };
                ready.push(pair);
            });
        }
        self.ready.pop()
    }
}

impl<K, V, S> std::fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Iter").field("bins", &self.bins).finish_non_exhaustive()
    }
}

impl<'a, K: Hash + Eq + Clone, V: Clone, S: BuildHasher> IntoIterator for &'a Table<K, V, S> {
    type Item = (K, V);
    type IntoIter = Iter<'a, K, V, S>;

    fn into_iter(self) -> Iter<'a, K, V, S> {
        self.iter()
    }
}
