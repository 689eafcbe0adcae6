//! Service nodes, which answer calls by handlers on processors of their own.
//!
//! Invariant: a node has a fixed number of cores, and each core does one thing at a time. A request
//! waits in the queue of the core that its caller chose. The chosen core receives the request, hands it
//! to the handler, executes the handler and sends the reply. Each step costs the time that the profile
//! gives, and the handler costs the time that it charges to its port. A core takes its next request
//! when it has finished the current one. So a node's capacity is the number of cores divided by the
//! cost of a request, and a request to a busy core waits.
//!
//! A call uses the protocol of [`tarn_fabric::rpc`]. So the same code of a timestamp or control service
//! runs in the simulator, on threads and on a network. The endpoint of the caller determines the core
//! that gets the caller's requests, as in the receive side of a NIC.

use crate::config::ConfigError;
use crate::fabric::SimFabric;
use crate::scheduler::Scheduler;
use std::cell::Cell;
use std::rc::Rc;
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Endpoint;
use tarn_fabric::port::Port;
use tarn_fabric::rpc::{Answer, HandlerId, Peer, Request, Rpc, RpcConfig};

/// The purpose of a service node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeKind {
    /// A node that runs coordinators.
    Compute,
    /// A node that gives out timestamps.
    Timestamp,
    /// A node that keeps views and leases, or answers calls for a memory node.
    Control,
    /// Runs a program on packets, half-way between the nodes. A switch has no processors and no NIC.
    Switch,
}

impl NodeKind {
    /// Returns the name under which reports print the purpose.
    pub fn name(self) -> &'static str {
        match self {
            NodeKind::Compute => "compute node",
            NodeKind::Timestamp => "timestamp node",
            NodeKind::Control => "control node",
            NodeKind::Switch => "switch",
        }
    }
}

/// The shape of a service node.
#[derive(Clone, Copy, Debug)]
pub struct ServiceConfig {
    /// The purpose of the node. The purpose must not be [`NodeKind::Compute`] or [`NodeKind::Switch`].
    pub kind: NodeKind,
    /// The number of cores. Each core has its own queue.
    pub cores: u16,
    /// The largest number of datagrams that a core takes before it sends the replies with one doorbell.
    pub datagrams_a_poll: usize,
    /// The configuration of the calls. Callers must use the same configuration.
    pub rpc: RpcConfig,
}

impl ServiceConfig {
    /// Creates a shape that lets a core take up to sixteen datagrams before the core replies.
    pub fn new(kind: NodeKind, cores: u16) -> ServiceConfig {
        ServiceConfig { kind, cores, datagrams_a_poll: 16, rpc: RpcConfig::default() }
    }
}

const CORES_MAX: u64 = 1024;

/// A node that answers calls.
pub struct ServiceNode {
    node: NodeId,
    config: ServiceConfig,
    cores: Vec<Rpc>,
    stopped: Rc<Cell<bool>>,
}

impl ServiceNode {
    /// Adds a node to the cluster. Call this function before the first reading of the cluster's usage.
    ///
    /// # Errors
    /// The shape is impossible. The error names the field, its value and the allowed values.
    pub fn new(fabric: &SimFabric, config: ServiceConfig) -> Result<ServiceNode, ConfigError> {
        check("kind", config.kind as u64, 1, NodeKind::Control as u64)?;
        check("cores", config.cores.into(), 1, CORES_MAX)?;
        check("datagrams_a_poll", config.datagrams_a_poll as u64, 1, u64::MAX)?;
        let node = fabric.world.borrow_mut().add_node(config.kind)?;
        let core = |core| Rpc::new(fabric.port(node, core, 0), config.rpc);
        let cores = (0..config.cores).map(core).collect();
        Ok(ServiceNode { node, config, cores, stopped: Rc::default() })
    }

    /// Returns the node's name.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the node's shape.
    pub fn config(&self) -> &ServiceConfig {
        &self.config
    }

    /// Returns the port of a core, for work other than answering calls.
    ///
    /// # Panics
    /// If the node has no core with this number.
    pub fn port(&self, core: u16) -> &Port {
        self.cores[usize::from(core)].port()
    }

    /// Returns the core to which this caller's requests go.
    pub fn peer_of(&self, caller: Endpoint) -> Peer {
        let place =
            tarn_fabric::rng::mix(u64::from(caller.node.0) << 16 | u64::from(caller.thread));
        Peer { node: self.node, thread: (place % u64::from(self.config.cores)) as u16 }
    }

    /// Sets the handler of each core for `id`. `make` gets the core's port, and the handler charges its
    /// work to that port.
    pub fn register<H>(&self, id: HandlerId, mut make: impl FnMut(Port) -> H)
    where
        H: FnMut(Request<'_>, &mut Vec<u8>) -> Answer + 'static,
    {
        for core in &self.cores {
            core.register(id, make(core.port().clone()));
        }
    }

    /// Runs the cores until [`ServiceNode::stop`]. A caller may start the node again after an earlier
    /// run has ended.
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

    /// Stops the node. Each core's coroutine ends when it next reads the stop flag.
    pub fn stop(&self) {
        self.stopped.set(true);
    }

    /// Returns the number of requests that were handed to handlers.
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
