//! A coordinator runs transactions one after another, one at a time.
//!
//! Invariant: between transactions a coordinator holds no lock. An aborted try is repeated after a random pause
//! ([`Retry`]). If the future of a transaction is dropped, the transaction releases its locks immediately. A dropped
//! transaction is in doubt if its data are in flight or its log entry may be found. The coordinator resolves such a
//! transaction before it runs the next transaction. If the coordinator is dropped as well, other coordinators of its
//! thread resolve the transaction. A transaction or split writes no log entry before the log area of the
//! coordinator's number is known to be free.

use crate::cluster::log_area_owners::Known;
use crate::protocol::AnyProtocol;
use crate::recovery::free_met;
use crate::session::attempt::Attempt;
use crate::session::misuse;
use crate::session::restructure::Grew;
use crate::session::transaction::Transaction;
use crate::site::Context;
use crate::site::admission_gate::AdmissionGate;
use crate::site::metrics::RecoveryEvent;
pub use crate::site::retry::Retry;
use crate::steps::access::batch_read::BatchRead;
use crate::steps::recorder;
use crate::transaction::HistorySink;
use crate::transaction::working_set::{Intent, Txn};
use rand::RngExt;
use std::rc::Rc;
use std::sync::Arc;
use tarn_fabric::backend::Cost;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::rng::Rng;
use tarn_store::history::{RecordedOutcome, RecordedTxn};
use tarn_store::ids::{AbortReason, Failure, Mode, Resolution, TxnId};
#[cfg(doc)]
use tarn_store::ids::{Explanation, VERDICTS_MAX};

/// The progress of a transaction that is not committed yet.
#[derive(Clone, Copy)]
pub(crate) struct Tried {
    pub(crate) tries: u32,
    /// The time from which the transaction's deadline counts, if the transaction has a deadline.
    pub(crate) start: Option<Nanos>,
}

/// Runs one transaction at a time and retries each transaction that was aborted.
pub struct Coordinator {
    pub(crate) cx: Rc<Context>,
    pub(crate) txn: Txn,
    /// The database's protocol.
    pub(crate) protocol: Arc<AnyProtocol>,
    /// The records that the coordinator reads in one batch without a working set.
    pub(crate) together: BatchRead,
    retry: Retry,
    rng: Rng,
    pub(crate) history: Option<HistorySink>,
    /// The state of the node's admission gate when the coordinator last checked the gate.
    cleared: u64,
    /// Whether the former contents of the coordinator's log area are no longer needed.
    owns_area: bool,
    /// The reason of the coordinator's last abort.
    pub(crate) last_abort: Option<AbortReason>,
}

impl Coordinator {
    /// Creates the coordinator whose log area is `number`, unique in the cluster. An earlier coordinator with this
    /// number may have left a transaction in doubt on any thread of this node. Then the first transaction of the new
    /// coordinator waits until the transaction in doubt is settled. The first transaction fails with `Usage` if the
    /// thread of the transaction in doubt no longer exists.
    ///
    /// # Panics
    /// If the catalog has fewer log areas than `number` requires.
    pub fn new(cx: Rc<Context>, number: u32, retry: Retry) -> Coordinator {
        assert!(number < cx.database().catalog.options().coordinators_max);
        cx.coordinator_comes();
        let mut txn = Txn::new(cx.next_tag(), number);
        txn.room = txn.room.min(cx.database().catalog.options().records_max as usize);
        let together = BatchRead::new(txn.tag);
        let rng = cx.port.rng();
        let (history, cleared) = (None, AdmissionGate::UNSEEN);
        let protocol = AnyProtocol::of(cx.database());
        txn.round.ring_each(protocol.rings_each());
        Coordinator {
            cx,
            txn,
            protocol,
            together,
            retry,
            rng,
            history,
            cleared,
            owns_area: false,
            last_abort: None,
        }
    }

    /// Makes the coordinator record the reads and writes of its transactions from now on.
    pub fn record_history(&mut self) {
        self.record_history_in(HistorySink::default());
    }

    /// Does the same as [`Coordinator::record_history`], in a sink that outlives the coordinator. The coordinator
    /// records the writes of a transaction before it sends any of these writes.
    pub fn record_history_in(&mut self, sink: HistorySink) {
        self.history = Some(sink);
    }

    /// Returns the transactions that were recorded since the previous call.
    pub fn take_history(&mut self) -> Vec<RecordedTxn> {
        self.history.as_mut().map(|sink| sink.take()).unwrap_or_default()
    }

    /// The context of the coordinator's thread.
    pub fn context(&self) -> &Rc<Context> {
        &self.cx
    }

