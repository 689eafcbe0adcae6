//! FORD's execute phase: find, lock and read the records of a block.
//!
//! Invariant: all answers of a round are taken in before any of them aborts the transaction, so
//! that it is known which locks were granted. A record that will be written is locked, and read
//! again in the same batch after its lock; what was read before the lock only told where it lies.

use super::{Ford, On, Phase, enter, home};
use crate::catalog::Table;
use crate::context::Context;
use crate::index::growth::Shard;
use crate::index::hash::{Answer, Geometry, Lookup, Wanted, same_head};
use crate::layout::{
    DIRECTORY_BYTES, DIRECTORY_NEXT_AT, KEY_AT, LOCK_AT, VERSION_AT, Version,
};
use crate::outcome::{AbortReason, Explanation, Failure};
use crate::schema::{Cells, ColumnId};
use crate::working_set::{
    Check, Entry, Lock, LockKind, Mode, NO_LOCK, Piece, Progress, Txn,
};
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::{BufferOffset, VerbIndex};

/// Fetches every entry that is not fetched yet.
pub(super) async fn fetch(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.mistaken {
        return Err(Failure::Usage);
    }
    if let Some(failure) = txn.failed {
        return Err(again_after(cx, txn, failure));
    }
    // What holds should this future be dropped.
    txn.failed = Some(Failure::Usage);
    let outcome = loop {
        if txn.fetched == txn.entries.len() {
            break Ok(());
        }
        plan(cx, txn);
        if let Err(error) = cx.port.execute(&mut txn.round).await {
            suspect_all_locks(txn);
            break Err(error.into());
        }
        if let Err(failure) = absorb(ford, cx, txn) {
            break Err(failure);
        }
        if wants_blocks(txn)
            && let Err(failure) = provide_blocks(cx, txn).await
        {
            break Err(failure);
        }
    };
    txn.failed = outcome.err();
    outcome
}

/// The caller went on after a fetch that failed, or that it gave up: the transaction can only end.
#[cold]
fn again_after(cx: &Context, txn: &mut Txn, failure: Failure) -> Failure {
    suspect_all_locks(txn);
    if failure != Failure::Usage {
        return failure;
    }
    let allowed = "after a fetch that was dropped a transaction can only end";
    cx.explain(Explanation::usage("fetch", "one more", allowed))
}

/// Adds the next verbs of every entry that is not fetched yet.
#[inline(always)]
fn plan(cx: &Context, txn: &mut Txn) {
    txn.round.begin();
    let mut warm = true;
    for index in txn.fetched..txn.entries.len() {
        let entry = &mut txn.entries[index];
        if entry.progress == Progress::Locate {
            enter(cx, Phase::Locate);
            warm = false;
            let table = cx.table(entry.table);
            entry.lookup.plan(cx.surroundings(), table, &mut txn.round);
        } else if !home::plan_lock(cx, txn, index) {
            warm &= plan_known(cx, txn, index);
        }
    }
    if warm {
        // Everything was read a moment ago: lock it before others run.
        txn.round.hot();
    }
}

/// Adds the next verbs of an entry whose place is known; returns whether its lines are warm.
#[inline(never)]
fn plan_known(cx: &Context, txn: &mut Txn, index: usize) -> bool {
    // The entries step aside, so that one can be changed beside the rest of the transaction.
    let mut entries = std::mem::take(&mut txn.entries);
    let entry = &mut entries[index];
    let table = cx.table(entry.table);
    let mut warm = false;
    match entry.progress {
        Progress::Done => warm = true,
        Progress::Locate => unreachable!("planned by its caller"),
        Progress::Direct => plan_direct(cx, txn, entry, table),
        Progress::Lock => {
            warm = !table.slot.is_out_of_line();
            plan_lock(cx, txn, entry, table);
        }
        Progress::Body => {
            enter(cx, Phase::ReadBody);
            plan_body(cx, txn, entry, table);
            let head = cx.database().groups.primary(entry.address);
            entry.image = txn.round.read(head, 16);
        }
    }
    txn.entries = entries;
    warm
}

