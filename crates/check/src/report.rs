//! The verdict on a history, for people (`Display`) and for programs (`Serialize`).
//!
//! Invariant: the verdict is `Accepted` exactly if `totals` is empty; `anomalies` may list fewer
//! than `totals` counts, never others.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::check::Isolation;

/// Whether the history satisfies the isolation level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    Accepted,
    /// It does not; the report lists why.
    Violated,
}

/// The amounts that were checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions that aborted.
    pub aborted: u64,
    /// Transactions of unknown outcome that were taken as committed.
    pub unknown_observed: u64,
    /// Transactions of unknown outcome that were not observed; they are left out.
    pub unknown_dropped: u64,
    /// Reads by those taken as committed.
    pub reads: u64,
    /// Writes by those taken as committed.
    pub writes: u64,
    /// Edges of the graph.
    pub edges: EdgeCounts,
}

/// Edges of the graph by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct EdgeCounts {
    /// ww: to the writer of the next version.
    pub write_write: u64,
    /// wr: from a version's writer to its readers.
    pub write_read: u64,
    /// rw: from a version's readers to the writer of the next.
    pub read_write: u64,
    /// Transactions that were invoked after some other was over (the order is kept as a chain, so
    /// this is not the number of ordered pairs).
    pub real_time: u64,
}

/// The verdict on a history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// The level that the history was checked against.
    pub isolation: Isolation,
    /// The verdict.
    pub verdict: Verdict,
    /// The history's own description of the run.
    pub meta: BTreeMap<String, String>,
    /// The amounts that were checked.
    pub counts: Counts,
    /// The first anomalies of each kind, in a fixed order.
    pub anomalies: Vec<Anomaly>,
    /// The number of anomalies of each kind. Cycles are counted by knot: transactions that are all
    /// before one another count once, however many cycles run through them.
    pub totals: BTreeMap<AnomalyKind, u64>,
    /// How many ways to settle ambiguous unknown outcomes were tried. If none is accepted, the
    /// report describes the first.
    pub settlements_tried: u64,
    /// Whether some ways were not tried, so that a violation is not certain.
    pub left_untried: bool,
}

impl Report {
    /// Whether the history satisfies the isolation level.
    pub fn is_accepted(&self) -> bool {
        self.verdict == Verdict::Accepted
    }

    /// Returns the number of anomalies that are counted but not listed.
    pub fn unlisted(&self) -> u64 {
        self.totals.values().sum::<u64>() - self.anomalies.len() as u64
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Accepted => "accepted",
            Verdict::Violated => "VIOLATED",
        };
        writeln!(f, "{}: {verdict}", self.isolation.name())?;
        for (name, value) in &self.meta {
            writeln!(f, "  {name} = {value}")?;
        }
        write!(f, "{}", self.counts)?;
        if self.settlements_tried > 1 || self.left_untried {
            let more = if self.left_untried { "; more remain, so this is not certain" } else { "" };
            let tried = self.settlements_tried;
            writeln!(f, "  tried {tried} ways to settle ambiguous unknown outcomes{more}")?;
        }
        for (kind, total) in &self.totals {
            writeln!(f, "  {total} × {}", kind.name())?;
        }
        for anomaly in &self.anomalies {
            writeln!(f, "  {anomaly}")?;
        }
        match self.unlisted() {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {} committed, {} aborted, {} unknown ({} observed, {} dropped)",
            self.committed,
            self.aborted,
            self.unknown_observed + self.unknown_dropped,
            self.unknown_observed,
            self.unknown_dropped,
        )?;
        let EdgeCounts { write_write, write_read, read_write, real_time } = self.edges;
        writeln!(
            f,
            "  {} reads, {} writes; edges: {write_write} ww, {write_read} wr, {read_write} rw, \
             {real_time} real-time",
            self.reads, self.writes,
        )
    }
}
