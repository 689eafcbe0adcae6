//! Adds the records that a caller requests, and has a short code path for the most common case. The most common case
//! reads or updates a record of one line that is in its home bin.
//!
//! Invariant: no other file reads a record's home bin. This file plans the READ of a home bin as soon as the caller
//! requests the record, in the round that the next fetch sends. This file requests locks, and handles their grants,
//! only where `fetch` and `absorb` would do the same. This file handles most records of most transactions. `fetch`
//! and `absorb` handle rare cases: chains, long keys, payloads outside their slots. This file only notes home bins
//! that loads can read without a round, and [`super::near`] reads these home bins. If this transaction holds a slot's
//! lock for another key, it requests the same lock once more and is refused. The second request for the lock is
//! rightly refused, because the requested key is no longer in that slot.

use super::absorb::{body_of, settle_found};
use super::{Access, near};
use crate::cluster::rules::Phase;
use crate::site::Context;
use crate::steps::index::ask_index;
use crate::steps::node_locks::HELD;
use crate::transaction::working_set::{
    Added, Entry, Handle, Leases, NO_LOCK, Progress, Txn, Upgrade,
};
use tarn_fabric::round::Round;
use tarn_store::ids::{AbortReason, Mode, OwnerTag};
use tarn_store::index::hash::{head_at_home, home};
use tarn_store::layout::{KEY_AT, VERSION_AT, Version};
use tarn_store::placement::catalog::Table;

/// Adds a record that the transaction does not have yet.
#[inline(always)]
pub(crate) fn add(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    added: Added,
) -> Handle {
    let is_common = matches!(added.mode, Mode::Read | Mode::Update) && !cx.remembers;
    match is_common && table.slot.is_plain() {
        true => add_at_home(access, cx, txn, table, added),
        false => add_rarer(access, cx, txn, table, added),
    }
}

/// Adds a record that the next fetch searches in the record's home bin. Also plans the READ of this home bin.
#[inline(always)]
fn add_at_home(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    added: Added,
) -> Handle {
    let mut entry = Entry::new(table.id, added.key, added.mode, added.cells, Progress::Home);
    entry.address = home(cx.lookup_context(), table, added.hash);
    access.enter(cx, Phase::Locate);
    if near::notes(cx, txn, table, added.mode) {
        near::note(txn, &mut entry);
        return txn.push(entry);
    }
    if txn.noted > 0 {
        near::plan_noted(cx, txn);
    }
    let target = cx.groups.primary(entry.address);
    entry.image = txn.round.read(target, table.geometry.bin_bytes);
    txn.at_home += 1;
    txn.push(entry)
}

/// Adds a record that the next fetch reads at its cached address, or searches in its home bin or in the index.
#[inline(never)]
fn add_rarer(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    added: Added,
) -> Handle {
    let Added { key, full_key, mode, cells, .. } = added;
    let comes_or_goes = matches!(mode, Mode::Insert | Mode::Delete);
    let seen = match comes_or_goes {
        true => None,
        false => cx.cache.borrow().get(table.id, key),
    };
    if seen.is_none() && !comes_or_goes && table.slot.is_plain() {
        return add_at_home(access, cx, txn, table, added);
    }
    let mut entry = Entry::new(table.id, key, mode, cells, Progress::Locate);
    entry.full_key = full_key;
    if let Some(place) = seen {
        (entry.address, entry.body) = place;
        entry.progress = Progress::Direct;
        return txn.push(entry);
    }
    let handle = txn.push(entry);
    ask_index(cx, txn, txn.place_of(handle), comes_or_goes);
    handle
}

/// Plans a further step for a record that was already fetched. The further step reads more cells of the record in its
/// slot, locks the slot, or reads the record's bucket.
pub(crate) fn upgrade(cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
    match further {
        Upgrade::Cells => txn.entries[index].progress = Progress::Direct,
        Upgrade::Lock => txn.entries[index].progress = Progress::Lock,
        Upgrade::Index => ask_index(cx, txn, index, true),
    }
}

/// Handles the answer for the home bin of a record that the transaction wants to read or update. Returns whether the
/// record was in its home bin.
///
/// # Errors
/// Another transaction has locked the record.
#[inline(always)]
pub(super) fn absorb(
    access: &impl Access,
    cx: &Context,
    (round, tag, leases): (&Round, OwnerTag, &Leases),
    entry: &mut Entry,
) -> Result<bool, AbortReason> {
    let table = cx.table(entry.table);
    let Some((offset, _)) = head_at_home(table, entry.key, round, entry.image) else {
        return Ok(false);
    };
    (entry.address, entry.image) = (entry.address.plus(offset), entry.image.plus(offset));
    entry.body = body_of(round, table, entry.image);
    settle_found(access, cx, (round, tag, leases), (&mut *entry, table), true)?;
    if entry.progress == Progress::Done {
        entry.payload = entry.image.plus(table.slot.payload_at);
    }
    if cx.remembers {
        cx.cache.borrow_mut().put(entry.table, entry.key, entry.address, entry.body);
    }
    Ok(true)
}

#[inline(always)]
fn is_short(entry: &Entry, table: &Table) -> bool {
    entry.mode == Mode::Update && table.slot.is_plain() && !table.slot.is_out_of_line()
}

/// Adds the request for the lock and the READ of a record whose slot is known. Returns whether the entry of the
/// record needs no other verbs.
#[inline(always)]
pub(super) fn plan_lock(access: &impl Access, cx: &Context, txn: &mut Txn, index: usize) -> bool {
    let entry = &txn.entries[index];
    let (table, address) = (cx.table(entry.table), entry.address);
    if entry.lock != NO_LOCK || !is_short(entry, table) || access.locks_reads(&txn.leases) {
        return false;
    }
    access.enter(cx, Phase::Lock);
    let lock = access.lock_record(cx, txn, address);
    let image = txn.round.read(cx.groups.primary(address), table.slot.slot_bytes);
    let entry = &mut txn.entries[index];
    (entry.lock, entry.image, entry.writable) = (lock, image, true);
    true
}

/// Handles the answer for a record whose lock was requested, in the usual case. Returns whether this was the usual
/// case; otherwise the function changes nothing.
#[inline(always)]
pub(super) fn absorb_locked(cx: &Context, txn: &mut Txn, index: usize) -> bool {
    let Txn { entries, round, locks, short_locks, .. } = txn;
    let entry = &mut entries[index];
    let table = cx.table(entry.table);
    if !is_short(entry, table) || entry.watched {
        return false;
    }
    let lock = &mut locks[entry.lock as usize];
    if lock.verb == HELD || !lock.held_as.is_by_cas() || !round.swapped(lock.verb) {
        return false;
    }
    let head = *round.array::<3>(entry.image);
    let version = Version::from_word(head[VERSION_AT / 8]);
    if head[KEY_AT / 8] != entry.key || !version.is_present() {
        return false;
    }
    lock.verb = HELD;
    lock.old_version = version;
    entry.version = version;
    entry.progress = Progress::Done;
    *short_locks += 1;
    let copy = round.reserve(table.slot.slot_bytes);
    round.copy_words(entry.image, copy, table.slot.slot_bytes / 8);
    entry.payload = copy.plus(table.slot.payload_at);
    true
}