/// The record at a remembered address: with its lock if it is to be written.
fn plan_direct(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let target = cx.database().groups.primary(entry.address);
    if entry.only_reads() {
        enter(cx, Phase::ReadDirect);
        let slot_bytes = table.slot.slot_bytes;
        entry.image = txn.round.reserve_lines(slot_bytes + 32);
        if !table.slot.is_one_line() {
            // The lines of one READ come in any order: the head must come before them.
            txn.round.read_into(target, entry.image.plus(slot_bytes + 16), 16);
        }
        txn.round.read_into(target, entry.image, slot_bytes);
        if !entry.body.is_null() {
            plan_body(cx, txn, entry, table);
        }
        if !table.slot.is_one_line() || !entry.body.is_null() {
            txn.round.read_into(target, entry.image.plus(slot_bytes), 16);
        }
    } else {
        enter(cx, Phase::LockDirect);
        plan_record_lock(cx, txn, entry, table);
    }
}

/// The lock, then the record: in one batch, so that the record is read under the lock.
fn plan_record_lock(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let target = cx.database().groups.primary(entry.address);
    entry.lock = match txn.lock_on(entry.address) {
        Some(held) => held,
        None => ask(cx, txn, entry.address, LockKind::Record),
    };
    entry.image = txn.round.read(target, table.slot.slot_bytes);
    if !entry.body.is_null() && entry.mode != Mode::Insert {
        plan_body(cx, txn, entry, table);
    }
}

fn plan_lock(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    enter(cx, Phase::Lock);
    if entry.mode != Mode::Update {
        let directory = entry.lookup.directory;
        if let Some(held) = txn.lock_on(directory) {
            entry.directory_lock = held;
        } else {
            enter(cx, Phase::LockDirectory);
            entry.directory_lock = ask(cx, txn, directory, LockKind::Directory);
        }
        let target = cx.database().groups.primary(directory);
        entry.lookup.directory_image = txn.round.read(target, DIRECTORY_BYTES);
    }
    plan_record_lock(cx, txn, entry, table);
}

/// Asks for a lock that the transaction does not hold.
#[inline]
pub(super) fn ask(cx: &Context, txn: &mut Txn, address: Address, kind: LockKind) -> u32 {
    let target = cx.database().groups.primary(address);
    let verb = txn.round.cas(target.plus(LOCK_AT), 0, txn.tag.word());
    let index = txn.locks.len() as u32;
    txn.locks.push(Lock {
        address,
        kind,
        granted: false,
        writes: false,
        old_version: Version::NEVER,
        new_version: Version::NEVER,
        verb,
    });
    index
}

/// READs the lines of the wanted cells of a payload that lies apart.
fn plan_body(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let target = cx.database().groups.primary(entry.body);
    let body_bytes = table.slot.body_bytes();
    entry.payload = txn.round.reserve_lines(body_bytes);
    for_each_run(table, entry.cells, LINE_BYTES, |from, to| {
        let to = to.min(body_bytes);
        txn.round.read_into(target.plus(from), entry.payload.plus(from), to - from);
    });
}

/// Calls `run(from, to)` for the byte ranges of the payload that `cells` cover, widened to
/// multiples of `unit` and merged where they touch.
pub(super) fn for_each_run(
    table: &Table,
    cells: Cells,
    unit: usize,
    mut run: impl FnMut(usize, usize),
) {
    let columns = &table.schema.columns;
    if columns.len() == 64 || cells.0 & ((1 << columns.len()) - 1) == (1 << columns.len()) - 1 {
        let whole = table.slot.payload_bytes.next_multiple_of(unit);
        return if whole > 0 { run(0, whole) };
    }
    let (mut from, mut to) = (0, 0);
    for (index, column) in columns.iter().enumerate() {
        if !cells.contains(ColumnId(index as u8)) {
            continue;
        }
        let start = column.offset_bytes / unit * unit;
        let end =
            (column.offset_bytes + column.column_type.width_bytes()).next_multiple_of(unit);
        if start > to {
            if to > from {
                run(from, to);
            }
            from = start;
        }
        to = end.max(to);
    }
    if to > from {
        run(from, to);
    }
}

