//! The steps that FORD's public code takes at commit and ours does not: the variant `measured`, which later papers
//! measured (Hu et al., LOTUS, section 2.2, Figures 2 and 3, among them).
//!
//! For each record and replica it writes LOCK once more (locked and invisible), then the whole item. At the backups
//! of the last record it READs a byte, so that the NIC has flushed the writes before it. When all of that is
//! acknowledged, it clears LOCK at every replica by WRITE, and waits for nothing.
//!
//! Invariant: LOCK at a backup decides nothing. It is not read, and is 0 when no transaction writes. A transaction
//! that writes it holds the lock at the primary, and clears it by a later WRITE on the same connection. A late WRITE
//! of an earlier holder leaves a 0 there before its time.

use crate::site::Context;
use crate::transaction::working_set::Txn;
use tarn_fabric::address::GroupId;
use tarn_store::layout::LOCK_AT;

/// Bytes of a flush READ. The public code asks for one byte; a word costs a NIC the same.
const FLUSH_BYTES: usize = 8;

/// Adds {WRITE LOCK} for every record of `group` that is written, at every replica, in front of its
/// data.
pub(super) fn mark(cx: &Context, txn: &mut Txn, group: GroupId) {
    let Txn { round, locks, tag, .. } = txn;
    let mine = round.reserve(8);
    round.set_word(mine, tag.word());
    for lock in locks.iter().filter(|lock| lock.writes && lock.address.group() == group) {
        for target in cx.groups.whole().all(lock.address.plus(LOCK_AT)) {
            round.write(target, mine, 8);
        }
    }
}

/// Adds a READ of the last record at its backups, behind all data.
pub(super) fn flush(cx: &Context, txn: &mut Txn) {
    let Txn { round, locks, .. } = txn;
    let Some(last) = locks.iter().rfind(|lock| lock.writes) else { return };
    for target in cx.groups.whole().all(last.address).skip(1) {
        round.read(target, FLUSH_BYTES);
    }
}

/// Adds the WRITEs that clear LOCK: at every replica of a record that was written, else at its
/// primary.
pub(super) fn clear(cx: &Context, txn: &mut Txn) {
    let Txn { round, locks, .. } = txn;
    let free = round.reserve(8);
    round.set_word(free, 0);
    for lock in locks.iter().filter(|lock| lock.granted) {
        let replicas = if lock.writes { usize::MAX } else { 1 };
        for target in cx.groups.whole().all(lock.address.plus(LOCK_AT)).take(replicas) {
            round.write(target, free, 8);
        }
    }
}
