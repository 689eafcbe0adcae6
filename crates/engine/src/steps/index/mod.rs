//! Changes of hash indexes by transactions: blocks for new records, records that move, and bytes that change.
//!
//! Invariant: a transaction changes bytes of an index only while it holds the lock of their directory record, or of
//! the index header. [`tarn_store::index`] describes the layout of indexes and contains the search in them.

pub(crate) mod changes;
pub(crate) mod recheck;
pub mod relocate;
pub(crate) mod room;

use crate::site::Context;
use crate::transaction::working_set::{Entry, Progress, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::Round;
use tarn_store::ids::Mode;
use tarn_store::index::hash::{Lookup, head_at_home};
use tarn_store::index::hash_of;
use tarn_store::placement::catalog::Table;
use tarn_store::schema::Cells;

/// If an access deletes the record, or changes any column of an index key, adds all columns of index keys to the
/// access's cells.
#[inline(always)]
pub(crate) fn widened(table: &Table, mode: Mode, cells: Cells) -> Cells {
    let changes =
        mode == Mode::Delete || (mode == Mode::Update && cells.0 & table.index_cells.0 != 0);
    if changes { cells.union(table.index_cells) } else { cells }
}

/// Returns the address of the bucket to which a key belongs.
pub(crate) fn bucket_of(cx: &Context, table: &Table, key: u64) -> Address {
    let near = cx.lookup_context();
    near.view.place(near.catalog, table, hash_of(table, key)).bucket
}

/// Searches the entry's image of a home bin for the entry's record. The record's key must be a word. Returns whether
/// the record is in its home bin. If the record is not in its home bin, begins the entry's lookup in the index.
#[inline(always)]
pub(crate) fn take_home(
    cx: &Context,
    entry: &mut Entry,
    (round, lookups): (&Round, &mut Vec<Lookup>),
) -> bool {
    let table = cx.table(entry.table);
    let Some((offset, _)) = head_at_home(table, entry.key, round, entry.image) else {
        begin_lookup(cx, entry, lookups, true);
        return false;
    };
    (entry.address, entry.image) = (entry.address.plus(offset), entry.image.plus(offset));
    true
}

/// Begins the entry's lookup in the index. An insert or delete always needs the bucket's directory record, so its
/// lookup begins at the bucket (`at_bucket`).
pub(crate) fn ask_index(cx: &Context, txn: &mut Txn, index: usize, at_bucket: bool) {
    let Txn { entries, lookups, .. } = txn;
    begin_lookup(cx, &mut entries[index], lookups, at_bucket);
}

/// Begins a lookup in the same way as [`ask_index`], but takes the entry itself instead of its number.
#[inline(never)]
pub(crate) fn begin_lookup(
    cx: &Context,
    entry: &mut Entry,
    lookups: &mut Vec<Lookup>,
    at_bucket: bool,
) {
    let mut lookup = Lookup::start(cx.lookup_context(), cx.table(entry.table), entry.key);
    let table = cx.table(entry.table);
    match entry.mode {
        Mode::Insert if at_bucket => lookup.restart_for_insert(table),
        _ if at_bucket => lookup.restart_at_bucket(),
        _ => {}
    }
    (entry.progress, entry.lookup) = (Progress::Locate, lookups.len() as u32);
    lookups.push(lookup);
}
