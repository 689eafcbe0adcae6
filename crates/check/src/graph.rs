//! The direct serialization graph with real time, as one compact adjacency list.
//!
//! Real-time order is quadratic if written out. Instead, every completion is an auxiliary *time
//! node*. A transaction has an edge to the node of its completion, each time node has one to the
//! next, and the last completion before an invocation has one to the transaction invoked. Then
//! there is a path through time nodes from A to B exactly if A completed before B was invoked, with
//! at most three edges a transaction. Elle (Kingsbury and Alvaro, VLDB 2020) takes the transitive
//! reduction of the order for the same purpose; the chain is simpler and needs no search.
//!
//! Under snapshot isolation a transaction is two nodes, its *snapshot* and its later *commit*. Its
//! dependencies (ww, wr, real time) were committed before its snapshot; rw says only that a
//! snapshot comes before a commit. So a cycle of this graph is a cycle of dependencies in which no
//! two rw edges follow one another. A history is snapshot isolated exactly if it has no such cycle
//! (Fekete et al., *Making Snapshot Isolation Serializable*, TODS 2005; Cerone and Gotsman,
//! *Analysing Snapshot Isolation*, JACM 2018).
//!
//! If there is none, the order of the points can be stretched so that both points of each
//! transaction lie between its invocation and its completion. Each point gets the latest invocation
//! among those up to it as its time. That is not after its own transaction's completion, or real
//! time would order them otherwise.
//!
//! Invariant: nodes below `time_from` are transactions: their commits first, then their snapshots,
//! if they have any. The other nodes are time nodes in time order. Time nodes alone form no cycle,
//! nor do both nodes of one transaction.

use crate::history::{History, NEVER_NS};
use crate::index::Index;
use crate::versions::{Edge, kind};

/// Stands for "no edge of the dependency graph": the slot is one of real time.
pub(crate) const NO_EDGE: u32 = u32::MAX;

/// Adjacency list; the edges that leave a node fill the slots `first[node]..first[node + 1]`.
pub(crate) struct Graph {
    nodes: Nodes,
    first: Vec<u32>,
    pub target: Vec<u32>,
    pub kind: Vec<u8>,
    /// Index of the dependency, or [`NO_EDGE`].
    pub edge: Vec<u32>,
}

/// The numbers of the nodes.
#[derive(Clone, Copy)]
pub(crate) struct Nodes {
    txns: u32,
    has_snapshots: bool,
}

impl Nodes {
    pub fn new(txns: u32, has_snapshots: bool) -> Self {
        Self { txns, has_snapshots }
    }

    /// Returns the node at which a transaction's versions come to be.
    fn commit(self, txn: u32) -> u32 {
        txn
    }

    /// Returns the node at which a transaction reads: edges from all that must come before it lead
    /// here.
    fn snapshot(self, txn: u32) -> u32 {
        if self.has_snapshots { self.txns + txn } else { txn }
    }

    fn time_from(self) -> u32 {
        if self.has_snapshots { 2 * self.txns } else { self.txns }
    }

    fn of_dependency(self, from: u32, to: u32, dependency: u8) -> (u32, u32) {
        match dependency {
            kind::RW => (self.snapshot(from), self.commit(to)),
            _ => (self.commit(from), self.snapshot(to)),
        }
    }

    fn inner_arcs(self) -> impl Iterator<Item = Arc> {
        let txns = if self.has_snapshots { 0..self.txns } else { 0..0 };
        txns.map(move |txn| Arc {
            from: self.snapshot(txn),
            to: self.commit(txn),
            kind: kind::INNER,
            edge: NO_EDGE,
        })
    }
}

/// A slot that is being made.
struct Arc {
    from: u32,
    to: u32,
    kind: u8,
    edge: u32,
}

impl Graph {
    pub fn build(index: &Index, edges: &[Edge], nodes: Nodes, time: &TimeOrder) -> Self {
        let dependencies = edges.iter().zip(0u32..).map(|(edge, number)| {
            let [from, to] = [edge.from, edge.to].map(|op| index.ops[op as usize].txn);
            let (from, to) = nodes.of_dependency(from, to, edge.kind);
            Arc { from, to, kind: edge.kind, edge: number }
        });
        let all = || dependencies.clone().chain(nodes.inner_arcs()).chain(time.arcs(nodes));
        let count = nodes.time_from() as usize + time.completions.len();
        let mut first = vec![0u32; count + 2];
        for arc in all() {
            first[arc.from as usize + 2] += 1;
        }
        for node in 2..first.len() {
            first[node] += first[node - 1];
        }
        let slots = first[count + 1] as usize;
        let mut graph = Self {
            nodes,
            first,
            target: vec![0; slots],
            kind: vec![0; slots],
            edge: vec![0; slots],
        };
        for arc in all() {
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

    /// The first time node: those below are transactions.
    pub fn time_from(&self) -> u32 {
        self.nodes.time_from()
    }

    /// The transaction of a node, `None` for time.
    pub fn txn(&self, node: u32) -> Option<u32> {
        let Nodes { txns, .. } = self.nodes;
        (node < self.time_from()).then(|| if node < txns { node } else { node - txns })
    }
}

/// The completions in time order, and the transactions that were invoked after each.
#[derive(Default)]
pub(crate) struct TimeOrder {
    /// (time, transaction), sorted.
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

    /// Returns how many transactions were invoked after some other was over.
    pub fn edges(&self) -> u64 {
        self.invoked_after.len() as u64
    }

    fn arcs(&self, nodes: Nodes) -> impl Iterator<Item = Arc> {
        let base = nodes.time_from();
        let arc = |from, to| Arc { from, to, kind: kind::TIME, edge: NO_EDGE };
        let count = self.completions.len() as u32;
        let ends = self.completions.iter().zip(base..);
        let ends = ends.map(move |((_, txn), node)| arc(nodes.commit(*txn), node));
        let chain = (1..count).map(move |next| arc(base + next - 1, base + next));
        let starts = self.invoked_after.iter();
        let starts = starts.map(move |(last, txn)| arc(base + last, nodes.snapshot(*txn)));
        ends.chain(chain).chain(starts)
    }
}
