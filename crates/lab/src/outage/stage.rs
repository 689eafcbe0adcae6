//! Makes the cluster of an outage: memory nodes with spares, and compute nodes with leases.
//!
//! Invariant: the next incarnation of a slot can join only when the slot's last incarnation is expelled and
//! recovered.

use super::Plan;
use crate::harness::simulated;
use std::rc::Rc;
use std::sync::Arc;
use tarn::cluster::OpenError;
use tarn_engine::cluster::membership::{EmbeddedMembership, LeaseTerms, Membership as _};
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::services::ServiceOptions;
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_sim::config::{Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_store::ids::UsageError;
use tarn_store::placement::catalog::Options;
use tarn_workloads::workload::Workload;

/// The number of times that a node requests a new lease during the length of one lease.
const RENEWALS_A_LEASE: f64 = 4.0;

/// The simulated cluster of one outage.
pub(super) struct Stage {
    pub(super) fabric: SimFabric,
    pub(super) database: Arc<Database>,
    pub(super) membership: Arc<EmbeddedMembership>,
    seed: u64,
    threads: u16,
    compute_nodes: usize,
}

impl Stage {
    /// Makes a cluster with new memory, and lays out the workload's tables in it.
    pub(super) fn new<W: Workload>(workload: &W, plan: &Plan) -> Result<Stage, OpenError> {
        let shape = &plan.shape;
        let options = Options {
            coordinators_max: (shape.compute_nodes * shape.threads * shape.coroutines) as u32,
            ..workload.sized(&Options::default())
        };
        let protocol = AnyProtocol::by_name(&plan.protocol.0, &plan.protocol.1)?;
        let catalog = protocol.catalog(&workload.schemas(), &options, shape.memory_nodes)?;
        let config = SimConfig {
            memory_nodes: shape.memory_nodes,
            replicas: shape.replicas,
            compute_nodes: shape.compute_nodes,
            group_bytes: catalog.group_bytes(),
            profile: plan.profile.clone(),
            mode: Mode::Timed,
            seed: plan.seed,
        };
        let membership = Arc::new(match shape.lease_ms > 0.0 {
            false => EmbeddedMembership::new(shape.compute_nodes),
            true => EmbeddedMembership::with_leases(shape.compute_nodes, terms(shape.lease_ms)),
        });
        let planned = (protocol, catalog);
        let (fabric, database) = simulated::database(
            (&config, shape.spare_nodes),
            planned,
            Arc::clone(&membership) as _,
        )?;
        let (threads, compute_nodes) = (shape.threads as u16, shape.compute_nodes);
        Ok(Stage { fabric, database, membership, seed: plan.seed, threads, compute_nodes })
    }

    /// Lets a compute node join. The slot's last incarnation must not run any coordinator: see
    /// [`Stage::is_free`].
    pub(super) fn join(&self, slot: u16) -> Result<Arc<ComputeNode>, UsageError> {
        let id = self.database.membership.join(NodeSlot(slot))?;
        let services = ServiceOptions::new(self.threads, self.compute_nodes);
        Ok(Arc::new(ComputeNode::serving(Arc::clone(&self.database), id, &services)?))
    }

    /// Returns whether the logs of all incarnations of a slot are recovered. A crashed incarnation is a member until
    /// the crash is noticed. If a new incarnation joined before the crash was noticed, it would overwrite logs that
    /// the recovery needs.
    pub(super) fn is_free(&self, slot: u16) -> bool {
        let is_unrecovered = |dead: NodeId| dead.slot.0 == slot;
        self.members_of(slot).is_empty()
            && !self.membership.unrecovered().into_iter().any(is_unrecovered)
    }

    /// Lets a compute node join the cluster in any slot that is free.
    pub(super) fn join_any(&self, slots: usize) -> Result<Arc<ComputeNode>, UsageError> {
        let lives = (0..slots as u16).find_map(|slot| self.join(slot).ok());
        lives.map_or_else(|| self.join(0), Ok)
    }

    /// Returns the incarnations of a slot that are members.
    pub(super) fn members_of(&self, slot: u16) -> Vec<NodeId> {
        let life =
            |incarnation| NodeId { slot: NodeSlot(slot), incarnation: Incarnation(incarnation) };
        let lives = (1..=LIVES_LOOKED_AT).map(life);
        lives.filter(|life| self.membership.is_member(*life)).collect()
    }

    /// Makes the context of one thread of a compute node.
    pub(super) fn thread(
        &self,
        node: &Arc<ComputeNode>,
        thread: usize,
    ) -> Result<Rc<Context>, UsageError> {
        let thread = thread as u16;
        let port = self.fabric.port(node.id, thread, self.seed);
        Ok(Rc::new(Context::new(Arc::clone(node), port, thread, ADDRESS_CACHE)?))
    }
}

/// The number of a slot's incarnations that [`Stage::members_of`] checks, including the incarnation of the loader and
/// the incarnation that crashes.
const LIVES_LOOKED_AT: u16 = 4;
/// The number of addresses that a thread caches.
const ADDRESS_CACHE: usize = 0;

fn terms(lease_ms: f64) -> LeaseTerms {
    let lease_ns = (lease_ms * 1e6) as u64;
    let renew_every_ns = (lease_ms * 1e6 / RENEWALS_A_LEASE) as u64;
    LeaseTerms { lease_ns, renew_every_ns, drift_ppm: 0 }
}
