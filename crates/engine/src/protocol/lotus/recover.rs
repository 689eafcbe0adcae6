//! LOTUS's recovery: completes or undoes many transactions together, from their logs.
//!
//! The rule of recovery: a transaction has committed if a readable log entry has its T_commit, or if any of its cells
//! is visible at a member. Recovery undoes a transaction that has not committed: it writes the former bytes back
//! wherever the transaction's own bytes are. Recovery also makes the log entries of an undone transaction invalid. If
//! a transaction has committed, recovery writes T_commit into all its logs. Next, recovery makes the versions of a
//! committed transaction visible where they are not, first at the backups and then at the primaries. Recovery writes
//! links of chains in both cases.
//!
//! Invariant: recovery is idempotent if only one resolver works at a time, at whichever step an earlier resolver
//! died. Recovery relies on the following three facts. No write of the transaction's owner lands any more. No other
//! transaction writes a cell of the owner before the owner's locks are released. The locks are released only when the
//! owner's incarnation is recovered, or its own node has resolved the transaction. When the owner's locks are
//! released, all logs of a committed transaction have T_commit. So a cell that contains neither the transaction's
//! bytes nor the former bytes gives no evidence. Replicas may differ in cells that an incarnation left INVISIBLE
//! without a log entry.

use super::nodes::{HEAD_BYTES, undone_version};
use super::switches::{Lotus, on};
use crate::site::Context;
use crate::site::metrics::RecoveryEvent;
use crate::steps::settle::{Answer, Bulk, Wish, logs};
use tarn_fabric::address::{Address, Target};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{Failure, OwnerTag, Resolution, Timestamp};
use tarn_store::layout::{
    CELL_TXN_AT, CELLS_AT, Cell, LOCK_AT, PACKED_VERSIONS_AT, PACKED_WRITER_AT, RecordLayout,
    Version, VersionWord, version_at,
};
use tarn_store::log::versions::{
    DECISION_BYTES, LoggedVersion, VersionLog, decided, decision, decision_at,
};
use tarn_store::log::{Entry, SETTLING};

/// A transaction that LOTUS recovers: its log entry, and its T_commit after recovery has found it.
pub struct Left {
    log: VersionLog,
    commit: Option<Timestamp>,
    /// The copies of the transaction's log entry that do not contain T_commit.
    undecided: Vec<Target>,
}

impl Entry for Left {
    fn decode(round: &Round, at: BufferOffset, available: usize) -> Option<Left> {
        let log = VersionLog::decode(round, at, available)?;
        Some(Left { log, commit: None, undecided: Vec::new() })
    }

    fn tag(&self) -> OwnerTag {
        self.log.tag
    }

    fn records(&self) -> Vec<Address> {
        self.log.records()
    }
}

type Unsettled = crate::steps::settle::Unsettled<Left>;

/// The state of a transaction's version at one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The replica contains the transaction's version, which is INVISIBLE.
    Invisible,
    /// The replica contains the transaction's version, which is visible as of this timestamp.
    Visible(Timestamp),
    /// The replica contains the bytes from before the transaction.
    Former,
    /// The replica contains bytes that are neither the transaction's bytes nor the bytes from before the transaction.
    /// These other bytes belong to a later holder of the record's lock, or to an undecided version that was left
    /// without a log entry.
    Other,
}

/// A copy of one version of a transaction, at one replica.
struct Copy {
    /// The index of the transaction in the list of transactions that recovery settles.
    left: usize,
    /// The index of the version among the transaction's versions.
    version: usize,
    /// The place of the bytes whose former values are in the transaction's log entry.
    target: Target,
    /// The replica's position in its group; position 0 is the primary.
    position: usize,
    state: State,
    /// The bytes that recovery has read at the place `target`.
    words: Vec<u64>,
}

