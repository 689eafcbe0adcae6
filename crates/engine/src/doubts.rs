//! Transactions of one thread whose end nobody was told.
//!
//! Invariant: a doubt is settled by one coroutine at a time, and its thread counts as busy until then:
//! a change of the configuration waits for it, because the new primaries know nothing of its locks.
//! Its coordinator settles it before its next transaction, or on request; while a change waits, or once
//! its coordinator is no more, any coroutine of the thread does. A coordinator hands its
//! transaction over: where it holds locks and no data, nor an entry in a log, nobody else knows, and they are given back before the
//! thread counts as idle. Until it is settled its number is this thread's ([`crate::numbers`]).

use crate::context::Context;
use crate::outcome::{Explanation, Failure, Resolution, TxnId};
use crate::recorder;
use crate::recovery::Asker;
use crate::working_set::Txn;
use std::cell::RefCell;

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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Open,
    BeingSettled,
    Settled(Resolution),
}

struct Doubt {
    id: TxnId,
    coordinator: u32,
    standing: Standing,
    /// What its coordinator knew of it, if that is no more, or has handed it over.
    left: Option<Box<Txn>>,
    /// Its coordinator has handed it over, and will ask how it ended.
    is_awaited: bool,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Doubts {
    list: RefCell<Vec<Doubt>>,
}

impl Doubts {
    fn standing(&self, id: TxnId) -> Option<Standing> {
        self.list.borrow().iter().find(|doubt| doubt.id == id).map(|doubt| doubt.standing)
    }

    fn set(&self, id: TxnId, standing: Standing) {
        for doubt in self.list.borrow_mut().iter_mut().filter(|doubt| doubt.id == id) {
            doubt.standing = standing;
        }
    }

    fn first_open(&self) -> Option<(TxnId, u32)> {
        let list = self.list.borrow();
        let open = list.iter().find(|doubt| doubt.standing == Standing::Open);
        open.map(|doubt| (doubt.id, doubt.coordinator))
    }

    /// The first whose coordinator is no more, or with `resting` does not run, of those that nobody settles.
    fn first_left(&self, resting: bool) -> Option<(TxnId, u32)> {
        let list = self.list.borrow();
        let is_left = |doubt: &&Doubt| {
            let left = doubt.left.is_some() && (resting || !doubt.is_awaited);
            doubt.standing == Standing::Open && left
        };
        list.iter().find(is_left).map(|doubt| (doubt.id, doubt.coordinator))
    }

    /// The first under a number, of those that nobody settles.
    fn first_under(&self, number: u32) -> Option<TxnId> {
        let list = self.list.borrow();
        let is_it = |it: &&Doubt| it.coordinator == number && it.standing == Standing::Open;
        list.iter().find(is_it).map(|doubt| doubt.id)
    }

    /// Whether one under a number is being settled.
    fn is_settling(&self, number: u32) -> bool {
        let list = self.list.borrow();
        list.iter().any(|it| it.coordinator == number && it.standing == Standing::BeingSettled)
    }

    /// Those that are not settled, under whatever number.
    pub(crate) fn unsettled(&self) -> Vec<TxnId> {
        let list = self.list.borrow();
        let is_open = |it: &&Doubt| !matches!(it.standing, Standing::Settled(_));
        list.iter().filter(is_open).map(|doubt| doubt.id).collect()
    }

    /// What the coordinator of a settled one left. If nobody will ask for it any more it is forgotten.
    fn take_left(&self, id: TxnId) -> Option<Box<Txn>> {
        let mut list = self.list.borrow_mut();
        let is_it = |doubt: &Doubt| {
            doubt.id == id && doubt.left.is_some() && matches!(doubt.standing, Standing::Settled(_))
        };
        let at = list.iter().position(is_it)?;
        match list[at].is_awaited {
            true => list[at].left.take(),
            false => list.swap_remove(at).left,
        }
    }

    /// Nobody will ask how one ended that was handed over; whether it was.
    fn await_no_more(&self, id: TxnId) -> bool {
        let mut list = self.list.borrow_mut();
        let Some(at) = list.iter().position(|doubt| doubt.id == id && doubt.is_awaited) else {
            return false;
        };
        list[at].is_awaited = false;
        if matches!(list[at].standing, Standing::Settled(_)) {
            list.swap_remove(at);
        }
        true
    }
}

/// One coroutine at work on a doubt, also if it is dropped.
struct Settling<'a> {
    doubts: &'a Doubts,
    id: TxnId,
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        if self.doubts.standing(self.id) == Some(Standing::BeingSettled) {
            self.doubts.set(self.id, Standing::Open);
        }
    }
}

