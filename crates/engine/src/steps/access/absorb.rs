//! Handles the answers that the memory nodes send to the rounds of a fetch.
//!
//! Invariant: a fetch handles all answers of a round before any answer aborts the transaction, so that the
//! transaction knows which locks were granted. A record that the caller has already seen without a lock must still be
//! the same when the lock is granted. If a record that the caller has already seen has changed, the transaction
//! aborts.

use super::fetch::{shares, waits_for_turn};
use super::validate::admit;
use super::{Access, LockOutcome, LockState, home};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::index::begin_lookup;
use crate::steps::index::recheck::{is_still_there, keep_attached, relocate, take_directory};
use crate::steps::locks::Locks as _;
use crate::steps::node_locks::{HELD, granted, note_grants};
use crate::transaction::lock::{Lock, LockKind};
use crate::transaction::working_set::{Check, Entry, Leases, NO_LOCK, Progress, Txn};
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag};
use tarn_store::index::hash::{Answer, Wanted, same_head};
use tarn_store::layout::{LOCK_AT, Lined, VERSION_AT, Version};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::Cells;

/// Handles all answers of one round of a fetch. Returns the first reason to abort, after the fetch has noted which
/// locks were granted.
#[inline(always)]
pub(super) fn absorb(access: &impl Access, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if !txn.locks.is_empty() {
        note_grants(txn, !access.keeps(Rule::ReleaseGranted));
    }
    let mut verdict = Ok(());
    let mut taken = txn.fetched;
    let Txn { entries, lookups, round, tag, leases, fetched, .. } = &mut *txn;
    // Reads of home bins are the most common case, so this function handles them in a loop of their own. A record
    // that is not in its home bin may be elsewhere in its bucket, or may not exist.
    for entry in &mut entries[*fetched..] {
        if entry.progress != Progress::Home {
            break;
        }
        match home::absorb(access, cx, (round, *tag, leases), entry) {
            Ok(true) => {}
            Ok(false) => begin_lookup(cx, entry, lookups, true),
            Err(reason) => verdict = verdict.and(Err(reason)),
        }
        if *fetched == taken && entry.progress == Progress::Done {
            *fetched = taken + 1;
        }
        taken += 1;
    }
    if taken < txn.entries.len() {
        verdict = verdict.and(absorb_others(access, cx, txn, taken));
    }
    Ok(verdict?)
}

/// Handles the answers for the entries from `start` on, in whichever state the entries are.
#[inline(never)]
fn absorb_others(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    start: usize,
) -> Result<(), AbortReason> {
    let mut verdict = Ok(());
    for index in start..txn.entries.len() {
        let progress = txn.entries[index].progress;
        let settled = match progress {
            Progress::Done => Ok(()),
            _ if waits_for_turn(access, txn, index) => Ok(()),
            Progress::Home => {
                let Txn { entries, lookups, round, tag, leases, .. } = &mut *txn;
                let entry = &mut entries[index];
                home::absorb(access, cx, (round, *tag, leases), entry).map(|found| match found {
                    true => {}
                    false => begin_lookup(cx, entry, lookups, true),
                })
            }
            Progress::Lock if home::absorb_locked(cx, txn, index) => Ok(()),
            _ => absorb_rarer(access, cx, txn, index),
        };
        verdict = verdict.and(settled);
        if txn.fetched == index && txn.entries[index].progress == Progress::Done {
            txn.fetched = index + 1;
        }
    }
    verdict
}

#[inline(never)]
fn absorb_rarer(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    index: usize,
) -> Result<(), AbortReason> {
    let mut entry = txn.entries[index];
    let (table, it) = (cx.table(entry.table), &mut entry);
    let outcome = match it.progress {
        Progress::Done | Progress::Home => unreachable!("taken in by its caller"),
        Progress::Locate => absorb_lookup(access, cx, txn, it, table),
        Progress::Direct | Progress::Lock if shares(access, &txn.leases, it) => {
            absorb_shared(access, cx, txn, it, table)
        }
        Progress::Direct if it.only_reads() => absorb_direct(access, cx, txn, it, table),
        Progress::Direct => absorb_direct_lock(access, cx, txn, it, table),
        Progress::Lock => absorb_lock(access, cx, txn, it, table),
        Progress::Body => absorb_body(access, cx, txn, it),
    };
    txn.entries[index] = entry;
    outcome
}

