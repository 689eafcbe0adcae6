//! Requests to change the shape of a tree.
//!
//! Invariant: requests belong to one thread and may be lost. A leaf that stays full makes a new request. A missing
//! separator, at any level, costs each walk that passes it one step along NEXT, and each such walk requests the
//! separator again. No request waits for the success of another request. Requests to change a tree never decide
//! correctness. The memory of dead nodes belongs to one compute node and one configuration. A copy that joins in a
//! later configuration never had these nodes, so their VERSION would start from zero in that copy.

use crate::ids::ConfigurationNumber;
use crate::schema::IndexId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tarn_fabric::address::Address;

use crate::layout::index_plan::KeyBytes;

/// The maximum number of waiting requests.
const WAITING_MAX: usize = 64;
/// The number of merge requests that are ignored after a merge that failed.
const REST: u32 = 64;

/// The task of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeTask {
    /// Split the node that covers the key.
    Split,
    /// Split the leaf that covers the key so that the key begins a leaf. Either half may be empty.
    Part,
    /// Enter the node that covers the key into its parent, if it is missing in the parent.
    Post,
    /// Merge the node that covers the key with a neighbour, if both nodes have few entries.
    Merge,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeWork {
    /// The index.
    pub index: IndexId,
    /// The task.
    pub task: TreeTask,
    /// The level of the node.
    pub level: u8,
    /// A key that the node covers, padded to the greatest width.
    pub key: KeyBytes,
}

/// The result of a request that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeDone {
    /// The tree was changed. The field is the request that should follow.
    Changed(Option<TreeWork>),
    /// The tree needed no change.
    Needless,
    /// This other request must be done first.
    First(TreeWork),
}

/// One thread's requests.
#[derive(Default)]
pub struct TreeWorks {
    waiting: RefCell<VecDeque<TreeWork>>,
    rest: Cell<u32>,
}

/// The nodes that the threads of a compute node have merged away. Any of these threads may use such a node again,
/// in the same tree.
#[derive(Default, Debug)]
pub struct DeadNodes(Mutex<Kept>);

#[derive(Default, Debug)]
struct Kept {
    /// The configuration in which the nodes were merged.
    configuration: Option<ConfigurationNumber>,
    nodes: Vec<Dead>,
}

#[derive(Clone, Copy, Debug)]
struct Dead {
    index: IndexId,
    address: Address,
    /// A transaction with an old path had locked the node, and may hold that lock for as long as a lease lasts.
    was_refused: bool,
}

impl DeadNodes {
    /// The nodes kept in this configuration. The nodes of an earlier configuration are dropped.
    fn kept(&self, configuration: ConfigurationNumber) -> MutexGuard<'_, Kept> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.configuration != Some(configuration) {
            kept.nodes.clear();
            kept.configuration = Some(configuration);
        }
        kept
    }

    /// Keeps a node of this tree that is dead, or was never part of the tree, on behalf of a transaction of this
    /// configuration. No transaction of an earlier configuration runs any more. If the lock of the node was
    /// refused, other nodes are used first.
    pub fn keep(
        &self,
        configuration: ConfigurationNumber,
        (index, address): (IndexId, Address),
        was_refused: bool,
    ) {
        self.kept(configuration).nodes.push(Dead { index, address, was_refused });
    }

    /// Takes the most recently kept node of this tree whose lock was not refused. If all locks were refused, it
    /// returns `None` once, so that the caller takes memory from the heap. After that the refused nodes are tried
    /// again.
    pub fn take(&self, configuration: ConfigurationNumber, index: IndexId) -> Option<Address> {
        let mut kept = self.kept(configuration);
        let at = kept.nodes.iter().rposition(|it| it.index == index && !it.was_refused);
        if at.is_none() {
            let refused = kept.nodes.iter_mut().filter(|it| it.index == index);
            refused.for_each(|it| it.was_refused = false);
        }
        at.map(|at| kept.nodes.swap_remove(at).address)
    }
}

impl TreeWorks {
    /// Whether any request waits.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Adds a request.
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

    /// The number of waiting requests.
    pub fn count(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// The request that has waited longest.
    pub fn take(&self) -> Option<TreeWork> {
        self.waiting.borrow_mut().pop_front()
    }

    /// Withdraws a request that is being carried out, so that it does not wait any more.
    pub fn withdraw(&self, work: TreeWork) {
        self.waiting.borrow_mut().retain(|it| *it != work);
    }

    /// Notes that a merge failed. The next merge requests are ignored.
    pub fn rest_from_merges(&self) {
        self.rest.set(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::INDEX_KEY_BYTES_MAX;
    use tarn_fabric::address::GroupId;

    #[test]
    fn dead_nodes_are_used_in_their_tree_and_their_configuration() {
        let [one, two] = [1, 2].map(ConfigurationNumber);
        let at = |offset| Address::new(GroupId(0), offset);
        let dead = DeadNodes::default();
        dead.keep(one, (IndexId(0), at(1024)), false);
        dead.keep(one, (IndexId(1), at(2048)), false);
        assert_eq!(dead.take(one, IndexId(2)), None);
        assert_eq!(dead.take(one, IndexId(1)), Some(at(2048)));
        assert_eq!(dead.take(one, IndexId(1)), None, "once");
        dead.keep(two, (IndexId(1), at(4096)), false);
        assert_eq!(dead.take(two, IndexId(0)), None, "of another map");
        assert_eq!(dead.take(two, IndexId(1)), Some(at(4096)));
    }

    #[test]
    fn a_refused_dead_node_lets_others_go_first() {
        let (number, index) = (ConfigurationNumber(1), IndexId(0));
        let at = |offset| Address::new(GroupId(0), offset);
        let dead = DeadNodes::default();
        dead.keep(number, (index, at(1024)), false);
        dead.keep(number, (index, at(2048)), true);
        dead.keep(number, (IndexId(1), at(4096)), true);
        assert_eq!(dead.take(number, index), Some(at(1024)));
        assert_eq!(dead.take(number, index), None, "the heap's turn");
        assert_eq!(dead.take(number, index), Some(at(2048)));
        assert_eq!(dead.take(number, index), None);
        assert_eq!(dead.take(number, IndexId(1)), None, "of another tree");
        assert_eq!(dead.take(number, IndexId(1)), Some(at(4096)));
    }

    fn work(task: TreeTask, key: u8) -> TreeWork {
        TreeWork { index: IndexId(0), task, level: 0, key: [key; INDEX_KEY_BYTES_MAX] }
    }

    #[test]
    fn requests_are_taken_in_turn_and_once() {
        let works = TreeWorks::default();
        let all = [TreeTask::Post, TreeTask::Split, TreeTask::Merge].map(|task| work(task, 1));
        all.iter().chain(&all).for_each(|&each| works.request(each));
        works.withdraw(all[1]);
        assert_eq!((works.count(), works.take(), works.take()), (2, Some(all[0]), Some(all[2])));
        assert!(!works.is_wanted() && works.take().is_none());
        works.rest_from_merges();
        (0..REST).for_each(|_| works.request(all[2]));
        assert!(!works.is_wanted(), "it rests");
        works.request(all[2]);
        assert!(works.is_wanted());
        (0..=255).for_each(|key| works.request(work(TreeTask::Post, key)));
        assert_eq!(works.count(), WAITING_MAX);
    }
}
