//! LOTUS's commit: invisible versions and the log, a timestamp, the decision, and the WRITEs that are not waited for.
//!
//! Invariants: T_commit is taken when every replica has the INVISIBLE versions and every log the entry, with all
//! locks held; nothing is visible before every log has T_commit; nothing is visible at a primary before it is at
//! every backup. The locks are given up when all of it is done, and so is the log area.

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

/// Commits the transaction; returns when it may be acknowledged.
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

/// Commits a structural transaction, which changes nodes and no record: as any other.
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

/// C1 to C4.
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

/// C1 to C4 as [`write`], of records whose versions lie in their slots, all in one group that has one copy.
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
    // None of these versions lies apart: none is discarded, and none remembered.
    txn.written.clear();
    release(lotus, cx, txn);
    Ok(())
}

/// Commits where memory is near and timestamps come from the process's counter. Then there is no wait between C1 and the end, and a future
/// cannot be dropped there. Returns `None` if [`short::weigh`] finds no short commit, or while the log area is not free.
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

/// C1 to C4 as [`write_short`], by stores: each visit stands where a round would.
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

/// Leaves the transaction in doubt, since some of it may have been written. Notes its versions, for the life that settles it.
#[cold]
fn left_in_doubt(cx: &Context, txn: &mut Txn, error: FabricError) -> Failure {
    cx.port.note_failure(error);
    short::note_written(cx, txn);
    unknown(cx, txn)
}

/// The locks hold, and go on to.
#[inline]
fn secure(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    match lotus.switches.is_on(on::AWAIT_SURVIVORS) {
        true => txn.held.secure(cx),
        false => txn.held.check(cx),
    }
}

/// Nothing was written. With its last READ the transaction held all its locks: that is where it is in the order.
fn end_of_reading(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    txn.held.check(cx)?;
    if !txn.pieces.is_empty() {
        txn.written.clear();
        drop_vain_links(cx, txn);
    }
    release(lotus, cx, txn);
    Ok(())
}

/// Waits until the versions that the log area decides are visible everywhere. Only then is it used again.
pub(super) async fn settle_log(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    // If this future is dropped, rounds that have not settled are still to be waited for.
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

/// C1: the log's entry, then the versions, INVISIBLE, to every replica. From here on the memory
/// decides the outcome.
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

/// Says that the round writes the only copy of records that were just read under the locks: a backend whose memory is near need
/// not let others run first. It also says that the decision follows. A transaction that may miss the WRITEs of C1 must not have a T_start that
/// shows them. It has T_start from the counter that gives T_commit after C1, so the counter's order decides. For other
/// sources of timestamps this is not said.
fn stay_near(cx: &Context, round: &mut Round) {
    round.hot();
    if let Timestamps::Counter = cx.timestamps {
        round.followed();
    }
}

/// Whether the log goes to this group: to the first that is written; and, before them in the batch, wherever there
/// are bytes that nothing but the log tells from others' (links, nodes), or that have no second version (tables of one).
fn is_logged(cx: &Context, txn: &Txn, group: GroupId) -> bool {
    let first = txn.groups.first() == Some(&group);
    let is_single = |it: &Written| it.slot.group() == group && cx.table(it.table).slot.cells() == 1;
    first
        || nodes::groups(txn).any(|changed| changed == group)
        || txn.written.iter().any(is_single)
        || links(txn).any(|(next, _)| next.group() == group)
}

/// C2: T_commit is taken, and the versions are given it. The locks hold: see [`crate::transaction::lock_set::LockSet::secure`].
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

/// C3: T_commit to every log and the versions visible at the backups: then it may be acknowledged.
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

/// Whether all that the transaction writes, the log too, has its only copy at one node.
fn is_at_one_node(cx: &Context, txn: &Txn) -> bool {
    matches!(txn.groups[..], [group] if cx.groups.whole().replicas(group) == 1)
}

/// C3 and C4 where one node has it all: WRITEs of a batch reach a node in their order, so that the decision is in
/// the log before any version is visible. When they are acknowledged, nothing is on its way any more.
async fn decide_and_show(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    enter(cx, phase::DECIDE);
    txn.round.begin();
    add_decision(cx, txn);
    add_visible(cx, txn, |_| true);
    nodes::add_free(cx, txn, |_| true);
    show_and_release(lotus, cx, txn).await
}

/// Sends the WRITEs that decide and show. When they are acknowledged, all is over.
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

/// Adds the WRITEs of T_commit to every log.
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

/// Gives back the records that the transaction's versions have pushed out. They are used again once no snapshot can ask for them.
fn discard(cx: &Context, txn: &Txn) {
    for it in txn.written.iter().filter(|it| !it.discarded.is_null()) {
        cx.discard_record(it.discarded, it.table);
    }
}

/// Adds the WRITEs that make the versions visible, at the replicas (by position) that `choose` names.
fn add_visible(cx: &Context, txn: &mut Txn, choose: impl Fn(usize) -> bool) {
    let (Txn { round, written, .. }, groups) = (txn, cx.groups.whole());
    for it in written.iter() {
        let cell = it.slot.plus(usize::from(it.visible_at));
        for position in (0..groups.replicas(it.slot.group())).filter(|&at| choose(at)) {
            round.write(groups.replica(cell, position), it.visible, usize::from(it.visible_bytes));
        }
    }
}

/// C4: makes the versions visible at the primaries. Only the locks wait for it.
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

/// Closes the transaction: when its last round is done, its locks are given up.
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

/// Gives up the locks. Their next holders learn the newest timestamp that this node knows.
#[inline]
fn release(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    if !txn.held.is_empty() {
        enter(cx, phase::RELEASE);
        ideal::give_up(lotus, cx, txn);
        let known = cx.timestamps.known(cx);
        txn.held.release(cx, Some(known));
    }
}

/// Rolls back: gives up blocks and locks. Nothing was written. Waits for nothing, so that it can also run when a
/// transaction's future is dropped.
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

/// As [`roll_back`], for a transaction that was in doubt and is settled. One of which no log was found may have left
/// INVISIBLE versions all the same, where the log did not go. Its locks are held still, since they were secured before
/// anything was sent: the former bytes are written back, and then the locks are given up.
pub(super) fn abandon(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    if txn.written.is_empty() || cx.has_decided(txn.tag) {
        return roll_back(lotus, cx, txn);
    }
    // Some of it may have been written.
    txn.allocated.clear();
    restore(cx, txn);
}

/// Writes back the former bytes at every replica, and then gives the locks up. A batch goes to one node alone,
/// so that one that fails says that this node is gone, and nothing of any other.
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

/// Returns how far into the slot the former bytes begin.
fn former_at(cx: &Context, it: &Written) -> usize {
    match cx.table(it.table).slot.record {
        _ if it.came => 0,
        RecordLayout::Cells(_) => usize::from(it.visible_at),
        _ => PACKED_VERSIONS_AT,
    }
}
