//! Prepares the bytes that LOTUS's commit writes. For each record that changes, the prepared bytes are a new version,
//! the cell that leads to the version, and the former bytes that recovery needs.
//!
//! Invariant: a new version overwrites the oldest version in the record's version table. A new version overwrites the
//! newest committed version only if the version table has just one place. PREV_TS contains the timestamp of a
//! discarded version. All bytes of phase C1 are pieces, in the order in which they must arrive at a node. The pieces
//! of a version come before the piece of its cell. If the commit fills a free slot, the slot's later lines come
//! before its first line.

use super::nodes;
use super::switches::Lotus;
use crate::site::Context;
use crate::steps::log::chain;
use crate::transaction::working_set::{
    Allocated, Entry, Memory, NO_LOOKUP, PendingWrite, Txn, Written,
};
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure, Mode, Timestamp};
use tarn_store::layout::{
    CELL_PREV_TS_AT, Cell, CellAddress, Cells, KEY_AT, PACKED_VERSIONS_AT, PACKED_WRITER_AT,
    Packed, PayloadAt, RecordLayout, SHAPE_AT, VERSION_AT, Version, VersionWord, seal_record,
};
use tarn_store::log::pieces::OldBytes;
use tarn_store::log::versions::{self, Writing};
use tarn_store::placement::catalog::Table;

/// The number of bytes of a packed record, from its first version on.
pub(super) const PACKED_BYTES: usize = LINE_BYTES - PACKED_VERSIONS_AT;

/// Returns whether the transaction changes the record of this entry.
#[inline]
pub(super) fn changes(entry: &Entry) -> bool {
    if entry.mode == Mode::Update {
        return entry.writable && entry.dirty.0 != 0; // most entries that change a record
    }
    entry.writable
        && match entry.mode {
            Mode::Read | Mode::Update => false,
            Mode::Insert => !entry.void,
            Mode::Delete => entry.found,
        }
}

/// Gathers the bytes of phase C1 and the log entry. This preparation may wait for memory. This preparation writes
/// nothing to memory yet.
pub(super) async fn prepare(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    txn.stamps.lower = cx.timestamps.known(cx);
    txn.written.clear();
    // Up to here, the pieces contain only links of chains, which the transaction's inserts have added.
    for index in 0..txn.entries.len() {
        let entry = txn.entries[index];
        if !changes(&entry) {
            continue;
        }
        match cx.table(entry.table).slot.record {
            RecordLayout::Cells(_) => prepare_cell(lotus, cx, txn, index).await?,
            RecordLayout::Packed(packed) => prepare_packed(lotus, cx, txn, (index, packed))?,
            RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => {
                unreachable!("a layout of versions")
            }
        }
    }
    drop_vain_links(cx, txn);
    txn.groups.clear();
    let Txn { groups, written, locks, .. } = &mut *txn;
    let nodes = locks.iter().filter(|lock| lock.writes).map(|lock| lock.address.group());
    for group in written.iter().map(|it| it.slot.group()).chain(nodes) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let room = versions::decision_at(cx.database().catalog.options().log_bytes);
    chain::note_length(cx, txn, (log_bytes(txn), room))?;
    if txn.chain.is_used() {
        Box::pin(chain::provide(cx, txn)).await?;
    }
    Ok(())
}

/// Returns the number of bytes of the transaction's log entry.
pub(super) fn log_bytes(txn: &Txn) -> usize {
    let former = txn.written.iter().map(|it| it.former_bytes).sum();
    let old = node_bytes(txn).map(|piece| (piece.len_bytes as usize).next_multiple_of(8));
    let (pieces, bytes) = old.fold((0, 0), |(count, sum), len| (count + 1, sum + len));
    let nodes = nodes::changed(txn).count();
    versions::entry_bytes(txn.written.len(), former, links(txn).count())
        + versions::nodes_bytes(nodes, pieces, bytes)
}

/// Returns the links that the transaction writes: the place of each NEXT pointer, and the block to which it will
/// point.
pub(super) fn links(txn: &Txn) -> impl Iterator<Item = (Address, Address)> {
    let block = |piece: &PendingWrite| Address::from_word(txn.round.word(piece.new));
    txn.pieces.iter().filter(|piece| is_link(piece)).map(move |piece| (piece.address, block(piece)))
}

