//! Recovery by redo logs. Recovery handles many transactions together: it either completes a transaction from its log
//! or finds that the transaction has written nothing.
//!
//! [`tarn_store::log::redo::verdict`] has the rule by which recovery decides each outcome:
//! - A transaction that has itself released any of its locks is over. A record that another transaction has written
//!   later also shows that the lock was released, even if the record's LOCK was lost with a node.
//! - If no lock was released, but any record shows that the transaction wrote it, the transaction was decided to
//!   commit. A record shows in one of two ways that a transaction wrote it. The record's first line names the
//!   transaction as its writer; or the record names no writer and has the transaction's VERSION. Recovery then writes
//!   all bytes of the transaction that a replica lacks.
//! - If no record shows that the transaction wrote it and no lock was released, the transaction has written no data
//!   at any node.
//!
//! Recovery marks the log entry of a transaction that was decided to commit before it changes anything else of this
//! transaction. Without the mark, a resolver that begins again would mistake locks that recovery has released for
//! locks that the transaction itself has released. If recovery has nothing more to do for a transaction, it makes the
//! transaction's log entry invalid.
//!
//! If a transaction released locks itself, its coordinator knew the transaction's outcome. If a transaction's
//! releases were in one batch with its data, the coordinator may not know the outcome. A batch of data and releases
//! also writes the mark into the log entry.
//!
//! At the end, recovery releases the locks that contain the transaction's tag, in either mode.
//!
//! This module is for protocols whose locks are words in memory nodes, whose records consist of cache lines, and
//! whose entries are those of [`tarn_store::log::redo`].
//!
//! Recovery reads each replica of a record only once. If recovery read a replica twice, a later writer's data might
//! land between the two reads. With two reads, the first read could find a record that names the transaction, and the
//! second read a record that names another.
//!
//! Invariant: recovery is idempotent, if only one resolver works at a time. Recovery relies on the following four
//! facts. All nodes have acknowledged a transaction's log entries before the transaction posts its data. At every
//! replica the first line of a record lands before its other lines, and all lines of records land before directory
//! records. A transaction releases no lock before all replicas have acknowledged its data. No write of the
//! transaction's owner lands after recovery has begun.

use super::{Answer, Bulk, Log, Whose, Wish, logs};
use crate::site::Context;
use crate::site::metrics::RecoveryEvent;
use crate::steps::Described;
use tarn_fabric::address::{Address, LINE_BYTES, Target};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{Failure, OwnerTag, Resolution};
use tarn_store::layout::{LOCK_AT, LockMode, LockWord};
use tarn_store::log::redo::{
    Found, LockLeft, RedoEntry, ShownBy, Verdict, by_what_is_shown, is_wanting, names, verdict,
};
use tarn_store::log::undo::LoggedRecord;
use tarn_store::log::{Entry, SETTLING};

/// A transaction that recovery has found: its redo log, and the facts that recovery has found out about it.
pub struct Left {
    log: RedoEntry,
    /// The records of the transaction in the state in which recovery found them; known after `decide`.
    found: Vec<FoundRecord>,
    /// The verdict of recovery about the transaction; known after `decide`.
    verdict: Option<Verdict>,
}

/// The kinds of evidence that decide a transaction's outcome. A variant with a planted bug may lack a kind of
/// evidence.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Whether a record may show that the transaction wrote it. If `by_writer` is false, every transaction with a log
    /// entry counts as committed.
    pub by_writer: bool,
    /// Whether a later version of a record shows that the record's lock was released. If `by_followers` is false,
    /// only LOCK words show that a lock was released.
    pub by_followers: bool,
}

/// A system whose log entries contain new bytes.
pub trait RedoRules {
    /// Returns the kinds of evidence that the recovery of this system uses.
    fn redo_rules(&self) -> Rules;
}

/// A record that a log entry names.
struct FoundRecord {
    record: LoggedRecord,
    shown_by: ShownBy,
    lock: LockLeft,
    /// The live replicas of the record: the place and the bytes of each.
    copies: Vec<(Target, Vec<u8>)>,
}

impl FoundRecord {
    /// Returns the replicas of the record that lack a part of the transaction's write, and that contain no write of a
    /// later transaction.
    fn wanting(&self) -> impl Iterator<Item = Target> {
        let new = self.record.new_version;
        let lines = |copy: &[u8]| copy.len().div_ceil(LINE_BYTES);
        let wants = move |copy: &[u8]| is_wanting(copy, lines(copy), new);
        self.copies.iter().filter(move |(_, copy)| wants(copy)).map(|(target, _)| *target)
    }

