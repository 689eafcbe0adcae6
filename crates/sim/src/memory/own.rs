//! The lines of a page that a replica has copied for itself, and the places of these lines. One word
//! of the table of pages describes the lines of one page and one replica.
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
/// The largest number that can name a run.
pub(super) const RUN_MASK: u32 = (1 << RUN_BITS) - 1;

/// The replica's own lines of one page.
#[derive(Clone, Copy)]
pub(super) struct OwnLines(pub(super) u64);

impl OwnLines {
    /// Returns the number of the replica's own copy of a line, if the replica has one.
    #[inline(always)]
    pub(super) fn get(self, line: usize) -> Option<u32> {
        let place = (self.0 >> (32 + 4 * line)) as u32 & 15;
        (place != 0).then(|| self.run() + place - 1)
    }

    /// Returns the number of the own copy of line `first`, if the replica has all lines from `first` to
    /// `last`, adjacent and in order.
    #[inline(always)]
    pub(super) fn get_all(self, first: usize, last: usize) -> Option<u32> {
        let places = (self.0 >> 32) as u32 >> (4 * first);
        let place = places & 15;
        let mask = u32::MAX >> (28 - 4 * (last - first));
        let in_a_row = place.wrapping_mul(0x1111_1111).wrapping_add(0x7654_3210);
        (place != 0 && (places ^ in_a_row) & mask == 0).then(|| self.run() + place - 1)
    }

    /// Returns the number of own lines.
    #[inline(always)]
    pub(super) fn count(self) -> u32 {
        self.count_in(0, PAGE_LINES - 1)
    }

    /// Returns the number of own lines from line `first` to line `last` of the page.
    #[inline(always)]
    pub(super) fn count_in(self, first: usize, last: usize) -> u32 {
        let places = (self.0 >> 32) as u32;
        let used = (places | places >> 1 | places >> 2 | places >> 3) & 0x1111_1111;
        let from = u32::MAX << (4 * first);
        let to = u32::MAX >> (28 - 4 * last);
        // The multiplication sums the eight digits. The sum is the highest digit of the product.
        (used & from & to).wrapping_mul(0x1111_1111) >> 28
    }

    /// Returns the number of the run's first line.
    #[inline(always)]
    pub(super) fn run(self) -> u32 {
        self.0 as u32 & RUN_MASK
    }

    /// Returns the class of the run: a run of class `c` has room for two to the power of `c` lines.
    #[inline(always)]
    pub(super) fn class(self) -> u32 {
        self.0 as u32 >> RUN_BITS
    }

    /// Returns a description of the same lines at the same places of another run.
    #[inline(always)]
    pub(super) fn moved(self, run: u32, class: u32) -> OwnLines {
        OwnLines(self.0 >> 32 << 32 | u64::from(class << RUN_BITS | run))
    }

    /// Returns a description of the own lines and one more line, which gets a free place.
    #[inline(always)]
    pub(super) fn with(self, line: usize, place: u32) -> OwnLines {
        OwnLines(self.0 | u64::from(place + 1) << (32 + 4 * line))
    }
}
