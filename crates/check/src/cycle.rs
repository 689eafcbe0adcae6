//! Finds a short cycle in each knot (strongly connected component of two or more transactions) of
//! the graph, of the worst class that it contains.
//!
//! Invariant: what is reported is a cycle; that it is the shortest or the worst is a best effort.
//! Levels are tried from G0 upwards, first without real time, then with it, so a cycle with a
//! real-time edge is reported only if the knot has none without (for G-single within a bound on
//! the work: past it, such a cycle may be reported as G-nonadjacent or G2).
//!
//! Source: the search by class, from the simplest edges on, follows Kingsbury and Alvaro, *Elle:
//! Inferring Isolation Anomalies from Experimental Observations*, VLDB 2020.

use std::cmp::Reverse;

use crate::graph::{Graph, NO_EDGE};
use crate::history::History;
use crate::scc::{Components, OUT_OF_SCOPE, components};
use crate::search::{Scope, Search};
use crate::versions::kind::{INNER, RW, TIME, WR, WW};

/// One edge of a cycle between transactions; `edge` is [`NO_EDGE`] for real time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hop {
    pub from: u32,
    pub to: u32,
    pub edge: u32,
}

/// One class of cycle: the kinds of edge allowed, and whether exactly one rw edge must be added.
struct Level {
    mask: u8,
    one_rw: bool,
}

const fn level(mask: u8, one_rw: bool) -> Level {
    Level { mask: mask | INNER, one_rw }
}

const LEVELS: [Level; 8] = [
    level(WW, false),
    level(WW | WR, false),
    level(WW | WR, true),
    level(WW | WR | RW, false),
    level(WW | TIME, false),
    level(WW | WR | TIME, false),
    level(WW | WR | TIME, true),
    level(WW | WR | RW | TIME, false),
];

/// How many edges of a knot a search for a short cycle starts from.
const STARTS: usize = 24;

/// How many rw edges of a knot are tried as the only one of a cycle.
const RW_TRIES: usize = 256;

/// The knots of a graph.
pub(crate) struct Knots {
    pub total: u64,
    /// A cycle of each of the smallest knots.
    pub cycles: Vec<Vec<Hop>>,
}

/// Finds the knots, and cycles in the `most` smallest.
pub(crate) fn find(history: &History, graph: &Graph, most: usize) -> Knots {
    let whole = components(graph, WW | WR | RW | TIME | INNER, |_| true);
    let numbers = 0..whole.sizes.len() as u32;
    let mut knots: Vec<u32> = numbers.filter(|&knot| whole.sizes[knot as usize] > 1).collect();
    let total = knots.len() as u64;
    knots.sort_by_key(|&knot| whole.sizes[knot as usize]);
    knots.truncate(most);
    let mut finder = Finder { history, graph, search: Search::new(graph), whole, open: knots };
    let mut cycles = Vec::new();
    for level in &LEVELS {
        if finder.open.is_empty() {
            break;
        }
        let found = if level.one_rw { finder.one_rw(level) } else { finder.any(level) };
        cycles.extend(found.into_iter().map(|slots| finder.hops(&slots)));
    }
    debug_assert!(finder.open.is_empty(), "every knot has a cycle");
    Knots { total, cycles }
}

struct Finder<'a> {
    history: &'a History,
    graph: &'a Graph,
    search: Search,
    whole: Components,
    /// Knots without a cycle so far.
    open: Vec<u32>,
}

/// A path through the graph, by its slots: where it begins and what it follows.
struct Path {
    start: u32,
    slots: Vec<u32>,
}

