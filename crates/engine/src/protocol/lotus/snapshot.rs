//! Implements LOTUS's read-only transactions, which read a snapshot without locks.
//!
//! Invariant: a reader sees the versions that were committed at or before T_start, which it takes before its first
//! READ. Every version of the snapshot was in its place, at least as INVISIBLE, before the reader got T_start (see
//! [`tarn_store::layout::choose()`]). The reader reads an INVISIBLE version again if this version may belong to the
//! snapshot. After a limited number of READs of an INVISIBLE version, the reader reads the log of the version's
//! writer. A read-only transaction has written nothing and holds no lock, so it is over after its last READ.

use super::execute::{self, advance, show, take_place};
use super::nodes::is_newer;
use super::short;
use super::switches::{Lotus, enter, on, phase};
use crate::site::Context;
use crate::transaction::working_set::{Entry, Progress, Stamps, Txn};
use tarn_fabric::address::GroupId;
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag, Timestamp};
use tarn_store::layout::{Choice, RecordLayout, Version, VersionWord};
use tarn_store::log::versions::{DECISION_BYTES, decided, decision_at};

/// The number of times that a transaction reads undecided versions before it reads the logs of their writers.
const LOOKS_BEFORE_LOG: usize = 3;
/// The maximum number of times that a transaction reads undecided versions; after that, the transaction aborts.
const LOOKS_MAX: usize = 8;

/// Fetches every entry of the transaction that was not fetched before.
pub(super) async fn fetch(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.entries[txn.fetched..].iter().any(|entry| entry.mode != Mode::Read) {
        return Err(AbortReason::NeedsLocks.into());
    }
    begin(cx, txn).await?;
    let mut looks = 0;
    if short::fetches(cx, txn) {
        let undecided = short::fetch_as_of(lotus, cx, txn).await?;
        look_again(lotus, cx, txn, (&undecided, &mut looks)).await?;
    }
    advance(txn);
    if txn.fetched == txn.entries.len() && !txn.ordered.pending {
        return Ok(());
    }
    execute::go_through(lotus, cx, txn, looks).await
}

/// Counts one more read of the given undecided entries. If the number of these reads is high enough, reads the logs
/// of the cells' writers; at the maximum, aborts.
pub(super) async fn look_again(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    (undecided, looks): (&[(usize, usize)], &mut usize),
) -> Result<(), Failure> {
    if undecided.is_empty() {
        return Ok(());
    }
    *looks += 1;
    if *looks >= LOOKS_BEFORE_LOG {
        ask_logs(lotus, cx, txn, undecided).await?;
    }
    match *looks == LOOKS_MAX {
        true => Err(AbortReason::Undecided.into()),
        false => Ok(()),
    }
}

/// Takes T_start once, before the transaction reads anything.
pub(super) async fn begin(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if (txn.entries.is_empty() && !txn.ordered.pending) || txn.stamps.of == Some(txn.tag) {
        return Ok(());
    }
    enter(cx, phase::SNAPSHOT);
    let start = cx.timestamps.start(cx).await?;
    txn.stamps = Stamps { of: Some(txn.tag), start, ..Stamps::NONE };
    Ok(())
}

/// Chooses the version of the snapshot in the version table that was read. Returns the undecided cell, if an
/// undecided cell prevents the choice.
pub(super) fn choose(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    index: usize,
) -> Result<Option<usize>, Failure> {
    let Txn { entries, round, stamps, .. } = &mut *txn;
    let entry = &mut entries[index];
    let table = cx.table(entry.table);
    let image = round.bytes(entry.image, table.slot.slot_bytes);
    // The writer's incarnation may have been recovered after the cell was read, so the cell in memory may have
    // changed since the READ.
    let is_as_read = || cx.database().membership.view() == stamps.view;
    let stray = |txn: u64| lotus.is_stray(cx, txn) && is_as_read();
    match table.slot.choose(image, stamps.start, lotus.rules(), stray) {
        Choice::Version(shown) => {
            show(entry, shown);
            take_place(entry, table, round, shown);
        }
        Choice::NotFound => settle_absent(txn, index),
        Choice::TooOld => return Err(AbortReason::TooOld.into()),
        Choice::Undecided { cell } => {
            entry.progress = Progress::Direct;
            return Ok(Some(cell));
        }
    }
    Ok(None)
}

