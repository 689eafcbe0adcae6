//! Makes the bytes that a transaction writes into its log. A log entry lists the transaction's locks and pieces,
//! either with their old bytes or with their new bytes.
//!
//! Invariant: the length that a function computes before it writes the log entry equals the length of the written
//! entry. [`tarn_store::log::undo`] describes the layout of log entries.

use super::chain;
use crate::transaction::lock::Lock;
use crate::transaction::working_set::{PendingWrite, Txn};
use tarn_fabric::round::BufferOffset;
use tarn_store::log::pieces::OldBytes;
use tarn_store::log::undo::{LoggedRecord, entry_bytes, write_entry};

/// The number of bytes of the transaction's log entry that contains old bytes.
pub(crate) fn undo_bytes(txn: &Txn) -> usize {
    bytes_of(txn, txn.pieces.iter().filter(|piece| piece.logged))
}

/// The number of bytes of the transaction's log entry that contains new bytes.
pub(crate) fn redo_bytes(txn: &Txn) -> usize {
    bytes_of(txn, txn.pieces.iter())
}

fn bytes_of<'a>(txn: &Txn, pieces: impl Iterator<Item = &'a PendingWrite> + Clone) -> usize {
    let padded = pieces.clone().map(|each| (each.len_bytes as usize).next_multiple_of(8)).sum();
    entry_bytes(txn.locks.len(), pieces.count(), padded)
}

/// Writes the log entry with the old bytes into the transaction's buffer. Returns the log entry's place in the buffer
/// and its length.
pub(crate) fn encode_undo(txn: &mut Txn) -> (BufferOffset, usize) {
    let len = undo_bytes(txn);
    encode(txn, len, |piece| piece.logged.then_some(piece.old))
}

/// Writes the log entry with the new bytes into the transaction's buffer. Returns the log entry's place in the buffer
/// and its length.
pub(crate) fn encode_redo(txn: &mut Txn) -> (BufferOffset, usize) {
    let len = redo_bytes(txn);
    encode(txn, len, |piece| Some(piece.new))
}

#[inline]
fn encode(
    txn: &mut Txn,
    len: usize,
    bytes_of: impl Fn(&PendingWrite) -> Option<BufferOffset>,
) -> (BufferOffset, usize) {
    let Txn { tag, round, locks, pieces, .. } = txn;
    let bytes = pieces.iter().filter_map(|piece| {
        let (address, len_bytes) = (piece.address, piece.len_bytes as usize);
        bytes_of(piece).map(|at| OldBytes { address, at, len_bytes })
    });
    let at = write_entry(round, *tag, locks.iter().map(logged), bytes, len);
    if txn.chain.is_used() {
        chain::complete(txn, at, len);
    }
    (at, len)
}

/// The description, in a log entry, of the record that a lock protects.
#[inline]
pub(crate) fn logged(lock: &Lock) -> LoggedRecord {
    LoggedRecord {
        address: lock.address,
        old_version: lock.old_version,
        new_version: lock.new_version,
        nameless: lock.writes_nameless(),
    }
}
