//! LOTUS made short for what most transactions are: records whose versions lie in their slots, found at home, read
//! or updated, under locks or on a snapshot; and if they are changed, all in one group that has one copy.
//!
//! Invariant: what is asked and sent is what [`super::execute`], [`super::snapshot`] and [`super::commit`] would, byte by byte
//! and in the same order: all locks, then the READs; the log's entry, then the INVISIBLE versions; with T_commit the
//! decision, then the visible ones. So recovery and readers cannot tell the difference. What is short is the way
//! there: one pass over the entries a round; and the slot's next image is made when the record is fetched, so that
//! the caller's payload lies where it is written from. Whatever is out of the way goes on there.

use super::execute::{advance, take_versions};
use super::prepare::{PACKED_BYTES, changes, writing};
use super::{Lotus, On, Phase, enter, snapshot};
use crate::catalog::Table;
use crate::context::Context;
use crate::index::hash::{head_at_home, home};
use crate::layout::{
    PACKED_VERSIONS_AT, PACKED_WRITER_AT, Packed, RecordLayout, Version, VersionWord,
};
use crate::lock::name::{LockMode, LockName};
use crate::log::versions::{self, DECISION_BYTES, decision, decision_at};
use crate::outcome::Failure;
use crate::shard_map::shard_of;
use crate::timestamp::Timestamp;
use crate::transaction::begin_lookup;
use crate::working_set::{Added, Entry, Intent, Mode, NO_PLACE, Progress, Txn, Written};
use tarn_fabric::address::{Address, GroupId, LINE_BYTES, NodeSlot};
use tarn_fabric::round::{BufferOffset, Round, VERB_BYTES_MAX};

const LINE_WORDS: usize = LINE_BYTES / 8;

/// Takes note of a record that is asked for, if it is looked for at its home and has its versions there.
#[inline]
pub(super) fn note(cx: &Context, txn: &mut Txn, table: &Table, added: Added, entry: &mut Entry) {
    let is_common = matches!(added.mode, Mode::Read | Mode::Update) && !cx.remembers;
    // A snapshot's first READ in a table without homes brings the whole bucket.
    let has_home = txn.intent == Intent::ReadWrite || !table.slot.by_bucket;
    if is_common && has_home && matches!(table.slot.record, RecordLayout::Packed(_)) {
        entry.address = home(cx.surroundings(), table, added.hash);
        txn.at_home += 1;
    }
}

/// Whether all that is to be fetched was noted.
#[inline]
pub(super) fn fetches(cx: &Context, txn: &mut Txn) -> bool {
    let noted = std::mem::take(&mut txn.at_home);
    noted > 0 && txn.fetched + noted == txn.entries.len() && !cx.has_ordered
}

/// Locks and reads what is to be fetched; what is not at home, or not as usual there, is left to be looked for. The
/// locks are taken when the lines, theirs too, have had time to come: right before the READs.
#[inline]
pub(super) async fn fetch(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    plan_homes(cx, txn);
    cx.port.warm(&txn.round).await;
    lock(cx, txn);
    if !txn.held.is_settled() {
        txn.held.collect(cx, txn.tag).await?;
    }
    for _ in txn.fetched..txn.entries.len() {
        enter(cx, Phase::Locate);
    }
    txn.round.hot();
    cx.port.execute(&mut txn.round).await?;
    for index in txn.fetched..txn.entries.len() {
        take_home(lotus, cx, txn, index)?;
    }
    txn.round.begin();
    advance(txn);
    Ok(())
}

#[inline]
fn plan_homes(cx: &Context, txn: &mut Txn) {
    let Txn { entries, round, fetched, .. } = txn;
    for entry in &mut entries[*fetched..] {
        let target = cx.groups.primary(entry.address);
        entry.image = round.read(target, cx.table(entry.table).geometry.bin_bytes);
    }
}

#[inline]
fn lock(cx: &Context, txn: &mut Txn) {
    enter(cx, Phase::Lock);
    // What is over by now hinders nobody, if it only was not seen yet.
    cx.advance_closing();
    let Txn { entries, held, fetched, .. } = txn;
    for entry in &entries[*fetched..] {
        let mode = if entry.mode == Mode::Read { LockMode::Read } else { LockMode::Write };
        let name = LockName::row(entry.table.0, entry.key);
        held.ask(cx, name, shard_of(cx.table(entry.table), entry.key), mode);
    }
}

