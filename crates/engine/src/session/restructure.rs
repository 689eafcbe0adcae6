//! The work that a coordinator does on indexes between transactions: growth, splits and merges.
//!
//! Invariant: the caller's transaction has ended and is acknowledged before this work begins. A failure of this work
//! is not an error of the caller. If growth is refused or finds no memory, the refusal is counted, and the next
//! request for growth tries again. The same holds for requests of the thread's other coordinators. But a transaction
//! that found a leaf full needs the split of that leaf. A transaction that found a full leaf gets the reason why the
//! split failed, if nothing was changed for the split and another try would not help. A future that is dropped during
//! this work releases its locks. If the data of the work are in flight, the coordinator resolves the structural
//! transaction before it runs the next transaction. The same holds for the caller's own transaction, if that
//! transaction was left in doubt.

use crate::protocol;
use crate::recovery::free_met;
use crate::session::coordinator::Coordinator;
use crate::site::Context;
use tarn_fabric::address::Address;
use tarn_store::ids::Failure;
use tarn_store::index::btree::work::{TreeDone, TreeTask, TreeWork};
use tarn_store::index::growth::{Grown, Shard};
use tarn_store::schema::TableId;

/// The result of requests for restructuring that a transaction needs before it can commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grew {
    /// The coordinator fulfilled at least one of the requests.
    Changed,
    /// The coordinator fulfilled no request this time.
    Nothing,
    /// The coordinator will fulfil no request, because another try would not help.
    Refused(Failure),
}

impl Coordinator {
    /// Changes the shape of trees as requested: first the requests in `own`, then each waiting request once. Then
    /// this function grows the shard whose growth was requested last. Returns the result of the requests in `own`.
    #[cold]
    pub(crate) async fn grow(&mut self, own: &[TreeWork]) -> Grew {
        // A split would overwrite the state, the locks and the log area of a transaction in doubt.
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
                // A later transaction will make the failed request again.
                Ok(()) | Err(Refused::Lasting(_) | Refused::ForNow) => {}
            }
        }
        self.grow_shard(&cx).await;
        verdict
    }

    /// Grows the shard whose growth was requested last.
    #[cold]
    async fn grow_shard(&mut self, cx: &Context) {
        let Some(working) = cx.growth.take() else { return };
        let full = loop {
            if !cx.enter() {
                break false; // the configuration changes: the next insert requests growth again
            }
            match Restructuring::begin(self).grow(working.shard).await {
                Ok(Grown::Extended) => {}
                Ok(Grown::Split { .. } | Grown::TooLight | Grown::TooLarge) => break false,
                Err(failure) => {
                    if cx.has_blocking_lock() {
                        free_met(cx).await; // the next request may have this lock
                    }
                    break failure == Failure::OutOfMemory;
                }
            }
        };
        if full {
            cx.growth.rest_when_full(working.shard);
        }
    }

    /// Empties the slots of deleted records in a bucket in which an insert has found no room. If this sweep frees no
    /// slot, the next try adds a block to the bucket's chain. So a bucket is swept without success only once.
    #[cold]
    pub(crate) async fn sweep(&mut self, bucket: (TableId, Address)) {
        let cx = std::rc::Rc::clone(&self.cx);
        if !cx.enter() {
            return; // the configuration changes: the next try requests the sweep again
        }
        let swept = Restructuring::begin(self).sweep(bucket).await;
        if !matches!(swept, Ok(1..)) {
            self.txn.swept_in_vain.push(bucket.1);
            if cx.has_blocking_lock() {
                free_met(&cx).await;
            }
        }
    }

    /// Carries out a request about an ordered index. This function also carries out requests that must come before
    /// the given request, and requests that follow from it.
    ///
    /// # Errors
    /// The reason why the request was not carried out completely.
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
                        // Another merge that had to wait for this merge cannot succeed either.
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

/// The reason why the coordinator did not carry out a request completely.
enum Refused {
    /// The coordinator changed nothing for the request, and another try would not help.
    Lasting(Failure),
    /// The request may succeed another time, or a part of it has succeeded.
    ForNow,
    /// No other request would succeed now: the fabric fails, or the configuration changes.
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

/// The maximum number of structural transactions that follow from one request.
const STEPS_MAX: usize = 32;

/// One structural transaction. Dropping this value releases the transaction's locks.
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
            Err(Failure::CommitUnknown) => {} // this transaction is resolved before the next one
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
            Err(Failure::CommitUnknown) => {} // this transaction is resolved before the next one
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
            Err(Failure::CommitUnknown) => {} // this transaction is resolved before the next one
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
