//! All operations of a history in one vector, sorted by record, then by version.
//!
//! Invariant: within a record, operations are in version order. At one version writes come before
//! reads that found the record, and these reads come before absent reads. So one sweep over a record
//! visits each read right after the write whose version it read. The sweep visits the read right
//! before the write that overwrites this version. The index leaves out reads of aborted transactions,
//! because such reads need not be consistent.

use std::ops::Range;

use crate::history::{History, Outcome, RecordId, Version, WriteKind};

/// The kind of an operation. The order of the variants is the sort order of operations at one
/// version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Role {
    Write(WriteKind),
    Present,
    Absent,
}

/// One read or write of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub record: RecordId,
    pub version: Version,
    pub fingerprint: u64,
    /// The operation's transaction, as an index into `History::transactions`.
    pub txn: u32,
    pub role: Role,
}

impl Op {
    pub fn is_write(&self) -> bool {
        matches!(self.role, Role::Write(_))
    }

    pub fn is_delete(&self) -> bool {
        self.role == Role::Write(WriteKind::Delete)
    }
}

/// The sorted operations, and the beginning of each record's operations.
pub(crate) struct Index {
    pub ops: Vec<Op>,
    starts: Vec<u32>,
}

impl Index {
    pub fn build(history: &History) -> Self {
        assert!(history.transactions.len() < u32::MAX as usize / 2, "too many transactions");
        let size = history.transactions.iter().map(|txn| txn.reads.len() + txn.writes.len()).sum();
        assert!(size < u32::MAX as usize, "too many operations");
        let mut ops: Vec<Op> = Vec::with_capacity(size);
        for (txn, number) in history.transactions.iter().zip(0u32..) {
            let op = |record, version, fingerprint, role| Op {
                record,
                version,
                fingerprint,
                txn: number,
                role,
            };
            ops.extend(txn.writes.iter().map(|write| {
                op(write.record, write.version, write.fingerprint, Role::Write(write.kind))
            }));
            if txn.outcome == Outcome::Aborted {
                continue;
            }
            ops.extend(txn.reads.iter().map(|read| {
                let role = if read.present { Role::Present } else { Role::Absent };
                op(read.record, read.version, read.fingerprint, role)
            }));
        }
        ops.sort_unstable_by(|a, b| {
            (a.record, a.version, a.role, a.txn).cmp(&(b.record, b.version, b.role, b.txn))
        });
        let mut starts = Vec::new();
        let mut previous = None;
        for (op, at) in ops.iter().zip(0u32..) {
            if previous != Some(op.record) {
                starts.push(at);
                previous = Some(op.record);
            }
        }
        starts.push(ops.len() as u32);
        Self { ops, starts }
    }

    /// Returns the number of records that the history touches.
    pub fn records(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the range of one record's operations in `ops`.
    pub fn range(&self, record: usize) -> Range<usize> {
        self.starts[record] as usize..self.starts[record + 1] as usize
    }

    /// Returns the range of this record's operations in `ops`. The range is empty if no operation
    /// touches the record.
    pub fn range_of(&self, record: RecordId) -> Range<usize> {
        let starts = &self.starts[..self.records()];
        match starts.binary_search_by_key(&record, |&at| self.ops[at as usize].record) {
            Ok(found) => self.range(found),
            Err(_) => 0..0,
        }
    }

    /// Returns the first read of the initial version by an included transaction. The initial version
    /// is the version before all writes of included transactions. A version that any transaction
    /// wrote, whatever its outcome, is not initial.
    pub fn initial_read(&self, range: Range<usize>, included: &[bool]) -> Option<usize> {
        let mut last_write = None;
        for at in range {
            let op = &self.ops[at];
            let takes_part = included[op.txn as usize];
            match op.role {
                Role::Write(_) if takes_part => return None,
                Role::Write(_) => last_write = Some(op.version),
                Role::Present if takes_part && last_write != Some(op.version) => return Some(at),
                Role::Present | Role::Absent => {}
            }
        }
        None
    }
}
