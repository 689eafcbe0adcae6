//! The cluster of an outage: memory with spares, leases, and coroutines that can die.
//!
//! Invariant: a coroutine of a crashed node is not polled again, and nothing of it is dropped before the
//! memory is judged: a process that dies runs no destructors.

use super::Plan;
use crate::cluster::OpenError;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Waiting, Poll};
use tarn_engine::cluster::membership::{EmbeddedMembership, LeaseTerms, Membership as _};
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::services::ServiceOptions;
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_sim::config::{Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::memory::Zeros;
use tarn_store::ids::UsageError;
use tarn_store::placement::catalog::Options;
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_workloads::workload::Workload;

/// How often a node asks for a new lease, of its length.
const RENEWALS_A_LEASE: f64 = 4.0;

type Body = Pin<Box<dyn Future<Output = ()>>>;

/// Where coroutines of crashed nodes lie.
pub(super) type Graveyard = Rc<RefCell<Vec<Body>>>;

/// A coroutine that dies with its node.
pub(super) struct Mortal {
    body: Option<Body>,
    is_dead: Rc<Cell<bool>>,
    graveyard: Graveyard,
}

impl Mortal {
    pub(super) fn new(body: Body, is_dead: &Rc<Cell<bool>>, graveyard: &Graveyard) -> Mortal {
        let (is_dead, graveyard) = (Rc::clone(is_dead), Rc::clone(graveyard));
        Mortal { body: Some(body), is_dead, graveyard }
    }
}

impl Future for Mortal {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<()> {
        if self.is_dead.get() {
            let body = self.body.take();
            self.graveyard.borrow_mut().extend(body);
            return Poll::Ready(());
        }
        let body = self.body.as_mut().expect("not polled after its end");
        body.as_mut().poll(waiting)
    }
}

/// See the module's text.
pub(super) struct Stage {
    pub(super) fabric: SimFabric,
    pub(super) database: Arc<Database>,
    pub(super) membership: Arc<EmbeddedMembership>,
    seed: u64,
    threads: u16,
    compute_nodes: usize,
}

impl Stage {
    /// Fresh memory, laid out.
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
        let fabric = SimFabric::with_spares(&config, Box::new(Zeros), shape.spare_nodes).map_err(
            |error| UsageError {
                field: error.field.replace('_', "-"),
                value: error.value,
                allowed: error.allowed,
            },
        )?;
        let groups = ReplicaGroups::new(fabric.groups());
        let membership = Arc::new(match shape.lease_ms > 0.0 {
            false => EmbeddedMembership::new(shape.compute_nodes),
            true => EmbeddedMembership::with_leases(shape.compute_nodes, terms(shape.lease_ms)),
        });
        let database =
            Arc::new(Database::new(catalog, groups, protocol, Arc::clone(&membership) as _));
        for spare in 0..shape.spare_nodes {
            let slot = NodeSlot((shape.memory_nodes + spare) as u16);
            database.configurations.add_spare(slot);
        }
        let (threads, compute_nodes) = (shape.threads as u16, shape.compute_nodes);
        Ok(Stage { fabric, database, membership, seed: plan.seed, threads, compute_nodes })
    }

    /// A compute node joins. Its slot's last life runs no coordinator any more: see [`Stage::is_free`].
    pub(super) fn join(&self, slot: u16) -> Result<Arc<ComputeNode>, UsageError> {
        let id = self.database.membership.join(NodeSlot(slot))?;
        let services = ServiceOptions::new(self.threads, self.compute_nodes);
        Ok(Arc::new(ComputeNode::serving(Arc::clone(&self.database), id, &services)?))
    }

    /// Whether all that a slot's lives left is recovered. One that has crashed is a member until that is
    /// noticed: whoever joined before would write over logs that are needed.
    pub(super) fn is_free(&self, slot: u16) -> bool {
        let is_unrecovered = |dead: NodeId| dead.slot.0 == slot;
        self.members_of(slot).is_empty()
            && !self.membership.unrecovered().into_iter().any(is_unrecovered)
    }

    /// In any slot that lives.
    pub(super) fn join_any(&self, slots: usize) -> Result<Arc<ComputeNode>, UsageError> {
        let lives = (0..slots as u16).find_map(|slot| self.join(slot).ok());
        lives.map_or_else(|| self.join(0), Ok)
    }

    /// A slot's lives that are members.
    pub(super) fn members_of(&self, slot: u16) -> Vec<NodeId> {
        let life =
            |incarnation| NodeId { slot: NodeSlot(slot), incarnation: Incarnation(incarnation) };
        let lives = (1..=LIVES_LOOKED_AT).map(life);
        lives.filter(|life| self.membership.is_member(*life)).collect()
    }

    /// A thread of it.
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

/// So many of a slot's lives are looked at: the loader's, and the one that crashes.
const LIVES_LOOKED_AT: u16 = 4;
/// Addresses that a thread remembers.
const ADDRESS_CACHE: usize = 0;

fn terms(lease_ms: f64) -> LeaseTerms {
    let lease_ns = (lease_ms * 1e6) as u64;
    let renew_every_ns = (lease_ms * 1e6 / RENEWALS_A_LEASE) as u64;
    LeaseTerms { lease_ns, renew_every_ns, drift_ppm: 0 }
}
