//! A coordinator: runs one transaction at a time, again and again.
//!
//! Invariant: between transactions it holds no lock. An aborted try is tried again after a random
//! pause ([`Retry`]). A transaction whose future is dropped releases what it held at once; one dropped
//! while it is in doubt (its data are on their way, or what it has logged may be found) is resolved before the coordinator runs the next, or, if the
//! coordinator is dropped as well, by others of its thread. Nothing is logged, not by a split either,
//! before its number's log area is known to be needed by nobody.

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

/// How far a transaction has come that was not committed yet.
#[derive(Clone, Copy)]
pub(crate) struct Tried {
    pub(crate) tries: u32,
    /// From when on its deadline is counted, if it has one.
    pub(crate) start: Option<Nanos>,
}

/// See the module's text.
pub struct Coordinator {
    pub(crate) cx: Rc<Context>,
    pub(crate) txn: Txn,
    /// The database's protocol.
    pub(crate) protocol: Arc<AnyProtocol>,
    /// What it reads without a working set.
    pub(crate) together: BatchRead,
    retry: Retry,
    rng: Rng,
    pub(crate) history: Option<HistorySink>,
    /// The node's admission_gate as it looked around last.
    cleared: u64,
    /// Whether nobody needs any more what its log area held when it began.
    owns_area: bool,
}

impl Coordinator {
    /// The coordinator whose log area is `number`, unique in the cluster. If the one before it went in doubt,
    /// on whatever thread of this node, the first transaction waits until that is settled; it fails with
    /// `Usage` if that thread is no more.
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

    /// From now on, records what transactions read and write.
    pub fn record_history(&mut self) {
        self.record_history_in(HistorySink::default());
    }

    /// As [`Coordinator::record_history`], in a place that outlives the coordinator: what a transaction is
    /// about to write is there before any of it is sent.
    pub fn record_history_in(&mut self, sink: HistorySink) {
        self.history = Some(sink);
    }

    /// What was recorded since the last call.
    pub fn take_history(&mut self) -> Vec<RecordedTxn> {
        self.history.as_mut().map(|sink| sink.take()).unwrap_or_default()
    }

    /// Its thread's context.
    pub fn context(&self) -> &Rc<Context> {
        &self.cx
    }

    /// Its generator: for workloads that draw their inputs where they run.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Runs `body` as one transaction, again if it was aborted, until it commits, fails, or aborts
    /// itself.
    ///
    /// What a body sees before it commits need not fit together: some protocols read without locks, and look again only at the
    /// end (opacity is not promised). Two records that every transaction keeps equal may differ for a body that will be
    /// run again. So a body must come to its end whatever its records say: it should neither loop until they make sense, nor panic, nor
    /// tell anybody, because they do not. [`Transaction::abort`], any other error of the body's own, and what the
    /// engine refuses because of values that were read, are looked at like a commit: they are returned only if all that was read
    /// was there at one moment. Who needs to know earlier calls [`Transaction::fetch_validated`].
    ///
    /// # Errors
    /// The body's own abort, `CommitUnknown`, the fabric's, a missed deadline, the last abort where
    /// [`Retry`] bounds the tries, the caller's mistakes. [`Context::explanation`] has the details.
    #[inline]
    pub fn transact<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> impl Future<Output = Result<R, Failure>> {
        self.transact_as(Intent::ReadWrite, body)
    }

