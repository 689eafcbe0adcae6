//! LOTUS's execute phase with locks: phase E1 takes locks, phase E2 reads version tables, and phase E3 reads records.
//!
//! Invariant: a fetch reads nothing before all its locks are granted, and the transaction releases no lock before it
//! ends. Because of these locks, the transaction relies on the versions that it has read, and does not validate them.
//! The locks lie in compute nodes; memory nodes execute only READs in the execute phase.

use super::find::{self, Place};
use super::switches::{Lotus, enter, on, phase};
use super::{cached, ideal, insert, nodes, short, snapshot};
use crate::services::lock::name::{LockMode, LockName};
use crate::site::Context;
use crate::steps::structure::scans;
use crate::transaction::working_set::{Entry, Intent, NO_LOOKUP, Progress, Txn};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{AbortReason, Explanation, Failure, Mode};
use tarn_store::layout::{Committed, RecordLayout, Version, is_record_of};
use tarn_store::placement::catalog::Table;
use tarn_store::placement::shard_map::shard_of_address;
use tarn_store::schema::Cells;

/// Fetches every entry of the transaction that was not fetched before.
pub(super) async fn fetch(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.notes.is_mistaken() {
        return Err(Failure::Usage);
    }
    if let Some(failure) = txn.failed {
        return Err(again_after(cx, failure));
    }
    txn.ordered.has_own = false;
    // If the caller drops this future, the transaction keeps this failure.
    txn.failed = Some(Failure::Usage);
    let outcome = match txn.intent {
        Intent::ReadOnly => snapshot::fetch(lotus, cx, txn).await,
        Intent::ReadWrite => fetch_locked(lotus, cx, txn).await,
    };
    txn.failed = outcome.err();
    outcome
}

/// Returns the failure of a fetch that follows a failed or dropped fetch. After a failed or dropped fetch, the
/// transaction can only end.
#[cold]
fn again_after(cx: &Context, failure: Failure) -> Failure {
    if failure != Failure::Usage {
        return failure;
    }
    let allowed = "after a fetch that was dropped a transaction can only end";
    cx.explain(Explanation::usage("fetch", "one more", allowed))
}

async fn fetch_locked(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if lotus.starts_writers() {
        snapshot::begin(cx, txn).await?;
    }
    let is_near = std::mem::take(&mut txn.read_near);
    let is_short =
        !lotus.starts_writers() && lotus.switches.is_on(on::LOCKS_APART) && !lotus.by_service;
    if is_near || (short::fetches(cx, txn) && is_short) {
        match cx.port.near() {
            Some(near) if is_near => short::fetch_others(lotus, cx, txn, near).await?,
            _ => short::fetch(lotus, cx, txn).await?,
        }
        if txn.fetched == txn.entries.len() {
            return Ok(());
        }
    }
    go_through(lotus, cx, txn, 0).await
}

/// Fetches the remaining entries in rounds, under locks or on a snapshot. `looks` is the number of times that the
/// transaction has read undecided versions.
pub(super) async fn go_through(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    mut looks: usize,
) -> Result<(), Failure> {
    let locks = txn.intent == Intent::ReadWrite;
    loop {
        match locks {
            true => lock(lotus, cx, txn).await?,
            false => begin_reading(lotus, cx, txn)?,
        }
        advance(txn);
        if txn.fetched == txn.entries.len() && !txn.ordered.pending {
            return if locks { nodes::protect(cx, txn).await } else { Ok(()) };
        }
        plan(lotus, cx, txn);
        if txn.ordered.pending {
            scans::plan(lotus, cx, txn);
        }
        txn.stamps.view = cx.database().membership.view();
        cx.port.execute(&mut txn.round).await?;
        let undecided = absorb(lotus, cx, txn)?;
        if txn.ordered.pending {
            scans::absorb(lotus, cx, txn)?;
        }
        if locks {
            insert::provide(cx, txn).await?;
        }
        // Entries that are added after this point belong to the next round.
        txn.round.begin();
        snapshot::look_again(lotus, cx, txn, (&undecided, &mut looks)).await?;
    }
}

/// Begins the search for the slots of the entries that the transaction reads without a lock.
fn begin_reading(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    for index in txn.fetched..txn.entries.len() {
        if txn.entries[index].progress == Progress::Lock && !cached::take(lotus, cx, txn, index)? {
            find::begin(cx, txn, index);
        }
    }
    Ok(())
}

