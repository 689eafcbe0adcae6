//! Computes the contents that each record in memory must have after a history has ended.
//!
//! Invariant: every record is checked. Loaded records count as the first writes. It is an error if a record is
//! present without a write, or is absent without a delete. Only writes of committed transactions count. The undo of a
//! dead node's transaction restores a record's bytes under a new version. The record may have that version only if
//! the dead transaction had written the record.

use crate::admin::inspect::{Stored, scan};
use crate::site::Context;
use std::collections::{BTreeMap, BTreeSet};
use tarn_store::history::{RecordedOutcome, RecordedTxn, RecordedWrite, WriteKind, fingerprint};
use tarn_store::ids::Failure;
use tarn_store::schema::TableId;

/// Returns every stored record as if it had been inserted now. Callers call this function after loading.
///
/// # Errors
/// An error of the fabric.
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

/// The writes that memory must contain once a history has ended: the last write of each record.
#[derive(Debug)]
pub struct LastWrites {
    writes: BTreeMap<(TableId, u64), RecordedWrite>,
    /// The versions that the undo of a transaction may have given to records. A record has such a version only if
    /// the transaction had written the record before its node died.
    undone: BTreeSet<(TableId, u64, u64)>,
}

impl LastWrites {
    /// Computes the last writes of a history, with `loaded` as the first writes. The history must not contain a
    /// transaction in doubt.
    pub fn of(history: &[RecordedTxn], loaded: &[RecordedWrite]) -> LastWrites {
        let first = loaded.iter().map(|write| ((write.table, write.key), *write));
        let mut last = LastWrites { writes: first.collect(), undone: BTreeSet::new() };
        let committed = |txn: &&RecordedTxn| txn.outcome == RecordedOutcome::Committed;
        for txn in history.iter().filter(committed) {
            // A transaction that writes also reads. Only a transaction that undoes another transaction reads no
            // record.
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

    /// Describes one record whose contents in memory differ from these writes. Returns `None` if no record differs.
    ///
    /// # Errors
    /// An error of the fabric.
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
        // Nodes of ordered indexes belong to no table. The audit of the ordered indexes checks these nodes.
        let tables = cx.database().catalog.tables().len();
        let is_record = |write: &&RecordedWrite| usize::from(write.table.0) < tables;
        let mut left = self.writes.values().filter(is_record);
        let lost = left.find(|write| write.kind != WriteKind::Delete);
        Ok(difference.or_else(|| {
            lost.map(|write| {
                format!(
                    "a record is missing; its last write \
            was {write:?}"
                )
            })
        }))
    }

    /// Describes the error of a stored record, if the record has one. The function removes the record from the list
    /// of expected writes.
    fn wrong(&mut self, table: TableId, stored: &Stored<'_>) -> Option<String> {
        let (key, version) = (stored.key, stored.version.counter());
        let Some(write) = self.writes.remove(&(table, key)) else {
            return Some(format!("[{key}] holds version {version}, which no transaction wrote"));
        };
        let is_right = write.kind != WriteKind::Delete
            && (write.version == version || self.is_undone(&write, version))
            && [0, fingerprint(stored.row.payload())].contains(&write.fingerprint);
        (!is_right)
            .then(|| format!("[{key}] holds version {version}, but the last write was {write:?}"))
    }

    fn is_undone(&self, write: &RecordedWrite, version: u64) -> bool {
        version > write.version && self.undone.contains(&(write.table, write.key, version))
    }
}