/// Takes in everything that the round brought; the first reason to abort is returned when all
/// grants are known.
#[inline(always)]
fn absorb(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if !txn.locks.is_empty() {
        take_grants(ford, txn);
    }
    let mut verdict = Ok(());
    let mut all_before_done = true;
    for index in txn.fetched..txn.entries.len() {
        let short = match txn.entries[index].progress {
            Progress::Locate => home::absorb_home(cx, txn, index),
            Progress::Lock => home::absorb_locked(cx, txn, index),
            _ => false,
        };
        if !short {
            verdict = verdict.and(absorb_entry(ford, cx, txn, index));
        }
        all_before_done &= txn.entries[index].progress == Progress::Done;
        if all_before_done {
            txn.fetched = index + 1;
        }
    }
    Ok(verdict?)
}

#[inline(never)]
fn absorb_entry(
    ford: &Ford,
    cx: &Context,
    txn: &mut Txn,
    index: usize,
) -> Result<(), AbortReason> {
    let mut entries = std::mem::take(&mut txn.entries);
    let entry = &mut entries[index];
    let table = cx.table(entry.table);
    let outcome = match entry.progress {
        Progress::Done => Ok(()),
        Progress::Locate => absorb_lookup(ford, cx, txn, entry, table),
        Progress::Direct if entry.only_reads() => absorb_direct(ford, cx, txn, entry, table),
        Progress::Direct => absorb_direct_lock(cx, txn, entry, table),
        Progress::Lock => absorb_lock(ford, cx, txn, entry, table),
        Progress::Body => absorb_body(ford, txn, entry),
    };
    txn.entries = entries;
    outcome
}

/// Notes which of the locks asked for in this round were granted.
fn take_grants(ford: &Ford, txn: &mut Txn) {
    for lock in txn.locks.iter_mut().filter(|lock| lock.verb != HELD) {
        lock.granted = txn.round.swapped(lock.verb) || !ford.on(On::ReleaseGranted);
    }
}

/// The verb of a lock whose outcome has been taken in.
pub(super) const HELD: VerbIndex = VerbIndex(u32::MAX);

fn granted(txn: &mut Txn, lock: u32) -> bool {
    let lock = &mut txn.locks[lock as usize];
    let granted = lock.verb == HELD || txn.round.swapped(lock.verb);
    if granted {
        lock.verb = HELD;
    }
    granted
}

fn absorb_lookup(
    ford: &Ford,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    let full_key = (entry.full_key.0 != 0).then_some(entry.full_key);
    let wanted = Wanted { word: entry.key, full_key, me: txn.tag.word() };
    match entry.lookup.absorb(cx.surroundings(), table, wanted, &txn.round) {
        Answer::More => Ok(()),
        Answer::Unstable => Err(AbortReason::ReadLocked),
        Answer::Found { address, image, consistent } => {
            entry.address = address;
            entry.image = image;
            entry.body = body_of(txn, table, image);
            cx.cache.borrow_mut().put(entry.table, entry.key, address, entry.body);
            settle_found(ford, txn, entry, table, consistent)
        }
        Answer::Absent => settle_absent(ford, txn, entry),
    }
}

/// A record was found, but is not locked by this transaction.
fn settle_found(
    ford: &Ford,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
    consistent: bool,
) -> Result<(), AbortReason> {
    entry.found = true;
    let lock = txn.round.word(entry.image.plus(LOCK_AT));
    if lock != 0 && lock != txn.tag.word() && ford.on(On::RefuseLocked) {
        let reading = entry.mode == Mode::Read;
        return Err(if reading { AbortReason::ReadLocked } else { AbortReason::LockRefused });
    }
    entry.version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    match entry.mode {
        Mode::Update | Mode::Delete => entry.progress = Progress::Lock,
        // An insert's caller sees what exists already.
        Mode::Read | Mode::Insert => {
            if table.slot.is_out_of_line() && entry.cells != Cells::NONE {
                entry.progress = Progress::Body;
            } else if !consistent {
                entry.progress = Progress::Direct;
            } else {
                entry.progress = Progress::Done;
            }
        }
    }
    if entry.progress == Progress::Done {
        entry.payload = entry.image.plus(table.slot.payload_at);
        entry.stable = true;
        watch(txn, entry.address, entry.version);
    }
    Ok(())
}

