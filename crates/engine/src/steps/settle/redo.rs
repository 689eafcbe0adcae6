//! Recovery by redo logs: transactions are finished from their logs, or have written nothing, many at once.
//!
//! The rule is [`tarn_store::log::redo::verdict`]'s: who has given any lock back himself is over, which a record says that another has
//! written since also where its LOCK died with a node; of whom any record's first
//! line says that he wrote it, or which has his VERSION and names nobody, was decided to commit, and all that a copy lacks of it is written there; of
//! everybody else nothing is anywhere. What was decided to commit is marked in its log before anything is done about it, so
//! that whoever begins anew does not take locks that recovery has given back for the transaction's own doing. Whose end
//! needs nothing done has his entry made invalid. How somebody ended who gave locks back himself his coordinator knew, unless he did
//! so in one batch with his data: that batch leaves the mark, too. Last the locks that carry his tag are released, in either mode.
//!
//! For protocols whose locks are words of memory nodes, whose records lie in lines, and whose entries are
//! [`tarn_store::log::redo`]'s.
//!
//! Each copy is looked at once: what a later writer has on its way may land between two looks, and a record that names the
//! transaction at the first would be another's at the second.
//!
//! Invariant: idempotent, with one resolver at a time. It rests on: entries are acknowledged before data are posted; at every
//! copy a record's first line before its others, and both before directory records; no unlock before all replicas have
//! acknowledged; nothing of the owner lands any more.

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

/// What is known of a transaction: its redo log, and what that led to.
pub struct Left {
    log: RedoEntry,
    /// What was found of its records; known once it was decided.
    found: Vec<FoundRecord>,
    /// What became of it; likewise.
    verdict: Option<Verdict>,
}

/// What decides; each may be missing.
#[derive(Clone, Copy)]
pub struct Rules {
    /// What a record shows; else the mere existence of a log.
    pub by_writer: bool,
    /// A later version says that a lock was given back; else LOCK words alone.
    pub by_followers: bool,
}

/// A system whose logs are of new bytes.
pub trait RedoRules {
    /// What recovery goes by.
    fn redo_rules(&self) -> Rules;
}

/// A record that an entry names.
struct FoundRecord {
    record: LoggedRecord,
    shown_by: ShownBy,
    lock: LockLeft,
    /// Where the copies are that live, and what is in them.
    copies: Vec<(Target, Vec<u8>)>,
}

impl FoundRecord {
    /// The copies that have not all of what was written, and nothing of a later transaction.
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

/// The log of new bytes, of systems whose locks are words of memory nodes.
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

/// Decides all of them. What is asked is asked at once: where a lock is still held, or is lost with its node, nobody else
/// changes the record; where it is not, only that matters.
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
            // Who gave locks back himself, or had recovery give them back.
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
            // Its coordinator knew.
            Verdict::Over | Verdict::Followed => None,
        };
        each.decision = decision;
        if let Some(decision) = decision {
            cx.note_decision(tag, decision);
        }
    }
    Ok(())
}

/// What became of a transaction, by these rules.
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

/// Whether any first line names the transaction, which had given locks back.
fn is_named(tag: OwnerTag, found: &[FoundRecord]) -> bool {
    found.iter().any(|it| {
        let new = it.record.new_version;
        it.shown_by == ShownBy::Writer && it.copies.iter().any(|(_, copy)| names(copy, new, tag))
    })
}

/// Marks the entries of who has committed, at every live node, and then writes what copies lack; makes the others' entries
/// invalid.
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

/// What copies lack of a transaction: of records and directory records what is not beyond it; of what has no version
/// everything, if anything is wanting: it is written once and never again, so that it is right whoever else has written since.
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

/// Releases what they hold, in whichever mode. A record that is not held any more is somebody else's.
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
