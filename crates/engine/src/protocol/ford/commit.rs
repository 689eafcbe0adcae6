//! FORD's commit: validate, write, acknowledge, unlock.
//!
//! Invariants: no data are written before validation has passed with all locks held; at each node
//! the undo log precedes the data; no lock is released before every replica has acknowledged its
//! data, or has it in the same batch before; an abort releases exactly what was granted.

use super::execute::for_each_run;
use super::{Ford, On, Phase, enter, published};
use crate::catalog::Table;
use crate::context::Context;
use crate::layout::{KEY_AT, LOCK_AT, VERSION_AT, Version};
use crate::log;
use crate::outcome::{AbortReason, Explanation, Failure};
use crate::working_set::{Entry, LockKind, Mode, NO_LOCK, Piece, Txn};
use tarn_fabric::address::{Address, GroupId, LINE_BYTES, Target};
use tarn_fabric::round::{BufferOffset, Round, VERB_BYTES_MAX};

/// So many records read by one transaction are still near when it validates them.
const WARM_CHECKS: usize = 64;

/// Commits the transaction; see the module's text for what is awaited.
pub(super) async fn commit(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.is_read_only() {
        return validate(ford, cx, txn).await;
    }
    prepare(ford, cx, txn)?;
    settle_unlocks(cx, txn).await;
    if !ford.on(On::FuseLog) {
        log_apart(ford, cx, txn).await?;
    }
    if ford.on(On::WriteAfterValidation) {
        validate(ford, cx, txn).await?;
        write(ford, cx, txn).await?;
    } else {
        write(ford, cx, txn).await?;
        validate(ford, cx, txn).await?;
    }
    if !txn.locks.is_empty() {
        unlock(ford, cx, txn);
    }
    Ok(())
}

/// Whether everything that a read-only transaction saw was seen by one consistent READ.
#[inline]
pub(super) fn is_committed(txn: &Txn) -> bool {
    txn.is_read_only()
        && match &txn.entries[..] {
            [] => true,
            // Not if it was seen absent and then there.
            [only] => only.stable && txn.checks.len() + usize::from(only.watched) <= 1,
            _ => false,
        }
}

/// Re-reads LOCK and VERSION of everything that was read and not locked.
#[inline]
async fn validate(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let nothing = txn.checks.is_empty() && !txn.entries.iter().any(|entry| entry.watched);
    if nothing || !ford.on(On::ValidateReads) {
        return Ok(());
    }
    let Txn { round, entries, checks, tag, .. } = txn;
    let groups = &cx.database().groups;
    round.begin();
    let watched = || entries.iter().filter(|entry| entry.watched);
    let directories = || checks.iter().filter(|check| !check.covered);
    let first = round.reserve(16 * (entries.len() + checks.len()));
    let mut again = first;
    for address in watched().map(|it| it.address).chain(directories().map(|it| it.address)) {
        round.read_into(groups.primary(address), again, 16);
        again = again.plus(16);
    }
    if round.is_empty() {
        return Ok(());
    }
    enter(cx, Phase::Validate);
    if entries.len() + checks.len() <= WARM_CHECKS {
        round.hot();
    }
    cx.port.execute(round).await?;
    let mut again = first;
    for version in watched().map(|it| it.version).chain(directories().map(|it| it.version)) {
        let lock = round.word(again.plus(LOCK_AT));
        if lock != 0 && lock != tag.word() && ford.on(On::RefuseLocked) {
            return Err(AbortReason::ValidationLocked.into());
        }
        if round.word(again.plus(VERSION_AT)) != version.word() {
            return Err(AbortReason::VersionChanged.into());
        }
        again = again.plus(16);
    }
    Ok(())
}