fn absorb_lookup<A: Access>(
    access: &A,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    let full_key = (entry.full_key.0 != 0).then_some(entry.full_key);
    let Txn { lookups, round, locks, tag, .. } = txn;
    // If a service grants the locks on slots, no LOCK word shows which slots the transaction has locked.
    let is_locked = |slot: Address| {
        let is_it = |lock: &Lock| lock.address == slot && !lock.held_as.is_shared();
        locks.iter().any(is_it)
    };
    let taken = A::Locks::ARE_APART.then_some(&is_locked as &dyn Fn(Address) -> bool);
    let wanted = Wanted { word: entry.key, full_key, me: tag.word(), taken };
    let lookup = &mut lookups[entry.lookup as usize];
    let near = cx.lookup_context().proving(access.keeps(Rule::ProveAbsent));
    match lookup.absorb(near, table, wanted, round) {
        Answer::More => Ok(()),
        Answer::Unstable => {
            if let Some((address, word)) = lookup.met(table, round) {
                cx.note_blocking_lock(address, word);
            }
            Err(AbortReason::ReadLocked)
        }
        Answer::Found { address, image, consistent } => {
            let moved = address != entry.address;
            entry.address = address;
            entry.image = image;
            entry.body = body_of(round, table, image);
            cx.cache.borrow_mut().put(entry.table, entry.key, address, entry.body);
            if entry.watched && moved && access.keeps(Rule::ValidateReads) {
                return Err(AbortReason::VersionChanged); // the record that the caller has seen is deleted
            }
            settle(access, cx, txn, (entry, table), consistent)
        }
        Answer::Absent => settle_absent(access, txn, entry),
    }
}

/// Returns the place of the contiguous payload of a record whose image was read.
///
/// # Errors
/// The lines of the record's image come from different moments.
#[inline(always)]
fn payload_in(
    access: &impl Access,
    round: &mut Round,
    image: BufferOffset,
    table: &Table,
) -> Result<BufferOffset, AbortReason> {
    let Some(lined) = in_lines(table) else { return Ok(image.plus(table.slot.payload_at)) };
    let is_whole = lined.is_whole(round.bytes(image, table.slot.slot_bytes));
    match is_whole || !access.keeps(Rule::CheckLines) {
        true => Ok(gathered(round, image, table, lined)),
        false => Err(AbortReason::VersionChanged),
    }
}

/// Handles a record that was found, and that this transaction has not locked.
#[inline(always)]
pub(super) fn settle_found(
    access: &impl Access,
    cx: &Context,
    (round, tag, leases): (&Round, OwnerTag, &Leases),
    (entry, table): (&mut Entry, &Table),
    consistent: bool,
) -> Result<(), AbortReason> {
    entry.found = true;
    let [lock, version] = *round.array(entry.image.plus(LOCK_AT));
    entry.marked |= admit(access, (cx, tag), entry.mode, (entry.address, lock))?;
    show(access, entry, Version::from_word(version))?;
    // A transaction that locks its reads holds no lock on a record that an insert finds, so it must validate this
    // record.
    entry.marked |= entry.mode == Mode::Insert && access.locks_reads(leases);
    match entry.mode {
        Mode::Update | Mode::Delete => entry.progress = Progress::Lock,
        Mode::Read if access.locks_reads(leases) => entry.progress = Progress::Lock,
        // If the record already exists, an insert shows this record to its caller.
        Mode::Read | Mode::Insert if table.slot.is_out_of_line() && entry.cells != Cells::NONE => {
            entry.progress = Progress::Body;
        }
        Mode::Read | Mode::Insert if !consistent => entry.progress = Progress::Direct,
        Mode::Read | Mode::Insert => {
            entry.progress = Progress::Done;
            (entry.stable, entry.watched) = (true, true);
        }
    }
    Ok(())
}

/// Does the same as [`settle_found`] for a record that is not in its home bin.
#[inline(never)]
fn settle(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    (entry, table): (&mut Entry, &Table),
    consistent: bool,
) -> Result<(), AbortReason> {
    let Txn { round, tag, leases, .. } = txn;
    settle_found(access, cx, (round, *tag, leases), (&mut *entry, table), consistent)?;
    if entry.progress == Progress::Done {
        entry.payload = payload_in(access, round, entry.image, table)?;
    }
    Ok(())
}

/// Returns the layout of a table's records, if the payload of these records is not contiguous.
#[inline]
fn in_lines(table: &Table) -> Option<Lined> {
    table.slot.lined().filter(|lined| lined.lines() > 1)
}

/// Copies the payload of a record out of the record's image. Returns the place of the contiguous copy of the payload.
fn gathered(round: &mut Round, image: BufferOffset, table: &Table, lined: Lined) -> BufferOffset {
    let payload = round.reserve_lines(table.slot.payload_bytes);
    for part in lined.parts(lined.payload_at(), table.slot.payload_bytes) {
        let (from, to) = (image.plus(part.record_at), payload.plus(part.at));
        round.copy_within(from, to, part.len_bytes);
    }
    payload
}

