//! One thread's hold on the memory nodes: their regions, and what it has to notice and to pay.
//!
//! Invariant: memory is reached between [`ThreadGate::enter`] and the leaving alone, and through regions that were
//! looked up after entering: a node that is down, or that has revoked this thread's access, shows a region of no
//! bytes from the moment on at which its fault was noticed there.

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

/// See the module's text.
pub struct Hold {
    pub(super) fabric: Arc<LocalFabric>,
    pub(super) node: NodeId,
    gate: Arc<ThreadGate>,
    /// Whether a followed round wrote and nothing has fenced since: done before the next READ.
    pub(super) unfenced: Cell<bool>,
    /// By node × groups + group; rebuilt when a fault was declared.
    regions: Box<[Cell<Region<'static>>]>,
    /// What is there of other nodes and groups.
    nowhere: Cell<Region<'static>>,
    group_count: usize,
    faults_seen: Cell<u32>,
    fenced: Cell<bool>,
    pub(super) ahead: Ahead,
    /// Rounds posted and not completed: how many wait for their lines.
    pub(super) in_flight: Cell<usize>,
    /// Whether lines are fetched ahead.
    pub(super) prefetch: bool,
    /// What windows and waits are measured by.
    pub(super) lease_clock: LeaseClock,
    /// What its near windows ended at.
    pub(super) readings: Readings,
    /// Whether it is reached without rounds too.
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

    /// Goes inside, and notices what was declared before.
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

    /// As [`Hold::region`], where it is kept; one of no bytes if there is none.
    #[inline(always)]
    pub(super) fn kept_region(&self, target: Target) -> &Cell<Region<'static>> {
        self.regions.get(self.number(target)).unwrap_or(&self.nowhere)
    }

    #[inline(always)]
    fn number(&self, target: Target) -> usize {
        let (node, group) = (usize::from(target.node().0), target.address().group().0);
        // A group that there is not would be the next node's.
        match usize::from(group) < self.group_count {
            true => node * self.group_count + usize::from(group),
            false => usize::MAX,
        }
    }

    /// A round is in flight: its lines are asked for. Apart, so that a hot round does not pay for the registers
    /// that this needs.
    #[inline(never)]
    pub(super) fn set_out(&self, round: &Round) {
        self.in_flight.set(self.in_flight.get() + 1);
        if self.prefetch {
            self.fetch_ahead(round);
        }
    }

    /// A round that was posted, or whose lines were asked for, was completed or given up.
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