/// Frees the overflow blocks that contain no record because the transaction took their inserts back. The function
/// frees the last block of a chain first. The transaction writes and logs a link only if a block after this link
/// contains a record. Recovery writes the logged links again.
#[inline]
pub(super) fn drop_vain_links(cx: &Context, txn: &mut Txn) {
    if !txn.allocated.is_empty() {
        drop_links(cx, txn);
    }
}

#[cold]
fn drop_links(cx: &Context, txn: &mut Txn) {
    for index in (0..txn.pieces.len()).rev() {
        let piece = txn.pieces[index];
        if !is_link(&piece) {
            continue;
        }
        let block = Address::from_word(txn.round.word(piece.new));
        let Some(at) = txn.allocated.iter().position(|it| it.address == block) else { continue };
        let bytes = u64::from(txn.allocated[at].bytes);
        let is_in = |it: Address| {
            let within = it.offset_bytes().wrapping_sub(block.offset_bytes());
            it.group() == block.group() && within < bytes
        };
        let leads_on = txn.pieces.iter().any(|piece| is_link(piece) && is_in(piece.address));
        if !leads_on && !txn.written.iter().any(|it| is_in(it.slot)) {
            txn.pieces.remove(index);
            cx.take_back(txn.allocated.swap_remove(at));
        }
    }
}

/// A link is the only kind of piece that has 8 bytes and replaces no old bytes. Other pieces of records have at least
/// the size of a cell, and slots of tree nodes, which may have 8 bytes, have old bytes.
fn is_link(piece: &PendingWrite) -> bool {
    piece.len_bytes == 8 && piece.old == piece.new
}

/// Returns the pieces of tree nodes whose old bytes recovery must restore if it undoes the transaction. Recovery need
/// not restore the old bytes of slots that were not in use.
fn node_bytes(txn: &Txn) -> impl Iterator<Item = &PendingWrite> {
    txn.pieces.iter().filter(|piece| piece.logged)
}

/// Writes the transaction's log entry into the buffer. Returns the log entry's place in the buffer and its length.
pub(super) fn encode_log(txn: &mut Txn) -> (BufferOffset, usize) {
    let (len, links) = (log_bytes(txn), links(txn).collect::<Vec<_>>());
    let nodes: Vec<_> = nodes::changed(txn).map(|it| (it.address, it.old_version)).collect();
    let old: Vec<_> = node_bytes(txn)
        .map(|it| OldBytes { address: it.address, at: it.old, len_bytes: it.len_bytes as usize })
        .collect();
    let Txn { round, tag, written, .. } = txn;
    let writings = written.iter().map(writing);
    let at = versions::write_entry(round, *tag, writings, (&links, &nodes, &old), len);
    if txn.chain.is_used() {
        chain::complete(txn, at, len);
    }
    (at, len)
}

/// Returns the description of a written version for the log entry.
#[inline(always)]
pub(super) fn writing(it: &Written) -> Writing {
    Writing {
        slot: it.slot,
        table: it.table,
        cell: it.cell,
        came: it.came,
        former: it.former,
        former_bytes: it.former_bytes,
    }
}

/// Chooses the place of the entry's new version, and the PREV_TS of this place. Returns the place with its PREV_TS,
/// and whether the new version fills a free slot. A free slot contains no version to overwrite. A slot in which no
/// transaction ever committed a version also counts as free. An incarnation that died during C1 left such a slot,
/// perhaps at only one replica. So the commit writes the whole slot at every replica.
fn place(lotus: &Lotus, cx: &Context, txn: &Txn, entry: &Entry) -> Result<(Place, bool), Failure> {
    let slot = &cx.table(entry.table).slot;
    let image = txn.round.bytes(entry.image, slot.slot_bytes);
    let is_stray = || entry.mode == Mode::Insert && slot.newest_committed(image).is_none();
    if slot.is_free(image) || is_stray() {
        let prev_ts = emptied_at(txn, entry).max(slot.discarded_from(image, 0));
        return Ok((Place { cell: 0, prev_ts, discarded: Address::NULL }, true));
    }
    let stray = |txn: u64| lotus.is_stray(cx, txn);
    let chosen = slot.cell_to_overwrite(image, lotus.rules(), stray);
    let chosen = chosen.ok_or(Failure::Abort(AbortReason::Undecided))?;
    let discarded =
        chosen.discarded.map_or(Address::NULL, |it| match slot.payload_of(image, it.cell) {
            PayloadAt::Apart(record) if !slot.is_given_up(image, it.version) => record,
            PayloadAt::Apart(_) | PayloadAt::Slot(_) | PayloadAt::Lines(_) => Address::NULL,
        });
    Ok((Place { cell: chosen.cell, prev_ts: chosen.prev_ts, discarded }, false))
}

