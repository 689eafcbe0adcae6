//! The multi-version record that takes one line, which contains the head and all versions of the record.
//!
//! ```text
//! 0 LOCK | 8 STATE | 16 KEY | 24 V0 .. V(n-1) | payload 0 .. payload n-1 | 56 WRITER
//! V        63 INVISIBLE | 62 deleted | 61 T_commit or T_lb 0         0: never one here
//! ```
//! Invariant: a record is one line, so that one READ of it is a snapshot of one moment, and all changes by one WRITE
//! become visible together. Because every image is a snapshot of one moment, the record needs no PREV_TS. A version
//! may have been discarded only if every place has held a version. A discarded version is never newer than the
//! version that readers see. WRITER is the tag of the last transaction that wrote a version of this record. At most
//! one version is INVISIBLE, and WRITER wrote it. STATE and LOCK have the same meaning as in records whose versions
//! lie outside the slot.
//!
//! The layout is Tarn's own. This layout is for rows so small that several versions fit beside the key. A reader of
//! an old version then needs no second READ.

use super::choose::Seen;
use super::{HEADER_BYTES, LockWords, RecordLayout, Slot, VersionWord};
use crate::ids::Timestamp;
use crate::schema::TableSchema;
use tarn_fabric::address::LINE_BYTES;

/// The offset of the word of the first version in a slot.
pub const PACKED_VERSIONS_AT: usize = HEADER_BYTES;
/// The offset of WRITER in a packed record.
pub const PACKED_WRITER_AT: usize = LINE_BYTES - 8;

const _: () = assert!(PACKED_WRITER_AT == 56 && PACKED_VERSIONS_AT == 24);
// Two versions of one word each fit into the line, which is enough for a row of SmallBank.
const _: () = assert!(PACKED_VERSIONS_AT + 2 * (8 + 8) == PACKED_WRITER_AT);

/// The number of versions of a slot, and the size of their payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    count: u8,
    /// The number of bytes of a payload, rounded up to words.
    stride: u8,
}

impl Packed {
    /// The layout for `count` versions of rows of `schema`, if these versions fit in a line.
    pub(super) fn fitting(count: u8, schema: &TableSchema) -> Option<Packed> {
        let stride = schema.payload_bytes().next_multiple_of(8);
        let bytes = PACKED_VERSIONS_AT + usize::from(count) * (8 + stride);
        let fits = bytes <= PACKED_WRITER_AT && schema.stored_key_bytes() == 0 && !schema.apart;
        fits.then_some(Packed { count, stride: stride as u8 })
    }

    /// The number of versions that a slot has places for.
    #[inline]
    pub fn count(self) -> usize {
        usize::from(self.count)
    }

    /// The offset of a version's word in a slot.
    #[inline]
    pub fn version_at(self, cell: usize) -> usize {
        debug_assert!(cell < self.count());
        PACKED_VERSIONS_AT + cell * 8
    }

    /// The offset of a version's payload in a slot.
    #[inline]
    pub fn payload_at(self, cell: usize) -> usize {
        debug_assert!(cell < self.count());
        PACKED_VERSIONS_AT + self.count() * 8 + cell * usize::from(self.stride)
    }

    /// A version's word in a slot's image.
    #[inline]
    pub fn word(self, image: &[u8], cell: usize) -> VersionWord {
        VersionWord::from_word(word(image, self.version_at(cell)))
    }

    /// Returns the parts of all versions that [`super::choose()`] needs.
    #[inline]
    pub fn all(self, image: &[u8]) -> impl Iterator<Item = Seen> + Clone {
        let line: &[[u8; 8]; LINE_BYTES / 8] =
            image.as_chunks().0.first_chunk().expect("a slot is a line");
        const FIRST: usize = PACKED_VERSIONS_AT / 8;
        let at = move |index: usize| u64::from_le_bytes(line[index % line.len()]);
        let word = move |cell: usize| VersionWord::from_word(at(FIRST + cell));
        let is_full = (0..self.count()).all(|it| word(it) != VersionWord::FRESH);
        let (txn, prev_ts) = (at(PACKED_WRITER_AT / 8), Timestamp(u64::from(is_full)));
        (0..self.count()).map(move |cell| {
            let word = word(cell);
            Seen { word, deleted: word.is_deleted(), txn, prev_ts }
        })
    }

