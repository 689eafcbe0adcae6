//! What is wrong with a final state, if anything.
//!
//! Invariant: four judges that share nothing. The checker knows versions of the recorded history, the
//! oracle values that callers saw and that are left, the audit the memory, the desk what engines said.
//! After a memory node's death the memory is not looked at, since a part of it cannot be read. What a
//! transaction's interval is, its caller says: from its first try to the reply.

use super::cluster::{Cluster, TABLE, seed};
use super::coordinate::row_says;
use super::desk::{Desk, Left};
use super::oracle::{self, Ended};
use super::script::{Content, Contents};
use crate::bench::history::history_of;
use std::collections::BTreeMap;
use std::rc::Rc;
use tarn_check::{Isolation, check};
use tarn_engine::context::Context;
use tarn_engine::history::{RecordedOutcome, RecordedTxn};
use tarn_engine::inspect::{audit, blocks, scan, slots};
use tarn_engine::layout::LOCK_AT;
use tarn_engine::outcome::{Failure, Resolution};
use tarn_engine::owner::{COUNT_MAX, OwnerTag};
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_sim::explore::{End, Fate, Fault};

/// The thread of the steward that looks at memory: no recovery has it.
const LOOKER: u16 = 32;

/// The first thing that is wrong, the most telling kind first.
///
/// # Errors
/// Says what.
pub fn judge(cluster: &Cluster, desk: &Desk, end: &End<'_>) -> Result<(), String> {
    end.post_mortem();
    let left = desk.left();
    let (history, contradiction) = history(&left);
    let schemas = [cluster.litmus().layout.schema()];
    let report =
        check(&history_of(BTreeMap::new(), &schemas, &history), Isolation::StrictSerializable);
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
    let contents = if memory_died { None } else { Some(look(cluster, end)?) };
    if oracle::explains(cluster.litmus(), &left.seen, contents.as_deref()) {
        return Ok(());
    }
    Err(unexplained(cluster, &left, contents.as_deref()))
}

/// What was recorded, with what recovery decided; and what contradicts what a caller was told.
fn history(left: &Left) -> (Vec<RecordedTxn>, Option<String>) {
    let mut all = Vec::new();
    for (seen, tries) in left.seen.iter().zip(&left.tries) {
        for txn in tries {
            let mut txn = txn.clone();
            txn.invoked = Nanos(seen.began.unwrap_or(txn.invoked.0));
            txn.completed = Nanos(seen.told.unwrap_or(txn.completed.0));
            all.push(txn);
        }
    }
    let mut contradiction = None;
    for (index, answer) in left.answers.iter().enumerate() {
        let Some(txn) = all.iter_mut().find(|txn| txn.id == answer.id) else { continue };
        match (txn.outcome, answer.resolution) {
            (RecordedOutcome::Unknown, Resolution::Committed) => {
                (txn.outcome, txn.completed) = (RecordedOutcome::Committed, answer.at);
            }
            (RecordedOutcome::Unknown, Resolution::Aborted) => {
                (txn.outcome, txn.completed) = (RecordedOutcome::Aborted, answer.at);
                // A name that no transaction of that thread has come to.
                let id = OwnerTag::new(txn.id.node(), txn.id.thread(), COUNT_MAX - index as u64);
                let undo = txn.undone(id, answer.at);
                all.push(undo);
            }
            (RecordedOutcome::Aborted, Resolution::Committed) => {
                let text = format!("{} was aborted, and resolved as committed", answer.id);
                contradiction = contradiction.or(Some(text));
            }
            // Of a transaction that was over, "aborted" says that nothing was left to do.
            (RecordedOutcome::Committed, _) | (RecordedOutcome::Aborted, Resolution::Aborted) => {}
        }
    }
    (all, contradiction)
}

/// What is in the records at rest.
fn look(cluster: &Cluster, end: &End<'_>) -> Result<Vec<Content>, String> {
    let database = cluster.database(&end.cluster().groups());
    let node = cluster.join(&database, cluster.steward());
    let port = end.port(cluster.steward(), LOOKER, seed());
    let cx = cluster.context(&node, port, LOOKER, false);
    let lost = end.summary.faults.iter().filter_map(|fault| match fault {
        Fault::Died(node) | Fault::DeclaredDead(node) => Some(*node),
        _ => None,
    });
    let lost: Vec<NodeId> = lost.collect();
    let looked = block_on(async {
        let mut audit = audit(&cx).await?;
        audit.locks_left = audit.locks_left.saturating_sub(locks_of(&cx, &lost).await?);
        if !audit.is_clean() {
            return Ok(Err(format!("audit: {audit}")));
        }
        contents(cluster, &cx).await
    });
    looked.unwrap_or_else(|failure: Failure| Err(format!("memory: it cannot be read: {failure}")))
}

/// Locks that lost nodes' transactions have kept.
async fn locks_of(cx: &Context, lost: &[NodeId]) -> Result<u64, Failure> {
    let mut count = 0;
    blocks(cx, TABLE, |round, at| {
        for record in std::iter::once(at).chain(slots(cx.table(TABLE), at)) {
            let owner = OwnerTag::from_word(round.word(record.plus(LOCK_AT)));
            count += u64::from(owner.is_some_and(|tag| lost.contains(&tag.node())));
        }
    })
    .await?;
    Ok(count)
}

async fn contents(
    cluster: &Cluster,
    cx: &Rc<Context>,
) -> Result<Result<Vec<Content>, String>, Failure> {
    let names = &cluster.litmus().records;
    let mut contents = vec![None; names.len()];
    let mut wrong = None;
    scan(cx, TABLE, |stored| {
        let (value, is_whole) = row_says(stored.row.payload());
        match cluster.record(stored.key) {
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
    Ok(match wrong {
        None => Ok(contents),
        Some(text) => Err(text),
    })
}

/// What no order of the transactions gives, in words.
fn unexplained(cluster: &Cluster, left: &Left, contents: Option<&[Content]>) -> String {
    let litmus = cluster.litmus();
    let mut text = "values: no order of the transactions gives".to_owned();
    for (index, seen) in left.seen.iter().enumerate() {
        text += &match &seen.ended {
            Ended::Unknown if seen.began.is_none() => continue,
            Ended::Unknown => format!(" {index}: unknown;"),
            Ended::Without => format!(" {index}: no effect;"),
            Ended::Committed(reads) => {
                let reads: Vec<String> = reads.iter().map(shown).collect();
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
