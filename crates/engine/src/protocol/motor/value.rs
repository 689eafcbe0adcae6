//! A record's value: how it is read, and whether the bytes that came are of one moment. Older versions are made from
//! it, or found where every version is whole.
//!
//! Invariant: under the record's lock everything is of one moment. Without the lock, a value in one line is the one
//! that its STAMP names. A value of several lines, and deltas, need a further READ of the head behind them. They are
//! of one moment if LOCK is free in it, and LOCK and VERSION are as in the head that led there.
//!
//! A STAMP is never that of a commit that was undone: undoing brings the former STAMP back with the former bytes.

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

/// Returns the layout of this table's versions.
///
/// # Panics
/// If records of the table lie otherwise: a database is planned by its protocol.
pub(super) fn deltas(table: &Table) -> Deltas {
    match table.slot.record {
        RecordLayout::Deltas(deltas) => deltas,
        other => unreachable!("records of table {} have the layout {other:?}", table.schema.name),
    }
}

/// The words of a slot's image.
pub(super) fn image_words<'a>(txn: &'a Txn, image: BufferOffset, table: &Table) -> &'a [u64] {
    txn.round.words(image, table.slot.slot_bytes / 8)
}

/// Bytes of a STAMP and the row behind it.
#[inline]
pub(super) fn value_bytes(table: &Table) -> usize {
    STAMP_BYTES + table.slot.payload_bytes
}

/// Returns whether the newest value, read without a lock, needs its head once more.
#[inline]
pub(super) fn needs_head(motor: &Motor, table: &Table) -> bool {
    value_bytes(table) > LINE_BYTES && motor.switches.is_on(on::CHECK_HEAD)
}

/// Returns the version that the transaction is to see of a record, by its head.
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

/// READs the newest value; the buffer has room for its block.
pub(super) fn plan_newest(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let place = deltas(table).newest_place(image_words(txn, entry.image, table));
    plan_place(cx, txn, entry, table, place);
}

/// READs one of the places of a record's block; the first one if older versions are not whole.
fn plan_place(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table, place: usize) {
    let at = deltas(table).place_at(table.slot.payload_bytes, place);
    let target = cx.groups.primary(entry.body).plus(at);
    let block = txn.round.reserve_lines(table.slot.body_bytes() + HEAD_BYTES);
    txn.round.read_into(target, block, value_bytes(table));
    entry.payload = block.plus(STAMP_BYTES);
}

/// READs the value that the transaction is to see: the newest, with the deltas that lead back from it, or an older
/// one in its place. READs the head once more if that is needed.
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

/// READs the deltas that lead from the newest row back to a cell's version.
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

/// Where the image of an entry's block lies.
#[inline]
pub(super) fn block_of(entry: &Entry) -> BufferOffset {
    BufferOffset(entry.payload.0 - STAMP_BYTES as u32)
}

/// Returns whether the newest value that came with its head belongs to that head. If that needs the head once more,
/// it was read at `again`.
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

/// Returns whether a head is free, and has not changed.
fn is_unchanged(txn: &Txn, entry: &Entry, again: BufferOffset) -> bool {
    let lock = txn.round.word(again.plus(LOCK_AT));
    let is_free = lock == 0 || lock == txn.tag.word();
    is_free && same_head_but_lock(txn, entry.image, again)
}

fn same_head_but_lock(txn: &Txn, first: BufferOffset, second: BufferOffset) -> bool {
    same_head(&txn.round, first, second)
        || txn.round.word(first.plus(8)) == txn.round.word(second.plus(8))
}

/// Absorbs a value that was read after its head, without a lock. Returns whether the value belongs to that head.
/// Makes an older version of it, if the transaction is to see one.
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

/// Puts the deltas that lead to `cell`'s version over the newest row.
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

/// Copies a value that was read under the record's lock, so that the old one stays for the log and the delta.
pub(super) fn copy(txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let bytes = value_bytes(table).next_multiple_of(8);
    let copy = txn.round.reserve_lines(table.slot.body_bytes());
    txn.round.copy_within(block_of(entry), copy, bytes);
    entry.old_payload = entry.payload;
    entry.payload = copy.plus(STAMP_BYTES);
}

/// Makes the value of a record that is inserted: zeros.
pub(super) fn begin(txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let bytes = table.slot.body_bytes();
    let block = txn.round.reserve_lines(bytes);
    txn.round.bytes_mut(block, bytes).fill(0);
    entry.payload = block.plus(STAMP_BYTES);
}
