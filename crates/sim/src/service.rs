//! Service nodes: nodes that answer calls by handlers, on processors of their own.
//!
//! Invariant: a node has a fixed number of cores, and each core does one thing at a time. A request
//! waits in the queue of the core that its caller chose. It is received, handed over and handled there,
//! and its reply leaves from there. Each step costs as much as the profile says, and the handler as
//! much as it charges to its port. The next request begins when the core is through. So a node's
//! capacity is cores over cost, and a request to a busy core waits.
//!
//! Calls are those of [`tarn_fabric::rpc`]. So a timestamp or control service is written once and runs
//! here, on threads and on a network. The caller's endpoint decides the core of its requests, as in the
//! receive side of a NIC.

use crate::config::ConfigError;
use crate::fabric::SimFabric;
use crate::scheduler::Scheduler;
use std::cell::Cell;
use std::rc::Rc;
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Endpoint;
use tarn_fabric::port::Port;
use tarn_fabric::rpc::{Answer, HandlerId, Peer, Request, Rpc, RpcConfig};

/// The purpose of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeKind {
    /// Runs coordinators.
    Compute,
    /// Gives out timestamps.
    Timestamp,
    /// Keeps views and leases, or answers for a memory node.
    Control,
}

impl NodeKind {
    /// The name that is printed.
    pub fn name(self) -> &'static str {
        match self {
            NodeKind::Compute => "compute node",
            NodeKind::Timestamp => "timestamp node",
            NodeKind::Control => "control node",
        }
    }
}

/// A service node's shape.
#[derive(Clone, Copy, Debug)]
pub struct ServiceConfig {
    /// The purpose; not [`NodeKind::Compute`].
    pub kind: NodeKind,
    /// Number of cores, each with a queue.
    pub cores: u16,
    /// Datagrams that a core takes before it sends the replies with one doorbell.
    pub datagrams_a_poll: usize,
    /// Configuration of the calls; callers use the same.
    pub rpc: RpcConfig,
}

impl ServiceConfig {
    /// Creates a shape that takes up to sixteen datagrams before it replies.
    pub fn new(kind: NodeKind, cores: u16) -> ServiceConfig {
        ServiceConfig { kind, cores, datagrams_a_poll: 16, rpc: RpcConfig::default() }
    }
}

const CORES_MAX: u64 = 1024;

/// See the module's documentation.
pub struct ServiceNode {
    node: NodeId,
    config: ServiceConfig,
    cores: Vec<Rpc>,
    stopped: Rc<Cell<bool>>,
}

impl ServiceNode {
    /// Adds a node to the cluster. Call this before the first reading of the cluster's usage.
    ///
    /// # Errors
    /// The shape is impossible: the field, its value, the allowed values.
    pub fn new(fabric: &SimFabric, config: ServiceConfig) -> Result<ServiceNode, ConfigError> {
        check("kind", config.kind as u64, 1, NodeKind::Control as u64)?;
        check("cores", config.cores.into(), 1, CORES_MAX)?;
        check("datagrams_a_poll", config.datagrams_a_poll as u64, 1, u64::MAX)?;
        let node = fabric.world.borrow_mut().add_node(config.kind)?;
        let core = |core| Rpc::new(fabric.port(node, core, 0), config.rpc);
        let cores = (0..config.cores).map(core).collect();
        Ok(ServiceNode { node, config, cores, stopped: Rc::default() })
    }

    /// The node's name.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The node's shape.
    pub fn config(&self) -> &ServiceConfig {
        &self.config
    }

    /// The port of a core, for work other than answering.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn port(&self, core: u16) -> &Port {
        self.cores[usize::from(core)].port()
    }

    /// The core to which this caller's requests go.
    pub fn peer_of(&self, caller: Endpoint) -> Peer {
        let place =
            tarn_fabric::rng::mix(u64::from(caller.node.0) << 16 | u64::from(caller.thread));
        Peer { node: self.node, thread: (place % u64::from(self.config.cores)) as u16 }
    }

    /// Sets the handler of each core for `id`; `make` gets the core's port, to which the handler
    /// charges its work.
    pub fn register<H>(&self, id: HandlerId, mut make: impl FnMut(Port) -> H)
    where
        H: FnMut(Request<'_>, &mut Vec<u8>) -> Answer + 'static,
    {
        for core in &self.cores {
            core.register(id, make(core.port().clone()));
        }
    }

    /// Runs the cores until [`ServiceNode::stop`]. It may be called again once an earlier run has
    /// ended.
    pub fn start(&self, scheduler: &mut Scheduler<'_>) {
        self.stopped.set(false);
        for core in &self.cores {
            let (rpc, stopped) = (core.clone(), Rc::clone(&self.stopped));
            let datagrams = self.config.datagrams_a_poll;
            scheduler.spawn(core.port(), async move {
                while !stopped.get() {
                    while rpc.poll(datagrams) > 0 {}
                    rpc.port().yield_now().await;
                }
            });
        }
    }

    /// Stops the node: each core's coroutine ends when it next looks.
    pub fn stop(&self) {
        self.stopped.set(true);
    }

    /// The number of requests that were handed to handlers.
    pub fn executed(&self) -> u64 {
        self.cores.iter().map(|core| core.stats().executed).sum()
    }
}

fn check(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ConfigError { field, value: value.to_string(), allowed: format!("{least} to {most}") })
}
