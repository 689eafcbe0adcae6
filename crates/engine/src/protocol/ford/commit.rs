//! FORD's commit: validate, write, acknowledge, unlock.
//!
//! Invariants: no data are written before validation has passed with all locks held; at each node
//! the undo log precedes the data; no lock is released before every replica has acknowledged its
//! data, or has it in the same batch before; an abort releases exactly what was granted.

use super::{Ford, On, Phase, enter, published, short};
use crate::site::Context;
use crate::steps::in_place::{Writes, prepare};
use crate::steps::access::{is_needless, validate};
use crate::steps::{begin_doubt, unknown};
use crate::steps::log::chain;
use crate::steps::log::send::{add_data, send_log, write_and_unlock_early};
use crate::steps::log::encode::encode_undo;
use crate::steps::node_locks::{add_release, add_unlocks, is_on_one_node, post_release, settle_unlocks};
use tarn_store::ids::Failure;
use crate::steps::structure::leaves;
use crate::transaction::working_set::Txn;

/// Commits the transaction; see the module's text for what is awaited.
pub(super) async fn commit(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.is_read_only() {
        return validate(ford, cx, txn).await;
    }
    if cx.has_ordered {
        leaves::change(ford, cx, txn).await?;
    }
    if short::applies(ford, cx, txn) {
        return commit_short(ford, cx, txn).await;
    }
    let how = Writes {
        changes_only: ford.on(On::WriteChangesOnly),
        keeps_version: ford.on(On::KeepVersion),
    };
    prepare(how, cx, txn)?;
    if txn.chain.is_used() {
        Box::pin(chain::provide(cx, txn)).await?;
    }
    settle_unlocks(cx, txn, ford.on(On::SettleBeforeLog)).await;
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

/// As [`commit`], where log, data and releases are one batch at one node.
async fn commit_short(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if !txn.unlocking.is_empty() {
        settle_unlocks(cx, txn, ford.on(On::SettleBeforeLog)).await;
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

/// The published form: the undo log in a round of its own, to the replicas of every group or of one.
async fn log_apart(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    enter(cx, Phase::LogApart);
    let groups = if ford.on(On::LogEveryGroup) { txn.groups.len() } else { 1 };
    send_log(cx, txn, groups).await
}

/// Undo log and data to every replica, each node's in one batch; from here on the outcome is what
/// the memory says.
async fn write(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.pieces.is_empty() {
        return Ok(());
    }
    enter(cx, Phase::Write);
    let log = if ford.on(On::FuseLog) { Some(encode_undo(txn)) } else { None };
    begin_doubt(cx, txn);
    if !ford.on(On::UnlockLate) {
        enter(cx, Phase::Unlock);
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
