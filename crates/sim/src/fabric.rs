//! The simulated cluster as its user holds it.
//!
//! Invariant: a cluster is used by one thread of this machine; clones name the same cluster. Groups are
//! placed as in the local backend, so the same catalog fits both.

use crate::backend::SimBackend;
use crate::config::{ConfigError, SimConfig};
use crate::costs::Costs;
use crate::memory::{InitialContents, MemoryUse, Zeros};
use crate::observe::{Eyes, Observer};
use crate::profile::Profile;
use crate::usage::Usage;
use crate::world::World;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::backend::Endpoint;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;

/// See the module's documentation.
#[derive(Clone)]
pub struct SimFabric {
    pub(crate) world: Rc<RefCell<World>>,
}

impl SimFabric {
    /// Creates a cluster of fresh memory.
    ///
    /// # Errors
    /// The shape is impossible: the field, its value, the allowed values.
    pub fn new(config: &SimConfig) -> Result<SimFabric, ConfigError> {
        SimFabric::with_contents(config, Box::new(Zeros))
    }

    /// Creates a cluster whose memory holds `initial` at all places that have not been written.
    ///
    /// # Errors
    /// As [`SimFabric::new`].
    pub fn with_contents(
        config: &SimConfig,
        initial: Box<dyn InitialContents>,
    ) -> Result<SimFabric, ConfigError> {
        SimFabric::with_spares(config, initial, 0)
    }

    /// As [`SimFabric::with_contents`], with this many spare nodes behind the memory nodes. A spare
    /// node is empty and has room for a copy of every group. A memory node that died returns as a spare
    /// node under a new slot, so verbs for its former life cannot reach it.
    ///
    /// # Errors
    /// As [`SimFabric::new`].
    pub fn with_spares(
        config: &SimConfig,
        initial: Box<dyn InitialContents>,
        spares: usize,
    ) -> Result<SimFabric, ConfigError> {
        let world = World::new(config, initial, spares)?;
        Ok(SimFabric { world: Rc::new(RefCell::new(world)) })
    }

    /// The nodes of each replica group, primary first.
    pub fn groups(&self) -> Vec<Vec<NodeSlot>> {
        self.world.borrow().groups.clone()
    }

    /// Returns a thread's port; `thread` numbers the threads of one compute node.
    ///
    /// # Panics
    /// If the cluster has no such compute node.
    pub fn port(&self, node: NodeId, thread: u16, seed: u64) -> Port {
        Port::new(Box::new(SimBackend::new(Rc::clone(&self.world), node, thread)), seed)
    }

    /// Ends loading: from now on a write changes one replica. Until then a write changes the image that
    /// all replicas share. The first scheduler also ends loading.
    pub fn end_loading(&self) {
        self.world.borrow_mut().memory.end_loading();
    }

    /// From now on `profile` says all costs. Constants that stand for separate hardware (doorbell
    /// registers, the kind of atomic unit and its slots) must be the same as before.
    ///
    /// # Errors
    /// The constant that differs, its value, and the allowed values.
    pub fn set_profile(&self, profile: &Profile) -> Result<(), ConfigError> {
        let world = &mut *self.world.borrow_mut();
        let costs = Costs::of(profile);
        world.costs.same_parts(&costs)?;
        world.costs = costs;
        Ok(())
    }

    /// Kills a memory node: rounds that have not arrived there end in `NodeDown`.
    pub fn fail_node(&self, slot: NodeSlot) {
        self.world.borrow_mut().memory_nodes[usize::from(slot.0)].is_down = true;
    }

    /// Revokes a compute node's access at every memory node. When this returns, none of its verbs will
    /// ever take effect; its rounds end in `Fenced`.
    pub fn fence(&self, node: NodeId) {
        let world = &mut *self.world.borrow_mut();
        let memory_nodes = world.memory_nodes.len() as u16;
        world.fenced.extend((0..memory_nodes).map(|slot| (node, NodeSlot(slot))));
    }

    /// From now on `observer` is told of events, in place of the earlier observer.
    pub fn observe(&self, observer: Box<dyn Observer>) {
        self.world.borrow_mut().eyes = Eyes(Some(observer));
    }

    /// A thread's detached rounds in flight, each by a number that no other round has.
    pub fn detached_in_flight(&self, thread: Endpoint) -> Vec<u64> {
        let world = self.world.borrow();
        let known = world.endpoints.get(&thread);
        known.map_or_else(Vec::new, |thread| world.flights.detached_of(*thread))
    }

    /// How many rounds of a thread are in flight whose futures were dropped.
    pub fn dropped_in_flight(&self, thread: Endpoint) -> usize {
        let world = self.world.borrow();
        world.endpoints.get(&thread).map_or(0, |thread| world.flights.dropped_of(*thread))
    }

    /// The present virtual time.
    pub fn now(&self) -> Nanos {
        Nanos(self.world.borrow().now_ps / 1_000)
    }

    /// A digest of all events so far: equal for equal runs, and only for those.
    pub fn digest(&self) -> u64 {
        self.world.borrow().digest
    }

    /// The resources used so far; see [`Usage::since`].
    pub fn usage(&self) -> Usage {
        Usage::of(&self.world.borrow())
    }

    /// The memory that the simulated memory uses on this machine.
    pub fn memory_use(&self) -> MemoryUse {
        self.world.borrow().memory.usage()
    }
}