    fn is_written(&self) -> bool {
        self.record.new_version != self.record.old_version
    }
}

impl Entry for Left {
    fn decode(round: &Round, at: BufferOffset, available: usize) -> Option<Left> {
        let log = RedoEntry::decode(round, at, available)?;
        Some(Left { log, found: Vec::new(), verdict: None })
    }

    fn tag(&self) -> OwnerTag {
        self.log.tag()
    }

    fn records(&self) -> Vec<Address> {
        self.log.records()
    }
}

/// The log of new bytes, for systems whose locks are words in memory nodes.
pub struct RedoLog;

impl<P: Described + RedoRules> Log<P> for RedoLog {
    type Entry = Left;

    async fn decide(system: &P, cx: &Context, left: &mut [Unsettled]) -> Result<(), Failure> {
        decide(cx, left, system.redo_rules()).await
    }

    async fn apply(_: &P, cx: &Context, left: &[Unsettled]) -> Result<(), Failure> {
        apply(cx, left).await
    }

    async fn release(system: &P, cx: &Context, left: &[Unsettled]) -> Result<(), Failure> {
        release(cx, left, Whose::of(system)).await
    }
}

type Unsettled = super::Unsettled<Left>;

/// Decides the outcomes of all transactions in `left`. Recovery reads all records of these transactions in one step.
/// If a record's lock is still held, or was lost with its node, no other transaction changes the record during this
/// step. If a record's lock was released, the decision depends only on the fact that it was released.
pub(crate) async fn decide(
    cx: &Context,
    left: &mut [Unsettled],
    rules: Rules,
) -> Result<(), Failure> {
    let mut wishes = Vec::new();
    for each in left.iter() {
        for record in each.entry.log.versions() {
            let lock = cx.groups.primary(record.address.plus(LOCK_AT));
            wishes.push(Wish::Read(lock, 8));
            let len = each.entry.log.bytes(record);
            let groups = cx.groups.whole();
            let copies = groups.all(record.address);
            wishes.extend(copies.map(|copy| Wish::Read(copy, len)));
        }
    }
    let mut answers = Bulk::new(cx).run(&wishes).await?.into_iter();
    for each in left {
        let Left { log, found, verdict: its, .. } = &mut each.entry;
        let tag = log.tag();
        found.clear();
        for record in log.versions() {
            let lock = answers.next().and_then(|answer| answer.word());
            let mut copies = Vec::new();
            for target in cx.groups.whole().all(record.address) {
                if let Some(Answer::Done(copy)) = answers.next() {
                    copies.push((target, copy));
                }
            }
            let (shown_by, lock) = (log.shown_by(record), LockLeft::of(lock, tag));
            found.push(FoundRecord { record: *record, shown_by, lock, copies });
        }
        let (is_decided, event) = match judge(tag, found, rules) {
            // Either the transaction has released its locks itself, or recovery has released them for it.
            Verdict::Over => (Verdict::Over, RecoveryEvent::FoundReleased),
            Verdict::Followed => (Verdict::Followed, RecoveryEvent::FoundFollowed),
            _ if each.undoing => (Verdict::Committed, RecoveryEvent::Finished),
            Verdict::Committed => (Verdict::Committed, RecoveryEvent::Finished),
            Verdict::Nothing => (Verdict::Nothing, RecoveryEvent::Undone),
        };
        *its = Some(is_decided);
        cx.metrics.recovery(event);
        let decision = match is_decided {
            Verdict::Committed => Some(Resolution::Committed),
            Verdict::Nothing => Some(Resolution::Aborted),
            _ if each.undoing || is_named(tag, found) => Some(Resolution::Committed),
            // Only the transaction's coordinator knew the outcome.
            Verdict::Over | Verdict::Followed => None,
        };
        each.decision = decision;
        if let Some(decision) = decision {
            cx.note_decision(tag, decision);
        }
    }
    Ok(())
}

/// Returns the verdict on a transaction by the kinds of evidence in `rules`.
fn judge(tag: OwnerTag, found: &[FoundRecord], rules: Rules) -> Verdict {
    let copies: Vec<Vec<&[u8]>> =
        found.iter().map(|it| it.copies.iter().map(|(_, copy)| &copy[..]).collect()).collect();
    let records = found.iter().zip(&copies).map(|(it, copies)| Found {
        new: it.record.new_version,
        lock: it.lock,
        shown_by: it.shown_by,
        copies,
    });
    let records: Vec<Found<'_>> = records.collect();
    let told = match verdict(tag, &records) {
        Verdict::Followed if !rules.by_followers => by_what_is_shown(tag, &records),
        told => told,
    };
    match told {
        Verdict::Nothing if !rules.by_writer => Verdict::Committed,
        told => told,
    }
}

