//! Version tables that the compute node remembers of its own shards: E2 without a round.
//!
//! Invariants: a table is taken from memory only where the READ of a version's record follows. So a life that is over,
//! and does not know it, may remember anything: its READs are refused before its locks are granted again. Under
//! a lock of this node's, the remembered table is the one that was there when the lock was granted. Without
//! a lock, it is the one of a moment after T_start at which no other transaction was between its lock and its end. Three kinds of
//! tables are remembered: those read under a lock for reading; those read without one, if no write of the bucket was granted since before
//! the READ, when no transaction had the lock for writing; and those that the holder of a write lock has decided. (Hu, Zuo, Hu, Chen, Wang,
//! Yang, "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks", §4.4; there entries are dropped when other nodes lock.)

use super::switches::{Lotus, enter, on, phase};
use super::{execute, snapshot};
use crate::services::lock::name::{LockMode, LockName, NameKind};
use crate::services::lock::versions::{Stamp, Whose};
use crate::site::Context;
use crate::transaction::working_set::{Entry, Txn};
use tarn_store::ids::{Failure, Mode};
use tarn_store::layout::{Choice, RecordLayout, Slot};
use tarn_store::schema::{Cells, TableId};

/// A record whose version table this node may remember, and the stamp of this moment; `None` if its locks are
/// another's, or its table leads nowhere.
fn own(lotus: &Lotus, cx: &Context, table: TableId, key: u64) -> Option<(Whose, Stamp)> {
    if !cx.node_services().versions.is_on() || !lotus.switches.is_on(on::VERSION_CACHE) {
        return None;
    }
    let of = cx.table(table);
    if !matches!(of.slot.record, RecordLayout::Cells(_)) || of.slot.full_key_bytes > 0 {
        return None;
    }
    cx.stamp_of(LockName::row(table.0, key), of.shard_of(key))
}

/// Takes the entry's table of versions from memory, if it is there and leads to a record that is wanted: whether it
/// did. Under a lock the entry's lock is held.
pub(super) fn take(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    index: usize,
) -> Result<bool, Failure> {
    let entry = txn.entries[index];
    if entry.cells == Cells::NONE || entry.mode == Mode::Insert {
        return Ok(false);
    }
    let Some((whose, now)) = own(lotus, cx, entry.table, entry.key) else { return Ok(false) };
    let locks = !lotus.reads_snapshot(txn, index);
    let wanted = match (locks, txn.held.is_own(LockName::row(entry.table.0, entry.key))) {
        (false, _) | (true, Some(LockMode::Read)) => now,
        (true, Some(LockMode::Write)) if lotus.switches.is_on(on::DROP_AT_GRANT) => {
            now.before_grant()
        }
        (true, Some(LockMode::Write)) => {
            // As published: one's own grant drops nothing.
            cx.versions_unchanged(whose, now);
            now
        }
        // The lock is of before this node had the shard.
        (true, None) => return Ok(false),
    };
    let slot = &cx.table(entry.table).slot;
    let Txn { entries, round, stamps, .. } = &mut *txn;
    let image = round.reserve_lines(slot.slot_bytes);
    let Some(address) = cx.remembered(whose, wanted, round.words_mut(image, used_words(slot)))
    else {
        return Ok(false);
    };
    let bytes = round.bytes(image, slot.slot_bytes);
    let leads_on = match locks {
        true => slot.newest_committed(bytes).is_some_and(|newest| !newest.deleted),
        false => {
            let shown = slot.choose(bytes, stamps.start, lotus.rules(), |_| false);
            matches!(shown, Choice::Version(shown) if !shown.deleted)
        }
    };
    if !leads_on {
        return Ok(false);
    }
    enter(cx, phase::CACHED);
    (entries[index].address, entries[index].image) = (address, image);
    match locks {
        true => execute::take_versions(lotus, cx, txn, index)?,
        false => {
            let undecided = snapshot::choose(lotus, cx, txn, index)?;
            debug_assert!(undecided.is_none(), "what is undecided is not remembered");
        }
    }
    Ok(true)
}

/// Notes, before the entry's table is read without a lock, of which moment it will be at least.
pub(super) fn before_reading(lotus: &Lotus, cx: &Context, txn: &mut Txn, index: usize) {
    let entry = txn.entries[index];
    let Some((whose, now)) = own(lotus, cx, entry.table, entry.key) else { return };
    let stamp = match lotus.switches.is_on(on::KEEP_UNCHANGED) {
        true => cx.stamp_unwritten((whose, now)),
        false => Some(now),
    };
    txn.looks.extend(stamp.map(|stamp| (index as u32, stamp)));
}

/// The entry's table was read, without a lock or under one for reading: it is remembered.
pub(super) fn after_reading(lotus: &Lotus, cx: &Context, txn: &Txn, index: usize) {
    let entry = &txn.entries[index];
    let Some((whose, now)) = own(lotus, cx, entry.table, entry.key) else { return };
    let name = LockName::row(entry.table.0, entry.key);
    let locks = !lotus.reads_snapshot(txn, index);
    match (locks, txn.held.is_own(name)) {
        (true, Some(LockMode::Read)) => put(cx, txn, entry, (whose, now)),
        // He will change it, or gives it up unchanged.
        (true, _) => {}
        (false, _) => {
            let before = txn.looks.iter().find(|look| look.0 == index as u32);
            let Some(&(_, before)) = before else { return };
            match lotus.switches.is_on(on::KEEP_UNCHANGED) {
                true if before.epoch != now.epoch => {}
                true => cx.keep_versions((whose, before), || put(cx, txn, entry, (whose, before))),
                // As published: a transaction that was granted the lock meanwhile dropped an entry that was not there yet.
                false => put(cx, txn, entry, (whose, now)),
            }
        }
    }
}

/// Versions are decided, under locks that are held: the tables show them.
pub(super) fn decided(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    if !cx.node_services().versions.is_on() {
        return;
    }
    for at in 0..txn.written.len() {
        let it = txn.written[at];
        let entry = txn.entries[it.entry as usize];
        let name = LockName::row(entry.table.0, entry.key);
        if it.came || entry.mode == Mode::Delete || txn.held.is_own(name) != Some(LockMode::Write) {
            continue;
        }
        let Some(own) = own(lotus, cx, entry.table, entry.key) else { continue };
        let into = entry.image.plus(usize::from(it.visible_at));
        txn.round.copy_within(it.visible, into, usize::from(it.visible_bytes));
        put(cx, txn, &entry, own);
    }
}

/// Keeps the tables that are remembered from before the transaction's grants: it gives its locks up and has written nothing.
pub(super) fn unchanged(lotus: &Lotus, cx: &Context, txn: &Txn) {
    if !cx.node_services().versions.is_on() {
        return;
    }
    for (name, mode) in txn.held.own_names() {
        if mode == LockMode::Write
            && name.kind == NameKind::Row
            && let Some((whose, now)) = own(lotus, cx, TableId(name.table), name.key)
        {
            cx.versions_unchanged(whose, now);
        }
    }
}

/// Remembers the table of the entry's image, if all of it is decided.
fn put(cx: &Context, txn: &Txn, entry: &Entry, (whose, stamp): (Whose, Stamp)) {
    let slot = &cx.table(entry.table).slot;
    if !slot.is_undecided(txn.round.bytes(entry.image, slot.slot_bytes), |_| false) {
        let words = txn.round.words(entry.image, used_words(slot));
        cx.remember(whose, stamp, entry.address, words);
    }
}

fn used_words(slot: &Slot) -> usize {
    slot.used_bytes().div_ceil(8)
}
