//! The place of bytes in simulated memory. A place names an entry of the table of pages, a replica's
//! word of this entry, and a position in the page.
//!
//! Invariant: a place is one word, computed once from a target when its verb is posted. The
//! prefetches and the execution of the verb use this place. A place is valid only in the memory for
//! which it was computed.
//!
//! ```text
//! 63                                32 31          25 24        9 8          0
//! | entry of the table, first word     | (zero)      | replica + 1 | byte of page |
//! ```

use super::{LINE_BYTES, LINE_WORDS, PAGE_BYTES};

const AT_BITS: u32 = PAGE_BYTES.trailing_zeros();

/// The place of a byte in the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u64);

impl Place {
    /// The place of bytes that no memory has.
    pub(crate) const NOWHERE: Place = Place(u64::MAX);

    /// Returns the place of byte `at` of the page whose entry begins at `entry`, at replica number
    /// `index`.
    #[inline(always)]
    pub(super) fn new(entry: u32, index: u16, at: usize) -> Place {
        Place(u64::from(entry) << 32 | (u64::from(index) + 1) << AT_BITS | at as u64)
    }

    /// Returns the place that is `bytes` bytes after this place. `stride` is the number of words in
    /// an entry.
    #[inline(always)]
    pub(super) fn plus(self, bytes: usize, stride: usize) -> Place {
        let at = self.at() + bytes;
        let entries = (at / PAGE_BYTES * stride) as u64;
        let page = (self.0 & !(PAGE_BYTES as u64 - 1)) + (entries << 32);
        Place(page | (at % PAGE_BYTES) as u64)
    }

    /// Returns the place that is `bytes` bytes before this place, in the same line.
    #[inline(always)]
    pub(super) fn minus(self, bytes: usize) -> Place {
        debug_assert!(bytes <= self.in_line());
        Place(self.0 - bytes as u64)
    }

    /// Returns the first word of the page's entry. The first word names the image.
    #[inline(always)]
    pub(super) fn entry(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Returns the word of the entry that names the replica's own lines.
    #[inline(always)]
    pub(super) fn own(self) -> usize {
        self.entry() + (self.0 as u32 >> AT_BITS) as usize
    }

    /// Returns the position of the copy among the group's copies.
    #[inline(always)]
    pub(super) fn copy(self) -> u16 {
        (self.0 as u32 >> AT_BITS) as u16 - 1
    }

    /// Returns the position of the byte in the page.
    #[inline(always)]
    pub(super) fn at(self) -> usize {
        self.0 as usize % PAGE_BYTES
    }

    /// Returns the number of the line in the page.
    #[inline(always)]
    pub(super) fn line(self) -> usize {
        self.at() / LINE_BYTES
    }

    /// Returns the position of the byte in the line.
    #[inline(always)]
    pub(super) fn in_line(self) -> usize {
        self.0 as usize % LINE_BYTES
    }

    /// Returns the number of the word in the line.
    #[inline(always)]
    pub(super) fn word(self) -> usize {
        self.in_line() / 8
    }

    /// Returns the number of words from this place to the end of the line.
    #[inline(always)]
    pub(super) fn words_left(self) -> usize {
        LINE_WORDS - self.word()
    }

    /// Returns whether the place is at the beginning of a word.
    #[inline(always)]
    pub(crate) fn is_aligned(self) -> bool {
        self.0.is_multiple_of(8)
    }
}
