//! OCC's commit: the transaction validates, logs, writes, awaits each acknowledgement, and releases its locks.
//!
//! Invariants: the transaction sends its log entry after its validation has passed, while it holds all its locks.
//! Because of this order, each log entry belongs to a transaction that was decided to commit. A transaction writes no
//! data before every node has acknowledged its log entry. A transaction releases no lock before every replica has
//! acknowledged its data. An abort releases exactly the locks that were granted to the transaction.

use super::{LOG_AFTER_VALIDATION, Occ};
use crate::site::Context;
use crate::steps::access::validate;
use crate::steps::commit::{change_leaves, log, prepare, unlock, write};
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;

/// Commits the transaction; the text at the beginning of this file lists the phases that the commit awaits.
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
