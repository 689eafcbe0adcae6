//! Requests to change the shape of a tree: to split, merge and post nodes.
//!
//! Invariant: requests belong to one thread and may be lost. If a leaf stays full, the next insert requests the split
//! again. If a separator is missing at any level, each walk that needs it takes one step along NEXT and requests the
//! separator again. No request waits for the success of another request. Whether requests are carried out never
//! decides whether an answer is correct. The memory of dead nodes belongs to one compute node and one configuration.
//! A copy that joins in a later configuration never had these dead nodes, so their VERSION would start from zero in
//! that copy.

use crate::ids::ConfigurationNumber;
use crate::schema::IndexId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tarn_fabric::address::Address;

use crate::layout::index_plan::KeyBytes;

/// The maximum number of requests of one thread that wait.
const WAITING_MAX: usize = 64;
/// After a merge that failed, the thread ignores this number of merge requests.
const REST: u32 = 64;

/// The change of the tree that a request asks the thread to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeTask {
    /// Split the node that covers the key.
    Split,
    /// Split the leaf that covers the key so that a leaf begins at the key. Each half of the split leaf may be empty.
    Part,
    /// Enter the node that covers the key into its parent, if the parent does not have the node's separator.
    Post,
    /// Merge the node that covers the key with a neighbour, if both nodes have few entries.
    Merge,
}

/// One request to change the shape of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeWork {
    /// The id of the index whose tree should be changed.
    pub index: IndexId,
    /// The change that the request asks for.
    pub task: TreeTask,
    /// The level of the node that should be changed.
    pub level: u8,
    /// A key that the node covers, padded to the maximum key length.
    pub key: KeyBytes,
}

/// The result of carrying out a request, if it did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeDone {
    /// The request has changed the tree. The field is the request that should be carried out next, if any.
    Changed(Option<TreeWork>),
    /// The tree needed no change.
    Needless,
    /// The thread must first carry out this other request.
    First(TreeWork),
}

/// One thread's requests to change trees.
#[derive(Default)]
pub struct TreeWorks {
    waiting: RefCell<VecDeque<TreeWork>>,
    rest: Cell<u32>,
}

/// The nodes that the threads of a compute node have merged away. Any thread of the compute node may use a merged
/// node again, in the same tree.
#[derive(Default, Debug)]
pub struct DeadNodes(Mutex<Kept>);

#[derive(Default, Debug)]
struct Kept {
    /// The configuration in which the kept nodes were merged away.
    configuration: Option<ConfigurationNumber>,
    nodes: Vec<Dead>,
}

#[derive(Clone, Copy, Debug)]
struct Dead {
    index: IndexId,
    address: Address,
    /// Whether the lock of the node was refused, because a transaction with an old path held it. That transaction may
    /// hold the lock for as long as a lease lasts.
    was_refused: bool,
}

impl DeadNodes {
    /// Returns the nodes that were merged away in this configuration. `kept` drops the nodes of an earlier
    /// configuration.
    fn kept(&self, configuration: ConfigurationNumber) -> MutexGuard<'_, Kept> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.configuration != Some(configuration) {
            kept.nodes.clear();
            kept.configuration = Some(configuration);
        }
        kept
    }

    /// Keeps a node of this tree for later use. The node is dead, or was never part of the tree. `configuration` is
    /// the configuration of the calling transaction. No transaction of an earlier configuration runs any more. If the
    /// lock of this node was refused, [`DeadNodes::take`] returns other nodes first.
    pub fn keep(
        &self,
        configuration: ConfigurationNumber,
        (index, address): (IndexId, Address),
        was_refused: bool,
    ) {
        self.kept(configuration).nodes.push(Dead { index, address, was_refused });
    }

    /// Takes the most recently kept node of this tree whose lock was not refused. If the locks of all kept nodes were
    /// refused, it returns `None` once, so that the caller takes memory from the heap. Later calls return the refused
    /// nodes again.
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
    /// Whether any request of this thread waits.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Adds a request to the waiting requests.
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

    /// The number of requests of this thread that wait.
    pub fn count(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Removes and returns the request that has waited longest.
    pub fn take(&self) -> Option<TreeWork> {
        self.waiting.borrow_mut().pop_front()
    }

    /// Removes from the waiting requests a request that a coordinator is carrying out.
    pub fn withdraw(&self, work: TreeWork) {
        self.waiting.borrow_mut().retain(|it| *it != work);
    }

    /// Notes that a merge failed, so that the thread ignores the next merge requests.
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