/// Moves the position `fetched` past the entries that are fetched.
pub(super) fn advance(txn: &mut Txn) {
    let rest = txn.entries[txn.fetched..].iter();
    txn.fetched += rest.take_while(|entry| entry.progress == Progress::Done).count();
}

/// Phase E1: requests every lock that the entries need. Returns after the replies to all these requests have arrived.
async fn lock(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let waits = |entry: &Entry| entry.progress == Progress::Lock;
    if !txn.entries[txn.fetched..].iter().any(waits) {
        return Ok(());
    }
    enter(cx, phase::LOCK);
    // Some transactions may have ended without this thread having noticed their end. This call first releases the
    // locks of transactions whose end was not noticed yet.
    cx.advance_closing();
    for index in txn.fetched..txn.entries.len() {
        if waits(&txn.entries[index]) && !lotus.reads_snapshot(txn, index) {
            ask(cx, txn, index);
        }
    }
    txn.held.collect(cx, txn.tag).await?;
    for index in txn.fetched..txn.entries.len() {
        if waits(&txn.entries[index]) {
            ideal::take(lotus, cx, txn, index);
            take_grant(lotus, cx, txn, index)?;
        }
    }
    Ok(())
}

/// Requests the lock of the entry's record. If the record may be inserted, also requests the lock of the record's
/// bucket, so that no other transaction fills a slot of the bucket.
fn ask(cx: &Context, txn: &mut Txn, index: usize) {
    let entry = txn.entries[index];
    let table = cx.table(entry.table);
    let mode = if entry.mode == Mode::Read { LockMode::Read } else { LockMode::Write };
    let name = LockName::row(entry.table.0, entry.key);
    txn.held.ask(cx, name, table.shard_of(entry.key), mode);
    if entry.mode == Mode::Insert && !entry.found {
        if entry.lookup == NO_LOOKUP {
            find::begin(cx, txn, index);
            txn.entries[index].progress = Progress::Lock;
        }
        let (name, bucket) = (bucket_name(txn, index), txn.lookup(&txn.entries[index]).directory);
        txn.held.ask(cx, name, shard_of_address(bucket), LockMode::Write);
    }
}

/// Returns the name of the lock of the bucket to which the search for an entry leads.
fn bucket_name(txn: &Txn, index: usize) -> LockName {
    let entry = &txn.entries[index];
    LockName::bucket(entry.table.0, txn.lookup(entry).directory)
}

/// Continues with an entry whose locks were granted: begins the search for its record, or uses the record that was
/// read before under a weaker lock.
fn take_grant(lotus: &Lotus, cx: &Context, txn: &mut Txn, index: usize) -> Result<(), Failure> {
    let entry = txn.entries[index];
    if entry.found && lotus.is_snapshot() {
        // The transaction read the record without a lock, so it reads the record's version again and checks that this
        // version is still the newest.
        txn.entries[index].progress = Progress::Direct;
        return Ok(());
    }
    if entry.found {
        // The record has not changed since the transaction read it, because the transaction has kept its weaker lock
        // since.
        let is_apart = cx.table(entry.table).slot.is_out_of_line();
        match is_apart && entry.cells != Cells::NONE && entry.payload == BufferOffset::default() {
            true => txn.entries[index].progress = Progress::Body,
            // The transaction has already changed this record and now deletes it, so the payload is no longer the
            // record's former payload.
            false if entry.writable => txn.entries[index].progress = Progress::Done,
            false => become_ready(cx, txn, index),
        }
        return Ok(());
    }
    match entry.mode {
        Mode::Insert => {
            let lookup = entry.lookup as usize;
            txn.lookups[lookup].restart_at_bucket();
            txn.entries[index].progress = Progress::Locate;
        }
        _ if cached::take(lotus, cx, txn, index)? => {}
        _ => find::begin(cx, txn, index),
    }
    Ok(())
}

/// Phases E2 and E3: adds the READs of every entry that was not fetched yet.
fn plan(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    txn.looks.clear();
    for index in txn.fetched..txn.entries.len() {
        match txn.entries[index].progress {
            Progress::Done | Progress::Lock => {}
            Progress::Body => plan_record(cx, txn, index),
            _ => {
                if lotus.reads_snapshot(txn, index) {
                    cached::before_reading(lotus, cx, txn, index);
                }
                find::plan(cx, txn, index);
            }
        }
    }
}

