//! Prepares the writes of a commit that changes records in place, for tables that keep one version per record. This
//! module decides the records' new versions and the bytes that change.
//!
//! Invariant: if a record's new VERSION is in memory, the whole new record is in memory. A commit writes VERSION in
//! the same cache line as the record's other bytes, or after the other bytes. Each pending write also carries the old
//! bytes that it replaces. After a deletion, the record's slot has no body. The memory of a deleted record's body
//! becomes free only after the commit, because an undo of the transaction gives the body back to the slot.

use crate::site::Context;
use crate::steps::index::changes::{
    change_prints, finish, give_back_body, raise_directory, set_new_version, version_piece,
};
use crate::steps::log::encode::undo_bytes;
use crate::transaction::working_set::{Allocated, Entry, Memory, NO_LOCK, PendingWrite, Txn};
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{Failure, Mode};
use tarn_store::index::hash_of;
use tarn_store::layout::{KEY_AT, VERSION_AT, Version, WORD_BYTES};
use tarn_store::placement::catalog::Table;

/// The rules by which a variant of a protocol writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writes {
    /// If `changes_only` is true, an update writes a record's bytes only up to the last changed byte; otherwise it
    /// writes all bytes of the record.
    pub(crate) changes_only: bool,
    /// If `keeps_version` is true, an inserted record's version follows the VERSION of its slot and of its directory
    /// record. If `keeps_version` is false (a planted bug), the inserted record's version begins again at the first
    /// version.
    pub(crate) keeps_version: bool,
}

/// Decides the new versions and gathers the bytes that the commit will write.
pub(crate) fn prepare(how: Writes, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    // The function takes the entries out of the transaction, so that the loop can read an entry while it changes the
    // rest of the transaction.
    let mut entries = std::mem::take(&mut txn.entries);
    for entry in entries.iter_mut().filter(|entry| entry.lock != NO_LOCK) {
        let table = cx.table(entry.table);
        match entry.mode {
            Mode::Insert if entry.void => {
                give_back_body(cx, txn, entry.body);
                // Even an insert that the transaction took back may have made the bucket's chain longer, so the
                // function raises the directory's version.
                raise_directory(txn, entry.directory_lock, Version::NEVER);
            }
            Mode::Update if entry.dirty.0 != 0 => prepare_update(how, txn, entry, table),
            Mode::Insert => prepare_insert(how, txn, entry, table),
            Mode::Delete => prepare_delete(txn, entry, table),
            Mode::Update | Mode::Read => {}
        }
        entry.new_version = txn.locks[entry.lock as usize].new_version;
    }
    txn.entries = entries;
    finish(cx, txn, undo_bytes)
}

fn prepare_update(how: Writes, txn: &mut Txn, entry: &Entry, table: &Table) {
    let old_version = entry.version;
    let new_version = old_version.present_after(Version::NEVER);
    set_new_version(txn, entry.lock, new_version);
    if table.slot.is_out_of_line() {
        let Txn { pieces, .. } = txn;
        table.for_each_run(entry.dirty, WORD_BYTES, |from, to| {
            pieces.push(PendingWrite {
                address: entry.body.plus(from),
                new: entry.payload.plus(from),
                old: entry.old_payload.plus(from),
                len_bytes: (to - from) as u32,
                logged: true,
            });
        });
        // The piece of VERSION comes last, so that a new VERSION in memory shows that the whole record is new.
        version_piece(txn, entry.address, old_version, new_version);
        return;
    }
    // One piece contains VERSION, KEY and the payload up to the last changed byte.
    let copy = BufferOffset(entry.payload.0 - table.slot.payload_at as u32);
    txn.round.set_word(copy.plus(VERSION_AT), new_version.word());
    let last = 63 - entry.dirty.0.leading_zeros() as usize;
    let column = &table.schema.columns[last];
    let changed = table.slot.payload_at + column.offset_bytes + column.column_type.width_bytes();
    let changed = changed.next_multiple_of(WORD_BYTES);
    let end = if how.changes_only { changed } else { table.slot.slot_bytes };
    slot_pieces(txn, entry, copy, (VERSION_AT, end), true);
}

