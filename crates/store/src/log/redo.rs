//! The entry of new bytes: it contains the bytes that a transaction will write, so that recovery can finish the
//! transaction.
//!
//! An entry of new bytes has the form of an entry of [`super::undo`], but it contains the new bytes instead of the
//! old bytes. The new bytes are the bytes of whole records, with each record's first line before its other lines
//! ([`crate::layout::Lined::writes`]).
//!
//! Invariant: the entry is acknowledged, and the transaction is validated, before any of its data are sent. At each
//! copy, a record's first line, which contains WRITER, lands before the record's other lines. A transaction releases
//! its locks only after every copy has all its data, or if no copy has any of its data. Consider a transaction whose
//! locks are all still held, or were lost with their memory node. Either no data of this transaction have landed
//! anywhere, or the first line of some record names this transaction. An entry alone does not prove that its
//! transaction wrote any data, because a transaction that failed its validation also leaves an entry.
//!
//! **A record of half a line names no writer** ([`crate::layout::Lined`]). If the transaction holds the record's
//! lock, the record's VERSION is the transaction's, because no other transaction could have written it. Recovery also
//! uses VERSION as proof if the lock is lost with its memory node. VERSION is a proof because an entry that names
//! records of half a line stays valid only as long as its transaction may still write. A transaction may log a record
//! of half a line and then release its locks without having written. Before the transaction releases these locks, it
//! removes its entry (`take_back`). Recovery also removes such an entry before it releases the locks. So if recovery
//! finds an entry, and no lock was released, the record has the transaction's VERSION or the old VERSION.
//!
//! The entry follows the redo log of OOCC. The OOCC paper says that a transaction is replayed if its log exists.

use super::Entry;
use super::undo::{LogEntry, LoggedRecord};
use crate::ids::OwnerTag;
use crate::layout::{
    LINED_WRITER_AT, LockWord, VERSION_AT, Version, is_whole_at, lined_writer, newest_line,
};
use std::ops::Range;
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::{BufferOffset, Round};

const _: () = assert!(VERSION_AT < LINED_WRITER_AT);

/// The entry of new bytes of one transaction, as recovery reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedoEntry(LogEntry);

/// One write of a transaction, as the entry stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write<'a> {
    /// The address that is written.
    pub address: Address,
    /// The bytes that are written.
    pub bytes: &'a [u8],
}

impl RedoEntry {
    /// The records of the entry, with their versions before and after the transaction.
    pub fn versions(&self) -> &[LoggedRecord] {
        &self.0.records
    }

    /// The writes of a record. The first line comes before the other lines.
    pub fn writes_of(&self, record: &LoggedRecord) -> impl Iterator<Item = Write<'_>> {
        let its = bytes_of(record);
        self.writes().filter(move |write| its.contains(&write.address.to_word()))
    }

    /// The writes that belong neither to a record nor to a first line with a VERSION. Examples are writes of links of
    /// block chains and of slots of index nodes.
    pub fn others(&self) -> impl Iterator<Item = Write<'_>> {
        let is_of = |at: u64| self.0.records.iter().any(|it| bytes_of(it).contains(&at));
        self.writes().filter(move |write| !is_of(write.address.to_word()))
    }

    fn writes(&self) -> impl Iterator<Item = Write<'_>> {
        self.0.pieces.iter().map(|piece| Write { address: piece.address, bytes: &piece.old })
    }

    /// The part of a record that shows that the transaction wrote it.
    pub fn shown_by(&self, record: &LoggedRecord) -> ShownBy {
        let first = record.address.plus(VERSION_AT);
        let tells =
            |it: Write<'_>| it.address == first && it.bytes.len() > LINED_WRITER_AT - VERSION_AT;
        match record.nameless {
            true => ShownBy::Version,
            false if self.writes_of(record).any(tells) => ShownBy::Writer,
            false => ShownBy::Nothing,
        }
    }

    /// The number of bytes of a record in lines that contain its version. If the record names its writer, the result
    /// covers all lines that the transaction writes. If the record does not name its writer, the result covers only
    /// the first line, which may be half a line.
    pub fn bytes(&self, record: &LoggedRecord) -> usize {
        let to_line_end = LINE_BYTES - record.address.offset_bytes() as usize % LINE_BYTES;
        if self.shown_by(record) != ShownBy::Writer {
            return to_line_end;
        }
        let end = |it: Write<'_>| it.address.plus(it.bytes.len()).offset_bytes();
        let ends = self.writes_of(record).map(end);
        let len = ends.max().map_or(0, |end| end - record.address.offset_bytes());
        (len as usize).next_multiple_of(LINE_BYTES).max(LINE_BYTES)
    }
}

/// The range of addresses at which the WRITEs of a record may begin. The first WRITE of a record begins in the
/// record's half of a line or in its first line. The WRITE of all later lines begins directly behind the first line.
/// If the transaction only locked the record, the range is empty.
fn bytes_of(record: &LoggedRecord) -> Range<u64> {
    let (start, len) = (record.address.to_word(), LINE_BYTES as u64);
    let len = match record.nameless {
        _ if record.new_version == record.old_version => 0,
        true => len / 2,
        false => len + 1,
    };
    start..start + len
}

