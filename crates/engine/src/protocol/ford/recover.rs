//! FORD's recovery: transactions are finished or undone from their undo logs, many at once.
//!
//! The rule: take any valid log entry of the transaction. If its owner still holds the locks, and
//! every live replica of every record in it carries the new VERSION, the transaction has committed;
//! otherwise its old bytes are written back to every live replica, those of an update under a VERSION
//! beyond the new one: else a reader could take the undone bytes for the record's before and
//! after. Then the log entry of an undone transaction is made invalid everywhere, and last the
//! locks that carry its tag are released. A record whose LOCK does not carry the tag has been
//! released and belongs to others.
//!
//! Invariant: idempotent, with one resolver at a time. It rests on: at every node
//! the log before the data; no unlock before all replicas of all records have acknowledged, or have
//! executed the data earlier in the same batch; nothing of the owner lands any more.

use super::{Ford, On, Phase, enter};
use crate::context::Context;
use crate::layout::{LOCK_AT, VERSION_AT};
use crate::log::LoggedRecord;
use crate::metrics::RecoveryEvent;
use crate::outcome::{Explanation, Failure, Resolution, TxnId};
use crate::owner::OwnerTag;
use crate::recovery::{Bulk, Unsettled, Wish, logs};
use tarn_fabric::address::NodeId;

/// Finds out how `id` ended, whose log is the area of `coordinator`, and makes it final.
pub(super) async fn resolve(
    ford: &Ford,
    cx: &Context,
    id: TxnId,
    coordinator: u32,
) -> Result<Resolution, Failure> {
    enter(cx, Phase::Resolve);
    let heads = logs::heads(cx, coordinator..coordinator + 1).await?;
    let (mine, others): (Vec<_>, Vec<_>) = heads.into_iter().partition(|head| head.tag == id);
    let mut left = logs::entries(cx, &mine).await?;
    if left.is_empty() {
        if others.iter().any(|head| is_later(head.tag, id)) {
            let allowed = "a transaction whose coordinator has not written since";
            return Err(cx.explain(Explanation::usage("resolve", id, allowed)));
        }
        // No node has the log, so no node has data of it; locks without data may remain, and are
        // taken away once its owner's life is recovered.
        return Ok(Resolution::Aborted);
    }
    decide(cx, &mut left).await?;
    apply(cx, &left).await?;
    release(ford, cx, &left).await?;
    Ok(left[0].resolution())
}

/// Whether `tag` came after `id` from the same coordinator: then `id` was settled before, and its
/// log is gone.
fn is_later(tag: OwnerTag, id: TxnId) -> bool {
    let age = |tag: OwnerTag| (tag.node().incarnation, tag.count());
    tag.node().slot == id.node().slot && age(tag) > age(id)
}

/// Every transaction of a dead life that has a valid entry, in any area: its coordinators' numbers need
/// not be known.
pub(super) async fn enumerate(cx: &Context, dead: NodeId) -> Result<Vec<Unsettled>, Failure> {
    enter(cx, Phase::Resolve);
    let numbers = 0..cx.database().catalog.options().coordinators_max;
    let mut heads = logs::heads(cx, numbers).await?;
    heads.retain(|head| head.tag.node() == dead);
    logs::entries(cx, &heads).await
}

/// Decides all of them. See docs/design/0004-fused-undo-log.md for the cases.
pub(super) async fn decide(cx: &Context, left: &mut [Unsettled]) -> Result<(), Failure> {
    let groups = &cx.database().groups;
    let mut bulk = Bulk::new(cx);
    let records = left.iter().flat_map(|each| &each.entry.records);
    let locks: Vec<Wish> =
        records.map(|it| Wish::Read(groups.primary(it.address.plus(LOCK_AT)), 8)).collect();
    let mut locks = bulk.run(&locks).await?.into_iter();
    for each in left.iter_mut() {
        each.held.clear();
        for record in &each.entry.records {
            // A primary that is down takes its locks with it: nobody can say.
            let lock = locks.next().and_then(|answer| answer.word()).ok_or(Failure::Fabric)?;
            if lock == each.entry.tag.word() {
                each.held.push(*record);
            }
        }
        if each.held.len() < each.entry.records.len() {
            // Unlocking has begun, and it begins only after the commit.
            each.decision = Some(Resolution::Committed);
            cx.metrics.recovery(RecoveryEvent::FoundReleased);
        }
    }
    decide_by_versions(cx, &mut bulk, left).await?;
    for each in left {
        cx.note_decision(each.entry.tag, each.resolution());
    }
    Ok(())
}

