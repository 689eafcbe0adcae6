//! Finds the errors of a run after its end.
//!
//! Invariant: the judge uses only one report of the engine, the history. The judge compares the history with the
//! final memory: the last version of every record, the replicas, the locks, and the workload's invariants. The judge
//! reads memory after all deaths, through the latest configuration, and after the sweep has removed old locks. No
//! lock may remain, all copies in a group must be equal, and no acknowledged transaction may be lost.

use super::cluster::Cluster;
use super::drawn::Drawn;
use super::faults;
use crate::harness::checks::guaranteed;
use serde::Serialize;
use std::rc::Rc;
use tarn_check::{History, check};
use tarn_engine::admin::inspect::{Audit, audit};
use tarn_engine::admin::last_writes::LastWrites;
use tarn_engine::site::Context;
use tarn_fabric::executor::block_on;
use tarn_store::history::{RecordedTxn, RecordedWrite};
use tarn_store::ids::{Failure, UsageError};
use tarn_workloads::{Invariant, Workload};

/// The kind of an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The history breaks the isolation level that the protocol guarantees.
    History,
    /// Locks remain, replicas differ, or a lookup cannot find a record at its place.
    Audit,
    /// The memory does not hold the last writes of the history.
    Memory,
    /// A rule of the workload is broken.
    Invariant,
    /// A transaction failed or never ended, or its resolved outcome contradicts the reply that its caller got.
    Failure,
    /// A panic: an invariant of the program was broken.
    Panic,
}

/// An error that the judge found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The kind of the error.
    pub kind: FindingKind,
    /// The counterexample.
    pub text: String,
}

/// The results of a run that the judge uses.
pub(super) struct Evidence<'a, T> {
    /// The recorded history, in the form that the checker needs.
    pub(super) recorded: &'a History,
    pub(super) history: Vec<RecordedTxn>,
    pub(super) tally: T,
    pub(super) failures: Vec<String>,
}

/// Returns the first error. Kinds of errors that give more information are checked first.
pub(super) fn judge<W: Workload>(
    cluster: &Cluster,
    workload: &W,
    drawn: &Drawn,
    evidence: Evidence<'_, W::Tally>,
) -> Result<Option<Finding>, UsageError> {
    let Evidence { recorded, history, tally, failures } = evidence;
    let report = check(recorded, guaranteed(&*cluster.database.protocol));
    if !report.is_accepted() {
        return Ok(Some(Finding { kind: FindingKind::History, text: report.to_string() }));
    }
    if let Some(text) = failures.into_iter().next() {
        return Ok(Some(Finding { kind: FindingKind::Failure, text }));
    }
    // The context of the judge belongs to a thread of the compute node that is never lost, in a
    // separate incarnation.
    let cx = cluster.context(&cluster.join(faults::standby(drawn).0)?, 2)?;
    let rules = block_on(look(&cx, workload, (&history, &cluster.loaded()), &tally));
    // No tally counts the commits of dead coordinators. So in a run with faults, the judge checks only the invariants
    // that concern the memory alone.
    let is_broken = |each: &Invariant| !each.ok && (each.of_memory || !drawn.has_faults());
    let found = rules.map(|looked| match looked {
        Looked::Wrong(finding) => Some(finding),
        Looked::Rules(rules) => rules.into_iter().find(is_broken).map(|broken| Finding {
            kind: FindingKind::Invariant,
            text: format!("{}: {}", broken.name, broken.detail),
        }),
    });
    Ok(found.unwrap_or_else(|failure| {
        let text = format!("the memory could not be read: {failure}");
        Some(Finding { kind: FindingKind::Failure, text })
    }))
}

/// The result of reading the final memory.
enum Looked {
    /// The memory breaks its own rules, or differs from the history.
    Wrong(Finding),
    /// The memory agrees with the history. The field holds the results of the workload's rules.
    Rules(Vec<Invariant>),
}

async fn look<W: Workload>(
    cx: &Rc<Context>,
    workload: &W,
    (history, loaded): (&[RecordedTxn], &[RecordedWrite]),
    tally: &W::Tally,
) -> Result<Looked, Failure> {
    let wrong = |kind, text| Ok(Looked::Wrong(Finding { kind, text }));
    let audit: Audit = audit(cx).await?;
    if !audit.is_clean() {
        return wrong(FindingKind::Audit, audit.to_string());
    }
    if let Some(text) = LastWrites::of(history, loaded).differing(cx).await? {
        return wrong(FindingKind::Memory, text);
    }
    Ok(Looked::Rules(workload.check(cx, tally).await?))
}
