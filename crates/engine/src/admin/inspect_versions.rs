//! Checks the versions of a record while no transaction runs: readers must be able to rely on the record's cells.
//!
//! Invariant: the check trusts no cell. The check reads the record to which a cell leads, and compares the record
//! with the cell. This module checks only primaries; [`crate::admin::inspect`] compares the backups with the
//! primaries.

use crate::site::Context;
use crate::steps::settle::is_stray;
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{Failure, Timestamp};
use tarn_store::layout::{
    Cell, CellAddress, Cells, KEY_AT, RecordLayout, SHAPE_AT, Seen, is_record_of,
};
use tarn_store::placement::catalog::Table;

/// The number of wrong cells of the record in one slot. `slot` is the slot's address, and `image` is the position of
/// the slot's image in the buffer.
///
/// # Errors
/// An error of the fabric.
pub async fn wrong_cells(
    cx: &Context,
    round: &mut Round,
    table: &Table,
    (slot, image): (Address, BufferOffset),
) -> Result<u64, Failure> {
    let bytes = round.bytes(image, table.slot.slot_bytes);
    if let Some(lined) = table.slot.lined() {
        return Ok(u64::from(!lined.is_whole(bytes)));
    }
    let seen: Vec<Seen> = table.slot.seen(bytes).collect();
    if seen.is_empty() {
        let astray = table.slot.apart(bytes).filter(|&body| !is_block(cx, table, body));
        return Ok(astray.count() as u64);
    }
    // The check ignores versions that transactions of recovered incarnations left behind. Readers skip such versions,
    // and writers overwrite them.
    let stray = |it: &Seen| it.word.is_invisible() && is_stray(cx, it.txn);
    let is_none = table.slot.newest_committed(bytes).is_none();
    if is_none && seen.iter().all(|it| it.word.is_empty() || stray(it)) {
        return Ok(u64::from(!seen.iter().any(stray)));
    }
    let seen: Vec<Seen> = seen.into_iter().filter(|it| !stray(it)).collect();
    let mut wrong = wrong_times(&seen) + u64::from(is_none);
    let RecordLayout::Cells(cells) = table.slot.record else { return Ok(wrong) };
    wrong += shown_again(&seen);
    wrong += u64::from(round.word(image.plus(SHAPE_AT)) != shape(table, cells));
    let key = round.word(image.plus(KEY_AT));
    for index in 0..cells.count() {
        let cell = cells.cell(round.bytes(image, table.slot.slot_bytes), index);
        if !cell.version.is_committed() {
            continue;
        }
        let bytes = round.bytes(image, table.slot.slot_bytes);
        let has_none =
            cell.to.is_deleted() || table.slot.is_given_up(bytes, cell.version.timestamp());
        let is_right = leads_somewhere(cx, table, cell, slot)
            && (has_none || holds(cx, round, table, (cell, key)).await?);
        wrong += u64::from(!is_right);
    }
    Ok(wrong)
}

/// The number of versions that are not committed, plus the number of versions whose commit time equals the time of
/// another version.
fn wrong_times(seen: &[Seen]) -> u64 {
    let invisible = seen.iter().filter(|it| it.word.is_invisible()).count();
    let mut shown: Vec<Timestamp> = shown(seen).collect();
    shown.sort_unstable();
    let twice = shown.windows(2).filter(|pair| pair[0] == pair[1]).count();
    (invisible + twice) as u64
}

/// The number of cells with a wrong discard time: the version that the cell discarded is not older than all visible
/// versions.
fn shown_again(seen: &[Seen]) -> u64 {
    let oldest = shown(seen).min().unwrap_or(Timestamp::MAX);
    seen.iter().filter(|it| it.prev_ts >= oldest).count() as u64
}

fn shown(seen: &[Seen]) -> impl Iterator<Item = Timestamp> {
    seen.iter().filter(|it| it.word.is_committed()).map(|it| it.word.timestamp())
}

fn shape(table: &Table, cells: Cells) -> u64 {
    cells.shape(table.id, table.slot.payload_bytes)
}

/// Whether the TO field of a committed cell is possible. The field must either lead to a record in the slot's group,
/// or have the value "deleted" and lead to no record.
fn leads_somewhere(cx: &Context, table: &Table, cell: Cell, slot: Address) -> bool {
    if cell.to.is_deleted() {
        return cell.to == CellAddress::deleted();
    }
    let address = cell.to.address();
    let is_near = address.group() == slot.group() && cell.to == cell.to.decided();
    !address.is_null() && is_near && is_block(cx, table, address)
}

/// Whether a version's record can lie at `address`.
pub fn is_block(cx: &Context, table: &Table, address: Address) -> bool {
    let catalog = &cx.database().catalog;
    let end = address.offset_bytes() + table.slot.body_bytes() as u64;
    let is_inside =
        usize::from(address.group().0) < catalog.groups() && end <= catalog.group_bytes();
    // If slots take half a line, a block of an overflow chain may end within a line. The body of a record of one
    // version may begin directly after such a block.
    let unit = if table.slot.record == RecordLayout::InPlace { 8 } else { LINE_BYTES };
    is_inside && address.offset_bytes().is_multiple_of(unit as u64)
}

/// Whether the record to which a cell leads is the record of that cell.
async fn holds(
    cx: &Context,
    round: &mut Round,
    table: &Table,
    (cell, key): (Cell, u64),
) -> Result<bool, Failure> {
    round.begin();
    let record = round.read(cx.groups.primary(cell.to.address()), table.slot.body_bytes());
    cx.port.execute(round).await?;
    Ok(is_record_of(round.bytes(record, table.slot.apart_bytes()), cell.txn, key))
}

#[cfg(test)]
#[path = "inspect_versions_tests.rs"]
mod tests;
