//! Lets a transaction's body use ordered indexes: the body plans scans and reads their results.
//!
//! Invariant: a body first plans a scan. The scan runs in the next fetch together with the records of that fetch. A
//! scan shows the index as it was at one moment, together with the changes that the transaction itself made before
//! the scan was planned. If inserts and deletes were requested before the scan and not yet fetched, the transaction
//! fetches them first. The fetch reports mistakes of the caller (a key with parts of other widths, too many scans).

use crate::protocol::merge_access::precedes_scan;
use crate::session::coordinator::Coordinator;
use crate::session::transaction::Transaction;
use crate::site::Context;
use crate::transaction::ordered::Ordered;
use crate::transaction::sequel::{LaterScan, Waiting};
use crate::transaction::working_set::Txn;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::Explanation;
use tarn_store::index::btree::seek::Seek;
use tarn_store::layout::index_plan::{Index, KeyBytes};
use tarn_store::schema::IndexId;
use tarn_store::schema::range::{IndexKey, Scan, ScanEntry, ScanHandle};

impl Transaction<'_> {
    /// Plans a scan of an ordered index. The scan runs at the next fetch. After that fetch, [`Transaction::scanned`]
    /// returns the scan's entries.
    ///
    /// A transaction may have at most `Options::records_max` scans and look-ups. One scan may return any number of
    /// entries.
    pub fn scan(&mut self, index: IndexId, scan: Scan) -> ScanHandle {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let (ordered, catalog) = (&mut txn.ordered, &cx.database().catalog);
        let (plan, most) = (catalog.ordered(index), catalog.options().records_max as usize);
        let keys = [&scan.from, &scan.to];
        if ordered.wishes() >= most || !keys.iter().all(|key| key.begins(plan.parts)) {
            let mistake = mistake_of(plan, keys, (ordered.wishes(), most));
            return self.mistaken_scan(mistake);
        }
        let range = (scan.from.least(), scan.to.greatest());
        if txn.fetched < txn.entries.len() || txn.notes.is_waiting() {
            let table = cx.table(plan.table);
            if precedes_scan(txn, table) {
                return later_scan(txn, index, range, &scan);
            }
        }
        let ordered = &mut txn.ordered;
        let state = ordered.next_scan();
        state.start(index, range, scan.limit, scan.backward);
        ordered.pending |= !state.is_done;
        ScanHandle(ordered.live as u32 - 1)
    }

    /// Plans the look-up of one key of a unique index. The look-up counts as a scan of one entry. If `key` is only
    /// a prefix, the look-up returns the first entry with that prefix.
    #[inline]
    pub fn seek(&mut self, index: IndexId, key: IndexKey) -> ScanHandle {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let (ordered, plan) = (&mut txn.ordered, cx.database().catalog.ordered(index));
        let is_whole = key.as_bytes().is_some_and(|key| key.len() == plan.used_bytes);
        let most = cx.database().catalog.options().records_max as usize;
        let is_many = ordered.wishes() >= most;
        let is_behind = (txn.fetched < txn.entries.len() || txn.notes.is_waiting())
            && precedes_scan(txn, cx.table(plan.table));
        let ordered = &mut txn.ordered;
        if !is_whole || !key.begins(plan.parts) || is_many || is_behind {
            return self.scan(index, Scan::prefix(key).limit(1));
        }
        (ordered.is_used, ordered.pending) = (true, true);
        ordered.seeks.push(Seek::new(plan, key.least()));
        ScanHandle::of_seek(ordered.seeks.len() - 1)
    }

    #[cold]
    fn mistaken_scan(&mut self, mistake: Explanation) -> ScanHandle {
        self.refuse(mistake);
        let txn = &mut self.coordinator.txn;
        let state = txn.ordered.next_scan();
        state.items.clear();
        state.is_done = true;
        ScanHandle(txn.ordered.live as u32 - 1)
    }

    /// Returns the entries of a scan in the scan's order, including the changes that this transaction made before
    /// the scan.
    ///
    /// # Panics
    /// If the scan was not fetched: this is a bug of the caller that no input can cause.
    pub fn scanned(&self, handle: ScanHandle) -> impl Iterator<Item = ScanEntry<'_>> {
        let Coordinator { cx, txn, .. } = &*self.coordinator;
        let waits = txn.notes.is_waiting() && txn.sequel.has_scan(handle.0 as usize);
        assert!(!waits, "scanned was called before fetch");
        let (index, items) = shown(&txn.ordered, handle);
        let index = index_of(cx, index);
        let (round, bytes) = (&txn.round, index.shape.slot_bytes(0));
        items.iter().map(move |&at| {
            let slot = round.bytes(at, bytes);
            ScanEntry { key: &slot[..index.used_bytes], record: index.record_of(slot) }
        })
    }
}

/// Adds a scan that begins only after the transaction has fetched everything that was requested before the scan.
#[cold]
fn later_scan(
    txn: &mut Txn,
    index: IndexId,
    range: (KeyBytes, KeyBytes),
    &Scan { limit, backward, .. }: &Scan,
) -> ScanHandle {
    let state = txn.ordered.next_scan();
    state.items.clear();
    (state.index, state.is_done) = (index.0, true);
    let at = txn.ordered.live - 1;
    let scan = LaterScan { at, index, range, limit, backward };
    txn.sequel.wait(&txn.notes, Waiting::Scan(Box::new(scan)));
    ScanHandle(at as u32)
}

/// Returns the index of a scan or look-up, and the buffer positions of the slots in its result.
#[inline]
fn shown(ordered: &Ordered, handle: ScanHandle) -> (u16, &[BufferOffset]) {
    let scan = match handle.seek() {
        None => handle.0,
        Some(at) => {
            assert!(at < ordered.sought, "scanned was called before fetch");
            let seek = &ordered.seeks[at];
            match seek.scan {
                None => return (seek.index.0, seek.item.as_slice()),
                Some(scan) => scan,
            }
        }
    };
    let state = &ordered.scans[scan as usize];
    assert!(state.is_done, "scanned was called before fetch");
    (state.index, &state.items)
}

fn index_of(cx: &Context, index: u16) -> &Index {
    cx.database().catalog.ordered(IndexId(index))
}

/// Explains the mistake in a scan between these keys, or in the number of scans.
#[cold]
fn mistake_of(index: &Index, keys: [&IndexKey; 2], (scans, most): (usize, usize)) -> Explanation {
    let Some(key) = keys.into_iter().find(|key| !key.begins(index.parts)) else {
        let allowed = format!("at most {most} (records_max)");
        return Explanation::usage("scans of one transaction", scans + 1, &allowed);
    };
    let field = format!("key of index {}", index.schema.name);
    let value = key.as_bytes().map(|bytes| match bytes.len() > index.used_bytes {
        true => format!("{} bytes", bytes.len()),
        false => key.widths(),
    });
    let value = value.unwrap_or_else(|| "a key that is too long".to_owned());
    Explanation::usage(&field, value, &index.allowed_keys())
}
