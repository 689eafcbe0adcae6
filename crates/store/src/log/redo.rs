//! The entry of new bytes: what a transaction will have written, for whoever finishes it.
//!
//! It has the form of [`super::undo`]'s, with the new bytes in place of the old ones: of whole records
//! ([`crate::layout::Lined::writes`]), first line first.
//!
//! Invariants: the entry is acknowledged, and the transaction validated, before any of its data are posted; at
//! a copy a record's first line, with its WRITER, lands before its other lines. No lock is given back before every copy has all data, or if
//! none has any. So of a transaction whose locks are all still there, or are lost with their node, either nothing is
//! anywhere, or some first line names it. An entry says nothing by itself: one is left by who failed its validation, too.
//!
//! **What takes half a line names nobody** ([`crate::layout::Lined`]). Its VERSION is the transaction's whose lock it has: nobody else could
//! have written it. It says so as well where the lock is lost with its node, because an entry that names such records counts for no longer than
//! its transaction may still write: who has logged one and gives its locks back without having written takes the entry back before
//! (`take_back`), and so does recovery. So who finds the entry, and no lock given back, finds its own VERSION or the old one.
//!
//! After the redo log of OOCC, of which it is said that a transaction is replayed if its log exists.

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

/// Something of a transaction's that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write<'a> {
    /// Where.
    pub address: Address,
    /// What.
    pub bytes: &'a [u8],
}

impl RedoEntry {
    /// Which records, and their versions before and after.
    pub fn versions(&self) -> &[LoggedRecord] {
        &self.0.records
    }

    /// What is written of a record, of its first line before its others.
    pub fn writes_of(&self, record: &LoggedRecord) -> impl Iterator<Item = Write<'_>> {
        let its = bytes_of(record);
        self.writes().filter(move |write| its.contains(&write.address.to_word()))
    }

    /// What is written beside records and first lines of what has a VERSION: where chains of blocks go on, slots of nodes.
    pub fn others(&self) -> impl Iterator<Item = Write<'_>> {
        let is_of = |at: u64| self.0.records.iter().any(|it| bytes_of(it).contains(&at));
        self.writes().filter(move |write| !is_of(write.address.to_word()))
    }

    fn writes(&self) -> impl Iterator<Item = Write<'_>> {
        self.0.pieces.iter().map(|piece| Write { address: piece.address, bytes: &piece.old })
    }

    /// By what a record shows that the transaction wrote it.
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

    /// How much of a record its lines are that say its version: of one that says who wrote it all that are written, of others the first,
    /// which may be half a line.
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

/// Where the WRITEs of a record begin: in its half of a line or in its first line, or, of all of its later lines, behind that. Of one that is
/// only held, nowhere.
fn bytes_of(record: &LoggedRecord) -> Range<u64> {
    let (start, len) = (record.address.to_word(), LINE_BYTES as u64);
    let len = match record.nameless {
        _ if record.new_version == record.old_version => 0,
        true => len / 2,
        false => len + 1,
    };
    start..start + len
}

/// By what a record shows that a transaction wrote it, of whose locks none was given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownBy {
    /// By WRITER, in its first line.
    Writer,
    /// By its VERSION: the half of a line that it has takes no more.
    Version,
    /// By nothing: a directory record, a node. Something else is there before it that shows it.
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

/// Whose a lock is that an entry names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockLeft {
    /// The transaction's.
    Held,
    /// Nobody's, or another's.
    Released,
    /// It died with its node. Who held it last shows in what copies say.
    Lost,
}

impl LockLeft {
    /// What is left of the lock of `tag` on a record whose LOCK word was found so; none was found where its node is down.
    /// In either mode it is held: an entry is sent beside the raising of locks, and may be there before them.
    pub fn of(found: Option<u64>, tag: OwnerTag) -> LockLeft {
        match found.map(|word| LockWord::from_word(word).owner()) {
            None => LockLeft::Lost,
            Some(owner) if owner == Some(tag) => LockLeft::Held,
            Some(_) => LockLeft::Released,
        }
    }
}

/// What became of a transaction of a dead life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It was decided to commit: every copy that is [wanting](is_wanting) is to be written, of those of its records whose lock
    /// is not released.
    Committed,
    /// Nothing of it was written anywhere.
    Nothing,
    /// It gave its locks back itself, in whichever way it had ended: all that is left to do is to give back the rest.
    Over,
    /// Likewise, as somebody's later version says.
    Followed,
}

/// A record that an entry names, as it was found.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// VERSION that the transaction would have given it.
    pub new: Version,
    /// Its lock.
    pub lock: LockLeft,
    /// By what it shows that the transaction wrote it.
    pub shown_by: ShownBy,
    /// All copies that there are.
    pub copies: &'a [&'a [u8]],
}

impl Found<'_> {
    /// Whether a copy says that the record was written after the transaction: by somebody who had its lock, which the
    /// transaction must have given back. Of a lock that died with its node nothing else says so.
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

/// What became of the transaction `tag`, all of whose records were found so, each copy looked at once.
pub fn verdict(tag: OwnerTag, records: &[Found<'_>]) -> Verdict {
    if records.iter().any(|it| it.lock == LockLeft::Released) {
        Verdict::Over
    } else if records.iter().any(Found::is_followed) {
        Verdict::Followed
    } else {
        by_what_is_shown(tag, records)
    }
}

/// The verdict over a transaction that has given back no lock, by what its records show.
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

/// Whether a copy of so many lines has not all that a transaction wrote that has committed, and nothing of a later one.
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