    /// As [`Coordinator::transact`], for a body that means to change nothing: protocols with snapshots read one
    /// and lock nothing. A body that changes something after all, or scans what has no snapshots, is
    /// aborted once ([`AbortReason::NeedsLocks`]) and runs as if nothing had been declared.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn transact_read_only<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> impl Future<Output = Result<R, Failure>> {
        self.transact_as(Intent::ReadOnly, body)
    }

    /// Returns that future as it is: every level of nesting costs each of a transaction's polls.
    #[inline]
    fn transact_as<R>(
        &mut self,
        intent: Intent,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> impl Future<Output = Result<R, Failure>> {
        let tried = self.untried();
        self.transact_on(intent, tried, body)
    }

    /// A transaction that begins now.
    #[inline]
    pub(crate) fn untried(&self) -> Tried {
        Tried { tries: 0, start: self.retry.deadline.map(|_| self.cx.port.now()) }
    }

    /// As [`Coordinator::transact`], of one that has been tried so often already.
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
            // One future for the whole try: every level of nesting costs each of its polls.
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

    /// The try has found leaves full, which are split. Whether any was: then the next try begins, and this one is none
    /// of those that [`Retry`] bounds.
    ///
    /// # Errors
    /// Why none will be; a missed deadline.
    #[cold]
    async fn split_full(&mut self, tried: Tried) -> Result<bool, Failure> {
        let own = std::mem::take(&mut self.txn.ordered.needs);
        match self.grow(&own).await {
            Grew::Refused(lasting) => Err(lasting),
            Grew::Nothing => Ok(false),
            Grew::Changed => self.pause(tried.tries, tried.start).await.map(|()| true),
        }
    }

    /// What comes between a try that was refused and the next: a look whether there may be a next, then locks of the dead that were met
    /// are freed, or there is a pause. Who has freed any goes on at once, whatever [`Retry`] says: nobody was in its way who could be again.
    ///
    /// # Errors
    /// That failure, if there is no next try; `Fenced`, if this life is over; `Usage`, if no shard has ever had an
    /// owner; a missed deadline.
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

    /// Whether a failure will pass: a memory node died, nothing was committed, and somebody promotes
    /// its backups. Reports a dead node in any case.
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

    /// Whether something comes before the next transaction: see [`Coordinator::get_ready`].
    #[inline]
    pub(crate) fn has_to_get_ready(&self) -> bool {
        self.cx.node.admission_gate.word() != self.cleared
            || self.cx.wants_restructuring()
            || self.txn.in_doubt
    }

    /// What comes before a transaction, now and then. The order matters: what is in doubt needs its log,
    /// also on a node that may begin nothing; a split writes a log, in an area that must be free for it.
    /// Returns from when on the deadline is counted: a split is no part of the transaction.
    #[cold]
    async fn get_ready(&mut self, start: Option<Nanos>) -> Result<Option<Nanos>, Failure> {
        if self.txn.in_doubt {
            self.resolve_own().await?;
        }
        if self.cx.node.admission_gate.word() != self.cleared {
            self.look_around(start).await?;
        }
        if self.cx.wants_restructuring() {
            // What an earlier transaction made necessary: its caller has the reply by now.
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

    /// Something has changed, or this is the first transaction: may it begin?
    #[cold]
    async fn look_around(&mut self, start: Option<Nanos>) -> Result<(), Failure> {
        let word = self.cx.node.admission_gate.word();
        if self.cx.node.admission_gate.is_barred() {
            self.cx.metrics.recovery(RecoveryEvent::Barred);
            return Err(Failure::Fabric);
        }
        let (cx, number) = (std::rc::Rc::clone(&self.cx), self.txn.coordinator);
        // It may be this number's area that an earlier coordinator's transaction needs.
        cx.settle_left().await?;
        let mut waits = 0;
        while !self.owns_area {
            // On whatever thread of this node a transaction went in doubt under this number.
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

    /// In virtual time, the work of the try that ends takes as long as it would.
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
            // Others of this thread may have had something to say meanwhile.
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

    /// Finds out how a transaction ended whose outcome was unknown ([`Failure::CommitUnknown`]), and makes it
    /// final: this coordinator's, or that of any other of the database. All that ask are told the same, in whatever order and how often they
    /// do, and it is what memory says. Another thread's transaction is waited for, until that thread settles it, where what it had sent may
    /// still be on its way; else it is settled here.
    ///
    /// # Errors
    /// The fabric's: ask again. `Usage`, if it was never in doubt, or is not known any more ([`VERDICTS_MAX`] transactions were settled
    /// since: [`Explanation::NoLongerKnown`]); if its thread or its node is no more, and its node's recovery has to settle it.
    pub async fn resolve(&mut self, id: TxnId) -> Result<Resolution, Failure> {
        let resolution = self.cx.settle(id).await?;
        if self.txn.in_doubt && self.txn.tag == id {
            self.end_doubt();
        }
        self.record_resolution(id, resolution);
        Ok(resolution)
    }

    /// Its transaction is settled. What was known of it is its thread's since it went in doubt.
    fn end_doubt(&mut self) {
        // Locks without data are known here alone. Blocks may have been written: not reused.
        self.txn.allocated.clear();
        self.protocol.abandon(&self.cx, &mut self.txn);
        self.txn.in_doubt = false;
    }

    /// Whether what it does goes into a history.
    #[inline]
    pub(crate) fn is_recording(&self) -> bool {
        self.history.is_some()
    }

    /// A structural transaction begins.
    pub(crate) fn begin_record_if_any(&mut self) {
        if self.history.is_some() {
            self.begin_record();
        }
    }

    /// A structural transaction has ended.
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

    /// Completes what was recorded of a doubtful transaction.
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

    /// As [`Coordinator::resolve`], for a transaction of another node's coordinator `number`, which no longer runs and has
    /// nothing on its way, as only the caller knows; or for one of which it is not known that it was in doubt.
    ///
    /// # Errors
    /// As there; `Usage`, if its coordinator has logged others since.
    pub async fn resolve_of(&mut self, id: TxnId, number: u32) -> Result<Resolution, Failure> {
        self.cx.settle_under(id, number).await
    }

    /// A try has ended, so or so: in doubt it goes on to count.
    #[inline]
    pub(crate) fn leave(&self, failure: Option<Failure>) {
        if failure == Some(Failure::CommitUnknown) && self.txn.in_doubt {
            self.cx.doubt(&self.txn);
        } else {
            self.cx.leave();
        }
    }

    /// A try's future was dropped.
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

    /// What is in doubt is its thread's to settle as well, with all that is known of it: a change of the configuration does not wait for a
    /// coordinator that rests, and locks that no log tells of are given back before. What the coordinator keeps is the name.
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
        if self.cx.database().numbers.known(id) == Known::Nothing {
            // Settled so long ago that it is forgotten how.
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
