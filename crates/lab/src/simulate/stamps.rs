//! Timestamps of a simulated cluster: their sources, and the node that serves them.
//!
//! Invariant: each source gives timestamps above all timestamps that are in memory. Phases on the
//! same memory may have different sources, because the process's counter learns the timestamps of
//! one phase before the next phase begins. Only the process's counter takes no time. Every source
//! except the process's counter needs verbs, messages, or waiting.

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
        /// A counter that all nodes share and that takes no time: public code of Motor's kind has
        /// such a counter in each process.
        Counter = "counter",
        /// A service on a node of its own in the compute pool; clients send it messages.
        Service = "service",
        /// A word of a memory node: a transaction reads it with a READ at its start and increments
        /// it with a FETCH_AND_ADD at its commit.
        Pool = "pool",
        /// Each node's own clock; the node waits until the clock's uncertainty is over.
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

/// The service's node: the node joins with one incarnation, which serves all phases.
pub struct StampNode {
    node: ServiceNode,
    id: NodeId,
    service: StampService,
}

impl StampNode {
    /// Lets the node join the cluster, with a slot number after those of the compute nodes.
    ///
    /// # Errors
    /// The cluster has no slot left for the node.
    pub fn new(
        fabric: &SimFabric,
        database: &Database,
        slot: usize,
    ) -> Result<StampNode, UsageError> {
        let id = database.membership.join(NodeSlot(slot as u16))?;
        // The node runs no transaction, so it retires from the membership and no other node waits
        // for its locks.
        database.membership.retire(id);
        let node = ServiceNode::new(fabric, Cores::new(NodeKind::Timestamp, CORES));
        let node = node.map_err(refused)?;
        assert_eq!(node.node(), id, "the first service node comes behind the compute nodes");
        let service = StampService::new(ServiceConfig::default());
        node.register(STAMP, |port| service.handler(port));
        Ok(StampNode { node, id, service })
    }

    /// Serves timestamps in this phase, until `is_over`.
    ///
    /// # Errors
    /// A value that cannot be used; the error names this value.
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

/// Sets the pool's timestamp word, at rest, before the pool serves timestamps, so that the word
/// continues after the timestamps in memory. (The timestamp service continues after the timestamps
/// in memory by itself, and clocks are far ahead of the timestamps in memory.)
///
/// # Errors
/// The errors that the fabric reports.
pub(super) fn raise_pool(cx: &Context) -> Result<(), Box<FabricError>> {
    let word = cx.groups.primary(pool_word());
    let given = cx.database().counter.last().0 - Timestamp::LOADED.0;
    let mut round = Round::new();
    let at = round.reserve(8);
    round.set_word(at, given);
    round.write(word, at, 8);
    block_on(cx.port.execute(&mut round))
}
