//! Recovery by undo logs: completes or undoes many transactions together, from their undo logs.
//!
//! The rule of recovery begins with any valid log entry of the transaction. If the owner still holds the locks, and
//! every live replica of every record in the entry has the new VERSION, the transaction has committed.
//!
//! If one of these conditions is false, recovery writes the transaction's old bytes back to every live replica. When
//! recovery writes the old bytes of an update back, the record gets a VERSION that is higher than the new VERSION. If
//! the old VERSION returned, a reader that reads this VERSION twice could accept undone bytes that it has read
//! between the two reads. After the old bytes are written back, recovery makes the log entry of an undone transaction
//! invalid at every node. At the end, recovery releases the locks that contain the transaction's tag. If a record's
//! LOCK does not contain the tag, the lock was released, and the record may belong to other transactions.
//!
//! This module is for protocols whose locks are words in memory nodes, and whose entries are those of
//! [`tarn_store::log::undo`]. Each protocol decides the meaning of a VERSION's counter.
//!
//! Invariant: recovery is idempotent, if only one resolver works at a time. Recovery relies on the following three
//! facts. At every node, a transaction's log entry lands before the transaction's data. A transaction releases no
//! lock before all replicas of all records have acknowledged the data, or have executed the writes earlier in the
//! same batch. No write of the transaction's owner lands after recovery has begun.

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

/// A transaction that recovery has found: its undo log, and the facts that recovery has found out about it.
pub struct Left {
    log: LogEntry,
    /// The records whose locks the transaction still holds; known after `decide`.
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

/// The log of old bytes, for systems whose locks are words in memory nodes.
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

/// The log of old bytes, for systems whose locks on records lie apart from memory, so that no LOCK word of a record
/// names its owner.
pub struct UndoLogApart;

impl<P: Described> Log<P> for UndoLogApart {
    type Entry = Left;

    async fn decide(_: &P, cx: &Context, left: &mut [Unsettled]) -> Result<(), Failure> {
        decide_where(cx, left, Words::Apart).await
    }

    async fn apply(_: &P, cx: &Context, left: &[Unsettled]) -> Result<(), Failure> {
        apply(cx, left).await
    }

    async fn release(system: &P, cx: &Context, left: &[Unsettled]) -> Result<(), Failure> {
        release(cx, left, Whose::of(system)).await
    }
}

/// The meaning of a LOCK word without its owner's tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Words {
    /// The owner has released the lock.
    Tagged,
    /// Nothing: as if the word were lost with its memory node.
    Apart,
}

type Unsettled = super::Unsettled<Left>;

/// The rules of a protocol that changes records with one version in place, and whose log contains the old bytes.
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

/// The description of a protocol that changes records with one version in place, and whose log contains the old
/// bytes. The description lacks only the protocol's name and citation.
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

/// Returns the version that recovery gives a record when it writes the old bytes of an update back. The returned
/// version is higher than the version that readers may have seen. For a record that was inserted or deleted, the
/// function returns `None`, because the record gets its old version back.
pub(crate) fn undone(kind: WriteKind, version: u64) -> Option<u64> {
    (kind == WriteKind::Update).then_some(version + 1)
}

/// Returns the version that a node of an ordered index has after its change was undone. The returned version is also
/// higher than the version that the undone change gave the node.
pub(crate) fn undone_node(_: u64, new: u64) -> Option<Undone> {
    Some(Undone::always(new + 1))
}

/// Decides the outcomes of all transactions in `left`. docs/design/0004-fused-undo-log.md describes the cases, and
/// docs/design/0013-memory-node-recovery.md describes the cases in which LOCK words were lost with a memory node.
pub(crate) async fn decide(cx: &Context, left: &mut [Unsettled]) -> Result<(), Failure> {
    decide_where(cx, left, Words::Tagged).await
}

async fn decide_where(cx: &Context, left: &mut [Unsettled], words: Words) -> Result<(), Failure> {
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
                // If the primary is down, its LOCK words are lost.
                None => {
                    lost.insert((index, record.address.to_word()));
                }
                Some(lock) if lock == log.tag.word() => held.push(*record),
                // A version that follows this transaction's shows that it had committed.
                Some(_) if words == Words::Apart => {
                    lost.insert((index, record.address.to_word()));
                }
                Some(_) => is_released = true,
            }
        }
        if each.undoing {
            each.decision = Some(Resolution::Aborted);
            cx.metrics.recovery(RecoveryEvent::Undone);
        } else if is_released {
            // The transaction has begun to release locks, so it had committed before.
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

/// A read of one record's VERSION at one replica.
struct Asked {
    /// The index of the transaction that has written the record.
    index: usize,
    new: Version,
    /// Whether the record's LOCK word is lost. While a record's LOCK word is lost, other transactions may have
    /// changed the record.
    is_lost: bool,
    /// Whether the replica belongs to a member of the group, and not to a node that is still joining the group.
    counts: bool,
}

/// Decides the transactions for which no LOCK word shows a release. The function reads each VERSION only once,
/// because a second read could see data of other transactions that have landed since.
///
/// If a record's LOCK word is lost, the record's VERSION may be higher than the new VERSION in the log entry. A
/// higher VERSION shows that another transaction has changed the record later, so this transaction has committed. If
/// no record has a higher VERSION, the transaction has committed only if every member of the group has all new
/// versions.
///
/// The function also reads a replica on a joining node, so that earlier writes of the same port have arrived there;
/// but this VERSION does not count.
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

/// Undoes the aborted transactions in `left`. First, recovery marks the log entries of the aborted transactions as
/// being undone, at every live node. Second, recovery writes the old bytes of the aborted transactions back at every
/// live replica. When the old bytes have arrived, recovery makes the log entries of the aborted transactions invalid
/// at every live node.
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

/// Returns the writes that restore one transaction's old bytes at every replica.
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

/// Releases the locks that the transactions in `left` still hold. A record whose lock a transaction no longer holds
/// may belong to other transactions, so this function does not change the record.
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
