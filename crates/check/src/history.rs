//! The history of a run: the reads and writes of every transaction with their version numbers, and
//! the times of its invocation and completion.
//!
//! Invariant: the version numbers of one record are monotone in the order in which its versions
//! were installed (they need not be dense). The recorder knows that order because the system under
//! test numbers its versions. That makes checking near-linear instead of NP-complete
//! (Papadimitriou, *The Serializability of Concurrent Database Updates*, JACM 1979).
//!
//! Source of the model: Adya, Liskov and O'Neil, *Generalized Isolation Level Definitions*,
//! ICDE 2000; operations have a version order, transactions an outcome.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// `completed_ns` of a transaction whose end was not observed.
pub const NEVER_NS: u64 = u64::MAX;

/// Name of one transaction, unique within a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TxnId(pub u64);

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
}

/// A record's version number, monotone in the record's version order.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}", self.0)
    }
}

/// One record: a table (its place in [`History::tables`]) and a key. Wider keys are hashed to
/// 64 bits by the recorder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordId {
    /// Index into [`History::tables`].
    pub table: u16,
    /// Key within the table.
    pub key: u64,
}

impl RecordId {
    /// Returns the id of the record with this key in this table.
    pub fn new(table: u16, key: u64) -> Self {
        Self { table, key }
    }
}

/// A transaction's outcome, as far as its client learned it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The client was told that it committed.
    Committed,
    /// The client was told that it did not; none of its writes may ever be seen.
    Aborted,
    /// The client was told neither. The checker accepts either (see [`crate::check()`] for the
    /// rule).
    Unknown,
}

/// One read of a record, as it was before the transaction wrote. Reads of its own writes are not
/// recorded; a read at a version of its own is an anomaly ([`crate::AnomalyKind::OwnWriteRead`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// The record that was read.
    pub record: RecordId,
    /// The version read. For an absent record it is a *floor*: the key was absent as of this
    /// number, so the read stands right after the greatest write whose version is at most this.
    pub version: Version,
    /// Whether the record was there.
    pub present: bool,
    /// Hash of the value read, 0 if not recorded.
    pub fingerprint: u64,
}

/// The effect of a write. An insert and an update both leave the record present; whether the key
/// was absent before an insert is judged from the absent read that goes with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteKind {
    /// The record comes into being.
    Insert,
    /// The record gets a new value.
    Update,
    /// The record is gone after this version.
    Delete,
}

/// One version that a transaction installed, or tried to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// The record that was written.
    pub record: RecordId,
    /// The number of the new version.
    pub version: Version,
    /// Whether the record is there afterwards.
    pub kind: WriteKind,
    /// Hash of the value written, 0 if not recorded; without meaning for a delete.
    pub fingerprint: u64,
}

/// One transaction attempt as its client saw it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transaction {
    /// Unique in the history.
    pub id: TxnId,
    /// The coordinator that ran it.
    pub coordinator: u32,
    /// The time at which the client asked for it.
    pub invoked_ns: u64,
    /// The time at which the client had the answer; [`NEVER_NS`] if it never came.
    #[serde(with = "crate::format::completion")]
    pub completed_ns: u64,
    /// The answer.
    pub outcome: Outcome,
    /// Its reads of versions of other transactions.
    pub reads: Vec<Read>,
    /// Its writes.
    pub writes: Vec<Write>,
}

impl Transaction {
    /// A committed transaction without operations; add them with [`Self::read`] and its siblings.
    pub fn committed(id: u64, coordinator: u32, invoked_ns: u64, completed_ns: u64) -> Self {
        Self {
            id: TxnId(id),
            coordinator,
            invoked_ns,
            completed_ns,
            outcome: Outcome::Committed,
            reads: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Returns the same transaction with another outcome.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }

    /// Adds a read of a version that is there.
    #[must_use]
    pub fn read(mut self, record: RecordId, version: u64) -> Self {
        self.reads.push(Read { record, version: Version(version), present: true, fingerprint: 0 });
        self
    }

    /// Adds a read that found the record absent as of `floor`.
    #[must_use]
    pub fn read_absent(mut self, record: RecordId, floor: u64) -> Self {
        self.reads.push(Read { record, version: Version(floor), present: false, fingerprint: 0 });
        self
    }

    /// Adds a write.
    #[must_use]
    pub fn write(mut self, record: RecordId, version: u64, kind: WriteKind) -> Self {
        self.writes.push(Write { record, version: Version(version), kind, fingerprint: 0 });
        self
    }

    /// Returns its end for real-time order. An unknown transaction may take effect at any time
    /// after its invocation, so it never ends.
    pub(crate) fn real_time_end_ns(&self) -> u64 {
        match self.outcome {
            Outcome::Unknown => NEVER_NS,
            Outcome::Committed | Outcome::Aborted => self.completed_ns.max(self.invoked_ns),
        }
    }
}

/// A recorded run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// The description of the run: workload, protocol, seed, isolation and so on.
    pub meta: BTreeMap<String, String>,
    /// Names of the tables; [`RecordId::table`] is an index into them.
    pub tables: Vec<String>,
    /// The transactions, in any order.
    pub transactions: Vec<Transaction>,
}
