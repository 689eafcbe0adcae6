//! Recovery by undo logs: transactions are finished or undone from their undo logs, many at once.
//!
//! The rule: take any valid log entry of the transaction. If its owner still holds the locks, and every live replica
//! of every record in the entry carries the new VERSION, the transaction has committed.
//!
//! Otherwise its old bytes are written back to every live replica. The old bytes of an update get a VERSION beyond
//! the new one. Else a reader that finds the old VERSION twice could take undone bytes between for the record's. Then
//! the log entry of an undone transaction is made invalid everywhere. Last the locks that carry its tag are released. A record whose LOCK
//! does not carry the tag has been released, and belongs to others.
//!
//! This is for protocols whose locks are words of memory nodes, and whose entries are those of
//! [`tarn_store::log::undo`]. Each protocol decides the meaning of a VERSION's count.
//!
//! Invariant: idempotent, with one resolver at a time. It rests on this: at every node the log lands before the data.
//! No lock is released before all replicas of all records have acknowledged the data, or have executed them earlier
//! in the same batch. Nothing of the owner lands any more.

use super::{Bulk, Log, Whose, Wish, logs};
use crate::cluster::info::{IN_PLACE_ABORTS, IN_PLACE_PHASES, Limit, ProtocolCaps, ProtocolInfo};
use crate::cluster::rules::{OURS, Rule};
use crate::site::Context;
use crate::site::metrics::RecoveryEvent;
use crate::steps::Described;
use std::collections::BTreeSet;
use tarn_fabric::address::{Address, Target};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::history::{Undone, WriteKind};
use tarn_store::ids::{Failure, OwnerTag, Resolution};
use tarn_store::layout::{LOCK_AT, VERSION_AT, Version};
use tarn_store::log::undo::{LogEntry, LoggedRecord};
use tarn_store::log::{Entry, SETTLING};

/// A transaction that recovery found: its undo log, and the findings of recovery.
pub struct Left {
    log: LogEntry,
    /// The records that it still holds; known once `decide` has run.
    held: Vec<LoggedRecord>,
}

impl Entry for Left {
    fn decode(round: &Round, at: BufferOffset, available: usize) -> Option<Left> {
        Some(Left { log: LogEntry::decode(round, at, available)?, held: Vec::new() })
    }

    fn tag(&self) -> OwnerTag {
        self.log.tag
    }

    fn records(&self) -> Vec<Address> {
        self.log.records()
    }
}

/// The log of old bytes, for systems whose locks are words of memory nodes.
pub struct UndoLog;

impl<P: Described> Log<P> for UndoLog {
    type Entry = Left;

    async fn decide(_: &P, cx: &Context, left: &mut [Unsettled]) -> Result<(), Failure> {
        decide(cx, left).await
    }

    async fn apply(_: &P, cx: &Context, left: &[Unsettled]) -> Result<(), Failure> {
        apply(cx, left).await
    }

    async fn release(system: &P, cx: &Context, left: &[Unsettled]) -> Result<(), Failure> {
        release(cx, left, Whose::of(system)).await
    }
}

type Unsettled = super::Unsettled<Left>;

/// The rules of a protocol whose records have one version in place and whose log has the old bytes.
pub(crate) const IN_PLACE_RULES: [Rule; 14] = [
    Rule::ValidateReads,
    Rule::RefuseLocked,
    Rule::UnlockLate,
    Rule::ReleaseGranted,
    Rule::ProtectAbsent,
    Rule::ReleaseOnAbort,
    Rule::LockCas,
    Rule::FenceBeforeRecovery,
    Rule::SettleBeforeLog,
    Rule::ReleaseOwn,
    Rule::KeepVersion,
    Rule::ProtectRanges,
    Rule::CheckFences,
    Rule::SiblingWithSplit,
];

