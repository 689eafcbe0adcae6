//! OOCC's commit: raise, validate and log in one round; wait out readers' leases; write; acknowledge; unlock.
//!
//! Invariants: everything that was read and not locked is looked at again when all locks are held, and none of them lets
//! readers pass any more; no data are written before that has passed and the log is acknowledged; a copy has a
//! record's first line before its others; no lock is released before every replica has acknowledged its data, or has it in
//! the same batch before; who has logged a record that names nobody, and does not write it, takes his entry back before he releases anything.

use crate::cluster::rules::Rule;
use crate::steps::Described as _;
use super::leases::{ask_readers, begin_wait, end_reading, end_stage, wait_out};
use super::prepare::{prepare, prepare_growth};
use super::{on, Oocc, phase, enter};
use crate::steps::access::{Which, absorb_validation, add_validation, is_needless, validate};
use crate::site::Context;
use crate::steps::{begin_doubt, unknown};
use tarn_store::log::SETTLING;
use crate::steps::log::chain;
use crate::steps::log::encode::encode_redo;
use crate::steps::log::send::{add_data, add_log, take_back, write_and_unlock_early};
use crate::steps::node_locks::{add_raises, add_release, add_unlocks, is_on_one_node, note_raises, post_release, settle_unlocks, suspect_all_locks};
use tarn_store::ids::{AbortReason, Failure};
use crate::cluster::lease::Stage;
use crate::steps::structure::leaves;
use crate::transaction::working_set::{HeldAs, Lock, Txn};
use tarn_fabric::address::Target;

/// Commits the transaction; see the module's text for what is awaited.
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

/// Commits the growth of an index: its locks keep readers away from the first, and it has read nothing without one.
pub(super) async fn commit_growth(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    begin_wait(cx, txn).await;
    let decided = prepare_growth(oocc, cx, txn)?;
    commit_prepared(oocc, cx, txn, decided).await
}

/// By what recovery knows that a transaction was decided to commit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Decided {
    /// The first line of a record, or of an index header, which names who wrote it.
    ByFirstLine,
    /// A mark in a log area of each group, in front of its data: nodes of ordered indexes do not say who wrote them.
    ByMarks,
}

/// Commits what is prepared; the wait for readers has begun.
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

/// Whether anything that is written names nobody, and there is, or may come to be, another copy of it, which can show it where its lock is lost.
fn is_nameless(cx: &Context, txn: &Txn) -> bool {
    let may_be_lost = |lock: &Lock| !cx.is_only_copy(lock.address.group());
    txn.locks.iter().any(|lock| lock.writes_nameless() && may_be_lost(lock))
}

/// A round of its own for what should have been raised before: absences that were found in the round of the locks.
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

/// The last locks, what was read, and what will be written: all in one round, and only then is any verdict looked at. If it is no, a log that
/// names nobody is taken back.
async fn raise_validate_and_log(
    oocc: &Oocc,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
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
        // Dropped from here on, it is for whoever finds its entry.
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

/// To every copy of one group's log area: as many as the data of that group have, so that the entry is lost only with them.
fn add_redo_log(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::LOG);
    let (log, group) = (encode_redo(txn), txn.groups[0]);
    let area = cx.database().catalog.log(group, txn.coordinator);
    for (position, target) in cx.groups.whole().all(area).enumerate() {
        add_log(cx, txn, (group, position), target, log);
    }
}

/// The data, to every replica; from here on the outcome is what the memory says.
async fn write(
    oocc: &Oocc,
    cx: &Context,
    txn: &mut Txn,
    decided: Decided,
) -> Result<(), Failure> {
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

/// A mark at each copy of what is about to be written, in front of it on the same way: a copy that has anything has that.
fn add_marks(cx: &Context, txn: &mut Txn) {
    let copies = cx.groups.whole();
    for index in 0..txn.groups.len() {
        let area = cx.database().catalog.log(txn.groups[index], txn.coordinator);
        for target in copies.all(area) {
            add_mark(txn, target);
        }
    }
}

/// In its log, that the transaction was decided. In front of its locks' release in one batch with its data, too: who finds them given
/// back without that takes it that the coordinator had known how it ended.
fn add_mark(txn: &mut Txn, log: Target) {
    let Txn { round, tag, .. } = txn;
    let mark = round.reserve(8);
    round.set_word(mark, tag.word() | SETTLING);
    round.write_private(log, mark, 8);
}

/// Releases every lock; nobody waits for it.
fn unlock(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::UNLOCK);
    txn.round.begin();
    add_unlocks(cx, txn);
    post_release(cx, txn);
}
