//! Converts a transaction into its entry in a history.
//!
//! Invariant: the history gets every transaction that may write, with an unknown outcome, before that transaction
//! sends its first write. So a history contains every transaction that may have written, even if a coordinator never
//! reports how the transaction ended.

use crate::site::Context;
use crate::transaction::ordered::Leaf;
use crate::transaction::working_set::{Entry, Progress, Txn};
use std::collections::BTreeSet;
use tarn_fabric::clock::Nanos;
use tarn_fabric::round::BufferOffset;
use tarn_store::history::{
    RecordedOutcome, RecordedRead, RecordedTxn, RecordedWrite, Undone, WriteKind, fingerprint,
};
use tarn_store::ids::{Mode, Resolution, TxnId};
use tarn_store::layout::Version;
use tarn_store::schema::{Cells, TableId};

/// Merges the decisions about transactions in doubt: `told` has the decisions that callers received, and `contexts`
/// have those that threads noted.
///
/// If a node's incarnation is no longer a member, its decision counts only if no other decision about the transaction
/// is known. The cluster expelled this incarnation while it decided about the transaction. The expelled incarnation
/// may have read memory that has been lost since; in that case memory contains nothing of its decision. If the
/// expelled incarnation's decision was written to memory, memory contradicts the other decision about the
/// transaction.
pub fn decisions<'c>(
    told: Vec<(TxnId, Resolution)>,
    contexts: impl IntoIterator<Item = &'c Context>,
) -> Vec<(TxnId, Resolution)> {
    let is_member = |cx: &&Context| cx.database().membership.is_member(cx.node.id);
    let (living, dead): (Vec<_>, Vec<_>) = contexts.into_iter().partition(is_member);
    let mut decided = told;
    decided.extend(living.iter().flat_map(|cx| cx.decisions()));
    let known: BTreeSet<TxnId> = decided.iter().map(|(id, _)| *id).collect();
    let of_dead = dead.iter().flat_map(|cx| cx.decisions());
    decided.extend(of_dead.filter(|(id, _)| !known.contains(id)));
    decided
}

/// Enters a transaction whose data will be sent next in the history, with an unknown outcome.
#[cold]
pub(crate) fn enter_doubt(cx: &Context, txn: &Txn) {
    if txn.entries.is_empty() && txn.ordered.leaves.is_empty() {
        return; // this transaction only splits a bucket and changes no record
    }
    enter(cx, txn, RecordedOutcome::Unknown);
}

/// Enters a transaction in the history, or replaces the transaction's entry once its outcome is known.
#[cold]
pub(crate) fn enter(cx: &Context, txn: &Txn, outcome: RecordedOutcome) {
    let Some((sink, invoked)) = &txn.recorded_in else { return };
    let mut recorded = record(cx, txn, *invoked, outcome);
    if outcome == RecordedOutcome::GaveUp {
        recorded.writes.clear(); // the transaction never sent its writes
    }
    let mut history = sink.borrow_mut();
    let known = history.iter_mut().rev().find(|known| known.id == recorded.id);
    match known {
        Some(known) => *known = recorded,
        // An aborted transaction that wrote nothing has no effect that another transaction could see.
        None if outcome == RecordedOutcome::Aborted && recorded.writes.is_empty() => {}
        None => history.push(recorded),
    }
}

fn record(cx: &Context, txn: &Txn, invoked: Nanos, outcome: RecordedOutcome) -> RecordedTxn {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for entry in &txn.entries {
        reads.extend(recorded_read(cx, txn, entry));
        writes.extend(recorded_write(cx, txn, entry));
    }
    for leaf in &txn.ordered.leaves {
        record_leaf(cx, leaf, &mut reads, &mut writes);
    }
    let (id, coordinator) = (txn.tag, txn.coordinator);
    let completed = cx.port.observed();
    RecordedTxn { id, coordinator, invoked, completed, outcome, reads, writes }
}

/// Records a leaf of an ordered index in the history as if the leaf were a record whose key is the leaf's address. So
/// if a scan misses an index entry or sees it too early, the history shows that the version of a leaf contradicts the
/// scan's other reads.
fn record_leaf(
    cx: &Context,
    leaf: &Leaf,
    reads: &mut Vec<RecordedRead>,
    writes: &mut Vec<RecordedWrite>,
) {
    if !leaf.shown && !leaf.is_held {
        return; // the transaction never used this leaf
    }
    let tables = cx.database().catalog.tables().len();
    let (table, key) = (TableId(tables as u16 + leaf.index.0), leaf.address.to_word());
    let version = leaf.version.counter();
    reads.push(RecordedRead { table, key, version, present: true, fingerprint: 0 });
    if leaf.new_version != Version::NEVER {
        let (version, kind) = (leaf.new_version.counter(), WriteKind::Update);
        // The undo of a change of a tree node raises the node's version, even in systems in which the undo of a
        // record's change does not.
        let undone = (cx.database().protocol.info().undone_node)(leaf.version.counter(), version);
        writes.push(RecordedWrite { table, key, version, kind, fingerprint: 0, undone });
    }
}

/// Returns the hash of the payload at the position `at`, or 0 if the transaction does not know the whole payload.
fn payload_fingerprint(cx: &Context, txn: &Txn, entry: &Entry, at: BufferOffset) -> u64 {
    let slot = &cx.table(entry.table).slot;
    if slot.is_out_of_line() && entry.cells != Cells::ALL {
        return 0;
    }
    fingerprint(txn.round.bytes(at, slot.payload_bytes))
}

fn recorded_read(cx: &Context, txn: &Txn, entry: &Entry) -> Option<RecordedRead> {
    if entry.progress != Progress::Done {
        return None; // this entry was never fetched
    }
    let slot = &cx.table(entry.table).slot;
    let hash = |at: BufferOffset| payload_fingerprint(cx, txn, entry, at);
    let fingerprint = match (entry.mode, entry.found) {
        (_, false) | (Mode::Delete, true) => 0,
        (Mode::Read | Mode::Insert, true) => hash(entry.payload),
        (Mode::Update, true) => hash(entry.payload_before(slot)),
    };
    let (table, key, present) = (entry.table, entry.key, entry.found);
    let version = entry.version.counter();
    Some(RecordedRead { table, key, version, present, fingerprint })
}

fn recorded_write(cx: &Context, txn: &Txn, entry: &Entry) -> Option<RecordedWrite> {
    let version = entry.new_version.counter();
    // The version that an insert found is the version of the directory record, so it cannot be compared with the
    // record's new version.
    let is_same = entry.mode != Mode::Insert && entry.new_version == entry.version;
    if version == 0 || !entry.writable || is_same {
        return None;
    }
    let hash = || payload_fingerprint(cx, txn, entry, entry.payload);
    let (kind, fingerprint) = match entry.mode {
        Mode::Read => return None,
        Mode::Update => (WriteKind::Update, hash()),
        Mode::Insert => (WriteKind::Insert, hash()),
        Mode::Delete => (WriteKind::Delete, 0),
    };
    let (table, key) = (entry.table, entry.key);
    let undone = (cx.database().protocol.info().undone)(kind, version).map(Undone::always);
    Some(RecordedWrite { table, key, version, kind, fingerprint, undone })
}
