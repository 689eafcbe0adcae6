//! An index: an array of bins, their linked lines, and the way to the index that follows it.
//!
//! Invariant: the addresses of an index stay valid until its table is dropped. After all its bins were moved, and all
//! earlier indexes are retired too, the pages go back to the system, and all its bins read as moved for ever
//! (`memory.rs`). So a late operation needs no announcement: it finds its bin moved, and goes to the next index.
//!
//! The bins of the next index are a multiple of this index's bins. A bin's number is the high half of hash times
//! number of bins. So each bin of the next index gets entries from exactly one bin of this index.

use std::ptr;

use crossbeam_utils::CachePadded;

use crate::bin::{Bin, Line, Slot, lines_of};
use crate::header::{FIRST_OF_PAIR, Header, Phase, SLOTS_INLINE};
use crate::lines::Lines;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering};

/// Bins that a thread moves at one time when it helps a growth.
#[cfg(not(loom))]
pub(crate) const CHUNK_BINS: usize = 64;
#[cfg(loom)]
pub(crate) const CHUNK_BINS: usize = 1;

/// One in this many bins can have a linked line. With uniform hashes and 1.5 entries in a bin, one bin in 15 needs a
/// line; at 2.6 entries, one in 4. So growth begins at about 2.6 entries in a bin.
const BINS_PER_LINE: usize = 4;
/// One in this many bins can have a linked pair of lines.
const BINS_PER_PAIR: usize = 32;
/// A small index has more lines in proportion, because the numbers of entries in its bins differ more.
const LINES_MIN: usize = 4;
const PAIRS_MIN: usize = 2;

/// One array of bins.
pub(crate) struct Index {
    bins: *const Bin,
    bin_count: usize,
    /// The index that gets this index's entries; null if none.
    next: AtomicPtr<Index>,
    pub(crate) singles: Lines,
    pub(crate) pairs: Lines,
    /// The first bin that no helper has taken yet.
    cursor: CachePadded<AtomicUsize>,
    /// The number of bins that were moved.
    moved: CachePadded<AtomicUsize>,
    memory: Store,
}

// SAFETY: the addresses lead into memory that the index owns. All accesses to it are atomic. A word's meaning as a key
// or value is the table's matter, which is `Send` and `Sync` only if they are.
unsafe impl Send for Index {}
// SAFETY: as above.
unsafe impl Sync for Index {}

#[cfg(not(loom))]
type Store = crate::memory::Memory;
/// Loom's atomics cannot be made from zeros.
#[cfg(loom)]
type Store = (Box<[Bin]>, Box<[Line]>);

/// The numbers of an index's parts.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    bins: usize,
    singles: usize,
    pairs: usize,
}

impl Sizes {
    fn of(bins: usize) -> Option<Self> {
        let singles = (bins / BINS_PER_LINE).max(LINES_MIN);
        let pairs = (bins / BINS_PER_PAIR).max(PAIRS_MIN);
        // Numbers of lines are 32 bits, and 0 is none.
        (singles < u32::MAX as usize).then_some(Self { bins, singles, pairs })
    }

    fn lines(self) -> usize {
        self.bins + self.singles + 2 * self.pairs
    }
}

impl Index {
    /// Creates an empty index, or nothing if memory is short. `before` is the index whose entries this one gets.
    pub(crate) fn new(bins: usize, before: Option<&Index>, huge_pages: bool) -> Option<Box<Self>> {
        assert!(bins > 0, "an index without bins");
        let sizes = Sizes::of(bins)?;
        // The parts of a split bin with 4 to 7 entries need one single line, and the bin had a line. With 8 to 11 entries
        // they need two, and the bin had a pair. With 12 to 15 entries they need three, and the bin had both. A part
        // with more than 7 entries needs a pair, and the bin had one.
        let kept_singles = before.map_or(0, |it| it.singles.total() + 2 * it.pairs.total());
        let kept_pairs = before.map_or(0, |it| it.pairs.total());
        let sizes = Sizes {
            singles: sizes.singles.max(kept_singles as usize + LINES_MIN),
            pairs: sizes.pairs.max(kept_pairs as usize + PAIRS_MIN),
            ..sizes
        };
        let (first_bin, first_line, memory) = Self::allocate(sizes, huge_pages)?;
        let first_pair = first_line.wrapping_add(sizes.singles);
        Some(Box::new(Self {
            bins: first_bin,
            bin_count: bins,
            next: AtomicPtr::new(ptr::null_mut()),
            singles: Lines::new(first_line, 1, sizes.singles as u32, kept_singles),
            pairs: Lines::new(first_pair, 2, sizes.pairs as u32, kept_pairs),
            cursor: CachePadded::new(AtomicUsize::new(0)),
            moved: CachePadded::new(AtomicUsize::new(0)),
            memory,
        }))
    }

    #[cfg(not(loom))]
    fn allocate(sizes: Sizes, huge_pages: bool) -> Option<(*const Bin, *const Line, Store)> {
        let bytes = sizes.lines().checked_mul(size_of::<Line>())?;
        let memory = Store::zeroed(bytes, huge_pages)?;
        let bins = memory.start().cast::<Bin>();
        Some((bins, bins.wrapping_add(sizes.bins).cast::<Line>(), memory))
    }

    #[cfg(loom)]
    fn allocate(sizes: Sizes, _huge_pages: bool) -> Option<(*const Bin, *const Line, Store)> {
        let bins: Box<[Bin]> = (0..sizes.bins).map(|_| Bin::default()).collect();
        let lines: Box<[Line]> = (0..sizes.lines() - sizes.bins).map(|_| Line::default()).collect();
        Some((bins.as_ptr(), lines.as_ptr(), (bins, lines)))
    }

