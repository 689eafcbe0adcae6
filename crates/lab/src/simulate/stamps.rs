//! Timestamps of a simulated cluster: their sources, and the node that gives them out.
//!
//! Invariant: each source gives timestamps above all that are in memory. Phases of one memory may have different sources;
//! the process's counter knows the timestamps of one phase before the next one begins. Only that counter costs nothing;
//! every other source is asked by verbs or messages, or waited for.

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

/// Cores of the service's machine: as many as those of LOTUS's testbed have (two processors of eight).
const CORES: u16 = 16;

named! {
    /// Where timestamps come from.
    pub enum Source {
        /// A counter that all nodes share and that costs nothing: public code of Motor's kind has one in each process.
        Counter = "counter",
        /// A service on a node of its own in the compute pool, by messages.
        Service = "service",
        /// A word of a memory node: a READ to start, a FETCH_AND_ADD to commit.
        Pool = "pool",
        /// Each node's clock, whose uncertainty is waited out.
        Clock = "clock",
    }
}

impl Source {
    /// The default of a cluster: no source that one process alone has, if nodes are to agree.
    pub fn of(protocol: &AnyProtocol, compute_nodes: usize) -> Source {
        match protocol.needs().timestamps && compute_nodes > 1 {
            true => Source::Service,
            false => Source::Counter,
        }
    }
}

/// The service's node: one life, of which each phase has a part.
pub struct StampNode {
    node: ServiceNode,
    id: NodeId,
    service: StampService,
}

impl StampNode {
    /// Joins the cluster behind its compute nodes.
    ///
    /// # Errors
    /// When there is no slot left for it.
    pub fn new(
        fabric: &SimFabric,
        database: &Database,
        slot: usize,
    ) -> Result<StampNode, UsageError> {
        let id = database.membership.join(NodeSlot(slot as u16))?;
        // It runs no transaction, so that nothing of it rests on anybody's locks.
        database.membership.retire(id);
        let node = ServiceNode::new(fabric, Cores::new(NodeKind::Timestamp, CORES));
        let node = node.map_err(refused)?;
        assert_eq!(node.node(), id, "the first service node comes behind the compute nodes");
        let service = StampService::new(ServiceConfig::default());
        node.register(STAMP, |port| service.handler(port));
        Ok(StampNode { node, id, service })
    }

    /// Serves in this phase, until `is_over`.
    ///
    /// # Errors
    /// Names the value that cannot be used.
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
    /// Has a thread take its timestamps from a source.
    pub(super) fn set_timestamps(&self, cx: &mut Context, source: Source) {
        let config = ClientConfig { cores: CORES, ..ClientConfig::default() };
        cx.timestamps = match source {
            Source::Counter => Timestamps::Counter,
            Source::Pool => Timestamps::Pool(pool_word()),
            Source::Clock => Timestamps::Clock(ClockStamps::default()),
            Source::Service => {
                // All datagrams of a port are one layer's.
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

/// Sets the pool's word, at rest, before timestamps come from it: the word counts on behind the timestamps in memory. (A service sees to
/// that itself, and clocks are far ahead.)
///
/// # Errors
/// The fabric's.
pub(super) fn raise_pool(cx: &Context) -> Result<(), Box<FabricError>> {
    let word = cx.groups.primary(pool_word());
    let given = cx.database().counter.last().0 - Timestamp::LOADED.0;
    let mut round = Round::new();
    let at = round.reserve(8);
    round.set_word(at, given);
    round.write(word, at, 8);
    block_on(cx.port.execute(&mut round))
}
