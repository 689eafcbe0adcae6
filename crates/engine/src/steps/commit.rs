//! The phases of a commit that systems with an undo log have in common: prepare, log, write, unlock.
//!
//! Invariants: a transaction writes no data before every node has acknowledged its log. A transaction releases no
//! lock before every replica has acknowledged its data. Each system's own commit decides in which order it awaits
//! these phases, and at which point it validates which reads.

use super::in_place::{Writes, prepare as prepare_writes};
use super::log::chain;
use super::log::send::{add_data, send_log, write_and_unlock_early};
use super::node_locks::{add_unlocks, post_release, settle_unlocks};
use super::structure::{Structure, leaves};
use super::{begin_doubt, unknown};
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;

/// Locks the leaves of ordered indexes that the transaction changes, and changes copies of these leaves in the
/// transaction's buffer.
///
/// # Errors
/// A leaf is locked or full, so the transaction aborts. Returns an error if the fabric cannot complete a verb.
#[inline]
pub(crate) async fn change_leaves(
    system: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    match cx.has_ordered {
        true => leaves::change(system, cx, txn).await,
        false => Ok(()),
    }
}

/// Decides the new versions of the transaction's records and the bytes that the commit will write. If the log entry
/// is longer than its log area, also allocates blocks for the rest of the entry. Waits until the locks of the
/// coordinator's earlier transactions are released.
///
/// # Errors
/// The log is too long; no memory is left; or the fabric fails.
#[inline]
pub(crate) async fn prepare(
    system: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    changes_only: bool,
) -> Result<(), Failure> {
    let keeps_version = system.keeps(Rule::KeepVersion);
    prepare_writes(Writes { changes_only, keeps_version }, cx, txn)?;
    if txn.chain.is_used() {
        Box::pin(chain::provide(cx, txn)).await?;
    }
    settle_unlocks(cx, txn, system.keeps(Rule::SettleBeforeLog)).await;
    Ok(())
}

/// Sends the undo log to every replica of every group that the transaction will write. From this point on, only the
/// contents of the memory nodes show whether the transaction has committed. If recovery finds a transaction's log
/// entry, it undoes the transaction's writes that may have landed. Recovery gives the restored records versions that
/// readers notice.
pub(crate) async fn log(
    system: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    if txn.pieces.is_empty() {
        return Ok(());
    }
    system.enter(cx, Phase::Log);
    begin_doubt(cx, txn);
    let groups = txn.groups.len();
    send_log(cx, txn, groups).await.map_err(|_| unknown(cx, txn))
}

/// Writes the transaction's data to every replica of every group that the transaction writes.
pub(crate) async fn write(
    system: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    if txn.pieces.is_empty() {
        return Ok(());
    }
    system.enter(cx, Phase::Write);
    if !system.keeps(Rule::UnlockLate) {
        system.enter(cx, Phase::Unlock);
        return write_and_unlock_early(cx, txn, None).await;
    }
    txn.round.begin();
    for index in 0..txn.groups.len() {
        add_data(cx, txn, txn.groups[index], None, |_| true);
    }
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))
}

/// Releases every lock that was granted to the transaction. The transaction does not wait until the locks are
/// released.
pub(crate) fn unlock(system: &impl Structure, cx: &Context, txn: &mut Txn) {
    if txn.locks.is_empty() {
        return;
    }
    system.enter(cx, Phase::Unlock);
    txn.round.begin();
    add_unlocks(cx, txn);
    post_release(cx, txn);
}
