//! One try of a transaction.
//!
//! Invariant: however a try ends, its thread records that the try is no longer running. If the future of a try is
//! dropped, the try releases its locks, or leaves its transaction in doubt.

use super::coordinator::Coordinator;
use crate::session::misuse::{self, Verdict};
use crate::session::transaction::Transaction;
use tarn_store::ids::Failure;

/// One try of a transaction. Dropping this value releases the try's locks.
pub(super) struct Attempt<'c> {
    coordinator: &'c mut Coordinator,
    ended: bool,
    /// Whether the body's own abort is final. The abort is final if all records that the transaction read existed
    /// together at one moment.
    is_sound: bool,
}

impl<'c> Attempt<'c> {
    #[inline]
    pub(super) fn begin(coordinator: &'c mut Coordinator) -> Attempt<'c> {
        coordinator.txn.begin(coordinator.cx.next_tag());
        if coordinator.history.is_some() {
            coordinator.begin_record();
        }
        Attempt { coordinator, ended: false, is_sound: false }
    }

    #[inline]
    pub(super) fn transaction(&mut self) -> Transaction<'_> {
        Transaction { coordinator: self.coordinator }
    }

    #[inline]
    pub(super) fn is_committed(&self) -> bool {
        let Coordinator { cx: _, txn, protocol, .. } = &*self.coordinator;
        self.is_fetched() && protocol.is_committed(txn)
    }

    /// Whether all records that the body has requested are fetched.
    #[inline]
    fn is_fetched(&self) -> bool {
        let txn = &self.coordinator.txn;
        txn.fetched == txn.entries.len()
            && !txn.ordered.pending
            && txn.notes.is_clear()
            && txn.failed.is_none()
    }

    /// Commits the transaction with its fetched records, if the commit does not have to wait.
    #[inline]
    pub(super) fn commit_near(&mut self) -> Option<Result<(), Failure>> {
        if !self.is_fetched() {
            return None;
        }
        let Coordinator { cx, txn, protocol, .. } = &mut *self.coordinator;
        protocol.commit_near(cx, txn)
    }

    /// Fetches the records that the body added since the last fetch, and commits the transaction.
    pub(super) async fn commit(&mut self) -> Result<(), Failure> {
        let Coordinator { cx, txn, protocol, .. } = &mut *self.coordinator;
        if txn.fetched < txn.entries.len() || txn.ordered.pending || !txn.notes.is_plain() {
            protocol.fetch(cx, txn).await?;
            if txn.notes.is_clear() && protocol.is_committed(txn) {
                return Ok(());
            }
        }
        if !txn.notes.is_clear() {
            match misuse::look_after(protocol, cx, txn) {
                Verdict::Commit => {}
                Verdict::Committed => return Ok(()),
                Verdict::Refuse => return Err(misuse::report(cx, txn)),
            }
        }
        protocol.commit(cx, txn).await
    }

    /// Whether a failure depends on the values that the body read. Such a failure must be validated before it is
    /// returned to the caller.
    #[inline]
    pub(super) fn has_to_judge(&self, failure: Failure) -> bool {
        failure.rests_on_reads() && !self.coordinator.txn.in_doubt
    }

    /// Validates a failure that depends on the values that the body read. Returns the failure itself, if all records
    /// existed together at one moment. Otherwise the function returns the reason to try again. A single consistent
    /// read needs no validation.
    #[cold]
    pub(super) async fn judge(&mut self, failure: Failure) -> Failure {
        let is_of_one_moment = self.is_committed();
        let Coordinator { cx, txn, protocol, .. } = &mut *self.coordinator;
        if !is_of_one_moment && let Err(instead) = protocol.validate(cx, txn).await {
            return instead;
        }
        self.is_sound = matches!(failure, Failure::Abort(_));
        failure
    }

    #[inline]
    pub(super) fn end(mut self, failure: Option<Failure>) {
        self.ended = true;
        let coordinator = &mut *self.coordinator;
        coordinator.account();
        // Otherwise the body has returned the failure of another transaction. Then the coordinator rolls back this
        // transaction.
        let is_in_doubt = failure == Some(Failure::CommitUnknown) && coordinator.txn.in_doubt;
        match failure {
            None => {
                coordinator.txn.in_doubt = false;
                if !coordinator.txn.allocated.is_empty() {
                    coordinator.cx.keep_allocated(&mut coordinator.txn.allocated);
                }
                coordinator.cx.metrics.committed();
            }
            Some(_) if is_in_doubt => coordinator.cx.metrics.unknown(),
            Some(failure) => coordinator.roll_back(failure),
        }
        coordinator.leave(failure);
        if coordinator.history.is_some() {
            coordinator.end_record(failure, self.is_sound);
        }
        if is_in_doubt {
            coordinator.hand_over();
        }
    }
}

impl Drop for Attempt<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            self.coordinator.give_up();
        }
    }
}
