//! What a coordinator does for its indexes between transactions.
//!
//! Invariant: the caller's transaction is over and acknowledged before any of this begins, and
//! nothing here is its error: growth that is refused, or for which there is no memory, is counted
//! and left to the next request. A future that is dropped in the middle gives up what it held; one
//! dropped while its data are on their way is resolved before the coordinator runs the next. So is
//! the caller's own transaction, if it was left in doubt.

use crate::coordinator::Coordinator;
use crate::index::growth::{Grown, Shard};
use crate::outcome::Failure;
use crate::recovery::free_met;

impl Coordinator {
    /// Grows the shard that was asked for last.
    #[cold]
    pub(crate) async fn grow(&mut self) {
        // A split would forget a transaction in doubt, its locks with it, and use its log area.
        assert!(!self.txn.in_doubt, "it was resolved before");
        let cx = std::rc::Rc::clone(&self.cx);
        let Some(working) = cx.growth.take() else { return };
        let full = loop {
            if !cx.enter() {
                break false; // the configuration changes: the next insert asks again
            }
            match Restructuring::begin(self).run(working.shard).await {
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
    }
}

/// One structural transaction; one whose future is dropped gives up what it holds.
struct Restructuring<'c> {
    coordinator: &'c mut Coordinator,
    ended: bool,
}

impl<'c> Restructuring<'c> {
    fn begin(coordinator: &'c mut Coordinator) -> Restructuring<'c> {
        coordinator.txn.begin(coordinator.cx.next_tag());
        Restructuring { coordinator, ended: false }
    }

    async fn run(mut self, shard: Shard) -> Result<Grown, Failure> {
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
