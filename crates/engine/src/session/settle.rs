//! Settles this thread's transactions in doubt: transactions whose callers were not told the outcome.
//!
//! Invariant: one coroutine at a time settles a transaction in doubt, and its thread counts as busy until the
//! transaction is settled. A change of the configuration waits for busy threads, because the new primaries do not
//! know the transaction's locks. The coordinator settles the transaction before its next transaction, or on request.
//! While a change waits, or after the coordinator was dropped, any coroutine of the thread settles the transaction.
//! If no verb of a dropped round can take effect later, other threads may settle the transaction too. Such a thread
//! was asked to settle the transaction, or has met one of its locks. A coordinator hands its transaction in doubt
//! over to its thread. The transaction may hold locks and have neither data nor a log entry in memory. Then no other
//! thread knows these locks, and the thread releases them before it counts as idle. Until the transaction is settled,
//! its coordinator's number belongs to this thread. The database stores the outcome
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

/// The interval at which a thread checks whether the configuration for which it waits is open.
const LOOK_AGAIN: Nanos = Nanos(1_000);

impl Context {
    /// Releases the remaining locks of this thread's transactions that other threads have settled.
    pub(crate) fn reap(&self) {
        for id in self.doubts.ids() {
            let verdict = match self.database().log_area_owners.known(id) {
                Known::Open { .. } => continue,
                Known::Settled(verdict) => Some(verdict),
                Known::Nothing => None,
            };
            if let Some(Verdict { resolution, was_logged: true }) = verdict {
                self.note_decision(id, resolution);
            }
            self.release_left(id);
            self.database().log_area_owners.forget(id);
            self.leave();
        }
    }

    /// Releases the locks that a settled transaction held and did not log. After that the thread deletes its
    /// information about the transaction.
    fn release_left(&self, id: TxnId) {
        let Some(Doubt { left: Some(mut txn), .. }) = self.doubts.remove(id) else { return };
        txn.allocated.clear(); // the blocks may have been written, so they are not reused
        protocol::of(self).abandon(self, &mut txn);
    }

    /// Whether this thread may settle the transactions in doubt of other threads. This thread may do so if none of
    /// the other threads' verbs can still take effect, and if settling waits for no other thread.
    fn settles_others(&self) -> bool {
        let waits_for_nobody =
            !self.has_services() || matches!(self.timestamps, Timestamps::Counter);
        self.port.caps().ends_when_dropped && waits_for_nobody
    }

    /// Whether this thread may settle a transaction in doubt. A thread may settle its own transactions. A thread may
    /// settle another thread's transaction if the incarnation that ran the transaction is still a member. Otherwise
    /// the recovery of that incarnation settles the transaction.
    fn may_settle(&self, id: TxnId) -> bool {
        self.doubts.has(id)
            || (self.settles_others() && self.database().membership.is_member(id.node()))
    }

