//! Prepares the writes of Motor's commit: the new value, the delta that leads back to the old value, and the head
//! that names both values.
//!
//! Invariant: if the new VERSION of a record is in memory, the whole new record is in memory. The commit therefore
//! writes the head's first line, with VERSION and NEWEST, last. Each piece also has the old bytes that it replaces,
//! except the pieces of a delta and its cell. The undo of the commit sets a delta and its cell to zero. After such an
//! undo, the record lacks its oldest version, but no version is wrong.

use super::Motor;
use super::nodes::stamp;
use super::value::{block_of, deltas, image_words, value_bytes};
use crate::site::Context;
use crate::steps::in_place;
use crate::steps::index::changes::{change_prints, finish, give_back_body, set_new_version};
use crate::steps::log::encode::undo_bytes;
use crate::transaction::working_set::{Entry, NO_LOCK, PendingWrite, Txn};
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{Failure, Mode};
use tarn_store::index::hash_of;
use tarn_store::layout::{
    DELTA_CELL_BYTES, DeltaCell, KEY_AT, NEWEST_AT, STAMP_BYTES, VALUE_AT, VERSION_AT, Version,
    WORD_BYTES, take_delta, version_at,
};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::Cells;

/// Returns whether the transaction writes this entry's record.
pub(super) fn changes(entry: &Entry) -> bool {
    entry.lock != NO_LOCK
        && match entry.mode {
            Mode::Update => entry.dirty.0 != 0,
            Mode::Insert | Mode::Delete => true,
            Mode::Read => false,
        }
}

/// Gathers the bytes that the commit writes, with the transaction's T_commit as the new version.
pub(super) fn prepare(_: &Motor, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    // The function takes the entries out of the transaction, so that the loop can read an entry while it changes the
    // rest of the transaction.
    let mut entries = std::mem::take(&mut txn.entries);
    let version = version_at(txn.stamps.commit);
    for entry in entries.iter_mut().filter(|entry| changes(entry)) {
        let table = cx.table(entry.table);
        match entry.mode {
            Mode::Insert if entry.void => {
                give_back_body(cx, txn, entry.body);
                // Even an insert that the transaction took back may have made the bucket's chain longer, so the
                // directory record gets a new version.
                set_new_version(txn, entry.directory_lock, version);
                continue;
            }
            Mode::Update => prepare_update(txn, entry, table, version),
            Mode::Insert => prepare_insert(txn, entry, table, version),
            Mode::Delete => prepare_delete(txn, entry, table, version),
            Mode::Read => {}
        }
        entry.new_version = version;
    }
    txn.entries = entries;
    stamp(txn, version);
    finish(cx, txn, undo_bytes)
}

fn prepare_update(txn: &mut Txn, entry: &Entry, table: &Table, version: Version) {
    set_new_version(txn, entry.lock, version);
    let cell = deltas(table).cell_to_overwrite(image_words(txn, entry.image, table));
    match cell {
        Some(cell) if deltas(table).is_whole() => {
            whole_piece(txn, entry, table, (cell, version));
        }
        Some(cell) => {
            delta_piece(txn, entry, table, cell);
            value_pieces(txn, entry, table, version);
        }
        None => value_pieces(txn, entry, table, version),
    }
    let head = copy_of(txn, entry.image, table.slot.slot_bytes);
    txn.round.set_word(head.plus(VERSION_AT), version.word());
    txn.round.set_word(head.plus(NEWEST_AT), version.word());
    let Some(cell) = cell else {
        return head_pieces(txn, entry, (head, entry.image), NEWEST_AT + 8);
    };
    // If recovery undoes the update, the cell contains no version afterwards.
    let old = copy_of(txn, entry.image, table.slot.slot_bytes);
    let deltas = deltas(table);
    let (after, undone) = match deltas.is_whole() {
        true => {
            let image = image_words(txn, entry.image, table);
            let after = deltas.cell_after(image, cell, Some(entry.version));
            (after, deltas.cell_after(image, cell, None))
        }
        false => {
            let delta = deltas.delta_at(table.slot.payload_bytes, cell) as u64;
            let after = DeltaCell { old: entry.version, columns: entry.dirty, delta };
            (after, DeltaCell::default())
        }
    };
    let at = deltas.cell_at(cell);
    for (index, (word, before)) in after.words().into_iter().zip(undone.words()).enumerate() {
        txn.round.set_word(head.plus(at + 8 * index), word);
        txn.round.set_word(old.plus(at + 8 * index), before);
    }
    if at + DELTA_CELL_BYTES <= LINE_BYTES {
        return head_pieces(txn, entry, (head, old), at + DELTA_CELL_BYTES);
    }
    piece(txn, entry.address, (head, old), at, DELTA_CELL_BYTES);
    head_pieces(txn, entry, (head, old), NEWEST_AT + 8);
}

