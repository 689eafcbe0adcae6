//! The length of readers' leases, for a membership service in one process.
//!
//! Invariant: the word of record moves on only when every life that counts has acknowledged it. A life counts if it
//! runs as a member, or is expelled and not recovered, since until then it may still run and read. A life that joins
//! counts from its first moment, so it cannot miss a word. All but a look at the word happens under the register's
//! lock.

use super::Patience;
use crate::cluster::lease::{LeaseOfRecord, LeaseWord, NotNow};
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::UsageError;

/// The word, which any thread may read.
#[derive(Default, Debug)]
pub(super) struct PublishedLease(AtomicU64);

impl PublishedLease {
    /// The word of record, or the one before it.
    pub(super) fn word(&self) -> LeaseWord {
        LeaseWord::from_word(self.0.load(Ordering::Acquire))
    }

    fn publish(&self, word: LeaseWord) {
        self.0.store(word.word(), Ordering::Release);
    }
}

/// The record and the time that late lives have. It is behind the register's lock.
#[derive(Default, Debug)]
pub(super) struct ReadLease {
    record: LeaseOfRecord,
    /// How long the service waits for lives that have not acknowledged; `None` while it waits for none.
    patience: Option<Patience>,
}

impl ReadLease {
    /// Sets the length with which a cluster begins. No life may have joined yet.
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

    /// Begins to change the length, and goes on if no life is missing.
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
        // Asking again and again does not give late lives more time.
        self.patience = self.patience.or(Some(Patience::Fresh));
        self.go_on(counting, published);
        Ok(begun.map(|_| self.record.word()))
    }

    /// Moves on if it can. A caller calls this when a life has acknowledged, or counts no more.
    pub(super) fn go_on(&mut self, counting: &[NodeId], published: &PublishedLease) {
        if self.record.go_on(counting) {
            published.publish(self.record.word());
            self.patience = Some(Patience::Fresh);
        }
        if self.missing(counting).is_empty() {
            self.patience = None;
        }
    }

    /// The service looks at its clock. Returns whether lives that have not acknowledged have used up their time.
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
