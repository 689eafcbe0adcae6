//! The results of a run's checks, on any fabric.
//!
//! Invariant: the verdict on serializability always concerns the verification phase, never the measured phase. After
//! both phases, the run checks that the memory keeps the workload's rules and the engine's rules.

use super::lines::{length, named_values, row, verdict};
use super::named::named;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use tarn_check::{History, Isolation, check};
use tarn_engine::admin::inspect::Audit;
use tarn_engine::cluster::info;

use tarn_engine::site::system::System;
use tarn_workloads::{Invariant, Workload};

/// The results of all checks of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Checks {
    /// The workload's own results that are no counts of transactions, over all phases.
    pub outcomes: BTreeMap<&'static str, String>,
    /// The verdicts on the workload's own rules, judged on the memory after the run.
    pub invariants: Invariants,
    /// The verdict on the engine's rules, judged on the memory after the run.
    pub audit: AuditReport,
    /// The verdict on the verification phase.
    pub history: HistoryReport,
    /// The failures of transactions that no retry could overcome, in the measured or the verification phase.
    pub failures: Vec<String>,
}

/// The text that replaces a verdict for a protocol variant that isolates no transactions.
pub const UNSAFE_VARIANT: &str = "not checked: unsafe variant";

/// Verdicts of the workload's invariants.
#[derive(Clone, Debug, Serialize)]
pub struct Invariants {
    /// Whether all invariants hold.
    pub ok: bool,
    /// The invariants' numbers, in words.
    pub detail: String,
    /// The verdict on each invariant.
    pub each: Vec<OneInvariant>,
}

/// The verdict on one invariant of the workload.
#[derive(Clone, Debug, Serialize)]
pub struct OneInvariant {
    /// The rule that must hold.
    pub name: &'static str,
    /// Whether the rule holds.
    pub ok: bool,
    /// The numbers behind this verdict.
    pub detail: String,
}

/// The results of the engine's audit, which checks the memory.
#[derive(Clone, Debug, Serialize)]
pub struct AuditReport {
    /// Whether the audit found no error.
    pub ok: bool,
    /// The audit's numbers, in words.
    pub detail: String,
    /// The number of locks whose holder is no longer alive.
    pub locks_left: u64,
    /// The number of lines on which a backup differs from its primary.
    pub replicas_differ: u64,
    /// The number of records that a lookup by their key would not find.
    pub misplaced: u64,
    /// The number of nodes of ordered indexes that do not fit their neighbours, parents or entries.
    pub nodes_wrong: u64,
    /// The number of index entries without a record, and of records without an index entry.
    pub entries_differ: u64,
}

/// The verdict on a recorded history.
#[derive(Clone, Default, Debug, Serialize)]
pub struct HistoryReport {
    /// `accepted`, `violated`, `not recorded`, or `not checked: unsafe variant`.
    pub verdict: &'static str,
    /// The number of recorded transactions.
    pub transactions: u64,
    /// The isolation level that the checker required of the history.
    pub isolation: &'static str,
    /// The name of the phase that recorded the history: never the measured phase.
    pub recorded_in: &'static str,
    /// The length of the recording phase.
    pub seconds: f64,
    /// The number of anomalies found, by the anomaly's name.
    pub anomalies: BTreeMap<&'static str, u64>,
    /// The checker's whole report, if the checker found an anomaly.
    pub counterexample: Option<String>,
    /// The file to which the history was written.
    pub file: Option<String>,
}

named! {
    /// The kinds of checks that can find an error.
    pub enum CheckKind {
        /// The recorded history breaks the guarantee of the protocol's variant.
        History = "history",
        /// A rule of the workload is broken.
        Invariant = "invariant",
        /// A lock has no live holder, replicas differ, or a lookup cannot find a record.
        Audit = "audit",
        /// A transaction failed, or a transaction never ended.
        Failure = "failure",
    }
}

impl Checks {
    /// Combines the workload's results, the verdicts on the memory, the verdict on the history, and
    /// the failures.
    pub(crate) fn of<W: Workload>(
        workload: &W,
        tally: &W::Tally,
        (invariants, audit): (Vec<Invariant>, Audit),
        history: HistoryReport,
        failures: Vec<String>,
    ) -> Checks {
        Checks {
            outcomes: workload.outcomes(tally).into_iter().collect(),
            invariants: invariants.into(),
            audit: (&audit).into(),
            history,
            failures,
        }
    }

