//! What should be done about the shape of a tree, and who asked.
//!
//! Invariant: requests are a thread's own and may be lost: a leaf that stays full asks again, a
//! separator that is missing costs whoever passes a step along NEXT and is asked for again. Nothing here
//! decides what is right.

use crate::index_schema::IndexId;
use std::cell::{Cell, RefCell};
use tarn_fabric::address::Address;

use super::plan::KeyBytes;

/// Most requests that wait.
const WAITING_MAX: usize = 64;
/// So many merges are not asked for after one that did not come about.
const REST: u32 = 64;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeTask {
    /// Split the node that covers the key.
    Split,
    /// Enter the node that covers the key into its parent, if it is missing there.
    Post,
    /// Merge the node that covers the key with a neighbour, if both are light.
    Merge,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeWork {
    /// Of which index.
    pub index: IndexId,
    /// What.
    pub task: TreeTask,
    /// The level of the node.
    pub level: u8,
    /// A key that the node covers, padded to any width.
    pub key: KeyBytes,
}

/// How it ended, if it did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeDone {
    /// Done; what should follow.
    Changed(Option<TreeWork>),
    /// There was nothing to do.
    Needless,
    /// Something else must be done first.
    First(TreeWork),
}

/// One thread's requests, and memory of nodes that were merged away.
#[derive(Default)]
pub struct TreeWorks {
    waiting: RefCell<Vec<TreeWork>>,
    rest: Cell<u32>,
    dead: RefCell<Vec<(IndexId, Address)>>,
}

impl TreeWorks {
    /// Whether anything waits.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Asks for something.
    #[cold]
    pub fn request(&self, work: TreeWork) {
        if work.task == TreeTask::Merge && self.rest.get() > 0 {
            return self.rest.set(self.rest.get() - 1);
        }
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < WAITING_MAX && !waiting.contains(&work) {
            waiting.push(work);
        }
    }

    /// The request that was made last.
    pub fn take(&self) -> Option<TreeWork> {
        self.waiting.borrow_mut().pop()
    }

    /// A merge was asked for in vain.
    pub fn rest_from_merges(&self) {
        self.rest.set(REST);
    }

    /// A node that is dead: this thread may use it again, in the same tree.
    pub fn keep_dead(&self, index: IndexId, node: Address) {
        self.dead.borrow_mut().push((index, node));
    }

    /// A dead node of this tree.
    pub fn take_dead(&self, index: IndexId) -> Option<Address> {
        let mut dead = self.dead.borrow_mut();
        let at = dead.iter().position(|&(of, _)| of == index)?;
        Some(dead.swap_remove(at).1)
    }
}
