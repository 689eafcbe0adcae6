//! The violations that a history can show, each with the records, versions and transactions that
//! prove it.
//!
//! Invariant: an anomaly carries all data that its text needs; it holds no index into the history.
//!
//! Source: the phenomena of Adya, Liskov and O'Neil, *Generalized Isolation Level Definitions*,
//! ICDE 2000 (G0, G1a-c, G-single, G2), with Adya's thesis, *Weak Consistency*, MIT 1999, for
//! G-single. The suffix `-realtime` for cycles that need a real-time edge is from Kingsbury and
//! Alvaro, *Elle*, VLDB 2020, as is G-nonadjacent. We say G2 for item and predicate
//! anti-dependencies alike: an absent read is a read of one key.

use serde::Serialize;

use crate::history::{TxnId, Version};

/// A record by the name of its table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RecordName {
    /// The table's name.
    pub table: String,
    /// The key in it.
    pub key: u64,
}

/// A transaction, with the data by which it is found in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Party {
    /// Its name.
    pub txn: TxnId,
    /// The coordinator that ran it.
    pub coordinator: u32,
    /// When it was invoked.
    pub invoked_ns: u64,
    /// When it completed; `None` if it never did or its outcome is unknown.
    pub completed_ns: Option<u64>,
}

/// The place of a read in a record's version order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// The transaction read this version.
    Present(Version),
    /// The transaction found the record absent as of this version.
    Absent(Version),
}

/// The reason why one transaction must come before another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "dependency", rename_all = "snake_case")]
pub enum Dependency {
    /// ww: the first transaction wrote the version before the other's.
    WriteWrite {
        /// The record.
        record: RecordName,
        /// The version of the first.
        first: Version,
        /// The version of the second.
        second: Version,
    },
    /// wr: the other transaction read a version that the first wrote.
    WriteRead {
        /// The record.
        record: RecordName,
        /// The version written.
        written: Version,
        /// The place of the other's read.
        seen: Seen,
    },
    /// rw: the first transaction read the version before the one that the other wrote.
    ReadWrite {
        /// The record.
        record: RecordName,
        /// The place of the first's read.
        seen: Seen,
        /// The version the other wrote.
        written: Version,
    },
    /// The first transaction was over before the other began.
    RealTime,
}

/// One edge of a cycle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Step {
    /// The transaction that comes first.
    pub from: Party,
    /// The transaction that comes second.
    pub to: Party,
    /// The reason.
    #[serde(flatten)]
    pub dependency: Dependency,
}

/// Adya's name for a cycle, by its edges.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum CyclePhenomenon {
    /// Only ww.
    G0,
    /// ww and wr.
    G1c,
    /// Exactly one rw.
    #[serde(rename = "G-single")]
    GSingle,
    /// Two or more rw, no two of which follow one another: snapshot isolation forbids it as well.
    #[serde(rename = "G-nonadjacent")]
    GNonadjacent,
    /// Two or more rw, two of which follow one another: write skew and its consequences.
    G2,
}

/// Class of a cycle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct CycleClass {
    /// The name by the cycle's dependencies.
    pub phenomenon: CyclePhenomenon,
    /// Whether real time closes the cycle: without it the history may satisfy its level.
    pub real_time: bool,
}

/// A cycle that is not shown step by step, because a shorter one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LongerCycle {
    /// The name by the cycle's dependencies.
    pub phenomenon: CyclePhenomenon,
    /// The number of its transactions.
    pub transactions: usize,
}

