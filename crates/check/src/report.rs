//! The verdict on a history. People read the text (`Display`), and programs read the serialized form
//! (`Serialize`).
//!
//! Invariant: the verdict is `Accepted` exactly if `totals` is empty. `anomalies` may list fewer
//! anomalies than `totals` counts. `anomalies` lists only anomalies that `totals` counts.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::check::Isolation;

/// Whether the history satisfies the isolation level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The history satisfies the isolation level.
    Accepted,
    /// The history does not satisfy the isolation level. The report lists the violations.
    Violated,
}

/// The numbers of transactions, operations and edges that were checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// The number of transactions that committed.
    pub committed: u64,
    /// The number of transactions that aborted.
    pub aborted: u64,
    /// The number of transactions of unknown outcome that were taken as committed.
    pub unknown_observed: u64,
    /// The number of transactions of unknown outcome that were not observed. The checker leaves these
    /// transactions out.
    pub unknown_dropped: u64,
    /// The number of reads by transactions taken as committed.
    pub reads: u64,
    /// The number of writes by transactions taken as committed.
    pub writes: u64,
    /// The numbers of edges of the graph.
    pub edges: EdgeCounts,
}

/// The numbers of edges of the graph, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct EdgeCounts {
    /// The number of ww edges, which lead from a version's writer to the writer of the next version.
    pub write_write: u64,
    /// The number of wr edges, which lead from a version's writer to its readers.
    pub write_read: u64,
    /// The number of rw edges, which lead from a version's readers to the writer of the next version.
    pub read_write: u64,
    /// The number of transactions that were invoked after some other transaction had completed. This
    /// number is not the number of ordered pairs, because the graph stores real-time order as a
    /// chain.
    pub real_time: u64,
}

/// The verdict on a history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// The isolation level for which the history was checked.
    pub isolation: Isolation,
    /// Whether the history satisfies the isolation level.
    pub verdict: Verdict,
    /// The description of the run that the history file contains.
    pub meta: BTreeMap<String, String>,
    /// The numbers of transactions, operations and edges that were checked.
    pub counts: Counts,
    /// The first anomalies of each kind, in a fixed order.
    pub anomalies: Vec<Anomaly>,
    /// The number of anomalies of each kind. All cycles in one strongly connected component of
    /// transactions count as one anomaly.
    pub totals: BTreeMap<AnomalyKind, u64>,
    /// The number of ways to settle ambiguous unknown outcomes that were tried. If no way is
    /// accepted, the report describes the first way.
    pub settlements_tried: u64,
    /// Whether some ways to settle unknown outcomes were not tried. If some ways were not tried, a
    /// reported violation is not certain.
    pub left_untried: bool,
}

impl Report {
    /// Returns whether the history satisfies the isolation level.
    pub fn is_accepted(&self) -> bool {
        self.verdict == Verdict::Accepted
    }

    /// Returns the number of anomalies that the report counts but does not list.
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
