//! Handles the answers of the rounds of Motor's execute phase.
//!
//! Invariant: Motor handles all answers of a round before any answer aborts the transaction, so that the transaction
//! knows which locks were granted. If the caller has already seen a record without a lock, the record must be
//! unchanged when the lock is granted. If a record that the caller has already seen has changed, the transaction
//! aborts.
//!
//! A transaction that was declared read-only sees the state at its T_start. If the head of a record was read after
//! T_start was taken, and is not locked, the head names every version up to T_start. The head names all these
//! versions because a writer takes its T_commit while it holds the lock, and releases the lock after all its writes.

use super::Motor;
use super::execute::{HEAD_BYTES, comes_along};
use super::switches::on;
use super::value::{self, value_bytes};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described as _;
use crate::steps::index::recheck::{is_still_there, keep_attached, relocate, take_directory};
use crate::steps::node_locks::{HELD, granted, note_grants};
use crate::transaction::working_set::{Check, Entry, NO_LOCK, Progress, Txn};
use tarn_fabric::address::Address;
use tarn_store::ids::{AbortReason, Failure, Mode};
use tarn_store::index::hash::{Answer, Wanted, same_head};
use tarn_store::layout::{LOCK_AT, NEWEST_AT, Shown, VALUE_AT, VERSION_AT, Version, is_seen_at};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::Cells;

/// The outcome of one round of a transaction that reads a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// The transaction need not read any entry again because of another transaction's lock.
    Fine,
    /// The transaction must read some entry again. The outcome `Again` contains the reason to abort if another read
    /// of the entry does not help.
    Again(AbortReason),
}

/// The outcome of one entry's answer, or the reason to abort the transaction.
type Taken = Result<Look, AbortReason>;

/// Handles all answers of a round of the execute phase. Returns the first reason to abort, after it has noted which
/// locks were granted.
pub(super) fn absorb(motor: &Motor, cx: &Context, txn: &mut Txn) -> Result<Look, Failure> {
    note_grants(txn, !motor.keeps(Rule::ReleaseGranted));
    let mut verdict = Ok(Look::Fine);
    for index in txn.fetched..txn.entries.len() {
        let mut entry = txn.entries[index];
        let taken = take_in(motor, cx, txn, &mut entry);
        txn.entries[index] = entry;
        verdict = match (verdict, taken) {
            (Ok(Look::Fine), Ok(look)) => Ok(look),
            (Ok(_), Err(reason)) => Err(reason),
            (before, _) => before,
        };
        if txn.fetched == index && entry.progress == Progress::Done {
            txn.fetched = index + 1;
        }
    }
    Ok(verdict?)
}

fn take_in(motor: &Motor, cx: &Context, txn: &mut Txn, entry: &mut Entry) -> Taken {
    let table = cx.table(entry.table);
    match entry.progress {
        Progress::Done | Progress::Home => Ok(Look::Fine),
        Progress::Locate => absorb_lookup(motor, cx, txn, entry, table),
        Progress::Direct if entry.only_reads() => absorb_head(motor, cx, txn, entry, table),
        Progress::Direct | Progress::Lock => {
            absorb_lock(motor, cx, txn, entry, table).map(|()| Look::Fine)
        }
        Progress::Body => absorb_value(motor, cx, txn, entry, table),
    }
}