    /// Returns the number of bins.
    #[inline]
    pub(crate) fn bin_count(&self) -> usize {
        self.bin_count
    }

    /// Returns the number of the bin of a hash.
    #[inline]
    pub(crate) fn number_of(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.bin_count as u128) >> 64) as usize
    }

    /// Returns the smallest and the largest hash of the bin with a number.
    pub(crate) fn hashes_of(&self, number: usize) -> (u64, u64) {
        let first_of = |number: usize| ((number as u128) << 64).div_ceil(self.bin_count as u128);
        (first_of(number) as u64, (first_of(number + 1) - 1) as u64)
    }

    /// Returns the bin with a number.
    #[inline]
    pub(crate) fn bin(&self, number: usize) -> &Bin {
        debug_assert!(number < self.bin_count);
        // SAFETY: the number is smaller than the number of bins. The bins lie in the index's memory, which stays valid
        // and initialised as long as the index. All accesses to a bin are atomic.
        unsafe { &*self.bins.add(number) }
    }

    /// Returns the bin of a hash.
    #[inline]
    pub(crate) fn bin_of(&self, hash: u64) -> &Bin {
        self.bin(self.number_of(hash))
    }

    /// Returns the slot of a bin, if the link that the caller has read names its line.
    #[inline]
    pub(crate) fn slot<'a>(&'a self, bin: &'a Bin, link: u64, slot: u32) -> Option<&'a Slot> {
        if slot < SLOTS_INLINE {
            return Some(&bin.slots[slot as usize]);
        }
        let (single, pair) = lines_of(link);
        let (line, at) = if slot < FIRST_OF_PAIR {
            (self.line(&self.singles, single)?, slot - SLOTS_INLINE)
        } else {
            (self.line(&self.pairs, pair)?, slot - FIRST_OF_PAIR)
        };
        // SAFETY: `line` returned the first of one line for slots 3 to 6, and of two neighbours for slots 7 to 14. Both
        // lie in the index's memory. All accesses to a line are atomic.
        Some(unsafe { &(*line.add(at as usize / 4)).slots[at as usize % 4] })
    }

    fn line(&self, lines: &Lines, number: u32) -> Option<*const Line> {
        (number != 0 && number <= lines.total()).then(|| lines.line(number))
    }

    /// Asks the processor for the line that a search for the hash may need after the bin. The bin has arrived.
    ///
    /// One bin in 15 has a linked line at 1.5 entries in a bin, and one in 4 at 2.6. So a branch would often be
    /// predicted wrongly. Without a line the address
    /// is the bin's.
    #[inline(always)]
    pub(crate) fn prefetch_lines(&self, hash: u64) {
        let bin = self.bin_of(hash);
        let (single, _) = lines_of(bin.link.load(Ordering::Relaxed));
        let line = self.singles.line_or(single, std::ptr::from_ref(bin).cast());
        crate::prefetch::read(line);
        if Header(bin.header.load(Ordering::Relaxed)).phase() == Phase::Moved
            && let Some(next) = self.next()
        {
            crate::prefetch::read(next.bin_of(hash));
        }
    }

    /// Returns the index that gets this index's entries.
    #[inline]
    pub(crate) fn next(&self) -> Option<&Index> {
        // SAFETY: a pointer that is not null was made by `set_next` from a box, which is freed only with the table.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// Makes an index follow this one. If another thread was first, its index stays, and `new` is freed.
    pub(crate) fn set_next(&self, new: Box<Index>) -> &Index {
        let new = Box::into_raw(new);
        let set =
            self.next.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        match set {
            // SAFETY: the box is now owned by this index, and is freed only with the table.
            Ok(_) => unsafe { &*new },
            Err(first) => {
                // SAFETY: `new` comes from a box, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as in `next`.
                unsafe { &*first }
            }
        }
    }

    /// Takes the next index out, to free it.
    pub(crate) fn take_next(&mut self) -> Option<Box<Index>> {
        let next = self.next.load(Ordering::Acquire);
        self.next.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: the pointer comes from a box (`set_next`), and the store above has removed the only copy.
        (!next.is_null()).then(|| unsafe { Box::from_raw(next) })
    }

    /// Gives the index's memory back, after all its bins were moved.
    pub(crate) fn retire(&self) {
        assert!(self.is_moved(), "an index with entries stays");
        #[cfg(not(loom))]
        self.memory.give_back(Header(0).moved().0);
        #[cfg(loom)]
        let _ = &self.memory;
    }

    /// Takes the next chunk of bins that no helper has taken.
    pub(crate) fn take_chunk(&self) -> Option<std::ops::Range<usize>> {
        if self.cursor.load(Ordering::Relaxed) >= self.bin_count {
            return None;
        }
        let start = self.cursor.fetch_add(CHUNK_BINS, Ordering::Relaxed);
        (start < self.bin_count).then(|| start..(start + CHUNK_BINS).min(self.bin_count))
    }

    /// Counts moved bins. Returns whether all bins are moved now.
    pub(crate) fn count_moved(&self, bins: usize) -> bool {
        self.moved.fetch_add(bins, Ordering::SeqCst) + bins >= self.bin_count
    }

    /// Returns whether all bins were moved.
    pub(crate) fn is_moved(&self) -> bool {
        self.moved.load(Ordering::SeqCst) >= self.bin_count
    }
}
