//! The steps that FORD's public code takes at commit, and that this implementation's commit does not take. The
//! variant `measured` takes these steps, because later papers measured the public code (Hu et al., LOTUS, section
//! 2.2, Figures 2 and 3, among them).
//!
//! For each record and replica, the public code writes LOCK once more (locked and invisible), and then writes the
//! whole item. At the backups of the record that was written last, the public code READs one byte, which makes the
//! NIC flush all earlier writes. After the acknowledgements of all these verbs, the public code clears LOCK at every
//! replica by WRITE, and does not wait for these WRITEs.
//!
//! The public code posts its log before its locks, and awaits the log only before it writes. Our log has the bytes that
//! were read under the locks, so it leaves after them. But log and validation share one round. The public code rings
//! a doorbell for each of these lists of verbs: {CAS, READ} of a record; any other READ; a log; {WRITE of LOCK, WRITE
//! of the item} at each replica; a release.
//!
//! Invariant: no decision depends on LOCK at a backup. No transaction reads LOCK at a backup, and this LOCK is 0
//! while no transaction writes the record. A transaction that writes LOCK at a backup holds the lock at the primary,
//! and clears LOCK at the backup by a later WRITE on the same connection. A late WRITE of an earlier holder may set
//! LOCK at a backup to 0 too early, which does no harm.

use super::{Ford, on};
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::{Which, absorb_validation, add_validation, is_needless};
use crate::steps::log::send::add_logs;
use crate::transaction::working_set::Txn;
use tarn_fabric::address::GroupId;
use tarn_store::ids::Failure;
use tarn_store::layout::LOCK_AT;

/// The number of bytes that a flush READ reads. The public code READs one byte; a READ of a whole word costs the NIC
/// the same.
const FLUSH_BYTES: usize = 8;

/// Adds a WRITE of LOCK, before the data, for every record of `group` that the transaction writes, at every replica.
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

/// Whether the round of the log also validates the transaction.
pub(super) fn validates_with_log(ford: &Ford, txn: &Txn) -> bool {
    !ford.switches.is_on(on::AWAIT_LOG)
        && ford.switches.is_on(on::WRITE_AFTER_VALIDATION)
        && ford.keeps(Rule::ValidateReads)
        && !is_needless(txn)
}

/// Sends the undo log to the replicas of the first `groups` groups, and validates the transaction in the same round.
pub(super) async fn log_and_validate(
    ford: &Ford,
    cx: &Context,
    txn: &mut Txn,
    groups: usize,
) -> Result<(), Failure> {
    add_logs(cx, txn, groups);
    let first = add_validation(cx, txn, Which::All);
    ford.enter(cx, Phase::Validate);
    cx.port.execute(&mut txn.round).await?;
    Ok(absorb_validation(ford, cx, txn, (first, Which::All))?)
}

/// Adds a READ of the record that was written last at its backups, after all data.
pub(super) fn flush(cx: &Context, txn: &mut Txn) {
    let Txn { round, locks, .. } = txn;
    let Some(last) = locks.iter().rfind(|lock| lock.writes) else { return };
    for target in cx.groups.whole().all(last.address).skip(1) {
        round.read(target, FLUSH_BYTES);
    }
}

/// Adds the WRITEs that clear LOCK: at every replica of a record that was written, but only at the primary of any
/// other locked record.
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
