//! The accounts of the coordinators in an outage. An account holds the outcomes that its coordinator learned, and the
//! transaction that the coordinator ran when its node crashed.
//!
//! Invariant: after each transaction, the coordinator's account equals the coordinator's tally. While a transaction
//! runs, the account holds the transaction's input. So when a node crashes, the accounts contain the inputs of all
//! transactions that no tally counts. Each coordinator has at most one such transaction, which no tally counts.

use std::cell::RefCell;
use std::rc::Rc;
use tarn_workloads::{Untold, Workload};

/// The account of one coordinator.
pub(super) struct Account<W: Workload> {
    tally: RefCell<W::Tally>,
    running: RefCell<Option<Rc<W::Input>>>,
}

impl<W: Workload> Account<W> {
    /// Notes that a transaction with this input begins.
    pub(super) fn begin(&self, input: W::Input) -> Rc<W::Input> {
        let input = Rc::new(input);
        *self.running.borrow_mut() = Some(Rc::clone(&input));
        input
    }

    /// Notes that the transaction has ended. The tally already counts this transaction.
    pub(super) fn end(&self, tally: &W::Tally) {
        self.tally.borrow_mut().clone_from(tally);
        *self.running.borrow_mut() = None;
    }
}

/// The accounts of all coordinators, from every incarnation of every compute node.
pub(super) struct Books<W: Workload>(RefCell<Vec<Rc<Account<W>>>>);

impl<W: Workload> Default for Books<W> {
    fn default() -> Books<W> {
        Books(RefCell::default())
    }
}

impl<W: Workload> Books<W> {
    /// Opens an account for one coordinator.
    pub(super) fn open(&self) -> Rc<Account<W>> {
        let (tally, running) = (RefCell::default(), RefCell::new(None));
        let account = Rc::new(Account { tally, running });
        self.0.borrow_mut().push(Rc::clone(&account));
        account
    }

    /// Closes all accounts: returns the sum of the tallies in these accounts, and the number of transactions in
    /// doubt.
    pub(super) fn close(&self, workload: &W) -> (W::Tally, u64) {
        let (mut sum, mut unknown) = (W::Tally::default(), 0);
        for account in self.0.take() {
            W::merge(&mut sum, account.tally.take());
            if let Some(input) = account.running.take() {
                workload.untold(&input, Untold::Unknown, &mut sum);
                unknown += 1;
            }
        }
        (sum, unknown)
    }
}
