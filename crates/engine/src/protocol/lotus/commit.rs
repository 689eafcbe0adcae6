//! The commit of a LOTUS transaction has four phases. Phase C1 writes invisible versions and the log. Phase C2 takes
//! a timestamp. Phase C3 writes the decision. Phase C4 sends WRITEs for which the transaction does not wait.
//!
//! Invariants: the transaction takes T_commit when every replica has the INVISIBLE versions and every log has the
//! entry, and while it holds all locks. No version becomes visible before every log has T_commit. No version becomes
//! visible at a primary before it is visible at every backup. The transaction releases its locks and its log area
//! when all four phases are done.

use super::prepare::{PACKED_BYTES, drop_vain_links, encode_log, links, prepare};
use super::short_commit::{self as short, VERSIONS_WORDS, Weight};
use super::switches::{Lotus, enter, on, phase};
use super::{cached, ideal, nodes};
use crate::cluster::rules::Rule;
use crate::services::timestamp::Timestamps;
use crate::site::Context;
use crate::steps::Described as _;
use crate::steps::log::send::add_log;
use crate::steps::structure::leaves;
use crate::steps::{begin_doubt, recorder, unknown};
use crate::transaction::working_set::{Txn, Written};
use tarn_fabric::address::GroupId;
use tarn_fabric::backend::Detached;
use tarn_fabric::error::FabricError;
use tarn_fabric::local::DirectMemory;
use tarn_fabric::round::Round;
use tarn_store::ids::Failure;
use tarn_store::layout::{Cell, PACKED_VERSIONS_AT, RecordLayout, Version, VersionWord};
use tarn_store::log::versions::{DECISION_BYTES, decision, decision_at};

/// Commits the transaction. Returns when the engine may acknowledge the transaction to its caller.
pub(super) async fn commit(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    match short::weigh(cx, txn) {
        Weight::Nothing => return end_of_reading(lotus, cx, txn),
        Weight::Short(versions) => return write_short(lotus, cx, txn, versions).await,
        Weight::Any => {}
    }
    if cx.has_ordered {
        leaves::change(lotus, cx, txn).await?;
    }
    prepare(lotus, cx, txn).await?;
    write(lotus, cx, txn).await
}

/// Commits a structural transaction in the same way as other transactions. A structural transaction changes nodes of
/// ordered indexes, or the places of records, but not the records themselves.
pub(super) async fn commit_structure(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    prepare(lotus, cx, txn).await?;
    if !lotus.switches.is_on(on::FORGET_MOVED) {
        cached::unchanged(lotus, cx, txn);
    }
    write(lotus, cx, txn).await
}

/// Performs the phases C1 to C4 of a commit.
async fn write(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    settle_log(lotus, cx, txn).await?;
    secure(lotus, cx, txn)?;
    write_invisible(lotus, cx, txn).await?;
    take_timestamp(cx, txn).await?;
    if is_at_one_node(cx, txn) {
        return decide_and_show(lotus, cx, txn).await;
    }
    decide(lotus, cx, txn).await?;
    cached::decided(lotus, cx, txn);
    show_at_primary(lotus, cx, txn);
    Ok(())
}

/// Performs the phases C1 to C4 in the same way as [`write`], for records whose versions lie in their slots. All
/// records of such a commit are in one group with one replica.
async fn write_short(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    versions: usize,
) -> Result<(), Failure> {
    settle_log(lotus, cx, txn).await?;
    secure(lotus, cx, txn)?;
    let logged = short::make_invisible(cx, txn, versions);
    short::note_written(cx, txn);
    let Txn { entries, round, .. } = &mut *txn;
    round.begin();
    round.write_private(logged.area, logged.entry, logged.len);
    short::invisible(entries, logged.area).for_each(|(to, at)| round.write(to, at, PACKED_BYTES));
    begin_doubt(cx, txn);
    stay_near(cx, &mut txn.round);
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    enter(cx, phase::STAMP);
    let commit = cx.timestamps.commit(cx).await.map_err(|_| unknown(cx, txn))?;
    short::stamp(cx, txn, commit);
    enter(cx, phase::DECIDE);
    let Txn { entries, round, tag, .. } = &mut *txn;
    round.begin();
    let words = round.reserve(DECISION_BYTES);
    *round.array_mut::<2>(words) = decision(*tag, commit);
    round.write(short::decision_in(cx, logged.area), words, DECISION_BYTES);
    let visible = VersionWord::committed(commit).word();
    for (to, at) in short::visible(entries, logged.area) {
        round.set_word(at, visible);
        round.write(to, at, 8);
    }
    round.hot();
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    cx.timestamps.wait_out(cx, txn.stamps.commit).await;
    // No version of this commit lies outside its slot, so none is discarded and none is cached.
    txn.written.clear();
    release(lotus, cx, txn);
    Ok(())
}

