//! What is wrong with a run, if anything.
//!
//! Invariant: nothing is taken from what the engine says of itself but the history, and that is held
//! against the memory that is left: its last versions, replicas, locks, and the workload's invariants.
//! After a memory node's death the memory is not looked at, since a part of it cannot be read; the
//! history is judged all the same.

use super::cluster::Cluster;
use super::drawn::{Drawn, Fault};
use super::faults::Dead;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use tarn_check::{History, Isolation, check};
use tarn_engine::context::Context;
use tarn_engine::history::{RecordedOutcome, RecordedTxn, RecordedWrite, WriteKind, fingerprint};
use tarn_engine::inspect::{Audit, audit, blocks, scan, slots};
use tarn_engine::layout::LOCK_AT;
use tarn_engine::outcome::{Failure, UsageError};
use tarn_engine::owner::OwnerTag;
use tarn_engine::schema::TableId;
use tarn_fabric::executor::block_on;
use tarn_workloads::Workload;

/// What kind of thing is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The history is not strictly serializable.
    History,
    /// Locks are left, replicas differ, records are misplaced.
    Audit,
    /// The memory does not hold what the history wrote last.
    Memory,
    /// A rule of the workload is broken.
    Invariant,
    /// A transaction failed or never ended, or was resolved against what its caller had been told.
    Failure,
    /// A broken invariant of ours.
    Panic,
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// The counterexample.
    pub text: String,
}

/// What a run left.
pub(super) struct Evidence<'a, T> {
    /// The history in the checker's terms.
    pub(super) recorded: &'a History,
    pub(super) history: Vec<RecordedTxn>,
    pub(super) tally: T,
    pub(super) failures: Vec<String>,
    pub(super) dead: Option<Dead>,
}

/// The first thing that is wrong, the most telling kind first.
pub(super) fn judge<W: Workload>(
    cluster: &Cluster,
    workload: &W,
    drawn: &Drawn,
    evidence: Evidence<'_, W::Tally>,
) -> Result<Option<Finding>, UsageError> {
    let Evidence { recorded, history, tally, failures, dead } = evidence;
    let report = check(recorded, Isolation::StrictSerializable);
    if !report.is_accepted() {
        return Ok(Some(Finding { kind: FindingKind::History, text: report.to_string() }));
    }
    if let Some(text) = failures.into_iter().next() {
        return Ok(Some(Finding { kind: FindingKind::Failure, text }));
    }
    if matches!(drawn.fault, Fault::MemoryNode { .. }) {
        return Ok(None);
    }
    // A slot that lives: the dead one's incarnation is fenced, a new one is not.
    let cx = cluster.context(&cluster.join(0)?, 0)?;
    let found = block_on(look(&cx, workload, &history, (&tally, dead)));
    Ok(found.unwrap_or_else(|failure| {
        let text = format!("the memory could not be read: {failure}");
        Some(Finding { kind: FindingKind::Failure, text })
    }))
}

async fn look<W: Workload>(
    cx: &Rc<Context>,
    workload: &W,
    history: &[RecordedTxn],
    (tally, dead): (&W::Tally, Option<Dead>),
) -> Result<Option<Finding>, Failure> {
    let finding = |kind, text| Ok(Some(Finding { kind, text }));
    let mut audit: Audit = audit(cx).await?;
    if let Some(dead) = dead {
        let locks = locks_of(cx, dead).await?;
        audit.locks_left = audit.locks_left.saturating_sub(locks);
    }
    if !audit.is_clean() {
        return finding(FindingKind::Audit, audit.to_string());
    }
    if let Some(text) = differing(cx, history).await? {
        return finding(FindingKind::Memory, text);
    }
    let invariants = workload.check(cx, tally).await?;
    match invariants.into_iter().find(|each| !each.ok) {
        Some(broken) => {
            finding(FindingKind::Invariant, format!("{}: {}", broken.name, broken.detail))
        }
        None => Ok(None),
    }
}

/// Locks that a dead node's transactions have kept.
async fn locks_of(cx: &Context, dead: Dead) -> Result<u64, Failure> {
    let mut count = 0;
    for table in cx.database().catalog.tables() {
        blocks(cx, table.id, |round, at| {
            for record in std::iter::once(at).chain(slots(table, at)) {
                let owner = OwnerTag::from_word(round.word(record.plus(LOCK_AT)));
                count += u64::from(owner.is_some_and(|tag| tag.node() == dead.node));
            }
        })
        .await?;
    }
    Ok(count)
}

/// Where the memory does not hold what the history wrote last, in words.
async fn differing(cx: &Context, history: &[RecordedTxn]) -> Result<Option<String>, Failure> {
    let mut last = LastWrites::of(history);
    let mut difference = None;
    for table in cx.database().catalog.tables() {
        scan(cx, table.id, |stored| {
            let Some(write) = last.writes.remove(&(table.id, stored.key)) else { return };
            let version = stored.version.counter();
            let is_right = write.kind != WriteKind::Delete
                && (write.version == version || last.is_undone(&write, version))
                && [0, fingerprint(stored.row.payload())].contains(&write.fingerprint);
            if !is_right && difference.is_none() {
                let (name, key) = (&table.schema.name, stored.key);
                difference = Some(format!(
                    "{name}[{key}] holds version {version}, the last write was {write:?}"
                ));
            }
        })
        .await?;
    }
    let lost = last.writes.values().find(|write| write.kind != WriteKind::Delete);
    Ok(difference.or_else(|| lost.map(|write| format!("not there: {write:?}"))))
}

/// What each record was left as.
struct LastWrites {
    writes: BTreeMap<(TableId, u64), RecordedWrite>,
    /// Versions that an undone transaction's records may have been given: only those have it that it
    /// had written before it died.
    undone: BTreeSet<(TableId, u64, u64)>,
}

impl LastWrites {
    fn of(history: &[RecordedTxn]) -> LastWrites {
        let mut last = LastWrites { writes: BTreeMap::new(), undone: BTreeSet::new() };
        let committed = |txn: &&RecordedTxn| txn.outcome == RecordedOutcome::Committed;
        for txn in history.iter().filter(committed) {
            // Whoever writes reads; what undid another transaction did not.
            let is_undoing = txn.reads.is_empty();
            for write in &txn.writes {
                let key = (write.table, write.key);
                if is_undoing {
                    last.undone.insert((write.table, write.key, write.version));
                    continue;
                }
                let known = last.writes.entry(key).or_insert(*write);
                if write.version > known.version {
                    *known = *write;
                }
            }
        }
        last
    }

    fn is_undone(&self, write: &RecordedWrite, version: u64) -> bool {
        version > write.version && self.undone.contains(&(write.table, write.key, version))
    }
}