fn absorb_lookup(
    motor: &Motor,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Taken {
    let full_key = (entry.full_key.0 != 0).then_some(entry.full_key);
    let wanted = Wanted { word: entry.key, full_key, me: txn.tag.word(), taken: None };
    let Txn { lookups, round, .. } = txn;
    let near = cx.lookup_context().proving(motor.keeps(Rule::ProveAbsent));
    match lookups[entry.lookup as usize].absorb(near, table, wanted, round) {
        Answer::More => Ok(Look::Fine),
        Answer::Unstable => {
            if let Some((address, word)) = lookups[entry.lookup as usize].met(table, round) {
                cx.note_blocking_lock(address, word);
            }
            refused(motor, txn, entry, AbortReason::ReadLocked)
        }
        Answer::Found { address, image, consistent } => {
            let moved = address != entry.address;
            (entry.address, entry.image) = (address, image);
            entry.body = value_at(txn, entry);
            cx.cache.borrow_mut().put(entry.table, entry.key, address, entry.body);
            if entry.watched && moved && motor.keeps(Rule::ValidateReads) {
                return Err(AbortReason::VersionChanged); // the record that the caller has seen is deleted or moved
            }
            settle_found(motor, cx, txn, entry, table, consistent)
        }
        Answer::Absent => settle_absent(motor, txn, entry),
    }
}

/// If another transaction holds a record's lock, a transaction that reads a snapshot reads the record again. Any
/// other transaction that finds the record locked aborts.
fn refused(motor: &Motor, txn: &Txn, entry: &Entry, why: AbortReason) -> Taken {
    match motor.reads_snapshot(txn) && entry.mode == Mode::Read {
        true => Ok(Look::Again(why)),
        false => Err(why),
    }
}

/// Continues with a record whose head was read, and which this transaction has not locked.
fn settle_found(
    motor: &Motor,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
    consistent: bool,
) -> Taken {
    let lock = txn.round.word(entry.image.plus(LOCK_AT));
    let minds = match motor.reads_snapshot(txn) && entry.mode == Mode::Read {
        true => motor.switches.is_on(on::WAIT_FOR_LOCKED),
        false => motor.keeps(Rule::RefuseLocked),
    };
    if lock != 0 && lock != txn.tag.word() && minds {
        cx.note_blocking_lock(entry.address, lock);
        let reading = entry.mode == Mode::Read;
        entry.progress = if reading { Progress::Direct } else { entry.progress };
        let why = if reading { AbortReason::ReadLocked } else { AbortReason::LockRefused };
        return refused(motor, txn, entry, why);
    }
    if !consistent {
        entry.progress = match entry.mode {
            // The transaction reads the head again under the record's lock. A delete also locks the bucket from which
            // it removes the record.
            Mode::Update | Mode::Delete => Progress::Lock,
            Mode::Read | Mode::Insert => Progress::Direct,
        };
        return Ok(Look::Fine);
    }
    let version = match value::shown(motor, txn, entry, table) {
        Shown::Newest(version) | Shown::Older(_, version) => version,
        Shown::TooOld => return Err(AbortReason::TooOld),
        // The record was inserted after the snapshot, so this transaction's insert comes too late.
        Shown::Absent(_) if entry.mode == Mode::Insert => return Err(AbortReason::VersionChanged),
        Shown::Absent(version) => {
            (entry.found, entry.version, entry.progress) = (false, version, Progress::Done);
            return Ok(Look::Fine);
        }
    };
    entry.found = true;
    show(motor, entry, version)?;
    entry.progress = match entry.mode {
        Mode::Update | Mode::Delete => Progress::Lock,
        // If the record already exists, an insert shows this record to its caller.
        Mode::Read | Mode::Insert if entry.cells != Cells::NONE => Progress::Body,
        Mode::Read | Mode::Insert => Progress::Done,
    };
    if entry.progress == Progress::Done {
        be_shown(motor, txn, entry);
    }
    Ok(Look::Fine)
}

/// Notes that the caller sees this version of the record without a lock.
fn be_shown(motor: &Motor, txn: &Txn, entry: &mut Entry) {
    entry.progress = Progress::Done;
    (entry.stable, entry.watched) = (true, !motor.reads_snapshot(txn));
}

fn settle_absent(motor: &Motor, txn: &mut Txn, entry: &mut Entry) -> Taken {
    entry.found = false;
    if entry.watched && motor.keeps(Rule::ValidateReads) {
        return Err(AbortReason::VersionChanged); // the caller has already seen the record as present
    }
    entry.version = txn.lookup(entry).directory_version;
    if entry.mode == Mode::Insert {
        // The function `provide_blocks` decides which slot the new record gets.
        entry.progress = Progress::Lock;
        entry.address = Address::NULL;
        return Ok(Look::Fine);
    }
    entry.progress = Progress::Done;
    entry.stable = txn.lookup(entry).stable;
    let (address, version) = (txn.lookup(entry).directory, entry.version);
    if motor.reads_snapshot(txn) {
        if !entry.stable {
            // The transaction read the chain block by block, so this read is not consistent. A record that was
            // deleted or moved since the directory record was read may have existed at the snapshot.
            txn.lookups[entry.lookup as usize].look_again();
            entry.progress = Progress::Locate;
            return Ok(Look::Fine);
        }
        // A record that entered or left the bucket since the snapshot may have had this key.
        return match is_seen_at(version, txn.stamps.start) || !motor.switches.is_on(on::TOO_OLD) {
            true => Ok(Look::Fine),
            false => Err(AbortReason::TooOld),
        };
    }
    let held = txn.lock_on(address).map(|lock| txn.locks[lock as usize]);
    match held.filter(|lock| lock.verb == HELD) {
        // The lock may have been granted only after the bucket was read, because a chain is read block by block.
        Some(lock) if lock.old_version != version && motor.keeps(Rule::ProtectAbsent) => {
            return Err(AbortReason::IndexChanged);
        }
        Some(_) => {}
        None if motor.keeps(Rule::ProtectAbsent) => {
            txn.checks.push(Check { address, version, covered: false });
        }
        None => {}
    }
    Ok(Look::Fine)
}

/// Notes the version of the record that was read. Aborts the transaction if this version differs from the version
/// that the caller has seen before.
fn show(motor: &Motor, entry: &mut Entry, version: Version) -> Result<(), AbortReason> {
    if entry.watched && entry.version != version && motor.keeps(Rule::ValidateReads) {
        return Err(AbortReason::VersionChanged);
    }
    entry.version = version;
    Ok(())
}

/// Handles the head of a record that was read at its cached address, perhaps together with the record's value.
fn absorb_head(
    motor: &Motor,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Taken {
    if !is_still_there(txn, entry, table) || value_at(txn, entry) != entry.body {
        relocate(cx, txn, entry, table);
        return Ok(Look::Fine);
    }
    let again = entry.image.plus(table.slot.slot_bytes);
    if !table.slot.is_one_line() && !same_head(&txn.round, again.plus(HEAD_BYTES), again) {
        cx.note_blocking_lock(entry.address, txn.round.word(again.plus(LOCK_AT)));
        return refused(motor, txn, entry, AbortReason::ReadLocked);
    }
    let look = settle_found(motor, cx, txn, entry, table, true)?;
    let came_along = entry.progress == Progress::Body && comes_along(motor, entry);
    if look != Look::Fine || !came_along {
        return Ok(look);
    }
    let is_newest = matches!(value::shown(motor, txn, entry, table), Shown::Newest(_));
    if is_newest && value::fits(motor, txn, entry, table, again) {
        be_shown(motor, txn, entry);
    }
    Ok(Look::Fine)
}

fn value_at(txn: &Txn, entry: &Entry) -> Address {
    Address::from_word(txn.round.word(entry.image.plus(VALUE_AT)))
}

/// Handles the head of a record that was read after its lock in the same batch, perhaps together with the record's
/// value.
fn absorb_lock(
    motor: &Motor,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    let is_direct = entry.progress == Progress::Direct;
    let record_granted = granted(cx, txn, entry.lock);
    let mut directory_granted = true;
    if entry.directory_lock != NO_LOCK {
        directory_granted = granted(cx, txn, entry.directory_lock);
    }
    if !record_granted || !directory_granted {
        return Err(AbortReason::LockRefused);
    }
    if entry.mode != Mode::Update {
        let version = take_directory(txn, entry, table, motor.keeps(Rule::ProtectAbsent))?;
        // The version of a bucket does not show which of the bucket's keys were added or removed, so a newer bucket
        // counts as a conflict.
        conflicts(motor, txn, version)?;
    }
    let head = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    txn.locks[entry.lock as usize].old_version = head;
    if entry.mode == Mode::Insert {
        if head.is_present() {
            return Err(AbortReason::IndexChanged);
        }
        keep_attached(cx, txn, entry, value_at(txn, entry));
        value::begin(txn, entry, table);
        return take_lock(entry);
    }
    if !is_still_there(txn, entry, table) || value_at(txn, entry) != entry.body {
        // The lock stays on the record that is now at this place, and the transaction releases it at its end, like
        // its other locks.
        cx.cache.borrow_mut().forget(entry.table, entry.key);
        let why = if is_direct { AbortReason::StaleAddress } else { AbortReason::VersionChanged };
        return Err(why);
    }
    entry.found = true;
    let newest = Version::from_word(txn.round.word(entry.image.plus(NEWEST_AT)));
    show(motor, entry, newest)?;
    conflicts(motor, txn, newest)?;
    if comes_along(motor, entry) {
        value::copy(txn, entry, table);
    } else if entry.cells != Cells::NONE {
        entry.progress = Progress::Body;
        return Ok(());
    }
    take_lock(entry)
}

/// Under snapshot isolation, a transaction may write a record only if no other transaction has written it since the
/// snapshot.
pub(super) fn conflicts(motor: &Motor, txn: &Txn, newest: Version) -> Result<(), AbortReason> {
    match motor.reads_snapshot(txn) && !is_seen_at(newest, txn.stamps.start) {
        true => Err(AbortReason::VersionChanged),
        false => Ok(()),
    }
}

/// Ends the fetch of a locked record, because the transaction has read everything of the record that it needs.
fn take_lock(entry: &mut Entry) -> Result<(), AbortReason> {
    entry.progress = Progress::Done;
    entry.watched = false; // now the lock protects the record
    Ok(())
}

/// Handles a value of a record that was read after the record's head.
fn absorb_value(
    motor: &Motor,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Taken {
    if entry.lock != NO_LOCK {
        value::copy(txn, entry, table);
        return take_lock(entry).map(|()| Look::Fine);
    }
    if value::take(motor, txn, entry, table) {
        be_shown(motor, txn, entry);
        return Ok(Look::Fine);
    }
    // Another transaction changes the record, or changed the record during the read. A transaction that reads a
    // snapshot reads this record again from its head on.
    let again = value::block_of(entry).plus(table.slot.body_bytes());
    let lock = match value_bytes(table) > tarn_fabric::address::LINE_BYTES {
        true => txn.round.word(again.plus(LOCK_AT)),
        false => 0,
    };
    if lock != 0 {
        cx.note_blocking_lock(entry.address, lock);
    }
    entry.progress = Progress::Direct;
    refused(motor, txn, entry, AbortReason::VersionChanged)
}
