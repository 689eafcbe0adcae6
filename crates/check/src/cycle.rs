//! Finds the shortest cycle in each knot of the graph. A knot is a strongly connected component of
//! two or more transactions. If several cycles of a knot are equally short, the module takes a cycle
//! of the worst class.
//!
//! A step in real time counts as one edge, however far it leads. If T1 completed before T2 was
//! invoked, one edge leads from T1 to T2, however many transactions lie between them.
//!
//! Invariant: every reported path is a cycle. The reported cycle is the knot's shortest cycle if the
//! knot has at most [`STARTS`] starting points and the search's budget lasts. Otherwise the cycle may
//! be longer than the shortest one, but it is the same on every run. The module tries the levels from
//! G0 upwards, first without real time and then with real time. The cycle of a later level counts
//! only if it is shorter. So the report shows a cycle with a real-time edge only if all cycles
//! without such an edge are longer. In this case the report also states the length of the shortest
//! cycle without a real-time edge.
//!
//! Source: the search by classes of cycles, which begins with the simplest edges, follows Kingsbury
//! and Alvaro, *Elle: Inferring Isolation Anomalies from Experimental Observations*, VLDB 2020.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::graph::{Graph, NO_EDGE};
use crate::history::History;
use crate::scc::{Components, components};
use crate::search::{Scope, Search};
use crate::versions::kind::{INNER, RW, TIME, WR, WW};

/// One edge of a cycle, between two transactions. `edge` is [`NO_EDGE`] for an edge of real time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hop {
    pub from: u32,
    pub to: u32,
    pub edge: u32,
}

/// One class of cycles: the kinds of edges that such a cycle may have, and whether exactly one rw
/// edge must be added.
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

/// The number of levels without real-time edges. The levels without real-time edges are the first
/// elements of `LEVELS`.
const WITHOUT_REAL_TIME: usize = 4;

/// The number of edges of the shortest possible cycle.
const SHORTEST: u32 = 2;

/// The search for a short cycle starts from at most this many edges of a knot.
const STARTS: usize = 4096;

/// The search tries at most this many rw edges of a knot as the only rw edge of a cycle.
const RW_TRIES: usize = 256;

/// The knots (strongly connected components) of a graph.
pub(crate) struct Knots {
    pub total: u64,
    /// One cycle from each of the smallest strongly connected components. The cycles of the worst
    /// class come first.
    pub cycles: Vec<Shown>,
}

/// The cycle that the report shows for a knot.
pub(crate) struct Shown {
    pub hops: Vec<Hop>,
    /// The shortest cycle without real-time edges that the search found in the knot, if the search
    /// found such a cycle.
    pub without_real_time: Option<Vec<Hop>>,
}

/// Finds the knots of the graph. For the `most` smallest knots the function also finds a short cycle.
pub(crate) fn find(history: &History, graph: &Graph, most: usize) -> Knots {
    let whole = components(graph, WW | WR | RW | TIME | INNER, |_| true);
    let numbers = 0..whole.sizes.len() as u32;
    let mut numbers: Vec<u32> = numbers.filter(|&knot| whole.sizes[knot as usize] > 1).collect();
    let total = numbers.len() as u64;
    numbers.sort_by_key(|&knot| whole.sizes[knot as usize]);
    numbers.truncate(most);
    let mut finder = Finder { history, graph, search: Search::new(graph), whole };
    let mut knots: Vec<Knot> = numbers.into_iter().map(Knot::new).collect();
    for (number, level) in LEVELS.iter().enumerate() {
        let open = |knot: &Knot| knot.length() > SHORTEST;
        if level.one_rw {
            knots.iter_mut().filter(|knot| open(knot)).for_each(|knot| finder.one_rw(knot, number));
        } else {
            finder.any(&mut knots, number);
        }
        if number + 1 == WITHOUT_REAL_TIME {
            let hops = |path: &Path| finder.hops(path);
            knots.iter_mut().for_each(|knot| {
                knot.without_real_time = knot.best.as_ref().map(hops);
            });
        }
    }
    let path = |knot: &Knot| knot.best.as_ref().map_or(usize::MAX, |path| path.level);
    knots.sort_by_key(path);
    let shown = |knot: Knot| {
        let path = knot.best.expect("every strongly connected component has a cycle");
        Shown { hops: finder.hops(&path), without_real_time: knot.without_real_time }
    };
    Knots { total, cycles: knots.into_iter().map(shown).collect() }
}

/// The results of the search for one knot so far.
struct Knot {
    number: u32,
    best: Option<Path>,
    without_real_time: Option<Vec<Hop>>,
}

impl Knot {
    fn new(number: u32) -> Self {
        Self { number, best: None, without_real_time: None }
    }

    /// Returns the length of the shortest cycle that was found in the knot so far.
    fn length(&self) -> u32 {
        self.best.as_ref().map_or(u32::MAX, |path| path.length)
    }
}

