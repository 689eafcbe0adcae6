//! The length of readers' leases, for a membership service in one process.
//!
//! Invariant: the lease word of record changes only when every incarnation that counts has acknowledged it. An
//! incarnation counts if it runs as a member, or is expelled and not recovered, because until recovery it may still
//! run and read. An incarnation that joins counts from its first moment, so it cannot miss a word. All functions
//! except a load of the word run under the register's lock.

use super::Patience;
use crate::cluster::lease::{LeaseOfRecord, LeaseWord, NotNow};
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::UsageError;

/// The published lease word, which any thread may read.
#[derive(Default, Debug)]
pub(super) struct PublishedLease(AtomicU64);

impl PublishedLease {
    /// Returns the lease word of record, or the word just before it.
    pub(super) fn word(&self) -> LeaseWord {
        LeaseWord::from_word(self.0.load(Ordering::Acquire))
    }

    fn publish(&self, word: LeaseWord) {
        self.0.store(word.word(), Ordering::Release);
    }
}

/// The lease word of record, and the time that late incarnations have. The register's lock protects both values.
#[derive(Default, Debug)]
pub(super) struct ReadLease {
    record: LeaseOfRecord,
    /// How long the service waits for incarnations that have not acknowledged the word; `None` while it waits for no
    /// incarnation.
    patience: Option<Patience>,
}

impl ReadLease {
    /// Sets the lease length with which a cluster begins. No incarnation may have joined yet.
    pub(super) fn begin(
        &mut self,
        length_ns: u32,
        published: &PublishedLease,
    ) -> Result<(), UsageError> {
        self.record = LeaseOfRecord::new(length_ns)?;
        published.publish(self.record.word());
        Ok(())
    }

    pub(super) fn acknowledge(&mut self, by: NodeId, word: LeaseWord) {
        self.record.acknowledge(by, word);
    }

    pub(super) fn missing(&self, counting: &[NodeId]) -> Vec<NodeId> {
        self.record.unacknowledged(counting)
    }

    /// Begins to change the lease length, and continues the change if no acknowledgement is missing.
    pub(super) fn propose(
        &mut self,
        length_ns: u32,
        counting: &[NodeId],
        published: &PublishedLease,
    ) -> Result<Result<LeaseWord, NotNow>, UsageError> {
        let before = self.record.word();
        let begun = self.record.propose(length_ns, counting)?;
        if self.record.word() != before {
            self.patience = None;
        }
        published.publish(self.record.word());
        // A repeated request does not give late incarnations more time.
        self.patience = self.patience.or(Some(Patience::Fresh));
        self.go_on(counting, published);
        Ok(begun.map(|_| self.record.word()))
    }

    /// Continues a change of the lease length if possible. A caller calls this function when an incarnation has
    /// acknowledged the word, or counts no more.
    pub(super) fn go_on(&mut self, counting: &[NodeId], published: &PublishedLease) {
        if self.record.go_on(counting) {
            published.publish(self.record.word());
            self.patience = Some(Patience::Fresh);
        }
        if self.missing(counting).is_empty() {
            self.patience = None;
        }
    }

    /// Whether incarnations that have not acknowledged the word have used up their time, at the time `now` of the
    /// service's clock.
    pub(super) fn has_lapsed(&mut self, now: Nanos, allowed_ns: u64) -> bool {
        match self.patience {
            None => false,
            Some(Patience::Fresh) => {
                self.patience = Some(Patience::Until(now + Nanos(allowed_ns)));
                false
            }
            Some(Patience::Until(end)) => end <= now,
        }
    }
}