    /// Returns the kinds of checks that failed.
    pub fn failed(&self) -> Vec<CheckKind> {
        CheckKind::ALL
            .into_iter()
            .filter(|kind| match kind {
                CheckKind::History => self.history.verdict == "violated",
                CheckKind::Invariant => !self.invariants.ok,
                CheckKind::Audit => !self.audit.ok,
                CheckKind::Failure => !self.failures.is_empty(),
            })
            .collect()
    }
}

/// Returns the isolation level that a protocol's histories must satisfy: the guarantee of the
/// protocol's variant.
pub fn guaranteed(protocol: &dyn System) -> Isolation {
    match protocol.isolation() {
        info::Isolation::StrictSerializable => Isolation::StrictSerializable,
        info::Isolation::SnapshotIsolation => Isolation::SnapshotIsolation,
    }
}

impl HistoryReport {
    /// Checks against `isolation` a history that was recorded in `seconds` and written to `file`.
    pub fn judge(
        (history, isolation): (&History, Isolation),
        seconds: f64,
        file: Option<String>,
    ) -> HistoryReport {
        let report = check(history, isolation);
        let accepted = report.is_accepted();
        HistoryReport {
            verdict: if accepted { "accepted" } else { "violated" },
            transactions: history.transactions.len() as u64,
            isolation: isolation.name(),
            recorded_in: "verification phase",
            seconds,
            anomalies: report.totals.iter().map(|(kind, total)| (kind.name(), *total)).collect(),
            counterexample: (!accepted).then(|| report.to_string()),
            file,
        }
    }

    /// The report of a run without a verification phase.
    pub fn not_recorded(isolation: Isolation) -> HistoryReport {
        HistoryReport::none("not recorded", isolation)
    }

    /// The report of a variant that isolates no transactions: its history is not checked.
    pub fn of_unsafe_variant(isolation: Isolation) -> HistoryReport {
        HistoryReport::none(UNSAFE_VARIANT, isolation)
    }

    fn none(verdict: &'static str, isolation: Isolation) -> HistoryReport {
        let isolation = isolation.name();
        HistoryReport { verdict, isolation, recorded_in: "no phase", ..HistoryReport::default() }
    }
}

impl From<Vec<Invariant>> for Invariants {
    fn from(invariants: Vec<Invariant>) -> Invariants {
        let each: Vec<OneInvariant> = invariants
            .into_iter()
            .map(|Invariant { name, ok, detail, .. }| OneInvariant { name, ok, detail })
            .collect();
        let details: Vec<String> =
            each.iter().map(|one| format!("{}: {}", one.name, one.detail)).collect();
        Invariants { ok: each.iter().all(|one| one.ok), detail: details.join("; "), each }
    }
}

impl From<&Audit> for AuditReport {
    fn from(audit: &Audit) -> AuditReport {
        AuditReport {
            ok: audit.is_clean(),
            detail: audit.to_string(),
            locks_left: audit.locks_left,
            replicas_differ: audit.replicas_differ,
            misplaced: audit.misplaced,
            nodes_wrong: audit.nodes_wrong,
            entries_differ: audit.entries_differ,
        }
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.outcomes.is_empty() {
            row!(f, "outcomes" => "{} (all phases)", named_values(&self.outcomes))?;
        }
        let HistoryReport { verdict: judged, transactions, isolation, seconds, .. } = &self.history;
        match *judged {
            "not recorded" => row(f, "history", "not recorded: there was no verification phase")?,
            UNSAFE_VARIANT => row!(f, "history" =>
                "NOT CHECKED: the variant is UNSAFE, transactions are not isolated")?,
            judged => row!(f, "history" =>
                "{judged}: {isolation}, {transactions} transactions recorded in the verification \
                 phase ({})",
                length(*seconds))?,
        }
        if let Some(file) = &self.history.file {
            row!(f, "" => "written to {file}")?;
        }
        for invariant in &self.invariants.each {
            let (name, detail) = (invariant.name, &invariant.detail);
            row!(f, "invariant" => "{}: {name}: {detail}", verdict(invariant.ok))?;
        }
        row!(f, "audit" => "{}: {}", verdict(self.audit.ok), self.audit.detail)?;
        for failure in self.failures.iter().take(5) {
            row(f, "failure", failure)?;
        }
        if self.failures.len() > 5 {
            row!(f, "" => "and {} more failures", self.failures.len() - 5)?;
        }
        match &self.history.counterexample {
            Some(text) => write!(f, "{text}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
