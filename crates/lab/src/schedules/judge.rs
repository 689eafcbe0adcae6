//! Finds the errors of a run.
//!
//! Invariant: of the engine's own reports only the history is used, and that is held against the memory that is left: every
//! record's last version, replicas, locks, and the workload's invariants. Memory is looked at after every death, through
//! the configuration that was opened last and after a sweep: no lock is left, members of a group are equal, no acknowledged
//! transaction is lost.

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
    /// The history breaks the protocol's guarantee.
    History,
    /// Locks are left, replicas differ, records are misplaced.
    Audit,
    /// The memory does not hold the last writes of the history.
    Memory,
    /// A rule of the workload is broken.
    Invariant,
    /// A transaction failed or never ended, or was resolved against the outcome that its caller had been told.
    Failure,
    /// A broken invariant of ours.
    Panic,
}

/// An error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The counterexample.
    pub text: String,
}

/// The results of a run.
pub(super) struct Evidence<'a, T> {
    /// The history in the checker's terms.
    pub(super) recorded: &'a History,
    pub(super) history: Vec<RecordedTxn>,
    pub(super) tally: T,
    pub(super) failures: Vec<String>,
}

/// The first thing that is wrong, the most telling kind first.
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
    // A thread of the node that always lives, in a life of its own.
    let cx = cluster.context(&cluster.join(faults::standby(drawn).0)?, 2)?;
    let rules = block_on(look(&cx, workload, (&history, &cluster.loaded()), &tally));
    // The commits of the dead are not counted in any tally.
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

/// The result of a look at the memory.
enum Looked {
    /// It is wrong by itself, or differs from the history.
    Wrong(Finding),
    /// It is not wrong; the results of the workload's rules.
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
