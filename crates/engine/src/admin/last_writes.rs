//! What memory must hold once a history is over, record by record.
//!
//! Invariant: every record is judged: what was loaded counts as written first, a record that is there
//! without anybody's having written it is wrong, and so is one that has vanished without a delete.
//! Only what committed counts; what undid a transaction of the dead restores bytes under a version that
//! the record may have been given, if it had been written at all.

use crate::admin::inspect::{Stored, scan};
use crate::site::Context;
use std::collections::{BTreeMap, BTreeSet};
use tarn_store::history::{RecordedOutcome, RecordedTxn, RecordedWrite, WriteKind, fingerprint};
use tarn_store::ids::Failure;
use tarn_store::schema::TableId;

/// Every record that is there, as if it had been inserted now: for after loading.
///
/// # Errors
/// The fabric's.
pub async fn stored(cx: &Context) -> Result<Vec<RecordedWrite>, Failure> {
    let mut all = Vec::new();
    for table in cx.database().catalog.tables() {
        scan(cx, table.id, |stored| {
            all.push(RecordedWrite {
                table: table.id,
                key: stored.key,
                version: stored.version.counter(),
                kind: WriteKind::Insert,
                fingerprint: fingerprint(stored.row.payload()),
                undone: None,
            });
        })
        .await?;
    }
    Ok(all)
}

/// See the module's text.
#[derive(Debug)]
pub struct LastWrites {
    writes: BTreeMap<(TableId, u64), RecordedWrite>,
    /// Versions that an undone transaction's records may have been given: only those have it that it
    /// had written before it died.
    undone: BTreeSet<(TableId, u64, u64)>,
}

impl LastWrites {
    /// Of a history in which nothing is in doubt any more, on what was loaded.
    pub fn of(history: &[RecordedTxn], loaded: &[RecordedWrite]) -> LastWrites {
        let first = loaded.iter().map(|write| ((write.table, write.key), *write));
        let mut last = LastWrites { writes: first.collect(), undone: BTreeSet::new() };
        let committed = |txn: &&RecordedTxn| txn.outcome == RecordedOutcome::Committed;
        for txn in history.iter().filter(committed) {
            // Whoever writes reads; what undid another transaction did not.
            let is_undoing = txn.reads.is_empty();
            for write in &txn.writes {
                let key = (write.table, write.key);
                if is_undoing {
                    last.undone.insert((write.table, write.key, write.version));
                    continue;
                }
                let known = last.writes.entry(key).or_insert(*write);
                if write.version > known.version {
                    *known = *write;
                }
            }
        }
        last
    }

    /// Where the memory at rest does not hold that, in words.
    ///
    /// # Errors
    /// The fabric's.
    pub async fn differing(mut self, cx: &Context) -> Result<Option<String>, Failure> {
        let mut difference = None;
        for table in cx.database().catalog.tables() {
            scan(cx, table.id, |stored| {
                let wrong = self.wrong(table.id, &stored);
                if difference.is_none() {
                    difference = wrong.map(|why| format!("{}{why}", table.schema.name));
                }
            })
            .await?;
        }
        // Nodes of ordered indexes, which are of no table, are the audit's.
        let tables = cx.database().catalog.tables().len();
        let is_record = |write: &&RecordedWrite| usize::from(write.table.0) < tables;
        let mut left = self.writes.values().filter(is_record);
        let lost = left.find(|write| write.kind != WriteKind::Delete);
        Ok(difference.or_else(|| lost.map(|write| format!("not there: {write:?}"))))
    }

    /// What is wrong with a record that is there; it is taken off the list.
    fn wrong(&mut self, table: TableId, stored: &Stored<'_>) -> Option<String> {
        let (key, version) = (stored.key, stored.version.counter());
        let Some(write) = self.writes.remove(&(table, key)) else {
            return Some(format!("[{key}] holds version {version}, and nobody has written it"));
        };
        let is_right = write.kind != WriteKind::Delete
            && (write.version == version || self.is_undone(&write, version))
            && [0, fingerprint(stored.row.payload())].contains(&write.fingerprint);
        (!is_right)
            .then(|| format!("[{key}] holds version {version}, the last write was {write:?}"))
    }

    fn is_undone(&self, write: &RecordedWrite, version: u64) -> bool {
        version > write.version && self.undone.contains(&(write.table, write.key, version))
    }
}
