//! OOCC's commit first raises its locks to exclusive locks, validates and logs in one round. Next, the commit waits
//! until readers' leases have ended. At the end, the commit writes, awaits the acknowledgements, and releases its
//! locks.
//!
//! Invariants: the transaction validates all its reads without a lock when it holds all its locks, and when no lock
//! lets readers pass any more. The transaction writes no data before its validation has passed and the nodes have
//! acknowledged its log. At every replica, the first line of a record lands before the record's other lines. The
//! transaction releases no lock before every replica has acknowledged its data, or has received the data earlier in
//! the same batch.
//!
//! A transaction may log a record that does not name the transaction that wrote it, and then not write this record. A
//! transaction that has logged but not written such a record makes its log entry invalid before it releases any lock.

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
use crate::transaction::lock::{HeldAs, Lock};
use crate::transaction::working_set::Txn;
use tarn_fabric::address::Target;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::log::SETTLING;

/// Commits the transaction; the text at the beginning of this file lists the phases that the commit awaits.
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

/// Commits the growth of an index (a structural transaction). The locks of a structural transaction are exclusive
/// from the beginning, and it has read nothing without a lock.
pub(super) async fn commit_growth(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    begin_wait(cx, txn).await;
    let decided = prepare_growth(oocc, cx, txn)?;
    commit_prepared(oocc, cx, txn, decided).await
}

/// The evidence by which recovery knows that a transaction was decided to commit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Decided {
    /// The first line of a record, or of an index header, names the transaction as its writer.
    ByFirstLine,
    /// Each group's log area gets a mark before the group's data, because nodes of ordered indexes do not name the
    /// transaction that wrote them.
    ByMarks,
}

/// Commits a prepared transaction, whose wait for readers has already begun.
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

/// Returns whether the transaction writes a record that does not name its writer, and that has, or may get, more than
/// one replica. If the primary and its LOCK words are lost, recovery still finds such a record at another replica.
fn is_nameless(cx: &Context, txn: &Txn) -> bool {
    let may_be_lost = |lock: &Lock| !cx.is_only_copy(lock.address.group());
    txn.locks.iter().any(|lock| lock.writes_nameless() && may_be_lost(lock))
}

/// Raises locks to exclusive locks in a separate round, if the transaction should have raised them earlier. The
/// separate round is needed if the round that took the locks also found records absent.
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

/// In one round, raises the remaining locks to exclusive locks, validates the reads and sends the log. The
/// transaction handles the answers of this round only after the whole round. If the transaction must abort and has
/// logged records that do not name their writer, the function makes the log entry invalid.
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
        // If the caller drops the future after this point, recovery decides the outcome by the log entry.
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

/// Sends a round that may raise locks to exclusive locks.
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

/// Adds the WRITEs of the log entry for every replica of the log area in one group. The log area has as many replicas
/// as the group's data, so the log entry is lost only together with the data.
fn add_redo_log(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::LOG);
    let (log, group) = (encode_redo(txn), txn.groups[0]);
    let area = cx.database().catalog.log(group, txn.coordinator);
    for (position, target) in cx.groups.whole().all(area).enumerate() {
        add_log(cx, txn, (group, position), target, log);
    }
}

/// Sends the transaction's data to every replica. From this point on, only the contents of the memory nodes show
/// whether the transaction has committed.
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

/// Adds the WRITE of a mark at each replica that the transaction will write, before the data for the replica's node.
/// So each replica that has any of the transaction's data also has the mark.
fn add_marks(cx: &Context, txn: &mut Txn) {
    let copies = cx.groups.whole();
    for index in 0..txn.groups.len() {
        let area = cx.database().catalog.log(txn.groups[index], txn.coordinator);
        for target in copies.all(area) {
            add_mark(txn, target);
        }
    }
}

/// Adds the WRITE of a mark to the transaction's log entry; the mark shows that the transaction was decided to
/// commit. The transaction also writes a mark before releases of locks that are in the same batch as the data. If
/// recovery finds released locks and no mark, it concludes that the coordinator knew the transaction's outcome.
fn add_mark(txn: &mut Txn, log: Target) {
    let Txn { round, tag, .. } = txn;
    let mark = round.reserve(8);
    round.set_word(mark, tag.word() | SETTLING);
    round.write_private(log, mark, 8);
}

/// Releases every lock of the transaction. The transaction does not wait until its locks are released.
fn unlock(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::UNLOCK);
    txn.round.begin();
    add_unlocks(cx, txn);
    post_release(cx, txn);
}