    /// Returns the place of the newest version and its word, if the slot has two places and neither place has a mark
    /// (INVISIBLE or deleted). A writer writes the next version into the other place, which is free or has the older
    /// version.
    #[inline(always)]
    pub fn newest_of_two(self, line: &[u64; LINE_BYTES / 8]) -> Option<(usize, VersionWord)> {
        const FIRST: usize = PACKED_VERSIONS_AT / 8;
        let (one, other) = (line[FIRST], line[FIRST + 1]);
        if self.count != 2 || one == other || (one | other) > Timestamp::MAX.0 {
            return None;
        }
        let newest = usize::from(other > one);
        Some((newest, VersionWord::from_word(one.max(other))))
    }

    /// Returns the part of one version that [`super::choose()`] needs.
    #[inline]
    pub fn seen(self, image: &[u8], cell: usize) -> Seen {
        self.all(image).nth(cell).expect("the cell is one of the record's")
    }

    /// The slot for rows of `schema`.
    pub(super) fn slot(self, schema: &TableSchema) -> Slot {
        Slot {
            lock_words: LockWords::Tags,
            slot_bytes: LINE_BYTES,
            body_at: None,
            full_key_at: HEADER_BYTES,
            full_key_bytes: 0,
            payload_at: self.payload_at(0),
            payload_bytes: schema.payload_bytes(),
            by_bucket: false,
            record: RecordLayout::Packed(self),
            plain: false,
            out_of_line: false,
            used_bytes: LINE_BYTES,
        }
    }
}

fn word(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*image[at..].first_chunk().expect("a slot is a line"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Choice, Discards, Rules, cell_to_overwrite, choose, newest_committed};
    use crate::schema::ColumnType;

    fn fitting(count: u8, payload: u16) -> Option<Packed> {
        Packed::fitting(count, &TableSchema::new("t", 1).column("c", ColumnType::Bytes(payload)))
    }

    #[test]
    fn two_versions_of_a_word_fill_a_line() {
        let packed = fitting(2, 8).expect("fits");
        assert_eq!(
            (packed.version_at(1), packed.payload_at(0), packed.payload_at(1)),
            (32, 40, 48)
        );
        assert_eq!(fitting(2, 5), Some(packed));
        assert!(fitting(2, 9).is_none() && fitting(3, 8).is_none());
        assert!(fitting(1, 24).is_some() && fitting(1, 25).is_none());
    }

    #[test]
    fn the_newest_of_two_versions_is_chosen_as_among_any_number() {
        let packed = fitting(2, 8).expect("fits");
        let words = [0, 1, 2, 7, Timestamp::MAX.0, 1 << 62, 7 | 1 << 62, 7 | 1 << 63, 1 << 63];
        for (one, other) in words.iter().flat_map(|&one| words.map(|other| (one, other))) {
            let line = [0, 1, 9, one, other, 40, 50, 0];
            let image: Vec<u8> = line.iter().flat_map(|word| word.to_le_bytes()).collect();
            let Some((newest, word)) = packed.newest_of_two(&line) else {
                assert!(one == other || (one | other) >> 62 != 0, "{one:x} {other:x}");
                continue;
            };
            let among_any = newest_committed(packed.all(&image)).expect("one is committed");
            assert_eq!((newest, word.timestamp()), (among_any.cell, among_any.version));
            let rules = Rules { lower_bound: true, discards: Discards::Above, keep_newest: true };
            let place = cell_to_overwrite(packed.all(&image), rules, |_| unreachable!());
            assert_eq!(place.map(|it| it.cell), Some(1 - newest));
            for start in [word.timestamp(), Timestamp(word.timestamp().0 + 1)] {
                let shown = choose(packed.all(&image), start, rules, |_| unreachable!());
                let Choice::Version(shown) = shown else { panic!("{shown:?} as of {start:?}") };
                assert_eq!((shown.cell, shown.version), (newest, word.timestamp()));
            }
        }
    }

    #[test]
    fn rows_apart_and_rows_with_long_keys_are_not_packed() {
        let schema = TableSchema::new("t", 1).column("c", ColumnType::U64);
        assert!(Packed::fitting(2, &schema).is_some());
        assert!(Packed::fitting(2, &schema.clone().key_bytes(9)).is_none());
        assert!(Packed::fitting(2, &schema.apart()).is_none());
    }

    #[test]
    fn a_discarded_version_is_unknown_only_if_no_place_is_fresh() {
        let (packed, mut image) = (fitting(2, 8).expect("fits"), [0; 64]);
        image[24] = 1;
        image[56] = 9;
        let seen = packed.seen(&image, 0);
        assert_eq!((seen.prev_ts, seen.txn), (Timestamp(0), 9));
        image[32..40].copy_from_slice(&VersionWord::VACATED.word().to_le_bytes());
        assert_eq!(packed.seen(&image, 0).prev_ts, Timestamp(1));
        assert!(packed.seen(&image, 1).word.is_empty());
    }
}
