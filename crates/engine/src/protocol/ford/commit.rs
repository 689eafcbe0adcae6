//! FORD's commit: the transaction validates, writes, awaits the acknowledgements, and releases its locks.
//!
//! Invariants: a transaction writes no data before it has passed validation while it holds all its locks. At each
//! node, the undo log comes before the transaction's data. A transaction releases no lock before every replica has
//! acknowledged its data, or has received the data earlier in the same batch. An abort releases exactly the locks
//! that were granted to the transaction.

use super::{Ford, enter, on, phase, published, short};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::{is_needless, validate};
use crate::steps::commit::{change_leaves, prepare};
use crate::steps::log::encode::encode_undo;
use crate::steps::log::send::{add_data, send_log, write_and_unlock_early};
use crate::steps::node_locks::{
    add_release, add_unlocks, is_on_one_node, post_release, settle_unlocks,
};
use crate::steps::{begin_doubt, unknown};
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;

/// Commits the transaction; the text at the beginning of this file lists the phases that the commit awaits.
pub(super) async fn commit(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.is_read_only() {
        return validate(ford, cx, txn).await;
    }
    change_leaves(ford, cx, txn).await?;
    if short::applies(ford, cx, txn) {
        return commit_short(ford, cx, txn).await;
    }
    prepare(ford, cx, txn, ford.switches.is_on(on::WRITE_CHANGES_ONLY)).await?;
    let mut is_valid = false;
    if !ford.switches.is_on(on::FUSE_LOG) {
        is_valid = log_apart(ford, cx, txn).await?;
    }
    if ford.switches.is_on(on::WRITE_AFTER_VALIDATION) {
        if !is_valid {
            validate(ford, cx, txn).await?;
        }
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

/// Commits in the same way as [`commit`], but sends log, data and releases in one batch to the only node.
async fn commit_short(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if !txn.unlocking.is_empty() {
        settle_unlocks(cx, txn, ford.keeps(Rule::SettleBeforeLog)).await;
    }
    if !is_needless(txn) {
        validate(ford, cx, txn).await?;
    }
    if !short::plan(cx, txn) {
        unlock(ford, cx, txn);
        return Ok(());
    }
    begin_doubt(cx, txn);
    // The function marks the round's lines as warm in the processor's cache, because the transaction just read these
    // records under its locks.
    txn.round.hot();
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    txn.locks.clear();
    Ok(())
}

/// Sends the undo log as the published system does: in a separate round, to the replicas of every group or of only
/// one group. Returns whether the same round has validated the transaction.
async fn log_apart(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<bool, Failure> {
    enter(cx, phase::LOG_APART);
    let groups = if ford.switches.is_on(on::LOG_EVERY_GROUP) { txn.groups.len() } else { 1 };
    if published::validates_with_log(ford, txn) {
        published::log_and_validate(ford, cx, txn, groups).await?;
        return Ok(true);
    }
    send_log(cx, txn, groups).await?;
    Ok(false)
}

/// Sends the undo log and the data to every replica. Each node receives the log and its data in one batch. From this
/// point on, only the contents of the memory nodes show whether the transaction has committed.
async fn write(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.pieces.is_empty() {
        return Ok(());
    }
    enter(cx, phase::WRITE);
    let log = if ford.switches.is_on(on::FUSE_LOG) { Some(encode_undo(txn)) } else { None };
    begin_doubt(cx, txn);
    if !ford.keeps(Rule::UnlockLate) {
        enter(cx, phase::UNLOCK);
        return write_and_unlock_early(cx, txn, log).await;
    }
    txn.round.begin();
    let mut near = true;
    for index in 0..txn.groups.len() {
        let group = txn.groups[index];
        near &= cx.groups.replicas(group) == 1;
        if !ford.switches.is_on(on::LOCK_AT_PRIMARY) {
            published::mark(cx, txn, group);
        }
        let data = txn.round.verbs().len();
        add_data(cx, txn, group, log, |_| true);
        if !ford.keeps(Rule::ShareDoorbells) {
            txn.round.join_doorbells(data);
        }
    }
    if !ford.switches.is_on(on::WRITE_CHANGES_ONLY) {
        published::flush(cx, txn);
    }
    if near {
        // The function marks the round's lines as warm in the processor's cache, because the transaction just read
        // these records under its locks.
        txn.round.hot();
    }
    let alone = ford.switches.is_on(on::WRITE_AFTER_VALIDATION)
        && ford.switches.is_on(on::LOCK_AT_PRIMARY)
        && is_on_one_node(cx, txn);
    if alone {
        enter(cx, phase::UNLOCK_WITH_DATA);
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

/// Releases every lock that was granted to the transaction. The transaction does not wait until its locks are
/// released.
fn unlock(ford: &Ford, cx: &Context, txn: &mut Txn) {
    enter(cx, phase::UNLOCK);
    txn.round.begin();
    match ford.switches.is_on(on::LOCK_AT_PRIMARY) {
        true => add_unlocks(cx, txn),
        false => published::clear(cx, txn),
    }
    post_release(cx, txn);
}
