//! A record's value: how a transaction reads the value, and how it checks that the value's bytes belong to one
//! moment. If every version is stored whole, a transaction reads an older version at that version's own place;
//! otherwise it computes the older version from the newest value.
//!
//! Invariant: all bytes that a transaction reads under the record's lock belong to one moment. If a transaction reads
//! a value in one cache line without the lock, the value is the version that its STAMP names. After a value of
//! several lines, or a value with deltas, the transaction must READ the head once more. The bytes of such a value
//! belong to one moment if LOCK is free in the second head, and its LOCK and VERSION equal those of the first head.
//!
//! No STAMP belongs to a commit that was undone, because the undo writes the former STAMP back together with the
//! former bytes.

use super::Motor;
use super::execute::HEAD_BYTES;
use super::switches::on;
use crate::site::Context;
use crate::transaction::working_set::{Entry, NO_LOCK, Txn};
use tarn_fabric::address::LINE_BYTES;
use tarn_fabric::round::BufferOffset;
use tarn_store::index::hash::same_head;
use tarn_store::layout::{
    DeltaCell, Deltas, LOCK_AT, RecordLayout, STAMP_BYTES, Shown, Version, delta_bytes, newest,
    put_delta,
};
use tarn_store::placement::catalog::Table;

/// Returns the layout of the versions in this table.
///
/// # Panics
/// The records of the table have another layout. A table of this database cannot have another layout, because the
/// database's own protocol has planned its tables.
pub(super) fn deltas(table: &Table) -> Deltas {
    match table.slot.record {
        RecordLayout::Deltas(deltas) => deltas,
        other => unreachable!("records of table {} have the layout {other:?}", table.schema.name),
    }
}

/// Returns the words of a slot's image.
pub(super) fn image_words<'a>(txn: &'a Txn, image: BufferOffset, table: &Table) -> &'a [u64] {
    txn.round.words(image, table.slot.slot_bytes / 8)
}

/// Returns the number of bytes of a STAMP and the row after it.
#[inline]
pub(super) fn value_bytes(table: &Table) -> usize {
    STAMP_BYTES + table.slot.payload_bytes
}

/// Returns whether the newest value needs a second READ of its head, if the transaction has read the value without a
/// lock.
#[inline]
pub(super) fn needs_head(motor: &Motor, table: &Table) -> bool {
    value_bytes(table) > LINE_BYTES && motor.switches.is_on(on::CHECK_HEAD)
}

/// Returns the version of a record that the transaction must see, according to the record's head.
pub(super) fn shown(motor: &Motor, txn: &Txn, entry: &Entry, table: &Table) -> Shown {
    let (deltas, image) = (deltas(table), image_words(txn, entry.image, table));
    if !motor.reads_snapshot(txn) {
        return Shown::Newest(newest(image));
    }
    let shown = deltas.shown(image, txn.stamps.start);
    if shown != Shown::TooOld || motor.switches.is_on(on::TOO_OLD) {
        return shown;
    }
    let kept = (0..deltas.cells()).map(|cell| (cell, deltas.cell(image, cell).old));
    let oldest = kept.filter(|(_, old)| old.is_present()).min_by_key(|(_, old)| old.counter());
    oldest.map_or(Shown::Newest(newest(image)), |(cell, old)| Shown::Older(cell, old))
}

/// Adds the READ of the record's newest value. Reserves room in the buffer for the record's whole block.
pub(super) fn plan_newest(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let place = deltas(table).newest_place(image_words(txn, entry.image, table));
    plan_place(cx, txn, entry, table, place);
}

/// Adds the READ of one of the places for values in a record's block. If older versions are not stored whole, this
/// place is always the first place.
fn plan_place(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table, place: usize) {
    let at = deltas(table).place_at(table.slot.payload_bytes, place);
    let target = cx.groups.primary(entry.body).plus(at);
    let block = txn.round.reserve_lines(table.slot.body_bytes() + HEAD_BYTES);
    txn.round.read_into(target, block, value_bytes(table));
    entry.payload = block.plus(STAMP_BYTES);
}

/// Adds the READs of the value that the transaction must see. The value that the transaction must see is either the
/// newest value with the deltas that lead back from it, or an older value at its own place. Also adds a second READ
/// of the head, if the value needs it.
pub(super) fn plan(motor: &Motor, cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    if entry.lock != NO_LOCK {
        return plan_newest(cx, txn, entry, table);
    }
    let deltas = deltas(table);
    let mut again = needs_head(motor, table);
    match shown(motor, txn, entry, table) {
        Shown::Older(cell, _) if deltas.is_whole() => {
            let place = deltas.place_of(image_words(txn, entry.image, table), cell);
            plan_place(cx, txn, entry, table, place);
        }
        Shown::Older(cell, _) => {
            again = motor.switches.is_on(on::CHECK_HEAD);
            plan_newest(cx, txn, entry, table);
            plan_deltas(cx, txn, entry, table, cell);
        }
        Shown::Newest(_) | Shown::Absent(_) | Shown::TooOld => plan_newest(cx, txn, entry, table),
    }
    if again {
        let (head, block) = (cx.groups.primary(entry.address), block_of(entry));
        txn.round.read_into(head, block.plus(table.slot.body_bytes()), HEAD_BYTES);
    }
}

