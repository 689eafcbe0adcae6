//! What should be done about the shape of a tree, and who asked.
//!
//! Invariant: requests are a thread's own and may be lost: a leaf that stays full asks again, a
//! separator that is missing, at whatever level, costs whoever passes a step along NEXT and is asked for again.
//! None waits for another's success. Nothing here decides what is right. Memory of dead nodes is a compute node's, and of one configuration: a copy that
//! joins in a later one never had them, and their VERSION would begin anew there.

use crate::configuration::ConfigurationNumber;
use crate::index_schema::IndexId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// One thread's requests.
#[derive(Default)]
pub struct TreeWorks {
    waiting: RefCell<VecDeque<TreeWork>>,
    rest: Cell<u32>,
}

/// Nodes that a compute node's threads have merged away: any of them may use one again, in its own tree.
#[derive(Default, Debug)]
pub struct DeadNodes(Mutex<Kept>);

#[derive(Default, Debug)]
struct Kept {
    /// In which they were merged.
    configuration: Option<ConfigurationNumber>,
    nodes: Vec<(IndexId, Address)>,
}

impl DeadNodes {
    /// What was kept in this configuration; that of an earlier one is forgotten.
    fn kept(&self, configuration: ConfigurationNumber) -> MutexGuard<'_, Kept> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.configuration != Some(configuration) {
            kept.nodes.clear();
            kept.configuration = Some(configuration);
        }
        kept
    }

    /// A node of this tree is dead, or was never part of it, as of a transaction of this configuration. No
    /// transaction of an earlier one runs any more.
    pub fn keep(&self, configuration: ConfigurationNumber, index: IndexId, node: Address) {
        self.kept(configuration).nodes.push((index, node));
    }

    /// The one of this tree that was kept last.
    pub fn take(&self, configuration: ConfigurationNumber, index: IndexId) -> Option<Address> {
        let mut kept = self.kept(configuration);
        let at = kept.nodes.iter().rposition(|&(of, _)| of == index)?;
        Some(kept.nodes.swap_remove(at).1)
    }
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
            waiting.push_back(work);
        }
    }

    /// How many requests wait.
    pub fn count(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// The request that has waited longest.
    pub fn take(&self) -> Option<TreeWork> {
        self.waiting.borrow_mut().pop_front()
    }

    /// Somebody sees to this one: it waits no more.
    pub fn withdraw(&self, work: TreeWork) {
        self.waiting.borrow_mut().retain(|it| *it != work);
    }

    /// A merge was asked for in vain.
    pub fn rest_from_merges(&self) {
        self.rest.set(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::GroupId;

    #[test]
    fn dead_nodes_are_used_in_their_tree_and_their_configuration() {
        let [one, two] = [1, 2].map(ConfigurationNumber);
        let at = |offset| Address::new(GroupId(0), offset);
        let dead = DeadNodes::default();
        dead.keep(one, IndexId(0), at(1024));
        dead.keep(one, IndexId(1), at(2048));
        assert_eq!(dead.take(one, IndexId(2)), None);
        assert_eq!(dead.take(one, IndexId(1)), Some(at(2048)));
        assert_eq!(dead.take(one, IndexId(1)), None, "once");
        dead.keep(two, IndexId(1), at(4096));
        assert_eq!(dead.take(two, IndexId(0)), None, "of another map");
        assert_eq!(dead.take(two, IndexId(1)), Some(at(4096)));
    }
}
