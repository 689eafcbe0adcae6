//! The record with a version in every line. One READ of any length shows whether its result is a snapshot of one
//! moment.
//!
//! ```text
//! line 0      0 LOCK | 8 VERSION | 16 KEY | 24 WRITER | 32 … 32 bytes of the row
//! line k ≥ 1  0 LVER | 8 … 56 bytes of the row
//! the row     full key, padded to 8 | payload
//!
//! half a line 0 LOCK | 8 VERSION | 16 KEY | 24 … 8 bytes of the row
//! ```
//! Invariant: a writer holds LOCK exclusively and gives every line the same new version, even lines that it does not
//! change. So an image whose LVERs all equal VERSION is a snapshot of one moment, because a line is atomic and no
//! version is used twice. A writer does not write LOCK together with the record's other bytes. WRITER is the tag of
//! the transaction that wrote the record last. If the record was loaded, WRITER is 0. A transaction that moves the
//! record does not change WRITER. A writer writes the first line by a separate verb, before the other lines
//! ([`Lined::writes`]). So if any write of a transaction has landed at a copy, the copy's WRITER names the
//! transaction. From WRITER, recovery knows that the transaction was decided to commit. A record of half a line has
//! no room for WRITER. For a record of half a line, VERSION shows that the transaction wrote the record. If a
//! transaction logs a record of half a line and does not write it, the transaction removes its log entry
//! ([`crate::log::redo`]).
//!
//! The layout follows the records of OOCC. In OOCC the lock lies at the end of the record. One WRITE writes the
//! record in the order of addresses, and so releases the lock last. Neither the order of addresses nor versions at
//! both ends of the record are enough to detect every torn record (docs/protocols/oocc-recovery.md).

use super::single_version::SLOT_BYTES_MIN;
use super::{HEADER_BYTES, KEY_AT, LOCK_AT, LockWords, RecordLayout, Slot, VERSION_AT, Version};
use crate::ids::UsageError;
use crate::schema::{KEY_BYTES_MAX, PAYLOAD_BYTES_MAX, TableSchema};
use std::ops::Range;
use tarn_fabric::address::LINE_BYTES;

/// The offset of WRITER in a record.
pub const LINED_WRITER_AT: usize = HEADER_BYTES;
/// The offset of the row's first byte in a record's first line.
pub const LINED_ROW_AT: usize = LINED_WRITER_AT + 8;
/// The number of bytes of the version at the beginning of each later line.
pub const LVER_BYTES: usize = 8;
/// The number of bytes of a row in the first line.
const FIRST_BYTES: usize = LINE_BYTES - LINED_ROW_AT;
/// The offset of the row in a record of half a line.
const HALF_ROW_AT: usize = HEADER_BYTES;
/// The number of bytes of a row in each later line.
const LATER_BYTES: usize = LINE_BYTES - LVER_BYTES;

const _: () = assert!(LOCK_AT + 8 == VERSION_AT && VERSION_AT + 8 == KEY_AT);
const _: () = assert!(LINED_WRITER_AT == KEY_AT + 8);
const _: () = assert!(FIRST_BYTES == 32 && LATER_BYTES == 56);

/// The layout of a table's records. The length of the table's rows decides the number of lines of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lined {
    /// The number of bytes of the full key before the payload, padded to a multiple of 8.
    payload_at: u16,
    /// The number of bytes of a row.
    row_bytes: u16,
    /// Whether a record takes half a line.
    is_half: bool,
}

const _: () = assert!(KEY_BYTES_MAX.next_multiple_of(8) + PAYLOAD_BYTES_MAX <= u16::MAX as usize);

/// A part of a row whose bytes are contiguous in the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinePart {
    /// The offset of the part in the record.
    pub record_at: usize,
    /// The offset of the part in the range of row bytes that the caller requested.
    pub at: usize,
    /// The length of the part.
    pub len_bytes: usize,
}

impl Lined {
    /// The layout for rows of `schema`. If `halves` is true and half a line has room for the record, the record takes
    /// half a line.
    pub fn new(schema: &TableSchema, halves: bool) -> Lined {
        let payload_at = schema.stored_key_bytes().next_multiple_of(8);
        let row_bytes = payload_at + schema.payload_bytes();
        let is_half = halves && HALF_ROW_AT + row_bytes <= SLOT_BYTES_MIN;
        Lined { payload_at: payload_at as u16, row_bytes: row_bytes as u16, is_half }
    }

