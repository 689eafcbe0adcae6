//! What a coordinator does for its indexes between transactions.
//!
//! Invariant: the caller's transaction is over and acknowledged before any of this begins, and
//! nothing here is its error: growth that is refused, or for which there is no memory, is counted
//! and left to the next request. But a transaction that found a leaf full cannot do without its split: it
//! is told what keeps it from coming about. A future that is dropped in the middle gives up what it held; one
//! dropped while its data are on their way is resolved before the coordinator runs the next. So is
//! the caller's own transaction, if it was left in doubt.

use crate::context::Context;
use crate::coordinator::Coordinator;
use crate::index::btree::work::{TreeDone, TreeTask, TreeWork};
use crate::index::growth::{Grown, Shard};
use crate::outcome::Failure;
use crate::recovery::free_met;

impl Coordinator {
    /// Changes the shape of trees as was asked, then grows the shard that was asked for last. The failure of
    /// a split that trying again would not help, if there was one.
    #[cold]
    pub(crate) async fn grow(&mut self) -> Option<Failure> {
        // A split would forget a transaction in doubt, its locks with it, and use its log area.
        assert!(!self.txn.in_doubt, "it was resolved before");
        let cx = std::rc::Rc::clone(&self.cx);
        while let Some(work) = cx.tree_works.take() {
            if let Err(failure) = self.reshape(&cx, work).await {
                // It is asked for again.
                let lasts = matches!(failure, Some(Failure::OutOfMemory | Failure::Usage));
                return failure.filter(|_| lasts && work.task == TreeTask::Split);
            }
        }
        let working = cx.growth.take()?;
        let full = loop {
            if !cx.enter() {
                break false; // the configuration changes: the next insert asks again
            }
            match Restructuring::begin(self).grow(working.shard).await {
                Ok(Grown::Extended) => {}
                Ok(Grown::Split { .. } | Grown::TooLight | Grown::TooLarge) => break false,
                Err(failure) => {
                    if cx.has_met() {
                        free_met(&cx).await; // the next request may have it
                    }
                    break failure == Failure::OutOfMemory;
                }
            }
        };
        if full {
            cx.growth.rest_when_full(working.shard);
        }
        None
    }

    /// Does a request about an ordered index, with what must come before it and what follows from it.
    ///
    /// # Errors
    /// It is not done with; why, unless that is for another to know.
    #[cold]
    async fn reshape(&mut self, cx: &Context, work: TreeWork) -> Result<(), Option<Failure>> {
        let mut open = vec![work];
        for _ in 0..STEPS_MAX {
            let Some(&next) = open.last() else { return Ok(()) };
            if self.txn.in_doubt && self.resolve_own().await.is_err() {
                return Err(None);
            }
            if !cx.enter() {
                return Err(None); // the configuration changes
            }
            match Restructuring::begin(self).reshape(next).await {
                Ok(TreeDone::Changed(follows)) => {
                    open.pop();
                    open.extend(follows);
                }
                Ok(TreeDone::Needless) => {
                    if next.task == TreeTask::Merge {
                        // Nor can a merge that waited for it come about.
                        cx.tree_works.rest_from_merges();
                        return Ok(());
                    }
                    open.pop();
                }
                Ok(TreeDone::First(other)) if !open.contains(&other) => open.push(other),
                Ok(TreeDone::First(_)) => return Ok(()),
                Err(failure) => {
                    if cx.has_met() {
                        free_met(cx).await;
                    }
                    return Err(Some(failure));
                }
            }
        }
        Ok(())
    }
}

/// Structural transactions that follow from one request, at most.
const STEPS_MAX: usize = 32;

/// One structural transaction; one whose future is dropped gives up what it holds.
struct Restructuring<'c> {
    coordinator: &'c mut Coordinator,
    ended: bool,
}

impl<'c> Restructuring<'c> {
    fn begin(coordinator: &'c mut Coordinator) -> Restructuring<'c> {
        coordinator.txn.begin(coordinator.cx.next_tag());
        coordinator.begin_record_if_any();
        Restructuring { coordinator, ended: false }
    }

    async fn reshape(mut self, work: TreeWork) -> Result<TreeDone, Failure> {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let protocol = &cx.database().protocol;
        let result = protocol.reshape(cx, txn, work).await;
        self.ended = true;
        match result {
            Ok(TreeDone::Changed(_)) => {
                txn.in_doubt = false;
                txn.allocated.clear();
            }
            Err(Failure::CommitUnknown) => {} // resolved before the next transaction
            Ok(_) | Err(_) => {
                if matches!(result, Err(Failure::OutOfMemory | Failure::Usage)) {
                    cx.metrics.split_refused();
                }
                txn.in_doubt = false;
                protocol.rollback(cx, txn);
            }
        }
        self.coordinator.leave(result.err());
        if matches!(result, Ok(TreeDone::Changed(_)) | Err(_)) {
            self.coordinator.end_record_if_any(result.err());
        }
        result
    }

    async fn grow(mut self, shard: Shard) -> Result<Grown, Failure> {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let protocol = &cx.database().protocol;
        let result = protocol.restructure(cx, txn, shard).await;
        self.ended = true;
        match result {
            Ok(grown @ (Grown::Split { .. } | Grown::Extended)) => {
                txn.in_doubt = false;
                txn.allocated.clear();
                if let Grown::Split { buckets } = grown {
                    cx.metrics.split(buckets);
                }
            }
            Err(Failure::CommitUnknown) => {} // resolved before the next transaction
            Ok(Grown::TooLight) => protocol.rollback(cx, txn),
            Ok(Grown::TooLarge) | Err(_) => {
                cx.metrics.split_refused();
                txn.in_doubt = false;
                protocol.rollback(cx, txn);
            }
        }
        self.coordinator.leave(result.err());
        result
    }
}

impl Drop for Restructuring<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.coordinator.give_up();
        }
    }
}
