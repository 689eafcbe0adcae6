//! DrTM's commit: confirms the leases, logs, writes, awaits each acknowledgement, unlocks.
//!
//! Invariants: the transaction confirms its leases while it holds all locks. Because of this order, there is a moment
//! at which the transaction holds a lease or lock on everything that it has read or will write. The log entry is sent
//! after the leases are confirmed, so each log entry belongs to a transaction that was decided to commit. A
//! transaction writes no data before every node has acknowledged its log entry. A transaction releases no lock before
//! every replica has acknowledged its data. An abort releases exactly the locks that were granted. Leases are not
//! released; they end by time.

use super::Drtm;
use crate::site::Context;
use crate::steps::commit::{change_leaves, log, prepare, unlock, write};
use crate::steps::locks::lease::confirm;
use crate::steps::node_locks::put_away;
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;

/// Commits the transaction; see the module's text for the phases that it awaits.
pub(super) async fn commit(drtm: &Drtm, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.is_read_only() {
        return confirm(drtm, cx, txn).await;
    }
    // Leases are neither released nor logged, so they leave the list of locks here.
    put_away(txn, |_| {});
    change_leaves(drtm, cx, txn).await?;
    prepare(drtm, cx, txn, true).await?;
    confirm(drtm, cx, txn).await?;
    log(drtm, cx, txn).await?;
    write(drtm, cx, txn).await?;
    unlock(drtm, cx, txn);
    Ok(())
}
