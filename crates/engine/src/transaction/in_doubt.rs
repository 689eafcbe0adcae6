//! Transactions in doubt that one thread has still to settle.
//!
//! Invariant: a list alone. [`crate::session::settle`] settles them.

use crate::transaction::working_set::Txn;
use std::cell::RefCell;
use tarn_store::ids::TxnId;

/// A transaction in doubt that this thread has still to deal with.
pub(crate) struct Doubt {
    pub(crate) id: TxnId,
    pub(crate) number: u32,
    /// The coordinator's knowledge of it, once the coordinator exists no more, or has handed it over.
    pub(crate) left: Option<Box<Txn>>,
    /// Whether its coordinator has handed it over, and still exists.
    pub(crate) is_awaited: bool,
}

/// The in-doubt transactions of a thread.
#[derive(Default)]
pub(crate) struct InDoubt {
    pub(crate) list: RefCell<Vec<Doubt>>,
}

impl InDoubt {
    /// Whether this thread has still to deal with this transaction.
    pub(crate) fn has(&self, id: TxnId) -> bool {
        self.list.borrow().iter().any(|doubt| doubt.id == id)
    }

    /// The transactions that this thread has still to deal with.
    pub(crate) fn ids(&self) -> Vec<TxnId> {
        self.list.borrow().iter().map(|doubt| doubt.id).collect()
    }

    /// The transactions whose coordinator exists no more, or with `resting` does not run.
    pub(crate) fn left(&self, resting: bool) -> Vec<TxnId> {
        let list = self.list.borrow();
        let is_left = |doubt: &&Doubt| doubt.left.is_some() && (resting || !doubt.is_awaited);
        list.iter().filter(is_left).map(|doubt| doubt.id).collect()
    }

    pub(crate) fn remove(&self, id: TxnId) -> Option<Doubt> {
        let mut list = self.list.borrow_mut();
        let at = list.iter().position(|doubt| doubt.id == id)?;
        Some(list.swap_remove(at))
    }
}
