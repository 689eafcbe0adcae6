//! The counts that compute nodes of this process keep of their transactions' delays and readers, and the changes of
//! lease lengths that managers based on these counts.
//!
//! Invariant: the desk only stores reports and makes no decision. The desk keeps the counts of a node's incarnation
//! as long as any object of that incarnation exists.

use super::readers::NodeReaders;
use crate::cluster::lease::{Delays, ThreadDelays};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;

/// The number of changes of the lease length that are kept in full; further changes are only counted.
pub const CHANGES_KEPT: usize = 64;

/// The delays that the threads of one node's incarnation count. Only the sum is kept for threads that have ended.
#[derive(Default, Debug)]
pub struct NodeDelays(Mutex<Counted>);

#[derive(Default, Debug)]
struct Counted {
    threads: Vec<Arc<ThreadDelays>>,
    /// The sum of the delays of threads that have ended.
    gone: Delays,
}

impl NodeDelays {
    /// Creates new counts of delays for one more thread.
    pub(crate) fn thread(&self) -> Arc<ThreadDelays> {
        let thread = Arc::<ThreadDelays>::default();
        let Counted { threads, gone } = &mut *self.counted();
        threads.retain_mut(|it| {
            let is_there = Arc::get_mut(it).is_none();
            if !is_there {
                gone.add(&it.snapshot());
            }
            is_there
        });
        threads.push(Arc::clone(&thread));
        thread
    }

    /// The sum of the delays of all threads of the incarnation so far.
    pub fn snapshot(&self) -> Delays {
        let counted = self.counted();
        let mut all = counted.gone.clone();
        counted.threads.iter().for_each(|thread| all.add(&thread.snapshot()));
        all
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().expect("no panic under this lock")
    }
}

/// A completed change of the lease length that the lease manager requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adjustment {
    /// The time at which the manager requested the change, by the manager's clock.
    pub asked: Nanos,
    /// The lease length before the change, in nanoseconds.
    pub from_ns: u32,
    /// The lease length after the change, in nanoseconds.
    pub to_ns: u32,
    /// The time from the request until all nodes that must acknowledge the second lease word had acknowledged it, by
    /// the manager's clock.
    pub took: Nanos,
    /// The number of read-only transactions on which the manager based its decision.
    pub reads: u64,
    /// The number of those read-only transactions that ended within their leases.
    pub in_lease: u64,
}

/// The actions of all lease managers so far.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Adjustments {
    /// The number of times that a manager has read the counts.
    pub looks: u64,
    /// The number of completed changes of the lease length.
    pub count: u64,
    /// The first [`CHANGES_KEPT`] completed changes of the lease length.
    pub first: Vec<Adjustment>,
    /// The longest time that one change of the lease length took, in nanoseconds.
    pub longest_ns: u64,
    /// The members that a manager expelled because their clocks drifted too far, in order.
    pub clocks: Vec<NodeId>,
}

/// The counts that all incarnations keep; see the module's text.
#[derive(Default, Debug)]
pub struct LeaseDesk {
    nodes: Mutex<BTreeMap<NodeId, Weak<NodeDelays>>>,
    readers: Mutex<BTreeMap<NodeId, Weak<NodeReaders>>>,
    gone: Mutex<Delays>,
    adjustments: Mutex<Adjustments>,
}

impl LeaseDesk {
    pub(crate) fn enter(&self, node: NodeId) -> Arc<NodeDelays> {
        let delays = Arc::<NodeDelays>::default();
        let mut nodes = self.nodes.lock().expect("no panic under this lock");
        nodes.retain(|_, delays| delays.strong_count() > 0);
        nodes.insert(node, Arc::downgrade(&delays));
        delays
    }

    /// Records that a node's incarnation counts its readers from now on.
    pub(crate) fn count_readers(&self, readers: &Arc<NodeReaders>) {
        let mut nodes = self.readers.lock().expect("no panic under this lock");
        nodes.retain(|_, readers| readers.strong_count() > 0);
        nodes.insert(readers.id, Arc::downgrade(readers));
    }

    /// The counts of readers that a node's incarnation in this process keeps. `None` if the incarnation counts no
    /// readers, or has ended.
    pub fn readers(&self, node: NodeId) -> Option<Arc<NodeReaders>> {
        self.readers.lock().expect("no panic under this lock").get(&node)?.upgrade()
    }

    /// The delays that a node's incarnation in this process has counted; `None` if the incarnation has ended.
    pub fn delays(&self, node: NodeId) -> Option<Delays> {
        let nodes = self.nodes.lock().expect("no panic under this lock");
        let delays = nodes.get(&node)?.upgrade()?;
        Some(delays.snapshot())
    }

    /// Adds the delays of an incarnation to the sum of ended incarnations. No object of that incarnation exists any
    /// more.
    pub(crate) fn leave(&self, delays: &NodeDelays) {
        self.gone.lock().expect("no panic under this lock").add(&delays.snapshot());
    }

    /// The sum of the delays of incarnations of which no object exists any more.
    pub fn gone(&self) -> Delays {
        self.gone.lock().expect("no panic under this lock").clone()
    }

    /// The actions of all lease managers so far.
    pub fn adjustments(&self) -> Adjustments {
        self.told().clone()
    }

    pub(crate) fn looked(&self) {
        self.told().looks += 1;
    }

    pub(crate) fn adjusted(&self, adjustment: Adjustment) {
        let mut told = self.told();
        told.count += 1;
        told.longest_ns = told.longest_ns.max(adjustment.took.0);
        if told.first.len() < CHANGES_KEPT {
            told.first.push(adjustment);
        }
    }

    pub(crate) fn expelled(&self, node: NodeId) {
        self.told().clocks.push(node);
    }

    fn told(&self) -> MutexGuard<'_, Adjustments> {
        self.adjustments.lock().expect("no panic under this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests ten thousand threads, of which at most two exist at any time.
    #[test]
    fn ended_threads_leave_only_the_sum_of_their_delays() {
        let node = NodeDelays::default();
        let kept = node.thread();
        for count in 0..10_000 {
            let thread = node.thread();
            [&kept, &thread].iter().for_each(|thread| thread.note_read(Nanos(1_000), true));
            assert!(node.counted().threads.len() <= 3, "after {count}");
            assert_eq!(node.snapshot().reads(), 2 * (count + 1));
        }
    }
}
