//! DSLR's commit: look again at what no lock protects, log, write, acknowledge each, unlock.
//!
//! Invariants: what no lock protects is looked at with all locks held, so that there is a moment at which the transaction has everything
//! that it read or will write; the log is sent behind that, so that an entry is of a transaction that was decided to
//! commit; no data are written before every node has acknowledged the log; no lock is released before every replica has
//! acknowledged its data. Readers' locks are released with the others.

use super::switches::{On, Phase};
use super::{Dslr, enter};
use crate::steps::access::{Which, validate_those};
use crate::site::Context;
use crate::steps::{begin_doubt, unknown};
use crate::steps::in_place::{Writes, prepare};
use crate::steps::log::chain;
use crate::steps::log::send::{add_data, send_log};
use crate::steps::node_locks::{add_unlocks, post_release, put_away, settle_unlocks};
use tarn_store::ids::Failure;
use crate::steps::structure::leaves;
use crate::transaction::working_set::Txn;

/// Commits the transaction; see the module's text for what is awaited.
pub(super) async fn commit(dslr: &Dslr, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let is_read_only = txn.is_read_only();
    if !is_read_only {
        let Txn { shares, .. } = txn;
        let mut shared = std::mem::take(shares);
        put_away(txn, |lock| shared.push(lock));
        txn.shares = shared;
        if cx.has_ordered {
            leaves::change(dslr, cx, txn).await?;
        }
        prepare(Writes { changes_only: true, keeps_version: dslr.on(On::KeepVersion) }, cx, txn)?;
        if txn.chain.is_used() {
            Box::pin(chain::provide(cx, txn)).await?;
        }
        settle_unlocks(cx, txn, true).await;
    }
    validate_those(dslr, cx, txn, Which::Apart).await?;
    if !is_read_only {
        log(cx, txn).await?;
        write(cx, txn).await?;
        take_back(txn);
    }
    if !txn.locks.is_empty() {
        unlock(cx, txn);
    }
    Ok(())
}

/// Readers' locks are to be released as all others.
pub(super) fn take_back(txn: &mut Txn) {
    txn.locks.append(&mut txn.shares);
}

/// The undo log, to every replica of every group that will be written. From here on the outcome is what the memory says.
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
async fn write(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.pieces.is_empty() {
        return Ok(());
    }
    enter(cx, Phase::Write);
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
