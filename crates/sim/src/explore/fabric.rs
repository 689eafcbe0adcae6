//! The explored cluster, as a model sees it.
//!
//! Invariant: outside of a poll of a coroutine the cluster is at rest, and rounds are executed
//! immediately. Clones of an `ExploreFabric` name the same cluster.

use super::backend::ExploreBackend;
use super::report::{Mark, Summary};
use super::world::World;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::port::Port;

/// An explored cluster. Clones name the same cluster.
#[derive(Clone)]
pub struct ExploreFabric {
    world: Rc<World>,
}

impl ExploreFabric {
    pub(crate) fn new(world: Rc<World>) -> ExploreFabric {
        ExploreFabric { world }
    }

    /// Returns the nodes of each replica group, primary first.
    pub fn groups(&self) -> Vec<Vec<NodeSlot>> {
        self.world.machine.borrow().memory.groups()
    }

    /// Returns a thread's port. `thread` is the number of the thread at its compute node.
    ///
    /// # Panics
    /// If the cluster has no compute node `node`.
    pub fn port(&self, node: NodeId, thread: u16, seed: u64) -> Port {
        let nodes = self.world.machine.borrow().config.compute_nodes;
        assert!(usize::from(node.slot.0) < nodes, "compute node {node} of a cluster of {nodes}");
        Port::new(Box::new(ExploreBackend::new(Rc::clone(&self.world), node, thread)), seed)
    }

    /// Begins a transaction of the coroutine that awaits this future. The scheduler chooses when the
    /// transaction begins, relative to the ends of other transactions. The explorer takes the first
    /// `begin` of an actor together with the actor's start.
    pub fn begin(&self) -> Begin {
        Begin { fabric: self.clone() }
    }

    /// Records that the coroutine's transaction has ended. The caller of the transaction has learned
    /// its result.
    pub fn end(&self) {
        self.world.machine.borrow_mut().mark(Mark::Ended);
    }

    /// Sets the name of the coroutine's next phase. Traces show the name of the phase.
    pub fn phase(&self, phase: &'static str) {
        let machine = &mut *self.world.machine.borrow_mut();
        if let Some(actor) = machine.current {
            machine.actors[usize::from(actor)].phase = phase;
        }
    }

    /// Registers an object outside of the cluster's memory that coroutines of several nodes share,
    /// and gives a digest of its contents. The explorer treats each poll of a coroutine as an
    /// observation of the object. The registration of the object holds for one execution only, so
    /// call this function in `build`.
    pub fn share(&self, digest: impl Fn() -> u64 + 'static) {
        self.world.share(None, Box::new(digest));
    }

    /// Registers a digest of the remains of a compute node's coroutines. The remains are everything
    /// that the judge sees of the coroutines' work, except stamps. Once all coroutines of the node
    /// have stopped, the digest of the remains replaces their observations in the digest of the
    /// state. A judge that calls [`End::post_mortem`] sees more than the remains. The registration of
    /// the digest holds for one execution only, so call this function in `build`.
    pub fn remains(&self, digest: impl Fn(NodeId) -> u64 + 'static) {
        self.world.remains(Box::new(digest));
    }

    /// Registers the state that `node` keeps in its local memory for coroutines of several nodes, and
    /// gives a digest of the whole state. A coroutine counts as an observer of a part only if it
    /// reports that it has read the part ([`Port::looked_at`]). A coroutine that changes a part must
    /// report the change. The registration of the state holds for one execution only, so call this
    /// function in `build`.
    pub fn keep(&self, node: NodeId, digest: impl Fn() -> u64 + 'static) {
        self.world.keep(node.slot, Box::new(digest));
    }

    /// Like [`ExploreFabric::share`], but only coroutines of these compute nodes observe the object.
    /// Any coroutine may change the object.
    pub fn share_with(&self, nodes: &[NodeId], digest: impl Fn() -> u64 + 'static) {
        self.world.share(Some(nodes.to_vec()), Box::new(digest));
    }
}

/// The future that [`ExploreFabric::begin`] returns.
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

/// A final state, for the judge. In a final state every live coroutine has ended or waits forever.
pub struct End<'a> {
    /// A summary of the execution: how the actors ended, which faults happened, and in which order
    /// transactions began and ended.
    pub summary: &'a Summary,
    cluster: &'a ExploreFabric,
}

impl<'a> End<'a> {
    pub(crate) fn new(summary: &'a Summary, cluster: &'a ExploreFabric) -> End<'a> {
        End { summary, cluster }
    }

    /// Returns a port of the cluster at rest, for an audit. `node` must be a compute node whose access
    /// was not revoked.
    pub fn port(&self, node: NodeId, thread: u16, seed: u64) -> Port {
        self.cluster.port(node, thread, seed)
    }

    /// Returns the cluster at rest.
    pub fn cluster(&self) -> &ExploreFabric {
        self.cluster
    }

    /// Lets the coroutines of dead nodes run to their end. Every round of a dead node's coroutine
    /// ends in `Fenced`, and none of its verbs reaches memory. So the recorder also receives the last
    /// transactions of dead nodes.
    pub fn post_mortem(&self) {
        self.cluster.world.post_mortem();
    }
}