/// Adds the pieces for the first line of a head, up to the offset `end`. VERSION is a separate piece, because an undo
/// raises the VERSION.
fn head_pieces(txn: &mut Txn, entry: &Entry, images: (BufferOffset, BufferOffset), end: usize) {
    piece(txn, entry.address, images, VERSION_AT, 8);
    piece(txn, entry.address, images, KEY_AT, end - KEY_AT);
}

/// Adds the piece that writes the range of `len` bytes at the address `base + at`. The buffer contains the new and
/// the old image of this range.
fn piece(
    txn: &mut Txn,
    base: Address,
    (new, old): (BufferOffset, BufferOffset),
    at: usize,
    len: usize,
) {
    txn.pieces.push(PendingWrite {
        address: base.plus(at),
        new: new.plus(at),
        old: old.plus(at),
        len_bytes: len as u32,
        logged: true,
    });
}

fn copy_of(txn: &mut Txn, image: BufferOffset, bytes: usize) -> BufferOffset {
    let copy = txn.round.reserve_lines(bytes);
    txn.round.copy_within(image, copy, bytes);
    copy
}

/// Adds the piece of the delta, which contains the old bytes of the changed columns.
fn delta_piece(txn: &mut Txn, entry: &Entry, table: &Table, cell: usize) {
    let payload_bytes = table.slot.payload_bytes;
    let delta = txn.round.reserve_lines(payload_bytes.next_multiple_of(WORD_BYTES));
    let zeros = txn.round.reserve_lines(payload_bytes.next_multiple_of(WORD_BYTES));
    for at in [delta, zeros] {
        txn.round.bytes_mut(at, payload_bytes.next_multiple_of(WORD_BYTES)).fill(0);
    }
    let row = txn.round.bytes(entry.old_payload, payload_bytes).to_vec();
    let to = txn.round.bytes_mut(delta, payload_bytes);
    let len = take_delta(&table.schema, entry.dirty, &row, to).next_multiple_of(WORD_BYTES);
    let at = deltas(table).delta_at(payload_bytes, cell);
    piece(txn, entry.body.plus(at), (delta, zeros), 0, len);
}

/// Adds the piece of the new version, which is stored whole at the place of a cell's version. No head names this new
/// version until the commit writes the new head; after an undo, no head names it either.
fn whole_piece(txn: &mut Txn, entry: &Entry, table: &Table, (cell, version): (usize, Version)) {
    let (new, deltas) = (block_of(entry), deltas(table));
    let place = deltas.place_of(image_words(txn, entry.image, table), cell);
    txn.round.set_word(new, version.word());
    txn.pieces.push(PendingWrite {
        address: entry.body.plus(deltas.place_at(table.slot.payload_bytes, place)),
        new,
        old: new,
        len_bytes: value_bytes(table).next_multiple_of(WORD_BYTES) as u32,
        logged: false,
    });
}