    /// Checks that a table can have records of this layout.
    ///
    /// # Errors
    /// If the table's full keys do not fit into a record's first line. Full keys must be contiguous, because indexes
    /// compare them as contiguous bytes.
    pub(super) fn validate(schema: &TableSchema) -> Result<(), UsageError> {
        let key_bytes = schema.stored_key_bytes();
        if key_bytes <= FIRST_BYTES {
            return Ok(());
        }
        Err(UsageError {
            field: format!("table {}: key width", schema.name),
            value: key_bytes.to_string(),
            allowed: format!("1 to {FIRST_BYTES} bytes in a layout where every line has a version"),
        })
    }

    /// The slot for rows of `schema`.
    pub(super) fn slot(self, schema: &TableSchema) -> Slot {
        Slot {
            slot_bytes: self.record_bytes(),
            body_at: None,
            full_key_at: self.row_at(),
            full_key_bytes: schema.stored_key_bytes(),
            payload_at: self.row_at() + self.payload_at(),
            payload_bytes: self.row_bytes() - self.payload_at(),
            by_bucket: false,
            record: RecordLayout::Lined(self),
            lock_words: LockWords::Tags,
            plain: false,
            out_of_line: false,
            used_bytes: self.used_bytes(),
        }
    }

    /// The offset of the payload in a row.
    #[inline]
    pub fn payload_at(self) -> usize {
        usize::from(self.payload_at)
    }

    /// The number of bytes of a row, which is the full key and the payload.
    #[inline]
    pub fn row_bytes(self) -> usize {
        usize::from(self.row_bytes)
    }

    /// Whether a record takes half a line and does not name its writer.
    #[inline]
    pub fn is_half(self) -> bool {
        self.is_half
    }

    /// The offset of the row in a record.
    #[inline]
    pub fn row_at(self) -> usize {
        if self.is_half { HALF_ROW_AT } else { LINED_ROW_AT }
    }

    /// The number of lines of a record. Half a line counts as one.
    #[inline]
    pub fn lines(self) -> usize {
        1 + self.row_bytes().saturating_sub(FIRST_BYTES).div_ceil(LATER_BYTES)
    }

    /// The number of bytes of a record: half a line, or whole lines.
    #[inline]
    pub fn record_bytes(self) -> usize {
        if self.is_half { SLOT_BYTES_MIN } else { self.lines() * LINE_BYTES }
    }

