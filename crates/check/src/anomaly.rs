//! The violations that a history can show. Each violation names the records, versions and
//! transactions that prove it.
//!
//! Invariant: an anomaly holds all data that its text needs. An anomaly holds no index into the
//! history.
//!
//! Source: the phenomena are those of Adya, Liskov and O'Neil, *Generalized Isolation Level
//! Definitions*, ICDE 2000 (G0, G1a-c, G-single, G2). G-single is from Adya's thesis, *Weak
//! Consistency*, MIT 1999. G-nonadjacent and the suffix `-realtime` are from Kingsbury and Alvaro,
//! *Elle*, VLDB 2020. The suffix names cycles that need a real-time edge. We use the name G2 for both
//! item and predicate anti-dependencies, because an absent read is a read of one key.

use serde::Serialize;

use crate::history::{TxnId, Version};

/// Names a record by its table's name and its key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RecordName {
    /// The table's name.
    pub table: String,
    /// The record's key in the table.
    pub key: u64,
}

/// A transaction, with the data by which a reader finds it in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Party {
    /// The transaction's name.
    pub txn: TxnId,
    /// The coordinator that ran the transaction.
    pub coordinator: u32,
    /// The time at which the transaction was invoked.
    pub invoked_ns: u64,
    /// The time at which the transaction completed. `None` means that the transaction never completed
    /// or that its outcome is unknown.
    pub completed_ns: Option<u64>,
}

/// The place of a read in a record's version order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// The transaction read this version.
    Present(Version),
    /// The transaction found no record. The record was absent as of this version.
    Absent(Version),
}

/// The reason why one transaction must come before another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "dependency", rename_all = "snake_case")]
pub enum Dependency {
    /// ww: the first transaction wrote the version just before the version that the second
    /// transaction wrote.
    WriteWrite {
        /// The record that both transactions wrote.
        record: RecordName,
        /// The version that the first transaction wrote.
        first: Version,
        /// The version that the second transaction wrote.
        second: Version,
    },
    /// wr: the second transaction read a version that the first transaction wrote.
    WriteRead {
        /// The record that was written and read.
        record: RecordName,
        /// The version that the first transaction wrote.
        written: Version,
        /// The place of the second transaction's read.
        seen: Seen,
    },
    /// rw: the first transaction read the version just before the version that the second transaction
    /// wrote.
    ReadWrite {
        /// The record that was read and written.
        record: RecordName,
        /// The place of the first transaction's read.
        seen: Seen,
        /// The version that the second transaction wrote.
        written: Version,
    },
    /// rt: the first transaction completed before the second transaction was invoked.
    RealTime,
}

/// One edge of a cycle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Step {
    /// The transaction that comes first.
    pub from: Party,
    /// The transaction that comes second.
    pub to: Party,
    /// The reason why the first transaction must come before the second.
    #[serde(flatten)]
    pub dependency: Dependency,
}

/// Adya's name for a cycle, which depends on the kinds of edges in the cycle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum CyclePhenomenon {
    /// The cycle has only ww edges.
    G0,
    /// The cycle has only ww and wr edges, and at least one wr edge.
    G1c,
    /// The cycle has exactly one rw edge.
    #[serde(rename = "G-single")]
    GSingle,
    /// The cycle has two or more rw edges, and no two of them follow one another. Snapshot isolation
    /// also forbids a cycle in which no two rw edges follow one another.
    #[serde(rename = "G-nonadjacent")]
    GNonadjacent,
    /// The cycle has two or more rw edges, and two of them follow one another. A cycle with two
    /// successive rw edges is write skew or a consequence of write skew.
    G2,
}

/// The class of a cycle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct CycleClass {
    /// Names the anomaly by the kinds of dependencies in the cycle.
    pub phenomenon: CyclePhenomenon,
    /// Whether the cycle needs a real-time edge. If it does, the history may satisfy a level without
    /// the real-time rule.
    pub real_time: bool,
}

/// A cycle that the report does not show step by step, because the report shows a shorter cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LongerCycle {
    /// Names the anomaly by the kinds of dependencies in the cycle.
    pub phenomenon: CyclePhenomenon,
    /// The number of transactions in the cycle.
    pub transactions: usize,
}

