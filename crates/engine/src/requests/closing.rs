//! Work that continues after a transaction was acknowledged or aborted.
//!
//! Invariants: a transaction that has written keeps its locks until its writes have ended. Until then its thread
//! counts as busy, so that the configuration cannot change meanwhile. If a memory node dies during the writes, it is
//! unknown which writes were executed, on other memory nodes too. Then the transaction is in doubt and keeps its
//! locks, until a coroutine of its thread has completed it from its log. No other node keeps a grant for ever: this
//! node repeats the RELEASE message until the other node has received it or is no member. A missing reply to a LOCK
//! message makes no difference, since the session is ordered: the RELEASE runs after the LOCK, or the LOCK never
//! runs.

use crate::services::lock::message::{self, RELEASE};
use crate::site::Context;
use crate::transaction::lock_set::{Closing, LockSet};
use crate::transaction::working_set::Txn;
use std::pin::Pin;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Detached;
use tarn_fabric::error::FabricError;
use tarn_fabric::rpc::CallFuture;
use tarn_store::ids::{Failure, Timestamp, TxnId};

impl Context {
    /// Releases the locks in `held` when `writes` have ended. `whose` is the transaction, which is acknowledged now,
    /// and its coordinator's number. The lock set `held` is empty afterwards. Returns false if a memory node has died
    /// during the writes. In that case the transaction is in doubt.
    pub fn close(
        &self,
        writes: Result<Detached, FabricError>,
        (held, whose): (&mut LockSet, (TxnId, u32)),
        committed: Timestamp,
    ) -> bool {
        let ended = writes.and_then(|writes| match self.port.detached(writes) {
            Poll::Ready(ended) => ended.map(|()| None),
            Poll::Pending => Ok(Some(writes)),
        });
        match ended {
            Ok(None) | Err(FabricError::Fenced) => held.release(self, Some(committed)),
            Ok(Some(writes)) => {
                let held = self.take_locks(held);
                let closing = Closing::Writing { writes, held, committed, whose, is_orphan: false };
                self.thread_services().closing.borrow_mut().push(closing);
            }
            Err(error) => {
                let held = self.take_locks(held);
                self.close_in_doubt(error, held, whose);
                return false;
            }
        }
        true
    }

    /// Releases the locks in `held` when all of `writes` have ended. The writes in `writes` restore the old data.
    pub(crate) fn close_restored(
        &self,
        writes: Vec<Detached>,
        (held, whose): (&mut LockSet, (TxnId, u32)),
    ) {
        let held = self.take_locks(held);
        self.database().log_area_owners.hold_writes(whose.1, whose.0);
        let closing = Closing::Restoring { writes, held, whose };
        self.thread_services().closing.borrow_mut().push(closing);
        self.advance_closing();
    }

    /// Takes a transaction's locks out of `held`. The thread still counts these locks as held after the transaction
    /// has ended.
    fn take_locks(&self, held: &mut LockSet) -> LockSet {
        self.stay();
        let empty = self.thread_services().spare.borrow_mut().pop().unwrap_or_default();
        std::mem::replace(held, empty)
    }

    /// Handles the death of a memory node during the last writes of an acknowledged transaction. The transaction's
    /// log tells which writes are missing.
    #[cold]
    fn close_in_doubt(&self, error: FabricError, held: LockSet, (id, number): (TxnId, u32)) {
        if let FabricError::NodeDown(node) = error {
            self.database().configurations.report(node);
        }
        let mut left = Txn::new(id, number);
        (left.held, left.in_doubt) = (held, true);
        self.doubt(&left);
        self.inherit(left);
    }

    /// Marks the last writes of a coordinator that no longer exists. The next coordinator with the same number, on
    /// any thread of the node, waits until these writes have ended.
    pub(crate) fn orphan_closing(&self, number: u32) {
        let Some(thread) = &self.services else { return };
        for closing in thread.closing.borrow_mut().iter_mut() {
            if let Closing::Writing { whose: (id, its), is_orphan, .. } = closing
                && *its == number
                && !std::mem::replace(is_orphan, true)
            {
                self.database().log_area_owners.hold_writes(number, *id);
            }
        }
    }

    /// The transactions whose writes have not ended.
    pub(crate) fn closing_ids(&self) -> Vec<TxnId> {
        let Some(thread) = &self.services else { return Vec::new() };
        let whose = |it: &Closing| match it {
            Closing::Writing { whose: (id, _), .. } | Closing::Restoring { whose: (id, _), .. } => {
                Some(*id)
            }
            Closing::Releasing { .. } => None,
        };
        thread.closing.borrow().iter().filter_map(whose).collect()
    }

