//! What still runs of transactions whose caller has the reply, or that are given up.
//!
//! Invariants: a lock of a transaction that has written is given up when its writes are over, not before; until
//! then its thread counts as busy, so that no configuration changes under them. Nothing that another node
//! granted is lost: the RELEASE is repeated until that node has it or is no member. A reply that never came
//! makes no difference, since the session is ordered: a RELEASE runs after the LOCK, or the LOCK never.

use super::message::{self, RELEASE};
use super::set::LockSet;
use crate::context::Context;
use crate::outcome::TxnId;
use crate::timestamp::Timestamp;
use std::pin::Pin;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Detached;
use tarn_fabric::rpc::CallFuture;

/// One thing that still runs.
pub(crate) enum Closing {
    /// Writes that nobody awaits, and the locks that guard them.
    Writing {
        /// The writes.
        writes: Detached,
        /// What guards them.
        held: LockSet,
        /// When the transaction committed.
        committed: Timestamp,
        /// Its coordinator's number.
        number: u32,
    },
    /// Another node is to take locks back.
    Releasing {
        /// Which.
        owner: NodeId,
        /// Whose.
        txn: TxnId,
        /// When the transaction committed, if it did.
        committed: Option<Timestamp>,
        /// The call, if one is on its way.
        call: Option<CallFuture>,
    },
}

impl Context {
    /// Gives up `held` when `writes` are over: for a transaction of coordinator `number` that is acknowledged now.
    /// `held` is empty afterwards.
    pub fn close(
        &self,
        writes: Detached,
        (held, number): (&mut LockSet, u32),
        committed: Timestamp,
    ) {
        if self.port.detached(writes).is_ready() {
            return held.release(self, Some(committed));
        }
        let thread = self.thread_services();
        let empty = thread.spare.borrow_mut().pop().unwrap_or_default();
        let held = std::mem::replace(held, empty);
        self.stay();
        thread.closing.borrow_mut().push(Closing::Writing { writes, held, committed, number });
    }

    /// Whether writes of a coordinator's last transaction are on their way.
    pub(crate) fn is_closing(&self, number: u32) -> bool {
        let is_its =
            |it: &Closing| matches!(it, Closing::Writing { number: its, .. } if *its == number);
        self.advance_closing() > 0 && self.thread_services().closing.borrow().iter().any(is_its)
    }

    /// Has `owner` take back what `txn` holds there.
    pub(crate) fn send_release(&self, owner: NodeId, txn: TxnId, committed: Option<Timestamp>) {
        let mut closing = Closing::Releasing { owner, txn, committed, call: None };
        if !self.advance_one(&mut closing) {
            self.thread_services().closing.borrow_mut().push(closing);
        }
    }

    /// Goes on with all that still runs; how much is left.
    pub(crate) fn advance_closing(&self) -> usize {
        let thread = self.thread_services();
        if thread.closing.borrow().is_empty() {
            return 0;
        }
        let mut list = std::mem::take(&mut *thread.closing.borrow_mut());
        list.retain_mut(|closing| !self.advance_one(closing));
        // Locks that were given up just now may have added to it.
        let mut closing = thread.closing.borrow_mut();
        list.append(&mut closing);
        *closing = list;
        closing.len()
    }

    /// Whether it is done.
    fn advance_one(&self, closing: &mut Closing) -> bool {
        match closing {
            Closing::Writing { writes, held, committed, .. } => {
                // An error says that the primary is dead, whose backups have it all, or that this
                // node is, and then its locks go with it.
                if self.port.detached(*writes).is_pending() {
                    return false;
                }
                held.release(self, Some(*committed));
                self.thread_services().spare.borrow_mut().push(std::mem::take(held));
                self.leave();
                true
            }
            Closing::Releasing { owner, txn, committed, call } => {
                let (owner, txn, committed) = (*owner, *txn, *committed);
                // What a life held that is over is given up when it is recovered.
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
                        // Too many calls wait, or it took too long: again.
                        if let Closing::Releasing { call, .. } = closing {
                            *call = None;
                        }
                        false
                    }
                }
            }
        }
    }

    fn call_release(&self, owner: NodeId, txn: TxnId, committed: Option<Timestamp>) -> CallFuture {
        let (rpc, peer) = self.lock_peer(owner);
        rpc.call(peer, RELEASE, |bytes| message::put_release(bytes, txn, committed))
    }
}