/// Commits a transaction if the memory is near and the timestamps come from the counter of this process. Such a
/// commit does not wait between C1 and its end, so the caller cannot drop its future between them. Returns `None` if
/// [`short::weigh`] finds no short commit, or while the log area is still in use.
#[inline]
pub(super) fn commit_near(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
) -> Option<Result<(), Failure>> {
    let near = match cx.timestamps {
        Timestamps::Counter if txn.unlocking.is_empty() && !txn.left_unshown => cx.port.near()?,
        _ => return None,
    };
    match short::weigh(cx, txn) {
        Weight::Nothing => Some(end_of_reading(lotus, cx, txn)),
        Weight::Short(versions) => Some(write_near(lotus, cx, txn, (near, versions))),
        Weight::Any => None,
    }
}

/// Performs the phases C1 to C4 in the same way as [`write_short`], but by stores. Each visit to memory takes the
/// place of one round.
#[inline(never)]
fn write_near(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    (near, versions): (DirectMemory<'_>, usize),
) -> Result<(), Failure> {
    secure(lotus, cx, txn)?;
    let logged = short::make_invisible(cx, txn, versions);
    begin_doubt(cx, txn);
    let Txn { entries, round, .. } = &*txn;
    let written = near.visit(logged.area, |visit| {
        visit.followed();
        visit.write_private(logged.area, round.words(logged.entry, logged.len / 8))?;
        short::invisible(entries, logged.area)
            .try_for_each(|(to, at)| visit.write(to, round.array::<VERSIONS_WORDS>(at)))
    });
    written.map_err(|error| left_in_doubt(cx, txn, *error))?;
    enter(cx, phase::STAMP);
    short::stamp(cx, txn, cx.database().counter.next());
    enter(cx, phase::DECIDE);
    let Txn { entries, tag, stamps, .. } = &*txn;
    let visible = VersionWord::committed(stamps.commit).word();
    let shown = near.visit(logged.area, |visit| {
        visit.write(short::decision_in(cx, logged.area), &decision(*tag, stamps.commit))?;
        short::visible(entries, logged.area).try_for_each(|(to, _)| visit.write(to, &[visible]))
    });
    shown.map_err(|error| left_in_doubt(cx, txn, *error))?;
    release(lotus, cx, txn);
    Ok(())
}

/// Leaves the transaction in doubt, because some of its writes may have landed. Notes the transaction's versions for
/// the node's incarnation that settles the transaction.
#[cold]
fn left_in_doubt(cx: &Context, txn: &mut Txn, error: FabricError) -> Failure {
    cx.port.note_failure(error);
    short::note_written(cx, txn);
    unknown(cx, txn)
}

/// Makes sure that the transaction holds its locks, and that it will hold them until its end.
#[inline]
fn secure(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    match lotus.switches.is_on(on::AWAIT_SURVIVORS) {
        true => txn.held.secure(cx),
        false => txn.held.check(cx),
    }
}

/// Ends a transaction that has written nothing. At its last READ, the transaction held all its locks, so the moment
/// of this READ is its place in the order of transactions.
fn end_of_reading(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    txn.held.check(cx)?;
    if !txn.pieces.is_empty() {
        txn.written.clear();
        drop_vain_links(cx, txn);
    }
    release(lotus, cx, txn);
    Ok(())
}

/// Waits until all versions whose outcome the log area decides are visible at every replica. Only then may the next
/// transaction use the log area.
pub(super) async fn settle_log(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    // A round leaves the list only after it has ended, so a dropped future leaves the other rounds in the list.
    while let Some(&showing) = txn.unlocking.last() {
        if lotus.keeps(Rule::SettleBeforeLog) && cx.port.settle(showing).await.is_err() {
            txn.left_unshown = true;
        }
        txn.unlocking.pop();
    }
    if txn.left_unshown {
        cx.settle_closed(txn.coordinator).await?;
        txn.left_unshown = false;
    }
    Ok(())
}

/// Phase C1: sends the log entry, and then the INVISIBLE versions, to every replica. From this point on, the contents
/// of memory decide the transaction's outcome.
async fn write_invisible(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    enter(cx, phase::INVISIBLE);
    let log = encode_log(txn);
    nodes::stamp(txn, None);
    begin_doubt(cx, txn);
    txn.round.begin();
    for index in 0..txn.groups.len() {
        let group = txn.groups[index];
        let (area, groups) = (cx.database().catalog.log(group, txn.coordinator), cx.groups.whole());
        let logs = is_logged(cx, txn, group);
        for position in 0..groups.replicas(group) {
            if logs {
                add_log(cx, txn, (group, position), groups.replica(area, position), log);
            }
            if lotus.switches.is_on(on::MARK_NODES) {
                nodes::add_marks(cx, txn, group, position);
            }
            let Txn { round, pieces, .. } = &mut *txn;
            for piece in pieces.iter().filter(|piece| piece.address.group() == group) {
                let target = groups.replica(piece.address, position);
                round.write(target, piece.new, piece.len_bytes as usize);
            }
        }
    }
    if is_at_one_node(cx, txn) {
        stay_near(cx, &mut txn.round);
    }
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))
}

