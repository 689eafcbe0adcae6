//! What is wrong with a run, if anything.
//!
//! Invariant: nothing is taken from what the engine says of itself but the history, and that is held
//! against the memory that is left: its last versions, replicas, locks, and the workload's invariants.
//! It is looked at after every death, through the configuration that was opened last and after a sweep:
//! no lock is left, members of a group are equal, no acknowledged transaction is lost.

use super::cluster::Cluster;
use super::drawn::Drawn;
use super::faults;
use super::run::Settled;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use tarn_check::{History, Isolation, check};
use tarn_engine::context::Context;
use tarn_engine::history::{RecordedOutcome, RecordedTxn, RecordedWrite, WriteKind, fingerprint};
use tarn_engine::inspect::{Audit, audit, scan};
use tarn_engine::outcome::{Failure, Resolution, TxnId, UsageError};
use tarn_engine::owner::{COUNT_MAX, OwnerTag};
use tarn_engine::schema::TableId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_workloads::Workload;

/// When a transaction was over whose caller was never told.
const NEVER: Nanos = Nanos(u64::MAX / 2);

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
}

/// The first thing that is wrong, the most telling kind first.
pub(super) fn judge<W: Workload>(
    cluster: &Cluster,
    workload: &W,
    drawn: &Drawn,
    evidence: Evidence<'_, W::Tally>,
) -> Result<Option<Finding>, UsageError> {
    let Evidence { recorded, history, tally, failures } = evidence;
    let report = check(recorded, Isolation::StrictSerializable);
    if !report.is_accepted() {
        return Ok(Some(Finding { kind: FindingKind::History, text: report.to_string() }));
    }
    if let Some(text) = failures.into_iter().next() {
        return Ok(Some(Finding { kind: FindingKind::Failure, text }));
    }
    // A thread of the node that always lives, in a life of its own.
    let cx = cluster.context(&cluster.join(faults::standby(drawn).0)?, 2)?;
    let found = block_on(look(&cx, workload, &history, &tally));
    Ok(found.unwrap_or_else(|failure| {
        let text = format!("the memory could not be read: {failure}");
        Some(Finding { kind: FindingKind::Failure, text })
    }))
}

async fn look<W: Workload>(
    cx: &Rc<Context>,
    workload: &W,
    history: &[RecordedTxn],
    tally: &W::Tally,
) -> Result<Option<Finding>, Failure> {
    let finding = |kind, text| Ok(Some(Finding { kind, text }));
    let audit: Audit = audit(cx).await?;
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

/// What entering decisions came to.
#[derive(Default)]
pub(super) struct Entered {
    pub(super) settled: Settled,
    /// What contradicts what a caller was told, or another decision.
    pub(super) contradictions: Vec<String>,
}

/// Enters into the history what was decided about transactions whose callers were told nothing. One about
/// which nobody has decided has written nothing.
pub(super) fn enter(history: &mut Vec<RecordedTxn>, decided: &[(TxnId, Resolution)]) -> Entered {
    let (mut entered, mut undone) = (Entered::default(), Vec::new());
    let mut decisions: BTreeMap<TxnId, Resolution> = BTreeMap::new();
    for &(id, resolution) in decided {
        let known = *decisions.entry(id).or_insert(resolution);
        if known != resolution {
            entered.contradictions.push(format!("{id} was decided twice, and not alike"));
        }
    }
    for (index, txn) in history.iter_mut().enumerate() {
        let decision = decisions.get(&txn.id).copied();
        if let Some(resolution) = decision {
            entered.settled.count(resolution);
        }
        match (txn.outcome, decision) {
            (RecordedOutcome::Committed, Some(Resolution::Aborted)) => {
                entered.contradictions.push(format!("{} was acknowledged and undone", txn.id));
            }
            (RecordedOutcome::Unknown, Some(Resolution::Committed)) => {
                (txn.outcome, txn.completed) = (RecordedOutcome::Committed, NEVER);
            }
            (RecordedOutcome::Unknown, decision) => {
                txn.outcome = RecordedOutcome::Aborted;
                // A name that no transaction of that thread has come to.
                let name = OwnerTag::new(txn.id.node(), txn.id.thread(), COUNT_MAX - index as u64);
                undone.extend(decision.map(|_| txn.undone(name, NEVER)));
            }
            _ => {}
        }
    }
    history.extend(undone);
    entered
}

/// Where the memory does not hold what the history wrote last, in words.
async fn differing(cx: &Context, history: &[RecordedTxn]) -> Result<Option<String>, Failure> {
    let tables = cx.database().catalog.tables().len();
    let mut last = LastWrites::of(history, tables);
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
    /// Of records; nodes of ordered indexes, which are none of the `tables`, are the audit's.
    fn of(history: &[RecordedTxn], tables: usize) -> LastWrites {
        let mut last = LastWrites { writes: BTreeMap::new(), undone: BTreeSet::new() };
        let committed = |txn: &&RecordedTxn| txn.outcome == RecordedOutcome::Committed;
        for txn in history.iter().filter(committed) {
            // Whoever writes reads; what undid another transaction did not.
            let is_undoing = txn.reads.is_empty();
            for write in txn.writes.iter().filter(|it| usize::from(it.table.0) < tables) {
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