/// Adds the pieces to write for the bytes `from..to` of a slot, whose new image is at `new`. The piece with the
/// slot's later cache lines comes first. The piece with VERSION's cache line comes last and is written as a whole, so
/// that a new VERSION shows that the whole record is new.
fn slot_pieces(
    txn: &mut Txn,
    entry: &Entry,
    new: BufferOffset,
    (from, to): (usize, usize),
    later_logged: bool,
) {
    let first_end = to.min(LINE_BYTES);
    for (from, to, logged) in [(first_end, to, later_logged), (from, first_end, true)] {
        if to > from {
            txn.pieces.push(PendingWrite {
                address: entry.address.plus(from),
                new: new.plus(from),
                old: entry.image.plus(from),
                len_bytes: (to - from) as u32,
                logged,
            });
        }
    }
}

fn prepare_insert(how: Writes, txn: &mut Txn, entry: &Entry, table: &Table) {
    let slot = &table.slot;
    let directory = txn.locks[entry.directory_lock as usize];
    let former = txn.locks[entry.lock as usize].old_version;
    let new_version = match how.keeps_version {
        true => former.present_after(directory.old_version),
        false => Version::NEVER.present_after(Version::NEVER),
    };
    set_new_version(txn, entry.lock, new_version);
    raise_directory(txn, entry.directory_lock, Version::NEVER);
    change_prints(txn, entry, table, Some(hash_of(table, entry.key)));
    let head = match slot.body_at {
        None => BufferOffset(entry.payload.0 - slot.payload_at as u32),
        Some(body_at) => {
            let head = txn.round.reserve_lines(slot.slot_bytes);
            txn.round.set_word(head.plus(body_at), entry.body.to_word());
            txn.pieces.push(PendingWrite {
                address: entry.body,
                new: entry.payload,
                old: entry.payload,
                len_bytes: slot.payload_bytes.next_multiple_of(WORD_BYTES) as u32,
                logged: false,
            });
            head
        }
    };
    txn.round.set_word(head.plus(VERSION_AT), new_version.word());
    txn.round.set_word(head.plus(KEY_AT), entry.key);
    txn.round.copy_within(entry.full_key, head.plus(slot.full_key_at), slot.full_key_bytes);
    // The slot contains no record, so the transaction logs only the slot's old VERSION and KEY; the slot's other old
    // bytes do not matter.
    let end = match slot.body_at {
        None => slot.used_bytes().next_multiple_of(WORD_BYTES),
        Some(_) => slot.used_bytes(),
    };
    slot_pieces(txn, entry, head, (VERSION_AT, end), false);
}

fn prepare_delete(txn: &mut Txn, entry: &Entry, table: &Table) {
    let new_version = entry.version.absent_after();
    set_new_version(txn, entry.lock, new_version);
    match table.slot.body_at {
        None => version_piece(txn, entry.address, entry.version, new_version),
        Some(body_at) => {
            // VERSION, KEY and BODY lie in one cache line, and one write contains all three.
            let end = body_at + WORD_BYTES;
            let head = txn.round.reserve_lines(end);
            txn.round.copy_within(entry.image, head, end);
            txn.round.set_word(head.plus(VERSION_AT), new_version.word());
            txn.round.set_word(head.plus(body_at), Address::NULL.to_word());
            slot_pieces(txn, entry, head, (VERSION_AT, end), true);
            txn.allocated.push(gone(entry, table));
        }
    }
    raise_directory(txn, entry.directory_lock, new_version);
    change_prints(txn, entry, table, None);
}

/// Returns the description of a deleted record's body, whose memory can be freed.
pub(crate) fn gone(entry: &Entry, table: &Table) -> Allocated {
    let (address, bytes) = (entry.body, table.slot.body_bytes() as u32);
    Allocated { address, bytes, memory: Memory::Gone(table.id) }
}