    /// The coordinator's random generator, for workloads that draw their inputs on the coordinator's thread.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Runs `body` as one transaction. The coordinator repeats an aborted try until the transaction commits, fails,
    /// or aborts itself.
    ///
    /// The records that a body sees before it commits may be inconsistent with each other (opacity is not
    /// guaranteed). The reason is that some protocols read without locks and validate only at the end. For example,
    /// suppose that every transaction keeps two records equal. A body that will be run again may see them differ. So
    /// a body must end for any values of its records. If the values make no sense, the body should neither loop until
    /// they do, nor panic, nor report the values. Some failures depend on values that were read:
    /// [`Transaction::abort`], any other error of the body's own, and refusals by the engine. The coordinator
    /// validates such a failure like a commit. The coordinator returns such a failure only if all records that were
    /// read existed together at one moment. A body that needs validated values earlier calls
    /// [`Transaction::fetch_validated`].
    ///
    /// # Errors
    /// The body's own abort, `CommitUnknown`, an error of the fabric, a missed deadline, the last abort if
    /// [`Retry`] bounds the tries, or the caller's mistakes. [`Context::explanation`] has the details.
    #[inline]
    pub fn transact<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> impl Future<Output = Result<R, Failure>> {
        self.transact_as(Intent::ReadWrite, body)
    }

    /// Does the same as [`Coordinator::transact`], for a body that intends to change nothing. Protocols with
    /// snapshots read a snapshot and lock nothing. A body may still change a record, or scan under a protocol without
    /// snapshots. The coordinator aborts such a body once ([`AbortReason::NeedsLocks`]) and runs it again as an
    /// ordinary transaction.
    ///
    /// # Errors
    /// The same errors as [`Coordinator::transact`].
    #[inline]
    pub fn transact_read_only<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> impl Future<Output = Result<R, Failure>> {
        self.transact_as(Intent::ReadOnly, body)
    }