/// Returns whether the first line of any record names the transaction as its writer. The caller calls this function
/// only for a transaction that has released locks.
fn is_named(tag: OwnerTag, found: &[FoundRecord]) -> bool {
    found.iter().any(|it| {
        let new = it.record.new_version;
        it.shown_by == ShownBy::Writer && it.copies.iter().any(|(_, copy)| names(copy, new, tag))
    })
}

/// Marks the log entries of committed transactions at every live node, and then writes the bytes that replicas lack.
/// Makes the log entries of all other transactions invalid.
pub(crate) async fn apply(cx: &Context, left: &[Unsettled]) -> Result<(), Failure> {
    let mut bulk = Bulk::new(cx);
    let (committed, others): (Vec<&Unsettled>, Vec<&Unsettled>) =
        left.iter().partition(|each| each.entry.verdict == Some(Verdict::Committed));
    let mut marks = Vec::new();
    for each in committed.iter().chain(&others) {
        let tag = each.entry.tag().word();
        let is_committed = each.entry.verdict == Some(Verdict::Committed);
        marks.extend(logs::copies(cx, each.coordinator).into_iter().map(
            |copy| match is_committed {
                true => Wish::Swap(copy, tag, tag | SETTLING),
                false => Wish::Clear(copy, tag),
            },
        ));
    }
    bulk.run(&marks).await?;
    let writes: Vec<Wish> = committed.iter().flat_map(|each| wanted(cx, &each.entry)).collect();
    bulk.run(&writes).await?;
    Ok(())
}

/// Returns the writes of a committed transaction that replicas of its records lack. Recovery writes a replica of a
/// record or directory record unless the replica already contains the write of this transaction or of a later one.
/// Recovery writes all bytes that have no version, if any replica of any record lacks something. No transaction
/// writes bytes without a version a second time, so recovery may write them even after writes of later transactions.
fn wanted(cx: &Context, left: &Left) -> Vec<Wish> {
    let written =
        || left.found.iter().filter(|it| it.is_written() && it.lock != LockLeft::Released);
    let mut wishes = Vec::new();
    let (records, directories): (Vec<&FoundRecord>, Vec<&FoundRecord>) =
        written().partition(|it| it.shown_by != ShownBy::Nothing);
    let is_wanting = written().any(|it| it.wanting().next().is_some());
    let of = |it: &FoundRecord, wishes: &mut Vec<Wish>| {
        for target in it.wanting() {
            for write in left.log.writes_of(&it.record) {
                let at = (write.address.offset_bytes() - it.record.address.offset_bytes()) as usize;
                wishes.push(Wish::Write(target.plus(at), write.bytes.to_vec()));
            }
        }
    };
    records.iter().for_each(|it| of(it, &mut wishes));
    if is_wanting {
        for write in left.log.others() {
            let groups = cx.groups.whole();
            let copies = groups.all(write.address);
            wishes.extend(copies.map(|copy| Wish::Write(copy, write.bytes.to_vec())));
        }
    }
    directories.iter().for_each(|it| of(it, &mut wishes));
    wishes
}

/// Releases the locks that the transactions in `left` still hold, in whichever mode. A record whose lock a
/// transaction no longer holds may belong to other transactions, so this function does not change the record.
pub(crate) async fn release(cx: &Context, left: &[Unsettled], whose: Whose) -> Result<(), Failure> {
    let mut wishes = Vec::new();
    for each in left {
        let tag = each.entry.tag();
        for it in &each.entry.found {
            let target = cx.groups.primary(it.record.address.plus(LOCK_AT));
            match (whose, it.lock) {
                (Whose::Anybodys, _) => wishes.push(Wish::Write(target, vec![0; 8])),
                (Whose::Own, LockLeft::Held) => {
                    let modes = [LockMode::Intent, LockMode::Exclusive];
                    let words = modes.map(|mode| LockWord::held(tag, mode).word());
                    wishes.extend(words.map(|word| Wish::Clear(target, word)));
                }
                (Whose::Own, LockLeft::Released | LockLeft::Lost) => {}
            }
        }
    }
    Bulk::new(cx).run(&wishes).await?;
    Ok(())
}
