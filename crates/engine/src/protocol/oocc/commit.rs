//! OOCC's commit: raise, validate and log in one round; wait out readers' leases; write; acknowledge; unlock.
//!
//! Invariants: all reads without a lock are validated when all locks are held, and none of these lets readers pass
//! any more. No data are written before validation has passed and the log is acknowledged. A copy has a record's
//! first line before its others. No lock is released before every replica has acknowledged its data, or has it
//! earlier in the same batch.
//!
//! A transaction that has logged a record without its writer's name, and does not write it, takes its entry back
//! before it releases anything.

use super::leases::{ask_readers, begin_wait, end_reading, end_stage, wait_out};
use super::prepare::{prepare, prepare_growth};
use super::{Oocc, enter, on, phase};
use crate::cluster::lease::Stage;
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described as _;
use crate::steps::access::{Which, absorb_validation, add_validation, is_needless, validate};
use crate::steps::log::chain;
use crate::steps::log::encode::encode_redo;
use crate::steps::log::send::{add_data, add_log, take_back, write_and_unlock_early};
use crate::steps::node_locks::{
    add_raises, add_release, add_unlocks, is_on_one_node, note_raises, post_release,
    settle_unlocks, suspect_all_locks,
};
use crate::steps::structure::leaves;
use crate::steps::{begin_doubt, unknown};
use crate::transaction::working_set::{HeldAs, Lock, Txn};
use tarn_fabric::address::Target;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::log::SETTLING;

/// Commits the transaction; see the module's text for the phases that it awaits.
pub(super) async fn commit(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.is_read_only() {
        return end_reading(oocc, cx, txn).await;
    }
    end_stage(cx, txn, Stage::Execute);
    if cx.has_ordered {
        leaves::change(oocc, cx, txn).await?;
    }
    begin_wait(cx, txn).await;
    ask_readers(oocc, cx, txn);
    prepare(oocc, cx, txn)?;
    let changes_leaves = !txn.ordered.changes.is_empty();
    let decided = if changes_leaves { Decided::ByMarks } else { Decided::ByFirstLine };
    commit_prepared(oocc, cx, txn, decided).await
}

/// Commits the growth of an index. Its locks keep readers away from the first, and it has read nothing without a
/// lock.
pub(super) async fn commit_growth(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    begin_wait(cx, txn).await;
    let decided = prepare_growth(oocc, cx, txn)?;
    commit_prepared(oocc, cx, txn, decided).await
}

/// The evidence by which recovery knows that a transaction was decided to commit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Decided {
    /// The first line of a record, or of an index header, which names its writer.
    ByFirstLine,
    /// A mark in a log area of each group, in front of its data: nodes of ordered indexes do not name their writer.
    ByMarks,
}

/// Commits a transaction that is prepared; the wait for readers has begun.
async fn commit_prepared(
    oocc: &Oocc,
    cx: &Context,
    txn: &mut Txn,
    decided: Decided,
) -> Result<(), Failure> {
    if txn.chain.is_used() {
        Box::pin(chain::provide(cx, txn)).await?;
    }
    settle_unlocks(cx, txn, oocc.keeps(Rule::SettleBeforeLog)).await;
    if txn.pieces.is_empty() {
        validate(oocc, cx, txn).await?;
    } else {
        raise_before(oocc, cx, txn).await?;
        raise_validate_and_log(oocc, cx, txn).await?;
        end_stage(cx, txn, Stage::Validate);
        wait_out(cx, txn).await;
        end_stage(cx, txn, Stage::Wait);
        write(oocc, cx, txn, decided).await?;
        end_stage(cx, txn, Stage::Write);
    }
    if !txn.locks.is_empty() {
        unlock(cx, txn);
    }
    Ok(())
}

/// Returns whether a record is written that does not name its writer, and that has, or may come to have, another
/// copy. That copy can show the record where its lock is lost.
fn is_nameless(cx: &Context, txn: &Txn) -> bool {
    let may_be_lost = |lock: &Lock| !cx.is_only_copy(lock.address.group());
    txn.locks.iter().any(|lock| lock.writes_nameless() && may_be_lost(lock))
}

/// Raises, in a round of its own, locks that should have been raised before: absences were found in the round of the
/// locks.
async fn raise_before(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let has_intents = txn.locks.iter().any(|lock| lock.held_as == HeldAs::Intent);
    if !has_intents || is_needless(txn) || !oocc.switches.is_on(on::RAISE_BEFORE_VALIDATION) {
        return Ok(());
    }
    enter(cx, phase::RAISE);
    txn.round.begin();
    add_raises(cx, txn);
    send(cx, txn).await?;
    raised(txn)
}

