//! Motor's commit: the transaction takes a timestamp, validates, writes, awaits the acknowledgements, and releases
//! its locks.
//!
//! Invariants: the transaction takes T_commit while it holds all its locks, and before it validates its reads. The
//! transaction writes no data before validation has passed. At each node, the undo log comes before the transaction's
//! data. The transaction releases no lock before every replica has acknowledged its data, or has received the data
//! earlier in the same batch. An abort releases exactly the locks that were granted to the transaction. Each switch
//! that is off removes one of these invariants; with all these switches off, the commit is the commit of the
//! published system.

use super::nodes::stamp;
use super::prepare::{changes, prepare};
use super::switches::{on, phase};
use super::validate::validate;
use super::{Motor, enter};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described as _;
use crate::steps::index::changes::finish;
use crate::steps::log::chain;
use crate::steps::log::encode::{encode_undo, undo_bytes};
use crate::steps::log::send::{add_data, add_pieces};
use crate::steps::node_locks::{
    add_release, add_unlocks, is_on_one_node, post_release, settle_unlocks,
};
use crate::steps::structure::leaves;
use crate::steps::{begin_doubt, unknown};
use crate::transaction::working_set::{Intent, Txn};
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::Failure;
use tarn_store::layout::{LOCK_AT, version_at};

/// Commits the transaction; the text at the beginning of this file lists the phases that the commit awaits.
pub(super) async fn commit(motor: &Motor, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.intent == Intent::ReadOnly {
        return Ok(());
    }
    if cx.has_ordered && !txn.locks.is_empty() {
        leaves::change(motor, cx, txn).await?;
    }
    let validates = !motor.reads_snapshot(txn);
    let writes = txn.entries.iter().any(changes);
    if writes && (motor.switches.is_on(on::STAMP_FIRST) || !validates) {
        txn.stamps.commit = cx.timestamps.commit(cx).await?;
    }
    if validates {
        validate(motor, cx, txn).await?;
    }
    if writes && validates && !motor.switches.is_on(on::STAMP_FIRST) {
        txn.stamps.commit = cx.timestamps.commit(cx).await?;
    }
    if !writes {
        if !txn.locks.is_empty() {
            unlock(cx, txn);
        }
        return Ok(());
    }
    prepare(motor, cx, txn)?;
    write_and_unlock(motor, cx, txn).await
}

/// Commits a structural transaction under its own timestamp. So earlier snapshots do not rely on the nodes that this
/// transaction changed, and later snapshots do.
pub(super) async fn commit_structure(
    motor: &Motor,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    txn.stamps.commit = cx.timestamps.commit(cx).await?;
    stamp(txn, version_at(txn.stamps.commit));
    finish(cx, txn, undo_bytes)?;
    write_and_unlock(motor, cx, txn).await
}

async fn write_and_unlock(motor: &Motor, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let waits = motor.keeps(Rule::SettleBeforeLog) && motor.switches.is_on(on::UNDO_LOG);
    if txn.chain.is_used() {
        Box::pin(chain::provide(cx, txn)).await?;
    }
    settle_unlocks(cx, txn, waits).await;
    write(motor, cx, txn).await?;
    cx.timestamps.wait_out(cx, txn.stamps.commit).await;
    if !txn.locks.is_empty() {
        unlock(cx, txn);
    }
    Ok(())
}

/// Returns whether all reads of a transaction without locks belong to one moment.
pub(super) fn is_committed(motor: &Motor, txn: &Txn) -> bool {
    if txn.intent == Intent::ReadOnly {
        return true;
    }
    if motor.reads_snapshot(txn) {
        return txn.locks.is_empty();
    }
    txn.locks.is_empty()
        && match &txn.entries[..] {
            // The entries of one leaf belong to one moment, but the entries of several leaves do not.
            [] => txn.checks.len() <= 1,
            // The reads of one record belong to different moments if the transaction first saw the record absent and
            // later present.
            [only] => only.stable && txn.checks.len() + usize::from(only.watched) <= 1,
            _ => false,
        }
}

/// Sends the undo log and the data to every replica. Each node receives the log and its data in one batch. From this
/// point on, only the contents of the memory nodes show whether the transaction has committed.
async fn write(motor: &Motor, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    enter(cx, phase::WRITE);
    let log = motor.switches.is_on(on::UNDO_LOG).then(|| encode_undo(txn));
    begin_doubt(cx, txn);
    txn.round.begin();
    if motor.switches.is_on(on::AT_ONCE) {
        for index in 0..txn.groups.len() {
            add_data(cx, txn, txn.groups[index], log, |_| true);
        }
    } else {
        write_apart(cx, txn, log).await?;
    }
    if !motor.keeps(Rule::ShareDoorbells) {
        // The public code posts a record's WRITEs together with its unlock at each replica.
        txn.round.join_doorbells(0);
    }
    let unlocks = if !motor.keeps(Rule::UnlockLate) {
        add_unlocks_everywhere(cx, txn);
        true
    } else if is_on_one_node(cx, txn) {
        enter(cx, phase::UNLOCK_WITH_DATA);
        add_release(cx, &mut txn.round, &txn.locks);
        true
    } else {
        false
    };
    if motor.switches.is_on(on::AWAIT_REPLICAS) {
        cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    } else {
        let posted = cx.port.post_detached(&mut txn.round).map_err(|_| unknown(cx, txn))?;
        txn.unlocking.push(posted);
    }
    if unlocks {
        txn.locks.clear();
    }
    Ok(())
}

/// Sends the log, and the writes of all bytes to which no head leads yet. The heads of the records are sent after
/// every replica has acknowledged these writes. If every version is stored whole, this first batch contains all new
/// versions. A version that no head names yet is invisible to readers, like an INVISIBLE version of LOTUS.
async fn write_apart(
    cx: &Context,
    txn: &mut Txn,
    log: Option<(BufferOffset, usize)>,
) -> Result<(), Failure> {
    for index in 0..txn.groups.len() {
        add_pieces(cx, txn, txn.groups[index], log, |_| true, |piece| !piece.logged);
    }
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    enter(cx, phase::SHOW);
    txn.round.begin();
    for index in 0..txn.groups.len() {
        add_pieces(cx, txn, txn.groups[index], None, |_| true, |piece| piece.logged);
    }
    Ok(())
}

/// Adds the unlocks in the way of the published system: by WRITEs after the data, at every replica of a written
/// record.
fn add_unlocks_everywhere(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::UNLOCK);
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

/// Releases every lock that was granted to the transaction. The transaction does not wait until its locks are
/// released.
fn unlock(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::UNLOCK);
    txn.round.begin();
    add_unlocks(cx, txn);
    post_release(cx, txn);
}
