//! What a short commit writes: records whose versions lie in their slots, all in one group that has one copy.
//!
//! Invariant: the bytes are those of [`super::prepare`] and [`super::commit`]: the log's entry, then the slots' next images, INVISIBLE; with
//! T_commit the decision, then the visible versions. They are the same whether rounds bring them ([`plan_invisible`], [`plan_visible`])
//! or stores ([`super::near_commit`]); the images were made when the records were fetched ([`super::short`]).

use super::prepare::{PACKED_BYTES, changes};
use super::short::{LINE_WORDS, packed};
use super::{phase, enter};
use crate::site::Context;
use tarn_store::layout::{PACKED_VERSIONS_AT, PACKED_WRITER_AT, Version, VersionWord};
use tarn_store::log::versions::{DECISION_BYTES, Replacing, decision, decision_at};
use crate::steps::recorder;
use tarn_store::ids::{Mode, Timestamp};
use crate::transaction::working_set::{Entry, NO_PLACE, Txn, Written};
use tarn_fabric::address::{Address, LINE_BYTES, Target};
use tarn_fabric::round::{BufferOffset, VERB_BYTES_MAX};

/// What a commit has to write.
#[derive(Clone, Copy)]
pub(super) enum Weight {
    /// Nothing.
    Nothing,
    /// So many versions, as they are written here.
    Short(usize),
    /// Anything.
    Any,
}

/// What the transaction's commit has to write.
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

/// The log's entry of a short commit.
type LogEntry<'a> = Replacing<'a, { PACKED_BYTES / 8 }>;

/// Whether an entry of a short commit changes its record: as [`changes`], of those that [`weigh`] has let through.
#[inline(always)]
pub(super) fn is_written(entry: &Entry) -> bool {
    entry.place != NO_PLACE && entry.dirty.0 != 0
}

/// C1: the log's entry, then so many versions, INVISIBLE.
#[inline]
pub(super) fn plan_invisible(cx: &Context, txn: &mut Txn, versions: usize) {
    enter(cx, phase::INVISIBLE);
    let (log, len) = make_invisible(cx, txn, versions);
    note_written(cx, txn);
    let area = log_area(cx, txn);
    let Txn { round, written, .. } = txn;
    round.begin();
    round.write_private(area, log, len);
    for it in &*written {
        let line = BufferOffset(it.visible.0 - u32::from(it.visible_at));
        let to = it.slot.plus(PACKED_VERSIONS_AT).at(area.node());
        round.write(to, line.plus(PACKED_VERSIONS_AT), PACKED_BYTES);
    }
}

/// The slots' next images with their versions INVISIBLE, and the log's entry: where it is in the buffer, and its length.
#[inline(always)]
pub(super) fn make_invisible(
    cx: &Context,
    txn: &mut Txn,
    versions: usize,
) -> (BufferOffset, usize) {
    txn.stamps.lower = cx.timestamps.known(cx);
    let Txn { entries, round, tag, stamps, .. } = txn;
    let invisible = VersionWord::invisible(stamps.lower).word();
    for entry in &*entries {
        if is_written(entry) {
            let words = round.array_mut::<LINE_WORDS>(next_image(entry));
            words[PACKED_VERSIONS_AT / 8 + usize::from(entry.place)] = invisible;
            words[PACKED_WRITER_AT / 8] = tag.word();
        }
    }
    let (start, mut log) = LogEntry::begin(round, versions);
    for entry in &*entries {
        if is_written(entry) {
            let former = entry.image.plus(PACKED_VERSIONS_AT);
            log.add(entry.address, entry.table, entry.place, former);
        }
    }
    log.seal(*tag);
    (start, LogEntry::words(versions) * 8)
}

/// Takes down what C1 writes: for C3, and for whoever undoes it.
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

/// Where the slot's next image is, of an entry that has one: a line of the buffer, in which the payload lies.
#[inline(always)]
pub(super) fn next_image(entry: &Entry) -> BufferOffset {
    BufferOffset(entry.payload.0 & !(LINE_BYTES as u32 - 1))
}

/// C2: the versions are given T_commit.
#[inline(always)]
pub(super) fn stamp(cx: &Context, txn: &mut Txn, commit: Timestamp) {
    txn.stamps.commit = commit;
    for entry in &mut txn.entries {
        if is_written(entry) {
            entry.new_version = Version::from_word(commit.0);
        }
    }
    if txn.recorded_in.is_some() {
        recorder::enter_doubt(cx, txn);
    }
}

/// C3 and C4: the decision, then the versions, visible as of T_commit.
#[inline]
pub(super) fn plan_visible(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::DECIDE);
    let area = log_area(cx, txn);
    let Txn { round, written, tag, stamps, .. } = txn;
    round.begin();
    let bytes = round.reserve(DECISION_BYTES);
    *round.array_mut::<2>(bytes) = decision(*tag, stamps.commit);
    let at = decision_at(cx.database().catalog.options().log_bytes);
    round.write(area.plus(at), bytes, DECISION_BYTES);
    let visible = VersionWord::committed(stamps.commit).word();
    for it in &*written {
        round.set_word(it.visible, visible);
        let to = it.slot.plus(usize::from(it.visible_at)).at(area.node());
        round.write(to, it.visible, 8);
    }
    round.hot();
}

/// The log area of what is written, all of which is in one group that has one copy.
#[inline(always)]
pub(super) fn log_area(cx: &Context, txn: &Txn) -> Target {
    let first = txn.entries.iter().find(|entry| is_written(entry)).expect("something is written");
    let area = cx.database().catalog.log(first.address.group(), txn.coordinator);
    cx.groups.primary(area)
}
