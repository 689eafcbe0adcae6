//! The direct serialization graph with real time, as one compact adjacency list.
//!
//! Real-time order is quadratic if written out. Instead every completion is an auxiliary *time
//! node*: a transaction has an edge to the node of its completion, each time node one to the next,
//! and the last completion before an invocation one to the transaction invoked. Then there is a
//! path through time nodes from A to B exactly if A completed before B was invoked, with at most
//! three edges a transaction. Elle (Kingsbury and Alvaro, VLDB 2020) takes the transitive reduction
//! of the order for the same purpose; the chain is simpler and needs no search.
//!
//! Invariant: nodes below `txns` are transactions, the others time nodes in time order; time nodes
//! alone form no cycle.

use crate::history::{History, NEVER_NS};
use crate::index::Index;
use crate::versions::{Edge, kind};

/// Stands for "no edge of the dependency graph": the slot is one of real time.
pub(crate) const NO_EDGE: u32 = u32::MAX;

/// Adjacency list; the edges that leave a node fill the slots `first[node]..first[node + 1]`.
pub(crate) struct Graph {
    pub txns: u32,
    first: Vec<u32>,
    pub target: Vec<u32>,
    pub kind: Vec<u8>,
    /// Index of the dependency, or [`NO_EDGE`].
    pub edge: Vec<u32>,
}

/// A slot in the making.
struct Arc {
    from: u32,
    to: u32,
    kind: u8,
    edge: u32,
}

impl Graph {
    pub fn build(index: &Index, edges: &[Edge], txns: u32, time: &TimeOrder) -> Self {
        let dependencies = edges.iter().zip(0u32..).map(|(edge, number)| Arc {
            from: index.ops[edge.from as usize].txn,
            to: index.ops[edge.to as usize].txn,
            kind: edge.kind,
            edge: number,
        });
        let nodes = txns as usize + time.completions.len();
        let mut first = vec![0u32; nodes + 2];
        for arc in dependencies.clone().chain(time.arcs(txns)) {
            first[arc.from as usize + 2] += 1;
        }
        for node in 2..first.len() {
            first[node] += first[node - 1];
        }
        let slots = first[nodes + 1] as usize;
        let mut graph = Self {
            txns,
            first,
            target: vec![0; slots],
            kind: vec![0; slots],
            edge: vec![0; slots],
        };
        for arc in dependencies.chain(time.arcs(txns)) {
            let cursor = &mut graph.first[arc.from as usize + 1];
            let slot = *cursor as usize;
            *cursor += 1;
            graph.target[slot] = arc.to;
            graph.kind[slot] = arc.kind;
            graph.edge[slot] = arc.edge;
        }
        graph.first.pop();
        graph
    }

    pub fn nodes(&self) -> u32 {
        (self.first.len() - 1) as u32
    }

    pub fn first_slot(&self, node: u32) -> u32 {
        self.first[node as usize]
    }

    /// The slots of the edges that leave `node`.
    pub fn slots(&self, node: u32) -> std::ops::Range<u32> {
        self.first[node as usize]..self.first[node as usize + 1]
    }

    pub fn is_txn(&self, node: u32) -> bool {
        node < self.txns
    }
}

/// The completions in time order and who was invoked after which.
#[derive(Default)]
pub(crate) struct TimeOrder {
    /// (when, transaction), sorted.
    completions: Vec<(u64, u32)>,
    /// (time node counted from 0, transaction invoked after it and before the next).
    invoked_after: Vec<(u32, u32)>,
}

impl TimeOrder {
    pub fn of(history: &History, included: &[bool]) -> Self {
        let taking_part = || {
            let txns = history.transactions.iter().zip(0u32..);
            txns.filter(|(_, number)| included[*number as usize])
        };
        let ends = taking_part().map(|(txn, number)| (txn.real_time_end_ns(), number));
        let mut completions: Vec<(u64, u32)> = ends.filter(|(end, _)| *end != NEVER_NS).collect();
        completions.sort_unstable();
        let invoked_after = taking_part().filter_map(|(txn, number)| {
            let before = completions.partition_point(|(end, _)| *end < txn.invoked_ns);
            before.checked_sub(1).map(|last| (last as u32, number))
        });
        let invoked_after = invoked_after.collect();
        Self { completions, invoked_after }
    }

    /// How many transactions were invoked after some other was over.
    pub fn edges(&self) -> u64 {
        self.invoked_after.len() as u64
    }

    fn arcs(&self, txns: u32) -> impl Iterator<Item = Arc> {
        let arc = |from, to| Arc { from, to, kind: kind::TIME, edge: NO_EDGE };
        let count = self.completions.len() as u32;
        let ends = self.completions.iter().zip(txns..).map(move |((_, txn), node)| arc(*txn, node));
        let chain = (1..count).map(move |next| arc(txns + next - 1, txns + next));
        let starts = self.invoked_after.iter().map(move |(last, txn)| arc(txns + last, *txn));
        ends.chain(chain).chain(starts)
    }
}
