//! The entry of new bytes: what a transaction will have written, for whoever finishes it.
//!
//! It has the form of [`super::undo`]'s, with the new bytes in place of the old ones: those of whole records
//! ([`Lined::writes`]), first line first.
//!
//! Invariants: the entry is acknowledged, and the transaction validated, before any of its data are posted; at
//! a copy a record's first line, with its WRITER, lands before its other lines. No lock is given back before every copy has all data, or if
//! none has any. So of a transaction whose locks are all still there, or are lost with their node, either nothing is
//! anywhere, or some first line names it. An entry says nothing by itself: one is left by who failed its validation, too.
//!
//! After the redo log of OOCC, of which it is said that a transaction is replayed if its log exists.

use super::Entry;
use super::pieces::OldBytes;
use super::undo::{self, LogEntry, LoggedRecord};
use crate::layout::{LINED_WRITER_AT, Lined, LockWord, VERSION_AT, Version, lined_writer};
use crate::owner::OwnerTag;
use crate::working_set::Lock;
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};

const _: () = assert!(VERSION_AT < LINED_WRITER_AT);

/// A record that will be written, as its entry needs it.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    /// Where it lies.
    pub record: Address,
    /// How.
    pub lined: Lined,
    /// All of it, as it will be, in the round's buffer.
    pub image: BufferOffset,
}

/// Length of an entry of so many locks and these records.
pub fn entry_bytes(locks: usize, writings: impl Iterator<Item = Writing>) -> usize {
    let lens = writings.flat_map(|it| it.lined.writes().map(|range| range.len()));
    let (pieces, bytes) =
        lens.fold((0, 0), |(pieces, bytes), len| (pieces + 1, bytes + len.next_multiple_of(8)));
    undo::entry_bytes(locks, pieces, bytes)
}

/// Writes an entry of `len` bytes ([`entry_bytes`]) into the buffer; returns where.
///
/// # Panics
/// If the records need more room: our bug.
pub fn write_entry(
    round: &mut Round,
    tag: OwnerTag,
    locks: &[Lock],
    writings: impl Iterator<Item = Writing>,
    len: usize,
) -> BufferOffset {
    let new = writings.flat_map(|it| {
        it.lined.writes().map(move |range| OldBytes {
            address: it.record.plus(range.start),
            at: it.image.plus(range.start),
            len_bytes: range.len(),
        })
    });
    undo::write_entry(round, tag, locks, new, len)
}

/// A transaction's entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedoEntry(LogEntry);

impl RedoEntry {
    /// Which records, and their versions before and after.
    pub fn versions(&self) -> &[LoggedRecord] {
        &self.0.records
    }

    /// What is written where, in this order at each copy.
    pub fn writes(&self) -> impl Iterator<Item = (Address, &[u8])> {
        self.0.pieces.iter().map(|piece| (piece.address, &piece.old[..]))
    }
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
    /// Nobody knows: it died with its node, and no other has been granted since.
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
    /// It gave its locks back itself: its coordinator knew how it had ended, and all that is left to do is to give back the rest.
    Over,
}

/// A record that an entry names, as it was found.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// VERSION that the transaction would have given it.
    pub new: Version,
    /// Its lock.
    pub lock: LockLeft,
    /// All copies that there are.
    pub copies: &'a [&'a [u8]],
}

/// What became of the transaction `tag`, all of whose records were found so.
pub fn verdict(tag: OwnerTag, records: &[Found<'_>]) -> Verdict {
    let is_released = records.iter().any(|it| it.lock == LockLeft::Released);
    let is_named = |it: &Found<'_>| it.copies.iter().any(|copy| names(copy, it.new, tag));
    match (is_released, records.iter().any(is_named)) {
        (true, _) => Verdict::Over,
        (false, true) => Verdict::Committed,
        (false, false) => Verdict::Nothing,
    }
}

/// Whether a copy's first line is the transaction's.
fn names(copy: &[u8], new: Version, tag: OwnerTag) -> bool {
    version(copy) == new && lined_writer(copy) == tag.word()
}

/// Whether a copy has not all that a transaction wrote that has committed, and nothing of a later one.
pub fn is_wanting(lined: Lined, copy: &[u8], new: Version) -> bool {
    lined.newest_line(copy).counter() <= new.counter() && !lined.has_all_of(copy, new)
}

fn version(copy: &[u8]) -> Version {
    let word = copy[VERSION_AT..].first_chunk().expect("a record is whole lines");
    Version::from_word(u64::from_le_bytes(*word))
}

#[cfg(test)]
#[path = "redo_tests.rs"]
mod tests;
