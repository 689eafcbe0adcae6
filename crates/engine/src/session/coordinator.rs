//! A coordinator: runs one transaction at a time, again and again.
//!
//! Invariant: between transactions it holds no lock. An aborted try is tried again after a random pause
//! ([`Retry`]). A transaction whose future is dropped releases its locks at once. If it is dropped in doubt
//! (its data are on their way, or its log entry may be found), it is resolved before the coordinator runs the
//! next. If the coordinator is dropped as well, other coordinators of its thread resolve it. Nothing is
//! logged, not even by a split, before the log area of the coordinator's number is known to be free.

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
#[cfg(doc)]
use tarn_store::ids::VERDICTS_MAX;
use tarn_store::ids::{AbortReason, Explanation, Failure, Mode, Resolution, TxnId};

/// How far a transaction that was not committed yet has come.
#[derive(Clone, Copy)]
pub(crate) struct Tried {
    pub(crate) tries: u32,
    /// The time from which its deadline is counted, if it has one.
    pub(crate) start: Option<Nanos>,
}

/// See the module's text.
pub struct Coordinator {
    pub(crate) cx: Rc<Context>,
    pub(crate) txn: Txn,
    /// The database's protocol.
    pub(crate) protocol: Arc<AnyProtocol>,
    /// The records that it reads without a working set.
    pub(crate) together: BatchRead,
    retry: Retry,
    rng: Rng,
    pub(crate) history: Option<HistorySink>,
    /// The state of the node's admission gate when the coordinator looked around last.
    cleared: u64,
    /// Whether the former contents of its log area are needed no more.
    owns_area: bool,
}

impl Coordinator {
    /// The coordinator whose log area is `number`, unique in the cluster. If an earlier coordinator of this
    /// number went in doubt, on any thread of this node, the first transaction waits until that is settled.
    /// It fails with `Usage` if that thread exists no more.
    ///
    /// # Panics
    /// If the catalog has fewer log areas.
    pub fn new(cx: Rc<Context>, number: u32, retry: Retry) -> Coordinator {
        assert!(number < cx.database().catalog.options().coordinators_max);
        cx.coordinator_comes();
        let mut txn = Txn::new(cx.next_tag(), number);
        txn.room = txn.room.min(cx.database().catalog.options().records_max as usize);
        let together = BatchRead::new(txn.tag);
        let rng = cx.port.rng();
        let (history, cleared) = (None, AdmissionGate::UNSEEN);
        let protocol = AnyProtocol::of(cx.database());
        Coordinator { cx, txn, protocol, together, retry, rng, history, cleared, owns_area: false }
    }

    /// From now on, records the reads and writes of transactions.
    pub fn record_history(&mut self) {
        self.record_history_in(HistorySink::default());
    }

    /// Does the same as [`Coordinator::record_history`], in a place that outlives the coordinator. The writes
    /// of a transaction are there before any of them is sent.
    pub fn record_history_in(&mut self, sink: HistorySink) {
        self.history = Some(sink);
    }

    /// The transactions recorded since the last call.
    pub fn take_history(&mut self) -> Vec<RecordedTxn> {
        self.history.as_mut().map(|sink| sink.take()).unwrap_or_default()
    }

    /// The context of its thread.
    pub fn context(&self) -> &Rc<Context> {
        &self.cx
    }

    /// Its random generator, for workloads that draw their inputs where they run.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Runs `body` as one transaction, again if it was aborted, until it commits, fails, or aborts itself.
    ///
    /// The records that a body sees before it commits need not fit together (opacity is not promised): some
    /// protocols read without locks and validate only at the end. Two records that every transaction keeps
    /// equal may differ for a body that will be run again. So a body must come to its end whatever its
    /// records say. If they make no sense, it should neither loop until they do, nor panic, nor report it.
    /// [`Transaction::abort`], any other error of the body's own, and refusals by the engine because of
    /// values that were read, are validated like a commit. They are returned only if all records that were
    /// read were there at one moment. A body that needs to know earlier calls
    /// [`Transaction::fetch_validated`].
    ///
    /// # Errors
    /// The body's own abort, `CommitUnknown`, an error of the fabric, a missed deadline, the last abort where
    /// [`Retry`] bounds the tries, the caller's mistakes. [`Context::explanation`] has the details.
    #[inline]
    pub fn transact<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> impl Future<Output = Result<R, Failure>> {
        self.transact_as(Intent::ReadWrite, body)
    }

