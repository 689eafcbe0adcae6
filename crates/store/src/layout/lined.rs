//! The record with a version in every line: one READ of any length shows whether it is of one moment.
//!
//! ```text
//! line 0      0 LOCK | 8 VERSION | 16 KEY | 24 WRITER | 32 … 32 bytes of the row
//! line k ≥ 1  0 LVER | 8 … 56 bytes of the row
//! the row     full key, padded to 8 | payload
//!
//! half a line 0 LOCK | 8 VERSION | 16 KEY | 24 … 8 bytes of the row
//! ```
//! Invariants: a writer holds LOCK exclusively and gives every line the same new version, whatever it
//! changes. So an image whose LVERs all equal VERSION is of one moment: a line is atomic, and no version
//! comes twice. LOCK is not part of the bytes that are written. WRITER is the tag of the transaction that
//! wrote the record last; 0 if it was loaded. A transaction that moves the record leaves WRITER as it is. The
//! first line is written by a verb of its own, before the others ([`Lined::writes`]). So wherever any write
//! of a transaction has landed, WRITER says so, and recovery knows that the transaction was decided to
//! commit. A record of half a line has no room for WRITER. There VERSION says so, since a transaction that
//! logs and does not write takes its entry back ([`crate::log::redo`]).
//!
//! After the records of OOCC. There the lock stands at the end, and is released by the order of addresses
//! within one WRITE. That is not enough, and neither are versions at both ends
//! (docs/protocols/oocc-recovery.md).

use super::single_version::SLOT_BYTES_MIN;
use super::{HEADER_BYTES, KEY_AT, LOCK_AT, LockWords, RecordLayout, Slot, VERSION_AT, Version};
use crate::ids::UsageError;
use crate::schema::{KEY_BYTES_MAX, PAYLOAD_BYTES_MAX, TableSchema};
use std::ops::Range;
use tarn_fabric::address::LINE_BYTES;

/// Offset of WRITER.
pub const LINED_WRITER_AT: usize = HEADER_BYTES;
/// Offset of the row in the first line.
pub const LINED_ROW_AT: usize = LINED_WRITER_AT + 8;
/// Bytes of the version that a later line begins with.
pub const LVER_BYTES: usize = 8;
/// Bytes of a row in the first line.
const FIRST_BYTES: usize = LINE_BYTES - LINED_ROW_AT;
/// Offset of the row in half a line.
const HALF_ROW_AT: usize = HEADER_BYTES;
/// Bytes of a row in each later line.
const LATER_BYTES: usize = LINE_BYTES - LVER_BYTES;

const _: () = assert!(LOCK_AT + 8 == VERSION_AT && VERSION_AT + 8 == KEY_AT);
const _: () = assert!(LINED_WRITER_AT == KEY_AT + 8);
const _: () = assert!(FIRST_BYTES == 32 && LATER_BYTES == 56);

/// The layout of a table's records: how long its rows are, and so how many lines they take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lined {
    /// Bytes of the full key before the payload, padded to 8.
    payload_at: u16,
    /// Bytes of a row.
    row_bytes: u16,
    /// Whether a record is half a line.
    is_half: bool,
}

const _: () = assert!(KEY_BYTES_MAX.next_multiple_of(8) + PAYLOAD_BYTES_MAX <= u16::MAX as usize);

/// A part of a row that is contiguous in its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinePart {
    /// Where the part begins in the record.
    pub record_at: usize,
    /// Where the part begins in the range that was asked for.
    pub at: usize,
    /// How long the part is.
    pub len_bytes: usize,
}

impl Lined {
    /// The layout for rows of `schema`. With `halves`, a record takes half a line if it fits.
    pub fn new(schema: &TableSchema, halves: bool) -> Lined {
        let payload_at = schema.stored_key_bytes().next_multiple_of(8);
        let row_bytes = payload_at + schema.payload_bytes();
        let is_half = halves && HALF_ROW_AT + row_bytes <= SLOT_BYTES_MIN;
        Lined { payload_at: payload_at as u16, row_bytes: row_bytes as u16, is_half }
    }

    /// Checks that a table can have such records.
    ///
    /// # Errors
    /// If its full keys do not fit the first line: indexes compare them where they are contiguous.
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

    /// Where the payload begins in a row.
    #[inline]
    pub fn payload_at(self) -> usize {
        usize::from(self.payload_at)
    }

    /// Bytes of a row: the full key and the payload.
    #[inline]
    pub fn row_bytes(self) -> usize {
        usize::from(self.row_bytes)
    }