/// Returns the time when a sweep last emptied slots of the insert's bucket, or a split last moved its records; 0 if
/// neither happened. Before the returned time, the key of the insert may have been in the bucket.
fn emptied_at(txn: &Txn, entry: &Entry) -> Timestamp {
    let directory = match entry.lookup == NO_LOOKUP {
        true => Version::NEVER,
        false => txn.lookup(entry).directory_version,
    };
    match directory.counter() > Version::LOADED.counter() {
        // The odd VERSION of an undone change counts as the next timestamp.
        true => Timestamp(directory.counter().div_ceil(2)),
        false => Timestamp::ZERO,
    }
}

/// Notes the memory that the old versions of a deleted record occupy, except the version whose place the deletion
/// takes.
fn give_up_versions(txn: &mut Txn, table: &Table, entry: &Entry, (cells, place): (Cells, usize)) {
    let (slot, bytes) = (&table.slot, table.slot.body_bytes() as u32);
    let image = txn.round.bytes(entry.image, slot.slot_bytes);
    for index in (0..cells.count()).filter(|&index| index != place) {
        let cell = cells.cell(image, index);
        let is_its = cell.version.is_committed() && !cell.to.is_deleted();
        if is_its && !slot.is_given_up(image, cell.version.timestamp()) {
            let (address, memory) = (cell.to.address(), Memory::Gone(table.id));
            txn.allocated.push(Allocated { address, bytes, memory });
        }
    }
}

/// The place in a version table for a new version.
#[derive(Clone, Copy)]
struct Place {
    cell: usize,
    prev_ts: Timestamp,
    /// The address of the version that is overwritten, if this version lies outside the slot.
    discarded: Address,
}

/// Prepares a version that lies outside its slot: its record, and the cell that leads to it.
async fn prepare_cell(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    index: usize,
) -> Result<(), Failure> {
    let entry = txn.entries[index];
    let table = cx.table(entry.table);
    let RecordLayout::Cells(cells) = table.slot.record else { unreachable!("apart") };
    let (place, came) = place(lotus, cx, txn, &entry)?;
    let to = match entry.mode {
        Mode::Delete => {
            give_up_versions(txn, table, &entry, (cells, place.cell));
            CellAddress::deleted()
        }
        _ => {
            let (bytes, group) = (table.slot.body_bytes() as u32, entry.address.group());
            let record = cx.allocate_record(group, (table.id, bytes)).await?;
            let memory = Memory::Record(table.id);
            txn.allocated.push(Allocated { address: record, bytes, memory });
            add_record(txn, table, &entry, record);
            CellAddress::record(record)
        }
    };
    let cell = Cell {
        version: VersionWord::invisible(txn.stamps.lower),
        txn: txn.tag.word(),
        to: to.undecided_by(txn.coordinator),
        prev_ts: place.prev_ts,
    };
    let at = cells.cell_at(place.cell);
    let visible = match came {
        true => {
            let shape = cells.shape(table.id, table.slot.payload_bytes);
            let slot = new_slot(txn, table, &entry, shape);
            txn.round.array_mut::<4>(slot.plus(at)).copy_from_slice(&cell.words());
            slot_pieces(txn, entry.address, slot, table.slot.used_bytes());
            slot.plus(at)
        }
        false => {
            let new = txn.round.reserve(32);
            txn.round.array_mut::<4>(new).copy_from_slice(&cell.words());
            add_piece(txn, entry.address.plus(at), new, 32);
            new
        }
    };
    let (former, former_bytes) = former(&entry, came, at, 32);
    txn.written.push(Written {
        entry: index as u32,
        slot: entry.address,
        table: table.id,
        cell: place.cell as u8,
        came,
        former,
        former_bytes,
        visible,
        visible_at: at as u16,
        visible_bytes: 32,
        discarded: place.discarded,
    });
    Ok(())
}

