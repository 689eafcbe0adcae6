//! The sources of timestamps in a simulated cluster, and the node that serves timestamps.
//!
//! Invariant: each source gives timestamps above all timestamps that are in memory. Phases on the same memory may use
//! different sources, because the process's counter is raised above the timestamps of a phase before the next phase.
//! Only the process's counter takes no time. Every source except the process's counter needs verbs, messages, or
//! waiting.

use crate::harness::named::named;
use crate::harness::simulated::refused;
use crate::simulate::cluster::SimCluster;
use std::sync::Arc;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::requests::timestamp::{ServiceConfig, StampService, pool_word};
use tarn_engine::services::timestamp::STAMP;
use tarn_engine::services::timestamp::{ClientConfig, ClockStamps, StampClient, Timestamps};
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;
use tarn_fabric::round::Round;
use tarn_fabric::rpc::{Rpc, RpcConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::scheduler::Scheduler;
use tarn_sim::service::{NodeKind, ServiceConfig as Cores, ServiceNode};
use tarn_store::ids::{Timestamp, UsageError};

/// The number of cores of the service's machine: as many cores as each machine of LOTUS's testbed
/// has (two processors of eight cores).
const CORES: u16 = 16;

named! {
    /// The sources of timestamps.
    pub enum Source {
        /// A counter that all nodes share and that takes no time: the public code of systems like Motor has such a
        /// counter in each process.
        Counter = "counter",
        /// A timestamp service on a node of its own in the compute pool; clients send messages to this service.
        Service = "service",
        /// A word of a memory node. A transaction reads this word with a READ at its start, and increments it with a
        /// FETCH_AND_ADD at its commit.
        Pool = "pool",
        /// The clock of each node. A node that takes a timestamp from its clock waits until the timestamp is
        /// certainly in the past.
        Clock = "clock",
    }
}

impl Source {
    /// Returns the default source of a cluster. Several nodes that must agree on timestamps never
    /// get a source that only one process can use.
    pub fn of(protocol: &AnyProtocol, compute_nodes: usize) -> Source {
        match protocol.needs().timestamps && compute_nodes > 1 {
            true => Source::Service,
            false => Source::Counter,
        }
    }
}

/// The node that serves timestamps. The node joins the cluster once, and this incarnation serves all phases.
pub struct StampNode {
    node: ServiceNode,
    id: NodeId,
    service: StampService,
}

impl StampNode {
    /// Lets the node that serves timestamps join the cluster. Its slot number follows the slot numbers of the compute
    /// nodes.
    ///
    /// # Errors
    /// Fails if the cluster has no free slot for the node that serves timestamps.
    pub fn new(
        fabric: &SimFabric,
        database: &Database,
        slot: usize,
    ) -> Result<StampNode, UsageError> {
        let id = database.membership.join(NodeSlot(slot as u16))?;
        // The node that serves timestamps runs no transaction, so it retires from the membership and no other node
        // waits for its locks.
        database.membership.retire(id);
        let node = ServiceNode::new(fabric, Cores::new(NodeKind::Timestamp, CORES));
        let node = node.map_err(refused)?;
        assert_eq!(node.node(), id, "the first service node comes behind the compute nodes");
        let service = StampService::new(ServiceConfig::default());
        node.register(STAMP, |port| service.handler(port));
        Ok(StampNode { node, id, service })
    }

    /// Serves timestamps in this phase, until `is_over` returns true.
    ///
    /// # Errors
    /// Fails if a value cannot be used; the error names this value.
    pub fn start<'a>(
        &'a self,
        database: &Arc<Database>,
        scheduler: &mut Scheduler<'a>,
        is_over: impl Fn() -> bool + 'a,
    ) -> Result<(), UsageError> {
        let port = self.node.port(0);
        let compute = Arc::new(ComputeNode::new(Arc::clone(database), self.id));
        let cx = Context::new(compute, port.clone(), 0, 0)?;
        self.node.start(scheduler);
        scheduler.spawn(port, async move {
            self.service.run(&cx, || !is_over()).await;
            self.node.stop();
        });
        Ok(())
    }
}

impl SimCluster {
    /// Makes a thread take its timestamps from `source`.
    pub(super) fn set_timestamps(&self, cx: &mut Context, source: Source) {
        let config = ClientConfig { cores: CORES, ..ClientConfig::default() };
        cx.timestamps = match source {
            Source::Counter => Timestamps::Counter,
            Source::Pool => Timestamps::Pool(pool_word()),
            Source::Clock => Timestamps::Clock(ClockStamps::default()),
            Source::Service => {
                // All datagrams of one port must pass through the same message layer.
                let rpc = match cx.has_services() {
                    true => cx.rpc().clone(),
                    false => Rpc::new(cx.port.clone(), RpcConfig::default()),
                };
                Timestamps::Service(Box::new(StampClient::new(rpc, config)))
            }
        };
        cx.timestamps.observe(cx, self.database().counter.last());
    }
}

/// Sets the pool's timestamp word above all timestamps in memory, while no coordinator runs. (Other sources of
/// timestamps need no such step. The timestamp service begins above the timestamps in memory by itself, and clocks
/// are far ahead of these timestamps.)
///
/// # Errors
/// Returns the errors that the fabric reports.
pub(super) fn raise_pool(cx: &Context) -> Result<(), Box<FabricError>> {
    let word = cx.groups.primary(pool_word());
    let given = cx.database().counter.last().0 - Timestamp::LOADED.0;
    let mut round = Round::new();
    let at = round.reserve(8);
    round.set_word(at, given);
    round.write(word, at, 8);
    block_on(cx.port.execute(&mut round))
}
