//! The direct serialization graph with real time, as one compact adjacency list.
//!
//! The real-time order has quadratically many edges if all its edges are stored. Instead, every
//! completion gets an auxiliary *time node*. A transaction has an edge to the time node of its
//! completion, and each time node has an edge to the next time node. The last completion before an
//! invocation has an edge to the invoked transaction. Then a path through time nodes leads from A to
//! B exactly if A completed before B was invoked. The graph has at most three such edges per
//! transaction. Elle (Kingsbury and Alvaro, VLDB 2020) uses the transitive reduction of the order for
//! the same purpose. The chain of time nodes is simpler than this reduction and needs no search.
//!
//! Under snapshot isolation a transaction has two nodes, its *snapshot* and its later *commit*. The
//! transactions on which it depends (ww, wr, real time) were committed before its snapshot. An rw
//! edge says only that a snapshot comes before a commit. So a cycle of this graph is a cycle of
//! dependencies in which no two rw edges follow one another. A history is snapshot isolated exactly
//! if this graph has no cycle (Fekete et al., *Making Snapshot Isolation Serializable*, TODS 2005;
//! Cerone and Gotsman, *Analysing Snapshot Isolation*, JACM 2018).
//!
//! If the graph has no cycle, its nodes have an order. The nodes can then get times such that both
//! nodes of each transaction lie between its invocation and its completion. Each node gets as its
//! time the latest invocation among all transactions up to this node in the order. This time is not
//! after the completion of the node's own transaction. Otherwise a real-time edge would put the node
//! earlier in the order.
//!
//! Invariant: nodes below `time_from` belong to transactions: first the commits of all transactions,
//! then their snapshots, if the graph has snapshots. The other nodes are time nodes in time order.
//! Time nodes alone form no cycle. The two nodes of one transaction alone form no cycle either.

use crate::history::{History, NEVER_NS};
use crate::index::Index;
use crate::versions::{Edge, kind};

/// The value of `edge` for a slot without a dependency. The slot belongs to an edge of real time, or
/// leads from a snapshot to its commit.
pub(crate) const NO_EDGE: u32 = u32::MAX;

/// The adjacency list of the graph. The edges that leave a node are in the slots
/// `first[node]..first[node + 1]`.
pub(crate) struct Graph {
    nodes: Nodes,
    first: Vec<u32>,
    pub target: Vec<u32>,
    pub kind: Vec<u8>,
    /// For each slot the index of its dependency, or [`NO_EDGE`].
    pub edge: Vec<u32>,
}

/// Computes the numbers of the nodes of transactions.
#[derive(Clone, Copy)]
pub(crate) struct Nodes {
    txns: u32,
    has_snapshots: bool,
}

impl Nodes {
    pub fn new(txns: u32, has_snapshots: bool) -> Self {
        Self { txns, has_snapshots }
    }

    /// Returns the node at which a transaction installs its versions.
    fn commit(self, txn: u32) -> u32 {
        txn
    }

    /// Returns the node at which a transaction reads: the edges from all transactions that must come
    /// before this transaction lead to this node.
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

/// An edge that will become a slot of the adjacency list.
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

    /// Returns the slots of the edges that leave `node`.
    pub fn slots(&self, node: u32) -> std::ops::Range<u32> {
        self.first[node as usize]..self.first[node as usize + 1]
    }

    /// Returns the number of the first time node. All nodes with lower numbers belong to
    /// transactions.
    pub fn time_from(&self) -> u32 {
        self.nodes.time_from()
    }

    /// Returns the transaction of a node, or `None` for a time node.
    pub fn txn(&self, node: u32) -> Option<u32> {
        let Nodes { txns, .. } = self.nodes;
        (node < self.time_from()).then(|| if node < txns { node } else { node - txns })
    }
}

/// The completions in time order, and the transactions that were invoked after each completion.
#[derive(Default)]
pub(crate) struct TimeOrder {
    /// The completions: pairs (time, transaction), sorted.
    completions: Vec<(u64, u32)>,
    /// The invocations: pairs (time node, transaction). The transaction was invoked after this time
    /// node, counted from 0, and before the next time node.
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

    /// Returns the number of transactions that were invoked after some other transaction had
    /// completed.
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
