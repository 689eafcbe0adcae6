//! The history of a run: the reads and writes of every transaction with their version numbers, and
//! the times of its invocation and completion.
//!
//! Invariant: the version numbers of one record are monotone in the order in which its versions were
//! installed (they need not be dense). The recorder knows this order because the system under test
//! numbers its versions. Because the order is known, checking takes near-linear time instead of being
//! NP-complete (Papadimitriou, *The Serializability of Concurrent Database Updates*, JACM 1979).
//!
//! Source of the model of operations with a version order and transactions with an outcome: Adya,
//! Liskov and O'Neil, *Generalized Isolation Level Definitions*, ICDE 2000.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The value of `completed_ns` of a transaction whose end was not observed.
pub const NEVER_NS: u64 = u64::MAX;

/// The name of one transaction, which is unique within a history.
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

/// Names one record by its table and its key. The table is an index into [`History::tables`]. The
/// recorder hashes keys of more than 64 bits to 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordId {
    /// The record's table, as an index into [`History::tables`].
    pub table: u16,
    /// The record's key within the table.
    pub key: u64,
}

impl RecordId {
    /// Returns the id of the record with this key in this table.
    pub fn new(table: u16, key: u64) -> Self {
        Self { table, key }
    }
}

/// The outcome of a transaction that its client was told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The client was told that the transaction committed.
    Committed,
    /// The client was told that the transaction did not commit. No transaction may ever see a write
    /// of an aborted transaction.
    Aborted,
    /// The client was not told whether the transaction committed. The checker accepts both outcomes
    /// (see [`crate::check()`] for the rule).
    Unknown,
}

/// One read of a record. The read shows the record as it was before the read's transaction wrote. A
/// transaction's reads of its own writes are not recorded. A recorded read of a version that its own
/// transaction wrote is an anomaly ([`crate::AnomalyKind::OwnWriteRead`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// The record that was read.
    pub record: RecordId,
    /// The version that was read. For an absent record this number is a *floor*: the key was absent
    /// as of this number. So the place of the read is right after the greatest write whose version is
    /// at most this number.
    pub version: Version,
    /// Whether the read found the record.
    pub present: bool,
    /// The hash of the value that was read, or 0 if the hash was not recorded.
    pub fingerprint: u64,
}

/// The effect of a write. An insert and an update both leave the record present. To check that the
/// key was absent before an insert, the checker uses the absent read of the same transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteKind {
    /// The write creates the record.
    Insert,
    /// The write gives the record a new value.
    Update,
    /// The write removes the record. After this version the record is absent.
    Delete,
}

/// One version that a transaction installed, or tried to install.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// The record that was written.
    pub record: RecordId,
    /// The number of the new version.
    pub version: Version,
    /// The kind of the write, which says whether the record is present afterwards.
    pub kind: WriteKind,
    /// The hash of the written value, or 0 if the hash was not recorded. The hash of a delete has no
    /// meaning.
    pub fingerprint: u64,
}

/// One attempt to run a transaction, as its client saw it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transaction {
    /// The transaction's name, unique in the history.
    pub id: TxnId,
    /// The coordinator that ran the transaction.
    pub coordinator: u32,
    /// The time at which the client requested the transaction.
    pub invoked_ns: u64,
    /// The time at which the client received the answer, or [`NEVER_NS`] if no answer came.
    #[serde(with = "crate::format::completion")]
    pub completed_ns: u64,
    /// The outcome that the client was told.
    pub outcome: Outcome,
    /// The transaction's reads of versions that other transactions wrote.
    pub reads: Vec<Read>,
    /// The transaction's writes.
    pub writes: Vec<Write>,
}

impl Transaction {
    /// Creates a committed transaction without operations. Add operations with [`Self::read`] and the
    /// similar methods.
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

    /// Adds a read that found the record at this version.
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

    /// Returns the transaction's end for real-time order. An unknown transaction may take effect at
    /// any time after its invocation, so it has no end.
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
    /// The names of the tables. [`RecordId::table`] is an index into this list.
    pub tables: Vec<String>,
    /// The transactions, in any order.
    pub transactions: Vec<Transaction>,
}