    /// Does the same as [`Coordinator::transact`], for a body that means to change nothing. Protocols with
    /// snapshots read one and lock nothing. A body that does change something, or scans where there are no
    /// snapshots, is aborted once ([`AbortReason::NeedsLocks`]), and runs as if nothing had been declared.
    ///
    /// # Errors
    /// As [`Coordinator::transact`].
    #[inline]
    pub fn transact_read_only<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> impl Future<Output = Result<R, Failure>> {
        self.transact_as(Intent::ReadOnly, body)
    }

    /// Returns the inner future as it is: every level of nesting adds to the cost of each poll.
    #[inline]
    fn transact_as<R>(
        &mut self,
        intent: Intent,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> impl Future<Output = Result<R, Failure>> {
        let tried = self.untried();
        self.transact_on(intent, tried, body)
    }

    /// The state of a transaction that begins now.
    #[inline]
    pub(crate) fn untried(&self) -> Tried {
        Tried { tries: 0, start: self.retry.deadline.map(|_| self.cx.port.now()) }
    }

    /// Does the same as [`Coordinator::transact`], for a transaction that has been tried this often already.
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
            // One future for the whole try: every level of nesting adds to the cost of each poll.
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

    /// Splits the leaves that the try has found full. Returns whether any was split: then the next try
    /// begins, and this one is none of those that [`Retry`] bounds.
    ///
    /// # Errors
    /// The reason why none will be split; a missed deadline.
    #[cold]
    async fn split_full(&mut self, tried: Tried) -> Result<bool, Failure> {
        let own = std::mem::take(&mut self.txn.ordered.needs);
        match self.grow(&own).await {
            Grew::Refused(lasting) => Err(lasting),
            Grew::Nothing => Ok(false),
            Grew::Changed => self.pause(tried.tries, tried.start).await.map(|()| true),
        }
    }

    /// Prepares the next try after one that was refused. It checks whether there may be a next. Then it frees
    /// locks of the dead that the try has met, or pauses. A try that has freed any goes on at once, whatever
    /// [`Retry`] says: the owner of that lock cannot be in its way again.
    ///
    /// # Errors
    /// `failure`, if there is no next try; `Fenced`, if this life is over; `Usage`, if no shard has ever had
    /// an owner; a missed deadline.
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

    /// Whether a failure will pass: a memory node died, nothing was committed, and a node promotes its
    /// backups. Reports a dead node in any case.
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

    /// Whether there is work to do before the next transaction: see [`Coordinator::get_ready`].
    #[inline]
    pub(crate) fn has_to_get_ready(&self) -> bool {
        self.cx.node.admission_gate.word() != self.cleared
            || self.cx.wants_restructuring()
            || self.txn.in_doubt
    }

    /// Does the work that comes before a transaction, now and then. The order matters. A transaction in doubt
    /// needs its log, even on a node that may begin no transaction. A split writes a log, and its area must
    /// be free for that. Returns the time from which the deadline is counted: a split is no part of the
    /// transaction.
    #[cold]
    async fn get_ready(&mut self, start: Option<Nanos>) -> Result<Option<Nanos>, Failure> {
        if self.txn.in_doubt {
            self.resolve_own().await?;
        }
        if self.cx.node.admission_gate.word() != self.cleared {
            self.look_around(start).await?;
        }
        if self.cx.wants_restructuring() {
            // An earlier transaction made this necessary: its caller has the reply by now.
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

    /// Checks whether a transaction may begin: something has changed, or this is the first one.
    #[cold]
    async fn look_around(&mut self, start: Option<Nanos>) -> Result<(), Failure> {
        let word = self.cx.node.admission_gate.word();
        if self.cx.node.admission_gate.is_barred() {
            self.cx.metrics.recovery(RecoveryEvent::Barred);
            return Err(Failure::Fabric);
        }
        let (cx, number) = (std::rc::Rc::clone(&self.cx), self.txn.coordinator);
        // An earlier coordinator's transaction may need this number's area.
        cx.settle_left().await?;
        let mut waits = 0;
        while !self.owns_area {
            // A transaction may have gone in doubt under this number on any thread of this node.
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

    /// Charges the work of the try that ends, so that in virtual time it takes as long as it would.
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
        }
        if failure == Failure::CommitUnknown {
            self.cx.forget_unknown_before(self.txn.tag);
        }
        self.txn.in_doubt = false;
        self.protocol.rollback(&self.cx, &mut self.txn);
        if failure == Failure::Usage && self.txn.notes.is_mistaken() {
            // Other coordinators of this thread may have explained other failures meanwhile.
            misuse::report(&self.cx, &self.txn);
        }
    }

    async fn pause(&mut self, tries: u32, start: Option<Nanos>) -> Result<(), Failure> {
        if let (Some(deadline), Some(start)) = (self.retry.deadline, start)
            && self.cx.port.now() - start > deadline
        {
            return Err(self.cx.explain(Explanation::DeadlineExceeded { tries }));
        }
        let Some(limit) = self.retry.pause_limit_ns(tries) else {
            self.cx.port.yield_now().await;
            return Ok(());
        };
        let pause = self.rng.random_range(0..limit);
        self.cx.port.sleep(Nanos(pause)).await;
        Ok(())
    }

    /// Finds out how a transaction ended whose outcome was unknown ([`Failure::CommitUnknown`]), and makes
    /// that final. The transaction may be this coordinator's or any other's of the database. All callers get
    /// the same answer, in whatever order and however often they ask, and it agrees with memory. If the
    /// transaction is another thread's, and its verbs may still be on their way, this waits until that thread
    /// settles it. Otherwise it is settled here.
    ///
    /// # Errors
    /// An error of the fabric: ask again. `Usage`, if the transaction was never in doubt, or is no longer remembered
    /// ([`VERDICTS_MAX`] transactions were settled since: [`Explanation::NoLongerKnown`]). Also `Usage`, if
    /// its thread or its node exists no more, so that its node's recovery has to settle it.
    pub async fn resolve(&mut self, id: TxnId) -> Result<Resolution, Failure> {
        let resolution = self.cx.settle(id).await?;
        if self.txn.in_doubt && self.txn.tag == id {
            self.end_doubt();
        }
        self.record_resolution(id, resolution);
        Ok(resolution)
    }

    /// Ends the doubt of a transaction that is settled. Since it went in doubt, its thread keeps all that is
    /// known of it.
    fn end_doubt(&mut self) {
        // Only this coordinator knows of locks without data. Blocks may have been written: they are not
        // reused.
        self.txn.allocated.clear();
        self.protocol.abandon(&self.cx, &mut self.txn);
        self.txn.in_doubt = false;
    }

    /// Whether its transactions go into a history.
    #[inline]
    pub(crate) fn is_recording(&self) -> bool {
        self.history.is_some()
    }

    /// Begins the record of a structural transaction, if there is a history.
    pub(crate) fn begin_record_if_any(&mut self) {
        if self.history.is_some() {
            self.begin_record();
        }
    }

    /// Ends the record of a structural transaction, if there is a history.
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

    /// Completes the record of a transaction that was in doubt.
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
        // If there was no log, nothing was written.
        if self.cx.was_logged(id) {
            history.extend(undone);
        }
    }

    /// Does the same as [`Coordinator::resolve`], for a transaction of another node's coordinator `number`,
    /// which no longer runs and has nothing on its way; only the caller knows this. It also resolves a
    /// transaction that is not known to have been in doubt.
    ///
    /// # Errors
    /// As [`Coordinator::resolve`]; `Usage`, if its coordinator has logged others since.
    pub async fn resolve_of(&mut self, id: TxnId, number: u32) -> Result<Resolution, Failure> {
        self.cx.settle_under(id, number).await
    }

    /// Notes that a try has ended. If it is in doubt, it goes on to count as running.
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

    /// Hands the transaction in doubt to its thread, with all that is known of it. So a change of the
    /// configuration does not wait for a coordinator that rests, and locks that no log names are given back
    /// before. The coordinator keeps only the transaction's name.
    #[cold]
    pub(crate) fn hand_over(&mut self) {
        let mut name = Txn::new(self.txn.tag, self.txn.coordinator);
        name.intent = self.txn.intent;
        name.room = name.room.min(self.txn.room);
        // Its log is needed for as long as anything is written for it.
        (name.in_doubt, name.left_unshown) = (true, true);
        name.unlocking = std::mem::take(&mut self.txn.unlocking);
        self.cx.hand_over(std::mem::replace(&mut self.txn, name));
    }

    pub(crate) async fn resolve_own(&mut self) -> Result<(), Failure> {
        let id = self.txn.tag;
        if self.cx.database().log_area_owners.known(id) == Known::Nothing {
            // It was settled so long ago that its end is forgotten.
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
