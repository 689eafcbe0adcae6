//! A further operation on a record that the transaction already has: its meaning, and the steps that it needs.
//!
//! Invariant: a record has only one entry. Operations on the record have the same results as if they were done one
//! after the other on a map. Each operation of the transaction finds the record as the transaction's earlier
//! operations have changed it, even without a fetch between them. If the record is not fetched yet, an operation on
//! the record waits until the record is fetched ([`fetch_in_turns`]). Each operation on a record has its own handle,
//! which gives the operation's result ([`crate::transaction::sequel::Wish`]). This file decides the meaning of a
//! further operation. [`RecordAccess::upgrade`] decides how the protocol gets the parts of the record that the
//! operation needs.

use crate::protocol;
use crate::protocol::Protocol;
use crate::site::Context;
use crate::steps::access::RecordAccess as _;
use crate::steps::index::widened;
use crate::transaction::sequel::{Existed, Waiting, Wish};
use crate::transaction::working_set::{Entry, Handle, Progress, Txn, Upgrade};
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{Failure, Mode};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::{Cells, ColumnId};

/// Merges a further operation on a record into the record's entry. Returns the handle of the merged operation.
#[cold]
pub(crate) fn merge_access(
    cx: &Context,
    txn: &mut Txn,
    index: usize,
    (mode, cells): (Mode, Cells),
    table: &Table,
) -> Handle {
    let entry = &mut txn.entries[index];
    let is_fetched = entry.progress == Progress::Done;
    let is_one = is_one_wish(entry.mode, mode);
    if waits(txn, index) || !(is_fetched || is_one) || is_behind_scan(txn, index, mode, table) {
        return wait(txn, index, mode, cells);
    }
    if !is_fetched {
        join(&mut txn.entries[index], mode, cells, table);
        return txn.handle_of(index);
    }
    let found = operate(cx, txn, index, (mode, cells), table);
    if found.existed == Existed::AsFound && !found.refuses {
        return txn.handle_of(index);
    }
    txn.sequel.wishes.push(Wish::new(index, mode, found.existed, found.refuses));
    txn.handle_of_wish(txn.sequel.wishes.len() - 1)
}

/// Returns whether two operations on a record that is not fetched can become one operation, because neither changes
/// the result of the other.
fn is_one_wish(first: Mode, second: Mode) -> bool {
    let is_value = |mode| matches!(mode, Mode::Read | Mode::Update);
    is_value(first) && is_value(second)
}

/// Adds a second operation to the entry of a record that is not fetched. Both operations need only the value of the
/// record.
fn join(entry: &mut Entry, mode: Mode, cells: Cells, table: &Table) {
    if mode == Mode::Update {
        entry.mode = mode;
    }
    entry.cells = widened(table, entry.mode, entry.cells.union(cells));
}

/// Returns whether an earlier operation on this record already waits for a fetch.
fn waits(txn: &Txn, index: usize) -> bool {
    let is_of_it = |waiting: &Waiting| txn.sequel.entry_of(waiting) == Some(index);
    txn.notes.is_waiting() && txn.sequel.waiting.iter().any(is_of_it)
}

/// Returns whether a scan of the next fetch would show a wrong result if the transaction did this operation before
/// the scan.
fn is_behind_scan(txn: &Txn, index: usize, mode: Mode, table: &Table) -> bool {
    txn.ordered.pending
        && table.ordered.1 != 0
        && (txn.entries[index].writable || matches!(mode, Mode::Insert | Mode::Delete))
}

/// Returns whether a scan of an index of this table has to wait for operations that the caller has requested since
/// the last fetch.
pub(crate) fn precedes_scan(txn: &Txn, table: &Table) -> bool {
    let comes_or_goes = |entry: &Entry| {
        entry.table == table.id
            && entry.progress != Progress::Done
            && (entry.writable || matches!(entry.mode, Mode::Insert | Mode::Delete))
    };
    txn.notes.is_waiting() || txn.entries[txn.fetched..].iter().any(comes_or_goes)
}

fn wait(txn: &mut Txn, index: usize, mode: Mode, cells: Cells) -> Handle {
    let wish = txn.sequel.wishes.len();
    txn.sequel.wishes.push(Wish::new(index, mode, Existed::Unknown, false));
    txn.sequel.wait(&txn.notes, Waiting::Wish { wish: wish as u32, cells });
    txn.handle_of_wish(wish)
}

