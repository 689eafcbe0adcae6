//! Transactions of one thread whose end nobody was told.
//!
//! Invariant: a doubt is settled by one coroutine at a time, and its thread counts as busy until then:
//! a change of the configuration waits for it, because the new primaries know nothing of its locks.
//! Its coordinator settles it before its next transaction, or on request; while a change waits, or once
//! its coordinator is no more, any coroutine of the thread does; and where nothing of a dropped round lands later, any thread that is asked
//! for it, or meets one of its locks. A coordinator hands its
//! transaction over: where it holds locks and no data, nor an entry in a log, nobody else knows, and they are given back before the
//! thread counts as idle. Until it is settled its number is this thread's, and how it ended is the database's to say
//! ([`crate::cluster::log_area_owners`]).

use crate::cluster::log_area_owners::{Known, Verdict};
use crate::cluster::membership::Standing;
use crate::protocol;
use crate::services::timestamp::Timestamps;
use crate::site::Context;
use crate::steps::settle::Asker;
use crate::transaction::in_doubt::Doubt;
use crate::transaction::working_set::Txn;
use tarn_fabric::address::Address;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;
use tarn_fabric::round::Round;
use tarn_store::ids::{Explanation, Failure, Resolution, TxnId};
use tarn_store::layout::{LOCK_AT, LockMode, LockWord};

/// How often a thread that waits for a configuration looks whether it is there.
const LOOK_AGAIN: Nanos = Nanos(1_000);

impl Context {
    /// Gives up what transactions of this thread held that others have settled.
    pub(crate) fn reap(&self) {
        for id in self.doubts.ids() {
            let verdict = match self.database().numbers.known(id) {
                Known::Open { .. } => continue,
                Known::Settled(verdict) => Some(verdict),
                Known::Nothing => None,
            };
            if let Some(Verdict { resolution, was_logged: true }) = verdict {
                self.note_decision(id, resolution);
            }
            self.release_left(id);
            self.database().numbers.forget(id);
            self.leave();
        }
    }

    /// Gives up the locks that a settled transaction held and did not log: its thread is done with it.
    fn release_left(&self, id: TxnId) {
        let Some(Doubt { left: Some(mut txn), .. }) = self.doubts.remove(id) else { return };
        txn.allocated.clear(); // blocks may have been written: not reused
        protocol::of(self).abandon(self, &mut txn);
    }

    /// Whether this thread may settle what other threads have in doubt: nothing of theirs lands any more, and nothing that settling takes
    /// waits for a thread.
    fn settles_others(&self) -> bool {
        let waits_for_nobody =
            !self.has_services() || matches!(self.timestamps, Timestamps::Counter);
        self.port.caps().ends_when_dropped && waits_for_nobody
    }

    /// Whether this thread may settle a transaction in doubt: its own, or another's of a life that is a member. What a life has left that
    /// is none is its recovery's.
    fn may_settle(&self, id: TxnId) -> bool {
        self.doubts.has(id)
            || (self.settles_others() && self.database().membership.is_member(id.node()))
    }

    /// How a transaction ended that was in doubt, and makes it final: the same for every thread that asks.
    ///
    /// # Errors
    /// The fabric's: ask again. `Usage`, if it is not known any more, or if the recovery of its node has to settle it.
    pub(crate) async fn settle(&self, id: TxnId) -> Result<Resolution, Failure> {
        loop {
            match self.database().numbers.known(id) {
                Known::Settled(verdict) => {
                    self.reap();
                    return Ok(verdict.resolution);
                }
                Known::Open { settled_by: Some(by), .. } if !self.is_over(by) => {
                    self.awaits(id, false)?;
                    self.port.yield_now().await;
                }
                Known::Open { number, is_lost: false, .. } if self.may_settle(id) => {
                    if let Some(resolution) = self.settle_here(id, number, Asker::Itself).await? {
                        return Ok(resolution);
                    }
                }
                Known::Open { is_left, .. } => {
                    self.awaits(id, is_left)?;
                    self.port.yield_now().await;
                }
                Known::Nothing => return Err(self.explain(Explanation::NoLongerKnown(id))),
            }
        }
    }

