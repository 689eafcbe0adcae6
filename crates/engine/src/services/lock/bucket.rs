//! The meaning of the words of a lock bucket.
//!
//! Invariant: a slot is free if and only if its word is 0. So a thread that releases the last hold stores only a 0.
//! (Layout: Hu et al., "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks". We add a bit to the
//! bucket's header, and spill buckets.)
//!
//! ```text
//! a bucket is a line:  0 header | 8 slot 1 | … | 56 slot 7
//! header   63 bit  | 62        spill 31         32 | 31   count of write grants 32   0
//! slot     63              fingerprint 56                  8 | 7      holders 8      0
//! holders  0: free, 1: a writer, 2k: k readers
//! spill    0: none, else 1 + the number of a spill bucket
//! ```

/// The number of words of a bucket. Loom models use fewer words, so that loom has fewer interleavings to try.
pub(super) const WORDS: usize = if cfg!(loom) { 3 } else { 8 };
/// The number of slots of a bucket.
#[cfg(test)]
pub const SLOTS: usize = WORDS - 1;
/// The number of bytes of a bucket.
pub const BUCKET_BYTES: usize = 8 * WORDS;
/// The greatest number of readers of one lock.
pub const READERS_MAX: u64 = 127;

/// The header bit that a thread sets while it changes the bucket's slots.
pub(super) const BIT: u64 = 1 << 63;
const SPILL_SHIFT: u32 = 32;
const SPILL_MASK: u64 = (1 << 31) - 1;
const COUNT_MASK: u64 = (1 << 32) - 1;
const HOLDERS_MASK: u64 = 0xff;

/// The holders field of a slot that one writer holds.
pub(super) const WRITER: u64 = 1;
/// The amount that one reader adds to the holders field of a slot.
pub(super) const READER: u64 = 2;

const _: () = assert!(BUCKET_BYTES == 64 || cfg!(loom));
const _: () = assert!(READERS_MAX * READER <= HOLDERS_MASK);
const _: () = assert!(BIT & (SPILL_MASK << SPILL_SHIFT | COUNT_MASK) == 0);

/// The bits of a hash that a slot stores, at their position in the slot's word.
#[inline(always)]
pub(super) fn fingerprint(hash: u64) -> u64 {
    hash & !HOLDERS_MASK
}

/// Whether a slot's nonzero word has this fingerprint.
#[inline(always)]
pub(super) fn is_of(word: u64, fingerprint: u64) -> bool {
    word ^ fingerprint <= HOLDERS_MASK
}

/// The holders field of a slot's word.
#[inline(always)]
pub(super) fn holders(word: u64) -> u64 {
    word & HOLDERS_MASK
}

/// Whether another reader may join the holders of the slot with this word.
#[inline(always)]
pub(super) fn takes_readers(word: u64) -> bool {
    let holders = holders(word);
    holders.is_multiple_of(READER) && holders != 0 && holders < READERS_MAX * READER
}

/// The slot's word after one reader has released the lock.
#[inline(always)]
pub(super) fn without_reader(word: u64) -> u64 {
    if holders(word) == READER { 0 } else { word - READER }
}

/// The spill bucket that is chained behind the bucket with this header.
#[inline(always)]
pub(super) fn spill(header: u64) -> Option<u32> {
    (((header >> SPILL_SHIFT) & SPILL_MASK) as u32).checked_sub(1)
}

/// The header's spill field, in its bit position; 0 if no spill bucket is chained.
#[inline(always)]
pub(super) fn spill_bits(header: u64) -> u64 {
    header & (SPILL_MASK << SPILL_SHIFT)
}

/// The header with its spill field set to this spill bucket.
pub(super) fn with_spill(header: u64, spill: Option<u32>) -> u64 {
    let word = spill.map_or(0, |number| u64::from(number) + 1);
    debug_assert!(word <= SPILL_MASK);
    header & !(SPILL_MASK << SPILL_SHIFT) | word << SPILL_SHIFT
}

/// The number of write grants in this bucket, modulo 2^32.
#[inline(always)]
pub(super) fn count(header: u64) -> u32 {
    (header & COUNT_MASK) as u32
}

/// The bucket's header with its count of write grants increased by one.
#[inline(always)]
pub(super) fn counted(header: u64) -> u64 {
    header & !COUNT_MASK | header.wrapping_add(1) & COUNT_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_header_do_not_touch_one_another() {
        let full = with_spill(BIT | COUNT_MASK, Some(SPILL_MASK as u32 - 1));
        assert_eq!(full, u64::MAX);
        assert_eq!((spill(full), count(full)), (Some(SPILL_MASK as u32 - 1), u32::MAX));
        let next = counted(full);
        assert_eq!((next & BIT, spill(next), count(next)), (BIT, spill(full), 0));
        let none = with_spill(next, None);
        assert_eq!((none & BIT, spill(none), count(none)), (BIT, None, 0));
    }

    #[test]
    fn the_last_reader_leaves_nothing() {
        let print = fingerprint(u64::MAX);
        let three = print | (3 * READER);
        let two = without_reader(three);
        let one = without_reader(two);
        assert_eq!((holders(two), holders(one), without_reader(one)), (4, 2, 0));
        assert!([two, one].iter().all(|&word| is_of(word, print)));
        assert!(!is_of(print | WRITER, fingerprint(1 << 8)));
        assert!(takes_readers(two) && !takes_readers(print | WRITER) && !takes_readers(0));
        assert!(!takes_readers(print | (READERS_MAX * READER)));
    }
}
