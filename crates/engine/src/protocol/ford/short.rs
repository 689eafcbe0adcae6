//! FORD's commit of short updates made short: undo log, data and release in one pass.
//!
//! Invariant: what is sent is what [`super::commit`] would send, in the same order: the log, then
//! every record's data, then the releases. It applies where every lock is on a record of one line
//! that is updated in place ([`super::home`] took it in), and all of them have their only copy on
//! one node. A changed record is logged and written from VERSION to the end of its row.

use super::commit::add_release;
use super::{Ford, On, Phase, enter};
use crate::context::Context;
use crate::layout::{VERSION_AT, Version};
use crate::log::EntryWriter;
use crate::working_set::{NO_LOCK, Txn};
use tarn_fabric::round::{BufferOffset, VERB_BYTES_MAX};

/// Most of a log entry that one lock takes: the record, its piece's header, its old bytes.
const LOCK_LOG_BYTES: usize = 24 + 16 + 56;

/// Whether the transaction's commit is a short one.
pub(super) fn applies(ford: &Ford, cx: &Context, txn: &Txn) -> bool {
    let [first, ..] = &txn.locks[..] else { return false };
    let (database, group) = (cx.database(), first.address.group());
    let room = (database.catalog.options().log_bytes as usize).min(VERB_BYTES_MAX);
    txn.short_locks == txn.locks.len()
        && txn.locks.len() * LOCK_LOG_BYTES < room - LOCK_LOG_BYTES
        && database.groups.replicas(group) == 1
        && txn.locks.iter().all(|lock| lock.address.group() == group)
        && txn.pieces.is_empty()
        && [On::FuseLog, On::UnlockLate, On::WriteAfterValidation].iter().all(|&it| ford.on(it))
}

/// Decides the new versions and adds the log, the data and the releases. Whether anything is
/// written: if not, the locks are to be released alone.
pub(super) fn plan(cx: &Context, txn: &mut Txn) -> bool {
    let Txn { entries, round, locks, tag, coordinator, .. } = &mut *txn;
    let locked = || entries.iter().filter(|entry| entry.lock != NO_LOCK);
    let (mut changed, mut old_bytes) = (0, 0);
    for entry in locked().filter(|entry| entry.dirty.0 != 0) {
        changed += 1;
        old_bytes += cx.table(entry.table).slot.used_bytes().next_multiple_of(8) - VERSION_AT;
    }
    if changed == 0 {
        return false;
    }
    enter(cx, Phase::Write);
    enter(cx, Phase::UnlockWithData);
    round.begin();
    let mut log = EntryWriter::begin(round, locks.len(), changed, old_bytes);
    let group = locks[0].address.group();
    let area = cx.database().catalog.log(group, *coordinator);
    round.write_private(cx.database().groups.primary(area), log.at(), log.len_bytes());
    for entry in entries.iter_mut().filter(|entry| entry.lock != NO_LOCK) {
        let lock = &mut locks[entry.lock as usize];
        if entry.dirty.0 == 0 {
            (lock.new_version, entry.new_version) = (lock.old_version, lock.old_version);
            log.record(round, lock);
            continue;
        }
        let slot = &cx.table(entry.table).slot;
        let new_version = entry.version.present_after(Version::NEVER);
        (lock.new_version, entry.new_version) = (new_version, new_version);
        log.record(round, lock);
        let len = slot.used_bytes() - VERSION_AT;
        log.piece(round, entry.address.plus(VERSION_AT), entry.image.plus(VERSION_AT), len);
        let data = BufferOffset(entry.payload.0 - slot.payload_at as u32).plus(VERSION_AT);
        round.set_word(data, new_version.word());
        round.write(cx.database().groups.primary(entry.address).plus(VERSION_AT), data, len);
    }
    log.end(round, *tag);
    add_release(cx, round, locks);
    true
}
