//! What each transaction read and wrote, in the terms that a checker needs.
//!
//! Invariant: recording changes nothing that a transaction does; per record the order of versions
//! is known; times are an observer's, so that those of two nodes can be compared. An absent read carries its directory's version: the key was absent as of it.

use crate::outcome::TxnId;
use crate::schema::TableId;
use tarn_fabric::clock::Nanos;

/// How a recorded transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordedOutcome {
    /// Acknowledged.
    Committed,
    /// Rolled back.
    Aborted,
    /// Nobody knows yet.
    Unknown,
}

/// A record that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedRead {
    /// Its table.
    pub table: TableId,
    /// Its key word.
    pub key: u64,
    /// Its version's counter; for an absent record its directory's.
    pub version: u64,
    /// Whether it was there.
    pub present: bool,
    /// Hash of the whole payload; 0 if only some cells were read.
    pub fingerprint: u64,
}

/// What a write did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    /// The record exists from now on.
    Insert,
    /// It has new cells.
    Update,
    /// It exists no more.
    Delete,
}

/// A record that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedWrite {
    /// Its table.
    pub table: TableId,
    /// Its key word.
    pub key: u64,
    /// Its new version's counter.
    pub version: u64,
    /// What was done.
    pub kind: WriteKind,
    /// Hash of the whole payload; 0 if only some cells are known.
    pub fingerprint: u64,
}

/// One try of one transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedTxn {
    /// Its name.
    pub id: TxnId,
    /// Which coordinator ran it.
    pub coordinator: u32,
    /// When it began.
    pub invoked: Nanos,
    /// When its caller learned the outcome.
    pub completed: Nanos,
    /// How it ended.
    pub outcome: RecordedOutcome,
    /// What it read.
    pub reads: Vec<RecordedRead>,
    /// What it wrote.
    pub writes: Vec<RecordedWrite>,
}

impl RecordedTxn {
    /// What undoing this transaction did, as a transaction of its own: records that it had updated have
    /// their old values, under versions one beyond those that it wrote. Records that it had inserted or
    /// deleted are as they were.
    pub fn undone(&self, id: TxnId, completed: Nanos) -> RecordedTxn {
        let updates = self.writes.iter().filter(|write| write.kind == WriteKind::Update);
        let restored = |write: &RecordedWrite| RecordedWrite {
            version: write.version + 1,
            fingerprint: 0,
            ..*write
        };
        RecordedTxn {
            id,
            coordinator: self.coordinator,
            invoked: self.invoked,
            completed,
            outcome: RecordedOutcome::Committed,
            reads: Vec::new(),
            writes: updates.map(restored).collect(),
        }
    }
}

/// A payload's hash for [`RecordedRead::fingerprint`]: never 0.
pub fn fingerprint(payload: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for &byte in payload {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash.max(1)
}