/// Returns whether a key that is in no slot of its bucket may have been in a slot at T_start, because slots were
/// emptied since.
pub(super) fn may_have_been(lotus: &Lotus, txn: &Txn, index: usize) -> bool {
    let emptied = txn.lookup(&txn.entries[index]).directory_version;
    let has_start = lotus.starts_writers() || lotus.reads_snapshot(txn, index);
    has_start && is_newer(emptied, txn.stamps.start) && lotus.switches.is_on(on::TOO_OLD)
}

/// Notes that the key of the entry is absent as of T_start.
pub(super) fn settle_absent(txn: &mut Txn, index: usize) {
    let entry = &mut txn.entries[index];
    (entry.found, entry.progress) = (false, Progress::Done);
    entry.version = Version::from_word(txn.stamps.start.0);
}

/// Reads from the logs whether the writers of these cells have decided to commit. If the transaction of a cell is
/// decided, the function treats the cell as visible. A transaction is decided if all members of a group have the
/// decision in their logs. A decision at only one member can be lost when this member and the transaction's
/// coordinator die.
#[cold]
async fn ask_logs(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    undecided: &[(usize, usize)],
) -> Result<(), Failure> {
    let catalog = &cx.database().catalog;
    let at = decision_at(catalog.options().log_bytes);
    let groups = cx.groups.whole();
    let mut asked = Vec::new();
    for &(index, cell) in undecided {
        let Some((writer, coordinator)) = writer(cx, txn, &txn.entries[index], cell) else {
            continue;
        };
        for group in (0..groups.count() as u16).map(GroupId) {
            let area = catalog.log(group, coordinator).plus(at);
            let of_members = groups.counted(area).map(|copy| txn.round.read(copy, DECISION_BYTES));
            asked.push((index, cell, writer, of_members.collect::<Vec<_>>()));
        }
    }
    cx.port.execute(&mut txn.round).await?;
    txn.round.begin();
    for (index, cell, writer, reads) in asked {
        let mut said = reads.iter().map(|&read| decided(writer, *txn.round.array::<2>(read)));
        let commit = match lotus.switches.is_on(on::WHOLE_DECISION) {
            true => said.clone().all(|it| it.is_some()).then(|| said.next().flatten()).flatten(),
            false => said.find_map(|it| it),
        };
        if let Some(commit) = commit {
            set_visible(cx, txn, (index, cell), commit);
            // If another undecided cell also prevents the choice of a version, the transaction reads both cells
            // again.
            choose(lotus, cx, txn, index)?;
        }
    }
    Ok(())
}

/// Returns the tag of the transaction that wrote an undecided cell, and its coordinator's number.
fn writer(cx: &Context, txn: &Txn, entry: &Entry, cell: usize) -> Option<(OwnerTag, u32)> {
    let slot = &cx.table(entry.table).slot;
    let RecordLayout::Cells(cells) = slot.record else { return None };
    let cell = cells.cell(txn.round.bytes(entry.image, slot.slot_bytes), cell);
    Some((OwnerTag::from_word(cell.txn)?, cell.to.coordinator()))
}

fn set_visible(cx: &Context, txn: &mut Txn, (index, cell): (usize, usize), commit: Timestamp) {
    let entry = &txn.entries[index];
    if let RecordLayout::Cells(cells) = cx.table(entry.table).slot.record {
        let word = VersionWord::committed(commit).word();
        txn.round.set_word(entry.image.plus(cells.cell_at(cell)), word);
    }
}