    /// Returns the contiguous parts that contain the `len_bytes` bytes of a row from offset `from` on. The parts are
    /// in the order in which they lie in the record.
    ///
    /// # Panics
    /// If the row has fewer than `from + len_bytes` bytes.
    #[inline]
    pub fn parts(self, from: usize, len_bytes: usize) -> impl Iterator<Item = LinePart> {
        assert!(from + len_bytes <= self.row_bytes());
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == len_bytes {
                return None;
            }
            let (record_at, room) = self.place(from + at);
            let part = LinePart { record_at, at, len_bytes: room.min(len_bytes - at) };
            at += part.len_bytes;
            Some(part)
        })
    }

    /// Copies bytes of a record's row into `into`, from offset `from` of the row on. The bytes lie in the record's
    /// lines.
    pub fn gather(self, record: &[u8], from: usize, into: &mut [u8]) {
        for LinePart { record_at, at, len_bytes } in self.parts(from, into.len()) {
            into[at..at + len_bytes].copy_from_slice(&record[record_at..record_at + len_bytes]);
        }
    }

    /// Copies `bytes` into the lines of a record, as its row from offset `from` on.
    pub fn scatter(self, bytes: &[u8], from: usize, record: &mut [u8]) {
        for LinePart { record_at, at, len_bytes } in self.parts(from, bytes.len()) {
            record[record_at..record_at + len_bytes].copy_from_slice(&bytes[at..at + len_bytes]);
        }
    }

    /// Copies a record's payload out of its lines.
    #[inline]
    pub fn gather_payload(self, record: &[u8], into: &mut [u8]) {
        self.gather(record, self.payload_at(), into);
    }

    /// Copies a payload into a record's lines.
    #[inline]
    pub fn scatter_payload(self, payload: &[u8], record: &mut [u8]) {
        self.scatter(payload, self.payload_at(), record);
    }

    /// Whether a row contains `bytes` at offset `from`. Indexes compare keys that are longer than a line by this
    /// function.
    pub fn is_there(self, record: &[u8], from: usize, bytes: &[u8]) -> bool {
        self.parts(from, bytes.len()).all(|LinePart { record_at, at, len_bytes }| {
            record[record_at..record_at + len_bytes] == bytes[at..at + len_bytes]
        })
    }

    /// Writes `version` into every line of a record, and the tag into WRITER if the record has room for it.
    pub fn stamp(self, record: &mut [u8], version: Version, writer: u64) {
        match self.is_half {
            true => set(record, VERSION_AT, version.word()),
            false => stamp_lines(&mut record[..self.lines() * LINE_BYTES], version, writer),
        }
    }

    /// The tag of the transaction that wrote a record last. If the record does not name its writer, returns 0.
    pub fn writer(self, record: &[u8]) -> u64 {
        if self.is_half { 0 } else { lined_writer(record) }
    }

    /// Whether an image of the whole record, returned by one READ, is a snapshot of one moment.
    #[inline]
    pub fn is_whole(self, record: &[u8]) -> bool {
        let version = Version::from_word(word(record, VERSION_AT));
        is_whole_at(record, self.lines(), version)
    }

    /// The number of bytes of a record up to the end of its row, in whole words.
    fn used_bytes(self) -> usize {
        match self.lines() {
            1 => (self.row_at() + self.row_bytes()).next_multiple_of(8),
            lines => {
                let before = FIRST_BYTES + (lines - 2) * LATER_BYTES;
                let last = LVER_BYTES + self.row_bytes() - before;
                (lines - 1) * LINE_BYTES + last.next_multiple_of(8)
            }
        }
    }

    /// The ranges of a record's bytes that a writer writes, in the order of the verbs. The ranges cover everything
    /// except LOCK.
    #[inline]
    pub fn writes(self) -> impl Iterator<Item = Range<usize>> {
        lined_writes(self.used_bytes())
    }

    /// Returns the position in the record of the byte at offset `at` of the row. Also returns the number of bytes
    /// from that position to the end of the line.
    #[inline]
    fn place(self, at: usize) -> (usize, usize) {
        if self.is_half {
            return (HALF_ROW_AT + at, SLOT_BYTES_MIN - HALF_ROW_AT - at);
        }
        if at < FIRST_BYTES {
            return (LINED_ROW_AT + at, FIRST_BYTES - at);
        }
        let (line, within) = ((at - FIRST_BYTES) / LATER_BYTES, (at - FIRST_BYTES) % LATER_BYTES);
        ((line + 1) * LINE_BYTES + LVER_BYTES + within, LATER_BYTES - within)
    }
}

/// Writes `version` into each of several whole lines, and WRITER into the first line.
pub fn stamp_lines(lines: &mut [u8], version: Version, writer: u64) {
    set(lines, VERSION_AT, version.word());
    set(lines, LINED_WRITER_AT, writer);
    let later = 1..lines.len() / LINE_BYTES;
    later.for_each(|line| set(lines, line * LINE_BYTES, version.word()));
}

/// The ranges that a writer writes of `used_bytes` bytes in lines with versions, in the order of the verbs. The first
/// range of bytes is the first line of the record, and the second range is all its other lines. The ranges cover
/// everything except LOCK.
#[inline]
pub fn lined_writes(used_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let first_end = used_bytes.min(LINE_BYTES);
    [VERSION_AT..first_end, first_end..used_bytes].into_iter().filter(|range| !range.is_empty())
}

/// Whether a copy of a record of this many lines has `version` in all its lines. If all lines have `version`,
/// recovery does not need to write the record again.
#[inline]
pub fn is_whole_at(record: &[u8], lines: usize, version: Version) -> bool {
    word(record, VERSION_AT) == version.word()
        && (1..lines).all(|line| word(record, line * LINE_BYTES) == version.word())
}

/// The newest version in any line of a copy. If the newest line is newer than a transaction's version, that
/// transaction had ended, and another transaction has written the record since.
pub fn newest_line(record: &[u8], lines: usize) -> Version {
    let first = word(record, VERSION_AT);
    let later = (1..lines).map(|line| word(record, line * LINE_BYTES));
    let versions = later.chain([first]).map(Version::from_word);
    versions.max_by_key(|version| version.counter()).unwrap_or(Version::NEVER)
}

/// The tag of the transaction that wrote the VERSION of a record.
#[inline]
pub fn lined_writer(record: &[u8]) -> u64 {
    word(record, LINED_WRITER_AT)
}

fn word(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*record[at..].first_chunk().expect("a record is whole lines"))
}

fn set(record: &mut [u8], at: usize, word: u64) {
    record[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

#[cfg(test)]
#[path = "lined_tests.rs"]
mod tests;