    /// Whether a record is half a line, and does not name its writer.
    #[inline]
    pub fn is_half(self) -> bool {
        self.is_half
    }

    /// Where the row begins in a record.
    #[inline]
    pub fn row_at(self) -> usize {
        if self.is_half { HALF_ROW_AT } else { LINED_ROW_AT }
    }

    /// Lines of a record; half a line is one.
    #[inline]
    pub fn lines(self) -> usize {
        1 + self.row_bytes().saturating_sub(FIRST_BYTES).div_ceil(LATER_BYTES)
    }

    /// Bytes of a record: half a line, or whole ones.
    #[inline]
    pub fn record_bytes(self) -> usize {
        if self.is_half { SLOT_BYTES_MIN } else { self.lines() * LINE_BYTES }
    }

    /// The parts of a row from `from` on, `len_bytes` long in all, as they lie in the record, in order.
    ///
    /// # Panics
    /// If the row is shorter.
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

    /// Copies a part of a record's row, from `from` on, out of its lines.
    pub fn gather(self, record: &[u8], from: usize, into: &mut [u8]) {
        for LinePart { record_at, at, len_bytes } in self.parts(from, into.len()) {
            into[at..at + len_bytes].copy_from_slice(&record[record_at..record_at + len_bytes]);
        }
    }

    /// Copies `bytes` into the lines of a record, as its row from `from` on.
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

    /// Whether a row has `bytes` from `from` on. Keys longer than a line are compared in this way.
    pub fn is_there(self, record: &[u8], from: usize, bytes: &[u8]) -> bool {
        self.parts(from, bytes.len()).all(|LinePart { record_at, at, len_bytes }| {
            record[record_at..record_at + len_bytes] == bytes[at..at + len_bytes]
        })
    }

    /// Gives every line of a record this version, and the record its WRITER, if it has room for one.
    pub fn stamp(self, record: &mut [u8], version: Version, writer: u64) {
        match self.is_half {
            true => set(record, VERSION_AT, version.word()),
            false => stamp_lines(&mut record[..self.lines() * LINE_BYTES], version, writer),
        }
    }

    /// The tag of the transaction that wrote a record; 0 if the record does not name it.
    pub fn writer(self, record: &[u8]) -> u64 {
        if self.is_half { 0 } else { lined_writer(record) }
    }

    /// Whether an image of the whole record, brought by one READ, is of one moment.
    #[inline]
    pub fn is_whole(self, record: &[u8]) -> bool {
        let version = Version::from_word(word(record, VERSION_AT));
        is_whole_at(record, self.lines(), version)
    }

    /// Bytes of a record up to the end of its row, in whole words.
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

    /// The ranges of a record's bytes that are written, in the order of the verbs: all but LOCK.
    #[inline]
    pub fn writes(self) -> impl Iterator<Item = Range<usize>> {
        lined_writes(self.used_bytes())
    }

    /// Where a byte of a row lies in its record, and how many bytes its line has from there on.
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

/// Gives each of several whole lines this version, and the first its WRITER.
pub fn stamp_lines(lines: &mut [u8], version: Version, writer: u64) {
    set(lines, VERSION_AT, version.word());
    set(lines, LINED_WRITER_AT, writer);
    let later = 1..lines.len() / LINE_BYTES;
    later.for_each(|line| set(lines, line * LINE_BYTES, version.word()));
}

/// The ranges that are written of this many bytes in lines with versions, in the order of the verbs: the
/// first line, then the others. All but LOCK is written.
#[inline]
pub fn lined_writes(used_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let first_end = used_bytes.min(LINE_BYTES);
    [VERSION_AT..first_end, first_end..used_bytes].into_iter().filter(|range| !range.is_empty())
}

/// Whether a copy of a record of this many lines has `version` in all of them. Then recovery need not write
/// it again.
#[inline]
pub fn is_whole_at(record: &[u8], lines: usize, version: Version) -> bool {
    word(record, VERSION_AT) == version.word()
        && (1..lines).all(|line| word(record, line * LINE_BYTES) == version.word())
}

/// The newest version in any line of a copy. If it is beyond a transaction's version, that transaction had
/// ended, and others have written since.
pub fn newest_line(record: &[u8], lines: usize) -> Version {
    let first = word(record, VERSION_AT);
    let later = (1..lines).map(|line| word(record, line * LINE_BYTES));
    let versions = later.chain([first]).map(Version::from_word);
    versions.max_by_key(|version| version.counter()).unwrap_or(Version::NEVER)
}

/// The tag of the transaction that wrote VERSION of a record.
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