/// A violation of the level that the history is checked against.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "anomaly", rename_all = "snake_case")]
pub enum Anomaly {
    /// G1a: a transaction saw a change that only an aborted transaction made.
    AbortedRead {
        /// The transaction that saw it.
        reader: TxnId,
        /// The transaction that made it and aborted.
        writer: TxnId,
        /// The record.
        record: RecordName,
        /// The place of the read.
        seen: Seen,
        /// The version of the aborted write.
        written: Version,
    },
    /// G1b: a transaction read a version that its writer itself overwrote.
    IntermediateRead {
        /// The transaction that read it.
        reader: TxnId,
        /// The transaction that wrote it and then wrote again.
        writer: TxnId,
        /// The record.
        record: RecordName,
        /// The version read.
        version: Version,
        /// The writer's next version.
        overwritten_by: Version,
    },
    /// A transaction read a version that no transaction wrote and that is not the initial one.
    UnwrittenVersion {
        /// The transaction that read it.
        reader: TxnId,
        /// The record.
        record: RecordName,
        /// The version read.
        version: Version,
        /// If the version stands before all writes: another version that does, and its reader.
        other_initial: Option<(Version, TxnId)>,
    },
    /// Two committed writes have one version: one of them is lost.
    DuplicateVersion {
        /// One writer.
        first: TxnId,
        /// The other.
        second: TxnId,
        /// The record.
        record: RecordName,
        /// The version both wrote.
        version: Version,
    },
    /// Another transaction's write lies between a transaction's read and its own write.
    LostUpdate {
        /// The transaction that overwrote the version unseen.
        txn: TxnId,
        /// The record.
        record: RecordName,
        /// The place of its read.
        seen: Seen,
        /// The version that it wrote.
        written: Version,
        /// The transaction whose write it missed.
        missed: TxnId,
        /// The version it missed.
        missed_version: Version,
    },
    /// Two transactions disagree on the value of one version: a torn or misplaced read or write.
    ValueMismatch {
        /// The record.
        record: RecordName,
        /// The version.
        version: Version,
        /// The transaction that saw the first value.
        first: TxnId,
        /// Whether it wrote this value (otherwise it read it).
        first_wrote: bool,
        /// Hash of the first value.
        first_fingerprint: u64,
        /// The transaction that read another value.
        second: TxnId,
        /// Hash of the other value.
        second_fingerprint: u64,
    },
    /// A transaction read a version that is a delete.
    PresentReadOfDelete {
        /// The transaction that read it.
        reader: TxnId,
        /// The transaction that deleted the record.
        writer: TxnId,
        /// The record.
        record: RecordName,
        /// The version of the delete.
        version: Version,
    },
    /// A transaction found a record absent where it was there.
    AbsentReadOfPresent {
        /// The transaction that did not find it.
        reader: TxnId,
        /// The record.
        record: RecordName,
        /// The version as of which the record was said to be absent.
        floor: Version,
        /// The version that was there and its writer, or `None` for the initial version.
        present: Option<(Version, TxnId)>,
    },
    /// A transaction saw its own write. Reads in a history are of versions that were there before
    /// their transaction wrote.
    OwnWriteRead {
        /// The transaction that saw and wrote it.
        txn: TxnId,
        /// The record.
        record: RecordName,
        /// The place of the read.
        seen: Seen,
        /// The version that it wrote.
        written: Version,
    },
    /// Transactions that must each come before the next, in a circle.
    Cycle {
        /// Its class.
        class: CycleClass,
        /// If real time closes the cycle: a longer cycle that needs no real time, if one was found.
        /// It runs through the same transactions, or through others that are all before one another
        /// with them.
        without_real_time: Option<LongerCycle>,
        /// Its edges; the last leads back to the beginning of the first.
        steps: Vec<Step>,
    },
}

/// The variants of [`Anomaly`], for counting.
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
    /// Returns its kind.
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

    /// The class of a cycle, `None` for anything else.
    pub fn cycle_class(&self) -> Option<CycleClass> {
        match self {
            Self::Cycle { class, .. } => Some(*class),
            _ => None,
        }
    }
}

impl CycleClass {
    /// The class of a cycle with these edges.
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

/// Whether two rw edges follow one another in this cycle.
fn has_adjacent_rw(steps: &[Step]) -> bool {
    let is_rw =
        |at: usize| matches!(steps[at % steps.len()].dependency, Dependency::ReadWrite { .. });
    (0..steps.len()).any(|at| is_rw(at) && is_rw(at + 1))
}
