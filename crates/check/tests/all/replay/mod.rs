//! The oracle, which decides strict serializability and snapshot isolation from their definitions.
//! The oracle tries every possible order.
//!
//! The oracle accepts a history if it finds a serial order of the committed transactions and some set
//! of the unknown transactions. The order respects real time, and it installs the versions of each
//! record in ascending order. The oracle replays the reads of a transaction before it installs the
//! transaction's writes. Every replayed read must find the recorded version, so no read can show its
//! own transaction's write. Under snapshot isolation the order is the order of commits, and each
//! transaction has a snapshot somewhere before its commit. The oracle replays a transaction's reads
//! at its snapshot. The snapshot comes after all transactions that completed before the snapshot's
//! transaction was invoked. Consider a transaction that commits between another transaction's
//! snapshot and commit: the two do not write the same record.

use std::collections::BTreeMap;

use tarn_check::{
    History, Isolation, NEVER_NS, Outcome, Read, RecordId, Transaction, Version, WriteKind,
};

pub fn is_accepted(history: &History, isolation: Isolation) -> bool {
    let of = |outcome| history.transactions.iter().filter(move |txn| txn.outcome == outcome);
    let unknown: Vec<&Transaction> = of(Outcome::Unknown).collect();
    (0u32..1 << unknown.len()).any(|set| {
        let chosen = unknown.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        let txns = of(Outcome::Committed).chain(chosen.map(|(_, txn)| *txn)).collect();
        let world = World::new(history, txns, isolation);
        world.values_agree() && world.extend(&mut Vec::new())
    })
}

struct World<'a> {
    history: &'a History,
    txns: Vec<&'a Transaction>,
    isolation: Isolation,
    /// For each record all included writes: the version, and whether the record is present
    /// afterwards.
    writes: BTreeMap<RecordId, Vec<(Version, bool)>>,
}

impl<'a> World<'a> {
    fn new(history: &'a History, txns: Vec<&'a Transaction>, isolation: Isolation) -> Self {
        let mut writes: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for write in txns.iter().flat_map(|txn| &txn.writes) {
            let there = write.kind != WriteKind::Delete;
            writes.entry(write.record).or_default().push((write.version, there));
        }
        Self { history, txns, isolation, writes }
    }

    fn writes(&self, record: RecordId) -> &[(Version, bool)] {
        self.writes.get(&record).map_or(&[], |writes| writes)
    }

    /// Tries every way to continue the serial order that begins with `order`.
    fn extend(&self, order: &mut Vec<usize>) -> bool {
        if order.len() == self.txns.len() {
            return true;
        }
        for next in (0..self.txns.len()).filter(|next| !order.contains(next)).collect::<Vec<_>>() {
            if self.may_follow(order, next) {
                order.push(next);
                if self.extend(order) {
                    return true;
                }
                order.pop();
            }
        }
        false
    }

    fn may_follow(&self, order: &[usize], next: usize) -> bool {
        let first = match self.isolation {
            Isolation::SnapshotIsolation => 0,
            _ => order.len(),
        };
        self.installs_in_order(order, self.txns[next])
            && (first..=order.len()).any(|from| self.may_read(order, from, next))
    }

    /// Returns whether the transaction that commits next may have taken its snapshot right after the
    /// first `from` commits of `order`.
    fn may_read(&self, order: &[usize], from: usize, next: usize) -> bool {
        let txn = self.txns[next];
        let over_before = |other: &Transaction| {
            let end = if other.outcome == Outcome::Unknown { NEVER_NS } else { other.completed_ns };
            end < txn.invoked_ns
        };
        let (before, between) = order.split_at(from);
        let later = (0..self.txns.len()).filter(|at| !before.contains(at) && *at != next);
        let late = later.into_iter().any(|at| over_before(self.txns[at]));
        let overwritten = between.iter().flat_map(|&at| &self.txns[at].writes);
        let mut overwritten = overwritten.map(|write| write.record);
        let is_late = self.isolation.respects_real_time() && late;
        let is_overwritten =
            overwritten.any(|record| txn.writes.iter().any(|own| own.record == record));
        !is_late && !is_overwritten && txn.reads.iter().all(|read| self.finds(before, read))
    }

    /// Returns the versions of a record that the transactions of `order` installed, in order.
    fn applied(&self, order: &[usize], record: RecordId) -> Vec<(Version, bool)> {
        let done = order.iter().flat_map(|&at| &self.txns[at].writes);
        let here = done.filter(|write| write.record == record);
        let mut applied: Vec<_> =
            here.map(|write| (write.version, write.kind != WriteKind::Delete)).collect();
        applied.sort_unstable();
        applied
    }

    fn installs_in_order(&self, order: &[usize], txn: &Transaction) -> bool {
        txn.writes.iter().all(|write| {
            let applied = self.applied(order, write.record);
            let own = txn.writes.iter().filter(|own| own.record == write.record);
            let twins = own.filter(|own| own.version == write.version).count();
            twins == 1 && applied.iter().all(|(version, _)| *version < write.version)
        })
    }

    /// Returns whether a read that runs after the transactions of `order` finds the recorded version.
    fn finds(&self, order: &[usize], read: &Read) -> bool {
        let applied = self.applied(order, read.record);
        let last = applied.last();
        if read.present {
            return match last {
                Some(&(version, there)) => there && version == read.version,
                None => self.initial_version(read.record) == Some(read.version),
            };
        }
        let before = self.writes(read.record).iter().filter(|(v, _)| *v <= read.version).count();
        let absent = match last {
            Some(&(_, there)) => !there,
            None => self.initial_version(read.record).is_none(),
        };
        absent && applied.len() == before && applied.iter().all(|(v, _)| *v <= read.version)
    }

    /// Returns the lowest version that a transaction read, that no transaction tried to write, and
    /// that is below all writes.
    fn initial_version(&self, record: RecordId) -> Option<Version> {
        let attempts = self.history.transactions.iter().flat_map(|txn| &txn.writes);
        let attempts: Vec<Version> =
            attempts.filter(|write| write.record == record).map(|write| write.version).collect();
        let reads = self.txns.iter().flat_map(|txn| &txn.reads);
        let initial = reads.filter(|read| {
            let below = self.writes(record).iter().all(|(version, _)| read.version < *version);
            read.record == record && read.present && below && !attempts.contains(&read.version)
        });
        initial.map(|read| read.version).min()
    }

    /// Returns whether all writers and readers of the same version recorded the same value.
    fn values_agree(&self) -> bool {
        let mut values: BTreeMap<(RecordId, Version), u64> = BTreeMap::new();
        let mut agrees = |record, version, value: u64| {
            value == 0 || *values.entry((record, version)).or_insert(value) == value
        };
        self.txns.iter().all(|txn| {
            let writes = txn.writes.iter().filter(|write| write.kind != WriteKind::Delete);
            let reads = txn.reads.iter().filter(|read| read.present);
            writes.into_iter().all(|write| agrees(write.record, write.version, write.fingerprint))
                && reads.into_iter().all(|read| agrees(read.record, read.version, read.fingerprint))
        })
    }
}
