//! One try of a transaction.
//!
//! Invariant: however it ends, its thread is told that it has left; a try whose future is dropped gives up
//! what it holds, or leaves it in doubt.

use super::Coordinator;
use crate::context::Context;
use crate::misuse;
use crate::outcome::{Explanation, Failure};
use crate::transaction::Transaction;
use crate::working_set::Txn;

/// One try; a try whose future is dropped gives up what it holds.
pub(super) struct Attempt<'c> {
    coordinator: &'c mut Coordinator,
    ended: bool,
    /// Its own abort stands: everything that it read was there at one moment.
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
        let Coordinator { cx, txn, .. } = &*self.coordinator;
        self.is_fetched() && cx.database().protocol.is_committed(txn)
    }

    /// Whether all that the body asked for is there.
    #[inline]
    fn is_fetched(&self) -> bool {
        let txn = &self.coordinator.txn;
        txn.fetched == txn.entries.len()
            && !txn.ordered.pending
            && txn.notes.is_clear()
            && txn.failed.is_none()
    }

    /// Commits what is fetched, if that needs no wait.
    #[inline]
    pub(super) fn commit_near(&mut self) -> Option<Result<(), Failure>> {
        if !self.is_fetched() {
            return None;
        }
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        cx.database().protocol.commit_near(cx, txn)
    }

    /// Fetches what the body added last, and commits.
    pub(super) async fn commit(&mut self) -> Result<(), Failure> {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let is_clear = txn.notes.is_clear();
        let is_fetched = txn.fetched == txn.entries.len() && !txn.ordered.pending;
        if !is_fetched || !txn.notes.is_plain() {
            cx.database().protocol.fetch(cx, txn).await?;
        }
        if !txn.notes.is_clear()
            && let Some(mistake) = misuse::settle(cx, txn)
        {
            return Box::pin(refuse(cx, txn, mistake)).await;
        }
        // Of one that was fetched before, and has nothing to look after, that was asked already.
        if !(is_fetched && is_clear) && cx.database().protocol.is_committed(txn) {
            return Ok(());
        }
        cx.database().protocol.commit(cx, txn).await
    }

    /// Whether a failure is a verdict on what the transaction has read, and has to be judged before it is told.
    #[inline]
    pub(super) fn has_to_judge(&self, failure: Failure) -> bool {
        failure.rests_on_reads() && !self.coordinator.txn.in_doubt
    }

    /// The failure to tell in place of a verdict on what was read: the verdict itself, if all of it was there at one
    /// moment; else the reason to try again. A single consistent read needs no second look.
    #[cold]
    pub(super) async fn judge(&mut self, failure: Failure) -> Failure {
        let is_of_one_moment = self.is_committed();
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        if !is_of_one_moment && let Err(instead) = cx.database().protocol.validate(cx, txn).await {
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
        // Or its body has passed on that of another transaction: then this one is rolled back.
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
            Some(failure) => {
                coordinator.roll_back(failure);
                if failure == Failure::Usage && coordinator.txn.notes.is_mistaken() {
                    // Others of this thread may have had something to say meanwhile.
                    misuse::report(&coordinator.cx, &coordinator.txn);
                }
            }
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

/// Tells the caller of a mistake that depends on what was read, once that is known to be so: it commits as a transaction that only
/// reads, under the locks that it has.
#[cold]
async fn refuse(cx: &Context, txn: &mut Txn, mistake: Explanation) -> Result<(), Failure> {
    misuse::write_nothing(txn);
    // Blocks behind buckets are not led to; a rollback gives them back.
    let chains = std::mem::take(&mut txn.pieces);
    let validated = cx.database().protocol.commit(cx, txn).await;
    txn.pieces = chains;
    validated?;
    Err(cx.explain(mistake))
}

impl Drop for Attempt<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            self.coordinator.give_up();
        }
    }
}
