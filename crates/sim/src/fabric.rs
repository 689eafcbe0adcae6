//! The simulated cluster, as its user sees it.
//!
//! Invariant: only one thread of the machine that runs the simulation uses a cluster. Clones of a
//! `SimFabric` name the same cluster. Groups are placed as in the local backend, so one catalog is
//! valid for the simulated cluster and for the local backend.

use crate::backend::SimBackend;
use crate::config::{ConfigError, SimConfig};
use crate::costs::Costs;
use crate::memory::{InitialContents, MemoryUse, Zeros};
use crate::observe::{Eyes, Observer};
use crate::profile::Profile;
use crate::service::NodeKind;
use crate::switch::{Program, Switch, SwitchConfig};
use crate::usage::Usage;
use crate::world::World;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::backend::Endpoint;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;

/// A simulated cluster. Clones name the same cluster.
#[derive(Clone)]
pub struct SimFabric {
    pub(crate) world: Rc<RefCell<World>>,
}

impl SimFabric {
    /// Creates a cluster whose memory is all zeros.
    ///
    /// # Errors
    /// The shape is impossible. The error names the field, its value and the allowed values.
    pub fn new(config: &SimConfig) -> Result<SimFabric, ConfigError> {
        SimFabric::with_contents(config, Box::new(Zeros))
    }

    /// Creates a cluster whose memory holds `initial` at all places that have not been written.
    ///
    /// # Errors
    /// The same errors as [`SimFabric::new`].
    pub fn with_contents(
        config: &SimConfig,
        initial: Box<dyn InitialContents>,
    ) -> Result<SimFabric, ConfigError> {
        SimFabric::with_spares(config, initial, 0)
    }

    /// Like [`SimFabric::with_contents`], but the cluster also has `spares` spare nodes. The slots of
    /// the spare nodes follow the slots of the memory nodes. A spare node is empty and has room for a
    /// copy of every group. A memory node that died returns as a spare node under a new slot. So verbs
    /// for the node's former incarnation cannot reach the returned node.
    ///
    /// # Errors
    /// The same errors as [`SimFabric::new`].
    pub fn with_spares(
        config: &SimConfig,
        initial: Box<dyn InitialContents>,
        spares: usize,
    ) -> Result<SimFabric, ConfigError> {
        let world = World::new(config, initial, spares)?;
        Ok(SimFabric { world: Rc::new(RefCell::new(world)) })
    }

    /// Returns the nodes of each replica group, primary first.
    pub fn groups(&self) -> Vec<Vec<NodeSlot>> {
        self.world.borrow().groups.clone()
    }

    /// Returns a thread's port. `thread` is the number of the thread at its compute node.
    ///
    /// # Panics
    /// If the cluster has no compute node `node`.
    pub fn port(&self, node: NodeId, thread: u16, seed: u64) -> Port {
        Port::new(Box::new(SimBackend::new(Rc::clone(&self.world), node, thread)), seed)
    }

    /// Adds a switch that runs `program` on each datagram that is sent to the switch. Call this before the first
    /// reading of the cluster's usage. All datagrams to a switch have thread 0 as their target.
    ///
    /// # Errors
    /// The shape is impossible. The error names the field, its value and the allowed values.
    pub fn add_switch(
        &self,
        config: SwitchConfig,
        program: impl Program + 'static,
    ) -> Result<NodeId, ConfigError> {
        let world = &mut *self.world.borrow_mut();
        let switch = Switch::new(world.compute_nodes.len(), config, Box::new(program))?;
        world.switches.push(switch);
        world.add_node(NodeKind::Switch)
    }

    /// Ends the loading of data. After this call a write changes one replica. Before this call a write
    /// changes the image that all replicas share. The creation of the first scheduler also ends
    /// loading.
    pub fn end_loading(&self) {
        self.world.borrow_mut().memory.end_loading();
    }

    /// Replaces the profile: from now on `profile` determines all costs. Some constants describe
    /// separate hardware (doorbell registers, the kind of atomic unit and its slots). The new profile
    /// must have the same values for the constants of separate hardware as the old profile.
    ///
    /// # Errors
    /// The error names the constant that differs, its value and the allowed values.
    pub fn set_profile(&self, profile: &Profile) -> Result<(), ConfigError> {
        let world = &mut *self.world.borrow_mut();
        let costs = Costs::of(profile);
        world.costs.same_parts(&costs)?;
        world.costs = costs;
        Ok(())
    }

    /// Kills a memory node. A round that has not arrived at the node ends in `NodeDown`.
    pub fn fail_node(&self, slot: NodeSlot) {
        self.world.borrow_mut().memory_nodes[usize::from(slot.0)].is_down = true;
    }

    /// Revokes a compute node's access at every memory node. After this function returns, no verb of
    /// the compute node takes effect. The rounds of the compute node end in `Fenced`.
    pub fn fence(&self, node: NodeId) {
        let world = &mut *self.world.borrow_mut();
        let memory_nodes = world.memory_nodes.len() as u16;
        world.fenced.extend((0..memory_nodes).map(|slot| (node, NodeSlot(slot))));
    }

    /// Makes `observer` the receiver of events. The new observer replaces the earlier observer.
    pub fn observe(&self, observer: Box<dyn Observer>) {
        self.world.borrow_mut().eyes = Eyes(Some(observer));
    }

    /// Returns the numbers of a thread's detached rounds in flight. Each round has a number that no
    /// other round has.
    pub fn detached_in_flight(&self, thread: Endpoint) -> Vec<u64> {
        let world = self.world.borrow();
        let known = world.endpoints.get(&thread);
        known.map_or_else(Vec::new, |thread| world.flights.detached_of(*thread))
    }

    /// Returns the number of a thread's rounds that are in flight although their futures were dropped.
    pub fn dropped_in_flight(&self, thread: Endpoint) -> usize {
        let world = self.world.borrow();
        world.endpoints.get(&thread).map_or(0, |thread| world.flights.dropped_of(*thread))
    }

    /// Returns the present virtual time.
    pub fn now(&self) -> Nanos {
        Nanos(self.world.borrow().now_ps / 1_000)
    }

    /// Returns a digest of all events so far. Equal runs have equal digests. Different runs have
    /// different digests, except for collisions.
    pub fn digest(&self) -> u64 {
        self.world.borrow().digest
    }

    /// Returns the resources used so far. See [`Usage::since`].
    pub fn usage(&self) -> Usage {
        Usage::of(&self.world.borrow())
    }

    /// Returns the number of bytes of the real machine's memory that the simulated memory occupies.
    pub fn memory_use(&self) -> MemoryUse {
        self.world.borrow().memory.usage()
    }
}