/// Marks a round that writes the only replica of records which the transaction just read under locks. If the memory
/// is near, the mark lets the backend send the round without running other transactions first. If timestamps come
/// from the counter of this process, the function also tells the backend that the decision follows this round. A
/// snapshot transaction that may miss the WRITEs of C1 must not have a T_start that would show these WRITEs. The
/// snapshot transaction's T_start comes from the same counter as T_commit, which is taken after C1. So the order of
/// the counter makes sure that the snapshot transaction's T_start is lower than T_commit. Other sources of timestamps
/// do not guarantee that T_start is lower, so with them the function does not tell the backend about the decision.
fn stay_near(cx: &Context, round: &mut Round) {
    round.hot();
    if let Timestamps::Counter = cx.timestamps {
        round.followed();
    }
}

/// Returns whether the transaction sends its log entry to this group. The transaction always sends its log entry to
/// the first group that it writes. The log entry also goes to each group with bytes that only the log can attribute
/// to a transaction (links, nodes), or whose tables have one version. In the batch to a group, the log entry precedes
/// such bytes.
fn is_logged(cx: &Context, txn: &Txn, group: GroupId) -> bool {
    let first = txn.groups.first() == Some(&group);
    let is_single = |it: &Written| it.slot.group() == group && cx.table(it.table).slot.cells() == 1;
    first
        || nodes::groups(txn).any(|changed| changed == group)
        || txn.written.iter().any(is_single)
        || links(txn).any(|(next, _)| next.group() == group)
}