/// A protocol whose records have one version in place and whose log has the old bytes: all but its name and its
/// citation.
pub(crate) const IN_PLACE: ProtocolInfo = ProtocolInfo {
    name: "",
    citation: "",
    caps: ProtocolCaps { snapshot_isolation: false, ..ProtocolCaps::ALL },
    switches: &Rule::all_of(IN_PLACE_RULES, OURS),
    phases: &IN_PLACE_PHASES,
    limits: &[Limit::SCAN, Limit::LOCK_LEAF],
    aborts: IN_PLACE_ABORTS,
    undone,
    undone_node,
};

/// The version under which recovery writes the old bytes of an update back: beyond the one that readers may have
/// seen. A record that was inserted or deleted gets its old version again.
pub(crate) fn undone(kind: WriteKind, version: u64) -> Option<u64> {
    (kind == WriteKind::Update).then_some(version + 1)
}

/// The version of an undone node of an ordered index: beyond the new one, too.
pub(crate) fn undone_node(_: u64, new: u64) -> Option<Undone> {
    Some(Undone::always(new + 1))
}

/// Decides all transactions. See docs/design/0004-fused-undo-log.md for the cases, and
/// docs/design/0013-memory-node-recovery.md for those whose LOCK words died with a memory node.
pub(crate) async fn decide(cx: &Context, left: &mut [Unsettled]) -> Result<(), Failure> {
    let mut bulk = Bulk::new(cx);
    let records = left.iter().flat_map(|each| &each.entry.log.records);
    let locks: Vec<Wish> =
        records.map(|it| Wish::Read(cx.groups.primary(it.address.plus(LOCK_AT)), 8)).collect();
    let mut locks = bulk.run(&locks).await?.into_iter();
    let mut lost = BTreeSet::new();
    for (index, each) in left.iter_mut().enumerate() {
        let Left { log, held } = &mut each.entry;
        held.clear();
        let mut is_released = false;
        for record in &log.records {
            match locks.next().and_then(|answer| answer.word()) {
                // A primary that is down took its LOCK words with it.
                None => {
                    lost.insert((index, record.address.to_word()));
                }
                Some(lock) if lock == log.tag.word() => held.push(*record),
                Some(_) => is_released = true,
            }
        }
        if each.undoing {
            each.decision = Some(Resolution::Aborted);
            cx.metrics.recovery(RecoveryEvent::Undone);
        } else if is_released {
            // The transaction has begun to unlock, so it had committed.
            each.decision = Some(Resolution::Committed);
            cx.metrics.recovery(RecoveryEvent::FoundReleased);
        }
    }
    decide_by_versions(cx, &mut bulk, left, &lost).await?;
    for each in left {
        cx.note_decision(each.entry.tag(), each.resolution());
    }
    Ok(())
}

/// A VERSION that recovery reads.
struct Asked {
    /// The index of its transaction.
    index: usize,
    new: Version,
    /// The record's LOCK is lost: other transactions may have changed the record by now.
    is_lost: bool,
    /// The copy is a member's, not that of a copy that joins.
    counts: bool,
}

