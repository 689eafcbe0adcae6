//! The consequences of a transaction's changes for indexes: the versions and fingerprints of directory records, and
//! the pieces that write them.
//!
//! Invariant: one WRITE contains a directory record's VERSION and its fingerprints, and follows the writes of all
//! records that the fingerprints describe. This module is for protocols that log old bytes and keep locks in memory
//! nodes.

use crate::site::Context;
use crate::steps::log::chain;
use crate::transaction::lock::{Lock, LockKind};
use crate::transaction::working_set::{Entry, PendingWrite, Txn};
use tarn_fabric::address::Address;
use tarn_store::ids::Failure;
use tarn_store::index::prints::Prints;
use tarn_store::layout::{DIRECTORY_STAMP_AT, VERSION_AT, Version};
use tarn_store::placement::catalog::Table;

/// Completes the list of the transaction's writes. Notes the old version of each lock whose record the transaction
/// does not write. Adds the writes of the VERSIONs of directory records, index headers and tree nodes. Collects the
/// groups that the transaction writes.
///
/// # Errors
/// The log entry would be longer than the limit of a log entry.
pub(crate) fn finish(
    cx: &Context,
    txn: &mut Txn,
    log_bytes: fn(&Txn) -> usize,
) -> Result<(), Failure> {
    for index in 0..txn.locks.len() {
        let lock = txn.locks[index];
        if !lock.writes {
            // The transaction locks this record but does not write it. The log entry shows that this record is not
            // written, because the record's old and new version in the entry are the same.
            txn.locks[index].new_version = lock.old_version;
        } else if lock.kind == LockKind::Directory {
            version_piece(txn, lock.address, lock.old_version, lock.new_version);
            if lock.prints != Prints::UNKNOWN {
                prints_piece(txn, &lock);
            }
        }
    }
    let Txn { groups, pieces, .. } = txn;
    for piece in pieces.iter() {
        if !groups.contains(&piece.address.group()) {
            groups.push(piece.address.group());
        }
    }
    let room = cx.database().catalog.options().log_bytes as usize;
    chain::note_length(cx, txn, (log_bytes(txn), room))
}

/// Frees the body that was allocated for an insert that the transaction took back.
pub(crate) fn give_back_body(cx: &Context, txn: &mut Txn, body: Address) {
    if let Some(index) = txn.allocated.iter().position(|block| block.address == body) {
        cx.take_back(txn.allocated.swap_remove(index));
    }
}

/// Changes the fingerprints of the bucket that contains the entry's slot. The entry's slot will contain the key with
/// this hash, or, if `hash` is `None`, no key.
pub(crate) fn change_prints(txn: &mut Txn, entry: &Entry, table: &Table, hash: Option<u64>) {
    let lock = &mut txn.locks[entry.directory_lock as usize];
    let slot = (lock.address, entry.address);
    lock.prints = lock.prints.changed(table, slot, hash);
}

pub(crate) fn set_new_version(txn: &mut Txn, lock: u32, version: Version) {
    let lock = &mut txn.locks[lock as usize];
    lock.new_version = version;
    lock.writes = true;
}

/// Gives a bucket that gains or loses a record a new VERSION, higher than the bucket's old VERSION and higher than
/// `floor`.
pub(crate) fn raise_directory(txn: &mut Txn, lock: u32, floor: Version) {
    let lock = &mut txn.locks[lock as usize];
    let raised = lock.old_version.present_after(floor);
    if !lock.writes || raised.counter() > lock.new_version.counter() {
        lock.new_version = raised;
    }
    lock.writes = true;
}

pub(crate) fn version_piece(txn: &mut Txn, record: Address, old: Version, new: Version) {
    let words = txn.round.reserve(16);
    txn.round.set_word(words, new.word());
    txn.round.set_word(words.plus(8), old.word());
    let (new, old) = (words, words.plus(8));
    let address = record.plus(VERSION_AT);
    txn.pieces.push(PendingWrite { address, new, old, len_bytes: 8, logged: true });
}

/// Adds the write of STAMP and PRINTS to the write of the directory record's VERSION, whose piece was added last.
/// STAMP and PRINTS follow VERSION in the cache line and in the buffer, so one WRITE contains all three words. The
/// transaction does not log the old bytes of STAMP and PRINTS, because they have no meaning under any other VERSION.
fn prints_piece(txn: &mut Txn, lock: &Lock) {
    let Some(version) = txn.pieces.last().copied() else { return };
    let (stamp, word) = (version.new.plus(8), txn.round.reserve(8));
    debug_assert!(version.old == stamp && word == stamp.plus(8));
    // Copies the old VERSION to another place, because STAMP and PRINTS need the place after the new VERSION.
    let old = txn.round.reserve(8);
    txn.round.set_word(old, lock.old_version.word());
    txn.round.set_word(stamp, lock.new_version.word());
    txn.round.set_word(word, lock.prints.word());
    if let Some(piece) = txn.pieces.last_mut() {
        piece.old = old;
    }
    let address = lock.address.plus(DIRECTORY_STAMP_AT);
    txn.pieces.push(PendingWrite { address, new: stamp, old: stamp, len_bytes: 16, logged: false });
}