    /// Finds out how a transaction in doubt ended, and makes the outcome final. Every thread that asks gets the
    /// same outcome.
    ///
    /// # Errors
    /// An error of the fabric: the caller may ask again. `Usage`, if the outcome is no longer stored, or if the
    /// recovery of the transaction's node must settle the transaction.
    pub(crate) async fn settle(&self, id: TxnId) -> Result<Resolution, Failure> {
        loop {
            match self.database().log_area_owners.known(id) {
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

    /// Does the same as [`Context::settle`], also for a transaction that was never known to be in doubt. The number
    /// of the transaction's coordinator tells where its log is. If the coordinator belongs to another node, the
    /// caller must know that the coordinator does not run and has no verb in flight.
    ///
    /// # Errors
    /// The same errors as [`Context::settle`].
    pub(crate) async fn settle_under(&self, id: TxnId, number: u32) -> Result<Resolution, Failure> {
        loop {
            match self.database().log_area_owners.known(id) {
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
                // If another thread of this node left the transaction in doubt, that thread settles it.
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
                    return Ok(self.database().log_area_owners.note(id, verdict).resolution);
                }
            }
        }
    }

    /// Checks that another thread will settle the transaction. The other thread is the transaction's own thread, or a
    /// thread that is already settling the transaction.
    ///
    /// # Errors
    /// `Fenced`, if this node is no longer a member. `Usage`, if the transaction's thread or node no longer exists,
    /// so that the node's recovery must settle the transaction.
    fn awaits(&self, id: TxnId, is_left: bool) -> Result<(), Failure> {
        if self.is_expelled() {
            return Err(self.port.note_failure(FabricError::Fenced).into());
        }
        let standing = self.database().membership.standing(id.node());
        if !is_left && standing == Standing::Member {
            return Ok(());
        }
        let allowed = format!(
            "a transaction whose thread still runs; recovery settles this one when its compute {} \
             is expelled",
            id.node()
        );
        Err(self.explain(Explanation::usage("resolve", id, &allowed)))
    }

    /// Refuses to settle a transaction whose node is being recovered, because the recovery settles it.
    ///
    /// # Errors
    /// `Usage`, with the name of the node that is being recovered.
    fn awaits_recovery(&self, id: TxnId) -> Result<(), Failure> {
        match self.database().log_area_owners.is_closed(id.node()) {
            true => self.awaits(id, false),
            false => Ok(()),
        }
    }

    /// Settles a transaction that no thread is settling. Returns `None` if another thread is already settling the
    /// transaction.
    async fn settle_here(
        &self,
        id: TxnId,
        number: u32,
        asker: Asker,
    ) -> Result<Option<Resolution>, Failure> {
        if !self.doubts.has(id) {
            self.check_membership()?;
            // The thread settles the transaction with the map of the transaction's own configuration. That
            // configuration stays open as long as the transaction is in doubt. If this thread has another map, its
            // node was expelled.
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

    /// Releases the locks that a transaction of another thread has taken and did not log.
    async fn free_locks(&self, id: TxnId, locks: Vec<Address>) {
        let protocol = protocol::of(self);
        let words = [LockMode::Intent, LockMode::Exclusive];
        let words = words.map(|mode| LockWord::held(id, mode).word());
        for lock in locks {
            let mut round = Round::new();
            words.iter().for_each(|&word| {
                protocol.free_stray(self, &mut round, (lock.plus(LOCK_AT), word));
            });
            // If a memory node does not answer, the lock in that node's memory is lost anyway.
            let _ = self.port.execute(&mut round).await;
        }
    }

    /// Takes over a coordinator's transaction in doubt, because other nodes may wait for the transaction's locks
    /// before they move shards. From now on the thread keeps all information about the transaction, so that it can be
    /// settled while the coordinator is idle.
    #[cold]
    pub(crate) fn hand_over(&self, txn: Txn) {
        let mut list = self.doubts.list.borrow_mut();
        let doubt = list.iter_mut().find(|it| it.id == txn.tag).expect(
            "a transaction that is \
            handed over is in doubt",
        );
        (doubt.left, doubt.is_awaited) = (Some(Box::new(txn)), true);
    }

    /// Settles this thread's transactions in doubt after a future or a coordinator is dropped, if settling waits for
    /// no other thread. The function settles the transactions immediately, because the thread may end soon, and no
    /// other thread knows all the locks. If some transactions cannot be settled yet, the thread tries again later.
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

    /// Takes over the transaction in doubt of a coordinator that is being dropped.
    #[cold]
    pub(crate) fn inherit(&self, txn: Txn) {
        let mut list = self.doubts.list.borrow_mut();
        if let Some(doubt) = list.iter_mut().find(|it| it.id == txn.tag) {
            doubt.is_awaited = false;
            doubt.left.get_or_insert_with(|| Box::new(txn));
        }
        drop(list);
        self.settle_dropped();
        // The coordinator of this thread that runs next settles the transaction.
        self.node.admission_gate.look_again();
    }

    /// The first of these transactions that no thread is settling.
    fn first_open(&self, ids: &[TxnId]) -> Option<(TxnId, u32)> {
        if ids.is_empty() {
            return None;
        }
        self.database().log_area_owners.first_open(|id, _| ids.contains(&id))
    }

    /// Whether this thread still has to settle transactions that its coordinators have left in doubt. Transactions
    /// whose last writes ended in an error count too.
    pub(crate) fn has_left_doubts(&self) -> bool {
        self.first_open(&self.doubts.left(self.settles_resting())).is_some()
    }

    /// Whether locks are held by threads, and not by words in memory. Then a transaction that waits for a lock can ask
    /// no other thread to settle its holder, so a thread settles the transactions of its idle coordinators too.
    fn settles_resting(&self) -> bool {
        self.has_services() || self.locks.is_some()
    }

    /// Settles the transactions in doubt of this thread's coordinators that were dropped, and of idle coordinators
    /// under the condition of [`Context::settles_resting`]. If this thread may settle transactions of other threads, it
    /// also settles the transactions of threads that no longer exist.
    ///
    /// # Errors
    /// An error of the fabric: the caller may ask again.
    pub(crate) async fn settle_left(&self) -> Result<(), Failure> {
        self.reap();
        while let Some((id, number)) = self.first_open(&self.doubts.left(self.settles_resting())) {
            self.settle_here(id, number, Asker::Itself).await?;
        }
        while self.settles_others()
            && let Some((id, number)) =
                self.database().log_area_owners.first_abandoned(|id| self.may_settle(id))
        {
            self.settle_here(id, number, Asker::Itself).await?;
        }
        Ok(())
    }

    /// Settles this thread's transactions in doubt under a number that a new coordinator uses. Returns whether no
    /// thread of this node needs the number any more.
    ///
    /// # Errors
    /// An error of the fabric: the caller may ask again. `Usage`, if a thread that no longer exists needs the
    /// number.
    pub(crate) async fn is_number_free(&self, number: u32) -> Result<bool, Failure> {
        self.reap();
        let numbers = &self.database().log_area_owners;
        loop {
            let is_meant = |id, its| its == number && self.may_settle(id);
            let Some((id, number)) = numbers.first_open(is_meant) else { break };
            self.settle_here(id, number, Asker::Itself).await?;
        }
        let is_its = |doubt: &Doubt| doubt.number == number;
        let is_own = self.doubts.list.borrow().iter().any(is_its);
        Ok(!is_own && !self.is_number_held_elsewhere(number)?)
    }

    /// Settles the transaction that holds a blocking lock, if the transaction is in doubt and this thread may
    /// settle it. Returns whether this thread settled it.
    pub(crate) async fn settle_met(&self, word: u64) -> bool {
        let Some(id) = LockWord::from_word(word).owner() else { return false };
        match self.database().log_area_owners.known(id) {
            Known::Open { number, is_lost: false, .. }
                if self.settles_others() && self.may_settle(id) =>
            {
                matches!(self.settle_here(id, number, Asker::Itself).await, Ok(Some(_)))
            }
            _ => false,
        }
    }

    /// Settles this thread's transactions in doubt, if a change of the configuration waits for them. If a transaction
    /// cannot be settled yet, the next call of this function tries again.
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

/// One coroutine's right to settle a transaction in doubt. Dropping this value gives the right back.
pub(crate) struct Claim<'a> {
    cx: &'a Context,
    id: TxnId,
}

impl<'a> Claim<'a> {
    /// Takes the right to settle a transaction, unless another coroutine has it.
    pub(crate) fn take(cx: &'a Context, id: TxnId) -> Option<Claim<'a>> {
        let is_over = |node| cx.is_over(node);
        let is_taken = cx.database().log_area_owners.claim(id, cx.node.id, is_over);
        // The guard is created only if the right was granted, because dropping a guard gives the right back.
        is_taken.then(|| Claim { cx, id })
    }

    /// The LOCK words that the transaction may have locked.
    pub(crate) fn locks(&self) -> Vec<Address> {
        self.cx.database().log_area_owners.locks(self.id)
    }

    /// Ends the transaction's doubt with this verdict, which the transaction's own thread or another thread has
    /// reached. An expelled node may have read memory that has been lost since. Such a node uses its own verdict but
    /// tells it to no other thread, because the recovery decides. Returns the verdict that holds for all threads.
    pub(crate) fn end(self, verdict: Verdict, by_its_own: bool) -> Verdict {
        let database = self.cx.database();
        if self.cx.is_expelled() {
            if by_its_own {
                database.log_area_owners.drop_doubt(self.id);
            }
            return verdict;
        }
        let (verdict, thread_slot) = database.log_area_owners.settle(self.id, verdict, by_its_own);
        if let Some(thread_slot) = thread_slot {
            thread_slot.vacate();
            database.configurations.unregister(&thread_slot);
        }
        verdict
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.cx.database().log_area_owners.unclaim(self.id, self.cx.node.id);
    }
}

impl Context {
    /// Whether another thread of this node still needs a coordinator number. The other thread has a transaction in
    /// doubt under the number and will settle it, or the other thread still waits for the transaction's last writes.
    ///
    /// # Errors
    /// `Usage`, if the other thread no longer exists.
    pub(crate) fn is_number_held_elsewhere(&self, number: u32) -> Result<bool, Failure> {
        let mut mine = self.doubts.ids();
        mine.extend(self.closing_ids());
        let is_meant = |id: TxnId| id.node() == self.node.id && !mine.contains(&id);
        match self.database().log_area_owners.holder(number, is_meant) {
            Some((id, true)) => {
                let allowed = format!(
                    "a number whose transactions are settled; {id} is in doubt, and recovery \
                     settles it when its compute {} is expelled",
                    id.node()
                );
                Err(self.explain(Explanation::usage("coordinator", number, &allowed)))
            }
            other => Ok(other.is_some()),
        }
    }

    /// Waits until the thread may run transactions of the announced configuration. Meanwhile the function settles
    /// this thread's transactions in doubt, because the change of the configuration waits for them. An expelled node
    /// adopts no map. Safety does not depend on this rule, because every node of the map refuses the expelled node.
    ///
    /// # Errors
    /// `Fenced`, once this node is expelled. `DeadlineExceeded`, after `deadline`.
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
                let waited = "waiting for a change of the configuration".to_owned();
                return Err(self.explain(Explanation::DeadlineExceeded { tries: 0, waited }));
            }
            self.port.sleep(LOOK_AGAIN).await;
        }
    }
}
