//! Actors: a coroutine, its thread, and the event after which the coroutine may start.
//!
//! Invariant: the state of a coroutine is a function of its observations. The coroutine observes the
//! results of its rounds, its messages, and the digests of registered objects. A coroutine keeps
//! nothing from one execution to the next.

use std::future::Future;
use std::pin::Pin;
use tarn_fabric::address::{NodeId, NodeSlot};

pub(crate) type Coroutine = Pin<Box<dyn Future<Output = ()>>>;

/// One coroutine of a model. Coroutines of one compute node share its local memory, so the explorer
/// chooses the order in which they are polled.
pub struct Actor {
    pub(crate) name: String,
    pub(crate) node: NodeId,
    pub(crate) thread: u16,
    pub(crate) trigger: Option<Trigger>,
    pub(crate) is_spared: bool,
    pub(crate) coroutine: Coroutine,
}

impl Actor {
    /// Creates a coroutine that runs on `thread` of `node` and uses the port of that thread. The
    /// coroutine may start at any time.
    pub fn new(
        name: impl Into<String>,
        node: NodeId,
        thread: u16,
        coroutine: impl Future<Output = ()> + 'static,
    ) -> Actor {
        let coroutine = Box::pin(coroutine);
        Actor { name: name.into(), node, thread, trigger: None, is_spared: false, coroutine }
    }

    /// Makes the actor start only after the event `trigger`.
    #[must_use]
    pub fn after(mut self, trigger: Trigger) -> Actor {
        self.trigger = Some(trigger);
        self
    }

    /// Protects the actor's compute node from faults: the node neither dies nor is declared dead,
    /// whatever the budget of faults.
    #[must_use]
    pub fn spared(mut self) -> Actor {
        self.is_spared = true;
        self
    }
}

/// The event after which a conditional actor may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// The compute node has died or was declared dead.
    Lost(NodeId),
    /// The memory node has died.
    MemoryLost(NodeSlot),
}

/// A fault that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A compute node died.
    Died(NodeId),
    /// A compute node was declared dead and continues to run.
    DeclaredDead(NodeId),
    /// A memory node died.
    MemoryDied(NodeSlot),
    /// A datagram was lost on its way to this node.
    MessageLost(NodeSlot),
    /// A datagram to this node will arrive a second time.
    MessageDoubled(NodeSlot),
}
