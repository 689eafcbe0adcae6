//! FORD's commit: validate, write, acknowledge, unlock.
//!
//! Invariants: no data are written before validation has passed with all locks held; at each node
//! the undo log precedes the data; no lock is released before every replica has acknowledged its
//! data, or has it in the same batch before; an abort releases exactly what was granted.

use super::prepare::prepare;
use super::validate::{is_needless, validate};
use super::{Ford, On, Phase, enter, published, short};
use crate::context::Context;
use crate::log::send::{add_data, add_log};
use crate::log::undo;
use crate::node_locks::{add_release, add_unlocks, post_release};
use crate::outcome::{AbortReason, Explanation, Failure};
use crate::recorder;
use crate::structure::leaves;
use crate::working_set::Txn;
use tarn_fabric::round::BufferOffset;

/// Commits the transaction; see the module's text for what is awaited.
pub(super) async fn commit(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.is_read_only() {
        return validate(ford, cx, txn).await;
    }
    if cx.has_ordered
        && let Err(failure) = leaves::change(ford, cx, txn).await
    {
        return Err(judge(ford, cx, txn, failure).await);
    }
    if short::applies(ford, cx, txn) {
        return commit_short(ford, cx, txn).await;
    }
    prepare(ford, cx, txn)?;
    settle_unlocks(ford, cx, txn).await;
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

/// What the caller is told of changes of indexes that failed: a violation is a verdict only if all that the
/// transaction has read is still so. If not, no order has it see both: it is tried again.
#[cold]
async fn judge(ford: &Ford, cx: &Context, txn: &mut Txn, failure: Failure) -> Failure {
    match failure {
        Failure::Abort(AbortReason::UniqueViolation) => {
            validate(ford, cx, txn).await.err().unwrap_or(failure)
        }
        _ => failure,
    }
}

/// As [`commit`], where log, data and releases are one batch at one node.
async fn commit_short(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if !txn.unlocking.is_empty() {
        settle_unlocks(ford, cx, txn).await;
    }
    if !is_needless(txn) {
        validate(ford, cx, txn).await?;
    }
    if !short::plan(cx, txn) {
        unlock(ford, cx, txn);
        return Ok(());
    }
    begin_doubt(cx, txn);
    // The only copies are the ones just read under the locks.
    txn.round.hot();
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    txn.locks.clear();
    Ok(())
}

/// Whether everything that a read-only transaction saw was seen by one consistent READ.
#[inline]
pub(super) fn is_committed(txn: &Txn) -> bool {
    txn.is_read_only()
        && match &txn.entries[..] {
            // A leaf is seen as of one moment, several are not.
            [] => txn.checks.len() <= 1,
            // Not if it was seen absent and then there.
            [only] => only.stable && txn.checks.len() + usize::from(only.watched) <= 1,
            _ => false,
        }
}

/// The published form: the undo log in a round of its own, to the replicas of every group or of one.
async fn log_apart(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    enter(cx, Phase::LogApart);
    txn.round.begin();
    let (entry, len) = undo::encode(txn);
    let groups = if ford.on(On::LogEveryGroup) { txn.groups.len() } else { 1 };
    for &group in txn.groups.iter().take(groups) {
        let area = cx.database().catalog.log(group, txn.coordinator);
        for target in cx.groups.whole().all(area) {
            add_log(&mut txn.round, target, entry, len);
        }
    }
    cx.port.execute(&mut txn.round).await?;
    Ok(())
}

/// The log area is used again only when the locks of all earlier transactions are gone. A node that
/// failed to release them has lost them.
#[inline]
async fn settle_unlocks(ford: &Ford, cx: &Context, txn: &mut Txn) {
    // Should this future be dropped, what has not settled is still to be waited for.
    while let Some(&unlocking) = txn.unlocking.last() {
        if ford.on(On::SettleBeforeLog) {
            let _ = cx.port.settle(unlocking).await;
        }
        txn.unlocking.pop();
    }
}

/// Undo log and data to every replica, each node's in one batch; from here on the outcome is what
/// the memory says.
async fn write(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.pieces.is_empty() {
        return Ok(());
    }
    enter(cx, Phase::Write);
    let log = if ford.on(On::FuseLog) { Some(undo::encode(txn)) } else { None };
    begin_doubt(cx, txn);
    if !ford.on(On::UnlockLate) {
        return write_and_unlock_early(cx, txn, log).await;
    }
    txn.round.begin();
    let mut near = true;
    for index in 0..txn.groups.len() {
        let group = txn.groups[index];
        near &= cx.groups.replicas(group) == 1;
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
        add_release(cx, &mut txn.round, &txn.locks);
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
    cx.groups.replicas(group) == 1
        && txn.locks.iter().all(|lock| lock.address.group() == group)
}

/// From here on the outcome is what the memory says.
#[inline]
fn begin_doubt(cx: &Context, txn: &mut Txn) {
    txn.in_doubt = true;
    if txn.recorded_in.is_some() {
        recorder::enter_doubt(cx, txn);
    }
}

#[cold]
fn unknown(cx: &Context, txn: &Txn) -> Failure {
    cx.explain(Explanation::Unknown(txn.tag))
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
            txn.round.write(cx.groups.primary(lock.address), zero, 8);
        }
    }
    // A node that does not answer has lost the lock, or keeps it for recovery.
    post_release(cx, txn);
}