/// The result of a further operation on a record.
struct Found {
    existed: Existed,
    /// Whether the operation's handle may not set any cell.
    refuses: bool,
}

/// Performs an operation on a fetched entry.
fn operate(
    cx: &Context,
    txn: &mut Txn,
    index: usize,
    (mode, cells): (Mode, Cells),
    table: &Table,
) -> Found {
    let entry = &txn.entries[index];
    let is_there = is_there(entry);
    // If an insert finds a record, a concurrent transaction may have inserted the record; then this try of the
    // transaction cannot commit.
    let as_found = entry.found == is_there;
    let existed = if as_found { Existed::AsFound } else { Existed::Known(is_there) };
    let refuses = match mode {
        Mode::Read | Mode::Delete => false,
        Mode::Update => !is_there,
        Mode::Insert => is_there,
    };
    // The old and the new index keys need all cells of the record that any operation of the transaction has read.
    let stronger = if entry.mode == Mode::Update { Mode::Update } else { mode };
    let cells = widened(table, stronger, entry.cells.union(cells));
    match is_there {
        true => change_present(cx, txn, (index, mode), cells, table),
        false => change_absent(cx, txn, (index, mode), cells, table),
    }
    Found { existed, refuses }
}

/// Returns whether the record exists in the transaction's own view.
fn is_there(entry: &Entry) -> bool {
    match entry.mode {
        Mode::Read | Mode::Update => entry.found,
        Mode::Insert => entry.found || entry.writable,
        Mode::Delete => false,
    }
}

/// Performs an operation on a record that exists.
fn change_present(
    cx: &Context,
    txn: &mut Txn,
    (index, mode): (usize, Mode),
    cells: Cells,
    table: &Table,
) {
    let entry = &mut txn.entries[index];
    let more = !entry.cells.covers(cells) && table.slot.is_out_of_line();
    match (entry.mode, mode) {
        (Mode::Insert, Mode::Delete) if !entry.found => {
            (entry.void, entry.writable, entry.dirty) = (true, false, Cells::NONE);
        }
        (Mode::Insert, _) if !entry.found => {} // this transaction has made the whole record itself
        (_, Mode::Delete) => {
            (entry.mode, entry.cells, entry.renewed) = (Mode::Delete, cells, false);
            again(cx, txn, index, Upgrade::Index);
        }
        (Mode::Read | Mode::Insert, Mode::Update) => {
            (entry.mode, entry.cells, entry.dirty) = (Mode::Update, cells, Cells::NONE);
            again(cx, txn, index, Upgrade::Lock);
        }
        (Mode::Update, _) => {
            let (entry_of, payload, dirty) = (index as u32, entry.payload, entry.dirty);
            entry.cells = cells;
            if more {
                let own = Waiting::OwnCells { entry: entry_of, payload, dirty };
                txn.sequel.wait(&txn.notes, own);
                again(cx, txn, index, Upgrade::Cells);
            }
        }
        (Mode::Read | Mode::Insert, Mode::Read | Mode::Insert) => {
            entry.cells = cells;
            if more {
                again(cx, txn, index, Upgrade::Cells);
            }
        }
        (Mode::Delete, _) => unreachable!("a deleted record is not merged here"),
    }
}

/// Performs an operation on a record that does not exist.
fn change_absent(
    cx: &Context,
    txn: &mut Txn,
    (index, mode): (usize, Mode),
    cells: Cells,
    table: &Table,
) {
    let entry = &mut txn.entries[index];
    match (entry.mode, mode) {
        (Mode::Read | Mode::Update, Mode::Read | Mode::Update) => {
            entry.cells = cells;
            if mode == Mode::Update {
                entry.mode = mode;
            }
        }
        (Mode::Insert, Mode::Insert) => {
            (entry.void, entry.writable) = (false, true);
            txn.round.bytes_mut(entry.payload, table.slot.payload_bytes).fill(0);
        }
        (Mode::Delete, Mode::Insert) if entry.writable => renew(cx, txn, index, table),
        (_, Mode::Insert) => {
            (entry.mode, entry.cells) = (Mode::Insert, cells);
            again(cx, txn, index, Upgrade::Index);
        }
        _ => {}
    }
}

