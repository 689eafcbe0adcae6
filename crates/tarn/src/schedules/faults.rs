//! What dies in a run, and who settles what it left.
//!
//! Invariant: only what the engine claims is asked of it. A dead memory node is never asked again, and
//! a transaction that cannot be resolved without it stays unknown. The transactions of a fenced compute
//! node are resolved by one other coordinator, after the last of the dead has learned that it is dead;
//! locks that a dead node held without a log stay, since nobody sweeps them yet (docs/design/0004).

use super::run::Desk;
use std::rc::Rc;
use tarn_engine::context::Context;
use tarn_engine::coordinator::{Coordinator, Retry};
use tarn_engine::history::{RecordedOutcome, RecordedTxn};
use tarn_engine::outcome::{Explanation, Failure, Resolution, TxnId};
use tarn_engine::owner::{COUNT_MAX, OwnerTag};
use tarn_fabric::address::{GroupId, NodeId};
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;

/// How often whoever settles looks whether the dead have noticed.
const LOOK_AGAIN: Nanos = Nanos(5_000);
/// Transactions of one coordinator that may end in a fault before it gives up.
const ENDS_MAX: u32 = 3;

/// How a transaction of a dead compute node was resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    id: TxnId,
    resolution: Resolution,
    at: Nanos,
}

/// The dead compute node, and the numbers of its coordinators.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dead {
    pub(super) node: NodeId,
    pub(super) first: u32,
    pub(super) count: u32,
}

/// What a coordinator does after a failure that a fault may have caused; whether it goes on.
pub(super) async fn go_on_after<T>(
    failure: Failure,
    by: &mut Coordinator,
    number: u32,
    (desk, ends): (&Desk<T>, &mut u32),
) -> bool {
    *ends += 1;
    let explanation = by.context().explanation(failure);
    match (failure, explanation) {
        (Failure::DeadlineExceeded, _) => {
            desk.left.borrow_mut().deadlines_missed += 1;
            *ends < ENDS_MAX
        }
        (Failure::Fabric, Some(Explanation::Fabric(FabricError::NodeDown(_)))) => *ends < ENDS_MAX,
        (Failure::Fabric, Some(Explanation::Fabric(FabricError::Fenced))) => false,
        (Failure::CommitUnknown, Some(Explanation::Unknown(id))) => {
            if let Ok(resolution) = by.resolve(id).await {
                desk.left.borrow_mut().settled.count(resolution);
                return *ends < ENDS_MAX;
            }
            desk.left.borrow_mut().in_doubt.push((id, number));
            false
        }
        (failure, explanation) => {
            let text = explanation.map_or_else(|| failure.to_string(), |it| it.to_string());
            desk.left.borrow_mut().failures.push(format!("a transaction failed: {text}"));
            false
        }
    }
}

/// Resolves what the coordinators of a dead compute node left: the transaction whose outcome one did not
/// learn, or else the one whose log stands last in its area, whose locks may be left. Not both: the log
/// of the former is written when the latter has released its locks, so that it needs nothing any more;
/// and once lines of the new log have landed on the old one, nobody can tell how it ended
/// (docs/design/0004).
pub(super) async fn settle_dead<T>(cx: Rc<Context>, number: u32, dead: Dead, desk: &Desk<T>) {
    while desk.ended_of(dead.node.slot) < dead.count {
        cx.port.sleep(LOOK_AGAIN).await;
    }
    let mut by = Coordinator::new(Rc::clone(&cx), number, Retry::default());
    for coordinator in dead.first..dead.first + dead.count {
        let doubted = desk.left.borrow().in_doubt.clone().into_iter();
        let mut ids: Vec<TxnId> =
            doubted.filter(|(_, of)| *of == coordinator).map(|(id, _)| id).collect();
        if ids.is_empty() {
            ids.extend(last_logged(&cx, dead.node, coordinator).await);
        }
        for id in ids {
            let answer = by.resolve_of(id, coordinator).await;
            let again = by.resolve_of(id, coordinator).await;
            let mut left = desk.left.borrow_mut();
            if answer != again {
                left.failures.push(format!("{id} resolved to {answer:?}, then to {again:?}"));
            }
            match answer {
                Ok(resolution) => {
                    left.settled.count(resolution);
                    left.answers.push(Answer { id, resolution, at: cx.port.observed() });
                }
                Err(failure) => left.failures.push(format!("{id} was not resolved: {failure}")),
            }
        }
    }
}

/// The latest transaction of a dead node whose log stands in a coordinator's area somewhere.
async fn last_logged(cx: &Context, dead: NodeId, coordinator: u32) -> Option<TxnId> {
    let database = cx.database();
    let mut round = Round::new();
    let mut heads = Vec::new();
    for group in 0..database.groups().count() {
        let area = database.catalog.log(GroupId(group as u16), coordinator);
        for target in database.groups().all(area) {
            heads.push(round.read(target, 8));
        }
    }
    cx.port.execute(&mut round).await.expect("no memory node dies beside a compute node");
    let tags = heads.into_iter().filter_map(|at| OwnerTag::from_word(round.word(at)));
    tags.filter(|tag| tag.node() == dead).max_by_key(|tag| tag.count())
}

/// Enters the answers into the history; what contradicts what a caller was told.
pub(super) fn enter(history: &mut Vec<RecordedTxn>, answers: &[Answer]) -> Vec<String> {
    let mut contradictions = Vec::new();
    for (index, &Answer { id, resolution, at }) in answers.iter().enumerate() {
        let Some(txn) = history.iter_mut().find(|txn| txn.id == id) else { continue };
        let resolved = match resolution {
            Resolution::Committed => RecordedOutcome::Committed,
            Resolution::Aborted => RecordedOutcome::Aborted,
        };
        if txn.outcome != RecordedOutcome::Unknown {
            if txn.outcome != resolved {
                contradictions
                    .push(format!("{id} was told {:?}, resolved {resolved:?}", txn.outcome));
            }
            continue;
        }
        (txn.completed, txn.outcome) = (at, resolved);
        if resolution == Resolution::Aborted {
            // A name that no transaction of that thread has come to.
            let undo = OwnerTag::new(id.node(), id.thread(), COUNT_MAX - index as u64);
            let undo = txn.undone(undo, at);
            history.push(undo);
        }
    }
    contradictions
}
