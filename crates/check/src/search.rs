//! Finds shortest paths within a component. A series of steps through time nodes counts as one edge.
//!
//! Invariant: an edge has cost 0 or 1. A step onto the chain of time nodes and a step along a
//! dependency have cost 1. So a double-ended queue yields nodes in the order of their distances, and
//! the search needs no heap.

use std::collections::VecDeque;

use crate::graph::Graph;
use crate::versions::kind::TIME;

/// The part of the graph that a search may use.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// The component number of each node.
    pub component: &'a [u32],
    /// The component in which the search must stay.
    pub number: u32,
    /// The kinds of edges that the search may use.
    pub mask: u8,
}

impl Scope<'_> {
    pub fn contains(&self, node: u32) -> bool {
        self.component[node as usize] == self.number
    }
}

/// The number of edges that all searches of one knot and one level together may visit. Until a search
/// has found a cycle in the knot, searches continue beyond this number.
const BUDGET: u64 = 30_000_000;

/// The state of searches, which is kept from one search to the next search.
pub(crate) struct Search {
    /// The number of the search in which a node was last reached.
    stamp: Vec<u32>,
    distance: Vec<u32>,
    /// For each node the slot over which the search reached it, and the node that this slot leaves.
    parent: Vec<(u32, u32)>,
    queue: VecDeque<(u32, u32)>,
    round: u32,
    budget: u64,
}

impl Search {
    pub fn new(graph: &Graph) -> Self {
        let nodes = graph.nodes() as usize;
        Self {
            stamp: vec![0; nodes],
            distance: vec![0; nodes],
            parent: vec![(0, 0); nodes],
            queue: VecDeque::new(),
            round: 0,
            budget: BUDGET,
        }
    }

    pub fn refill(&mut self) {
        self.budget = BUDGET;
    }

    pub fn is_spent(&self) -> bool {
        self.budget == 0
    }

    /// Returns the cost of following a slot. A step that leaves the chain of time nodes or moves
    /// along the chain has cost 0. A step from a snapshot to its commit also has cost 0.
    pub fn cost(&self, graph: &Graph, slot: u32) -> u32 {
        let dependency = graph.edge[slot as usize] != crate::graph::NO_EDGE;
        let is_time = graph.kind[slot as usize] == TIME;
        let onto_chain = is_time && self.enters_chain(graph, slot);
        u32::from(dependency || onto_chain)
    }

    /// Returns whether a slot of real time leaves the node of a transaction. The slots of time nodes
    /// follow all slots of transactions.
    fn enters_chain(&self, graph: &Graph, slot: u32) -> bool {
        slot < graph.first_slot(graph.time_from())
    }

    /// Returns the slots of a shortest path from `start` to `target` that is shorter than `limit`. If
    /// `start` and `target` are the same node, the path is a cycle.
    pub fn shortest(
        &mut self,
        graph: &Graph,
        scope: &Scope<'_>,
        start: u32,
        target: u32,
        limit: u32,
    ) -> Option<Vec<u32>> {
        self.round += 1;
        self.queue.clear();
        self.queue.push_back((start, 0));
        self.stamp[start as usize] = self.round;
        self.distance[start as usize] = 0;
        // The length of the best path so far, its last node and its last slot.
        let mut best: Option<(u32, u32, u32)> = None;
        let mut bound = limit;
        while let Some((node, distance)) = self.queue.pop_front() {
            if distance > self.distance[node as usize] {
                continue;
            }
            if distance >= bound {
                break;
            }
            let slots = graph.slots(node);
            self.budget = self.budget.saturating_sub(slots.len() as u64 + 1);
            for slot in slots {
                let to = graph.target[slot as usize];
                if graph.kind[slot as usize] & scope.mask == 0 || !scope.contains(to) {
                    continue;
                }
                let length = distance + self.cost(graph, slot);
                if length >= bound {
                    continue;
                }
                if to == target {
                    best = Some((length, node, slot));
                    bound = length;
                } else {
                    self.reach(to, length, node, slot, length == distance);
                }
            }
        }
        best.map(|(_, node, slot)| self.trace(start, node, slot))
    }

    fn reach(&mut self, to: u32, length: u32, node: u32, slot: u32, free: bool) {
        let at = to as usize;
        if self.stamp[at] == self.round && self.distance[at] <= length {
            return;
        }
        self.stamp[at] = self.round;
        self.distance[at] = length;
        self.parent[at] = (slot, node);
        if free { self.queue.push_front((to, length)) } else { self.queue.push_back((to, length)) }
    }

    fn trace(&self, start: u32, mut node: u32, slot: u32) -> Vec<u32> {
        let mut slots = vec![slot];
        while node != start {
            let (slot, before) = self.parent[node as usize];
            slots.push(slot);
            node = before;
        }
        slots.reverse();
        slots
    }
}
