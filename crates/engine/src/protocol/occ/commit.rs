//! OCC's commit: validate, log, write, acknowledge each, unlock.
//!
//! Invariants: the log is sent when validation has passed with all locks held, so each entry is of a transaction that
//! was decided to commit. No data are written before every node has acknowledged the log. No lock is released before
//! every replica has acknowledged its data. An abort releases exactly the locks that were granted.

use super::{LOG_AFTER_VALIDATION, Occ};
use crate::site::Context;
use crate::steps::access::validate;
use crate::steps::commit::{change_leaves, log, prepare, unlock, write};
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;

/// Commits the transaction; see the module's text for the phases that it awaits.
pub(super) async fn commit(occ: &Occ, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.is_read_only() {
        return validate(occ, cx, txn).await;
    }
    change_leaves(occ, cx, txn).await?;
    prepare(occ, cx, txn, true).await?;
    if occ.switches.is_on(LOG_AFTER_VALIDATION) {
        validate(occ, cx, txn).await?;
        log(occ, cx, txn).await?;
    } else {
        log(occ, cx, txn).await?;
        validate(occ, cx, txn).await?;
    }
    write(occ, cx, txn).await?;
    unlock(occ, cx, txn);
    Ok(())
}