/// Decides the outcomes of all transactions in `left`.
pub(super) async fn decide(
    lotus: &Lotus,
    cx: &Context,
    left: &mut [Unsettled],
) -> Result<(), Failure> {
    find_decisions(cx, left).await?;
    let copies = look(cx, left).await?;
    for (index, each) in left.iter_mut().enumerate() {
        let of = || copies.iter().filter(|copy| copy.left == index);
        let visible = of().find_map(|copy| match copy.state {
            State::Visible(at) => Some(at),
            _ => None,
        });
        let all = of().all(|copy| !matches!(copy.state, State::Invisible | State::Former));
        each.entry.commit = each.entry.commit.or(visible);
        let committed = match lotus.switches.is_on(on::ANY_VISIBLE) {
            true => each.entry.commit.is_some(),
            false => all,
        };
        let (decision, event) = match committed {
            true => (Resolution::Committed, RecoveryEvent::Finished),
            false => (Resolution::Aborted, RecoveryEvent::Undone),
        };
        each.decision = Some(decision);
        cx.metrics.recovery(event);
        cx.note_decision(each.entry.tag(), decision);
    }
    Ok(())
}

/// Searches for T_commit in every copy of each transaction's log entry.
async fn find_decisions(cx: &Context, left: &mut [Unsettled]) -> Result<(), Failure> {
    let at = decision_at(cx.database().catalog.options().log_bytes);
    let (mut wishes, mut places) = (Vec::new(), Vec::new());
    for (index, each) in left.iter().enumerate() {
        for copy in logs::copies(cx, each.coordinator) {
            wishes.push(Wish::Read(copy, 8));
            wishes.push(Wish::Read(copy.plus(at), DECISION_BYTES));
            places.push((index, copy));
        }
    }
    let answers = Bulk::new(cx).run(&wishes).await?;
    for ((index, copy), answers) in places.into_iter().zip(answers.chunks_exact(2)) {
        let entry = &mut left[index].entry;
        // If the log area contains another transaction's entry, the decision in the area belongs to that transaction,
        // which may be over.
        let has_it = answers[0].word().is_some_and(|tag| tag & !SETTLING == entry.tag().word());
        let Answer::Done(bytes) = &answers[1] else { continue };
        let words = to_words(bytes);
        match decided(entry.tag(), [words[0], words[1]]) {
            Some(commit) => entry.commit = Some(commit),
            None if has_it => entry.undecided.push(copy),
            None => {}
        }
    }
    Ok(())
}

fn to_words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Returns the offset, in a slot, at which the former bytes of a version begin.
fn former_at(cx: &Context, version: &LoggedVersion) -> usize {
    match (version.came, cx.table(version.table).slot.record) {
        (true, _) => 0,
        (false, RecordLayout::Cells(cells)) => cells.cell_at(usize::from(version.cell)),
        (false, _) => PACKED_VERSIONS_AT,
    }
}

/// Returns the state of every version at every live replica on a member of its group.
async fn look(cx: &Context, left: &[Unsettled]) -> Result<Vec<Copy>, Failure> {
    let groups = cx.groups.whole();
    let (mut copies, mut wishes) = (Vec::new(), Vec::new());
    for (index, each) in left.iter().enumerate() {
        for (number, version) in each.entry.log.versions.iter().enumerate() {
            let members = groups.members(version.slot.group()).len();
            let from = version.slot.plus(former_at(cx, version));
            for (position, target) in groups.all(from).enumerate().take(members) {
                wishes.push(Wish::Read(target, version.former.len() * 8));
                let (left, state, words) = (index, State::Former, Vec::new());
                copies.push(Copy { left, version: number, target, position, state, words });
            }
        }
    }
    let answers = Bulk::new(cx).run(&wishes).await?;
    let mut seen = Vec::with_capacity(copies.len());
    for (mut copy, answer) in copies.into_iter().zip(answers) {
        let Answer::Done(bytes) = answer else { continue };
        copy.words = to_words(&bytes);
        let log = &left[copy.left].entry.log;
        copy.state = state_of(cx, log.tag, &log.versions[copy.version], &copy.words);
        seen.push(copy);
    }
    Ok(seen)
}