fn settle_absent(
    access: &impl Access,
    txn: &mut Txn,
    entry: &mut Entry,
) -> Result<(), AbortReason> {
    entry.found = false;
    if entry.watched && access.keeps(Rule::ValidateReads) {
        return Err(AbortReason::VersionChanged); // the caller has already seen the record as present
    }
    entry.version = txn.lookup(entry).directory_version;
    if entry.mode == Mode::Insert {
        // The function `provide_blocks` decides which slot the new record gets.
        entry.progress = Progress::Lock;
        entry.address = Address::NULL;
        return Ok(());
    }
    entry.progress = Progress::Done;
    entry.stable = txn.lookup(entry).stable;
    let (address, version) = (txn.lookup(entry).directory, entry.version);
    let held = txn.lock_on(address).map(|lock| txn.locks[lock as usize]);
    match held.filter(|lock| lock.verb == HELD) {
        // The lock may have been granted only after the bucket was read, because a chain is read block by block.
        Some(lock) if lock.old_version != version && access.keeps(Rule::ProtectAbsent) => {
            return Err(AbortReason::IndexChanged);
        }
        Some(_) => {}
        None if access.keeps(Rule::ProtectAbsent) => {
            txn.checks.push(Check { address, version, covered: false });
        }
        None => {}
    }
    Ok(())
}

/// Notes the version of a record that was read. The version that was read must equal the version that the caller has
/// seen before.
fn show(access: &impl Access, entry: &mut Entry, version: Version) -> Result<(), AbortReason> {
    if entry.watched && entry.version != version && access.keeps(Rule::ValidateReads) {
        return Err(AbortReason::VersionChanged);
    }
    entry.version = version;
    Ok(())
}

fn absorb_direct(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    if !is_still_there(txn, entry, table) {
        relocate(cx, txn, entry, table);
        return Ok(());
    }
    let again = entry.image.plus(table.slot.slot_bytes);
    let checked = !table.slot.is_read_at_once() || !entry.body.is_null();
    let before = match table.slot.is_read_at_once() {
        true => entry.image,
        false => again.plus(16),
    };
    if checked && !same_head(&txn.round, before, again) {
        cx.note_blocking_lock(entry.address, txn.round.word(again.plus(LOCK_AT)));
        return Err(AbortReason::ReadLocked);
    }
    let payload = entry.payload;
    let body = body_of(&txn.round, table, entry.image);
    if body != entry.body {
        relocate(cx, txn, entry, table);
        return Ok(());
    }
    if body.is_null() || entry.cells == Cells::NONE {
        return settle(access, cx, txn, (entry, table), true);
    }
    settle(access, cx, txn, (entry, table), true)?;
    entry.payload = payload;
    entry.progress = Progress::Done;
    (entry.stable, entry.watched) = (true, true);
    Ok(())
}

#[inline(always)]
pub(super) fn body_of(round: &Round, table: &Table, image: BufferOffset) -> Address {
    let body = |at| Address::from_word(round.word(image.plus(at)));
    table.slot.body_at.map_or(Address::NULL, body)
}

fn absorb_direct_lock(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    match access.taken(cx, txn, (entry.lock, entry.mode)) {
        LockOutcome::Held => {}
        LockOutcome::NotYet => return Ok(()),
        LockOutcome::Refused => return Err(AbortReason::LockRefused),
    }
    let moved = body_of(&txn.round, table, entry.image) != entry.body;
    if !is_still_there(txn, entry, table) || moved {
        // The lock stays on the record that is now in this slot. The transaction releases this lock at its end,
        // together with its other locks.
        cx.cache.borrow_mut().forget(entry.table, entry.key);
        return Err(AbortReason::StaleAddress);
    }
    entry.found = true;
    let version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    show(access, entry, version)?;
    take_locked_image(txn, entry, table);
    Ok(())
}

fn absorb_lock(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    let record = access.taken(cx, txn, (entry.lock, entry.mode));
    let mut directory_granted = true;
    if entry.directory_lock != NO_LOCK {
        directory_granted = granted(cx, txn, entry.directory_lock);
    }
    match record {
        _ if !directory_granted => return Err(AbortReason::LockRefused),
        LockOutcome::Held | LockOutcome::NotYet => {}
        LockOutcome::Refused => return Err(AbortReason::LockRefused),
    }
    if entry.mode != Mode::Update {
        // The directory record is handled even before the record is locked, because other reads of this transaction
        // are compared with the directory record.
        take_directory(txn, entry, table, access.keeps(Rule::ProtectAbsent))?;
    }
    if record == LockOutcome::NotYet {
        return Ok(());
    }
    let version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    if entry.mode == Mode::Insert {
        // The version may have any counter, because the transaction has not read a slot that it chose only by its
        // fingerprint.
        if version.is_present() {
            return Err(AbortReason::IndexChanged);
        }
        keep_attached(cx, txn, entry, body_of(&txn.round, table, entry.image));
    } else {
        show(access, entry, version)?;
        let moved = body_of(&txn.round, table, entry.image) != entry.body;
        if !is_still_there(txn, entry, table) || moved {
            return Err(AbortReason::VersionChanged);
        }
    }
    take_locked_image(txn, entry, table);
    Ok(())
}