/// Prepares a packed version: one piece contains the record's whole line from its first version on.
fn prepare_packed(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    (index, packed): (usize, Packed),
) -> Result<(), Failure> {
    let entry = txn.entries[index];
    let table = cx.table(entry.table);
    let (place, came) = place(lotus, cx, txn, &entry)?;
    let line = match came {
        true => {
            let line = new_slot(txn, table, &entry, 0);
            let others = if place.prev_ts == Timestamp::ZERO { 0 } else { packed.count() };
            for cell in 1..others {
                let at = line.plus(packed.version_at(cell));
                txn.round.set_word(at, VersionWord::VACATED.word());
            }
            line
        }
        false => {
            let line = txn.round.reserve_lines(LINE_BYTES);
            txn.round.copy_within(entry.image, line, LINE_BYTES);
            line
        }
    };
    let mut version = VersionWord::invisible(txn.stamps.lower);
    if entry.mode == Mode::Delete {
        version = version.deleted();
    } else {
        let to = line.plus(packed.payload_at(place.cell));
        txn.round.copy_within(entry.payload, to, table.slot.payload_bytes);
    }
    let at = packed.version_at(place.cell);
    txn.round.set_word(line.plus(at), version.word());
    txn.round.set_word(line.plus(PACKED_WRITER_AT), txn.tag.word());
    let from = if came { 0 } else { PACKED_VERSIONS_AT };
    add_piece(txn, entry.address.plus(from), line.plus(from), LINE_BYTES - from);
    let (former, former_bytes) = former(&entry, came, PACKED_VERSIONS_AT, PACKED_BYTES);
    txn.written.push(Written {
        entry: index as u32,
        slot: entry.address,
        table: table.id,
        cell: place.cell as u8,
        came,
        former,
        former_bytes,
        visible: line.plus(at),
        visible_at: at as u16,
        visible_bytes: 8,
        discarded: Address::NULL,
    });
    Ok(())
}

/// Returns the bytes that recovery writes back if it undoes a version. If the version filled a free slot, these bytes
/// are the slot's first line; otherwise they are the bytes that the version overwrites.
fn former(entry: &Entry, came: bool, at: usize, bytes: usize) -> (BufferOffset, usize) {
    match came {
        true => (entry.image, LINE_BYTES),
        false => (entry.image.plus(at), bytes),
    }
}

/// Adds the piece that writes the record of a version. This piece writes the whole record before any cell leads to
/// the record.
fn add_record(txn: &mut Txn, table: &Table, entry: &Entry, record: Address) {
    let slot = &table.slot;
    let start = BufferOffset(entry.payload.0 - slot.payload_at as u32);
    let (tag, bytes) = (txn.tag.word(), slot.apart_bytes());
    seal_record(txn.round.bytes_mut(start, bytes), tag, entry.key);
    add_piece(txn, record, start, bytes);
}

/// Makes the image of a slot that the transaction fills for the first time, without a version but with the timestamps
/// of discarded versions.
fn new_slot(txn: &mut Txn, table: &Table, entry: &Entry, shape: u64) -> BufferOffset {
    let slot = &table.slot;
    let image = txn.round.reserve_lines(slot.slot_bytes);
    txn.round.bytes_mut(image, slot.slot_bytes).fill(0);
    txn.round.set_word(image.plus(VERSION_AT), Version::LOADED.word());
    txn.round.set_word(image.plus(KEY_AT), entry.key);
    if shape != 0 {
        txn.round.set_word(image.plus(SHAPE_AT), shape);
    }
    if let RecordLayout::Cells(cells) = slot.record {
        // The former lines of the slot may belong to another record, so the function resets all cells.
        for cell in 0..cells.count() {
            let at = cells.cell_at(cell) + CELL_PREV_TS_AT;
            let prev_ts = txn.round.word(entry.image.plus(at));
            txn.round.set_word(image.plus(at), prev_ts);
        }
    }
    if slot.full_key_bytes > 0 {
        txn.round.copy_within(entry.full_key, image.plus(slot.full_key_at), slot.full_key_bytes);
    }
    image
}

/// The commit writes the first line last, so a KEY in memory shows that the whole slot is written.
fn slot_pieces(txn: &mut Txn, slot: Address, image: BufferOffset, bytes: usize) {
    if bytes > LINE_BYTES {
        add_piece(txn, slot.plus(LINE_BYTES), image.plus(LINE_BYTES), bytes - LINE_BYTES);
    }
    add_piece(txn, slot, image, LINE_BYTES);
}

fn add_piece(txn: &mut Txn, address: Address, new: BufferOffset, bytes: usize) {
    let len_bytes = bytes as u32;
    txn.pieces.push(PendingWrite { address, new, old: new, len_bytes, logged: false });
}
