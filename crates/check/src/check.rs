//! Decides whether a history is serializable, strictly or not, or snapshot isolated.
//!
//! A history is accepted if and only if two conditions hold. First, the direct serialization graph
//! of its committed transactions has no cycle. Unknown transactions that were observed count as
//! committed (see the module `unknown`), and for strict serializability the graph has real-time
//! edges. Second, no read by itself is impossible: aborted, intermediate, never written, of a wrong
//! value, of a record that was not there, of the transaction's own write, and so on. Because the
//! version order is given, this is exact, not a heuristic.
//!
//! Under snapshot isolation a cycle counts only if no two rw edges follow one another in it (see
//! the module `graph`). So write skew is accepted, and the anomaly of a read-only transaction
//! beside it. A lost update, a fractured read, and a read of an old snapshot or of two are not.
//!
//! The real-time rule is the same at every level that has one: a transaction that was over before
//! another began comes before it. Under snapshot isolation that means two things. A snapshot has
//! all that was acknowledged before its transaction was invoked. A later reader never sees less
//! than one that has ended. A system keeps the rule if it takes its snapshot at or after the
//! beginning and its commit before the reply, both from one clock that only grows. A system that
//! gives each session a snapshot of its own choice does not.
//!
//! Invariant: the report is a function of the history and the isolation level alone.
//!
//! Source: Adya, Liskov and O'Neil, *Generalized Isolation Level Definitions*, ICDE 2000, whose
//! PL-3 is our `Serializable`. The real-time edges that make it strict are those of Kingsbury and
//! Alvaro, *Elle*, VLDB 2020. Snapshot isolation is PL-SI of Adya's thesis, *Weak Consistency*, MIT
//! 1999, with these edges.

use serde::Serialize;

use crate::anomaly::{Anomaly, AnomalyKind, CycleClass, Dependency, LongerCycle, Step};
use crate::cycle::{self, Hop, Shown};
use crate::findings::{Findings, LISTED_PER_KIND, Names};
use crate::graph::{Graph, NO_EDGE, Nodes, TimeOrder};
use crate::history::{History, Outcome};
use crate::index::Index;
use crate::report::{Counts, EdgeCounts, Report, Verdict};
use crate::unknown::{Resolution, next_picks};
use crate::versions::{self, Edge, kind};

/// The level that a history is checked against. Weaker levels forbid fewer cycles.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// Some serial order explains all reads, and it respects real time.
    #[default]
    StrictSerializable,
    /// Some serial order explains all reads.
    Serializable,
    /// Snapshot isolation in real time: each transaction has a snapshot and a later commit, both
    /// between its invocation and its completion. It reads the versions that were committed last
    /// before its snapshot. Of two transactions that write one record, one has its snapshot after
    /// the other's commit. Daudjee and Salem, *Lazy Database Replication with Snapshot Isolation*,
    /// VLDB 2006, call this strong snapshot isolation.
    SnapshotIsolation,
}

impl Isolation {
    /// Whether a transaction that was over before another began must come before it.
    pub fn respects_real_time(self) -> bool {
        match self {
            Self::StrictSerializable | Self::SnapshotIsolation => true,
            Self::Serializable => false,
        }
    }

    /// Whether a transaction reads at one moment and writes at another.
    pub(crate) fn has_snapshots(self) -> bool {
        self == Self::SnapshotIsolation
    }

    /// Its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Self::StrictSerializable => "strict serializable",
            Self::Serializable => "serializable",
            Self::SnapshotIsolation => "snapshot isolation",
        }
    }
}

/// How many ways to settle ambiguous unknown outcomes are tried before a violation is reported.
const SETTLEMENTS: u64 = 32;

/// Decides whether the history satisfies the isolation level.
///
/// An unknown transaction is taken as committed if and only if it was observed by a transaction
/// that is itself taken as committed. That one read a version that only the unknown one wrote, or
/// found a record absent that only its delete can have removed. Any other unknown transaction is
/// left out, which can neither hide nor make a violation among the rest.
///
/// Where several transactions could be the one observed, up to 32 ways to choose are tried. The
/// history is accepted if one of them is, and [`Report::left_untried`] says whether there were
/// more.
///
/// Time and space are near-linear in the number of operations (linear apart from sorting), for each
/// way that is tried.
pub fn check(history: &History, isolation: Isolation) -> Report {
    let index = Index::build(history);
    let mut picks = Vec::new();
    let mut tried = 0;
    let mut first: Option<Report> = None;
    loop {
        let resolution = Resolution::settle(history, &index, &picks);
        let report = judge(history, &index, &resolution, isolation);
        tried += 1;
        let next = next_picks(&picks, &resolution.choices);
        let accepted = report.verdict == Verdict::Accepted;
        let chosen = if accepted { report } else { first.take().unwrap_or(report) };
        match next.filter(|_| !accepted && tried < SETTLEMENTS) {
            Some(next) => picks = next,
            None => {
                let left_untried = !accepted && next_picks(&picks, &resolution.choices).is_some();
                return Report { settlements_tried: tried, left_untried, ..chosen };
            }
        }
        first = Some(chosen);
    }
}

