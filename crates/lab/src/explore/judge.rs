//! Finds the errors in a final state of an execution.
//!
//! Invariant: the four judges share no data. The checker uses the versions in the recorded history. The oracle uses
//! the values that callers saw and the final values in memory. The audit uses the memory. The desk uses the engine's
//! own reports. If a memory node's death destroyed the last copy of some data, no judge reads memory, because a part
//! of memory cannot be read. If all data still has a copy, the judges read memory through the last configuration. The
//! interval of a transaction is the interval that its caller sees: from the first try to the reply.

use super::beside::left_locked;
use super::cluster::{Cluster, SEED, TABLE};
use super::coordinate::row_says;
use super::desk::{Desk, Left};
use super::oracle::{self, Ended};
use super::ranges::{Entry, Holder};
use super::script::{Content, Contents, RecordIndex, Saw};
use crate::harness::history::history_of;
use std::collections::BTreeMap;
use std::rc::Rc;
use tarn_check::check;
use tarn_engine::admin::inspect::{audit, scan};
use tarn_engine::recovery::{Pace, sweep};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::Context;
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_sim::explore::{End, Fate, Fault};
use tarn_store::history::{RecordedTxn, enter};
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

/// The number of the steward's thread that reads the memory for the judges. No recovery runs on this thread.
const LOOKER: u16 = 32;

/// The pace of the sweep has no pauses, because no other coroutine runs at the same time.
const PACE: Pace = Pace { blocks: usize::MAX, ..Pace::UNPACED };

/// Checks the final state for errors. Returns the contents of the records, if memory could be read.
///
/// # Errors
/// The error describes the first violation that was found. Kinds of violations that give more information are checked
/// first.
pub fn judge(
    cluster: &Cluster,
    is_mended: bool,
    desk: &Desk,
    end: &End<'_>,
) -> Result<Option<Vec<Content>>, String> {
    let left = desk.left();
    let (history, contradiction) = history(&left);
    let schemas = std::slice::from_ref(cluster.schema());
    let recorded = history_of(BTreeMap::new(), schemas, &history);
    let report = check(&recorded, cluster.isolation);
    if !report.is_accepted() {
        return Err(format!("history: {report}"));
    }
    if let Some(index) = left.torn.first() {
        return Err(format!("torn: transaction {index} read a row of two halves"));
    }
    if let Some(text) = contradiction.or_else(|| left.failures.first().cloned()) {
        return Err(format!("failure: {text}"));
    }
    let stuck = end.summary.actors.iter().find(|actor| actor.fate == Fate::Stuck);
    if let Some(actor) = stuck {
        return Err(format!("stuck: {} waits for ever", actor.name));
    }
    let memory_died = end.summary.faults.iter().any(|it| matches!(it, Fault::MemoryDied(_)));
    // If the death of a memory node left a transaction in doubt, this transaction keeps its locks. So locks are
    // checked only if no memory node died.
    if let Some(text) = left_locked(&left, end).filter(|_| !memory_died) {
        return Err(format!("locks: {text}"));
    }
    let is_lost = memory_died && !is_mended;
    let contents = if is_lost { None } else { Some(look(cluster, &left, end)?) };
    let rules = (&*cluster.litmus, cluster.isolation);
    if oracle::explains(rules, &left.seen, contents.as_deref()) {
        return Ok(contents);
    }
    Err(unexplained(cluster, &left, contents.as_deref()))
}

/// A time later than any event.
const LATE: Nanos = Nanos(u64::MAX / 2);

/// Returns the recorded transactions, with the decisions about transactions in doubt. If a decision contradicts the
/// reply that a caller got, the function also returns this contradiction.
fn history(left: &Left) -> (Vec<RecordedTxn>, Option<String>) {
    let decided = left.contexts.iter().flat_map(|cx| cx.decisions());
    let mut all = recorded(left);
    // If a transaction is still undecided after the recovery of its node, the recovery found no log of this
    // transaction.
    let is_over = |txn: &RecordedTxn| left.recovered.iter().any(|(_, dead)| *dead == txn.id.node());
    let entered = enter(&mut all, decided, is_over);
    (all, entered.contradictions.into_iter().next())
}

/// Returns the transactions that the engine recorded, each from its first try to the reply.
fn recorded(left: &Left) -> Vec<RecordedTxn> {
    let mut all = Vec::new();
    for (index, &(coordinator, first)) in left.first_tries.iter().enumerate() {
        let Some(began) = left.seen[index].began else { continue };
        let sink = left.sinks[coordinator].borrow();
        let next = left.first_tries.get(index + 1);
        let end = next.filter(|(of, at)| *of == coordinator && *at != usize::MAX);
        for txn in &sink[first..end.map_or(sink.len(), |(_, at)| *at)] {
            let mut txn = txn.clone();
            txn.invoked = Nanos(began);
            txn.completed = left.seen[index].told.map_or(LATE, Nanos);
            all.push(txn);
        }
    }
    all
}

