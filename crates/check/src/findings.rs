//! The anomalies that the checker has found so far. All anomalies are counted, and the first few of
//! each kind are listed.
//!
//! Invariant: anomalies are listed in the order in which the checker finds them, which is the order
//! of records and versions. So the same history gives the same list.

use std::collections::BTreeMap;

use crate::anomaly::{Anomaly, AnomalyKind, Party, RecordName};
use crate::history::{History, NEVER_NS, RecordId, TxnId};

/// The largest number of anomalies of each kind that a report lists. The report only counts further
/// anomalies of a kind.
pub const LISTED_PER_KIND: usize = 10;

#[derive(Default)]
pub(crate) struct Findings {
    pub listed: Vec<Anomaly>,
    pub totals: BTreeMap<AnomalyKind, u64>,
}

impl Findings {
    /// Counts one anomaly. Lists the anomaly if fewer than [`LISTED_PER_KIND`] anomalies of its kind
    /// are listed.
    pub fn add(&mut self, kind: AnomalyKind, describe: impl FnOnce() -> Anomaly) {
        let total = self.totals.entry(kind).or_default();
        *total += 1;
        if *total <= LISTED_PER_KIND as u64 {
            let anomaly = describe();
            debug_assert_eq!(anomaly.kind(), kind);
            self.listed.push(anomaly);
        }
    }
}

/// Finds the names of records and transactions that the checker knows by number.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a>(pub &'a History);

impl Names<'_> {
    pub fn record(self, record: RecordId) -> RecordName {
        let table = self.0.tables.get(usize::from(record.table));
        let table = table.cloned().unwrap_or_else(|| format!("table {}", record.table));
        RecordName { table, key: record.key }
    }

    pub fn txn(self, txn: u32) -> TxnId {
        self.0.transactions[txn as usize].id
    }

    pub fn party(self, txn: u32) -> Party {
        let txn = &self.0.transactions[txn as usize];
        let end = txn.real_time_end_ns();
        Party {
            txn: txn.id,
            coordinator: txn.coordinator,
            invoked_ns: txn.invoked_ns,
            completed_ns: (end != NEVER_NS).then_some(end),
        }
    }
}
