//! A short code path for FORD's commit of short updates: it adds undo log, data and releases in one pass over the
//! records.
//!
//! Invariant: this file sends the same verbs as [`super::commit`] would, in the same order: the log, then every
//! record's data, then the releases. A commit takes this short path under two conditions. First, every lock is on a
//! record of one line that the transaction updates in place ([`crate::steps::access::home`] has handled its lock).
//! Second, the only copies of all these locked records lie on one node. The commit logs and writes a changed record
//! from its VERSION to the end of its row.

use super::{Ford, enter, on, phase};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described;
use crate::steps::log::encode::logged;
use crate::steps::node_locks::add_release;
use crate::transaction::working_set::{Entry, NO_LOCK, Txn};
use tarn_fabric::round::{BufferOffset, VERB_BYTES_MAX};
use tarn_store::layout::{Slot, VERSION_AT, Version};
use tarn_store::log::pieces::OldBytes;
use tarn_store::log::undo;

/// The greatest number of log bytes that one lock takes: the record, the header of its piece, and its old bytes.
const LOCK_LOG_BYTES: usize = 24 + 16 + 56;

/// The switches that the short path of the commit requires; if one of these switches is off, the commit takes the
/// ordinary path.
const SHAPE: [usize; 4] =
    [on::FUSE_LOG, on::WRITE_AFTER_VALIDATION, on::LOCK_AT_PRIMARY, on::WRITE_CHANGES_ONLY];

/// Returns whether the transaction's commit can take the short path.
pub(super) fn applies(ford: &Ford, cx: &Context, txn: &Txn) -> bool {
    let [first, ..] = &txn.locks[..] else { return false };
    let group = first.address.group();
    let room = (cx.database().catalog.options().log_bytes as usize).min(VERB_BYTES_MAX);
    txn.short_locks == txn.locks.len()
        && txn.locks.len() * LOCK_LOG_BYTES < room - LOCK_LOG_BYTES
        && cx.groups.replicas(group) == 1
        && txn.locks.iter().all(|lock| lock.address.group() == group)
        && txn.pieces.is_empty()
        && ford.keeps(Rule::UnlockLate)
        && SHAPE.iter().all(|&it| ford.switches.is_on(it))
}

/// Decides the new versions of the records, and adds the log, the data and the releases to the round. Returns whether
/// the transaction writes anything; if it writes nothing, only its locks must be released.
pub(super) fn plan(cx: &Context, txn: &mut Txn) -> bool {
    let Txn { entries, round, locks, tag, coordinator, .. } = &mut *txn;
    let catalog = &cx.database().catalog;
    let row_bytes = |entry: &Entry| row_bytes(&catalog.table(entry.table).slot);
    let (mut changed, mut old_bytes) = (0, 0);
    for entry in entries.iter_mut().filter(|entry| entry.lock != NO_LOCK) {
        let lock = &mut locks[entry.lock as usize];
        entry.new_version = entry.version;
        if entry.dirty.0 != 0 {
            entry.new_version = entry.version.present_after(Version::NEVER);
            changed += 1;
            old_bytes += row_bytes(entry);
        }
        lock.new_version = entry.new_version;
    }
    if changed == 0 {
        return false;
    }
    enter(cx, phase::WRITE);
    enter(cx, phase::UNLOCK_WITH_DATA);
    round.begin();
    let dirty = || entries.iter().filter(|entry| entry.lock != NO_LOCK && entry.dirty.0 != 0);
    let len = undo::entry_bytes(locks.len(), changed, old_bytes);
    let old = dirty().map(|entry| OldBytes {
        address: entry.address.plus(VERSION_AT),
        at: entry.image.plus(VERSION_AT),
        len_bytes: row_bytes(entry),
    });
    let log = undo::write_entry(round, *tag, locks.iter().map(logged), old, len);
    let groups = &cx.groups;
    let area = catalog.log(locks[0].address.group(), *coordinator);
    round.write_private(groups.primary(area), log, len);
    for entry in dirty() {
        let slot = &catalog.table(entry.table).slot;
        let data = BufferOffset(entry.payload.0 - slot.payload_at as u32).plus(VERSION_AT);
        round.set_word(data, entry.new_version.word());
        round.write(groups.primary(entry.address.plus(VERSION_AT)), data, row_bytes(entry));
    }
    add_release(cx, round, locks);
    true
}

/// Returns the number of bytes from a record's VERSION to the end of its row, rounded up to whole words.
#[inline]
fn row_bytes(slot: &Slot) -> usize {
    slot.used_bytes().next_multiple_of(8) - VERSION_AT
}
