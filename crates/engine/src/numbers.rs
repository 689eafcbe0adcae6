//! Coordinators' numbers that a thread of this compute node still needs.
//!
//! Invariant: a transaction in doubt needs what stands in its number's log area, and only its own thread may
//! settle it: what that thread had sent comes before what it sends now at each memory node, and before
//! nobody else's (`Backend::abandon`). So from when nobody knows how a transaction ended until it is settled
//! its number is that thread's; whoever else begins under it waits. A thread that is no more will not settle
//! anything: then its node's recovery has to, and who asks for the number is refused.

use crate::context::Context;
use crate::outcome::{Explanation, Failure, TxnId};
use std::sync::Mutex;

/// One transaction in doubt.
#[derive(Clone, Copy, Debug)]
struct Hold {
    number: u32,
    id: TxnId,
    /// Its thread is no more.
    is_left: bool,
}

/// Of a compute node; see the module's text.
#[derive(Default, Debug)]
pub struct Numbers(Mutex<Vec<Hold>>);

impl Numbers {
    fn change<T>(&self, how: impl FnOnce(&mut Vec<Hold>) -> T) -> T {
        how(&mut self.0.lock().expect("no panic under this lock"))
    }

    /// A transaction is in doubt.
    pub(crate) fn hold(&self, number: u32, id: TxnId) {
        self.change(|holds| holds.push(Hold { number, id, is_left: false }));
    }

    /// It is settled.
    pub(crate) fn release(&self, id: TxnId) {
        self.change(|holds| holds.retain(|hold| hold.id != id));
    }

    /// Its thread is no more.
    pub(crate) fn leave(&self, id: TxnId) {
        self.change(|holds| {
            holds.iter_mut().filter(|hold| hold.id == id).for_each(|hold| hold.is_left = true);
        });
    }

    /// One that needs a number, of those that `is_meant` says.
    fn holder(&self, number: u32, is_meant: impl Fn(TxnId) -> bool) -> Option<Hold> {
        let is_it = |hold: &&Hold| hold.number == number && is_meant(hold.id);
        self.change(|holds| holds.iter().find(is_it).copied())
    }
}

impl Context {
    /// Whether another thread of this node has a transaction in doubt under a number, and will settle it, or last writes
    /// of one on their way.
    ///
    /// # Errors
    /// `Usage`, if that thread is no more.
    pub(crate) fn is_number_held_elsewhere(&self, number: u32) -> Result<bool, Failure> {
        let mut mine = self.doubts.unsettled();
        mine.extend(self.closing_ids());
        match self.node.numbers.holder(number, |id| !mine.contains(&id)) {
            Some(Hold { id, is_left: true, .. }) => {
                let allowed = format!("a number that no thread left in doubt, as {id} was");
                Err(self.explain(Explanation::usage("coordinator", number, &allowed)))
            }
            other => Ok(other.is_some()),
        }
    }
}
