//! The accounts of an outage's coordinators: the outcomes that each was told, and the transaction that it was at when it
//! died.
//!
//! Invariant: after each transaction its coordinator's account equals its tally, and while one runs the account holds its
//! input. So, whenever a node dies, the transactions that are not counted are those whose inputs are known, one of each
//! coordinator at the most.

use std::cell::RefCell;
use std::rc::Rc;
use tarn_workloads::{Untold, Workload};

/// One coordinator's.
pub(super) struct Account<W: Workload> {
    tally: RefCell<W::Tally>,
    running: RefCell<Option<Rc<W::Input>>>,
}

impl<W: Workload> Account<W> {
    /// A transaction begins.
    pub(super) fn begin(&self, input: W::Input) -> Rc<W::Input> {
        let input = Rc::new(input);
        *self.running.borrow_mut() = Some(Rc::clone(&input));
        input
    }

    /// It has ended, and is counted in the tally.
    pub(super) fn end(&self, tally: &W::Tally) {
        self.tally.borrow_mut().clone_from(tally);
        *self.running.borrow_mut() = None;
    }
}

/// All coordinators', of every life.
pub(super) struct Books<W: Workload>(RefCell<Vec<Rc<Account<W>>>>);

impl<W: Workload> Default for Books<W> {
    fn default() -> Books<W> {
        Books(RefCell::default())
    }
}

impl<W: Workload> Books<W> {
    /// A coordinator's account.
    pub(super) fn open(&self) -> Rc<Account<W>> {
        let (tally, running) = (RefCell::default(), RefCell::new(None));
        let account = Rc::new(Account { tally, running });
        self.0.borrow_mut().push(Rc::clone(&account));
        account
    }

    /// Returns the sum of all accounts, and the number of transactions in doubt.
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
