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
//! Invariants: LOCK is an owner's tag or 0, taken by CAS and given back by its holder. VERSION never falls. A
//! record of one line is consistent when read by one READ (a line is atomic). A record of several lines is
//! consistent if its LOCK and VERSION are free and equal in a READ before and a READ after its body (verbs of
//! a batch are executed in order). That is why payload bytes lie contiguously, without a version in every
//! line: see docs/design/0003-single-version-layout.md.
//!
//! After FORD (Zhang, Hua, Zuo, Liu: "FORD: Fast One-sided RDMA-based Distributed Transactions for
//! Disaggregated Persistent Memory", FAST 2022), whose records are co-located with their bucket.

use super::{LockWord, RecordLayout, TicketWord};
use crate::schema::TableSchema;
use tarn_fabric::address::LINE_BYTES;

/// Offset of LOCK.
pub const LOCK_AT: usize = 0;
/// Offset of VERSION.
pub const VERSION_AT: usize = 8;
/// Offset of KEY.
pub const KEY_AT: usize = 16;
/// Bytes of the header that every record starts with.
pub const HEADER_BYTES: usize = 24;
/// Bytes of a directory record.
pub const DIRECTORY_BYTES: usize = LINE_BYTES;
/// Offset of STAMP: the VERSION at which a directory record's fingerprints are true.
pub const DIRECTORY_STAMP_AT: usize = 16;
/// Offset of a directory record's fingerprints, one byte a slot.
pub const DIRECTORY_PRINTS_AT: usize = 24;
/// Offset of a directory record's depth: how many hash bits its keys share.
pub const DIRECTORY_DEPTH_AT: usize = 32;
/// Offset of a directory record's overflow block.
pub const DIRECTORY_NEXT_AT: usize = 40;

const _: () = assert!(HEADER_BYTES == KEY_AT + 8);
const _: () =
    assert!(DIRECTORY_STAMP_AT == VERSION_AT + 8 && DIRECTORY_PRINTS_AT == VERSION_AT + 16);
const _: () = assert!(DIRECTORY_NEXT_AT + 8 <= DIRECTORY_BYTES);

/// The largest slot that is stored in its bucket.
const INLINE_BYTES_MAX: usize = 2 * LINE_BYTES;
/// The smallest slot. Two of them fill a line, so that a bin is one line.
pub(super) const SLOT_BYTES_MIN: usize = LINE_BYTES / 2;

/// The size of a slot for this many bytes: half a line if they fit, else whole lines. No slot of less than a
/// line crosses a line's end.
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
    /// The word names the holder: [`LockWord`].
    Tags,
    /// The word counts the transactions that came and those that were served: [`TicketWord`].
    Tickets,
}

impl LockWords {
    /// Whether the lock with this word is free. A lease leaves it free.
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
    /// Size of a slot: half a line, or a multiple of a line.
    pub slot_bytes: usize,
    /// Offset of the one body's address; `None` if the payload is in the slot, or each version has its own.
    pub body_at: Option<usize>,
    /// Offset of the stored full key.
    pub full_key_at: usize,
    /// Length of the stored full key; 0 if the key is a word.
    pub full_key_bytes: usize,
    /// Offset of the payload in the slot (inline; of several versions, the first), or in the memory of its
    /// own. For a record in lines, the offset that it would have if it were contiguous: see [`Slot::lined`].
    pub payload_at: usize,
    /// Length of the payload.
    pub payload_bytes: usize,
    /// Whether lookups read whole buckets. Then no record has a home of its own.
    pub by_bucket: bool,
    /// The layout of the record in a slot.
    pub record: RecordLayout,
    /// The meaning of records' LOCK words. Those of directories are always tags.
    pub lock_words: LockWords,
    /// The answer of [`Slot::is_plain`], kept because every record that is added asks for it.
    pub(super) plain: bool,
    /// The answer of [`Slot::is_out_of_line`], kept because it is asked for as often.
    pub(super) out_of_line: bool,
    /// The answer of [`Slot::used_bytes`].
    pub(super) used_bytes: usize,
}

impl Slot {
    /// The slot for rows of `schema` in the single-version layout.
    pub fn of(schema: &TableSchema) -> Slot {
        let full_key_bytes = schema.stored_key_bytes();
        let payload_bytes = schema.payload_bytes();
        // The payload starts at a multiple of 8, so that words stay aligned.
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

    /// The same slot in buckets of another shape: at least `bytes_min` long.
    #[must_use]
    pub fn shaped(self, bytes_min: usize, by_bucket: bool) -> Slot {
        let slot_bytes = self.slot_bytes.max(slot_bytes(bytes_min));
        let leads_on = matches!(self.record, RecordLayout::Cells(_) | RecordLayout::Deltas(_));
        let has_word = self.full_key_bytes == 0 && !leads_on;
        let plain = slot_bytes <= LINE_BYTES && has_word && !by_bucket;
        Slot { slot_bytes, by_bucket, plain, ..self }
    }

    /// Whether the payload lies apart.
    #[inline]
    pub fn is_out_of_line(&self) -> bool {
        self.out_of_line
    }

    /// Bytes that one version has apart, as allocated: whole lines; 0 if inline. Of versions kept as deltas,
    /// all bytes that the record has apart.
    pub fn body_bytes(&self) -> usize {
        match self.record {
            RecordLayout::Deltas(deltas) => deltas.block_bytes(self.payload_bytes),
            _ => self.apart_bytes().next_multiple_of(LINE_BYTES),
        }
    }

    /// Bytes that one version has apart; 0 if inline.
    #[inline]
    pub fn apart_bytes(&self) -> usize {
        if self.is_out_of_line() { self.payload_at + self.payload_bytes } else { 0 }
    }

    /// How many versions a slot has places for. Of versions kept as deltas only the newest counts.
    #[inline]
    pub fn cells(&self) -> usize {
        match self.record {
            RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => 1,
            RecordLayout::Packed(packed) => packed.count(),
            RecordLayout::Cells(cells) => cells.count(),
        }
    }

    /// Whether one line holds all of the slot that is used, so that one READ of it is consistent.
    #[inline]
    pub fn is_one_line(&self) -> bool {
        self.slot_bytes <= LINE_BYTES || self.used_bytes() <= LINE_BYTES
    }

    /// Whether one READ of a slot needs no second look at its head. The slot is of one moment, or its lines
    /// may be of different ones ([`super::choose()`]) or name their versions ([`super::Lined`]).
    #[inline]
    pub fn is_read_at_once(&self) -> bool {
        self.is_one_line() || matches!(self.record, RecordLayout::Cells(_) | RecordLayout::Lined(_))
    }

    /// Whether a record is recognised by its key word, in one line. Then one READ of its home shows the whole
    /// record.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Bytes of the slot in use.
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
