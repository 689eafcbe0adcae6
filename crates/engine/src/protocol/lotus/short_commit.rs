//! Makes the WRITEs of a short commit. The records of a short commit have their versions in their slots, and all lie
//! in one group with one replica.
//!
//! Invariant: the bytes of a short commit are the same as those of [`super::prepare`] and [`super::commit`]. First
//! come the log entry and the slots' next images with INVISIBLE versions; after T_commit come the decision and the
//! visible versions. Rounds and stores use the same plan of WRITEs. The transaction made the slots' next images when
//! it fetched the records ([`super::short`]).

use super::prepare::{PACKED_BYTES, changes};
use super::short::packed;
use super::switches::{enter, phase};
use crate::site::Context;
use crate::steps::access::sought::LINE_WORDS;
use crate::steps::recorder;
use crate::transaction::working_set::{Entry, NO_PLACE, Txn, Written};
use tarn_fabric::address::{Address, LINE_BYTES, Target};
use tarn_fabric::round::{BufferOffset, VERB_BYTES_MAX};
use tarn_store::ids::{Mode, Timestamp};
use tarn_store::layout::{PACKED_VERSIONS_AT, PACKED_WRITER_AT, Version, VersionWord};
use tarn_store::log::versions::{Replacing, decision_at};

/// The kind of WRITEs that a commit needs.
#[derive(Clone, Copy)]
pub(super) enum Weight {
    /// The commit writes nothing.
    Nothing,
    /// The commit is a short commit with the given number of versions.
    Short(usize),
    /// The commit is of any other kind.
    Any,
}

/// Returns the kind of WRITEs that the transaction's commit needs.
#[inline]
pub(super) fn weigh(cx: &Context, txn: &Txn) -> Weight {
    let (mut count, mut first, mut is_short) = (0, Address::NULL, true);
    for entry in &txn.entries {
        if !changes(entry) {
            continue;
        }
        if count == 0 {
            first = entry.address;
        }
        is_short &= entry.place != NO_PLACE
            && entry.mode == Mode::Update
            && entry.address.group() == first.group();
        count += 1;
    }
    if count == 0 {
        return Weight::Nothing;
    }
    let room = decision_at(cx.database().catalog.options().log_bytes).min(VERB_BYTES_MAX);
    is_short &= !cx.has_ordered && txn.pieces.is_empty() && cx.groups.replicas(first.group()) == 1;
    match is_short && LogEntry::words(count) * 8 <= room {
        true => Weight::Short(count),
        false => Weight::Any,
    }
}

/// The log entry of a short commit.
type LogEntry<'a> = Replacing<'a, VERSIONS_WORDS>;

/// The number of words of a slot, from its first version on.
pub(super) const VERSIONS_WORDS: usize = PACKED_BYTES / 8;

/// Returns the entries of a short commit that change their records. The returned entries are the same as those that
/// [`changes`] accepts, if [`weigh`] has allowed a short commit.
#[inline(always)]
fn written(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| is_written(entry))
}

#[inline(always)]
fn is_written(entry: &Entry) -> bool {
    entry.place != NO_PLACE && entry.dirty.0 != 0
}

/// The WRITE of the log entry in phase C1: the log area, and the entry's place and length in the buffer.
#[derive(Clone, Copy)]
pub(super) struct Logged {
    pub(super) area: Target,
    pub(super) entry: BufferOffset,
    pub(super) len: usize,
}

/// Makes the bytes that phase C1 writes: the slots' next images with INVISIBLE versions, and the log entry.
#[inline(always)]
pub(super) fn make_invisible(cx: &Context, txn: &mut Txn, versions: usize) -> Logged {
    enter(cx, phase::INVISIBLE);
    txn.stamps.lower = cx.timestamps.known(cx);
    let Txn { entries, round, tag, stamps, coordinator, .. } = txn;
    let invisible = VersionWord::invisible(stamps.lower).word();
    for entry in written(entries) {
        let words = round.array_mut::<LINE_WORDS>(next_image(entry));
        words[PACKED_VERSIONS_AT / 8 + usize::from(entry.place)] = invisible;
        words[PACKED_WRITER_AT / 8] = tag.word();
    }
    let (start, mut log) = LogEntry::begin(round, versions);
    for entry in written(entries) {
        let former = entry.image.plus(PACKED_VERSIONS_AT);
        log.add(entry.address, entry.table, entry.place, former);
    }
    log.seal(*tag);
    let first = written(entries).next().expect("something is written");
    let area = cx.database().catalog.log(first.address.group(), *coordinator);
    Logged { area: cx.groups.primary(area), entry: start, len: LogEntry::words(versions) * 8 }
}

/// A WRITE: its target, and the position of its bytes in the buffer.
type Write = (Target, BufferOffset);

/// Returns the WRITEs of phase C1 that follow the log entry. Each of the WRITEs that follow the log entry has
/// [`VERSIONS_WORDS`] words.
#[inline(always)]
pub(super) fn invisible(entries: &[Entry], area: Target) -> impl Iterator<Item = Write> {
    written(entries).map(move |entry| {
        let to = entry.address.plus(PACKED_VERSIONS_AT).at(area.node());
        (to, next_image(entry).plus(PACKED_VERSIONS_AT))
    })
}

/// Returns the WRITEs of phase C4, which follow the decision. Each of the WRITEs that follow the decision has one
/// word.
#[inline(always)]
pub(super) fn visible(entries: &[Entry], area: Target) -> impl Iterator<Item = Write> {
    written(entries).map(move |entry| {
        let version = PACKED_VERSIONS_AT + usize::from(entry.place) * 8;
        (entry.address.plus(version).at(area.node()), next_image(entry).plus(version))
    })
}

/// Returns the place of the transaction's decision in its log area.
#[inline(always)]
pub(super) fn decision_in(cx: &Context, area: Target) -> Target {
    area.plus(decision_at(cx.database().catalog.options().log_bytes))
}

/// Notes the versions that phase C1 writes, for phase C3 and for a resolver that may undo these versions.
pub(super) fn note_written(cx: &Context, txn: &mut Txn) {
    let Txn { entries, written, .. } = txn;
    written.clear();
    for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| is_written(entry)) {
        let at = packed(cx.table(entry.table)).version_at(usize::from(entry.place));
        written.push(Written {
            entry: index as u32,
            slot: entry.address,
            table: entry.table,
            cell: entry.place,
            came: false,
            former: entry.image.plus(PACKED_VERSIONS_AT),
            former_bytes: PACKED_BYTES,
            visible: next_image(entry).plus(at),
            visible_at: at as u16,
            visible_bytes: 8,
            discarded: Address::NULL,
        });
    }
}

/// Returns the place of the slot's next image, for an entry that has such an image. The slot's next image is a line
/// of the buffer that contains the entry's payload.
#[inline(always)]
fn next_image(entry: &Entry) -> BufferOffset {
    BufferOffset(entry.payload.0 & !(LINE_BYTES as u32 - 1))
}

/// Phase C2: sets T_commit as the version of the changed entries.
#[inline(always)]
pub(super) fn stamp(cx: &Context, txn: &mut Txn, commit: Timestamp) {
    txn.stamps.commit = commit;
    for entry in txn.entries.iter_mut().filter(|entry| is_written(entry)) {
        entry.new_version = Version::from_word(commit.0);
    }
    if txn.recorded_in.is_some() {
        recorder::enter_doubt(cx, txn);
    }
}
