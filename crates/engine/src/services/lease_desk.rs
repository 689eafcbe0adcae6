//! What compute nodes of this process have counted of their transactions' delays and readers, and what became of leases because of it.
//!
//! Invariant: it is told, and decides nothing. What a life has counted is here as long as anything of that life is.

use super::readers::NodeReaders;
use crate::cluster::lease::{Delays, ThreadDelays};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;

/// Changes that are kept with all that is known of them; further ones are counted.
pub const CHANGES_KEPT: usize = 64;

/// The counts of one life's threads. Those of threads that have gone stay, as one sum.
#[derive(Default, Debug)]
pub struct NodeDelays(Mutex<Counted>);

#[derive(Default, Debug)]
struct Counted {
    threads: Vec<Arc<ThreadDelays>>,
    /// Those of threads that have gone, as far as that was noticed, in one.
    gone: Delays,
}

impl NodeDelays {
    /// For a further thread.
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

    /// All of its threads' so far.
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

/// A change of the length that the manager asked for and that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adjustment {
    /// When it was asked for, by the manager's clock.
    pub asked: Nanos,
    /// From this length.
    pub from_ns: u32,
    /// To this one.
    pub to_ns: u32,
    /// From then until the last life that counts had acknowledged the second word, by the manager's clock.
    pub took: Nanos,
    /// What it was decided by.
    pub reads: u64,
    /// Those of them in lease.
    pub in_lease: u64,
}

/// What managers did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Adjustments {
    /// How often one has looked at what was counted.
    pub looks: u64,
    /// Changes that have come.
    pub count: u64,
    /// The first of them.
    pub first: Vec<Adjustment>,
    /// The longest that one took, in nanoseconds.
    pub longest_ns: u64,
    /// Members that were expelled for their clocks, in order.
    pub clocks: Vec<NodeId>,
}

/// See the module's text.
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

    /// A life counts its readers from now on.
    pub(crate) fn count_readers(&self, readers: &Arc<NodeReaders>) {
        let mut nodes = self.readers.lock().expect("no panic under this lock");
        nodes.retain(|_, readers| readers.strong_count() > 0);
        nodes.insert(readers.id, Arc::downgrade(readers));
    }

    /// Whom a life of this process counts as reading; `None` of one that counts nobody, or is gone.
    pub fn readers(&self, node: NodeId) -> Option<Arc<NodeReaders>> {
        self.readers.lock().expect("no panic under this lock").get(&node)?.upgrade()
    }

    /// What a life of this process has counted; `None` of one that is gone.
    pub fn delays(&self, node: NodeId) -> Option<Delays> {
        let nodes = self.nodes.lock().expect("no panic under this lock");
        let delays = nodes.get(&node)?.upgrade()?;
        Some(delays.snapshot())
    }

    /// Nothing of a life is there any more.
    pub(crate) fn leave(&self, delays: &NodeDelays) {
        self.gone.lock().expect("no panic under this lock").add(&delays.snapshot());
    }

    /// What lives have counted of which nothing is there any more.
    pub fn gone(&self) -> Delays {
        self.gone.lock().expect("no panic under this lock").clone()
    }

    /// What managers have done so far.
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

    /// Ten thousand threads, of which two are there at any time.
    #[test]
    fn threads_that_have_gone_leave_their_sum_and_nothing_else() {
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
