//! What a transaction's body says about ordered indexes: scans, and what they brought.
//!
//! Invariant: a scan is planned, runs with the next fetch beside the records of that fetch, and shows
//! the index as of one moment together with what the transaction itself had changed before that fetch.
//! What the caller got wrong (a key that is too long, too many scans) surfaces at the fetch.

use crate::context::Context;
use crate::coordinator::Coordinator;
use crate::fuse::precedes_scan;
use crate::index::btree::plan::{Index, KeyBytes};
use crate::index::btree::seek::Seek;
use crate::index_schema::IndexId;
use crate::ordered::Ordered;
use crate::outcome::Explanation;
use crate::range::{IndexKey, SCANNED_MAX, SCANS_MAX, Scan, ScanEntry, ScanHandle};
use crate::sequel::{LaterScan, Waiting};
use crate::transaction::Transaction;
use crate::working_set::Txn;
use tarn_fabric::round::BufferOffset;

impl Transaction<'_> {
    /// Plans a scan of an ordered index. It runs at the next fetch; [`Transaction::scanned`] shows what
    /// it brought.
    ///
    /// At most [`SCANS_MAX`] scans a transaction, whose limits add up to at most [`SCANNED_MAX`]
    /// entries; a scan without a limit of its own does not count, and shows at most as many.
    pub fn scan(&mut self, index: IndexId, scan: Scan) -> ScanHandle {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let ordered = &mut txn.ordered;
        let plan = &cx.database().catalog.ordered(index);
        let left = SCANNED_MAX - ordered.asked as u32;
        let unlimited = scan.limit == SCANNED_MAX;
        let left = if unlimited { SCANNED_MAX } else { left };
        let mistake = mistake_of(plan, &scan, ordered.wishes(), left);
        if let Some(mistake) = mistake {
            return self.mistaken_scan(mistake);
        }
        if !unlimited {
            ordered.asked += u64::from(scan.limit);
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

    /// Plans the look-up of one key of a unique index; counts as a scan of one entry. Of a prefix of keys
    /// it shows the first entry.
    #[inline]
    pub fn seek(&mut self, index: IndexId, key: IndexKey) -> ScanHandle {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let (ordered, plan) = (&mut txn.ordered, cx.database().catalog.ordered(index));
        let is_whole = key.as_bytes().is_some_and(|key| key.len() == plan.used_bytes);
        let is_many = ordered.wishes() >= SCANS_MAX;
        let is_first = txn.fetched == txn.entries.len() && txn.notes.is_plain();
        if !is_whole || is_many || !is_first || ordered.asked >= u64::from(SCANNED_MAX) {
            return self.scan(index, Scan::prefix(key).limit(1));
        }
        ordered.asked += 1;
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

    /// The entries that a scan has brought, in its order, with what this transaction had changed
    /// before it.
    ///
    /// # Panics
    /// If the scan was not fetched: a bug of the caller's that no input can cause.
    pub fn scanned(&self, handle: ScanHandle) -> impl Iterator<Item = ScanEntry<'_>> {
        let Coordinator { cx, txn, .. } = &*self.coordinator;
        let waits = txn.notes.is_waiting() && txn.sequel.has_scan(handle.0 as usize);
        assert!(!waits, "fetch before scanned");
        let (index, items) = shown(&txn.ordered, handle);
        let index = index_of(cx, index);
        let (round, bytes) = (&txn.round, index.shape.slot_bytes(0));
        items.iter().map(move |&at| {
            let slot = round.bytes(at, bytes);
            ScanEntry { key: &slot[..index.used_bytes], record: index.record_of(slot) }
        })
    }
}

/// A scan that begins when all that was asked for before it is fetched.
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

/// The index of a scan or look-up, and where the slots lie that it shows.
#[inline]
fn shown(ordered: &Ordered, handle: ScanHandle) -> (u16, &[BufferOffset]) {
    let scan = match handle.seek() {
        None => handle.0,
        Some(at) => {
            assert!(at < ordered.sought, "fetch before scanned");
            let seek = &ordered.seeks[at];
            match seek.scan {
                None => return (seek.index.0, seek.item.as_slice()),
                Some(scan) => scan,
            }
        }
    };
    let state = &ordered.scans[scan as usize];
    assert!(state.is_done, "fetch before scanned");
    (state.index, &state.items)
}

fn index_of(cx: &Context, index: u16) -> &Index {
    cx.database().catalog.ordered(IndexId(index))
}

/// What cannot be about a scan.
fn mistake_of(index: &Index, scan: &Scan, scans: usize, left: u32) -> Option<Explanation> {
    let name = &index.schema.name;
    for key in [&scan.from, &scan.to] {
        let len = key.as_bytes().map(<[u8]>::len);
        if len.is_none_or(|len| len > index.used_bytes) {
            let value = len.map_or_else(|| "too long".to_owned(), |len| format!("{len} bytes"));
            let allowed = format!("at most {} bytes", index.used_bytes);
            return Some(Explanation::usage(&format!("key of index {name}"), value, &allowed));
        }
    }
    if scans >= SCANS_MAX {
        let allowed = format!("at most {SCANS_MAX}");
        return Some(Explanation::usage("scans of one transaction", scans + 1, &allowed));
    }
    (scan.limit > left).then(|| {
        let allowed = format!("at most {left} of {SCANNED_MAX} a transaction");
        Explanation::usage(&format!("limit of a scan of {name}"), scan.limit, &allowed)
    })
}
