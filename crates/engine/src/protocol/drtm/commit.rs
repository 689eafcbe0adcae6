//! DrTM's commit: the transaction confirms its leases, logs, writes, awaits each acknowledgement, and releases its
//! locks.
//!
//! Invariants: the transaction confirms its leases while it holds all its locks. Because of this order, there is a
//! moment at which the transaction holds a lease or lock on everything that it has read or will write. The
//! transaction sends its log entry after it has confirmed its leases, so each log entry belongs to a transaction that
//! was decided to commit. A transaction writes no data before every node has acknowledged its log entry. A
//! transaction releases no lock before every replica has acknowledged its data. An abort releases exactly the locks
//! that were granted to the transaction. No transaction releases a lease; each lease ends at its end time.

use super::Drtm;
use crate::site::Context;
use crate::steps::commit::{change_leaves, log, prepare, unlock, write};
use crate::steps::locks::lease::confirm;
use crate::steps::node_locks::put_away;
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;

/// Commits the transaction; the text at the beginning of this file lists the phases that the commit awaits.
pub(super) async fn commit(drtm: &Drtm, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.is_read_only() {
        return confirm(drtm, cx, txn).await;
    }
    // Leases are neither released nor logged, so this call removes them from the list of locks.
    put_away(txn, |_| {});
    change_leaves(drtm, cx, txn).await?;
    prepare(drtm, cx, txn, true).await?;
    confirm(drtm, cx, txn).await?;
    log(drtm, cx, txn).await?;
    write(drtm, cx, txn).await?;
    unlock(drtm, cx, txn);
    Ok(())
}
