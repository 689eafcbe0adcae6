//! The single-version record: one copy, updated in place under its lock.
//!
//! ```text
//! a record's slot: half a line, or whole lines
//!   0        8        16       24                      24 + k            (inline: ≤ 128 bytes)
//!   | LOCK   | VERSION| KEY    | full key (k bytes)    | payload …
//!   0        8        16       24       32             32 + k            (out of line)
//!   | LOCK   | VERSION| KEY    | BODY   | full key (k bytes) |   payload lies at BODY
//! a bucket's directory record, one line
//!   0        8        16       24       32       40
//!   | LOCK   | VERSION| STAMP  | PRINTS | DEPTH  | NEXT   | unused
//! ```
//! Invariant: LOCK is an owner's tag or 0. A transaction takes the lock by CAS, and only the holder releases it.
//! VERSION never decreases. One READ of a record of one line returns a consistent record, because a line is atomic. A
//! record of several lines needs a READ of LOCK and VERSION before and after the READ of its body. (Verbs of a batch
//! are executed in order.) Such a record is consistent if both READs of its head show a free LOCK and the same
//! VERSION. Because of these two READs, the payload needs no version in every line, and its bytes are contiguous: see
//! docs/design/0003-single-version-layout.md.
//!
//! The layout follows FORD (Zhang, Hua, Zuo, Liu: "FORD: Fast One-sided RDMA-based Distributed Transactions for
//! Disaggregated Persistent Memory", FAST 2022), which also stores records in the buckets of its index.

use super::{LockWord, RecordLayout, TicketWord};
use crate::schema::TableSchema;
use tarn_fabric::address::LINE_BYTES;

/// The offset of LOCK in a record.
pub const LOCK_AT: usize = 0;
/// The offset of VERSION in a record.
pub const VERSION_AT: usize = 8;
/// The offset of KEY in a record.
pub const KEY_AT: usize = 16;
/// The number of bytes of the header with which every record starts.
pub const HEADER_BYTES: usize = 24;
/// The number of bytes of a directory record.
pub const DIRECTORY_BYTES: usize = LINE_BYTES;
/// The offset of STAMP, which is the VERSION at which a directory record's fingerprints are valid.
pub const DIRECTORY_STAMP_AT: usize = 16;
/// The offset of a directory record's fingerprints, one byte for each slot.
pub const DIRECTORY_PRINTS_AT: usize = 24;
/// The offset of a directory record's depth, which is the number of hash bits in which all keys of the bucket agree.
pub const DIRECTORY_DEPTH_AT: usize = 32;
/// The offset of the address of the bucket's next overflow block.
pub const DIRECTORY_NEXT_AT: usize = 40;

const _: () = assert!(HEADER_BYTES == KEY_AT + 8);
const _: () =
    assert!(DIRECTORY_STAMP_AT == VERSION_AT + 8 && DIRECTORY_PRINTS_AT == VERSION_AT + 16);
const _: () = assert!(DIRECTORY_NEXT_AT + 8 <= DIRECTORY_BYTES);

/// The maximum size of a slot that has its payload inside.
const INLINE_BYTES_MAX: usize = 2 * LINE_BYTES;
/// The minimum size of a slot. Two such slots fill a line, so that a bin is one line.
pub(super) const SLOT_BYTES_MIN: usize = LINE_BYTES / 2;

/// The size of a slot that needs this number of bytes: half a line if `used_bytes` fits into half a line, otherwise
/// whole lines. So no slot that is smaller than a line crosses the end of a line.
const fn slot_bytes(used_bytes: usize) -> usize {
    if used_bytes <= SLOT_BYTES_MIN {
        SLOT_BYTES_MIN
    } else {
        used_bytes.next_multiple_of(LINE_BYTES)
    }
}

/// The meaning of the LOCK words of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWords {
    /// A LOCK word contains the tag of the transaction that holds the lock: [`LockWord`].
    Tags,
    /// A LOCK word counts the transactions that took tickets, and the transactions that have finished with their
    /// tickets: [`TicketWord`].
    Tickets,
}