impl Context {
    /// Notes a transaction in doubt: its try has not left.
    #[cold]
    pub(crate) fn doubt(&self, id: TxnId, coordinator: u32) {
        let doubt =
            Doubt { id, coordinator, standing: Standing::Open, left: None, is_awaited: false };
        self.doubts.list.borrow_mut().push(doubt);
        self.node.numbers.hold(coordinator, id);
    }

    /// How a transaction of coordinator `number` ended, and makes it final.
    ///
    /// # Errors
    /// The fabric's: ask again.
    pub(crate) async fn settle(&self, id: TxnId, number: u32) -> Result<Resolution, Failure> {
        loop {
            match self.doubts.standing(id) {
                Some(Standing::BeingSettled) => self.port.yield_now().await,
                Some(Standing::Settled(resolution)) => {
                    self.doubts.list.borrow_mut().retain(|doubt| doubt.id != id);
                    return Ok(resolution);
                }
                Some(Standing::Open) => self.settle_here(id, number).await?,
                // What another thread of this node left in doubt is that one's to settle.
                None if self.is_number_held_elsewhere(number)? => self.port.yield_now().await,
                None => {
                    let protocol = &self.database().protocol;
                    let resolution = protocol.resolve(self, id, number, Asker::Another).await?;
                    self.database().configurations.note_settled();
                    return Ok(resolution);
                }
            }
        }
    }

    async fn settle_here(&self, id: TxnId, number: u32) -> Result<(), Failure> {
        self.doubts.set(id, Standing::BeingSettled);
        let settling = Settling { doubts: &self.doubts, id };
        let protocol = &self.database().protocol;
        let resolution = protocol.resolve(self, id, number, Asker::Itself).await?;
        self.database().configurations.note_settled();
        self.doubts.set(id, Standing::Settled(resolution));
        self.node.numbers.release(id);
        drop(settling);
        self.release_left(id);
        self.leave();
        Ok(())
    }

    /// A coordinator's transaction is in doubt, and holds locks on which shards of other nodes may wait: what there is to
    /// know of it is the thread's from now on, so that it is settled also while the coordinator rests.
    #[cold]
    pub(crate) fn hand_over(&self, txn: Txn) {
        let mut list = self.doubts.list.borrow_mut();
        let doubt = list.iter_mut().find(|it| it.id == txn.tag).expect("it is in doubt");
        (doubt.left, doubt.is_awaited) = (Some(Box::new(txn)), true);
    }

    /// A coordinator goes while its transaction is in doubt.
    #[cold]
    pub(crate) fn inherit(&self, txn: Txn) {
        let id = txn.tag;
        if !self.doubts.await_no_more(id)
            && let Some(doubt) = self.doubts.list.borrow_mut().iter_mut().find(|it| it.id == id)
        {
            doubt.left = Some(Box::new(txn));
        }
        self.release_left(id);
        // Whoever of this thread runs next settles it.
        self.node.clearance.look_again();
    }

    /// Gives up the locks that a settled transaction held and did not log.
    fn release_left(&self, id: TxnId) {
        let Some(mut txn) = self.doubts.take_left(id) else { return };
        txn.allocated.clear(); // blocks may have been written: not reused
        self.database().protocol.abandon(self, &mut txn);
    }

    /// Whether coordinators of this thread have left anything in doubt, or their last writes ended in an error.
    pub(crate) fn has_left_doubts(&self) -> bool {
        self.doubts.first_left(self.has_services()).is_some()
    }

    /// Settles what coordinators of this thread have left in doubt that are no more; where locks are in compute nodes, whoever waits for
    /// one of theirs has nobody else to ask, so that it settles what those have left that rest, too.
    ///
    /// # Errors
    /// The fabric's: ask again.
    pub(crate) async fn settle_left(&self) -> Result<(), Failure> {
        while let Some((id, number)) = self.doubts.first_left(self.has_services()) {
            self.settle_here(id, number).await?;
        }
        Ok(())
    }

    /// Settles what is in doubt on this thread under a number that a new coordinator has; whether nobody of
    /// this node needs the number any more.
    ///
    /// # Errors
    /// The fabric's: ask again. `Usage`, if a thread that is no more needs it.
    pub(crate) async fn is_number_free(&self, number: u32) -> Result<bool, Failure> {
        while let Some(id) = self.doubts.first_under(number) {
            self.settle_here(id, number).await?;
        }
        Ok(!self.doubts.is_settling(number) && !self.is_number_held_elsewhere(number)?)
    }

    /// Settles what is in doubt on this thread, if a change of the configuration waits for it. What
    /// cannot be settled yet is tried again the next time.
    pub async fn attend(&self) {
        if self.database().configurations.announced()
            == self.database().configurations.open().number
        {
            return;
        }
        while let Some((id, number)) = self.doubts.first_open() {
            if self.settle_here(id, number).await.is_err() {
                return;
            }
        }
    }
}
