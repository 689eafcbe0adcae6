//! One thread's hold on the memory nodes: their regions, the faults it has noticed, and the fence
//! it owes.
//!
//! Invariant: memory is reached only between [`ThreadGate::enter`] and the leaving, and only
//! through regions that were looked up after entering. A node that is down, or that has revoked
//! this thread's access, shows a region of no bytes from the moment at which this thread noticed
//! the fault.

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

/// One thread's hold on the memory nodes; see the module's documentation.
pub struct Hold {
    pub(super) fabric: Arc<LocalFabric>,
    pub(super) node: NodeId,
    gate: Arc<ThreadGate>,
    /// Whether a followed round wrote and nothing has fenced since. The fence is then made before
    /// the next READ.
    pub(super) unfenced: Cell<bool>,
    /// By node × groups + group; rebuilt when a fault was declared.
    regions: Box<[Cell<Region<'static>>]>,
    /// The region that stands for nodes and groups that do not exist.
    nowhere: Cell<Region<'static>>,
    group_count: usize,
    faults_seen: Cell<u32>,
    fenced: Cell<bool>,
    pub(super) ahead: Ahead,
    /// Rounds posted and not completed; their lines are under way.
    pub(super) in_flight: Cell<usize>,
    /// Whether lines are fetched ahead.
    pub(super) prefetch: bool,
    /// The clock that measures windows and waits.
    pub(super) lease_clock: LeaseClock,
    /// The clock's readings at the ends of this thread's near windows.
    pub(super) readings: Readings,
    /// Whether memory is reached without rounds too.
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

    /// Goes inside, and notices faults that were declared before.
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
                // SAFETY: `fabric` owns the memory; this value holds it as long as the views.
                self.regions[index * count + group].set(unsafe { view.unbound() });
            }
        }
    }

    /// The region that a verb goes to, if there is such a node and group.
    #[inline(always)]
    pub(super) fn region(&self, target: Target) -> Option<Region<'static>> {
        self.regions.get(self.number(target)).map(Cell::get)
    }

    /// Like [`Hold::region`], but returns the cell that keeps it; a region of no bytes if there is
    /// none.
    #[inline(always)]
    pub(super) fn kept_region(&self, target: Target) -> &Cell<Region<'static>> {
        self.regions.get(self.number(target)).unwrap_or(&self.nowhere)
    }

    #[inline(always)]
    fn number(&self, target: Target) -> usize {
        let (node, group) = (usize::from(target.node().0), target.address().group().0);
        // The number of a group that does not exist would be a group of the next node.
        match usize::from(group) < self.group_count {
            true => node * self.group_count + usize::from(group),
            false => usize::MAX,
        }
    }

    /// Counts a round in flight and asks for its lines. A function of its own, so that a hot round
    /// does not pay for the registers that this needs.
    #[inline(never)]
    pub(super) fn set_out(&self, round: &Round) {
        self.in_flight.set(self.in_flight.get() + 1);
        if self.prefetch {
            self.fetch_ahead(round);
        }
    }

    /// Counts a round that was completed or given up, after it was posted or its lines were asked
    /// for.
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
