//! OCC's commit: validate, log, write, acknowledge each, unlock.
//!
//! Invariants: the log is sent when validation has passed with all locks held, so that an entry is of a transaction that was
//! decided to commit; no data are written before every node has acknowledged the log; no lock is released before every
//! replica has acknowledged its data; an abort releases exactly what was granted.

use super::switches::{On, Phase};
use super::{Occ, enter};
use crate::steps::access::validate;
use crate::site::Context;
use crate::steps::{begin_doubt, unknown};
use crate::steps::in_place::{Writes, prepare};
use crate::steps::log::chain;
use crate::steps::log::send::{add_data, send_log, write_and_unlock_early};
use crate::steps::node_locks::{add_unlocks, post_release, settle_unlocks};
use tarn_store::ids::Failure;
use crate::steps::structure::leaves;
use crate::transaction::working_set::Txn;

/// Commits the transaction; see the module's text for what is awaited.
pub(super) async fn commit(occ: &Occ, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.is_read_only() {
        return validate(occ, cx, txn).await;
    }
    if cx.has_ordered {
        leaves::change(occ, cx, txn).await?;
    }
    prepare(Writes { changes_only: true, keeps_version: occ.on(On::KeepVersion) }, cx, txn)?;
    if txn.chain.is_used() {
        Box::pin(chain::provide(cx, txn)).await?;
    }
    settle_unlocks(cx, txn, occ.on(On::SettleBeforeLog)).await;
    if occ.on(On::LogAfterValidation) {
        validate(occ, cx, txn).await?;
        log(cx, txn).await?;
    } else {
        log(cx, txn).await?;
        validate(occ, cx, txn).await?;
    }
    write(occ, cx, txn).await?;
    if !txn.locks.is_empty() {
        unlock(cx, txn);
    }
    Ok(())
}

/// The undo log, to every replica of every group that will be written. From here on the outcome is what the memory says: who
/// finds an entry undoes what may have been written, under versions that readers see.
async fn log(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.pieces.is_empty() {
        return Ok(());
    }
    enter(cx, Phase::Log);
    begin_doubt(cx, txn);
    let groups = txn.groups.len();
    send_log(cx, txn, groups).await.map_err(|_| unknown(cx, txn))
}

/// The data, to every replica.
async fn write(occ: &Occ, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.pieces.is_empty() {
        return Ok(());
    }
    enter(cx, Phase::Write);
    if !occ.on(On::UnlockLate) {
        enter(cx, Phase::Unlock);
        return write_and_unlock_early(cx, txn, None).await;
    }
    txn.round.begin();
    for index in 0..txn.groups.len() {
        add_data(cx, txn, txn.groups[index], None, |_| true);
    }
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))
}

/// Releases every granted lock; nobody waits for it.
fn unlock(cx: &Context, txn: &mut Txn) {
    enter(cx, Phase::Unlock);
    txn.round.begin();
    add_unlocks(cx, txn);
    post_release(cx, txn);
}