/// Returns the contents of the records, which the function reads when no coordinator runs any more.
fn look(cluster: &Cluster, left: &Left, end: &End<'_>) -> Result<Vec<Content>, String> {
    let node = cluster.join(&left.contexts[0].node.database, cluster.steward());
    let port = end.port(cluster.steward(), LOOKER, SEED);
    let cx = cluster.context(&node, port, LOOKER, false);
    let has_lost = end
        .summary
        .faults
        .iter()
        .any(|fault| matches!(fault, Fault::Died(_) | Fault::DeclaredDead(_)));
    let looked = block_on(async {
        if has_lost {
            sweep(&cx, PACE).await?;
        }
        let audit = audit(&cx).await?;
        if !audit.is_clean() {
            return Ok(Err(format!("audit: {audit}")));
        }
        let found = contents(cluster, &cx).await?;
        match found {
            Ok(contents) if has_lost && cx.has_services() => probe(cluster, &cx, contents).await,
            found => Ok(found),
        }
    });
    looked.unwrap_or_else(|failure: Failure| Err(format!("memory: it cannot be read: {failure}")))
}

/// Compute nodes may hold the locks in local memory. With such a protocol, locks that a dead node left in local
/// memory might block other transactions for ever. So the judge takes a snapshot now, and the snapshot must show the
/// records that memory holds.
async fn probe(
    cluster: &Cluster,
    cx: &Rc<Context>,
    contents: Vec<Content>,
) -> Result<Result<Vec<Content>, String>, Failure> {
    let number = cluster.litmus.coordinators.len() as u32;
    let mut by = Coordinator::new(Rc::clone(cx), number, PROBE);
    let records: Vec<RecordIndex> = (0..contents.len()).map(RecordIndex).collect();
    let read = by.transact_read_only(async |tx| {
        let ask = |record: &RecordIndex| tx.read(TABLE, cluster.key(*record), Cells::ALL);
        let asked: Vec<Handle> = records.iter().map(ask).collect();
        tx.fetch().await?;
        let seen = asked.into_iter().map(|row| tx.get(row).map(|row| row_says(row.payload()).0));
        Ok(seen.collect::<Vec<Content>>())
    });
    Ok(match read.await {
        Ok(seen) if seen == contents => Ok(contents),
        Ok(seen) => Err(format!("memory: a snapshot of it is {seen:?}, and it holds {contents:?}")),
        Err(failure) => Err(format!("memory: no snapshot of it can be read: {failure}")),
    })
}

/// The retry rule of the coordinator that takes the snapshot after all other coordinators have ended.
const PROBE: Retry =
    Retry { deadline: None, tries_max: 2, pause_first_ns: 1, pause_max_ns: 1, patient_tries: 1 };

async fn contents(
    cluster: &Cluster,
    cx: &Rc<Context>,
) -> Result<Result<Vec<Content>, String>, Failure> {
    let names = &cluster.litmus.records;
    let mut contents = vec![None; names.len()];
    let (mut wrong, mut fillers) = (None, 0);
    scan(cx, TABLE, |stored| {
        let (value, is_whole) = row_says(stored.row.payload());
        match cluster.record(stored.key) {
            None if cluster.fillers.contains(&(stored.key, value)) => fillers += 1,
            None => {
                wrong = Some(format!("memory: a record of key {} that nobody made", stored.key))
            }
            Some(record) => {
                let name = &names[record.0];
                if contents[record.0].is_some() {
                    wrong = Some(format!("memory: {name} is there twice"));
                }
                if !is_whole {
                    wrong = Some(format!("memory: {name} is torn"));
                }
                contents[record.0] = Some(value);
            }
        }
    })
    .await?;
    if fillers != cluster.fillers.len() {
        let all = cluster.fillers.len();
        wrong = Some(format!("memory: {fillers} of {all} fillers are there"));
    }
    Ok(match wrong {
        None => Ok(contents),
        Some(text) => Err(text),
    })
}

/// Describes the results of the transactions, if no order of the transactions can give these results.
fn unexplained(cluster: &Cluster, left: &Left, contents: Option<&[Content]>) -> String {
    let litmus = &cluster.litmus;
    let mut text = "values: no order of the transactions gives".to_owned();
    for (index, seen) in left.seen.iter().enumerate() {
        text += &match &seen.ended {
            Ended::Unknown if seen.began.is_none() => continue,
            Ended::Unknown => format!(" {index}: unknown;"),
            Ended::Without => format!(" {index}: no effect;"),
            Ended::Refused => format!(" {index}: refused by the unique index;"),
            Ended::Committed(reads) => {
                let saw = |it: &Saw| match it {
                    Saw::Content(content) => shown(content),
                    Saw::Entries(entries) => scanned(entries, &litmus.records),
                };
                let reads: Vec<String> = reads.iter().map(saw).collect();
                format!(" {index}: committed, read [{}];", reads.join(", "))
            }
        };
    }
    match contents {
        Some(contents) => {
            text + &format!(" left {}", Contents { names: &litmus.records, contents })
        }
        None => text,
    }
}

fn shown(content: &Content) -> String {
    content.map_or_else(|| "absent".to_owned(), |value| value.to_string())
}

/// Formats the entries of a scan, for example `{3, x = 4}`. Fillers are shown by their values.
fn scanned(entries: &[Entry], names: &[String]) -> String {
    let one = |&(value, holder): &Entry| match holder {
        Holder::Record(record) => format!("{} = {value}", names[record.0]),
        Holder::Filler => value.to_string(),
        Holder::Nobody => format!("nobody's {value}"),
    };
    format!("{{{}}}", entries.iter().map(one).collect::<Vec<_>>().join(", "))
}