/// Returns the state of a version, from the words `words` that were read at the place of the version's former bytes.
fn state_of(cx: &Context, tag: OwnerTag, version: &LoggedVersion, words: &[u64]) -> State {
    let from = former_at(cx, version);
    let word = |at: usize| words[(at - from) / 8];
    let (writer, seen) = match cx.table(version.table).slot.record {
        RecordLayout::Packed(packed) => {
            (word(PACKED_WRITER_AT), word(packed.version_at(usize::from(version.cell))))
        }
        _ => {
            let cell = if version.came { CELLS_AT } else { from };
            (word(cell + CELL_TXN_AT), word(cell))
        }
    };
    // LOCK is only a mark, and does not belong to the former bytes.
    let skipped = usize::from(from == LOCK_AT);
    let is_former = words[skipped..] == version.former[skipped..];
    judged(writer == tag.word(), VersionWord::from_word(seen), is_former)
}

/// Returns the state of a version; `is_same` is true if the writer's tag is the transaction's tag.
fn judged(is_same: bool, seen: VersionWord, is_former: bool) -> State {
    match is_same {
        true if seen.is_invisible() => State::Invisible,
        // A cell keeps its writer's tag for ever, and a thread uses its tags again after a long time. So the bytes
        // from before the transaction may contain the same tag. The version belongs to this transaction only if its
        // timestamp differs from the timestamp before the transaction.
        true if !is_former => State::Visible(seen.timestamp()),
        _ if is_former => State::Former,
        _ => State::Other,
    }
}

/// Makes the outcome of each transaction in `left` final. The text at the beginning of this file describes the order
/// of the writes.
pub(super) async fn apply(cx: &Context, left: &[Unsettled]) -> Result<(), Failure> {
    let copies = look(cx, left).await?;
    let (mut links, mut back, mut backups, mut primaries) = (vec![], vec![], vec![], vec![]);
    let mut decisions = vec![];
    let at = decision_at(cx.database().catalog.options().log_bytes);
    for each in left {
        let commit = each.entry.commit.filter(|_| each.resolution() == Resolution::Committed);
        if let Some(commit) = commit {
            let words = decision(each.entry.tag(), commit);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let copies = each.entry.undecided.iter();
            decisions.extend(copies.map(|copy| Wish::Write(copy.plus(at), bytes.clone())));
        }
        for &(next, block) in &each.entry.log.links {
            let bytes = block.to_word().to_le_bytes().to_vec();
            let targets = cx.groups.whole();
            links.extend(targets.all(next).map(|target| Wish::Write(target, bytes.clone())));
        }
    }
    for copy in &copies {
        let each = &left[copy.left];
        let version = &each.entry.log.versions[copy.version];
        let is_own = matches!(copy.state, State::Invisible | State::Visible(_));
        match each.resolution() {
            Resolution::Aborted if is_own => {
                let bytes = version.former.iter().flat_map(|word| word.to_le_bytes()).collect();
                back.push(Wish::Write(copy.target, bytes));
            }
            Resolution::Committed if copy.state == State::Invisible => {
                let Some(at) = each.entry.commit else { continue };
                let wish = Wish::Write(copy.target, visible(cx, version, &copy.words, at));
                if copy.position == 0 { &mut primaries } else { &mut backups }.push(wish);
            }
            _ => {}
        }
    }
    let (mut old, mut freed) = (vec![], vec![]);
    settle_nodes(cx, left, (&mut old, &mut freed)).await?;
    let mut bulk = Bulk::new(cx);
    for wishes in [decisions, links, back, old, backups, freed, primaries] {
        bulk.run(&wishes).await?;
    }
    let aborted = left.iter().filter(|each| each.resolution() == Resolution::Aborted);
    let clears = aborted.flat_map(|each| {
        let tag = each.entry.tag().word();
        let copies = logs::copies(cx, each.coordinator).into_iter();
        copies.map(move |copy| Wish::Clear(copy, tag))
    });
    bulk.run(&clears.collect::<Vec<Wish>>()).await?;
    Ok(())
}