/// Phase C2: takes T_commit, and sets T_commit in the transaction's versions. The transaction still holds its locks;
/// see [`crate::transaction::lock_set::LockSet::secure`].
async fn take_timestamp(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    enter(cx, phase::STAMP);
    let commit = cx.timestamps.commit(cx).await.map_err(|_| unknown(cx, txn))?;
    txn.stamps.commit = commit;
    nodes::stamp(txn, Some(commit));
    let Txn { round, entries, written, .. } = &mut *txn;
    for it in written.iter() {
        entries[it.entry as usize].new_version = Version::from_word(commit.0);
        match cx.table(it.table).slot.record {
            RecordLayout::Cells(_) => {
                let cell = Cell::from_words(*round.array::<4>(it.visible)).committed(commit);
                *round.array_mut::<4>(it.visible) = cell.words();
            }
            _ => {
                let deleted = VersionWord::from_word(round.word(it.visible)).is_deleted();
                let word = VersionWord::committed(commit);
                let word = if deleted { word.deleted() } else { word };
                round.set_word(it.visible, word.word());
            }
        }
    }
    if txn.recorded_in.is_some() {
        recorder::enter_doubt(cx, txn);
    }
    Ok(())
}

/// Phase C3: writes T_commit to every log, and makes the transaction's versions visible at the backups. After C3, the
/// engine may acknowledge the transaction to its caller.
async fn decide(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    enter(cx, phase::DECIDE);
    txn.round.begin();
    add_decision(cx, txn);
    let backups_first = lotus.switches.is_on(on::BACKUPS_FIRST);
    add_visible(cx, txn, |position| position > 0 || !backups_first);
    nodes::add_free(cx, txn, |position| position > 0);
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    cx.timestamps.wait_out(cx, txn.stamps.commit).await;
    Ok(())
}

/// Returns whether everything that the transaction writes, including the log, has only one replica and lies on one
/// node.
fn is_at_one_node(cx: &Context, txn: &Txn) -> bool {
    matches!(txn.groups[..], [group] if cx.groups.whole().replicas(group) == 1)
}

/// Phases C3 and C4 for a transaction that writes to only one node. The WRITEs of a batch reach a node in their
/// order, so the decision is in the log before any version is visible. When the node has acknowledged these WRITEs,
/// no write of the transaction is on its way any more.
async fn decide_and_show(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    enter(cx, phase::DECIDE);
    txn.round.begin();
    add_decision(cx, txn);
    add_visible(cx, txn, |_| true);
    nodes::add_free(cx, txn, |_| true);
    show_and_release(lotus, cx, txn).await
}

/// Sends the WRITEs that decide the transaction and make its versions visible. When the node has acknowledged these
/// WRITEs, the transaction is over.
async fn show_and_release(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    txn.round.hot();
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    cx.timestamps.wait_out(cx, txn.stamps.commit).await;
    cached::decided(lotus, cx, txn);
    discard(cx, txn);
    txn.written.clear();
    release(lotus, cx, txn);
    Ok(())
}

/// Adds the WRITEs of T_commit to every log that has the transaction's entry.
fn add_decision(cx: &Context, txn: &mut Txn) {
    let at = decision_at(cx.database().catalog.options().log_bytes);
    let words = decision(txn.tag, txn.stamps.commit);
    let bytes = txn.round.reserve(DECISION_BYTES);
    *txn.round.array_mut::<2>(bytes) = words;
    for index in 0..txn.groups.len() {
        let group = txn.groups[index];
        if is_logged(cx, txn, group) {
            let area = cx.database().catalog.log(group, txn.coordinator).plus(at);
            for target in cx.groups.whole().all(area) {
                txn.round.write(target, bytes, DECISION_BYTES);
            }
        }
    }
}

/// Frees the records of old versions that the transaction's versions have replaced. The memory of these old versions
/// is used again only after no snapshot can read them any more.
fn discard(cx: &Context, txn: &Txn) {
    for it in txn.written.iter().filter(|it| !it.discarded.is_null()) {
        cx.discard_record(it.discarded, it.table);
    }
}

/// Adds the WRITEs that make the transaction's versions visible, at the replicas whose position `choose` accepts.
fn add_visible(cx: &Context, txn: &mut Txn, choose: impl Fn(usize) -> bool) {
    let (Txn { round, written, .. }, groups) = (txn, cx.groups.whole());
    for it in written.iter() {
        let cell = it.slot.plus(usize::from(it.visible_at));
        for position in (0..groups.replicas(it.slot.group())).filter(|&at| choose(at)) {
            round.write(groups.replica(cell, position), it.visible, usize::from(it.visible_bytes));
        }
    }
}