/// Decides those that hold all their locks: by whether every live replica has the new versions.
async fn decide_by_versions(
    cx: &Context,
    bulk: &mut Bulk<'_>,
    left: &mut [Unsettled],
) -> Result<(), Failure> {
    let mut open: Vec<&mut Unsettled> =
        left.iter_mut().filter(|each| each.decision.is_none()).collect();
    let mut expected = Vec::new();
    for (index, each) in open.iter().enumerate() {
        for record in &each.entry.records {
            let copies = cx.database().groups.all(record.address.plus(VERSION_AT));
            expected.extend(copies.map(|target| (index, target, record.new_version.word())));
        }
    }
    let reads: Vec<Wish> =
        expected.iter().map(|(_, target, _)| Wish::Read(*target, 8)).collect();
    let found = bulk.run(&reads).await?;
    let mut all_new = vec![true; open.len()];
    for (answer, (index, _, new)) in found.iter().zip(&expected) {
        all_new[*index] &= answer.word().is_none_or(|version| version == *new);
    }
    for (each, is_committed) in open.iter_mut().zip(all_new) {
        let (decision, event) = match is_committed {
            true => (Resolution::Committed, RecoveryEvent::Finished),
            false => (Resolution::Aborted, RecoveryEvent::Undone),
        };
        each.decision = Some(decision);
        cx.metrics.recovery(event);
    }
    Ok(())
}

/// Writes back the old bytes of the aborted at every live replica; when they are there, makes their
/// entries invalid at every live node.
pub(super) async fn apply(cx: &Context, left: &[Unsettled]) -> Result<(), Failure> {
    let aborted: Vec<&Unsettled> =
        left.iter().filter(|each| each.resolution() == Resolution::Aborted).collect();
    let mut bulk = Bulk::new(cx);
    let back: Vec<Wish> = aborted.iter().flat_map(|each| write_back(cx, each)).collect();
    bulk.run(&back).await?;
    let clear = |each: &&Unsettled| {
        let word = each.entry.tag.word();
        logs::copies(cx, each.coordinator).into_iter().map(move |copy| Wish::Clear(copy, word))
    };
    let clears: Vec<Wish> = aborted.iter().flat_map(clear).collect();
    bulk.run(&clears).await?;
    Ok(())
}

/// The old bytes of one transaction, for every replica.
fn write_back(cx: &Context, each: &Unsettled) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for piece in &each.entry.pieces {
        let versioned = |record: &&LoggedRecord| record.address.plus(VERSION_AT) == piece.address;
        let mut old = piece.old.clone();
        if let Some(record) = each.entry.records.iter().find(versioned) {
            let version = record.restored_version(old.len());
            old[..8].copy_from_slice(&version.word().to_le_bytes());
        }
        let targets = cx.database().groups.all(piece.address);
        wishes.extend(targets.map(|target| Wish::Write(target, old.clone())));
    }
    wishes
}

/// Releases what they hold. A record that is not held any more is somebody else's.
pub(super) async fn release(
    ford: &Ford,
    cx: &Context,
    left: &[Unsettled],
) -> Result<(), Failure> {
    let own = ford.on(On::ReleaseOwn);
    let groups = &cx.database().groups;
    let mut wishes = Vec::new();
    for each in left {
        let records = if own { &each.held } else { &each.entry.records };
        for record in records {
            let target = groups.primary(record.address.plus(LOCK_AT));
            wishes.push(match own {
                true => Wish::Clear(target, each.entry.tag.word()),
                false => Wish::Write(target, vec![0; 8]),
            });
        }
    }
    Bulk::new(cx).run(&wishes).await?;
    Ok(())
}
