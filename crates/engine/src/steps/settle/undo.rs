//! Recovery by undo logs: transactions are finished or undone from their undo logs, many at once.
//!
//! The rule: take any valid log entry of the transaction. If its owner still holds the locks, and
//! every live replica of every record in it carries the new VERSION, the transaction has committed;
//! otherwise its old bytes are written back to every live replica, those of an update under a VERSION
//! beyond the new one: else a reader could take the undone bytes for the record's before and
//! after. Then the log entry of an undone transaction is made invalid everywhere, and last the
//! locks that carry its tag are released. A record whose LOCK does not carry the tag has been
//! released and belongs to others.
//!
//! For protocols whose locks are words of memory nodes and whose entries are [`tarn_store::log::undo`]'s; what a
//! VERSION counts is theirs.
//!
//! Invariant: idempotent, with one resolver at a time. It rests on: at every node
//! the log before the data; no unlock before all replicas of all records have acknowledged, or have
//! executed the data earlier in the same batch; nothing of the owner lands any more.

use super::{Bulk, Log, Whose, Wish, logs};
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

/// What is known of a transaction: its undo log, and what that led to.
pub struct Left {
    log: LogEntry,
    /// Records that it still holds; known once it was decided.
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

/// The log of old bytes, of systems whose locks are words of memory nodes.
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

/// Recovery writes the old bytes of an update back under a version beyond the one that readers may have
/// seen; a record that came or went has its old version again.
pub(crate) fn undone(kind: WriteKind, version: u64) -> Option<u64> {
    (kind == WriteKind::Update).then_some(version + 1)
}

/// A node of an ordered index counts on likewise.
pub(crate) fn undone_node(_: u64, new: u64) -> Option<Undone> {
    Some(Undone::always(new + 1))
}

/// Decides all of them. See docs/design/0004-fused-undo-log.md for the cases, and
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
            // Unlocking has begun, and it begins only after the commit.
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

/// A VERSION that is asked for.
struct Asked {
    /// Of which transaction.
    index: usize,
    new: Version,
    /// Of a record whose LOCK is lost: others may have it by now.
    is_lost: bool,
    /// At a member, not at a copy that joins.
    counts: bool,
}

/// Decides those of which no LOCK says that it was released: each VERSION is looked at once. Of a record
/// whose LOCK is lost, one beyond the entry's new one is another transaction's, which had the record after
/// this one: so this one has committed. Else every member must have all new versions. A second look would
/// see others' data that have landed since. A copy that is still joining is read, so that what the same
/// port wrote there before has arrived, and does not count.
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

/// Marks the entries of the aborted as being undone, at every live node; then writes back their old bytes
/// at every live replica; when they are there, makes the entries invalid at every live node.
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

/// The old bytes of one transaction, for every replica.
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

/// Releases what they hold. A record that is not held any more is somebody else's.
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
