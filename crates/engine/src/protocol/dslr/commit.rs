//! DSLR's commit: the transaction validates reads that no lock protects, logs, writes, awaits each acknowledgement,
//! and releases its locks.
//!
//! Invariants: the transaction validates reads that no lock protects while it holds all its locks. Because of this
//! order, there is a moment at which everything that the transaction has read or will write is locked or unchanged.
//! The transaction sends its log entry after this validation, so each log entry belongs to a transaction that was
//! decided to commit. A transaction writes no data before every node has acknowledged its log entry. A transaction
//! releases no lock before every replica has acknowledged its data. The transaction releases its readers' locks
//! together with its other locks.

use super::Dslr;
use crate::site::Context;
use crate::steps::access::{Which, validate_those};
use crate::steps::commit::{change_leaves, log, prepare, unlock, write};
use crate::steps::node_locks::put_shares_away;
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;

/// Commits the transaction; the text at the beginning of this file lists the phases that the commit awaits.
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