/// A violation of the level that the history is checked against.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "anomaly", rename_all = "snake_case")]
pub enum Anomaly {
    /// G1a: a transaction saw a change that only an aborted transaction made.
    AbortedRead {
        /// The transaction that saw the change.
        reader: TxnId,
        /// The transaction that made the change and aborted.
        writer: TxnId,
        /// The record that was changed.
        record: RecordName,
        /// The place of the reader's read.
        seen: Seen,
        /// The version of the aborted write.
        written: Version,
    },
    /// G1b: a transaction read a version that the version's writer itself overwrote.
    IntermediateRead {
        /// The transaction that read the overwritten version.
        reader: TxnId,
        /// The transaction that wrote the version and then wrote the record again.
        writer: TxnId,
        /// The record that was read.
        record: RecordName,
        /// The version that was read.
        version: Version,
        /// The writer's next version.
        overwritten_by: Version,
    },
    /// A transaction read a version that no transaction wrote and that is not the initial version.
    UnwrittenVersion {
        /// The transaction that read the unwritten version.
        reader: TxnId,
        /// The record that was read.
        record: RecordName,
        /// The version that was read.
        version: Version,
        /// Set if the version comes before all writes: another version that comes before all writes,
        /// and its reader.
        other_initial: Option<(Version, TxnId)>,
    },
    /// Two committed writes have the same version number, so one of the two writes is lost.
    DuplicateVersion {
        /// The transaction of the first write.
        first: TxnId,
        /// The transaction of the second write.
        second: TxnId,
        /// The record that both transactions wrote.
        record: RecordName,
        /// The version number that both writes have.
        version: Version,
    },
    /// Another transaction's write lies between a transaction's read and its own write.
    LostUpdate {
        /// The transaction that overwrote the missed version without having read it.
        txn: TxnId,
        /// The record that was overwritten.
        record: RecordName,
        /// The place of this transaction's read.
        seen: Seen,
        /// The version that this transaction wrote.
        written: Version,
        /// The transaction whose write `txn` missed.
        missed: TxnId,
        /// The version that `txn` missed.
        missed_version: Version,
    },
    /// Two transactions recorded different values for one version. The cause is a torn or misplaced
    /// read or write.
    ValueMismatch {
        /// The record with the two values.
        record: RecordName,
        /// The version with the two values.
        version: Version,
        /// The transaction that recorded the first value.
        first: TxnId,
        /// Whether the first transaction wrote the first value. Otherwise the first transaction read
        /// it.
        first_wrote: bool,
        /// The hash of the first value.
        first_fingerprint: u64,
        /// The transaction that read the second value.
        second: TxnId,
        /// The hash of the second value.
        second_fingerprint: u64,
    },
    /// A transaction found a record present at a version that is a delete.
    PresentReadOfDelete {
        /// The transaction that read the deleted record.
        reader: TxnId,
        /// The transaction that deleted the record.
        writer: TxnId,
        /// The record that was deleted.
        record: RecordName,
        /// The version of the delete.
        version: Version,
    },
    /// A transaction found a record absent at a version at which the record was present.
    AbsentReadOfPresent {
        /// The transaction that did not find the record.
        reader: TxnId,
        /// The record that was not found.
        record: RecordName,
        /// The version as of which the read reported the record as absent.
        floor: Version,
        /// The version of the record that was present, and this version's writer. `None` means the
        /// initial version.
        present: Option<(Version, TxnId)>,
    },
    /// A transaction saw its own write. In a history, a read shows the record as it was before the
    /// read's own transaction wrote.
    OwnWriteRead {
        /// The transaction that saw its own write.
        txn: TxnId,
        /// The record that was read and written.
        record: RecordName,
        /// The place of the transaction's read.
        seen: Seen,
        /// The version that the transaction wrote.
        written: Version,
    },
    /// Transactions that form a cycle: each transaction must come before the next one, and the last
    /// transaction before the first one.
    Cycle {
        /// The class of the cycle.
        class: CycleClass,
        /// Set if real time closes the cycle: a longer cycle that needs no real time, if the checker
        /// found one. The longer cycle lies in the same strongly connected component of the graph.
        without_real_time: Option<LongerCycle>,
        /// The edges of the cycle. The last edge leads back to the transaction at which the first
        /// edge begins.
        steps: Vec<Step>,
    },
}

/// The kinds of [`Anomaly`], by which a report counts anomalies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is documented at the variant of Anomaly of the same name")]
pub enum AnomalyKind {
    AbortedRead,
    IntermediateRead,
    UnwrittenVersion,
    DuplicateVersion,
    LostUpdate,
    ValueMismatch,
    PresentReadOfDelete,
    AbsentReadOfPresent,
    OwnWriteRead,
    Cycle,
}

impl Anomaly {
    /// Returns the anomaly's kind.
    pub fn kind(&self) -> AnomalyKind {
        match self {
            Self::AbortedRead { .. } => AnomalyKind::AbortedRead,
            Self::IntermediateRead { .. } => AnomalyKind::IntermediateRead,
            Self::UnwrittenVersion { .. } => AnomalyKind::UnwrittenVersion,
            Self::DuplicateVersion { .. } => AnomalyKind::DuplicateVersion,
            Self::LostUpdate { .. } => AnomalyKind::LostUpdate,
            Self::ValueMismatch { .. } => AnomalyKind::ValueMismatch,
            Self::PresentReadOfDelete { .. } => AnomalyKind::PresentReadOfDelete,
            Self::AbsentReadOfPresent { .. } => AnomalyKind::AbsentReadOfPresent,
            Self::OwnWriteRead { .. } => AnomalyKind::OwnWriteRead,
            Self::Cycle { .. } => AnomalyKind::Cycle,
        }
    }

    /// Returns the class of the cycle if the anomaly is a cycle, and otherwise `None`.
    pub fn cycle_class(&self) -> Option<CycleClass> {
        match self {
            Self::Cycle { class, .. } => Some(*class),
            _ => None,
        }
    }
}

impl CycleClass {
    /// Returns the class of a cycle with these edges.
    pub fn of(steps: &[Step]) -> Self {
        let count = |test: fn(&Dependency) -> bool| {
            steps.iter().filter(|step| test(&step.dependency)).count()
        };
        let phenomenon = match count(|edge| matches!(edge, Dependency::ReadWrite { .. })) {
            0 if count(|edge| matches!(edge, Dependency::WriteRead { .. })) == 0 => {
                CyclePhenomenon::G0
            }
            0 => CyclePhenomenon::G1c,
            1 => CyclePhenomenon::GSingle,
            _ if !has_adjacent_rw(steps) => CyclePhenomenon::GNonadjacent,
            _ => CyclePhenomenon::G2,
        };
        let real_time = count(|edge| matches!(edge, Dependency::RealTime)) > 0;
        Self { phenomenon, real_time }
    }
}

/// Returns whether two rw edges follow one another in this cycle.
fn has_adjacent_rw(steps: &[Step]) -> bool {
    let is_rw =
        |at: usize| matches!(steps[at % steps.len()].dependency, Dependency::ReadWrite { .. });
    (0..steps.len()).any(|at| is_rw(at) && is_rw(at + 1))
}
