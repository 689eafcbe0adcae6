//! The findings of a run's checks, on any fabric.
//!
//! Invariant: the verdict on serializability is of the verification phase, never of the measured one; the workload's and
//! the engine's rules are judged on the memory that both phases left.

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

/// See the module's text.
#[derive(Clone, Debug, Serialize)]
pub struct Checks {
    /// The workload's own results beside counts, over all phases.
    pub outcomes: BTreeMap<&'static str, String>,
    /// The workload's own rules, judged on the memory that was left.
    pub invariants: Invariants,
    /// The engine's rules, likewise.
    pub audit: AuditReport,
    /// The verdict on the verification phase.
    pub history: HistoryReport,
    /// Failures that no retry could overcome, in either phase.
    pub failures: Vec<String>,
}

/// The verdict on a variant that isolates nothing.
pub const UNSAFE_VARIANT: &str = "not checked: unsafe variant";

/// Verdicts of the workload's invariants.
#[derive(Clone, Debug, Serialize)]
pub struct Invariants {
    /// Whether all hold.
    pub ok: bool,
    /// Their numbers, in words.
    pub detail: String,
    /// One by one.
    pub each: Vec<OneInvariant>,
}

/// One invariant's verdict.
#[derive(Clone, Debug, Serialize)]
pub struct OneInvariant {
    /// The rule that must hold.
    pub name: &'static str,
    /// Whether it does.
    pub ok: bool,
    /// The numbers.
    pub detail: String,
}

/// The engine's audit.
#[derive(Clone, Debug, Serialize)]
pub struct AuditReport {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// The numbers in words.
    pub detail: String,
    /// Locks without a holder that lives.
    pub locks_left: u64,
    /// Lines of a backup that differ from the primary's.
    pub replicas_differ: u64,
    /// Records where their keys do not lead.
    pub misplaced: u64,
    /// Nodes of ordered indexes that do not fit their neighbours, parents or entries.
    pub nodes_wrong: u64,
    /// Entries without their record, and records without an entry.
    pub entries_differ: u64,
}

/// The verdict on a recorded history.
#[derive(Clone, Default, Debug, Serialize)]
pub struct HistoryReport {
    /// `accepted`, `violated`, `not recorded`, or `not checked: unsafe variant`.
    pub verdict: &'static str,
    /// Transactions recorded.
    pub transactions: u64,
    /// The isolation that the history was held against.
    pub isolation: &'static str,
    /// Which phase recorded it: never the measured one.
    pub recorded_in: &'static str,
    /// Length of that phase.
    pub seconds: f64,
    /// Anomalies found, by name.
    pub anomalies: BTreeMap<&'static str, u64>,
    /// The checker's whole report, if it found any.
    pub counterexample: Option<String>,
    /// Where the history was written.
    pub file: Option<String>,
}

named! {
    /// Kinds of checks that can fail.
    pub enum CheckKind {
        /// The recorded history breaks the guarantee of the protocol's variant.
        History = "history",
        /// A rule of the workload is broken.
        Invariant = "invariant",
        /// Locks are left, replicas differ, or records are misplaced.
        Audit = "audit",
        /// A transaction failed, or never ended.
        Failure = "failure",
    }
}

impl Checks {
    /// Puts together the workload's results, the judgement of the memory, the verdict on the history, and the failures.
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

    /// Which checks failed.
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

/// Returns the isolation that histories of a protocol are held against: the guarantee of its variant.
pub fn guaranteed(protocol: &dyn System) -> Isolation {
    match protocol.isolation() {
        info::Isolation::StrictSerializable => Isolation::StrictSerializable,
        info::Isolation::SnapshotIsolation => Isolation::SnapshotIsolation,
    }
}

impl HistoryReport {
    /// Checks a history against `isolation`, which was recorded in `seconds` and written to `file`.
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

    /// There was no verification phase.
    pub fn not_recorded(isolation: Isolation) -> HistoryReport {
        HistoryReport::none("not recorded", isolation)
    }

    /// The variant isolates nothing: there is nothing to check.
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