fn settle_absent(ford: &Ford, txn: &mut Txn, entry: &mut Entry) -> Result<(), AbortReason> {
    entry.found = false;
    entry.version = entry.lookup.directory_version;
    if entry.mode == Mode::Insert {
        // `provide_blocks` decides where it goes.
        entry.progress = Progress::Lock;
        entry.address = Address::NULL;
        return Ok(());
    }
    entry.progress = Progress::Done;
    entry.stable = entry.lookup.stable;
    // A lock asked for in this round may have come after the bucket was read.
    let lock = txn.lock_on(entry.lookup.directory);
    let held = lock.is_some_and(|lock| txn.locks[lock as usize].verb == HELD);
    if ford.on(On::ProtectAbsent) && !held {
        watch(txn, entry.lookup.directory, entry.version);
    }
    Ok(())
}

/// Validation will re-read this record.
fn watch(txn: &mut Txn, address: Address, version: Version) {
    let again = BufferOffset::default();
    txn.checks.push(Check { address, version, again, covered: false });
}

fn absorb_direct(
    ford: &Ford,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    if !is_still_there(txn, entry, table) {
        return relocate(cx, txn, entry, table);
    }
    let again = entry.image.plus(table.slot.slot_bytes);
    let checked = !table.slot.is_one_line() || !entry.body.is_null();
    let before = match table.slot.is_one_line() {
        true => entry.image,
        false => again.plus(16),
    };
    if checked && !same_head(&txn.round, before, again) {
        return Err(AbortReason::ReadLocked);
    }
    let payload = entry.payload;
    let body = body_of(txn, table, entry.image);
    if body != entry.body {
        return relocate(cx, txn, entry, table);
    }
    if body.is_null() || entry.cells == Cells::NONE {
        return settle_found(ford, txn, entry, table, true);
    }
    settle_found(ford, txn, entry, table, true)?;
    entry.payload = payload;
    entry.progress = Progress::Done;
    entry.stable = true;
    watch(txn, entry.address, entry.version);
    Ok(())
}

/// Whether the image read at a remembered address is the record that was looked for.
fn is_still_there(txn: &Txn, entry: &Entry, table: &Table) -> bool {
    let version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    if txn.round.word(entry.image.plus(KEY_AT)) != entry.key || !version.is_present() {
        return false;
    }
    let len = table.slot.full_key_bytes;
    entry.full_key.0 == 0
        || txn.round.bytes(entry.image.plus(table.slot.full_key_at), len)
            == txn.round.bytes(entry.full_key, len)
}

fn body_of(txn: &Txn, table: &Table, image: BufferOffset) -> Address {
    table.slot.body_at.map_or(Address::NULL, |at| Address::from_word(txn.round.word(image.plus(at))))
}

/// A remembered address was wrong: ask the index.
fn relocate(
    cx: &Context,
    txn: &Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    let _ = txn;
    cx.cache.borrow_mut().forget(entry.table, entry.key);
    entry.progress = Progress::Locate;
    entry.lookup = Lookup::start(cx.surroundings(), table, entry.key);
    entry.lock = NO_LOCK;
    entry.body = Address::NULL;
    Ok(())
}