/// Raises the last locks, validates the reads and sends the log, all in one round. Only then looks at any verdict. If
/// the verdict is no, takes a log back that has records without a writer's name.
async fn raise_validate_and_log(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    txn.round.begin();
    if txn.locks.iter().any(|lock| lock.held_as == HeldAs::Intent) {
        enter(cx, phase::RAISE);
        add_raises(cx, txn);
    }
    let validates = !is_needless(txn) && oocc.switches.is_on(on::VALIDATE_READ_WRITE);
    let seen = validates.then(|| {
        enter(cx, phase::VALIDATE);
        add_validation(cx, txn, Which::All)
    });
    add_redo_log(cx, txn);
    let takes_back = oocc.switches.is_on(on::TAKE_LOG_BACK) && is_nameless(cx, txn);
    if takes_back {
        // If the future is dropped from here on, recovery by the entry decides.
        begin_doubt(cx, txn);
    }
    let verdict = match send(cx, txn).await {
        Ok(()) => raised(txn).and_then(|()| match seen {
            Some(first) => Ok(absorb_validation(oocc, cx, txn, (first, Which::All))?),
            None => Ok(()),
        }),
        Err(failure) => Err(failure),
    };
    if verdict.is_err() && takes_back {
        enter(cx, phase::TAKE_BACK);
        take_back(cx, txn).await;
    }
    verdict
}

/// Sends a round that may raise locks.
async fn send(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    cx.port.execute(&mut txn.round).await.map_err(|error| {
        suspect_all_locks(txn);
        error.into()
    })
}

fn raised(txn: &mut Txn) -> Result<(), Failure> {
    match note_raises(txn) {
        true => Ok(()),
        false => Err(AbortReason::LockRefused.into()),
    }
}

/// Adds the log entry for every copy of one group's log area. There are as many copies as that group's data have, so
/// the entry is lost only with them.
fn add_redo_log(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::LOG);
    let (log, group) = (encode_redo(txn), txn.groups[0]);
    let area = cx.database().catalog.log(group, txn.coordinator);
    for (position, target) in cx.groups.whole().all(area).enumerate() {
        add_log(cx, txn, (group, position), target, log);
    }
}

/// Sends the data to every replica. From here on only memory says how the transaction ends.
async fn write(oocc: &Oocc, cx: &Context, txn: &mut Txn, decided: Decided) -> Result<(), Failure> {
    enter(cx, phase::WRITE);
    begin_doubt(cx, txn);
    if oocc.switches.is_on(on::ANNOUNCE_WRITES) {
        cx.port.announce_writes();
    }
    if !oocc.keeps(Rule::UnlockLate) {
        enter(cx, phase::UNLOCK);
        return write_and_unlock_early(cx, txn, None).await;
    }
    txn.round.begin();
    let marks = decided == Decided::ByMarks && oocc.switches.is_on(on::MARK_DECIDED);
    if marks {
        enter(cx, phase::MARK);
        add_marks(cx, txn);
    }
    for index in 0..txn.groups.len() {
        add_data(cx, txn, txn.groups[index], None, |_| true);
    }
    let together = oocc.switches.is_on(on::WRITE_UNLOCK) && is_on_one_node(cx, txn);
    if together {
        enter(cx, phase::UNLOCK_WITH_DATA);
        if !marks {
            let area = cx.database().catalog.log(txn.groups[0], txn.coordinator);
            add_mark(txn, cx.groups.primary(area));
        }
        add_release(cx, &mut txn.round, &txn.locks);
    }
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    if together {
        txn.locks.clear();
    }
    Ok(())
}

/// Adds a mark at each copy that is about to be written, in front of the data for its node: a copy that has any
/// data has the mark.
fn add_marks(cx: &Context, txn: &mut Txn) {
    let copies = cx.groups.whole();
    for index in 0..txn.groups.len() {
        let area = cx.database().catalog.log(txn.groups[index], txn.coordinator);
        for target in copies.all(area) {
            add_mark(txn, target);
        }
    }
}

/// Adds a mark to the transaction's log: it was decided to commit. A mark is also in front of locks' releases that
/// are in one batch with the data. If recovery finds locks given back and no mark, it concludes that the coordinator
/// knew how the transaction ended.
fn add_mark(txn: &mut Txn, log: Target) {
    let Txn { round, tag, .. } = txn;
    let mark = round.reserve(8);
    round.set_word(mark, tag.word() | SETTLING);
    round.write_private(log, mark, 8);
}

/// Releases every lock; no transaction waits for it.
fn unlock(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::UNLOCK);
    txn.round.begin();
    add_unlocks(cx, txn);
    post_release(cx, txn);
}
