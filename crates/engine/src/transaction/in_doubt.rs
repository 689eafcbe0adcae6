//! The list of transactions in doubt that one thread still has to settle.
//!
//! Invariant: this module only keeps the list of transactions in doubt. [`crate::session::settle`] settles the
//! transactions in doubt.

use crate::transaction::working_set::Txn;
use std::cell::RefCell;
use tarn_store::ids::TxnId;

/// A transaction in doubt that this thread still has to settle or clean up.
pub(crate) struct Doubt {
    pub(crate) id: TxnId,
    pub(crate) number: u32,
    /// The coordinator's information about the transaction, after the coordinator was dropped or has handed the
    /// transaction over.
    pub(crate) left: Option<Box<Txn>>,
    /// Whether the coordinator has handed the transaction over and still exists.
    pub(crate) is_awaited: bool,
}

/// The in-doubt transactions of a thread.
#[derive(Default)]
pub(crate) struct InDoubt {
    pub(crate) list: RefCell<Vec<Doubt>>,
}

impl InDoubt {
    /// Whether this thread still has to settle or clean up this transaction.
    pub(crate) fn has(&self, id: TxnId) -> bool {
        self.list.borrow().iter().any(|doubt| doubt.id == id)
    }

    /// The transactions that this thread still has to settle or clean up.
    pub(crate) fn ids(&self) -> Vec<TxnId> {
        self.list.borrow().iter().map(|doubt| doubt.id).collect()
    }

    /// The transactions whose coordinator was dropped. With `resting`, the list also contains the transactions whose
    /// coordinator is idle.
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