/// Adds the WRITEs that settle tree nodes which are still marked at any replica. For a committed transaction, these
/// WRITEs set T_commit in its tree nodes. For other transactions, these WRITEs first restore the old bytes of the
/// tree nodes, and then set [`undone_version`]. Every later T_commit must be higher than the version of an undone
/// node, so the function takes timestamps until they are higher.
async fn settle_nodes(
    cx: &Context,
    left: &[Unsettled],
    (old, freed): (&mut Vec<Wish>, &mut Vec<Wish>),
) -> Result<(), Failure> {
    let groups = cx.groups.whole();
    let (mut reads, mut of) = (vec![], vec![]);
    for (index, each) in left.iter().enumerate() {
        for (number, (node, _)) in each.entry.log.nodes.iter().enumerate() {
            let members = groups.members(node.group()).len();
            for target in groups.all(*node).take(members) {
                reads.push(Wish::Read(target, HEAD_BYTES));
                of.push((index, number));
            }
        }
    }
    let answers = Bulk::new(cx).run(&reads).await?;
    let is_marked = |(answer, (index, _)): &(Answer, (usize, usize))| {
        answer.word() == Some(left[*index].entry.tag().word())
    };
    let mut marked: Vec<(usize, usize)> =
        answers.into_iter().zip(of).filter(is_marked).map(|(_, of)| of).collect();
    marked.dedup();
    for (at, &(index, number)) in marked.iter().enumerate() {
        let each = &left[index];
        let (node, former) = each.entry.log.nodes[number];
        let version = match (each.resolution(), each.entry.commit) {
            (Resolution::Committed, None) => continue,
            (Resolution::Committed, Some(commit)) => version_at(commit),
            (Resolution::Aborted, _) => {
                let is_first = at == 0 || marked[at - 1].0 != index;
                for piece in each.entry.log.old.iter().filter(|_| is_first) {
                    let targets = groups.all(piece.address);
                    old.extend(targets.map(|to| Wish::Write(to, piece.old.clone())));
                }
                let undone = undone_version(former.counter());
                let is_late = |given| version_at(given).counter() >= undone;
                cx.timestamps.pass(cx, is_late).await?;
                Version::from_word(undone)
            }
        };
        let head: Vec<u8> = [0, version.word()].iter().flat_map(|it| it.to_le_bytes()).collect();
        freed.extend(groups.all(node).map(|target| Wish::Write(target, head.clone())));
    }
    Ok(())
}

/// Returns the bytes of an INVISIBLE version, changed so that the version is visible as of `at`.
fn visible(cx: &Context, version: &LoggedVersion, words: &[u64], at: Timestamp) -> Vec<u8> {
    let mut words = words.to_vec();
    let from = former_at(cx, version);
    match cx.table(version.table).slot.record {
        RecordLayout::Packed(packed) => {
            let word = &mut words[(packed.version_at(usize::from(version.cell)) - from) / 8];
            let committed = VersionWord::committed(at);
            let deleted = VersionWord::from_word(*word).is_deleted();
            *word = if deleted { committed.deleted() } else { committed }.word();
        }
        _ => {
            let at_word = if version.came { CELLS_AT / 8 } else { 0 };
            let cell = words[at_word..].first_chunk_mut::<4>().expect("a cell");
            *cell = Cell::from_words(*cell).committed(at).words();
        }
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Waits until the next timestamp of every node is higher than the T_commit of these transactions. The function need
/// not release the locks, because the nodes that own the locks release them after the incarnation is recovered.
pub(super) async fn release(cx: &Context, left: &[Unsettled]) {
    for commit in left.iter().filter_map(|each| each.entry.commit) {
        cx.timestamps.observe(cx, commit);
        cx.timestamps.wait_out(cx, commit).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread uses the same tags again after 2^33 transactions, so the former bytes may contain the tag of the
    /// present writer.
    #[test]
    fn an_older_version_belongs_to_no_transaction_despite_its_tag() {
        let [early, late] = [5, 9].map(|at| VersionWord::committed(Timestamp(at)));
        let open = VersionWord::invisible(Timestamp(7));
        assert_eq!(judged(true, early, true), State::Former);
        assert_eq!(judged(true, late, false), State::Visible(Timestamp(9)));
        assert_eq!(judged(true, open, false), State::Invisible);
        // Only in the case of the next line do the transaction's own bytes equal the former bytes. The undo of a
        // version whose bytes equal the former bytes changes nothing.
        assert_eq!(judged(true, open, true), State::Invisible);
        assert_eq!(judged(false, early, true), State::Former);
        assert_eq!(judged(false, late, false), State::Other);
        assert_eq!(judged(false, open, false), State::Other);
    }
}