/// Decides the new versions and gathers the bytes to write.
fn prepare(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    // The entries step aside, so that each can be read beside the rest of the transaction.
    let mut entries = std::mem::take(&mut txn.entries);
    for entry in entries.iter_mut().filter(|entry| entry.lock != NO_LOCK) {
        let table = cx.table(entry.table);
        match entry.mode {
            Mode::Insert if entry.void => {
                give_back_body(cx, txn, entry.body);
                // It may have made the bucket's chain longer.
                raise_directory(txn, entry.directory_lock, Version::NEVER);
            }
            Mode::Update if entry.dirty.0 != 0 => prepare_update(ford, txn, entry, table),
            Mode::Insert => prepare_insert(txn, entry, table),
            Mode::Delete => prepare_delete(txn, entry),
            Mode::Update | Mode::Read => {}
        }
        entry.new_version = txn.locks[entry.lock as usize].new_version;
    }
    txn.entries = entries;
    for index in 0..txn.locks.len() {
        let lock = txn.locks[index];
        if !lock.writes {
            // Held, not written: the log says so by naming one version twice.
            txn.locks[index].new_version = lock.old_version;
        } else if lock.kind == LockKind::Directory {
            version_piece(txn, lock.address, lock.old_version, lock.new_version);
        }
    }
    let Txn { groups, pieces, .. } = txn;
    for piece in pieces.iter() {
        if !groups.contains(&piece.address.group()) {
            groups.push(piece.address.group());
        }
    }
    let (len, limit) = (log::encoded_bytes(txn), cx.database().catalog.options().log_bytes);
    if len as u64 > limit {
        let allowed = format!("at most {limit} bytes (log_bytes)");
        let field = "undo images of one transaction, bytes";
        return Err(cx.explain(Explanation::usage(field, len, &allowed)));
    }
    Ok(())
}

/// The body provided for an insert that was taken back.
fn give_back_body(cx: &Context, txn: &mut Txn, body: Address) {
    if let Some(index) = txn.allocated.iter().position(|&(address, _)| address == body) {
        let (address, bytes) = txn.allocated.swap_remove(index);
        cx.give_back(address, bytes);
    }
}

fn prepare_update(ford: &Ford, txn: &mut Txn, entry: &Entry, table: &Table) {
    let old_version = entry.version;
    let new_version = old_version.present_after(Version::NEVER);
    set_new_version(txn, entry.lock, new_version);
    if table.slot.is_out_of_line() {
        let Txn { pieces, .. } = txn;
        for_each_run(table, entry.dirty, 1, |from, to| {
            pieces.push(Piece {
                address: entry.body.plus(from),
                new: entry.payload.plus(from),
                old: entry.old_payload.plus(from),
                len_bytes: (to - from) as u32,
                logged: true,
            });
        });
        // Last: where the new VERSION is, all of the record is.
        version_piece(txn, entry.address, old_version, new_version);
        return;
    }
    // VERSION, KEY and payload lie together, up to the last changed byte.
    let copy = BufferOffset(entry.payload.0 - table.slot.payload_at as u32);
    txn.round.set_word(copy.plus(VERSION_AT), new_version.word());
    let last = 63 - entry.dirty.0.leading_zeros() as usize;
    let column = &table.schema.columns[last];
    let changed = table.slot.payload_at + column.offset_bytes + column.column_type.width_bytes();
    let end = if ford.on(On::WriteChangesOnly) { changed } else { table.slot.slot_bytes };
    slot_pieces(txn, entry, copy, (VERSION_AT, end), true);
}

/// Bytes `from..to` of a slot, whose new image is at `new`: its later lines first, the line with
/// VERSION last and whole, so that where the new VERSION is, all of the record is.
fn slot_pieces(
    txn: &mut Txn,
    entry: &Entry,
    new: BufferOffset,
    (from, to): (usize, usize),
    later_logged: bool,
) {
    let first_end = to.min(LINE_BYTES);
    for (from, to, logged) in [(first_end, to, later_logged), (from, first_end, true)] {
        if to > from {
            txn.pieces.push(Piece {
                address: entry.address.plus(from),
                new: new.plus(from),
                old: entry.image.plus(from),
                len_bytes: (to - from) as u32,
                logged,
            });
        }
    }
}

fn prepare_insert(txn: &mut Txn, entry: &Entry, table: &Table) {
    let slot = &table.slot;
    let directory = txn.locks[entry.directory_lock as usize];
    let new_version = entry.version.present_after(directory.old_version);
    set_new_version(txn, entry.lock, new_version);
    raise_directory(txn, entry.directory_lock, Version::NEVER);
    let head = match slot.body_at {
        None => BufferOffset(entry.payload.0 - slot.payload_at as u32),
        Some(body_at) => {
            let head = txn.round.reserve_lines(slot.slot_bytes);
            txn.round.set_word(head.plus(body_at), entry.body.to_word());
            txn.pieces.push(Piece {
                address: entry.body,
                new: entry.payload,
                old: entry.payload,
                len_bytes: slot.payload_bytes as u32,
                logged: false,
            });
            head
        }
    };
    txn.round.set_word(head.plus(VERSION_AT), new_version.word());
    txn.round.set_word(head.plus(KEY_AT), entry.key);
    txn.round.copy_within(entry.full_key, head.plus(slot.full_key_at), slot.full_key_bytes);
    // What a slot without a record held does not matter, but its VERSION and KEY do.
    slot_pieces(txn, entry, head, (VERSION_AT, slot.used_bytes()), false);
}