/// Phase C4: makes the transaction's versions visible at the primaries. The caller does not wait for these WRITEs;
/// only the release of the locks waits for them.
fn show_at_primary(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    enter(cx, phase::SHOW);
    txn.round.begin();
    add_visible(cx, txn, |position| position == 0);
    nodes::add_free(cx, txn, |position| position == 0);
    ideal::add_given_up(lotus, cx, txn);
    let posted = cx.port.post_detached(&mut txn.round);
    discard(cx, txn);
    close(cx, txn, posted);
}

/// Closes the transaction: its locks are released when its last round has ended.
fn close(cx: &Context, txn: &mut Txn, posted: Result<Detached, FabricError>) {
    enter(cx, phase::RELEASE);
    txn.written.clear();
    txn.unlocking.extend(posted);
    let known = cx.timestamps.known(cx);
    let whose = (txn.tag, txn.coordinator);
    if !cx.close(posted, (&mut txn.held, whose), known) {
        txn.left_unshown = true;
    }
}

/// Releases the locks of the transaction. The next holders of the released locks learn the newest timestamp that this
/// node knows.
#[inline]
fn release(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    if !txn.held.is_empty() {
        enter(cx, phase::RELEASE);
        ideal::give_up(lotus, cx, txn);
        let known = cx.timestamps.known(cx);
        txn.held.release(cx, Some(known));
    }
}

/// Rolls the transaction back: releases its locks and frees the memory that it has allocated. A transaction that is
/// rolled back has written nothing. This function does not wait, so it can also run when a transaction's future is
/// dropped.
pub(super) fn roll_back(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    while let Some(block) = txn.allocated.pop() {
        cx.take_back(block);
    }
    txn.pieces.clear();
    txn.written.clear();
    if lotus.keeps(Rule::ReleaseOnAbort) {
        release(lotus, cx, txn);
    }
}

/// Does the same as [`roll_back`], for a transaction that was in doubt and is settled. If no log entry of the
/// transaction was found, the transaction may still have left INVISIBLE versions in groups without its log entry. The
/// transaction still holds its locks, because it had secured them before it sent anything. So this function writes
/// the former bytes back, and then releases the locks.
pub(super) fn abandon(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    if txn.written.is_empty() || cx.has_decided(txn.tag) {
        return roll_back(lotus, cx, txn);
    }
    // Some of the transaction's versions may have been written, so this function does not free the allocated memory.
    txn.allocated.clear();
    restore(cx, txn);
}

/// Writes the former bytes of the transaction's versions back at every replica, and then releases the locks. Each
/// batch of these former bytes goes to only one node. If a batch fails, only its node is down, and the batches to
/// other nodes are not affected.
fn restore(cx: &Context, txn: &mut Txn) {
    let groups = cx.groups.whole();
    let (mut writes, mut former) = (Vec::new(), Vec::new());
    for it in &txn.written {
        let from = it.slot.plus(former_at(cx, it));
        former.extend(groups.all(from).map(|target| (target, it.former, it.former_bytes)));
    }
    for node in groups.nodes() {
        txn.round.begin();
        for &(target, at, bytes) in former.iter().filter(|(target, ..)| target.node() == node) {
            txn.round.write(target, at, bytes);
        }
        writes.extend(cx.port.post_detached(&mut txn.round));
    }
    enter(cx, phase::RELEASE);
    txn.written.clear();
    txn.unlocking.extend(&writes);
    cx.close_restored(writes, (&mut txn.held, (txn.tag, txn.coordinator)));
}

/// Returns the offset, in the slot, at which the former bytes of a version begin.
fn former_at(cx: &Context, it: &Written) -> usize {
    match cx.table(it.table).slot.record {
        _ if it.came => 0,
        RecordLayout::Cells(_) => usize::from(it.visible_at),
        _ => PACKED_VERSIONS_AT,
    }
}
