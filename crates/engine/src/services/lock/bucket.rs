//! The meaning of the words of a lock bucket.
//!
//! Invariant: a slot is free exactly if its word is 0. So the release of the last hold stores 0 and nothing else.
//! (Layout: Hu et al., "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks". We add a bit to the
//! bucket, and room to spill.)
//!
//! ```text
//! a bucket is a line:  0 header | 8 slot 1 | … | 56 slot 7
//! header   63 bit  | 62        spill 31         32 | 31   count of write grants 32   0
//! slot     63              fingerprint 56                  8 | 7      holders 8      0
//! holders  0: free, 1: a writer, 2k: k readers
//! spill    0: none, else 1 + the number of a spill bucket
//! ```

/// Words of a bucket; in models fewer, so that there are fewer orders to try.
pub(super) const WORDS: usize = if cfg!(loom) { 3 } else { 8 };
/// Slots of a bucket.
#[cfg(test)]
pub const SLOTS: usize = WORDS - 1;
/// Bytes of a bucket.
pub const BUCKET_BYTES: usize = 8 * WORDS;
/// The greatest number of readers of one lock.
pub const READERS_MAX: u64 = 127;

/// The bit of a thread that changes the bucket's slots.
pub(super) const BIT: u64 = 1 << 63;
const SPILL_SHIFT: u32 = 32;
const SPILL_MASK: u64 = (1 << 31) - 1;
const COUNT_MASK: u64 = (1 << 32) - 1;
const HOLDERS_MASK: u64 = 0xff;

/// A writer.
pub(super) const WRITER: u64 = 1;
/// One reader.
pub(super) const READER: u64 = 2;

const _: () = assert!(BUCKET_BYTES == 64 || cfg!(loom));
const _: () = assert!(READERS_MAX * READER <= HOLDERS_MASK);
const _: () = assert!(BIT & (SPILL_MASK << SPILL_SHIFT | COUNT_MASK) == 0);

/// The fingerprint of a hash, in its place in a slot.
#[inline(always)]
pub(super) fn fingerprint(hash: u64) -> u64 {
    hash & !HOLDERS_MASK
}

/// Whether a word that is not 0 belongs to a slot with this fingerprint.
#[inline(always)]
pub(super) fn is_of(word: u64, fingerprint: u64) -> bool {
    word ^ fingerprint <= HOLDERS_MASK
}

/// The holders of a slot.
#[inline(always)]
pub(super) fn holders(word: u64) -> u64 {
    word & HOLDERS_MASK
}

/// Whether another reader may join.
#[inline(always)]
pub(super) fn takes_readers(word: u64) -> bool {
    let holders = holders(word);
    holders.is_multiple_of(READER) && holders != 0 && holders < READERS_MAX * READER
}

/// The slot's word after one reader has left.
#[inline(always)]
pub(super) fn without_reader(word: u64) -> u64 {
    if holders(word) == READER { 0 } else { word - READER }
}

/// The spill bucket behind a bucket.
#[inline(always)]
pub(super) fn spill(header: u64) -> Option<u32> {
    (((header >> SPILL_SHIFT) & SPILL_MASK) as u32).checked_sub(1)
}

/// The spill field; 0 if there is none.
#[inline(always)]
pub(super) fn spill_bits(header: u64) -> u64 {
    header & (SPILL_MASK << SPILL_SHIFT)
}

/// The header with this spill bucket.
pub(super) fn with_spill(header: u64, spill: Option<u32>) -> u64 {
    let word = spill.map_or(0, |number| u64::from(number) + 1);
    debug_assert!(word <= SPILL_MASK);
    header & !(SPILL_MASK << SPILL_SHIFT) | word << SPILL_SHIFT
}

/// How many write grants the bucket has seen, modulo 2^32.
#[inline(always)]
pub(super) fn count(header: u64) -> u32 {
    (header & COUNT_MASK) as u32
}

/// The header with one more write grant.
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