impl Finder<'_> {
    /// Closes the open knots that have a cycle of edges of these kinds.
    fn any(&mut self, level: &Level) -> Vec<Path> {
        let in_open = self.marked(&self.open);
        let whole = &self.whole.of;
        let parts =
            components(self.graph, level.mask, |node| in_open[whole[node as usize] as usize]);
        let mut smallest: Vec<Option<u32>> = vec![None; self.open.len()];
        for node in 0..self.graph.time_from() {
            let part = parts.of[node as usize];
            if part == OUT_OF_SCOPE || parts.sizes[part as usize] < 2 {
                continue;
            }
            let knot = self.whole.of[node as usize];
            let place = self.open.iter().position(|&open| open == knot).expect("in scope");
            let size = |part: u32| parts.sizes[part as usize];
            if smallest[place].is_none_or(|other| size(part) < size(other)) {
                smallest[place] = Some(part);
            }
        }
        let knots = std::mem::take(&mut self.open);
        let mut found = Vec::new();
        for (knot, part) in knots.into_iter().zip(smallest) {
            let scope = |part| Scope { component: &parts.of, number: part, mask: level.mask };
            match part.and_then(|part| self.shortest_of(&scope(part))) {
                Some(path) => found.push(path),
                None => self.open.push(knot),
            }
        }
        found
    }

    /// The shortest cycle through one of the most suspicious edges of a component.
    fn shortest_of(&mut self, scope: &Scope<'_>) -> Option<Path> {
        let mut starts = self.suspicious(scope, STARTS, WW | WR | RW);
        starts.dedup_by_key(|(from, _)| *from);
        let mut best: Option<Path> = None;
        self.search.refill();
        for (start, _) in starts {
            let limit = best.as_ref().map_or(u32::MAX, |path| self.length(&path.slots));
            if let Some(slots) = self.search.shortest(self.graph, scope, start, start, limit) {
                best = Some(Path { start, slots });
            }
            if self.search.is_spent() && best.is_some() {
                break;
            }
        }
        best
    }

    /// Closes the open knots that have a cycle with exactly one rw edge.
    fn one_rw(&mut self, level: &Level) -> Vec<Path> {
        let whole = std::mem::take(&mut self.whole);
        let mut found = Vec::new();
        for knot in std::mem::take(&mut self.open) {
            let scope = Scope { component: &whole.of, number: knot, mask: level.mask };
            match self.shortest_with_rw(&scope) {
                Some(path) => found.push(path),
                None => self.open.push(knot),
            }
        }
        self.whole = whole;
        found
    }

    fn shortest_with_rw(&mut self, scope: &Scope<'_>) -> Option<Path> {
        let wide = Scope { mask: scope.mask | RW, ..*scope };
        let tries = self.suspicious(&wide, RW_TRIES, RW);
        let mut best: Option<Path> = None;
        self.search.refill();
        for (reader, slot) in tries {
            let writer = self.graph.target[slot as usize];
            let limit = best.as_ref().map_or(u32::MAX, |path| self.length(&path.slots[1..]));
            let back = self.search.shortest(self.graph, scope, writer, reader, limit);
            if let Some(mut slots) = back {
                slots.insert(0, slot);
                best = Some(Path { start: reader, slots });
            }
            if self.search.is_spent() {
                break;
            }
        }
        best
    }

    /// Edges of these kinds within a component, the ones that lead furthest back in time first:
    /// in a run of a correct system few dependencies contradict the clock, so these are likely to
    /// lie on short cycles.
    fn suspicious(&self, scope: &Scope<'_>, most: usize, kinds: u8) -> Vec<(u32, u32)> {
        let mut edges: Vec<(Reverse<i128>, u32, u32)> = Vec::new();
        let keep = 4 * most.max(1024);
        for from in (0..self.graph.time_from()).filter(|&node| scope.contains(node)) {
            for slot in self.graph.slots(from) {
                let to = self.graph.target[slot as usize];
                if self.graph.kind[slot as usize] & kinds & scope.mask != 0 && scope.contains(to) {
                    edges.push((Reverse(self.backwards_ns(from, to)), from, slot));
                }
            }
            if edges.len() > 2 * keep {
                edges.sort_unstable();
                edges.truncate(keep);
            }
        }
        edges.sort_unstable();
        edges.truncate(most);
        edges.into_iter().map(|(_, from, slot)| (from, slot)).collect()
    }

    /// How long before the first of two nodes' transactions was invoked the second was over.
    fn backwards_ns(&self, first: u32, second: u32) -> i128 {
        let txn = |node| self.graph.txn(node).expect("a dependency is between transactions");
        let [first, second] =
            [first, second].map(|node| &self.history.transactions[txn(node) as usize]);
        i128::from(first.invoked_ns) - i128::from(second.real_time_end_ns())
    }

    /// By component number: whether it is one of these.
    fn marked(&self, knots: &[u32]) -> Vec<bool> {
        let mut marked = vec![false; self.whole.sizes.len()];
        knots.iter().for_each(|&knot| marked[knot as usize] = true);
        marked
    }

    /// Length of a path, a stretch through time nodes counted as one edge.
    fn length(&self, slots: &[u32]) -> u32 {
        slots.iter().map(|&slot| self.search.cost(self.graph, slot)).sum()
    }

    /// The path's edges between transactions.
    fn hops(&self, path: &Path) -> Vec<Hop> {
        let mut hops = Vec::new();
        let mut from = self.graph.txn(path.start).expect("paths begin at transactions");
        for &slot in &path.slots {
            let (edge, kind) = (self.graph.edge[slot as usize], self.graph.kind[slot as usize]);
            let to = self.graph.txn(self.graph.target[slot as usize]);
            if let (Some(to), false) = (to, kind == INNER) {
                hops.push(Hop { from, to, edge });
                from = to;
            }
        }
        debug_assert!(hops.iter().all(|hop| hop.edge != NO_EDGE || hop.from != hop.to));
        let first = hops.iter().enumerate().min_by_key(|(_, hop)| hop.from);
        let first = first.map_or(0, |(at, _)| at);
        hops.rotate_left(first);
        hops
    }
}
