//! Recovery by redo logs: it finishes many transactions at once from their logs, or finds that they have written
//! nothing.
//!
//! The rule is [`tarn_store::log::redo::verdict`]'s:
//! - A transaction that has given back any lock itself is over. A record that another transaction has written since
//!   shows this as well, even if the record's LOCK died with a node.
//! - Else a transaction was decided to commit if any record shows that it wrote it. The record's first line names it
//!   as writer; or the record names no writer, and has its VERSION. Recovery then writes everything that a copy
//!   lacks.
//! - Of every other transaction no data are anywhere.
//!
//! The log of a transaction that was decided to commit is marked before recovery does anything about it. So a
//! resolver that begins anew does not mistake locks that recovery has released for locks that the transaction itself
//! released. A transaction that needs nothing more has its entry made invalid.
//!
//! If a transaction released locks itself, its coordinator knew how it ended. The exception is a release in one batch
//! with the data: that batch leaves the mark, too.
//!
//! Last the locks that carry the transaction's tag are released, in either mode.
//!
//! This is for protocols whose locks are words of memory nodes, whose records lie in lines, and whose entries are
//! those of [`tarn_store::log::redo`].
//!
//! Each copy is read once. A later writer's data may land between two reads: the first would find a record that
//! names the transaction, the second a record that names another.
//!
//! Invariant: idempotent, with one resolver at a time. It rests on this: entries are acknowledged before data are
//! posted. At every copy a record's first line lands before its others, and both before directory records. No lock is
//! released before all replicas have acknowledged. Nothing of the owner lands any more.

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

/// A transaction that recovery found: its redo log, and the findings of recovery.
pub struct Left {
    log: RedoEntry,
    /// The records as they were found; known once `decide` has run.
    found: Vec<FoundRecord>,
    /// The verdict; known once `decide` has run.
    verdict: Option<Verdict>,
}

/// The evidence that decides; each kind may be missing (a planted bug).
#[derive(Clone, Copy)]
pub struct Rules {
    /// Records show whether the transaction wrote them. Otherwise the mere existence of a log decides for commit.
    pub by_writer: bool,
    /// A later version says that a lock was given back. Otherwise LOCK words alone say so.
    pub by_followers: bool,
}

/// A system whose logs are of new bytes.
pub trait RedoRules {
    /// The evidence that recovery uses.
    fn redo_rules(&self) -> Rules;
}

/// A record that an entry names.
struct FoundRecord {
    record: LoggedRecord,
    shown_by: ShownBy,
    lock: LockLeft,
    /// The live copies: where each lies, and its bytes.
    copies: Vec<(Target, Vec<u8>)>,
}

impl FoundRecord {
    /// The copies that lack a part of the transaction's write, and hold nothing of a later transaction.
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

/// The log of new bytes, for systems whose locks are words of memory nodes.
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

/// Decides all transactions. All their records are read in one step. Where a lock is still held, or is lost with its
/// node, no other transaction changes the record. Where the lock is released, only that fact matters.
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
            // The transaction gave locks back itself, or recovery gave them back for it.
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
            // Only its coordinator knew.
            Verdict::Over | Verdict::Followed => None,
        };
        each.decision = decision;
        if let Some(decision) = decision {
            cx.note_decision(tag, decision);
        }
    }
    Ok(())
}

/// The verdict on a transaction by these rules.
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

/// Returns whether any first line names the transaction. The transaction had given locks back.
fn is_named(tag: OwnerTag, found: &[FoundRecord]) -> bool {
    found.iter().any(|it| {
        let new = it.record.new_version;
        it.shown_by == ShownBy::Writer && it.copies.iter().any(|(_, copy)| names(copy, new, tag))
    })
}

/// Marks the entries of committed transactions at every live node, and then writes the bytes that copies lack. Makes
/// the other transactions' entries invalid.
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

/// The writes that copies lack of a committed transaction. A copy of a record or directory record is written if it is
/// not beyond the transaction. Bytes without a version are all written if any copy lacks something: they are written
/// once and never again, so they are right whichever transactions have written since.
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

/// Releases the locks that the transactions hold, in whichever mode. A record that a transaction does not hold any
/// more belongs to others.
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