/// A path through the graph: the node at which it begins, and the slots of edges that it follows.
struct Path {
    start: u32,
    slots: Vec<u32>,
    /// The path's length in edges. A series of steps through time nodes counts as one edge.
    length: u32,
    /// The level at which the search found the path.
    level: usize,
}

struct Finder<'a> {
    history: &'a History,
    graph: &'a Graph,
    search: Search,
    whole: Components,
}

impl Finder<'_> {
    /// Searches the knots for shorter cycles that have only edges of the level's kinds.
    fn any(&mut self, knots: &mut [Knot], level: usize) {
        let mut in_open = vec![false; self.whole.sizes.len()];
        let open = knots.iter_mut().filter(|knot| knot.length() > SHORTEST);
        let open: Vec<&mut Knot> = open.collect();
        if open.is_empty() {
            return;
        }
        open.iter().for_each(|knot| in_open[knot.number as usize] = true);
        let (mask, whole) = (LEVELS[level].mask, &self.whole.of);
        let parts = components(self.graph, mask, |node| in_open[whole[node as usize] as usize]);
        open.into_iter().for_each(|knot| self.shorten(knot, &parts, level));
    }

    /// Searches for a shorter cycle from each edge inside the knot's components, the most suspicious
    /// edges first.
    fn shorten(&mut self, knot: &mut Knot, parts: &Components, level: usize) {
        let mask = LEVELS[level].mask;
        let (whole, number) = (&self.whole.of, knot.number);
        let inside = |from: u32, to: u32| {
            whole[from as usize] == number && parts.of[from as usize] == parts.of[to as usize]
        };
        let mut begun = BTreeSet::new();
        let mut starts = self.suspicious(inside, STARTS, mask & (WW | WR | RW));
        starts.retain(|(start, _)| begun.insert(*start));
        self.search.refill();
        for (start, _) in starts {
            let scope = Scope { component: &parts.of, number: parts.of[start as usize], mask };
            let limit = knot.length();
            if let Some(slots) = self.search.shortest(self.graph, &scope, start, start, limit) {
                let length = self.length(&slots);
                knot.best = Some(Path { start, slots, length, level });
            }
            if knot.length() <= SHORTEST || self.search.is_spent() && knot.best.is_some() {
                break;
            }
        }
    }

    /// Searches a knot for a shorter cycle with exactly one rw edge.
    fn one_rw(&mut self, knot: &mut Knot, level: usize) {
        let mask = LEVELS[level].mask;
        let (whole, number) = (&self.whole.of, knot.number);
        let inside =
            |from: u32, to: u32| whole[from as usize] == number && whole[to as usize] == number;
        let tries = self.suspicious(inside, RW_TRIES, RW);
        let scope = Scope { component: whole, number, mask };
        self.search.refill();
        for (start, slot) in tries {
            let writer = self.graph.target[slot as usize];
            let limit = knot.length() - 1;
            let back = self.search.shortest(self.graph, &scope, writer, start, limit);
            if let Some(mut slots) = back {
                slots.insert(0, slot);
                let length = slots.iter().map(|&slot| self.search.cost(self.graph, slot)).sum();
                knot.best = Some(Path { start, slots, length, level });
            }
            if knot.length() <= SHORTEST || self.search.is_spent() {
                break;
            }
        }
    }

    /// Returns the edges of these kinds for which `inside` holds. Edges that lead furthest back in
    /// time come first. In a run of a correct system few dependencies contradict the clock, so edges
    /// that lead back in time are likely to lie on short cycles.
    fn suspicious(
        &self,
        inside: impl Fn(u32, u32) -> bool,
        most: usize,
        kinds: u8,
    ) -> Vec<(u32, u32)> {
        let mut edges: Vec<(Reverse<i128>, u32, u32)> = Vec::new();
        let keep = 4 * most;
        for from in 0..self.graph.time_from() {
            for slot in self.graph.slots(from) {
                let to = self.graph.target[slot as usize];
                if self.graph.kind[slot as usize] & kinds != 0 && inside(from, to) {
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

    /// Returns the time from the end of the second node's transaction to the invocation of the first
    /// node's transaction.
    fn backwards_ns(&self, first: u32, second: u32) -> i128 {
        let txn = |node| self.graph.txn(node).expect("a dependency is between transactions");
        let [first, second] =
            [first, second].map(|node| &self.history.transactions[txn(node) as usize]);
        i128::from(first.invoked_ns) - i128::from(second.real_time_end_ns())
    }

    /// Returns the length of a path in edges. A series of steps through time nodes counts as one
    /// edge.
    fn length(&self, slots: &[u32]) -> u32 {
        slots.iter().map(|&slot| self.search.cost(self.graph, slot)).sum()
    }

    /// Returns the path's edges between transactions.
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