impl LockWords {
    /// Whether a lock whose LOCK word is `word` is free. A lock word that contains a lease counts as free.
    #[inline]
    pub fn is_free(self, word: u64) -> bool {
        match self {
            LockWords::Tags => LockWord::from_word(word).mode().is_none(),
            LockWords::Tickets => TicketWord(word).is_at_rest(),
        }
    }
}

/// The layout of the records of one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The size of a slot: half a line, or a multiple of a line.
    pub slot_bytes: usize,
    /// The offset of the body's address in the slot. The offset is `None` if the payload lies in the slot, or if
    /// each version has its own body.
    pub body_at: Option<usize>,
    /// The offset of the full key in the slot.
    pub full_key_at: usize,
    /// The length of the full key in the slot; or 0 if the key is one word.
    pub full_key_bytes: usize,
    /// The offset of the payload in the slot or in the separate memory. In a slot that contains several versions,
    /// this field is the offset of the first version's payload. In a record of lines with versions, this field is the
    /// offset that the payload would have if it were contiguous: see [`Slot::lined`].
    pub payload_at: usize,
    /// The length of the payload.
    pub payload_bytes: usize,
    /// Whether lookups read whole buckets. If lookups read whole buckets, keys have no home slots in their bucket.
    pub by_bucket: bool,
    /// The layout of the record in a slot.
    pub record: RecordLayout,
    /// The meaning of the LOCK words of records. LOCK words of directory records are always tags.
    pub lock_words: LockWords,
    /// The result of [`Slot::is_plain`], which is computed once. The answer is stored, because a transaction needs it
    /// for every record that it adds.
    pub(super) plain: bool,
    /// The result of [`Slot::is_out_of_line`], which is computed once. The answer is stored, because a transaction
    /// needs it for every record that it adds.
    pub(super) out_of_line: bool,
    /// The result of [`Slot::used_bytes`], which is computed once.
    pub(super) used_bytes: usize,
}

impl Slot {
    /// The slot for rows of `schema` in the single-version layout.
    pub fn of(schema: &TableSchema) -> Slot {
        let full_key_bytes = schema.stored_key_bytes();
        let payload_bytes = schema.payload_bytes();
        // The payload starts at a multiple of 8, so that its words stay aligned.
        let payload_at = (HEADER_BYTES + full_key_bytes).next_multiple_of(8);
        let inline_bytes = slot_bytes(payload_at + payload_bytes);
        if inline_bytes <= INLINE_BYTES_MAX && !schema.apart {
            let (slot_bytes, body_at, full_key_at) = (inline_bytes, None, HEADER_BYTES);
            return Slot {
                slot_bytes,
                body_at,
                full_key_at,
                full_key_bytes,
                payload_at,
                payload_bytes,
                by_bucket: false,
                record: RecordLayout::InPlace,
                lock_words: LockWords::Tags,
                plain: false,
                out_of_line: false,
                used_bytes: payload_at + payload_bytes,
            }
            .shaped(0, false);
        }
        let full_key_at = HEADER_BYTES + 8;
        Slot {
            slot_bytes: slot_bytes(full_key_at + full_key_bytes),
            body_at: Some(HEADER_BYTES),
            full_key_at,
            full_key_bytes,
            payload_at: 0,
            payload_bytes,
            by_bucket: false,
            record: RecordLayout::InPlace,
            lock_words: LockWords::Tags,
            plain: false,
            out_of_line: true,
            used_bytes: full_key_at + full_key_bytes,
        }
        .shaped(0, false)
    }

    /// Returns the same slot for buckets of another shape. The slot's size is at least `bytes_min`.
    #[must_use]
    pub fn shaped(self, bytes_min: usize, by_bucket: bool) -> Slot {
        let slot_bytes = self.slot_bytes.max(slot_bytes(bytes_min));
        let leads_on = matches!(self.record, RecordLayout::Cells(_) | RecordLayout::Deltas(_));
        let has_word = self.full_key_bytes == 0 && !leads_on;
        let plain = slot_bytes <= LINE_BYTES && has_word && !by_bucket;
        Slot { slot_bytes, by_bucket, plain, ..self }
    }