/// Adds the pieces of STAMP and of the changed columns of a value. If one cache line contains the whole value, STAMP
/// and columns are one piece, so that both change together.
fn value_pieces(txn: &mut Txn, entry: &Entry, table: &Table, version: Version) {
    let new = block_of(entry);
    let old = BufferOffset(entry.old_payload.0 - STAMP_BYTES as u32);
    txn.round.set_word(new, version.word());
    let (mut runs, mut end) = (Vec::new(), 0);
    table.for_each_run(entry.dirty, WORD_BYTES, |from, to| {
        runs.push((STAMP_BYTES + from, to - from));
        end = STAMP_BYTES + to;
    });
    if value_bytes(table) <= LINE_BYTES {
        return piece(txn, entry.body, (new, old), 0, end);
    }
    piece(txn, entry.body, (new, old), 0, STAMP_BYTES);
    for (at, len) in runs {
        piece(txn, entry.body, (new, old), at, len);
    }
}

fn prepare_insert(txn: &mut Txn, entry: &Entry, table: &Table, version: Version) {
    let slot = &table.slot;
    let floor = txn.locks[entry.directory_lock as usize].old_version;
    set_new_version(txn, entry.lock, version);
    set_new_version(txn, entry.directory_lock, version);
    change_prints(txn, entry, table, Some(hash_of(table, entry.key)));
    let new = block_of(entry);
    txn.round.set_word(new, version.word());
    txn.pieces.push(PendingWrite {
        address: entry.body,
        new,
        old: new,
        len_bytes: value_bytes(table).next_multiple_of(WORD_BYTES) as u32,
        logged: false,
    });
    let head = txn.round.reserve_lines(slot.slot_bytes);
    txn.round.bytes_mut(head, slot.slot_bytes).fill(0);
    txn.round.set_word(head.plus(VERSION_AT), version.word());
    txn.round.set_word(head.plus(KEY_AT), entry.key);
    txn.round.set_word(head.plus(VALUE_AT), entry.body.to_word());
    txn.round.set_word(head.plus(NEWEST_AT), version.word());
    if deltas(table).cells() > 0 {
        // The record was absent from the last change of its bucket until now.
        let old = Version::from_word(floor.word()).absent();
        let words = DeltaCell { old, columns: Cells::NONE, delta: 0 }.words();
        for (index, word) in words.into_iter().enumerate() {
            txn.round.set_word(head.plus(deltas(table).cell_at(0) + 8 * index), word);
        }
    }
    txn.round.copy_within(entry.full_key, head.plus(slot.full_key_at), slot.full_key_bytes);
    // The slot contains no record, so the commit logs only the old VERSION and KEY; they lie in the first line, which
    // it writes last.
    let end = slot.used_bytes().next_multiple_of(WORD_BYTES);
    for (from, to, logged) in [(LINE_BYTES, end, false), (VERSION_AT, end.min(LINE_BYTES), true)] {
        if to > from {
            let (new, old) = (head.plus(from), entry.image.plus(from));
            let len_bytes = (to - from) as u32;
            txn.pieces.push(PendingWrite {
                address: entry.address.plus(from),
                new,
                old,
                len_bytes,
                logged,
            });
        }
    }
}

fn prepare_delete(txn: &mut Txn, entry: &Entry, table: &Table, version: Version) {
    let gone = version.absent();
    set_new_version(txn, entry.lock, gone);
    set_new_version(txn, entry.directory_lock, version);
    change_prints(txn, entry, table, None);
    let head = copy_of(txn, entry.image, table.slot.slot_bytes);
    txn.round.set_word(head.plus(VERSION_AT), gone.word());
    txn.round.set_word(head.plus(NEWEST_AT), gone.word());
    // The new head leads to no version of the deleted record. The undo of the deletion gives the slot the pointer to
    // its value back.
    txn.round.set_word(head.plus(VALUE_AT), Address::NULL.to_word());
    head_pieces(txn, entry, (head, entry.image), NEWEST_AT + 8);
    txn.allocated.push(in_place::gone(entry, table));
}