    /// As [`Context::settle`], also of one that was never known to be in doubt: its coordinator's number says where its log is. The caller
    /// knows that it does not run and has nothing on its way, if it is another node's.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn settle_under(&self, id: TxnId, number: u32) -> Result<Resolution, Failure> {
        loop {
            match self.database().numbers.known(id) {
                Known::Open { settled_by, .. }
                    if id.node() != self.node.id
                        && !self.settles_others()
                        && settled_by.is_none_or(|by| self.is_over(by)) =>
                {
                    if let Some(resolution) = self.settle_here(id, number, Asker::Another).await? {
                        return Ok(resolution);
                    }
                    self.awaits_recovery(id)?;
                    self.port.yield_now().await;
                }
                Known::Open { .. } | Known::Settled(_) => return self.settle(id).await,
                // What another thread of this node left in doubt is that one's to settle.
                Known::Nothing if self.is_number_held_elsewhere(number)? => {
                    self.port.yield_now().await;
                }
                Known::Nothing => {
                    self.awaits_recovery(id)?;
                    let protocol = protocol::of(self);
                    let resolution = protocol.resolve(self, id, number, Asker::Another).await?;
                    self.database().configurations.note_settled();
                    if self.is_expelled() {
                        return Ok(resolution);
                    }
                    let verdict = Verdict { resolution, was_logged: self.has_decided(id) };
                    return Ok(self.database().numbers.note(id, verdict).resolution);
                }
            }
        }
    }

    /// Whether somebody else will settle it: its thread, or the thread that is at it.
    ///
    /// # Errors
    /// `Fenced`, if this node is none any more. `Usage`, if its thread or node is no more: its node's recovery has to.
    fn awaits(&self, id: TxnId, is_left: bool) -> Result<(), Failure> {
        if self.is_expelled() {
            return Err(self.port.note_failure(FabricError::Fenced).into());
        }
        let standing = self.database().membership.standing(id.node());
        if !is_left && standing == Standing::Member {
            return Ok(());
        }
        let allowed = format!(
            "a transaction whose thread runs; once its compute {} is expelled, recovery settles it",
            id.node()
        );
        Err(self.explain(Explanation::usage("resolve", id, &allowed)))
    }

    /// Refuses to settle a transaction whose node is being recovered: recovery settles it.
    ///
    /// # Errors
    /// `Usage`, which names the node.
    fn awaits_recovery(&self, id: TxnId) -> Result<(), Failure> {
        match self.database().numbers.is_closed(id.node()) {
            true => self.awaits(id, false),
            false => Ok(()),
        }
    }

    /// Settles one that nobody settles; nothing, if somebody does.
    async fn settle_here(
        &self,
        id: TxnId,
        number: u32,
        asker: Asker,
    ) -> Result<Option<Resolution>, Failure> {
        if !self.doubts.has(id) {
            self.check_membership()?;
            // By the map that it ran in, which stays as long as it is in doubt. A thread that runs by another map is of a life
            // that is over.
            self.follow();
            if !self.is_current() {
                return Err(self.port.note_failure(FabricError::Fenced).into());
            }
        }
        let Some(claim) = Claim::take(self, id) else { return Ok(None) };
        let protocol = protocol::of(self);
        let resolution = protocol.resolve(self, id, number, asker).await?;
        self.database().configurations.note_settled();
        let verdict = Verdict { resolution, was_logged: self.has_decided(id) };
        let is_own = self.doubts.has(id);
        match is_own {
            true => self.release_left(id),
            false => self.free_locks(id, claim.locks()).await,
        }
        let verdict = claim.end(verdict, is_own);
        if is_own {
            self.leave();
        }
        Ok(Some(verdict.resolution))
    }

    /// Frees what a transaction of another thread has locked and not logged.
    async fn free_locks(&self, id: TxnId, locks: Vec<Address>) {
        let protocol = protocol::of(self);
        let words = [LockMode::Intent, LockMode::Exclusive];
        let words = words.map(|mode| LockWord::held(id, mode).word());
        for lock in locks {
            let mut round = Round::new();
            words.iter().for_each(|&word| {
                protocol.free_stray(self, &mut round, (lock.plus(LOCK_AT), word));
            });
            // A node that does not answer has lost it.
            let _ = self.port.execute(&mut round).await;
        }
    }

    /// A coordinator's transaction is in doubt, and holds locks on which shards of other nodes may wait: what there is to
    /// know of it is the thread's from now on, so that it is settled also while the coordinator rests.
    #[cold]
    pub(crate) fn hand_over(&self, txn: Txn) {
        let mut list = self.doubts.list.borrow_mut();
        let doubt = list.iter_mut().find(|it| it.id == txn.tag).expect("it is in doubt");
        (doubt.left, doubt.is_awaited) = (Some(Box::new(txn)), true);
    }

    /// Settles what this thread has in doubt, where that waits for nobody: a future is dropped, or its coordinator. The thread may do nothing
    /// more, or be about to end, and nobody else knows all that it holds. What cannot be settled yet is tried again later.
    #[cold]
    pub(crate) fn settle_dropped(&self) {
        if self.settles_others() {
            let _ = block_on(async {
                while let Some((id, number)) = self.first_open(&self.doubts.left(true)) {
                    self.settle_here(id, number, Asker::Itself).await?;
                }
                Ok::<(), Failure>(())
            });
        }
    }

    /// A coordinator goes while its transaction is in doubt.
    #[cold]
    pub(crate) fn inherit(&self, txn: Txn) {
        let mut list = self.doubts.list.borrow_mut();
        if let Some(doubt) = list.iter_mut().find(|it| it.id == txn.tag) {
            doubt.is_awaited = false;
            doubt.left.get_or_insert_with(|| Box::new(txn));
        }
        drop(list);
        self.settle_dropped();
        // Whoever of this thread runs next settles it.
        self.node.admission_gate.look_again();
    }

    /// The first of these that nobody settles.
    fn first_open(&self, ids: &[TxnId]) -> Option<(TxnId, u32)> {
        if ids.is_empty() {
            return None;
        }
        self.database().numbers.first_open(|id, _| ids.contains(&id))
    }

    /// Whether coordinators of this thread have left anything in doubt, or their last writes ended in an error.
    pub(crate) fn has_left_doubts(&self) -> bool {
        self.first_open(&self.doubts.left(self.has_services())).is_some()
    }

    /// Settles what coordinators of this thread have left in doubt that are no more; where locks are in compute nodes, whoever waits for
    /// one of theirs has nobody else to ask, so that it settles what those have left that rest, too. Likewise what threads have left that
    /// are no more, if it may.
    ///
    /// # Errors
    /// The fabric's: ask again.
    pub(crate) async fn settle_left(&self) -> Result<(), Failure> {
        self.reap();
        while let Some((id, number)) = self.first_open(&self.doubts.left(self.has_services())) {
            self.settle_here(id, number, Asker::Itself).await?;
        }
        while self.settles_others()
            && let Some((id, number)) =
                self.database().numbers.first_abandoned(|id| self.may_settle(id))
        {
            self.settle_here(id, number, Asker::Itself).await?;
        }
        Ok(())
    }

    /// Settles what is in doubt on this thread under a number that a new coordinator has; whether nobody of
    /// this node needs the number any more.
    ///
    /// # Errors
    /// The fabric's: ask again. `Usage`, if a thread that is no more needs it.
    pub(crate) async fn is_number_free(&self, number: u32) -> Result<bool, Failure> {
        self.reap();
        let numbers = &self.database().numbers;
        loop {
            let is_meant = |id, its| its == number && self.may_settle(id);
            let Some((id, number)) = numbers.first_open(is_meant) else { break };
            self.settle_here(id, number, Asker::Itself).await?;
        }
        let is_its = |doubt: &Doubt| doubt.number == number;
        let is_own = self.doubts.list.borrow().iter().any(is_its);
        Ok(!is_own && !self.is_number_held_elsewhere(number)?)
    }

    /// Settles a transaction whose lock is in the way, if it is in doubt and this thread may; whether it did.
    pub(crate) async fn settle_met(&self, word: u64) -> bool {
        let Some(id) = LockWord::from_word(word).owner() else { return false };
        match self.database().numbers.known(id) {
            Known::Open { number, is_lost: false, .. }
                if self.settles_others() && self.may_settle(id) =>
            {
                matches!(self.settle_here(id, number, Asker::Itself).await, Ok(Some(_)))
            }
            _ => false,
        }
    }

    /// Settles what is in doubt on this thread, if a change of the configuration waits for it. What
    /// cannot be settled yet is tried again the next time.
    pub async fn attend(&self) {
        if self.database().configurations.announced()
            == self.database().configurations.open().number
        {
            return;
        }
        self.reap();
        while let Some((id, number)) = self.first_open(&self.doubts.ids()) {
            if self.settle_here(id, number, Asker::Itself).await.is_err() {
                return;
            }
        }
    }
}