    /// Whether the payload lies outside the slot.
    #[inline]
    pub fn is_out_of_line(&self) -> bool {
        self.out_of_line
    }

    /// The number of bytes allocated for one version outside the slot, in whole lines. The result is 0 if the payload
    /// lies in the slot. If old versions are stored as deltas, the result counts all bytes that the record has
    /// outside the slot.
    pub fn body_bytes(&self) -> usize {
        match self.record {
            RecordLayout::Deltas(deltas) => deltas.block_bytes(self.payload_bytes),
            _ => self.apart_bytes().next_multiple_of(LINE_BYTES),
        }
    }

    /// The number of bytes that one version has outside the slot. The result is 0 if the payload lies in the slot.
    #[inline]
    pub fn apart_bytes(&self) -> usize {
        if self.is_out_of_line() { self.payload_at + self.payload_bytes } else { 0 }
    }

    /// The number of versions for which a slot has places. If old versions are stored as deltas, only the newest
    /// version counts.
    #[inline]
    pub fn cells(&self) -> usize {
        match self.record {
            RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => 1,
            RecordLayout::Packed(packed) => packed.count(),
            RecordLayout::Cells(cells) => cells.count(),
        }
    }

    /// Whether one line contains all used bytes of the slot, so that one READ of the slot is consistent.
    #[inline]
    pub fn is_one_line(&self) -> bool {
        self.slot_bytes <= LINE_BYTES || self.used_bytes() <= LINE_BYTES
    }

    /// Whether one READ of a slot is enough, without reading its head again. One READ is enough if the image is a
    /// snapshot of one moment, or if each line contains its version ([`super::Lined`]). One READ is also enough if
    /// readers may combine lines of different moments ([`super::choose()`]).
    #[inline]
    pub fn is_read_at_once(&self) -> bool {
        self.is_one_line() || matches!(self.record, RecordLayout::Cells(_) | RecordLayout::Lined(_))
    }

    /// Whether a record is identified by its key word alone, and lies in one line. If both hold, one READ of the
    /// record's home returns the whole record.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The number of used bytes of the slot.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnType;

    fn slot(payload: u16, key_bytes: u8) -> Slot {
        let mut schema = TableSchema::new("t", 1).column("c", ColumnType::Bytes(payload));
        if key_bytes > 0 {
            schema = schema.key_bytes(key_bytes);
        }
        Slot::of(&schema)
    }

    #[test]
    fn eight_bytes_fill_half_a_line_forty_a_line_and_104_two() {
        assert_eq!((slot(8, 0).slot_bytes, slot(9, 0).slot_bytes), (32, 64));
        assert_eq!(slot(40, 0).slot_bytes, 64);
        assert_eq!(slot(41, 0).slot_bytes, 128);
        assert_eq!(slot(104, 0).slot_bytes, 128);
        assert!(!slot(104, 0).is_out_of_line());
        let wide = slot(105, 0);
        assert!(wide.is_out_of_line());
        assert_eq!((wide.slot_bytes, wide.body_bytes(), wide.payload_at), (32, 128, 0));
    }

    #[test]
    fn a_slot_can_be_larger_than_it_must_be() {
        let wide = slot(8, 0).shaped(64, true);
        assert_eq!((wide.slot_bytes, wide.is_plain(), wide.is_one_line()), (64, false, true));
        assert_eq!(slot(40, 0).shaped(0, false), slot(40, 0));
        assert_eq!(slot(8, 0).shaped(664, true).slot_bytes, 704);
        assert!(slot(8, 0).shaped(664, true).is_one_line());
    }

    #[test]
    fn full_keys_have_room() {
        let inline = slot(30, 10);
        assert_eq!((inline.full_key_at, inline.payload_at, inline.slot_bytes), (24, 40, 128));
        let wide = slot(1000, 64);
        assert_eq!((wide.full_key_at, wide.slot_bytes, wide.body_bytes()), (32, 128, 1024));
    }
}
