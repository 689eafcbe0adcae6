//! Adds the records that a caller requests to a LOTUS transaction.
//!
//! Invariant: this file sends no verb and no message. A fetch first takes all its locks together, and then reads the
//! slots of the records under these locks. LOTUS always reads a record whole, because a version is one record, and
//! its checksum covers the whole record.

use super::short;
use crate::services::lock::name::LockName;
use crate::site::Context;
use crate::transaction::working_set::{Added, Entry, Handle, Intent, Progress, Txn, Upgrade};
use tarn_store::layout::RecordLayout;
use tarn_store::placement::catalog::Table;
use tarn_store::schema::Cells;

/// Adds a record that the transaction does not have yet.
#[inline(always)]
pub(super) fn add(cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
    let cells = if added.cells == Cells::NONE { Cells::NONE } else { Cells::ALL };
    let mut entry = Entry::new(table.id, added.key, added.mode, cells, Progress::Lock);
    entry.full_key = added.full_key;
    let is_noted = short::note(cx, txn, table, added, &mut entry);
    // This function prefetches the cache line of the record's lock only if the fetch does not prefetch it together
    // with the record's own lines.
    if txn.intent == Intent::ReadWrite && !(is_noted && cx.port.near().is_some()) {
        cx.node_services().locks.fetch_ahead(LockName::row(table.id.0, added.key).hash());
    }
    txn.push(entry)
}

/// Plans a further step for a fetched record. Each further step begins with a lock, unless the transaction already
/// holds the record's lock and only reads the record again.
pub(super) fn upgrade(cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
    let entry = &mut txn.entries[index];
    if entry.cells != Cells::NONE {
        entry.cells = Cells::ALL;
    }
    match (further, cx.table(entry.table).slot.record) {
        (Upgrade::Cells, RecordLayout::Cells(_)) => entry.progress = Progress::Body,
        // The whole record lies where its versions lie, so the transaction has already read it together with the
        // versions.
        (Upgrade::Cells, _) => {}
        (Upgrade::Lock | Upgrade::Index, _) => entry.progress = Progress::Lock,
    }
}
