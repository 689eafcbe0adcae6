//! DrTM's commit: confirm the leases, log, write, acknowledge each, unlock.
//!
//! Invariants: leases are confirmed with all locks held. So there is a moment at which the transaction has everything
//! that it read or will write. The log is sent after that, so each entry is of a transaction that was decided to
//! commit. No data are written before every node has acknowledged the log. No lock is released before every replica
//! has acknowledged its data. An abort releases exactly the locks that were granted. Leases are not given back.

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
    // Leases are neither given back nor logged.
    put_away(txn, |_| {});
    change_leaves(drtm, cx, txn).await?;
    prepare(drtm, cx, txn, true).await?;
    confirm(drtm, cx, txn).await?;
    log(drtm, cx, txn).await?;
    write(drtm, cx, txn).await?;
    unlock(drtm, cx, txn);
    Ok(())
}
