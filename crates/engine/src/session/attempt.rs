//! One try of a transaction.
//!
//! Invariant: however a try ends, its thread learns that it has left. A try whose future is dropped gives up
//! its locks, or leaves its transaction in doubt.

use super::coordinator::Coordinator;
use crate::session::misuse::{self, Verdict};
use crate::session::transaction::Transaction;
use tarn_store::ids::Failure;

/// One try. If its future is dropped, it gives up its locks.
pub(super) struct Attempt<'c> {
    coordinator: &'c mut Coordinator,
    ended: bool,
    /// Whether its own abort stands: all records that it read were there at one moment.
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

    /// Whether all records that the body asked for are there.
    #[inline]
    fn is_fetched(&self) -> bool {
        let txn = &self.coordinator.txn;
        txn.fetched == txn.entries.len()
            && !txn.ordered.pending
            && txn.notes.is_clear()
            && txn.failed.is_none()
    }

    /// Commits the fetched records, if that needs no wait.
    #[inline]
    pub(super) fn commit_near(&mut self) -> Option<Result<(), Failure>> {
        if !self.is_fetched() {
            return None;
        }
        let Coordinator { cx, txn, protocol, .. } = &mut *self.coordinator;
        protocol.commit_near(cx, txn)
    }

    /// Fetches the records that the body added last, and commits.
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

    /// Whether a failure is a verdict on the records read, so that it has to be judged before the caller
    /// learns it.
    #[inline]
    pub(super) fn has_to_judge(&self, failure: Failure) -> bool {
        failure.rests_on_reads() && !self.coordinator.txn.in_doubt
    }

    /// The failure to report in place of a verdict on the records read. It is the verdict itself, if all
    /// records were there at one moment; else the reason to try again. A single consistent read needs no
    /// second look.
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
        // Otherwise the body has passed on the failure of another transaction: then this one is rolled back.
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
