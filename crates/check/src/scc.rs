//! Computes the strongly connected components of a part of the graph.
//!
//! Invariant: the algorithm uses no recursion, so a chain of a million time nodes does not overflow
//! the stack.
//!
//! Source: Tarjan, *Depth-First Search and Linear Graph Algorithms*, SIAM Journal on Computing
//! 1972.

use crate::graph::Graph;

/// The component number of a node that is out of scope.
pub(crate) const OUT_OF_SCOPE: u32 = u32::MAX;

/// The component that each node belongs to.
#[derive(Default)]
pub(crate) struct Components {
    pub of: Vec<u32>,
    /// The number of nodes of each component.
    pub sizes: Vec<u32>,
}

/// Returns the strongly connected components of a part of the graph. The part has the nodes in scope,
/// and the edges of the kinds in `mask`.
pub(crate) fn components(graph: &Graph, mask: u8, in_scope: impl Fn(u32) -> bool) -> Components {
    let mut walk = Walk {
        found: Components { of: vec![OUT_OF_SCOPE; graph.nodes() as usize], sizes: Vec::new() },
        order: vec![0; graph.nodes() as usize],
        low: vec![0; graph.nodes() as usize],
        reached: 0,
        open: Vec::new(),
        path: Vec::new(),
    };
    for root in 0..graph.nodes() {
        if walk.order[root as usize] == 0 && in_scope(root) {
            walk.from(graph, mask, &in_scope, root);
        }
    }
    walk.found
}

struct Walk {
    found: Components,
    /// For each node its position in the order in which nodes were reached, counted from 1. The value
    /// 0 means "not reached yet".
    order: Vec<u32>,
    /// For each node the earliest reachable node that is known to lie in the same component.
    low: Vec<u32>,
    reached: u32,
    /// The nodes that were reached and whose component is not complete yet.
    open: Vec<u32>,
    /// The path from the root: for each node on the path, the node and the next slot to visit.
    path: Vec<(u32, u32)>,
}

impl Walk {
    fn from(&mut self, graph: &Graph, mask: u8, in_scope: &impl Fn(u32) -> bool, root: u32) {
        self.enter(graph, root);
        while let Some((node, slot)) = self.path.last_mut() {
            let node = *node;
            if *slot == graph.slots(node).end {
                self.leave(node);
                continue;
            }
            let at = *slot as usize;
            *slot += 1;
            let target = graph.target[at];
            if graph.kind[at] & mask == 0 {
                continue;
            }
            match self.order[target as usize] {
                0 if in_scope(target) => self.enter(graph, target),
                0 => {}
                order if self.found.of[target as usize] == OUT_OF_SCOPE => {
                    let low = &mut self.low[node as usize];
                    *low = order.min(*low);
                }
                _ => {}
            }
        }
    }

    fn enter(&mut self, graph: &Graph, node: u32) {
        self.reached += 1;
        self.order[node as usize] = self.reached;
        self.low[node as usize] = self.reached;
        self.open.push(node);
        self.path.push((node, graph.first_slot(node)));
    }

    fn leave(&mut self, node: u32) {
        self.path.pop();
        let low = self.low[node as usize];
        if let Some((parent, _)) = self.path.last() {
            let above = &mut self.low[*parent as usize];
            *above = low.min(*above);
        }
        if low == self.order[node as usize] {
            let number = self.found.sizes.len() as u32;
            let start = self.open.iter().rposition(|&open| open == node);
            let members = self.open.split_off(start.expect(
                "a node stays open until its visit \
                ends",
            ));
            members.iter().for_each(|&member| self.found.of[member as usize] = number);
            self.found.sizes.push(members.len() as u32);
        }
    }
}
