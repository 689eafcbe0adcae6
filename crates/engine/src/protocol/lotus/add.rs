//! How LOTUS takes up a record that is asked for.
//!
//! Invariant: no verb or message is sent here. Locks come first, all those of a fetch at once; slots are read under them.
//! A record that is read at all is read whole: a version is one record, and its checksum
//! is over all of it.

use super::short;
use crate::services::lock::name::LockName;
use crate::site::Context;
use crate::transaction::working_set::{Added, Entry, Handle, Intent, Progress, Txn, Upgrade};
use tarn_store::layout::RecordLayout;
use tarn_store::placement::catalog::Table;
use tarn_store::schema::Cells;

/// Takes up a record that the transaction has not.
#[inline(always)]
pub(super) fn add(cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
    let cells = if added.cells == Cells::NONE { Cells::NONE } else { Cells::ALL };
    let mut entry = Entry::new(table.id, added.key, added.mode, cells, Progress::Lock);
    entry.full_key = added.full_key;
    let is_noted = short::note(cx, txn, table, added, &mut entry);
    // With the record's own lines, where all of them are asked for side by side.
    if txn.intent == Intent::ReadWrite && !(is_noted && cx.port.near().is_some()) {
        cx.node_services().locks.fetch_ahead(LockName::row(table.id.0, added.key).hash());
    }
    txn.push(entry)
}

/// Plans a further wish for a fetched record. Everything but another look at a record whose lock is held
/// begins with a lock.
pub(super) fn upgrade(cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
    let entry = &mut txn.entries[index];
    if entry.cells != Cells::NONE {
        entry.cells = Cells::ALL;
    }
    match (further, cx.table(entry.table).slot.record) {
        (Upgrade::Cells, RecordLayout::Cells(_)) => entry.progress = Progress::Body,
        // All of it lies where its versions do, and was read with them.
        (Upgrade::Cells, _) => {}
        (Upgrade::Lock | Upgrade::Index, _) => entry.progress = Progress::Lock,
    }
}
