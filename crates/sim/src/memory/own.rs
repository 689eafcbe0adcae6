//! The lines of a page that a replica has of its own, and their places: one word of the table of pages.
//!
//! Invariant: the replica's own lines of a page lie in one run, in the order in which they were made. A
//! line has at most one place in the run.
//!
//! ```text
//! | for each of the page's lines 4 bits: 0 none, else its place + 1 | room 2 bits | run 30 bits |
//! ```

use super::PAGE_LINES;

/// Number of bits in a run's number.
const RUN_BITS: u32 = 30;
/// The largest number of a run.
pub(super) const RUN_MASK: u32 = (1 << RUN_BITS) - 1;

/// See the module's documentation.
#[derive(Clone, Copy)]
pub(super) struct OwnLines(pub(super) u64);

impl OwnLines {
    /// Returns the number of the replica's own line, if it has one.
    #[inline(always)]
    pub(super) fn get(self, line: usize) -> Option<u32> {
        let place = (self.0 >> (32 + 4 * line)) as u32 & 15;
        (place != 0).then(|| self.run() + place - 1)
    }

    /// Returns the number of the first of the lines from `first` to `last`, if the replica has all of
    /// them, one after the other.
    #[inline(always)]
    pub(super) fn get_all(self, first: usize, last: usize) -> Option<u32> {
        let places = (self.0 >> 32) as u32 >> (4 * first);
        let place = places & 15;
        let mask = u32::MAX >> (28 - 4 * (last - first));
        let in_a_row = place.wrapping_mul(0x1111_1111).wrapping_add(0x7654_3210);
        (place != 0 && (places ^ in_a_row) & mask == 0).then(|| self.run() + place - 1)
    }

    /// The number of own lines.
    #[inline(always)]
    pub(super) fn count(self) -> u32 {
        self.count_in(0, PAGE_LINES - 1)
    }

    /// The number of own lines from line `first` to line `last` of the page.
    #[inline(always)]
    pub(super) fn count_in(self, first: usize, last: usize) -> u32 {
        let places = (self.0 >> 32) as u32;
        let used = (places | places >> 1 | places >> 2 | places >> 3) & 0x1111_1111;
        let from = u32::MAX << (4 * first);
        let to = u32::MAX >> (28 - 4 * last);
        // Sums the eight digits: the sum is the highest digit of the product.
        (used & from & to).wrapping_mul(0x1111_1111) >> 28
    }

    /// The run's first line.
    #[inline(always)]
    pub(super) fn run(self) -> u32 {
        self.0 as u32 & RUN_MASK
    }

    /// The run has room for two to the power of this many lines.
    #[inline(always)]
    pub(super) fn class(self) -> u32 {
        self.0 as u32 >> RUN_BITS
    }

    /// Returns the same lines in the same places of another run.
    #[inline(always)]
    pub(super) fn moved(self, run: u32, class: u32) -> OwnLines {
        OwnLines(self.0 >> 32 << 32 | u64::from(class << RUN_BITS | run))
    }

    /// Returns the lines with one more, at a free place.
    #[inline(always)]
    pub(super) fn with(self, line: usize, place: u32) -> OwnLines {
        OwnLines(self.0 | u64::from(place + 1) << (32 + 4 * line))
    }
}