    /// Runs `body` as one transaction with this intent: see [`Coordinator::transact`] and
    /// [`Coordinator::transact_read_only`].
    ///
    /// # Errors
    /// The same errors as [`Coordinator::transact`].
    // This function returns the inner future, because every level of nested futures adds to the cost of each poll.
    #[inline]
    pub fn transact_as<R>(
        &mut self,
        intent: Intent,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> impl Future<Output = Result<R, Failure>> {
        let tried = self.untried();
        self.transact_on(intent, tried, body)
    }

    /// The initial progress of a transaction that starts now.
    #[inline]
    pub(crate) fn untried(&self) -> Tried {
        Tried { tries: 0, start: self.retry.deadline.map(|_| self.cx.port.now()) }
    }

    /// Does the same as [`Coordinator::transact`], for a transaction that has already been tried `tries` times.
    #[inline]
    pub(crate) async fn transact_on<R>(
        &mut self,
        intent: Intent,
        Tried { mut tries, mut start }: Tried,
        mut body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if self.has_to_get_ready() {
            start = Box::pin(self.get_ready(start)).await?;
        }
        self.txn.intent = intent;
        self.txn.held.begin();
        self.txn.swept_in_vain.clear();
        loop {
            if self.txn.in_doubt {
                self.resolve_own().await?;
            }
            while !self.cx.enter() {
                let deadline = self.retry.deadline.zip(start).map(|(after, start)| start + after);
                Box::pin(self.cx.adopt(deadline)).await?;
            }
            self.txn.tries_before = tries;
            let mut attempt = Attempt::begin(self);
            // One future covers the whole try, because every level of nested futures adds to the cost of each poll.
            let failure = match body(&mut attempt.transaction()).await {
                Err(failure) => failure,
                Ok(result) => {
                    let committed = match attempt.is_committed() {
                        true => Ok(()),
                        false => match attempt.commit_near() {
                            Some(ended) => ended,
                            None => attempt.commit().await,
                        },
                    };
                    match committed {
                        Err(failure) => failure,
                        Ok(()) => {
                            attempt.end(None);
                            return Ok(result);
                        }
                    }
                }
            };
            let failure = match attempt.has_to_judge(failure) {
                true => Box::pin(attempt.judge(failure)).await,
                false => failure,
            };
            attempt.end(Some(failure));
            if !failure.is_retryable() && !self.is_mended(failure) {
                return Err(failure);
            }
            tries += 1;
            if failure == Failure::Abort(AbortReason::LeafFull)
                && Box::pin(self.split_full(Tried { tries, start })).await?
            {
                continue;
            }
            if let Some(bucket) = self.txn.to_sweep.take() {
                Box::pin(self.sweep(bucket)).await;
                continue;
            }
            if failure == Failure::Abort(AbortReason::NeedsLocks) {
                self.txn.intent = Intent::ReadWrite;
                continue;
            }
            self.before_next(failure, Tried { tries, start }).await?;
        }
    }

    /// Splits the leaves that the try has found full. Returns whether any leaf was split. If so, the next try begins.
    /// The try that found the full leaves does not count towards the limit of [`Retry`].
    ///
    /// # Errors
    /// The reason why the coordinator could not split a leaf, or a missed deadline.
    #[cold]
    async fn split_full(&mut self, tried: Tried) -> Result<bool, Failure> {
        let own = std::mem::take(&mut self.txn.ordered.needs);
        match self.grow(&own).await {
            Grew::Refused(lasting) => Err(lasting),
            Grew::Nothing => Ok(false),
            Grew::Changed => self.pause(tried.tries, tried.start).await.map(|()| true),
        }
    }

    /// Prepares the next try after a refused try. First this function checks whether a next try is allowed. After
    /// that, this function removes locks of dead nodes that the refused try has met, or pauses. If a lock was
    /// removed, the next try starts immediately even if [`Retry`] demands a pause. The owner of the removed lock
    /// cannot block the transaction again.
    ///
    /// # Errors
    /// `failure`, if no next try is allowed. `Fenced`, if this node was expelled. `Usage`, if no shard has ever had
    /// an owner. A missed deadline.
    pub(crate) async fn before_next(
        &mut self,
        failure: Failure,
        tried: Tried,
    ) -> Result<(), Failure> {
        self.cx.check_membership()?;
        if failure == Failure::Abort(AbortReason::WrongOwner) {
            self.cx.check_shards()?;
        }
        if self.cx.has_blocking_lock() && Box::pin(free_met(&self.cx)).await {
            return Ok(());
        }
        if self.retry.is_over(tried.tries) {
            return Err(failure);
        }
        self.pause(tried.tries, tried.start).await
    }

    /// Whether a failure will pass. A failure will pass if a memory node died, nothing was committed, and another
    /// node promotes the backups of the dead node's groups. The function reports a dead memory node in any case.
    #[cold]
    fn is_mended(&self, failure: Failure) -> bool {
        let configurations = &self.cx.database().configurations;
        let Some(FabricError::NodeDown(node)) = self.cx.port.last_error() else { return false };
        match failure {
            Failure::Fabric => {
                configurations.report(node);
                configurations.is_mended()
            }
            Failure::CommitUnknown => {
                configurations.report(node);
                false
            }
            _ => false,
        }
    }

    /// Whether the coordinator must do other work before the next transaction. See [`Coordinator::get_ready`].
    #[inline]
    pub(crate) fn has_to_get_ready(&self) -> bool {
        self.cx.node.admission_gate.word() != self.cleared
            || self.cx.wants_restructuring()
            || self.txn.in_doubt
    }

    /// Does the work that the coordinator must sometimes do before a transaction. The order of the work matters. A
    /// transaction in doubt needs its log, even on a node that may begin no transaction. A split writes a log entry,
    /// so the log area must be free before the split. Returns the time from which the deadline counts, because the
    /// time of a split does not count as time of the transaction.
    #[cold]
    async fn get_ready(&mut self, start: Option<Nanos>) -> Result<Option<Nanos>, Failure> {
        if self.txn.in_doubt {
            self.resolve_own().await?;
        }
        if self.cx.node.admission_gate.word() != self.cleared {
            self.look_around(start).await?;
        }
        if self.cx.wants_restructuring() {
            // An earlier transaction requested this restructuring, and the caller of that transaction already has the
            // reply.
            let Some(start) = start else {
                self.grow(&[]).await;
                return Ok(None);
            };
            let before = self.cx.port.now();
            self.grow(&[]).await;
            return Ok(Some(start + (self.cx.port.now() - before)));
        }
        Ok(start)
    }

    /// Checks whether a transaction may begin. The coordinator checks this for its first transaction, and after the
    /// admission gate has changed.
    #[cold]
    async fn look_around(&mut self, start: Option<Nanos>) -> Result<(), Failure> {
        let word = self.cx.node.admission_gate.word();
        if self.cx.node.admission_gate.is_barred() {
            self.cx.metrics.recovery(RecoveryEvent::Barred);
            return Err(Failure::Fabric);
        }
        let (cx, number) = (std::rc::Rc::clone(&self.cx), self.txn.coordinator);
        // A transaction of an earlier coordinator may still need the log area of this number.
        cx.settle_left().await?;
        let mut waits = 0;
        while !self.owns_area {
            // A transaction under this coordinator number may be in doubt on any thread of this node.
            self.owns_area =
                cx.is_number_free(number).await? && self.protocol.may_log(&cx, number).await?;
            if !self.owns_area {
                cx.check_membership()?;
                waits += 1;
                cx.metrics.recovery(RecoveryEvent::AreaAwaited);
                self.pause(waits, start).await?;
            }
        }
        self.cleared = word;
        Ok(())
    }

    /// Charges the processing time of the try that ends, so that the try takes realistic virtual time.
    #[inline]
    pub(crate) fn account(&self) {
        if !self.cx.port.charges() {
            return;
        }
        let entries = &self.txn.entries;
        let written = entries.iter().filter(|entry| entry.mode != Mode::Read).count();
        let (records, written) = (entries.len() as u32, written as u32);
        self.cx.port.charge(Cost::Transaction { records, written });
    }

    pub(crate) fn roll_back(&mut self, failure: Failure) {
        if let Failure::Abort(reason) = failure {
            self.cx.metrics.aborted(reason);
            self.last_abort = Some(reason);
        }
        if failure == Failure::CommitUnknown {
            self.cx.forget_unknown_before(self.txn.tag);
        }
        self.txn.in_doubt = false;
        // This is also the failure of a fetch that the body dropped. The locks of that fetch may have been granted.
        match self.txn.failed {
            Some(Failure::Usage) => self.protocol.abandon(&self.cx, &mut self.txn),
            _ => self.protocol.rollback(&self.cx, &mut self.txn),
        }
        if failure == Failure::Usage && self.txn.notes.is_mistaken() {
            // Other coordinators of this thread may have replaced the explanation by explanations of their own
            // failures meanwhile.
            misuse::report(&self.cx, &self.txn);
        }
    }

    async fn pause(&mut self, tries: u32, start: Option<Nanos>) -> Result<(), Failure> {
        if let (Some(deadline), Some(start)) = (self.retry.deadline, start)
            && self.cx.port.now() - start > deadline
        {
            return Err(self.late(tries, false));
        }
        let Some(limit) = self.retry.pause_limit_ns(tries) else {
            self.cx.port.yield_now().await;
            return Ok(());
        };
        let pause = self.rng.random_range(0..limit);
        self.cx.port.sleep(Nanos(pause)).await;
        Ok(())
    }

    /// Finds out how a transaction ended whose outcome was unknown ([`Failure::CommitUnknown`]), and makes that
    /// outcome final. The transaction may belong to any coordinator of the database. All callers get the same answer,
    /// in any order and any number of times, and the answer agrees with memory. If the transaction belongs to another
    /// thread, its verbs may still be in flight. In that case this function waits until that thread settles the
    /// transaction. Otherwise this thread settles the transaction.
    ///
    /// # Errors
    /// An error of the fabric: the caller may ask again. `Usage`, if the transaction was never in doubt. `Usage`, if
    /// the outcome is no longer stored, because [`VERDICTS_MAX`] transactions were settled since
    /// ([`Explanation::NoLongerKnown`]). Also `Usage`, if the transaction's thread or node no longer exists, so that
    /// recovery of that node must settle the transaction.
    pub async fn resolve(&mut self, id: TxnId) -> Result<Resolution, Failure> {
        let resolution = self.cx.settle(id).await?;
        if self.txn.in_doubt && self.txn.tag == id {
            self.end_doubt();
        }
        self.record_resolution(id, resolution);
        Ok(resolution)
    }

    /// Removes a settled transaction from the transactions in doubt. The thread has kept all information about the
    /// transaction since it became in doubt.
    fn end_doubt(&mut self) {
        // Only this coordinator knows of locks that the transaction took without writing data. Blocks of the
        // transaction may have been written, so no transaction reuses them.
        self.txn.allocated.clear();
        self.protocol.abandon(&self.cx, &mut self.txn);
        self.txn.in_doubt = false;
    }

    /// Whether the coordinator's transactions are recorded in a history.
    #[inline]
    pub(crate) fn is_recording(&self) -> bool {
        self.history.is_some()
    }

    /// Begins the history record of a structural transaction, if the coordinator records a history.
    pub(crate) fn begin_record_if_any(&mut self) {
        if self.history.is_some() {
            self.begin_record();
        }
    }

    /// Ends the history record of a structural transaction, if the coordinator records a history.
    pub(crate) fn end_record_if_any(&mut self, failure: Option<Failure>) {
        if self.history.is_some() && !self.txn.ordered.leaves.is_empty() {
            self.end_record(failure, false);
        }
    }

    #[cold]
    pub(crate) fn begin_record(&mut self) {
        let now = self.cx.port.observed();
        self.txn.recorded_in = self.history.clone().map(|sink| (sink, now));
    }

    #[cold]
    pub(crate) fn end_record(&mut self, failure: Option<Failure>, is_sound: bool) {
        let outcome = match failure {
            None => RecordedOutcome::Committed,
            Some(_) if is_sound => RecordedOutcome::GaveUp,
            Some(Failure::CommitUnknown) if self.txn.in_doubt => RecordedOutcome::Unknown,
            Some(_) => RecordedOutcome::Aborted,
        };
        recorder::enter(&self.cx, &self.txn, outcome);
    }

    /// Completes the history record of a transaction that was in doubt.
    fn record_resolution(&mut self, id: TxnId, resolution: Resolution) {
        let now = self.cx.port.observed();
        let first = self.cx.next_tag();
        let Some(history) = &self.history else { return };
        let mut history = history.borrow_mut();
        let is_it =
            |txn: &&mut RecordedTxn| txn.id == id && txn.outcome == RecordedOutcome::Unknown;
        let Some(txn) = history.iter_mut().find(is_it) else { return };
        txn.completed = now;
        if resolution == Resolution::Committed {
            txn.outcome = RecordedOutcome::Committed;
            return;
        }
        txn.outcome = RecordedOutcome::Aborted;
        let mut first = Some(first);
        let undone = txn.undone(|| first.take().unwrap_or_else(|| self.cx.next_tag()), now);
        // If the transaction has no log entry, it wrote nothing, and nothing was undone.
        if self.cx.was_logged(id) {
            history.extend(undone);
        }
    }

    /// Does the same as [`Coordinator::resolve`], for a transaction of another node's coordinator `number`. The
    /// caller must know that this coordinator no longer runs and has no verb in flight. This function also resolves a
    /// transaction that is not known to have been in doubt.
    ///
    /// # Errors
    /// The same errors as [`Coordinator::resolve`]. `Usage`, if the transaction's coordinator has logged other
    /// transactions since.
    pub async fn resolve_of(&mut self, id: TxnId, number: u32) -> Result<Resolution, Failure> {
        self.cx.settle_under(id, number).await
    }

    /// Records that a try has ended. A try whose transaction is in doubt continues to count as running.
    #[inline]
    pub(crate) fn leave(&self, failure: Option<Failure>) {
        if failure == Some(Failure::CommitUnknown) && self.txn.in_doubt {
            self.cx.doubt(&self.txn);
        } else {
            self.cx.leave();
        }
    }

    /// Ends a try whose future was dropped.
    #[cold]
    pub(crate) fn give_up(&mut self) {
        let Coordinator { cx, txn, protocol, .. } = self;
        if txn.in_doubt {
            cx.doubt(txn);
            self.hand_over();
            self.cx.settle_dropped();
        } else {
            protocol.abandon(cx, txn);
            cx.leave();
        }
    }

    /// Hands the transaction in doubt over to the coordinator's thread, with all information about it. So a change of
    /// the configuration does not wait for an idle coordinator. Locks that no log entry names are released before the
    /// change. The coordinator keeps only the transaction's identifier.
    #[cold]
    pub(crate) fn hand_over(&mut self) {
        let mut name = Txn::new(self.txn.tag, self.txn.coordinator);
        name.intent = self.txn.intent;
        name.room = name.room.min(self.txn.room);
        // The transaction in doubt needs its log entry as long as any thread may write memory for it.
        (name.in_doubt, name.left_unshown) = (true, true);
        name.unlocking = std::mem::take(&mut self.txn.unlocking);
        self.cx.hand_over(std::mem::replace(&mut self.txn, name));
    }

    pub(crate) async fn resolve_own(&mut self) -> Result<(), Failure> {
        let id = self.txn.tag;
        if self.cx.database().log_area_owners.known(id) == Known::Nothing {
            // The transaction was settled so long ago that its outcome is no longer stored.
            self.cx.reap();
            self.end_doubt();
            return Ok(());
        }
        self.resolve(id).await.map(|_| ())
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        if self.txn.in_doubt {
            let none = Txn::new(self.txn.tag, self.txn.coordinator);
            self.cx.inherit(std::mem::replace(&mut self.txn, none));
        }
        self.cx.orphan_closing(self.txn.coordinator);
        self.cx.coordinator_goes();
    }
}