/// Phase E3: adds the READ of the version that the entry shows.
pub(super) fn plan_record(cx: &Context, txn: &mut Txn, index: usize) {
    let Txn { entries, round, .. } = txn;
    let entry = &mut entries[index];
    let slot = &cx.table(entry.table).slot;
    if entry.body.is_null() {
        // The transaction kept no image of this slot in a chain, so it reads the slot again.
        entry.image = round.read(cx.groups.primary(entry.address), slot.slot_bytes);
        return;
    }
    enter(cx, phase::READ_RECORD);
    let at = round.reserve_lines(slot.body_bytes());
    round.read_into(cx.groups.primary(entry.body), at, slot.apart_bytes());
    entry.payload = at;
}

/// Handles all answers of a round of the execute phase.
fn absorb(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<Vec<(usize, usize)>, Failure> {
    let mut undecided = Vec::new();
    for index in txn.fetched..txn.entries.len() {
        match txn.entries[index].progress {
            Progress::Done | Progress::Lock => {}
            Progress::Body => absorb_record(lotus, cx, txn, index)?,
            _ => {
                let reads = lotus.reads_snapshot(txn, index);
                match find::absorb(lotus, cx, txn, (index, !reads)) {
                    Place::There if reads => {
                        cached::after_reading(lotus, cx, txn, index);
                        let cell = snapshot::choose(lotus, cx, txn, index)?;
                        undecided.extend(cell.map(|cell| (index, cell)));
                    }
                    Place::There => {
                        cached::after_reading(lotus, cx, txn, index);
                        take_versions(lotus, cx, txn, index)?;
                    }
                    Place::Absent if snapshot::may_have_been(lotus, txn, index) => {
                        let why =
                            if reads { AbortReason::TooOld } else { AbortReason::WriteConflict };
                        return Err(why.into());
                    }
                    Place::Absent if reads => snapshot::settle_absent(txn, index),
                    Place::Absent => take_absent(lotus, cx, txn, index),
                    Place::More => look_elsewhere(txn, index),
                    Place::Changing => return Err(AbortReason::ReadLocked.into()),
                }
            }
        }
    }
    Ok(undecided)
}

/// The search of an insert can lead to a bucket that differs from the bucket whose lock was requested. If the search
/// leads to another bucket, the insert also needs the lock of that bucket.
fn look_elsewhere(txn: &mut Txn, index: usize) {
    let entry = &txn.entries[index];
    let comes = entry.mode == Mode::Insert && !entry.found;
    if comes && txn.held.is_held(bucket_name(txn, index)).is_none() {
        txn.entries[index].progress = Progress::Lock;
    }
}

/// Handles the newest version in a version table that was read under the record's lock.
pub(super) fn take_versions(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    index: usize,
) -> Result<(), Failure> {
    let Txn { entries, round, stamps, .. } = &mut *txn;
    let entry = &mut entries[index];
    let table = cx.table(entry.table);
    if let RecordLayout::Packed(packed) = table.slot.record
        && !lotus.starts_writers()
        && short::take_newest(lotus, cx, (&mut *entry, &mut *round), packed)
    {
        return Ok(());
    }
    let slot = &table.slot;
    let image = round.bytes(entry.image, slot.slot_bytes);
    if slot.is_undecided(image, |txn| lotus.is_stray(cx, txn)) {
        return Err(AbortReason::Undecided.into());
    }
    let newest = slot.newest_committed(image);
    if let Some(newest) = &newest {
        // The writer of this version may have died before it told the timestamp to the lock's owner, so this node
        // notes the timestamp now.
        cx.timestamps.observe(cx, newest.version);
    }
    let is_new = |it: &Committed| it.version > stamps.start;
    if lotus.starts_writers() && newest.as_ref().is_some_and(is_new) {
        return Err(AbortReason::WriteConflict.into());
    }
    let Some(newest) = newest.filter(|newest| !newest.deleted) else {
        take_tombstone(lotus, cx, txn, index);
        return Ok(());
    };
    show(entry, newest);
    take_place(entry, cx.table(entry.table), round, newest);
    if entry.progress == Progress::Done {
        become_ready(cx, txn, index);
    }
    Ok(())
}

/// Notes that the entry's record exists, and that the transaction uses this version of it.
pub(super) fn show(entry: &mut Entry, newest: Committed) {
    entry.found = true;
    entry.version = Version::from_word(newest.version.0);
}

/// Notes the place of the payload of a version, or that the transaction must still read the payload.
pub(super) fn take_place(entry: &mut Entry, table: &Table, round: &Round, shown: Committed) {
    let slot = &table.slot;
    entry.progress = Progress::Done;
    match slot.record {
        RecordLayout::Packed(packed) => {
            entry.payload = entry.image.plus(packed.payload_at(shown.cell));
        }
        RecordLayout::Cells(cells) => {
            let image = round.bytes(entry.image, slot.slot_bytes);
            entry.body = cells.cell(image, shown.cell).to.address();
            if entry.cells != Cells::NONE {
                entry.progress = Progress::Body;
            }
        }
        RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => {
            unreachable!("a layout of versions")
        }
    }
}

/// Returns whether the record that was read is the version that the entry shows. The memory of the version may belong
/// to another record by now.
pub(super) fn is_it(lotus: &Lotus, cx: &Context, txn: &Txn, entry: &Entry) -> bool {
    let slot = &cx.table(entry.table).slot;
    let RecordLayout::Cells(cells) = slot.record else { return true };
    let image = txn.round.bytes(entry.image, slot.slot_bytes);
    let of = |cell: usize| cells.cell(image, cell);
    let shown = (0..cells.count()).map(of).find(|cell| cell.to.address() == entry.body);
    let record = txn.round.bytes(entry.payload, slot.apart_bytes());
    !lotus.switches.is_on(on::CHECKSUM)
        || shown.is_some_and(|cell| is_record_of(record, cell.txn, entry.key))
}

fn absorb_record(lotus: &Lotus, cx: &Context, txn: &mut Txn, index: usize) -> Result<(), Failure> {
    let entry = txn.entries[index];
    if entry.body.is_null() {
        insert::take_slot(cx, txn, index);
        return Ok(());
    }
    if !is_it(lotus, cx, txn, &entry) {
        return Err(AbortReason::TooOld.into());
    }
    let slot = &cx.table(entry.table).slot;
    txn.entries[index].payload = entry.payload.plus(slot.payload_at);
    become_ready(cx, txn, index);
    Ok(())
}

/// Marks the entry as fetched. If the transaction will change the record, the entry gets a new payload.
fn become_ready(cx: &Context, txn: &mut Txn, index: usize) {
    let Txn { entries, round, .. } = txn;
    let entry = &mut entries[index];
    let slot = &cx.table(entry.table).slot;
    entry.progress = Progress::Done;
    if !entry.found || matches!(entry.mode, Mode::Read | Mode::Insert) {
        return;
    }
    entry.writable = true;
    entry.old_payload = entry.payload;
    // A record that the transaction deletes also gets a new payload, because the transaction may insert the record
    // again.
    if !slot.is_out_of_line() || entry.cells != Cells::NONE {
        let new = reserve_payload(round, cx.table(entry.table));
        round.copy_within(entry.old_payload, new, slot.payload_bytes);
        entry.payload = new;
    }
}

/// Reserves room in the buffer for a payload. If payloads lie outside their slots, also reserves room for the bytes
/// that the commit writes before the payload.
pub(super) fn reserve_payload(round: &mut Round, table: &Table) -> BufferOffset {
    let slot = &table.slot;
    match slot.record {
        RecordLayout::Cells(_) => round.reserve_lines(slot.body_bytes()).plus(slot.payload_at),
        _ => round.reserve(slot.payload_bytes.next_multiple_of(8)),
    }
}

/// Handles a slot that contains the entry's key, but whose record is deleted or was never committed.
fn take_tombstone(lotus: &Lotus, cx: &Context, txn: &mut Txn, index: usize) {
    note_absent(lotus, cx, txn, index);
    let entry = &mut txn.entries[index];
    entry.progress = Progress::Done;
    if entry.mode == Mode::Insert {
        insert::take_slot(cx, txn, index);
    }
}

/// Handles an entry whose key is in no slot.
fn take_absent(lotus: &Lotus, cx: &Context, txn: &mut Txn, index: usize) {
    note_absent(lotus, cx, txn, index);
    let entry = &mut txn.entries[index];
    // An insert whose key is absent now waits until it gets a slot.
    (entry.stable, entry.progress) = match entry.mode {
        Mode::Insert => (true, Progress::Locate),
        _ => (false, Progress::Done),
    };
}

/// Notes that the key is absent as of the newest timestamp that this node knows; the lock's former holder has told
/// this node that timestamp. On a snapshot, the function notes that the key is absent as of T_start.
fn note_absent(lotus: &Lotus, cx: &Context, txn: &mut Txn, index: usize) {
    let as_of = if lotus.is_snapshot() { txn.stamps.start } else { cx.timestamps.known(cx) };
    let entry = &mut txn.entries[index];
    entry.found = false;
    entry.version = Version::from_word(as_of.0);
}