    /// Waits until all work for a coordinator's last transaction is done. The coordinator's last transaction was in
    /// doubt, or its writes ended in an error.
    ///
    /// # Errors
    /// The fabric's errors; the caller may call this function again.
    #[cold]
    pub(crate) async fn settle_closed(&self, number: u32) -> Result<(), Failure> {
        while self.is_closing(number) || !self.is_number_free(number).await? {
            self.port.yield_now().await;
        }
        Ok(())
    }

    /// Whether writes of a coordinator's last transaction have not ended yet.
    pub(crate) fn is_closing(&self, number: u32) -> bool {
        let is_its = |it: &Closing| match it {
            Closing::Writing { whose: (_, its), .. }
            | Closing::Restoring { whose: (_, its), .. } => *its == number,
            Closing::Releasing { .. } => false,
        };
        self.advance_closing() > 0 && self.thread_services().closing.borrow().iter().any(is_its)
    }

    /// Sends the node `owner` a request to release the locks of `txn`.
    pub(crate) fn send_release(&self, owner: NodeId, txn: TxnId, committed: Option<Timestamp>) {
        let mut closing = Closing::Releasing { owner, txn, committed, call: None };
        if !self.advance_one(&mut closing) {
            self.thread_services().closing.borrow_mut().push(closing);
        }
    }

    /// Continues all work of ended transactions. Returns the number of work items that are not done.
    pub(crate) fn advance_closing(&self) -> usize {
        let thread = self.thread_services();
        if thread.closing.borrow().is_empty() {
            return 0;
        }
        let mut list = std::mem::take(&mut *thread.closing.borrow_mut());
        list.retain_mut(|closing| !self.advance_one(closing));
        // The calls of `advance_one` above may have added work items.
        let mut closing = thread.closing.borrow_mut();
        list.append(&mut closing);
        *closing = list;
        closing.len()
    }

    /// Continues one item of work for an ended transaction. Returns whether the item is done.
    fn advance_one(&self, closing: &mut Closing) -> bool {
        match closing {
            Closing::Writing { writes, held, committed, whose, is_orphan } => {
                match self.port.detached(*writes) {
                    Poll::Pending => return false,
                    // `Fenced` means that this node is expelled. Recovery then releases the transaction's locks.
                    Poll::Ready(Ok(()) | Err(FabricError::Fenced)) => {
                        if *is_orphan {
                            self.database().log_area_owners.release_writes(whose.0);
                        }
                        self.give_up(held, Some(*committed));
                    }
                    Poll::Ready(Err(error)) => {
                        self.close_in_doubt(error, std::mem::take(held), *whose);
                    }
                }
                true
            }
            Closing::Restoring { writes, held, whose } => {
                writes.retain(|writes| self.port.detached(*writes).is_pending());
                if !writes.is_empty() {
                    return false;
                }
                self.database().log_area_owners.release_writes(whose.0);
                self.give_up(held, None);
                true
            }
            Closing::Releasing { owner, txn, committed, call } => {
                let (owner, txn, committed) = (*owner, *txn, *committed);
                // Recovery releases the locks of an ended incarnation.
                let membership = &self.database().membership;
                if !membership.is_member(owner) || !membership.is_member(self.node.id) {
                    return true;
                }
                let call = call.get_or_insert_with(|| self.call_release(owner, txn, committed));
                let mut waiting = Waiting::from_waker(Waker::noop());
                match Pin::new(call).poll(&mut waiting) {
                    Poll::Pending => false,
                    Poll::Ready(Ok(_)) => true,
                    Poll::Ready(Err(_)) => {
                        // Too many calls were waiting, or this call took too long, so the thread calls the other node
                        // again.
                        if let Closing::Releasing { call, .. } = closing {
                            *call = None;
                        }
                        false
                    }
                }
            }
        }
    }

    fn give_up(&self, held: &mut LockSet, committed: Option<Timestamp>) {
        held.release(self, committed);
        self.thread_services().spare.borrow_mut().push(std::mem::take(held));
        self.leave();
    }

    fn call_release(&self, owner: NodeId, txn: TxnId, committed: Option<Timestamp>) -> CallFuture {
        let (rpc, peer) = self.lock_peer(owner);
        rpc.call(peer, RELEASE, |bytes| message::put_release(bytes, txn, committed))
    }
}
