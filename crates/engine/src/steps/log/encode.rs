//! The bytes that a transaction writes into its log: its locks and pieces, as an entry of old or of new bytes.
//!
//! Invariant: the length that is planned is the length that is written. The layout of entries:
//! [`tarn_store::log::undo`].

use super::chain;
use crate::transaction::working_set::{Lock, PendingWrite, Txn};
use tarn_fabric::round::BufferOffset;
use tarn_store::log::pieces::OldBytes;
use tarn_store::log::undo::{LoggedRecord, entry_bytes, write_entry};

/// Length of the transaction's entry of old bytes.
pub(crate) fn undo_bytes(txn: &Txn) -> usize {
    bytes_of(txn, txn.pieces.iter().filter(|piece| piece.logged))
}

/// Length of the transaction's entry of new bytes.
pub(crate) fn redo_bytes(txn: &Txn) -> usize {
    bytes_of(txn, txn.pieces.iter())
}

fn bytes_of<'a>(txn: &Txn, pieces: impl Iterator<Item = &'a PendingWrite> + Clone) -> usize {
    let padded = pieces.clone().map(|each| (each.len_bytes as usize).next_multiple_of(8)).sum();
    entry_bytes(txn.locks.len(), pieces.count(), padded)
}

/// Writes the entry of old bytes into the transaction's buffer. Returns its place and its length.
pub(crate) fn encode_undo(txn: &mut Txn) -> (BufferOffset, usize) {
    let len = undo_bytes(txn);
    encode(txn, len, |piece| piece.logged.then_some(piece.old))
}

/// Writes the entry of new bytes into the transaction's buffer. Returns its place and its length.
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

/// The record that a lock protects, as an entry names it.
#[inline]
pub(crate) fn logged(lock: &Lock) -> LoggedRecord {
    LoggedRecord {
        address: lock.address,
        old_version: lock.old_version,
        new_version: lock.new_version,
        nameless: lock.writes_nameless(),
    }
}