/// Takes in a record's home; one that is not there is looked for elsewhere.
#[inline(always)]
fn take_home(lotus: &Lotus, cx: &Context, txn: &mut Txn, index: usize) -> Result<(), Failure> {
    let Txn { entries, round, lookups, .. } = &mut *txn;
    let entry = &mut entries[index];
    let table = cx.table(entry.table);
    let Some((offset, _)) = head_at_home(table, entry.key, round, entry.image) else {
        begin_lookup(cx, entry, lookups, true);
        return Ok(());
    };
    (entry.address, entry.image) = (entry.address.plus(offset), entry.image.plus(offset));
    match take_newest(lotus, cx, (entry, round), packed(table)) {
        true => Ok(()),
        false => take_versions(lotus, cx, txn, index),
    }
}

/// Takes in a record whose slot was read under its lock, if nothing is on its way there: its newest version, and for
/// who changes it the slot's next image, in which his payload lies. Whether that was it; if not, nothing has changed.
#[inline(always)]
pub(super) fn take_newest(
    lotus: &Lotus,
    cx: &Context,
    (entry, round): (&mut Entry, &mut Round),
    packed: Packed,
) -> bool {
    let line = *round.array::<LINE_WORDS>(entry.image);
    let Some((newest, word)) = packed.newest_of_two(&line) else { return false };
    let changes = match entry.mode {
        Mode::Read => false,
        Mode::Update if lotus.on(On::KeepNewest) => true,
        _ => return false,
    };
    // Who wrote it may have died before it told the owner of the lock.
    cx.timestamps.observe(cx, word.timestamp());
    (entry.found, entry.progress) = (true, Progress::Done);
    entry.version = Version::from_word(word.word());
    entry.payload = entry.image.plus(packed.payload_at(newest));
    if changes {
        let place = 1 - newest;
        let next = round.reserve_lines(LINE_BYTES);
        let (from, to) = (packed.payload_at(newest) / 8, packed.payload_at(place) / 8);
        let words = round.array_mut::<LINE_WORDS>(next);
        *words = line;
        // Where two versions share a line, a payload is a word.
        words[to] = line[from];
        entry.old_payload = entry.payload;
        entry.payload = next.plus(to * 8);
        (entry.place, entry.writable) = (place as u8, true);
    }
    true
}

/// Reads on a snapshot what is to be fetched; which entries are undecided, with the cell in question. What is not
/// at home is left to be looked for.
#[inline]
pub(super) async fn fetch_as_of(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
) -> Result<Vec<(usize, usize)>, Failure> {
    plan_homes(cx, txn);
    for _ in txn.fetched..txn.entries.len() {
        enter(cx, Phase::Locate);
    }
    txn.stamps.view = cx.database().membership.view();
    cx.port.execute(&mut txn.round).await?;
    let mut undecided = Vec::new();
    for index in txn.fetched..txn.entries.len() {
        let cell = take_home_as_of(lotus, cx, txn, index)?;
        undecided.extend(cell.map(|cell| (index, cell)));
    }
    txn.round.begin();
    Ok(undecided)
}

/// Takes in a record's home without a lock. Where nothing is on its way and the newest version is not beyond
/// T_start, that is the snapshot's; what else there may be is weighed as elsewhere.
#[inline(always)]
fn take_home_as_of(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    index: usize,
) -> Result<Option<usize>, Failure> {
    let Txn { entries, round, lookups, stamps, .. } = &mut *txn;
    let entry = &mut entries[index];
    let table = cx.table(entry.table);
    let Some((offset, _)) = head_at_home(table, entry.key, round, entry.image) else {
        begin_lookup(cx, entry, lookups, true);
        return Ok(None);
    };
    (entry.address, entry.image) = (entry.address.plus(offset), entry.image.plus(offset));
    let packed = packed(table);
    match packed.newest_of_two(round.array(entry.image)) {
        Some((newest, word)) if word.timestamp() <= stamps.start => {
            (entry.found, entry.progress) = (true, Progress::Done);
            entry.version = Version::from_word(word.word());
            entry.payload = entry.image.plus(packed.payload_at(newest));
            Ok(None)
        }
        _ => snapshot::choose(lotus, cx, txn, index),
    }
}

/// What a commit has to write.
pub(super) enum Weight {
    /// Nothing.
    Nothing,
    /// What is written here.
    Short,
    /// Anything.
    Any,
}

