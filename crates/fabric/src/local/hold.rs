//! One thread's access to the memory nodes: their regions, the faults that the thread has noticed, and the fence that
//! it must still execute.
//!
//! Invariant: a thread accesses memory only between [`ThreadGate::enter`] and the drop of its guard. Inside the gate,
//! a thread uses only regions that it has looked up after entering. If a node is down, or has revoked this thread's
//! access, its regions are empty from the moment at which this thread noticed the fault.

use super::LocalFabric;
use super::ahead::Ahead;
use super::lease_clock::{LeaseClock, Readings};
use super::quiesce::{Inside, ThreadGate};
use super::region::Region;
use crate::address::{NodeId, NodeSlot, Target};
use crate::error::FabricError;
use crate::round::Round;
use std::cell::Cell;
use std::sync::Arc;

/// One thread's access to the memory nodes. See the module's documentation.
pub struct Hold {
    pub(super) fabric: Arc<LocalFabric>,
    pub(super) node: NodeId,
    gate: Arc<ThreadGate>,
    /// Whether a followed round wrote, and this thread has executed no fence since then. If it has executed none, the
    /// thread executes the fence before its next READ.
    pub(super) unfenced: Cell<bool>,
    /// The region of each group at each node, at the index node × groups + group. The list of regions is rebuilt
    /// after a fault was declared.
    regions: Box<[Cell<Region<'static>>]>,
    /// The empty region that is used for nodes and groups that do not exist.
    nowhere: Cell<Region<'static>>,
    group_count: usize,
    faults_seen: Cell<u32>,
    fenced: Cell<bool>,
    pub(super) ahead: Ahead,
    /// The number of rounds that were posted and not completed. The lines of these rounds are being fetched.
    pub(super) in_flight: Cell<usize>,
    /// Whether the lines of posted rounds are prefetched.
    pub(super) prefetch: bool,
    /// The clock that measures windows and waits.
    pub(super) lease_clock: LeaseClock,
    /// The readings of the clock at the ends of this thread's last windows on near memory.
    pub(super) readings: Readings,
    /// Whether the thread may access memory without rounds too.
    pub(super) is_near: bool,
}

impl Hold {
    pub(super) fn new(fabric: Arc<LocalFabric>, node: NodeId) -> Hold {
        let gate = fabric.faults.register(node);
        let group_count = fabric.groups.len();
        let regions = fabric.nodes.len() * group_count;
        let (prefetch, is_near) = (fabric.prefetch, fabric.near);
        let hold = Hold {
            fabric,
            node,
            gate,
            unfenced: Cell::new(false),
            regions: vec![Cell::new(Region::empty()); regions].into(),
            nowhere: Cell::new(Region::empty()),
            group_count,
            faults_seen: Cell::new(u32::MAX),
            fenced: Cell::new(false),
            ahead: Ahead::new(),
            in_flight: Cell::new(0),
            prefetch,
            lease_clock: LeaseClock::of_process(),
            readings: Readings::default(),
            is_near,
        };
        hold.look_at_faults();
        hold
    }

    /// Enters the thread's gate, and notices faults that were declared before.
    #[inline(always)]
    pub(super) fn enter(&self) -> Inside<'_> {
        let inside = self.gate.enter();
        if self.fabric.faults.epoch() != self.faults_seen.get() {
            self.look_at_faults();
        }
        inside
    }

    #[cold]
    fn look_at_faults(&self) {
        let faults = &self.fabric.faults;
        self.faults_seen.set(faults.epoch());
        self.fenced.set(faults.is_fenced(self.node));
        for (index, memory) in self.fabric.nodes.iter().enumerate() {
            let down = self.fenced.get() || faults.is_down(NodeSlot(index as u16));
            let count = self.group_count;
            let views = if down { vec![Region::empty(); count] } else { memory.regions(count) };
            for (group, view) in views.into_iter().enumerate() {
                // SAFETY: `fabric` owns the memory. This value keeps `fabric` alive for as long as the regions are
                // used.
                self.regions[index * count + group].set(unsafe { view.unbound() });
            }
        }
    }

    /// Returns the region that a verb accesses, if its node and group exist.
    #[inline(always)]
    pub(super) fn region(&self, target: Target) -> Option<Region<'static>> {
        self.regions.get(self.number(target)).map(Cell::get)
    }

    /// Does the same as [`Hold::region`], but returns the cell that contains the region. If the node or group does
    /// not exist, the cell contains an empty region.
    #[inline(always)]
    pub(super) fn kept_region(&self, target: Target) -> &Cell<Region<'static>> {
        self.regions.get(self.number(target)).unwrap_or(&self.nowhere)
    }

    #[inline(always)]
    fn number(&self, target: Target) -> usize {
        let (node, group) = (usize::from(target.node().0), target.address().group().0);
        // For a group that does not exist, the index would belong to a group of the next node.
        match usize::from(group) < self.group_count {
            true => node * self.group_count + usize::from(group),
            false => usize::MAX,
        }
    }

    /// Counts a round in flight and prefetches its lines. `set_out` is a separate function, so that a hot round need
    /// not save the registers that this code uses.
    #[inline(never)]
    pub(super) fn set_out(&self, round: &Round) {
        self.in_flight.set(self.in_flight.get() + 1);
        if self.prefetch {
            self.fetch_ahead(round);
        }
    }

    /// Notes that a round was completed or abandoned, after the round was posted or its lines were prefetched.
    #[inline(always)]
    pub(super) fn ended(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
    }

    #[cold]
    pub(super) fn refusal(&self, target: Target) -> Box<FabricError> {
        Box::new(self.why_refused(target))
    }

    fn why_refused(&self, target: Target) -> FabricError {
        if self.fenced.get() {
            FabricError::Fenced
        } else if usize::from(target.node().0) >= self.fabric.nodes.len()
            || self.fabric.faults.is_down(target.node())
        {
            FabricError::NodeDown(target.node())
        } else {
            FabricError::OutOfBounds(target)
        }
    }
}
