//! What runs: coroutines with a place, and when they may start.
//!
//! Invariant: a coroutine is a function of what it observed: results of its rounds, messages, the
//! digests of registered objects. It keeps nothing from one execution to the next.

use std::future::Future;
use std::pin::Pin;
use tarn_fabric::address::{NodeId, NodeSlot};

pub(crate) type Coroutine = Pin<Box<dyn Future<Output = ()>>>;

/// One coroutine of a model. Coroutines of one compute node share its local memory: who of them is
/// polled first is then a choice.
pub struct Actor {
    pub(crate) name: String,
    pub(crate) node: NodeId,
    pub(crate) thread: u16,
    pub(crate) trigger: Option<Trigger>,
    pub(crate) is_spared: bool,
    pub(crate) coroutine: Coroutine,
}

impl Actor {
    /// A coroutine of `thread` of `node`, the thread whose port it uses; it may start at any time.
    pub fn new(
        name: impl Into<String>,
        node: NodeId,
        thread: u16,
        coroutine: impl Future<Output = ()> + 'static,
    ) -> Actor {
        let coroutine = Box::pin(coroutine);
        Actor { name: name.into(), node, thread, trigger: None, is_spared: false, coroutine }
    }

    /// It may start only after this has happened.
    #[must_use]
    pub fn after(mut self, trigger: Trigger) -> Actor {
        self.trigger = Some(trigger);
        self
    }

    /// Its compute node neither dies nor is declared dead, whatever the budget.
    #[must_use]
    pub fn spared(mut self) -> Actor {
        self.is_spared = true;
        self
    }
}

/// What a conditional actor waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// The compute node has died or was declared dead.
    Lost(NodeId),
    /// The memory node has died.
    MemoryLost(NodeSlot),
}

/// What broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A compute node died.
    Died(NodeId),
    /// A compute node was declared dead and goes on.
    DeclaredDead(NodeId),
    /// A memory node died.
    MemoryDied(NodeSlot),
    /// A datagram was lost on its way to this node.
    MessageLost(NodeSlot),
    /// A datagram to this node arrives once more.
    MessageDoubled(NodeSlot),
}