/// What the transaction's commit has to write.
#[inline]
pub(super) fn weigh(cx: &Context, txn: &Txn) -> Weight {
    let (mut count, mut group, mut is_short) = (0, None, !cx.has_ordered && txn.pieces.is_empty());
    for entry in txn.entries.iter().filter(|entry| changes(entry)) {
        let its = entry.address.group();
        is_short &= entry.place != NO_PLACE
            && entry.mode == Mode::Update
            && *group.get_or_insert(its) == its;
        count += 1;
    }
    if count == 0 {
        return Weight::Nothing;
    }
    let room = decision_at(cx.database().catalog.options().log_bytes).min(VERB_BYTES_MAX);
    let is_near = |group| cx.groups.replicas(group) == 1;
    match is_short && group.is_some_and(is_near) && log_bytes(count) <= room {
        true => Weight::Short,
        false => Weight::Any,
    }
}

/// Length of the log's entry for so many versions.
#[inline]
fn log_bytes(versions: usize) -> usize {
    versions::entry_bytes(versions, versions * PACKED_BYTES, 0)
}

/// C1: the log's entry, then the versions, INVISIBLE.
#[inline]
pub(super) fn plan_invisible(cx: &Context, txn: &mut Txn) {
    enter(cx, Phase::Invisible);
    txn.stamps.lower = cx.timestamps.known(cx);
    txn.written.clear();
    let Txn { entries, round, written, tag, coordinator, stamps, .. } = txn;
    let invisible = VersionWord::invisible(stamps.lower).word();
    for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| changes(entry)) {
        let (packed, place) = (packed(cx.table(entry.table)), usize::from(entry.place));
        let line = BufferOffset(entry.payload.0 - packed.payload_at(place) as u32);
        let at = packed.version_at(place);
        let words = round.array_mut::<LINE_WORDS>(line);
        (words[at / 8], words[PACKED_WRITER_AT / 8]) = (invisible, tag.word());
        written.push(Written {
            entry: index as u32,
            slot: entry.address,
            table: entry.table,
            cell: entry.place,
            came: false,
            former: entry.image.plus(PACKED_VERSIONS_AT),
            former_bytes: PACKED_BYTES,
            visible: line.plus(at),
            visible_at: at as u16,
            visible_bytes: 8,
            discarded: Address::NULL,
        });
    }
    round.begin();
    let len = log_bytes(written.len());
    let log = versions::write_entry(round, *tag, written.iter().map(writing), (&[], &[], &[]), len);
    let (group, node) = whereabouts(cx, written);
    let area = cx.database().catalog.log(group, *coordinator);
    round.write_private(area.at(node), log, len);
    for it in &*written {
        let line = BufferOffset(it.visible.0 - u32::from(it.visible_at));
        let to = it.slot.plus(PACKED_VERSIONS_AT).at(node);
        round.write(to, line.plus(PACKED_VERSIONS_AT), PACKED_BYTES);
    }
}

/// C2: the versions are given T_commit.
#[inline]
pub(super) fn stamp(txn: &mut Txn, commit: Timestamp) {
    txn.stamps.commit = commit;
    for it in &txn.written {
        txn.entries[it.entry as usize].new_version = Version::from_word(commit.0);
    }
}

/// C3 and C4: the decision, then the versions, visible as of T_commit.
#[inline]
pub(super) fn plan_visible(cx: &Context, txn: &mut Txn) {
    enter(cx, Phase::Decide);
    let Txn { round, written, tag, coordinator, stamps, .. } = txn;
    round.begin();
    let (catalog, bytes) = (&cx.database().catalog, round.reserve(DECISION_BYTES));
    *round.array_mut::<2>(bytes) = decision(*tag, stamps.commit);
    let at = decision_at(catalog.options().log_bytes);
    let (group, node) = whereabouts(cx, written);
    let area = catalog.log(group, *coordinator);
    round.write(area.plus(at).at(node), bytes, DECISION_BYTES);
    let visible = VersionWord::committed(stamps.commit).word();
    for it in &*written {
        round.set_word(it.visible, visible);
        let to = it.slot.plus(usize::from(it.visible_at)).at(node);
        round.write(to, it.visible, 8);
    }
    round.hot();
}

/// The group that all of it is in, and the node that has its only copy.
#[inline(always)]
fn whereabouts(cx: &Context, written: &[Written]) -> (GroupId, NodeSlot) {
    let first = written[0].slot;
    (first.group(), cx.groups.primary(first).node())
}

/// How a table's records lie that were noted.
#[inline(always)]
fn packed(table: &Table) -> Packed {
    match table.slot.record {
        RecordLayout::Packed(packed) => packed,
        _ => unreachable!("noted as packed"),
    }
}