/// Inserts a record again that this transaction has deleted, so the commit writes all cells of the record. The new
/// bytes of the record replace all old bytes, so the transaction must have read all old bytes.
fn renew(cx: &Context, txn: &mut Txn, index: usize, table: &Table) {
    let entry = &mut txn.entries[index];
    let is_read = !table.slot.is_out_of_line() || entry.cells.covers(Cells::ALL);
    (entry.mode, entry.cells) = (Mode::Update, Cells::ALL);
    if is_read {
        return begin_anew(txn, index, table);
    }
    txn.sequel.wait(&txn.notes, Waiting::Renewal { entry: index as u32 });
    again(cx, txn, index, Upgrade::Cells);
}

fn begin_anew(txn: &mut Txn, index: usize, table: &Table) {
    let Txn { entries, round, .. } = txn;
    let entry = &mut entries[index];
    (entry.renewed, entry.dirty) = (true, Cells::NONE);
    round.bytes_mut(entry.payload, table.slot.payload_bytes).fill(0);
}

/// Lets the protocol fetch the parts of a record that its already fetched entry lacks.
fn again(cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
    protocol::of(cx).upgrade(cx, txn, index, further);
    if txn.entries[index].progress != Progress::Done {
        txn.fetched = txn.fetched.min(index);
    }
}

/// Fetches the transaction's entries in the same way as [`Protocol::fetch`]. After the fetch, performs the operations
/// that waited for the fetched records, in the order in which the caller requested them. Repeats the fetch and these
/// operations until no operation waits.
#[cold]
pub(crate) async fn fetch_in_turns<P: Protocol>(
    protocol: &P,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    while txn.notes.is_waiting() {
        P::Records::fetch(protocol, cx, txn).await?;
        go_on(cx, txn);
        txn.sequel.is_over(&txn.notes);
    }
    P::Records::fetch(protocol, cx, txn).await
}

/// Performs the operations that waited for a fetch, after this fetch has ended. The function performs the operations
/// on one record up to the first operation that needs another fetch. The function stops at a scan: a scan shows the
/// effects of all operations before it, and of no operation after it.
fn go_on(cx: &Context, txn: &mut Txn) {
    let (mut waiting, mut is_scanning) = (std::mem::take(&mut txn.sequel.waiting), false);
    for it in waiting.drain(..) {
        let entry = txn.sequel.entry_of(&it);
        let is_fetched = |txn: &Txn| match entry {
            Some(index) => txn.entries[index].progress == Progress::Done && !waits(txn, index),
            None => txn.fetched == txn.entries.len() && txn.sequel.waiting.is_empty(),
        };
        if (is_scanning && entry.is_some()) || !is_fetched(txn) {
            is_scanning |= entry.is_none();
            txn.sequel.waiting.push(it);
            continue;
        }
        is_scanning |= entry.is_none();
        match it {
            Waiting::Wish { wish, cells } => go_on_with(cx, txn, wish as usize, cells),
            Waiting::Renewal { entry } => {
                begin_anew(txn, entry as usize, cx.table(txn.entries[entry as usize].table));
            }
            Waiting::OwnCells { entry, payload, dirty } => {
                let table = cx.table(txn.entries[entry as usize].table);
                put_back(txn, entry as usize, (payload, dirty), table);
            }
            Waiting::Scan(scan) => {
                txn.ordered.scans[scan.at].start(scan.index, scan.range, scan.limit, scan.backward);
                txn.ordered.pending = true;
            }
        }
    }
}

fn go_on_with(cx: &Context, txn: &mut Txn, wish: usize, cells: Cells) {
    let Wish { entry, mode, .. } = txn.sequel.wishes[wish];
    let table = cx.table(txn.entries[entry as usize].table);
    let Found { existed, refuses } = operate(cx, txn, entry as usize, (mode, cells), table);
    let wish = &mut txn.sequel.wishes[wish];
    (wish.existed, wish.refuses) = (existed, refuses);
}

/// After the fetch has read a row again, copies the transaction's own values of the changed cells into the row again.
fn put_back(txn: &mut Txn, index: usize, (payload, dirty): (BufferOffset, Cells), table: &Table) {
    let (to, columns) = (txn.entries[index].payload, &table.schema.columns);
    for (at, column) in columns.iter().enumerate() {
        if dirty.contains(ColumnId(at as u8)) {
            let (from, len) = (column.offset_bytes, column.column_type.width_bytes());
            txn.round.copy_within(payload.plus(from), to.plus(from), len);
        }
    }
}