fn absorb_direct_lock(
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    if !granted(txn, entry.lock) {
        return Err(AbortReason::LockRefused);
    }
    let moved = body_of(txn, table, entry.image) != entry.body;
    if !is_still_there(txn, entry, table) || moved {
        // The lock stays, on whatever lives there now: released at the end like the others.
        cx.cache.borrow_mut().forget(entry.table, entry.key);
        return Err(AbortReason::StaleAddress);
    }
    entry.found = true;
    take_locked_image(txn, entry, table);
    Ok(())
}

fn absorb_lock(
    ford: &Ford,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) -> Result<(), AbortReason> {
    let record_granted = granted(txn, entry.lock);
    let mut directory_granted = true;
    if entry.directory_lock != NO_LOCK {
        directory_granted = granted(txn, entry.directory_lock);
    }
    if !record_granted || !directory_granted {
        return Err(AbortReason::LockRefused);
    }
    if entry.mode != Mode::Update {
        absorb_directory(ford, txn, entry)?;
    }
    let version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    if entry.mode == Mode::Insert {
        if version != entry.version {
            return Err(AbortReason::IndexChanged);
        }
        keep_attached_body(cx, txn, entry, table);
    } else {
        let changed = |check: &Check| check.address == entry.address && check.version != version;
        if txn.checks.iter().any(changed) && ford.on(On::ValidateReads) {
            return Err(AbortReason::VersionChanged);
        }
        let moved = body_of(txn, table, entry.image) != entry.body;
        if !is_still_there(txn, entry, table) || moved {
            return Err(AbortReason::VersionChanged);
        }
        txn.cover(entry.address);
    }
    take_locked_image(txn, entry, table);
    Ok(())
}

/// A slot that held a record before still has that record's body: use it, and give back the one
/// that was provided.
fn keep_attached_body(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let attached = body_of(txn, table, entry.image);
    if attached.is_null() {
        return;
    }
    let provided = entry.body;
    txn.allocated.retain(|&(address, _)| address != provided);
    cx.give_back(provided, table.slot.body_bytes() as u32);
    entry.body = attached;
}

/// The payload that lies apart: was the record free and unchanged while it was read?
fn absorb_body(ford: &Ford, txn: &mut Txn, entry: &mut Entry) -> Result<(), AbortReason> {
    let lock = txn.round.word(entry.image.plus(LOCK_AT));
    if lock != 0 && lock != txn.tag.word() && ford.on(On::RefuseLocked) {
        return Err(AbortReason::ReadLocked);
    }
    let version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    if version != entry.version {
        return Err(AbortReason::VersionChanged);
    }
    entry.progress = Progress::Done;
    entry.stable = true;
    watch(txn, entry.address, entry.version);
    Ok(())
}

/// The bucket, under its lock: as it was when the record was looked for?
fn absorb_directory(ford: &Ford, txn: &mut Txn, entry: &mut Entry) -> Result<(), AbortReason> {
    let image = entry.lookup.directory_image;
    let version = Version::from_word(txn.round.word(image.plus(VERSION_AT)));
    let lock = &mut txn.locks[entry.directory_lock as usize];
    lock.old_version = version;
    let expected = entry.lookup.directory_version;
    if entry.mode == Mode::Insert && version != expected && ford.on(On::ProtectAbsent) {
        return Err(AbortReason::IndexChanged);
    }
    for check in txn.checks.iter().filter(|check| check.address == entry.lookup.directory) {
        if check.version != version && ford.on(On::ProtectAbsent) {
            return Err(AbortReason::IndexChanged);
        }
    }
    txn.cover(entry.lookup.directory);
    Ok(())
}

/// The record is locked and its image is the current one: copy it, so that the old bytes stay for
/// the undo log.
fn take_locked_image(txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    txn.locks[entry.lock as usize].old_version = version;
    entry.version = version;
    entry.progress = Progress::Done;
    let inserted = entry.mode == Mode::Insert;
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
        for_each_run(table, entry.cells, LINE_BYTES, |from, to| {
            let to = to.min(body_bytes);
            txn.round.copy_within(old.plus(from), copy.plus(from), to - from);
        });
        entry.old_payload = old;
    }
    entry.payload = copy;
}