/// Handles a record that was read after the readers' lock of the record was taken.
fn absorb_shared(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    match access.taken(cx, txn, (entry.lock, entry.mode)) {
        LockOutcome::Held => {}
        LockOutcome::NotYet => return Ok(()),
        LockOutcome::Refused => return Err(AbortReason::ReadLocked),
    }
    // The transaction writes nothing under a readers' lock. If such a readers' lock is logged anyway, the record
    // under that lock stays unchanged.
    let held = std::mem::replace(&mut entry.lock, NO_LOCK);
    let version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    txn.locks[held as usize].old_version = version;
    let lock = txn.round.word(entry.image.plus(LOCK_AT));
    if access.judge(lock, txn.tag, Mode::Read) == LockState::InTheWay {
        // The lease had ended before the record was read, so the record may contain writes of an undecided
        // transaction.
        cx.note_blocking_lock(entry.address, lock);
        return Err(AbortReason::ReadLocked);
    }
    let moved = body_of(&txn.round, table, entry.image) != entry.body;
    if !is_still_there(txn, entry, table) || moved {
        relocate(cx, txn, entry, table);
        return Ok(());
    }
    entry.found = true;
    let version = |at: BufferOffset| Version::from_word(txn.round.word(at.plus(VERSION_AT)));
    let seen = version(entry.image);
    let slot_bytes = table.slot.slot_bytes;
    if !table.slot.is_read_at_once() && version(entry.image.plus(slot_bytes)) != seen {
        return Err(AbortReason::VersionChanged);
    }
    show(access, entry, seen)?;
    entry.progress = Progress::Done;
    if entry.body.is_null() || entry.cells == Cells::NONE {
        entry.payload = payload_in(access, &mut txn.round, entry.image, table)?;
    }
    // The lease may have ended after some lines of the record were read, and before the other lines were read.
    (entry.stable, entry.watched) = (table.slot.is_read_at_once() && entry.body.is_null(), true);
    Ok(())
}

/// Handles a payload that is stored outside its slot. Accepts the payload if the record was not locked and did not
/// change while the payload was read.
fn absorb_body(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
) -> Result<(), AbortReason> {
    let lock = txn.round.word(entry.image.plus(LOCK_AT));
    match access.judge_again(LockKind::Record, lock, txn.tag, entry.mode) {
        LockState::Free | LockState::Marked => {}
        LockState::Taken => return Err(AbortReason::ReadLocked),
        LockState::InTheWay => {
            cx.note_blocking_lock(entry.address, lock);
            return Err(AbortReason::ReadLocked);
        }
    }
    let version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    if version != entry.version {
        return Err(AbortReason::VersionChanged);
    }
    entry.progress = Progress::Done;
    (entry.stable, entry.watched) = (true, true);
    Ok(())
}

/// Handles the image of a locked record. The image is current, because the transaction held the lock when it read the
/// image. The function copies the image, so that the old bytes remain for the undo log.
fn take_locked_image(txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    let inserted = entry.mode == Mode::Insert;
    txn.locks[entry.lock as usize].old_version = version;
    if !inserted {
        entry.version = version; // an insert keeps its directory record's version, which shows the key absent
    }
    entry.progress = Progress::Done;
    entry.watched = false; // now the lock protects the record
    if let Some(lined) = in_lines(table) {
        entry.old_payload = gathered(&mut txn.round, entry.image, table, lined);
        entry.payload = txn.round.reserve_lines(table.slot.payload_bytes);
        let (old, new, len) = (entry.old_payload, entry.payload, table.slot.payload_bytes);
        match inserted {
            true => txn.round.bytes_mut(new, len).fill(0),
            false => txn.round.copy_within(old, new, len),
        }
        return;
    }
    if !table.slot.is_out_of_line() {
        let copy = txn.round.reserve_lines(table.slot.slot_bytes);
        if inserted {
            txn.round.bytes_mut(copy, table.slot.slot_bytes).fill(0);
        } else {
            txn.round.copy_within(entry.image, copy, table.slot.slot_bytes);
        }
        entry.payload = copy.plus(table.slot.payload_at);
        return;
    }
    let body_bytes = table.slot.body_bytes();
    let copy = txn.round.reserve_lines(body_bytes);
    if inserted {
        txn.round.bytes_mut(copy, body_bytes).fill(0);
    } else {
        let old = entry.payload;
        table.for_each_run(entry.cells, LINE_BYTES, |from, to| {
            let to = to.min(body_bytes);
            txn.round.copy_within(old.plus(from), copy.plus(from), to - from);
        });
        entry.old_payload = old;
    }
    entry.payload = copy;
}
