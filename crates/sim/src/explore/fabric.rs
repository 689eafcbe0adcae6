//! The explored cluster as a model holds it.
//!
//! Invariant: outside of a coroutine that is being polled the cluster is at rest: rounds are done at
//! once. Clones name the same cluster.

use super::report::Summary;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::port::Port;

/// See the module's text.
#[derive(Clone)]
pub struct ExploreFabric {}

impl ExploreFabric {
    /// The nodes of each replica group, primary first.
    pub fn groups(&self) -> Vec<Vec<NodeSlot>> {
        unimplemented!("the search follows in the next commits")
    }

    /// A thread's port; `thread` numbers the threads of one compute node.
    ///
    /// # Panics
    /// If the cluster has no such compute node.
    pub fn port(&self, _node: NodeId, _thread: u16, _seed: u64) -> Port {
        unimplemented!("the search follows in the next commits")
    }

    /// Begins a transaction of the coroutine that awaits this: when that happens is the scheduler's to
    /// choose, in relation to the ends of others. The first of an actor is part of its start.
    pub fn begin(&self) -> Begin {
        Begin { fabric: self.clone() }
    }

    /// The caller of the coroutine's transaction is told how it ended.
    pub fn end(&self) {
        unimplemented!("the search follows in the next commits")
    }

    /// What the coroutine does next, for traces.
    pub fn phase(&self, _phase: &'static str) {}

    /// Registers an object outside of the cluster's memory that coroutines of several nodes share, by a
    /// digest of what it holds. Each poll is taken to observe it. For one execution: call it in `build`.
    pub fn share(&self, _digest: impl Fn() -> u64 + 'static) {
        unimplemented!("the search follows in the next commits")
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
        let _ = &self.fabric;
        unimplemented!("the search follows in the next commits")
    }
}

/// A final state, for the judge: every live coroutine has ended or waits for ever.
pub struct End<'a> {
    /// How the actors ended, what broke, and the order of beginnings and ends.
    pub summary: &'a Summary,
    cluster: &'a ExploreFabric,
}

impl End<'_> {
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
        unimplemented!("the search follows in the next commits")
    }
}
