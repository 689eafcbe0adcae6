//! LOTUS made short for what most transactions are: records whose versions lie in their slots, found at home, read
//! or updated, under locks or on a snapshot. Their commit is [`super::short_commit`].
//!
//! Invariant: what is asked and sent is what [`super::execute`] and [`super::snapshot`] would, byte by byte
//! and in the same order: all locks, then the READs. What is short is the way
//! there: one pass over the entries a round; and the slot's next image is made when the record is fetched, so that
//! the caller's payload lies where it is written from. Whatever is out of the way goes on there.

use super::execute::{advance, take_versions};
use super::{Lotus, on, phase, enter, snapshot};
use tarn_store::placement::catalog::Table;
use crate::site::Context;
use tarn_store::index::hash::{head_at_home, home};
use tarn_store::layout::{Packed, RecordLayout, Version};
use crate::services::lock::name::{LockMode, LockName};
use tarn_store::ids::{Failure, Mode, Timestamp};
use crate::services::Transport;
use crate::steps::index::begin_lookup;
use crate::transaction::working_set::{Added, Entry, Intent, Progress, Txn};
use tarn_fabric::address::LINE_BYTES;
use tarn_fabric::round::{BufferOffset, Round};

pub(super) const LINE_WORDS: usize = LINE_BYTES / 8;

/// Takes note of a record that is asked for, if it is looked for at its home and has its versions there; whether
/// it is.
#[inline(always)]
pub(super) fn note(
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    added: Added,
    entry: &mut Entry,
) -> bool {
    let is_common = matches!(added.mode, Mode::Read | Mode::Update) && !cx.remembers;
    // A snapshot's first READ in a table without homes brings the whole bucket.
    let has_home = txn.intent == Intent::ReadWrite || !table.slot.by_bucket;
    let is_noted =
        is_common && has_home && matches!(table.slot.record, RecordLayout::Packed(_));
    if is_noted {
        entry.address = home(cx.lookup_context(), table, added.hash);
        txn.at_home += 1;
    }
    is_noted
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
        enter(cx, phase::LOCATE);
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

#[inline(never)]
pub(super) fn lock(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::LOCK);
    // What is over by now hinders nobody, if it only was not seen yet.
    cx.advance_closing();
    let Txn { entries, held, fetched, .. } = txn;
    let asked = |entry: &Entry| {
        let mode = if entry.mode == Mode::Read { LockMode::Read } else { LockMode::Write };
        (LockName::row(entry.table.0, entry.key), mode)
    };
    let wanted = entries[*fetched..].iter();
    let services = cx.node_services();
    let shard = |entry: &Entry| cx.table(entry.table).shard_of(entry.key);
    match services.transport() {
        Transport::Own => held.ask_each(cx, services, wanted.map(asked)),
        Transport::Near => {
            let asked = |entry: &Entry| {
                let (name, mode) = asked(entry);
                (name, mode, shard(entry))
            };
            held.ask_owners(cx, services, wanted.map(asked));
        }
        Transport::Rpc | Transport::Direct => {
            for entry in wanted {
                let (name, mode) = asked(entry);
                held.ask(cx, name, shard(entry), mode);
            }
        }
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
    let Some((newest, changes)) = show_newest(lotus, cx, entry, packed, &line) else { return false };
    if changes {
        let next = round.reserve_lines(LINE_BYTES);
        make_next(entry, (packed, newest), &line, (next, round.array_mut(next)));
    }
    true
}

/// Shows the newest version of a line that was read under its lock, if nothing is on its way there: which it is, and whether
/// the slot's next image is wanted, which [`make_next`] makes.
#[inline(always)]
pub(super) fn show_newest(
    lotus: &Lotus,
    cx: &Context,
    entry: &mut Entry,
    packed: Packed,
    line: &[u64; LINE_WORDS],
) -> Option<(usize, bool)> {
    let (newest, word) = packed.newest_of_two(line)?;
    let changes = match entry.mode {
        Mode::Read => false,
        Mode::Update if lotus.switches.is_on(on::KEEP_NEWEST) => true,
        _ => return None,
    };
    // Who wrote it may have died before it told the owner of the lock.
    cx.timestamps.observe(cx, word.timestamp());
    (entry.found, entry.progress) = (true, Progress::Done);
    entry.version = Version::from_word(word.word());
    entry.payload = entry.image.plus(packed.payload_at(newest));
    Some((newest, changes))
}

/// Makes a slot's next image of its line: the caller's payload lies where it is written from.
#[inline(always)]
pub(super) fn make_next(
    entry: &mut Entry,
    (packed, newest): (Packed, usize),
    line: &[u64; LINE_WORDS],
    (next, words): (BufferOffset, &mut [u64; LINE_WORDS]),
) {
    let place = 1 - newest;
    let (from, to) = (packed.payload_at(newest) / 8, packed.payload_at(place) / 8);
    *words = *line;
    // Where two versions share a line, a payload is a word.
    words[to] = line[from];
    entry.old_payload = entry.payload;
    entry.payload = next.plus(to * 8);
    (entry.place, entry.writable) = (place as u8, true);
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
        enter(cx, phase::LOCATE);
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

/// Takes in a record's home without a lock; what [`show_as_of`] does not show is weighed as elsewhere.
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
    let line = round.array(entry.image);
    match show_as_of(stamps.start, entry, packed(table), line) {
        true => Ok(None),
        false => snapshot::choose(lotus, cx, txn, index),
    }
}

/// Shows the newest version of a line that was read without a lock, if nothing is on its way there and it is the
/// snapshot's. Whether that was it; if not, nothing has changed.
#[inline(always)]
pub(super) fn show_as_of(
    start: Timestamp,
    entry: &mut Entry,
    packed: Packed,
    line: &[u64; LINE_WORDS],
) -> bool {
    match packed.newest_of_two(line) {
        Some((newest, word)) if word.timestamp() <= start => {
            (entry.found, entry.progress) = (true, Progress::Done);
            entry.version = Version::from_word(word.word());
            entry.payload = entry.image.plus(packed.payload_at(newest));
            true
        }
        _ => false,
    }
}

/// How a table's records lie that were noted.
#[inline(always)]
pub(super) fn packed(table: &Table) -> Packed {
    match table.slot.record {
        RecordLayout::Packed(packed) => packed,
        _ => unreachable!("noted as packed"),
    }
}
