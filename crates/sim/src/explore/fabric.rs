//! The explored cluster as a model holds it.
//!
//! Invariant: outside of a coroutine that is being polled the cluster is at rest: rounds are done at
//! once. Clones name the same cluster.

use super::backend::ExploreBackend;
use super::report::{Mark, Summary};
use super::world::World;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::port::Port;

/// See the module's text.
#[derive(Clone)]
pub struct ExploreFabric {
    world: Rc<World>,
}

impl ExploreFabric {
    pub(crate) fn new(world: Rc<World>) -> ExploreFabric {
        ExploreFabric { world }
    }

    /// The nodes of each replica group, primary first.
    pub fn groups(&self) -> Vec<Vec<NodeSlot>> {
        self.world.machine.borrow().memory.groups()
    }

    /// A thread's port; `thread` numbers the threads of one compute node.
    ///
    /// # Panics
    /// If the cluster has no such compute node.
    pub fn port(&self, node: NodeId, thread: u16, seed: u64) -> Port {
        let nodes = self.world.machine.borrow().config.compute_nodes;
        assert!(usize::from(node.slot.0) < nodes, "{node} of a cluster of {nodes} compute nodes");
        Port::new(Box::new(ExploreBackend::new(Rc::clone(&self.world), node, thread)), seed)
    }

    /// Begins a transaction of the coroutine that awaits this: when that happens is the scheduler's to
    /// choose, in relation to the ends of others. The first of an actor is part of its start.
    pub fn begin(&self) -> Begin {
        Begin { fabric: self.clone() }
    }

    /// The caller of the coroutine's transaction is told how it ended.
    pub fn end(&self) {
        self.world.machine.borrow_mut().mark(Mark::Ended);
    }

    /// What the coroutine does next, for traces.
    pub fn phase(&self, phase: &'static str) {
        let machine = &mut *self.world.machine.borrow_mut();
        if let Some(actor) = machine.current {
            machine.actors[usize::from(actor)].phase = phase;
        }
    }

    /// Registers an object outside of the cluster's memory that coroutines of several nodes share, by a
    /// digest of what it holds. Each poll is taken to observe it. For one execution: call it in `build`.
    pub fn share(&self, digest: impl Fn() -> u64 + 'static) {
        self.world.share(None, Box::new(digest));
    }

    /// Registers a digest of all that the judge sees of what the coroutines of a compute node have left, but
    /// for stamps: once none of them runs any more it stands for all that they observed. A judge who asks
    /// for [`End::post_mortem`] sees more. For one execution: call it in `build`.
    pub fn remains(&self, digest: impl Fn(NodeId) -> u64 + 'static) {
        self.world.remains(Box::new(digest));
    }

    /// Registers what `node` keeps in its local memory for coroutines of several nodes, by a digest of all of it.
    /// Nobody is taken to observe it but who says so, part by part
    /// ([`Port::looked_at`]); whoever changes it must say so too. For one execution: call it in `build`.
    pub fn keep(&self, node: NodeId, digest: impl Fn() -> u64 + 'static) {
        self.world.keep(node.slot, Box::new(digest));
    }

    /// As [`ExploreFabric::share`], of an object that only coroutines of these compute nodes look at,
    /// whoever changes it.
    pub fn share_with(&self, nodes: &[NodeId], digest: impl Fn() -> u64 + 'static) {
        self.world.share(Some(nodes.to_vec()), Box::new(digest));
    }
}

/// See [`ExploreFabric::begin`].
#[must_use = "a transaction begins when this is awaited"]
pub struct Begin {
    fabric: ExploreFabric,
}

impl Future for Begin {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let machine = &mut *self.fabric.world.machine.borrow_mut();
        let may_pass = machine.is_detached || machine.current.is_none();
        if may_pass || std::mem::take(&mut machine.gate_open) {
            machine.mark(Mark::Began);
            return Poll::Ready(());
        }
        machine.polled.at_gate = true;
        Poll::Pending
    }
}

/// A final state, for the judge: every live coroutine has ended or waits for ever.
pub struct End<'a> {
    /// How the actors ended, what broke, and the order of beginnings and ends.
    pub summary: &'a Summary,
    cluster: &'a ExploreFabric,
}

impl<'a> End<'a> {
    pub(crate) fn new(summary: &'a Summary, cluster: &'a ExploreFabric) -> End<'a> {
        End { summary, cluster }
    }

    /// A port of the cluster at rest, for an audit: a node that was not revoked.
    pub fn port(&self, node: NodeId, thread: u16, seed: u64) -> Port {
        self.cluster.port(node, thread, seed)
    }

    /// The cluster at rest.
    pub fn cluster(&self) -> &ExploreFabric {
        self.cluster
    }

    /// Lets the coroutines of dead nodes run to their end, with every round answered `Fenced` and
    /// nothing reaching memory: what they would have recorded of their last transaction is recorded.
    pub fn post_mortem(&self) {
        self.cluster.world.post_mortem();
    }
}