fn prepare_delete(txn: &mut Txn, entry: &Entry) {
    let new_version = entry.version.absent_after();
    set_new_version(txn, entry.lock, new_version);
    version_piece(txn, entry.address, entry.version, new_version);
    raise_directory(txn, entry.directory_lock, new_version);
}

fn set_new_version(txn: &mut Txn, lock: u32, version: Version) {
    let lock = &mut txn.locks[lock as usize];
    lock.new_version = version;
    lock.writes = true;
}

/// A bucket that gains or loses a record gets a VERSION above its own and above `floor`.
fn raise_directory(txn: &mut Txn, lock: u32, floor: Version) {
    let lock = &mut txn.locks[lock as usize];
    let raised = lock.old_version.present_after(floor);
    if !lock.writes || raised.counter() > lock.new_version.counter() {
        lock.new_version = raised;
    }
    lock.writes = true;
}

fn version_piece(txn: &mut Txn, record: Address, old: Version, new: Version) {
    let words = txn.round.reserve(16);
    txn.round.set_word(words, new.word());
    txn.round.set_word(words.plus(8), old.word());
    let (new, old) = (words, words.plus(8));
    let address = record.plus(VERSION_AT);
    txn.pieces.push(Piece { address, new, old, len_bytes: 8, logged: true });
}

/// The published form: the undo log in a round of its own, to the replicas of every group or of one.
async fn log_apart(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    enter(cx, Phase::LogApart);
    txn.round.begin();
    let (entry, len) = log::encode(txn);
    let groups = if ford.on(On::LogEveryGroup) { txn.groups.len() } else { 1 };
    for &group in txn.groups.iter().take(groups) {
        let area = cx.database().catalog.log(group, txn.coordinator);
        for target in cx.database().groups.all(area) {
            add_log(&mut txn.round, target, entry, len);
        }
    }
    cx.port.execute(&mut txn.round).await?;
    Ok(())
}

/// The log area is used again only when the locks of all earlier transactions are gone. A node that
/// failed to release them has lost them.
#[inline]
async fn settle_unlocks(cx: &Context, txn: &mut Txn) {
    while let Some(unlocking) = txn.unlocking.pop() {
        let _ = cx.port.settle(unlocking).await;
    }
}

/// Undo log and data to every replica, each node's in one batch; from here on the outcome is what
/// the memory says.
async fn write(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.pieces.is_empty() {
        return Ok(());
    }
    enter(cx, Phase::Write);
    let log = if ford.on(On::FuseLog) { Some(log::encode(txn)) } else { None };
    txn.in_doubt = true;
    if !ford.on(On::UnlockLate) {
        return write_and_unlock_early(cx, txn, log).await;
    }
    txn.round.begin();
    let mut near = true;
    for index in 0..txn.groups.len() {
        let group = txn.groups[index];
        near &= cx.database().groups.replicas(group) == 1;
        if !ford.on(On::LockAtPrimary) {
            published::mark(cx, txn, group);
        }
        add_data(cx, txn, group, log, |_| true);
    }
    if !ford.on(On::WriteChangesOnly) {
        published::flush(cx, txn);
    }
    if near {
        // The only copies are the ones just read under the locks.
        txn.round.hot();
    }
    let alone = ford.on(On::WriteAfterValidation)
        && ford.on(On::LockAtPrimary)
        && is_on_one_node(cx, txn);
    if alone {
        enter(cx, Phase::UnlockWithData);
        add_unlocks_after_data(cx, txn);
    } else if near {
        txn.round.followed();
    }
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    if alone {
        txn.locks.clear();
    }
    Ok(())
}

/// Whether everything that the transaction writes or locks has one copy, all on one node: then its
/// locks can be released in the data's batch, after the data. No replica's acknowledgement is
/// awaited because there is none.
fn is_on_one_node(cx: &Context, txn: &Txn) -> bool {
    let [group] = txn.groups[..] else { return false };
    cx.database().groups.replicas(group) == 1
        && txn.locks.iter().all(|lock| lock.address.group() == group)
}

/// By WRITE, which only the holder does: if it comes late, so do the data before it, and whoever
/// took the transaction for dead had fenced its owner first.
fn add_unlocks_after_data(cx: &Context, txn: &mut Txn) {
    let Txn { round, locks, .. } = txn;
    let free = round.reserve(8);
    round.set_word(free, 0);
    for lock in locks.iter().filter(|lock| lock.granted) {
        round.write(cx.database().groups.primary(lock.address).plus(LOCK_AT), free, 8);
    }
}

