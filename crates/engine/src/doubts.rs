//! Transactions of one thread whose end nobody was told.
//!
//! Invariant: a doubt is settled by one coroutine at a time, and its thread counts as busy until then:
//! a change of the configuration waits for it, because the new primaries know nothing of its locks.
//! Its coordinator settles it before its next transaction, or on request; while a change waits, or once
//! its coordinator is no more, any coroutine of the thread does; and where nothing of a dropped round lands later, any thread that is asked
//! for it, or meets one of its locks. A coordinator hands its
//! transaction over: where it holds locks and no data, nor an entry in a log, nobody else knows, and they are given back before the
//! thread counts as idle. Until it is settled its number is this thread's, and how it ended is the database's to say
//! ([`crate::numbers`]).

use crate::context::Context;
use crate::membership::Standing;
use crate::numbers::{Claim, Known, Verdict};
use crate::recorder;
use crate::recovery::Asker;
use crate::timestamp::Timestamps;
use crate::working_set::{Lock, Txn};
use std::cell::RefCell;
use tarn_fabric::address::{Address, NodeId};
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;
use tarn_fabric::round::Round;
use tarn_store::ids::{Explanation, Failure, Resolution, TxnId};
use tarn_store::layout::{LOCK_AT, LockMode, LockWord};

/// From here on the outcome is what the memory says.
#[inline]
pub(crate) fn begin_doubt(cx: &Context, txn: &mut Txn) {
    txn.in_doubt = true;
    if txn.recorded_in.is_some() {
        recorder::enter_doubt(cx, txn);
    }
}

/// The failure of who does not know what has landed.
#[cold]
pub(crate) fn unknown(cx: &Context, txn: &Txn) -> Failure {
    cx.explain(Explanation::Unknown(txn.tag))
}

/// One that this thread has still to do something about.
struct Doubt {
    id: TxnId,
    number: u32,
    /// What its coordinator knew of it, since that is no more, or has handed it over.
    left: Option<Box<Txn>>,
    /// Its coordinator has handed it over, and is still there.
    is_awaited: bool,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Doubts {
    list: RefCell<Vec<Doubt>>,
}

impl Doubts {
    /// Whether this thread has still to do something about one.
    fn has(&self, id: TxnId) -> bool {
        self.list.borrow().iter().any(|doubt| doubt.id == id)
    }

    /// Those that this thread has still to do something about.
    pub(crate) fn ids(&self) -> Vec<TxnId> {
        self.list.borrow().iter().map(|doubt| doubt.id).collect()
    }

    /// Those whose coordinator is no more, or with `resting` does not run.
    fn left(&self, resting: bool) -> Vec<TxnId> {
        let list = self.list.borrow();
        let is_left = |doubt: &&Doubt| doubt.left.is_some() && (resting || !doubt.is_awaited);
        list.iter().filter(is_left).map(|doubt| doubt.id).collect()
    }

    fn remove(&self, id: TxnId) -> Option<Doubt> {
        let mut list = self.list.borrow_mut();
        let at = list.iter().position(|doubt| doubt.id == id)?;
        Some(list.swap_remove(at))
    }
}

impl Context {
    /// Notes a transaction in doubt: its try has not left.
    #[cold]
    pub(crate) fn doubt(&self, txn: &Txn) {
        let (id, number) = (txn.tag, txn.coordinator);
        self.doubts.list.borrow_mut().push(Doubt { id, number, left: None, is_awaited: false });
        let locks = txn.locks.iter().filter(|lock| lock.held_as.is_by_cas());
        let locks = locks.map(|lock: &Lock| lock.address).collect();
        let is_bound = !txn.held.is_empty()
            || txn.locks.iter().any(|lock| lock.granted && !lock.held_as.is_by_cas());
        self.database().numbers.doubt(number, id, locks, is_bound);
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

    /// Whether nothing of another node goes on any more: its access is gone.
    pub(crate) fn is_over(&self, node: NodeId) -> bool {
        node != self.node.id && self.database().membership.standing(node) == Standing::Recovered
    }

    /// Whether this node takes no part any more.
    pub(crate) fn is_expelled(&self) -> bool {
        !self.database().membership.is_member(self.node.id)
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
                    let protocol = &self.database().protocol;
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
        let protocol = &self.database().protocol;
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
        let protocol = &self.database().protocol;
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
        self.node.clearance.look_again();
    }

    /// Gives up the locks that a settled transaction held and did not log: its thread is done with it.
    fn release_left(&self, id: TxnId) {
        let Some(Doubt { left: Some(mut txn), .. }) = self.doubts.remove(id) else { return };
        txn.allocated.clear(); // blocks may have been written: not reused
        self.database().protocol.abandon(self, &mut txn);
    }

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
