//! Decides whether a history is strictly serializable, serializable, or snapshot isolated.
//!
//! The checker accepts a history if and only if two conditions hold. First, the direct serialization
//! graph of the history's committed transactions has no cycle. Transactions of unknown outcome that
//! were observed count as committed (see the module `unknown`). For strict serializability the graph
//! also has real-time edges. Second, no read is impossible by itself. A read is impossible if it
//! shows, for example, an aborted, intermediate or unwritten version, a wrong value, a deleted
//! record, or its own transaction's write. The history contains the version order, so this check is
//! exact and not a heuristic.
//!
//! Under snapshot isolation a cycle counts only if no two of its rw edges follow one another (see the
//! module `graph`). So snapshot isolation accepts write skew, and the read-only transaction anomaly.
//! Snapshot isolation refuses a lost update, a fractured read, a read of an old snapshot, and a read
//! of two snapshots.
//!
//! The real-time rule is the same at every isolation level that has such a rule. If a transaction
//! completed before another transaction was invoked, it comes before the other transaction. Under
//! snapshot isolation the rule has two consequences. A snapshot contains all writes that were
//! acknowledged before the snapshot's transaction was invoked. A later reader never sees an older
//! state than a reader that has already completed. A system keeps the rule if it takes a
//! transaction's snapshot after the transaction began, and its commit before the reply. Snapshots and
//! commits must get their times from one clock that only grows. A system that lets each session
//! choose its own snapshot does not keep the rule.
//!
//! Invariant: the report is a function of the history and the isolation level alone.
//!
//! Source: Adya, Liskov and O'Neil, *Generalized Isolation Level Definitions*, ICDE 2000, whose PL-3
//! is our `Serializable`. Strict serializability adds the real-time edges of Kingsbury and Alvaro,
//! *Elle*, VLDB 2020. Snapshot isolation is PL-SI of Adya's thesis, *Weak Consistency*, MIT 1999,
//! with real-time edges.

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

/// The isolation level for which a history is checked. Weaker levels forbid fewer cycles.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// Some serial order of the transactions explains all reads, and this order respects real time.
    #[default]
    StrictSerializable,
    /// Some serial order of the transactions explains all reads.
    Serializable,
    /// Snapshot isolation in real time. Each transaction has a snapshot and a later commit, both
    /// between its invocation and its completion. A transaction reads the versions that were
    /// committed last before its snapshot. If two transactions write one record, one of the two takes
    /// its snapshot after the other has committed. Daudjee and Salem, *Lazy Database Replication with
    /// Snapshot Isolation*, VLDB 2006, call this level strong snapshot isolation.
    SnapshotIsolation,
}

impl Isolation {
    /// Returns whether the level has the real-time rule: a transaction that completed before another
    /// was invoked must come before it.
    pub fn respects_real_time(self) -> bool {
        match self {
            Self::StrictSerializable | Self::SnapshotIsolation => true,
            Self::Serializable => false,
        }
    }

    /// Returns whether, at this level, a transaction reads at one moment and writes at a later
    /// moment.
    pub(crate) fn has_snapshots(self) -> bool {
        self == Self::SnapshotIsolation
    }

    /// Returns the level's name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Self::StrictSerializable => "strict serializable",
            Self::Serializable => "serializable",
            Self::SnapshotIsolation => "snapshot isolation",
        }
    }
}

/// The checker tries at most this many ways to settle ambiguous unknown outcomes before it reports a
/// violation.
const SETTLEMENTS: u64 = 32;

/// Decides whether the history satisfies the isolation level.
///
/// The checker takes a transaction of unknown outcome as committed if and only if another transaction
/// taken as committed observed it. A transaction observes an unknown transaction by reading a version
/// that only the unknown transaction wrote. It also observes the unknown transaction by not finding a
/// record that only the unknown transaction's delete can have removed. The checker leaves out any
/// other unknown transaction. Leaving out such a transaction neither hides nor creates a violation
/// among the other transactions.
///
/// If several unknown transactions could be the observed one, the checker tries up to 32 ways to
/// choose. The checker accepts the history if it accepts one of these ways. [`Report::left_untried`]
/// says whether some ways were not tried.
///
/// For each tried way, time and space are near-linear in the number of operations (linear apart from
/// sorting).
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

/// Checks the history for one way to settle the unknown outcomes.
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

/// Returns the anomaly of a cycle, with all data that its text needs.
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
