//! A cache, in each compute node, of version tables of the node's own shards. With a cached table, phase E2 (reading
//! version tables) needs no round.
//!
//! Invariants: a transaction takes a table from the cache only if a READ of a version's record follows. So an
//! incarnation that was expelled, but does not know of its expulsion, may use any cached tables. The memory nodes
//! refuse the READs of an expelled incarnation before other nodes get its locks. Under a lock that this node granted,
//! the cached table equals the table that was in memory when the lock was granted. Without a lock, the cached table
//! equals the table in memory at some moment after T_start. At that moment no other transaction was between the grant
//! of its lock of the record and its end. The cache contains three kinds of version tables. First, it contains tables
//! that were read under a lock for reading. Second, it contains tables that were read without a lock. For these
//! tables, no transaction held a write lock of the bucket before the READ, and none was granted since. Third, it
//! contains tables that the holder of a write lock has decided. (Hu, Zuo, Hu, Chen, Wang, Yang, "LOTUS: Optimizing
//! Disaggregated Transactions with Disaggregated Locks", §4.4; the paper's system drops cache entries when other
//! nodes lock.)

use super::switches::{Lotus, enter, on, phase};
use super::{execute, snapshot};
use crate::services::lock::name::{LockMode, LockName, NameKind};
use crate::services::lock::versions::{Stamp, Whose};
use crate::site::Context;
use crate::transaction::working_set::{Entry, Txn};
use tarn_store::ids::{Failure, Mode};
use tarn_store::layout::{Choice, RecordLayout, Slot};
use tarn_store::schema::{Cells, TableId};

/// Returns the record's cache entry and the stamp of this moment, if this node may cache the record's version table.
/// Returns `None` if another node grants the record's locks, or if the record has no separate version table.
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

/// Takes the entry's version table from the cache, if the cache contains the table and the table leads to a version
/// that the transaction wants. Returns whether the entry's version table was taken from the cache. If the transaction
/// uses locks, it already holds the entry's lock when it calls this function.
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
            // In the paper's variant, the grant of a lock to this transaction itself drops no cache entry.
            cx.versions_unchanged(whose, now);
            now
        }
        // The lock was granted before this node owned the shard of the record.
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

/// Notes the earliest moment to which the entry's version table can belong, before the transaction reads the table
/// without a lock.
pub(super) fn before_reading(lotus: &Lotus, cx: &Context, txn: &mut Txn, index: usize) {
    let entry = txn.entries[index];
    let Some((whose, now)) = own(lotus, cx, entry.table, entry.key) else { return };
    let stamp = match lotus.switches.is_on(on::KEEP_UNCHANGED) {
        true => cx.stamp_unwritten((whose, now)),
        false => Some(now),
    };
    txn.looks.extend(stamp.map(|stamp| (index as u32, stamp)));
}

/// Caches the entry's version table, which the transaction has read without a lock or under a lock for reading.
pub(super) fn after_reading(lotus: &Lotus, cx: &Context, txn: &Txn, index: usize) {
    let entry = &txn.entries[index];
    let Some((whose, now)) = own(lotus, cx, entry.table, entry.key) else { return };
    let name = LockName::row(entry.table.0, entry.key);
    let locks = !lotus.reads_snapshot(txn, index);
    match (locks, txn.held.is_own(name)) {
        (true, Some(LockMode::Read)) => put(cx, txn, entry, (whose, now)),
        // The holder of this lock will change the table, or will release the lock without a change.
        (true, _) => {}
        (false, _) => {
            let before = txn.looks.iter().find(|look| look.0 == index as u32);
            let Some(&(_, before)) = before else { return };
            match lotus.switches.is_on(on::KEEP_UNCHANGED) {
                true if before.epoch != now.epoch => {}
                true => cx.keep_versions((whose, before), || put(cx, txn, entry, (whose, before))),
                // In the paper's variant, a transaction that got the lock in the meantime could not drop this entry,
                // because the cache did not contain it yet.
                false => put(cx, txn, entry, (whose, now)),
            }
        }
    }
}

/// Caches the version tables with the versions that this transaction has decided, while it still holds the locks.
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

/// Keeps the tables that were cached before the transaction's locks were granted, because the transaction has written
/// nothing and releases its locks.
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

/// Caches the version table in the entry's image, if all versions in this table are decided.
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