/// Whether an insert waits for its slot.
fn wants_blocks(txn: &Txn) -> bool {
    txn.entries[txn.fetched..].iter().any(|entry| entry.mode == Mode::Insert)
}

/// Gives every insert whose key is known to be absent a slot, and a body if it needs one.
async fn provide_blocks(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    for index in txn.fetched..txn.entries.len() {
        let entry = txn.entries[index];
        if entry.mode != Mode::Insert
            || entry.progress != Progress::Lock
            || !entry.address.is_null()
        {
            continue;
        }
        let table = cx.table(entry.table);
        let chosen = entry.lookup.free.filter(|&(slot, _)| txn.lock_on(slot).is_none());
        // A slot whose record was read, and is gone since, does not count: validation will tell.
        let takes = |other: &Entry, slot| {
            other.mode == Mode::Insert && !other.found && other.address == slot
        };
        let chosen = chosen.filter(|&(slot, _)| !txn.entries.iter().any(|e| takes(e, slot)));
        let group = entry.lookup.group();
        if chosen.is_none() && entry.lookup.free.is_some() {
            // Another insert of this transaction has the slot: look again once that is locked.
            txn.entries[index].lookup.restart_at_bucket();
            txn.entries[index].progress = Progress::Locate;
            continue;
        }
        let (slot, version) = match chosen {
            Some(free) => free,
            None => extend_chain(cx, txn, index, table).await?,
        };
        let entry = &mut txn.entries[index];
        entry.address = slot;
        entry.version = version;
        if !table.geometry.contains(entry.lookup.directory, slot) {
            cx.growth.request(Shard { table: entry.table, group });
        }
        if table.slot.is_out_of_line() {
            let bytes = table.slot.body_bytes() as u32;
            let body = cx.allocate(group, bytes).await?;
            txn.entries[index].body = body;
            txn.allocated.push((body, bytes));
        }
    }
    Ok(())
}

/// The bucket's chain is full: a new block, whose first slot the insert takes. NEXT of the last
/// block is written at commit, under the directory's lock.
async fn extend_chain(
    cx: &Context,
    txn: &mut Txn,
    index: usize,
    table: &Table,
) -> Result<(Address, Version), Failure> {
    let lookup = txn.entries[index].lookup;
    let bytes = table.geometry.bucket_bytes;
    let next_at = lookup.tail.plus(DIRECTORY_NEXT_AT);
    if let Some(pending) = txn.pieces.iter().find(|piece| piece.address == next_at) {
        // This transaction has already extended this chain: take the block's next slot.
        let block = Address::from_word(txn.round.word(pending.new));
        let taken = |slot: &Address| txn.entries.iter().any(|entry| entry.address == *slot);
        let slots = (0..Geometry::SLOTS)
            .map(|slot| block.plus(DIRECTORY_BYTES + slot * table.slot.slot_bytes));
        if let Some(slot) = slots.into_iter().find(|slot| !taken(slot)) {
            return Ok((slot, Version::NEVER));
        }
        let allowed = "at most 8 inserts of one transaction into one full bucket";
        let (field, inserts) = ("inserts into one bucket", Geometry::SLOTS + 1);
        return Err(cx.explain(Explanation::usage(field, inserts, allowed)));
    }
    let block = cx.allocate(lookup.group(), bytes as u32).await?;
    txn.allocated.push((block, bytes as u32));
    let new = txn.round.reserve(8);
    let old = txn.round.reserve(8);
    txn.round.set_word(new, block.to_word());
    txn.round.set_word(old, 0);
    txn.pieces.push(Piece { address: next_at, new, old, len_bytes: 8, logged: true });
    let slot = block.plus(DIRECTORY_BYTES);
    Ok((slot, Version::NEVER))
}

/// A round failed: any lock that was asked for may have been granted. Releasing a lock that was
/// not granted does nothing: tags are unique and locks are released by CAS.
pub(super) fn suspect_all_locks(txn: &mut Txn) {
    for lock in &mut txn.locks {
        lock.granted = true;
    }
}