/// Judges the history for one way to settle the unknown outcomes.
fn judge(
    history: &History,
    index: &Index,
    resolution: &Resolution,
    isolation: Isolation,
) -> Report {
    let included = &resolution.included;
    let mut findings = Findings::default();
    let edges = versions::sweep(history, index, included, &mut findings);
    let time = match isolation.respects_real_time() {
        true => TimeOrder::of(history, included),
        false => TimeOrder::default(),
    };
    let nodes = Nodes::new(included.len() as u32, isolation.has_snapshots());
    let graph = Graph::build(index, &edges, nodes, &time);
    let knots = cycle::find(history, &graph, LISTED_PER_KIND);
    for shown in &knots.cycles {
        findings.add(AnomalyKind::Cycle, || describe(history, index, &edges, shown));
    }
    if knots.total > 0 {
        findings.totals.insert(AnomalyKind::Cycle, knots.total);
    }
    let verdict = match findings.totals.is_empty() {
        true => Verdict::Accepted,
        false => Verdict::Violated,
    };
    Report {
        isolation,
        verdict,
        meta: history.meta.clone(),
        counts: count(history, included, &edges, &time),
        anomalies: findings.listed,
        totals: findings.totals,
        settlements_tried: 1,
        left_untried: false,
    }
}

/// Returns the cycle with all data that its text needs.
fn describe(history: &History, index: &Index, edges: &[Edge], shown: &Shown) -> Anomaly {
    let names = Names(history);
    let step = |hop: &Hop| Step {
        from: names.party(hop.from),
        to: names.party(hop.to),
        dependency: match hop.edge {
            NO_EDGE => Dependency::RealTime,
            edge => dependency(names, index, edges[edge as usize]),
        },
    };
    let steps_of = |hops: &[Hop]| hops.iter().map(step).collect::<Vec<Step>>();
    let steps = steps_of(&shown.hops);
    let class = CycleClass::of(&steps);
    let other = shown.without_real_time.as_deref().filter(|_| class.real_time).map(steps_of);
    let without_real_time = other.map(|steps| LongerCycle {
        phenomenon: CycleClass::of(&steps).phenomenon,
        transactions: steps.len(),
    });
    Anomaly::Cycle { class, without_real_time, steps }
}

fn dependency(names: Names<'_>, index: &Index, edge: Edge) -> Dependency {
    let [from, to] = [edge.from, edge.to].map(|op| &index.ops[op as usize]);
    let record = names.record(from.record);
    match edge.kind {
        kind::WW => Dependency::WriteWrite { record, first: from.version, second: to.version },
        kind::WR => {
            Dependency::WriteRead { record, written: from.version, seen: versions::seen(to) }
        }
        _ => Dependency::ReadWrite { record, seen: versions::seen(from), written: to.version },
    }
}

fn count(history: &History, included: &[bool], edges: &[Edge], time: &TimeOrder) -> Counts {
    let mut counts = Counts::default();
    for (txn, included) in history.transactions.iter().zip(included) {
        match txn.outcome {
            Outcome::Committed => counts.committed += 1,
            Outcome::Aborted => counts.aborted += 1,
            Outcome::Unknown if *included => counts.unknown_observed += 1,
            Outcome::Unknown => counts.unknown_dropped += 1,
        }
        if *included {
            counts.reads += txn.reads.len() as u64;
            counts.writes += txn.writes.len() as u64;
        }
    }
    let of_kind = |kind| edges.iter().filter(|edge| edge.kind == kind).count() as u64;
    counts.edges = EdgeCounts {
        write_write: of_kind(kind::WW),
        write_read: of_kind(kind::WR),
        read_write: of_kind(kind::RW),
        real_time: time.edges(),
    };
    counts
}
