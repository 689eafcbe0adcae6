//! The entry of new bytes: the bytes that a transaction is going to write, so that recovery can finish it.
//!
//! It has the form of an entry of [`super::undo`], with new bytes in place of the old ones. They are of whole
//! records ([`crate::layout::Lined::writes`]), first line first.
//!
//! Invariants: the entry is acknowledged, and the transaction validated, before any of its data are posted.
//! At a copy, a record's first line, with its WRITER, lands before its other lines. Locks are given back only
//! once every copy has all data, or if no copy has any. Consider a transaction whose locks are all still
//! there, or are lost with their node. Either none of its data are anywhere, or some first line names it. An
//! entry alone proves nothing: a transaction that failed its validation leaves one, too.
//!
//! **A record of half a line names no writer** ([`crate::layout::Lined`]). If the transaction has the
//! record's lock, VERSION is its own: no other could have written it. VERSION also counts where the lock is
//! lost with its node, because an entry that names such records counts only as long as its transaction may
//! still write. A transaction that has logged such a record, and gives its locks back without having written,
//! takes the entry back before (`take_back`); so does recovery. So if recovery finds the entry, and no lock
//! was given back, it finds the transaction's VERSION or the old one.
//!
//! After the redo log of OOCC. The paper says that a transaction is replayed if its log exists.

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

/// A transaction's entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedoEntry(LogEntry);

/// One write of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write<'a> {
    /// The address that is written.
    pub address: Address,
    /// The bytes that are written.
    pub bytes: &'a [u8],
}

impl RedoEntry {
    /// The records, with their versions before and after.
    pub fn versions(&self) -> &[LoggedRecord] {
        &self.0.records
    }

    /// The writes of a record, its first line before its others.
    pub fn writes_of(&self, record: &LoggedRecord) -> impl Iterator<Item = Write<'_>> {
        let its = bytes_of(record);
        self.writes().filter(move |write| its.contains(&write.address.to_word()))
    }

    /// The writes beside records and beside first lines that have a VERSION: links of chains of blocks, slots
    /// of nodes.
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

    /// How many bytes of a record are lines that name its version. If the record names its writer, these are
    /// all lines that are written; else they are the first line, which may be half a line.
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

/// Where the WRITEs of a record begin: in its half of a line, or in its first line, or, for the WRITE of all
/// later lines, right behind that. The range is empty for a record that is only held.
fn bytes_of(record: &LoggedRecord) -> Range<u64> {
    let (start, len) = (record.address.to_word(), LINE_BYTES as u64);
    let len = match record.nameless {
        _ if record.new_version == record.old_version => 0,
        true => len / 2,
        false => len + 1,
    };
    start..start + len
}

/// The part of a record that shows that a transaction wrote it, if the transaction has given no lock back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownBy {
    /// WRITER, in the record's first line.
    Writer,
    /// The record's VERSION: half a line has room for no more.
    Version,
    /// No part: it is a directory record or a node. Another write, which landed before it, shows the
    /// transaction.
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

/// The state of a lock that an entry names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockLeft {
    /// The transaction holds the lock.
    Held,
    /// The lock is free, or another transaction holds it.
    Released,
    /// The lock died with its node. The copies show which transaction held it last.
    Lost,
}

impl LockLeft {
    /// The state of the lock of `tag` on a record whose LOCK word was `found`; `None` where the record's node
    /// is down. A lock in either mode is held: an entry is sent beside the raising of locks, and may land
    /// before them.
    pub fn of(found: Option<u64>, tag: OwnerTag) -> LockLeft {
        match found.map(|word| LockWord::from_word(word).owner()) {
            None => LockLeft::Lost,
            Some(owner) if owner == Some(tag) => LockLeft::Held,
            Some(_) => LockLeft::Released,
        }
    }
}

/// The fate of a transaction of a dead life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It was decided to commit. Every copy that is [wanting](is_wanting) must be written, for those of its
    /// records whose lock is not released.
    Committed,
    /// None of it was written anywhere.
    Nothing,
    /// It gave locks back itself, however it had ended. Only its remaining locks must be given back.
    Over,
    /// The same, as a later version by another transaction shows.
    Followed,
}

/// A record that an entry names, as recovery found it.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The VERSION that the transaction would have given the record.
    pub new: Version,
    /// The state of the record's lock.
    pub lock: LockLeft,
    /// The part of the record that shows that the transaction wrote it.
    pub shown_by: ShownBy,
    /// All copies of the record that there are.
    pub copies: &'a [&'a [u8]],
}

impl Found<'_> {
    /// Whether a copy shows that the record was written after the transaction. The later writer had the
    /// record's lock, which the transaction must have given back. If the lock died with its node, nothing
    /// else shows this.
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

/// The fate of the transaction `tag`, whose records were all found like this, each copy looked at once.
pub fn verdict(tag: OwnerTag, records: &[Found<'_>]) -> Verdict {
    if records.iter().any(|it| it.lock == LockLeft::Released) {
        Verdict::Over
    } else if records.iter().any(Found::is_followed) {
        Verdict::Followed
    } else {
        by_what_is_shown(tag, records)
    }
}

/// The verdict on a transaction that has given no lock back, by the parts of its records that show it.
pub fn by_what_is_shown(tag: OwnerTag, records: &[Found<'_>]) -> Verdict {
    match records.iter().any(|it| it.is_shown(tag)) {
        true => Verdict::Committed,
        false => Verdict::Nothing,
    }
}

/// Whether a copy's first line is the transaction's.
pub fn names(copy: &[u8], new: Version, tag: OwnerTag) -> bool {
    version(copy) == new && lined_writer(copy) == tag.word()
}

/// Whether a copy of this many lines lacks some bytes of a committed transaction, and has none of a later
/// one.
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