/// The part of a record that proves that a transaction wrote the record, if the transaction has released no lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownBy {
    /// WRITER, in the record's first line.
    Writer,
    /// The record's VERSION, because half a line has no room for WRITER.
    Version,
    /// No part of the record proves the write, because the record is a directory record or an index node. Another
    /// write of the transaction, which landed earlier, proves that the transaction wrote.
    Nothing,
}

impl Entry for RedoEntry {
    fn decode(round: &Round, at: BufferOffset, available: usize) -> Option<RedoEntry> {
        LogEntry::decode(round, at, available).map(RedoEntry)
    }

    fn tag(&self) -> OwnerTag {
        self.0.tag
    }

    fn records(&self) -> Vec<Address> {
        self.0.records()
    }
}

/// The state of a lock that an entry names, as recovery finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockLeft {
    /// The transaction holds the lock.
    Held,
    /// The transaction does not hold the lock: the lock is free, or another transaction holds it.
    Released,
    /// The lock word was lost with its memory node. The copies show which transaction held it last.
    Lost,
}

impl LockLeft {
    /// The state of the lock that the transaction `tag` took on a record. `found` is the record's LOCK word. `None`
    /// means that the memory node of the lock is down. A lock in either mode counts as held. A transaction sends its
    /// entry together with the verbs that make its locks exclusive. So the entry may land before its locks are
    /// exclusive.
    pub fn of(found: Option<u64>, tag: OwnerTag) -> LockLeft {
        match found.map(|word| LockWord::from_word(word).owner()) {
            None => LockLeft::Lost,
            Some(owner) if owner == Some(tag) => LockLeft::Held,
            Some(_) => LockLeft::Released,
        }
    }
}

/// Recovery's decision about a transaction of a dead node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The transaction was decided to commit. For each of its records whose lock is not released, every
    /// [wanting](is_wanting) copy must be written.
    Committed,
    /// No data of the transaction were written anywhere.
    Nothing,
    /// The transaction had ended and released locks itself. Recovery must only release the transaction's remaining
    /// locks.
    Over,
    /// The transaction had ended, because another transaction has written a later version of one of its records.
    Followed,
}

/// A record that an entry names, in the state in which recovery found it.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The VERSION that the record has if the transaction wrote it.
    pub new: Version,
    /// The state of the record's lock.
    pub lock: LockLeft,
    /// The part of the record that proves that the transaction wrote the record.
    pub shown_by: ShownBy,
    /// The bytes of all existing copies of the record.
    pub copies: &'a [&'a [u8]],
}

impl Found<'_> {
    /// Whether a copy shows that the record was written after the transaction. The later writer held the record's
    /// lock, so this transaction must have released the lock before. If the lock was lost with its memory node, only
    /// a copy with a later version shows that the lock had been released.
    fn is_followed(&self) -> bool {
        let newest = |copy: &[u8]| newest_line(copy, copy.len().div_ceil(LINE_BYTES));
        self.copies.iter().any(|copy| newest(copy).counter() > self.new.counter())
    }

    fn is_shown(&self, tag: OwnerTag) -> bool {
        let shows = |copy: &&[u8]| match self.shown_by {
            ShownBy::Writer => names(copy, self.new, tag),
            ShownBy::Version => version(copy) == self.new,
            ShownBy::Nothing => false,
        };
        self.copies.iter().any(shows)
    }
}

/// Returns the decision about the transaction `tag` from the states of its records. Recovery read each copy of a
/// record once.
pub fn verdict(tag: OwnerTag, records: &[Found<'_>]) -> Verdict {
    if records.iter().any(|it| it.lock == LockLeft::Released) {
        Verdict::Over
    } else if records.iter().any(Found::is_followed) {
        Verdict::Followed
    } else {
        by_what_is_shown(tag, records)
    }
}

/// The decision about a transaction that has released no lock. The decision depends on whether some record's WRITER
/// or VERSION proves that the transaction wrote.
pub fn by_what_is_shown(tag: OwnerTag, records: &[Found<'_>]) -> Verdict {
    match records.iter().any(|it| it.is_shown(tag)) {
        true => Verdict::Committed,
        false => Verdict::Nothing,
    }
}

/// Whether a copy's first line was written by the transaction.
pub fn names(copy: &[u8], new: Version, tag: OwnerTag) -> bool {
    version(copy) == new && lined_writer(copy) == tag.word()
}

/// Whether a copy of a record of `lines` lines lacks some bytes of a committed transaction, and has no bytes of a
/// later transaction.
pub fn is_wanting(copy: &[u8], lines: usize, new: Version) -> bool {
    newest_line(copy, lines).counter() <= new.counter() && !is_whole_at(copy, lines, new)
}

fn version(copy: &[u8]) -> Version {
    let word = copy[VERSION_AT..].first_chunk().expect("a record is whole lines");
    Version::from_word(u64::from_le_bytes(*word))
}

#[cfg(test)]
#[path = "redo_tests.rs"]
mod tests;