/// Adds the READs of the deltas that lead from the newest row back to the version of a cell.
fn plan_deltas(cx: &Context, txn: &mut Txn, entry: &Entry, table: &Table, cell: usize) {
    let (block, target) = (block_of(entry), cx.groups.primary(entry.body));
    let (deltas, image) = (deltas(table), image_words(txn, entry.image, table));
    let steps: Vec<DeltaCell> =
        deltas.steps_to(image, cell).map(|step| deltas.cell(image, step)).collect();
    for DeltaCell { columns, delta, .. } in steps {
        let (at, len) = (delta as usize, delta_bytes(&table.schema, columns));
        txn.round.read_into(target.plus(at), block.plus(at), len.next_multiple_of(8));
    }
}

/// Returns the position in the buffer of the image of an entry's block.
#[inline]
pub(super) fn block_of(entry: &Entry) -> BufferOffset {
    BufferOffset(entry.payload.0 - STAMP_BYTES as u32)
}

/// Returns whether the newest value, which was read together with its head, belongs to that head. If this check needs
/// a second READ of the head, the second image of the head is at `again`.
pub(super) fn fits(
    motor: &Motor,
    txn: &Txn,
    entry: &Entry,
    table: &Table,
    again: BufferOffset,
) -> bool {
    if needs_head(motor, table) {
        return is_unchanged(txn, entry, again);
    }
    let stamp = Version::from_word(txn.round.word(block_of(entry)));
    stamp == newest(image_words(txn, entry.image, table))
}

/// Returns whether a head was unlocked at its second READ, and had not changed since its first READ.
fn is_unchanged(txn: &Txn, entry: &Entry, again: BufferOffset) -> bool {
    let lock = txn.round.word(again.plus(LOCK_AT));
    let is_free = lock == 0 || lock == txn.tag.word();
    is_free && same_head_but_lock(txn, entry.image, again)
}

fn same_head_but_lock(txn: &Txn, first: BufferOffset, second: BufferOffset) -> bool {
    same_head(&txn.round, first, second)
        || txn.round.word(first.plus(8)) == txn.round.word(second.plus(8))
}

/// Handles a value that the transaction has read after its head, without a lock. Returns whether the value belongs to
/// the head that was read before the value. If the transaction must see an older version, computes the older version
/// from this value.
pub(super) fn take(motor: &Motor, txn: &mut Txn, entry: &Entry, table: &Table) -> bool {
    let (block, bytes) = (block_of(entry), table.slot.body_bytes());
    let again = block.plus(bytes);
    let Shown::Older(cell, old) = shown(motor, txn, entry, table) else {
        return fits(motor, txn, entry, table, again);
    };
    if deltas(table).is_whole() {
        return match needs_head(motor, table) {
            true => is_unchanged(txn, entry, again),
            false => Version::from_word(txn.round.word(block)) == old,
        };
    }
    let is_whole = match motor.switches.is_on(on::CHECK_HEAD) {
        true => is_unchanged(txn, entry, again),
        false => fits(motor, txn, entry, table, again),
    };
    if is_whole {
        go_back(txn, entry, table, cell);
    }
    is_whole
}

/// Applies the deltas that lead back to the version of `cell` to the newest row.
fn go_back(txn: &mut Txn, entry: &Entry, table: &Table, cell: usize) {
    let (block, bytes) = (block_of(entry), table.slot.body_bytes());
    let (deltas, image) = (deltas(table), image_words(txn, entry.image, table));
    let steps: Vec<DeltaCell> =
        deltas.steps_to(image, cell).map(|step| deltas.cell(image, step)).collect();
    let first_delta = deltas.delta_at(table.slot.payload_bytes, 0);
    let (value, kept) = txn.round.bytes_mut(block, bytes).split_at_mut(first_delta);
    let row = &mut value[STAMP_BYTES..STAMP_BYTES + table.slot.payload_bytes];
    for DeltaCell { columns, delta, .. } in steps {
        put_delta(&table.schema, columns, &kept[delta as usize - first_delta..], row);
    }
}

/// Copies a value that was read under the record's lock, so that the old value remains for the log and the delta.
pub(super) fn copy(txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let bytes = value_bytes(table).next_multiple_of(8);
    let copy = txn.round.reserve_lines(table.slot.body_bytes());
    txn.round.copy_within(block_of(entry), copy, bytes);
    entry.old_payload = entry.payload;
    entry.payload = copy.plus(STAMP_BYTES);
}

/// Makes the value of a record that the transaction inserts; all bytes of this value are zero.
pub(super) fn begin(txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let bytes = table.slot.body_bytes();
    let block = txn.round.reserve_lines(bytes);
    txn.round.bytes_mut(block, bytes).fill(0);
    entry.payload = block.plus(STAMP_BYTES);
}
