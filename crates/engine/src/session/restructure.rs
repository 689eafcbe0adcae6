//! A coordinator's work for its indexes between transactions.
//!
//! Invariant: the caller's transaction is over and acknowledged before any of this begins, and no failure
//! here is the caller's error. Growth that is refused, or that finds no memory, is counted and left to the
//! next request. The same holds for requests of the thread's other coordinators. But a transaction that found
//! a leaf full cannot do without its split. It is told why the split did not come about, if nothing was
//! changed for it and trying again would not help. A future that is dropped in the middle gives up its locks.
//! If its data are on their way, it is resolved before the coordinator runs the next transaction. So is the
//! caller's own transaction, if it was left in doubt.

use crate::protocol;
use crate::recovery::free_met;
use crate::session::coordinator::Coordinator;
use crate::site::Context;
use tarn_fabric::address::Address;
use tarn_store::ids::Failure;
use tarn_store::index::btree::work::{TreeDone, TreeTask, TreeWork};
use tarn_store::index::growth::{Grown, Shard};
use tarn_store::schema::TableId;

/// The result of the requests without which a transaction cannot be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grew {
    /// Some were done.
    Changed,
    /// None was done, this time.
    Nothing,
    /// None will be done: trying again would not help.
    Refused(Failure),
}

impl Coordinator {
    /// Changes the shape of trees as requested: `own` first, then each request that waits, once. Then grows
    /// the shard that was requested last. Returns the result of `own`.
    #[cold]
    pub(crate) async fn grow(&mut self, own: &[TreeWork]) -> Grew {
        // A split would forget a transaction in doubt and its locks, and would use its log area.
        assert!(!self.txn.in_doubt, "a transaction in doubt is resolved before indexes grow");
        let cx = std::rc::Rc::clone(&self.cx);
        own.iter().for_each(|&work| cx.tree_works.withdraw(work));
        let waiting = std::iter::from_fn(|| cx.tree_works.take()).take(cx.tree_works.count());
        let all = own.iter().copied().map(|work| (work, true)).chain(waiting.map(|it| (it, false)));
        let mut verdict = Grew::Nothing;
        for (work, is_own) in all {
            match self.reshape(&cx, work).await {
                Ok(()) if is_own => verdict = Grew::Changed,
                Err(Refused::Lasting(failure)) if is_own && verdict == Grew::Nothing => {
                    verdict = Grew::Refused(failure);
                }
                Err(Refused::All) => return verdict,
                // It will be requested again.
                Ok(()) | Err(Refused::Lasting(_) | Refused::ForNow) => {}
            }
        }
        self.grow_shard(&cx).await;
        verdict
    }

    /// Grows the shard that was requested last.
    #[cold]
    async fn grow_shard(&mut self, cx: &Context) {
        let Some(working) = cx.growth.take() else { return };
        let full = loop {
            if !cx.enter() {
                break false; // the configuration changes: the next insert asks again
            }
            match Restructuring::begin(self).grow(working.shard).await {
                Ok(Grown::Extended) => {}
                Ok(Grown::Split { .. } | Grown::TooLight | Grown::TooLarge) => break false,
                Err(failure) => {
                    if cx.has_blocking_lock() {
                        free_met(cx).await; // the next request may have it
                    }
                    break failure == Failure::OutOfMemory;
                }
            }
        };
        if full {
            cx.growth.rest_when_full(working.shard);
        }
    }

    /// Empties the slots of deleted records in a bucket in which an insert has found no room. If this is in
    /// vain, the next try makes the bucket's chain longer: each bucket is swept in vain once.
    #[cold]
    pub(crate) async fn sweep(&mut self, bucket: (TableId, Address)) {
        let cx = std::rc::Rc::clone(&self.cx);
        if !cx.enter() {
            return; // the configuration changes: the next try asks again
        }
        let swept = Restructuring::begin(self).sweep(bucket).await;
        if !matches!(swept, Ok(1..)) {
            self.txn.swept_in_vain.push(bucket.1);
            if cx.has_blocking_lock() {
                free_met(&cx).await;
            }
        }
    }

    /// Does a request about an ordered index, with the requests that must come before it and those that
    /// follow from it.
    ///
    /// # Errors
    /// The reason why the request is not done with.
    #[cold]
    async fn reshape(&mut self, cx: &Context, work: TreeWork) -> Result<(), Refused> {
        let (mut open, mut has_changed) = (vec![work], false);
        for _ in 0..STEPS_MAX {
            let Some(&next) = open.last() else { return Ok(()) };
            if self.txn.in_doubt && self.resolve_own().await.is_err() {
                return Err(Refused::All);
            }
            if !cx.enter() {
                return Err(Refused::All); // the configuration changes
            }
            match Restructuring::begin(self).reshape(next).await {
                Ok(TreeDone::Changed(follows)) => {
                    has_changed = true;
                    open.pop();
                    open.extend(follows);
                }
                Ok(TreeDone::Needless) => {
                    if next.task == TreeTask::Merge {
                        // A merge that waited for this one cannot come about either.
                        cx.tree_works.rest_from_merges();
                        return Ok(());
                    }
                    open.pop();
                }
                Ok(TreeDone::First(other)) if !open.contains(&other) => open.push(other),
                Ok(TreeDone::First(_)) => return Ok(()),
                Err(failure) => {
                    if cx.has_blocking_lock() {
                        free_met(cx).await;
                    }
                    return Err(Refused::by(failure, has_changed));
                }
            }
        }
        Ok(())
    }
}

/// Why a request is not done with.
enum Refused {
    /// Nothing was changed for it, and nothing will be as things stand.
    Lasting(Failure),
    /// It may come about another time, or a part of it has.
    ForNow,
    /// No other request would succeed either: the fabric fails, or the configuration changes.
    All,
}

impl Refused {
    fn by(failure: Failure, has_changed: bool) -> Refused {
        match failure {
            Failure::OutOfMemory | Failure::Usage if !has_changed => Refused::Lasting(failure),
            Failure::OutOfMemory | Failure::Usage | Failure::Abort(_) => Refused::ForNow,
            _ => Refused::All,
        }
    }
}

/// The most structural transactions that follow from one request.
const STEPS_MAX: usize = 32;

/// One structural transaction. If its future is dropped, it gives up its locks.
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
        let protocol = protocol::of(cx);
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
        if matches!(result, Err(Failure::CommitUnknown)) {
            self.coordinator.hand_over();
        }
        result
    }

    async fn sweep(mut self, bucket: (TableId, Address)) -> Result<usize, Failure> {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let protocol = protocol::of(cx);
        let result = protocol.sweep(cx, txn, bucket).await;
        self.ended = true;
        match result {
            Ok(1..) => txn.in_doubt = false,
            Err(Failure::CommitUnknown) => {} // resolved before the next transaction
            Ok(0) | Err(_) => {
                txn.in_doubt = false;
                protocol.rollback(cx, txn);
            }
        }
        self.coordinator.leave(result.err());
        if matches!(result, Err(Failure::CommitUnknown)) {
            self.coordinator.hand_over();
        }
        result
    }

    async fn grow(mut self, shard: Shard) -> Result<Grown, Failure> {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let protocol = protocol::of(cx);
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
        if matches!(result, Err(Failure::CommitUnknown)) {
            self.coordinator.hand_over();
        }
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