#[cold]
fn unknown(cx: &Context, txn: &Txn) -> Failure {
    cx.explain(Explanation::Unknown(txn.tag))
}

/// Adds the log entry for one node, in as many WRITEs as it takes; its checksum tells a torn one.
fn add_log(round: &mut Round, area: Target, entry: BufferOffset, len: usize) {
    for from in (0..len).step_by(VERB_BYTES_MAX) {
        let part = VERB_BYTES_MAX.min(len - from);
        round.write_private(area.plus(from), entry.plus(from), part);
    }
}

/// Adds one group's log and data, to the replicas (by position) that `choose` names.
fn add_data(
    cx: &Context,
    txn: &mut Txn,
    group: GroupId,
    log: Option<(BufferOffset, usize)>,
    choose: impl Fn(usize) -> bool,
) {
    let database = cx.database();
    let area = database.catalog.log(group, txn.coordinator);
    let replicas = database.groups.replicas(group);
    for position in (0..replicas).filter(|&position| choose(position)) {
        if let Some((entry, len)) = log {
            add_log(&mut txn.round, database.groups.replica(area, position), entry, len);
        }
        let Txn { round, pieces, .. } = txn;
        for piece in pieces.iter().filter(|piece| piece.address.group() == group) {
            let target = database.groups.replica(piece.address, position);
            round.write(target, piece.new, piece.len_bytes as usize);
        }
    }
}

/// The published form: data and unlock in one batch at the primary, the backups not awaited. Here
/// the backups' batch comes after the primary's, which is one of the orders in which they may land.
async fn write_and_unlock_early(
    cx: &Context,
    txn: &mut Txn,
    log: Option<(BufferOffset, usize)>,
) -> Result<(), Failure> {
    txn.round.begin();
    for index in 0..txn.groups.len() {
        add_data(cx, txn, txn.groups[index], log, |position| position == 0);
    }
    add_unlocks(cx, txn);
    enter(cx, Phase::Unlock);
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    txn.round.begin();
    for index in 0..txn.groups.len() {
        add_data(cx, txn, txn.groups[index], log, |position| position > 0);
    }
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    txn.locks.clear();
    Ok(())
}

/// Releases every granted lock; nobody waits for it.
fn unlock(ford: &Ford, cx: &Context, txn: &mut Txn) {
    enter(cx, Phase::Unlock);
    txn.round.begin();
    match ford.on(On::LockAtPrimary) {
        true => add_unlocks(cx, txn),
        false => published::clear(cx, txn),
    }
    post_release(cx, txn);
}

/// Posts the round that releases locks; a node that does not answer must not keep others locked.
fn post_release(cx: &Context, txn: &mut Txn) {
    let posted = cx.port.post_detached(&mut txn.round);
    let one_by_one = posted.is_err() && txn.locks.len() > 1;
    txn.unlocking.extend(posted);
    while let Some(lock) = txn.locks.pop().filter(|_| one_by_one) {
        let target = cx.database().groups.primary(lock.address);
        txn.round.begin();
        txn.round.cas(target.plus(LOCK_AT), txn.tag.word(), 0);
        let _ = cx.port.post_detached(&mut txn.round);
    }
    txn.locks.clear();
}

fn add_unlocks(cx: &Context, txn: &mut Txn) {
    let Txn { round, locks, tag, .. } = txn;
    for lock in locks.iter().filter(|lock| lock.granted) {
        let target = cx.database().groups.primary(lock.address);
        round.cas(target.plus(LOCK_AT), tag.word(), 0);
    }
}

/// Rolls back: gives up locks and blocks. Nothing was written. Does not wait for anything, so that
/// it can also run when a transaction's future is dropped.
pub(super) fn release(ford: &Ford, cx: &Context, txn: &mut Txn) {
    while let Some((address, bytes)) = txn.allocated.pop() {
        cx.give_back(address, bytes);
    }
    let none = !txn.locks.iter().any(|lock| lock.granted);
    if none || !ford.on(On::ReleaseOnAbort) {
        return;
    }
    enter(cx, Phase::Release);
    txn.round.begin();
    if ford.on(On::ReleaseGranted) {
        add_unlocks(cx, txn);
    } else {
        let zero = txn.round.reserve(8);
        txn.round.set_word(zero, 0);
        for lock in &txn.locks {
            txn.round.write(cx.database().groups.primary(lock.address), zero, 8);
        }
    }
    // A node that does not answer has lost the lock, or keeps it for recovery.
    post_release(cx, txn);
}