/// One coroutine at work on a transaction in doubt, also if it is dropped.
pub(crate) struct Claim<'a> {
    cx: &'a Context,
    id: TxnId,
}

impl<'a> Claim<'a> {
    /// The right to settle it, unless another has that.
    pub(crate) fn take(cx: &'a Context, id: TxnId) -> Option<Claim<'a>> {
        let is_over = |node| cx.is_over(node);
        let is_taken = cx.database().numbers.claim(id, cx.node.id, is_over);
        // Made only then: a claim that is dropped gives the right up.
        is_taken.then(|| Claim { cx, id })
    }

    /// LOCK words that it may have locked.
    pub(crate) fn locks(&self) -> Vec<Address> {
        self.cx.database().numbers.locks(self.id)
    }

    /// It has ended so, by its own thread's doing or another's. A life that is over may have read memory that has died since: it counts on its
    /// verdict itself, and nobody else is told it, since recovery has the last word. How it has ended to everybody.
    pub(crate) fn end(self, verdict: Verdict, by_its_own: bool) -> Verdict {
        let database = self.cx.database();
        if self.cx.is_expelled() {
            if by_its_own {
                database.numbers.drop_doubt(self.id);
            }
            return verdict;
        }
        let (verdict, seat) = database.numbers.settle(self.id, verdict, by_its_own);
        if let Some(seat) = seat {
            seat.vacate();
            database.configurations.unregister(&seat);
        }
        verdict
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.cx.database().numbers.unclaim(self.id, self.cx.node.id);
    }
}

impl Context {
    /// Whether another thread of this node has a transaction in doubt under a number, and will settle it, or last writes
    /// of one on their way.
    ///
    /// # Errors
    /// `Usage`, if that thread is no more.
    pub(crate) fn is_number_held_elsewhere(&self, number: u32) -> Result<bool, Failure> {
        let mut mine = self.doubts.ids();
        mine.extend(self.closing_ids());
        let is_meant = |id: TxnId| id.node() == self.node.id && !mine.contains(&id);
        match self.database().numbers.holder(number, is_meant) {
            Some((id, true)) => {
                let allowed = format!(
                    "a number that no thread left in doubt, as {id} was; once its compute {} is expelled, recovery settles it",
                    id.node()
                );
                Err(self.explain(Explanation::usage("coordinator", number, &allowed)))
            }
            other => Ok(other.is_some()),
        }
    }

    /// Waits until the thread may run transactions of the announced configuration. Settles what is in
    /// doubt on this thread meanwhile: the change waits for it. A life that is over takes no map: safety
    /// does not rest on that, since every node of the map refuses it.
    ///
    /// # Errors
    /// `Fenced`, once this life is expelled; `DeadlineExceeded` after `deadline`.
    #[cold]
    pub(crate) async fn adopt(&self, deadline: Option<Nanos>) -> Result<(), Failure> {
        loop {
            self.attend().await;
            self.check_membership()?;
            self.follow();
            if self.database().configurations.announced() == self.configuration.get() {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| self.port.now() > deadline) {
                return Err(self.explain(Explanation::DeadlineExceeded { tries: 0 }));
            }
            self.port.sleep(LOOK_AGAIN).await;
        }
    }
}
