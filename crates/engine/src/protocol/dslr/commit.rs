//! DSLR's commit: validate reads that no lock protects, log, write, acknowledge each, unlock.
//!
//! Invariants: reads that no lock protects are validated with all locks held. So there is a moment at which the
//! transaction has everything that it read or will write. The log is sent after that, so each entry is of a
//! transaction that was decided to commit. No data are written before every node has acknowledged the log. No lock is
//! released before every replica has acknowledged its data. Readers' locks are released with the others.

use super::Dslr;
use crate::site::Context;
use crate::steps::access::{Which, validate_those};
use crate::steps::commit::{change_leaves, log, prepare, unlock, write};
use crate::steps::node_locks::put_shares_away;
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;

/// Commits the transaction; see the module's text for the phases that it awaits.
pub(super) async fn commit(dslr: &Dslr, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let is_read_only = txn.is_read_only();
    if !is_read_only {
        put_shares_away(txn);
        change_leaves(dslr, cx, txn).await?;
        prepare(dslr, cx, txn, true).await?;
    }
    validate_those(dslr, cx, txn, Which::Apart).await?;
    if !is_read_only {
        log(dslr, cx, txn).await?;
        write(dslr, cx, txn).await?;
        txn.locks.append(&mut txn.shares);
    }
    unlock(dslr, cx, txn);
    Ok(())
}
