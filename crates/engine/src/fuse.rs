//! Another wish for a record that the transaction has already.
//!
//! Invariant: one record stays one entry. What was written is read back; a wish that would need
//! what the entry cannot give (more cells of a locked row, a mixture before the fetch) is the
//! caller's mistake, which the next fetch reports. Here it is decided what a wish means; how the protocol
//! gets what it needs for it is [`crate::protocol::Protocol::wish_again`]'s.

use crate::catalog::Table;
use crate::context::Context;
use crate::outcome::Explanation;
use crate::schema::Cells;
use crate::transaction::widened;
use crate::working_set::{Entry, Further, Mode, Progress, Txn};
use tarn_fabric::round::Round;

/// Another wish for a record that the transaction already has.
#[cold]
pub(crate) fn fuse(
    cx: &Context,
    txn: &mut Txn,
    index: usize,
    mode: Mode,
    cells: Cells,
    table: &Table,
) -> Option<Explanation> {
    let entry = &mut txn.entries[index];
    // Old and new index keys are made of what was read of the record, whoever asked for it.
    let stronger = if entry.mode == Mode::Update { Mode::Update } else { mode };
    let cells = widened(table, stronger, entry.cells.union(cells));
    if entry.progress != Progress::Done && entry.mode != mode {
        return fuse_unfetched(entry, mode, cells, table);
    }
    let wish = Wish {
        mode,
        fetched: entry.progress == Progress::Done,
        more: !entry.cells.covers(cells) && table.slot.is_out_of_line(),
    };
    entry.cells = cells;
    match fuse_fetched(txn, index, wish, table) {
        Fused::Mistake(mistake) => return Some(mistake),
        Fused::Needs(further) => cx.database().protocol.wish_again(cx, txn, index, further),
        Fused::Done => {}
    }
    if txn.entries[index].progress != Progress::Done {
        txn.fetched = txn.fetched.min(index);
    }
    None
}

/// What is asked of a record that the transaction has.
#[derive(Clone, Copy)]
struct Wish {
    mode: Mode,
    /// Whether the record is fetched.
    fetched: bool,
    /// Whether it asks for cells that are not.
    more: bool,
}

/// What becomes of it.
enum Fused {
    /// The entry has what it takes.
    Done,
    /// The protocol must get something for it.
    Needs(Further),
    Mistake(Explanation),
}

/// Not fetched yet: the stronger wish decides, and a mixture of wishes waits its turn.
fn fuse_unfetched(
    entry: &mut Entry,
    mode: Mode,
    cells: Cells,
    table: &Table,
) -> Option<Explanation> {
    let before = entry.mode;
    entry.cells = cells;
    match (before, mode) {
        (Mode::Read, Mode::Update) => entry.mode = Mode::Update,
        (Mode::Update, Mode::Read) => {}
        _ => {
            return Some(Explanation::usage(
                &format!(
                    "two wishes for one record of {} without a fetch between",
                    table.schema.name
                ),
                format!("{before:?} then {mode:?}"),
                "fetch the first before the second",
            ));
        }
    }
    None
}

fn fuse_fetched(txn: &mut Txn, index: usize, wish: Wish, table: &Table) -> Fused {
    let Txn { entries, round, .. } = txn;
    let entry = &mut entries[index];
    let Wish { mode, fetched, more } = wish;
    match (entry.mode, mode) {
        (Mode::Read, Mode::Read) if fetched && more && entry.found => {
            return Fused::Needs(Further::Cells);
        }
        (Mode::Read | Mode::Insert, Mode::Update) if entry.found => {
            entry.mode = Mode::Update;
            return Fused::Needs(Further::Lock);
        }
        (Mode::Read, Mode::Update) => entry.mode = Mode::Update,
        (Mode::Read | Mode::Update, Mode::Insert) if !entry.found => {
            entry.mode = Mode::Insert;
            return Fused::Needs(Further::Index);
        }
        (Mode::Read, Mode::Insert) => {
            entry.mode = Mode::Insert; // it is there: only read, and nothing is set
            if fetched && more {
                return Fused::Needs(Further::Cells);
            }
        }
        (Mode::Update, Mode::Update | Mode::Read) if fetched && more && entry.writable => {
            return Fused::Mistake(Explanation::usage(
                &format!("cells of an updated record of {}", table.schema.name),
                "more than at its first fetch",
                "name all cells at the first update",
            ));
        }
        (Mode::Insert, Mode::Delete) if entry.writable => entry.void = true,
        (Mode::Insert, Mode::Insert) if entry.void => {
            entry.void = false;
            round.bytes_mut(entry.payload, table.slot.payload_bytes).fill(0);
        }
        (Mode::Read | Mode::Update | Mode::Insert, Mode::Delete) if entry.found => {
            entry.mode = Mode::Delete;
            return Fused::Needs(Further::Index);
        }
        (Mode::Delete, Mode::Insert) if entry.writable => {
            return replace_deleted(round, entry, table);
        }
        (Mode::Delete, Mode::Insert) => {
            entry.mode = Mode::Insert;
            return Fused::Needs(Further::Index);
        }
        _ => {}
    }
    Fused::Done
}

/// Deleted and inserted again by one transaction: an update of every cell.
fn replace_deleted(round: &mut Round, entry: &mut Entry, table: &Table) -> Fused {
    if table.slot.is_out_of_line() {
        return Fused::Mistake(Explanation::usage(
            &format!("insert into {}", table.schema.name),
            "a record that this transaction deletes",
            "update it instead",
        ));
    }
    let columns = table.schema.columns.len();
    let whole = if columns == 64 { u64::MAX } else { (1 << columns) - 1 };
    (entry.mode, entry.dirty, entry.found) = (Mode::Update, Cells(whole), true);
    round.bytes_mut(entry.payload, table.slot.payload_bytes).fill(0);
    Fused::Done
}