/// Decides the transactions of which no LOCK word shows a release. Each VERSION is read once: a second read would see
/// others' data that have landed since.
///
/// If a record's LOCK is lost, its VERSION may be beyond the entry's new one. Then another transaction had the record
/// after this one, so this one has committed. Else every member must have all new versions.
///
/// A copy that is still joining is read, so that earlier writes of the same port have arrived there; but it does not
/// count.
async fn decide_by_versions(
    cx: &Context,
    bulk: &mut Bulk<'_>,
    left: &mut [Unsettled],
    lost: &BTreeSet<(usize, u64)>,
) -> Result<(), Failure> {
    let groups = cx.groups.whole();
    let (mut asked, mut reads) = (Vec::new(), Vec::new());
    for (index, each) in left.iter().enumerate().filter(|(_, each)| each.decision.is_none()) {
        for record in &each.entry.log.records {
            let members = groups.members(record.address.group()).len();
            let is_lost = lost.contains(&(index, record.address.to_word()));
            let new = record.new_version;
            for (at, target) in groups.all(record.address.plus(VERSION_AT)).enumerate() {
                asked.push(Asked { index, new, is_lost, counts: at < members });
                reads.push(Wish::Read(target, 8));
            }
        }
    }
    let found = bulk.run(&reads).await?;
    let (mut followed, mut all_new) = (vec![false; left.len()], vec![true; left.len()]);
    for (answer, it) in found.iter().zip(&asked).filter(|(_, it)| it.counts) {
        let Some(version) = answer.word().map(Version::from_word) else { continue };
        followed[it.index] |= it.is_lost && version.counter() > it.new.counter();
        all_new[it.index] &= version == it.new;
    }
    for (index, each) in left.iter_mut().enumerate().filter(|(_, it)| it.decision.is_none()) {
        let (decision, event) = match (followed[index], all_new[index]) {
            (true, _) => (Resolution::Committed, RecoveryEvent::FoundFollowed),
            (false, true) => (Resolution::Committed, RecoveryEvent::Finished),
            (false, false) => (Resolution::Aborted, RecoveryEvent::Undone),
        };
        each.decision = Some(decision);
        cx.metrics.recovery(event);
    }
    Ok(())
}

/// Undoes the aborted transactions. First marks their entries as being undone, at every live node. Then writes their
/// old bytes back at every live replica. When these have arrived, makes the entries invalid at every live node.
pub(crate) async fn apply(cx: &Context, left: &[Unsettled]) -> Result<(), Failure> {
    let aborted: Vec<&Unsettled> =
        left.iter().filter(|each| each.resolution() == Resolution::Aborted).collect();
    let mut bulk = Bulk::new(cx);
    let at_all = |wish: fn(Target, u64) -> Wish| -> Vec<Wish> {
        let of = |each: &&Unsettled| {
            let tag = each.entry.tag().word();
            logs::copies(cx, each.coordinator).into_iter().map(move |copy| wish(copy, tag))
        };
        aborted.iter().flat_map(of).collect()
    };
    let marks = at_all(|copy, tag| Wish::Swap(copy, tag, tag | SETTLING));
    bulk.run(&marks).await?;
    let back: Vec<Wish> = aborted.iter().flat_map(|each| write_back(cx, each)).collect();
    bulk.run(&back).await?;
    let clears = at_all(|copy, tag| Wish::Clear(copy, tag | SETTLING));
    bulk.run(&clears).await?;
    Ok(())
}

/// Returns the writes of one transaction's old bytes, for every replica.
fn write_back(cx: &Context, each: &Unsettled) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for piece in &each.entry.log.pieces {
        let versioned = |record: &&LoggedRecord| record.address.plus(VERSION_AT) == piece.address;
        let mut old = piece.old.clone();
        if let Some(record) = each.entry.log.records.iter().find(versioned) {
            let version = record.restored_version(old.len());
            old[..8].copy_from_slice(&version.word().to_le_bytes());
        }
        let groups = cx.groups.whole();
        let targets = groups.all(piece.address);
        wishes.extend(targets.map(|target| Wish::Write(target, old.clone())));
    }
    wishes
}

/// Releases the locks that the transactions hold. A record that a transaction does not hold any more belongs to
/// others.
pub(crate) async fn release(cx: &Context, left: &[Unsettled], whose: Whose) -> Result<(), Failure> {
    let own = whose == Whose::Own;
    let groups = &cx.groups;
    let mut wishes = Vec::new();
    for each in left {
        let Left { log, held } = &each.entry;
        let records = if own { held } else { &log.records };
        for record in records {
            let target = groups.primary(record.address.plus(LOCK_AT));
            wishes.push(match own {
                true => Wish::Clear(target, log.tag.word()),
                false => Wish::Write(target, vec![0; 8]),
            });
        }
    }
    Bulk::new(cx).run(&wishes).await?;
    Ok(())
}
