//! Tests of entries of new bytes, and of recovery's decision for every state that a dead writer may have left.
//!
//! Invariant: at each copy of a record, the writer's verbs land in their order, and the lines of one verb land in any
//! order. The order at one copy does not depend on the other copies.

use super::super::pieces::OldBytes;
use super::super::undo::{entry_bytes, write_entry};
use super::*;
use crate::layout::{Lined, LockMode};
use crate::schema::{ColumnType, TableSchema};
use tarn_fabric::address::{GroupId, Incarnation, LINE_BYTES, NodeId, NodeSlot};

const OLD: u64 = 4;
const NEW: u64 = 5;

fn tag(count: u64) -> OwnerTag {
    let node = NodeId { slot: NodeSlot(3), incarnation: Incarnation(1) };
    OwnerTag::new(node, 0, count)
}

fn lined(payload: u16) -> Lined {
    Lined::new(&TableSchema::new("t", 1).column("c", ColumnType::Bytes(payload)), false)
}

fn record(of: Lined, number: u64, writer: u64) -> Vec<u8> {
    let mut record = vec![0; of.record_bytes()];
    of.scatter(&vec![(number * 16 + writer) as u8; of.row_bytes()], 0, &mut record);
    of.stamp(&mut record, Version::from_word(number), tag(writer).word());
    record
}

/// Returns every state of a copy while `new` is written over `old`. If `in_one` is true, one verb writes all lines.
/// If `in_one` is false, the verbs of a real writer write the lines.
fn on_the_way(of: Lined, old: &[u8], new: &[u8], in_one: bool) -> Vec<Vec<u8>> {
    let mut verbs: Vec<_> = of.writes().collect();
    if in_one {
        let end = verbs.last().map_or(0, |range| range.end);
        verbs = std::iter::once(VERSION_AT..end).collect();
    }
    let (mut states, mut done) = (Vec::new(), old.to_vec());
    for verb in verbs {
        let lines: Vec<usize> = (verb.start / LINE_BYTES..verb.end.div_ceil(LINE_BYTES)).collect();
        for landed in 0u32..1 << lines.len() {
            let mut copy = done.clone();
            for (_, line) in lines.iter().enumerate().filter(|(bit, _)| landed >> bit & 1 == 1) {
                let (from, to) = (line * LINE_BYTES, (line + 1) * LINE_BYTES);
                let part = from.max(verb.start)..to.min(verb.end);
                copy[part.clone()].copy_from_slice(&new[part]);
            }
            states.push(copy);
        }
        done = states.last().cloned().unwrap_or(done);
    }
    states
}

fn found<'a>(lock: LockLeft, copies: &'a [&'a [u8]]) -> Found<'a> {
    Found { new: Version::from_word(NEW), lock, shown_by: ShownBy::Writer, copies }
}

/// Calls `each` with two records of two copies each, in every state in which a dead writer may leave them.
fn each_left(in_one: bool, mut each: impl FnMut([&[u8]; 4], bool)) {
    let (small, large) = (lined(8), lined(100));
    let states = |of| on_the_way(of, &record(of, OLD, 1), &record(of, NEW, 2), in_one);
    let (small, large) = (states(small), states(large));
    for (one, other) in small.iter().flat_map(|one| small.iter().map(move |other| (one, other))) {
        for (first, second) in large.iter().flat_map(|it| large.iter().map(move |at| (it, at))) {
            let begun = [one, other].iter().any(|it| **it != small[0])
                || [first, second].iter().any(|it| **it != large[0]);
            each([&one[..], &other[..], &first[..], &second[..]], begun);
        }
    }
}

#[test]
fn a_transaction_that_wrote_anything_is_finished_and_another_leaves_nothing() {
    for lock in [LockLeft::Held, LockLeft::Lost] {
        let (mut finished, mut gone) = (0, 0);
        each_left(false, |copies, begun| {
            let records = [found(lock, &copies[..2]), found(lock, &copies[2..])];
            let verdict = verdict(tag(2), &records);
            assert_eq!(verdict == Verdict::Committed, begun, "{verdict:?}");
            for (at, copy) in copies.into_iter().enumerate() {
                let of = if at < 2 { lined(8) } else { lined(100) };
                let is_done = copy == &record(of, NEW, 2)[..];
                assert_eq!(is_wanting(copy, of.lines(), Version::from_word(NEW)), !is_done);
            }
            *(if begun { &mut finished } else { &mut gone }) += 1;
        });
        assert!(finished > 100 && gone > 0, "{finished} and {gone}");
    }
}

/// If one WRITE wrote all lines of a record, recovery could neither finish nor undo some of the copies.
#[test]
fn without_the_first_line_first_some_records_stay_torn() {
    let mut torn = 0;
    each_left(true, |copies, begun| {
        let records = [found(LockLeft::Held, &copies[..2]), found(LockLeft::Held, &copies[2..])];
        torn += u32::from(begun && verdict(tag(2), &records) == Verdict::Nothing);
    });
    assert!(torn > 0);
}

/// A transaction that failed its validation has left an entry, and another transaction has written the same version
/// since. If recovery compared only versions, it would overwrite that write.
#[test]
fn an_entry_whose_version_is_another_s_is_not_replayed() {
    let of = lined(100);
    let old = record(of, OLD, 1);
    for (at, copy) in on_the_way(of, &old, &record(of, NEW, 3), false).iter().enumerate() {
        let copies = [&copy[..]];
        assert_eq!(verdict(tag(2), &[found(LockLeft::Lost, &copies)]), Verdict::Nothing);
        let others = verdict(tag(3), &[found(LockLeft::Lost, &copies)]);
        assert_eq!(others == Verdict::Committed, *copy != old, "state {at}");
    }
}

/// A transaction that has committed and released its locks has ended. If its lock words are lost, later writes of
/// other transactions show that the transaction has ended. Recovery must not overwrite these later writes.
#[test]
fn later_writes_stay() {
    let (of, other) = (lined(100), lined(8));
    let (mine, later) = (record(of, NEW, 2), record(of, NEW + 1, 3));
    let beside = record(other, NEW, 2);
    let beside = [&beside[..]];
    for copy in on_the_way(of, &mine, &later, false) {
        let copies = [&copy[..]];
        let records = |lock| [found(lock, &copies), found(LockLeft::Lost, &beside)];
        assert_eq!(verdict(tag(2), &records(LockLeft::Released)), Verdict::Over);
        let is_followed = copy != mine;
        let told = if is_followed { Verdict::Followed } else { Verdict::Committed };
        assert_eq!(verdict(tag(2), &records(LockLeft::Lost)), told);
        assert_eq!(by_what_is_shown(tag(2), &records(LockLeft::Lost)), Verdict::Committed);
        assert!(!is_wanting(&copy, of.lines(), Version::from_word(NEW)), "as it is, or beyond");
    }
}

/// If another transaction has written a transaction's only record since, no copy names the first transaction.
/// Recovery must search the copies for later versions. Without this search, the first transaction would seem to have
/// written nothing. An equal version is not a later version, because a committed transaction has that version itself.
#[test]
fn a_transaction_with_a_follower_counts_as_one_that_wrote() {
    let of = lined(8);
    let [later, same] = [(NEW + 1, 3), (NEW, 3)].map(|(number, by)| record(of, number, by));
    for (copy, told) in [(&later, Verdict::Followed), (&same, Verdict::Nothing)] {
        let copies = [&copy[..]];
        for lock in [LockLeft::Lost, LockLeft::Held] {
            assert_eq!(verdict(tag(2), &[found(lock, &copies)]), told);
        }
        assert_eq!(verdict(tag(2), &[found(LockLeft::Released, &copies)]), Verdict::Over);
    }
    let held = Found { new: Version::from_word(NEW + 1), ..found(LockLeft::Lost, &[]) };
    assert_eq!(verdict(tag(2), &[Found { copies: &[&later[..]], ..held }]), Verdict::Nothing);
}

/// A record of half a line names no writer. The version of a record of half a line can come only from the transaction
/// that holds its lock, or that held the lock when the lock was lost.
#[test]
fn half_a_line_is_shown_by_its_version() {
    let of = Lined::new(&TableSchema::new("t", 1).column("c", ColumnType::U64), true);
    let [old, new, later] = [OLD, NEW, NEW + 1].map(|number| record(of, number, 0));
    fn half<'a>(lock: LockLeft, copies: &'a [&'a [u8]]) -> Found<'a> {
        Found { shown_by: ShownBy::Version, ..found(lock, copies) }
    }
    for lock in [LockLeft::Held, LockLeft::Lost] {
        let told = |copies: &[&[u8]]| verdict(tag(2), &[half(lock, copies)]);
        assert_eq!(told(&[&old, &old]), Verdict::Nothing);
        assert_eq!(told(&[&old, &new]), Verdict::Committed);
        assert_eq!(told(&[&new, &new]), Verdict::Committed);
        assert_eq!(told(&[&later]), Verdict::Followed);
    }
    assert_eq!(verdict(tag(2), &[half(LockLeft::Released, &[&new])]), Verdict::Over);
    let wanting = [&old, &new, &later].map(|copy| is_wanting(copy, 1, Version::from_word(NEW)));
    assert_eq!(wanting, [true, false, false]);
}

/// Writes the entry of these records and pieces. Returns the entry's position and length.
fn encode(
    round: &mut Round,
    records: &[LoggedRecord],
    pieces: &[OldBytes],
) -> (BufferOffset, usize) {
    let padded = pieces.iter().map(|piece| piece.len_bytes.next_multiple_of(8)).sum();
    let len = entry_bytes(records.len(), pieces.len(), padded);
    let (records, pieces) = (records.iter().copied(), pieces.iter().copied());
    (write_entry(round, tag(2), records, pieces, len), len)
}

/// Two records of half a line share one line. The entry gives each record only the write of its own half.
#[test]
fn an_entry_tells_halves_of_a_line_apart() {
    let (mut round, at) = (Round::new(), Address::new(GroupId(1), 640));
    let (line, other) = (round.reserve_lines(LINE_BYTES), at.plus(LINE_BYTES / 2));
    let (mut records, mut pieces) = (Vec::new(), Vec::new());
    for (address, nameless) in [(at, true), (other, true), (at.plus(4 * LINE_BYTES), false)] {
        let (old_version, new_version) = (Version::NEVER, Version::from_word(NEW));
        records.push(LoggedRecord { address, old_version, new_version, nameless });
        let len_bytes = if nameless { 24 } else { 32 };
        pieces.push(OldBytes { address: address.plus(VERSION_AT), at: line, len_bytes });
    }
    // This record was locked but not written, so its VERSION proves nothing.
    let (held, version) = (at.plus(8 * LINE_BYTES), Version::from_word(OLD));
    let (old_version, new_version) = (version, version);
    records.push(LoggedRecord { address: held, old_version, new_version, nameless: false });
    let (start, len) = encode(&mut round, &records, &pieces);
    let entry = RedoEntry::decode(&round, start, len).expect("an entry");
    assert_eq!(entry.records(), [at, other, at.plus(4 * LINE_BYTES), held]);
    assert_eq!(entry.shown_by(&entry.versions()[3]), ShownBy::Nothing);
    let each = |it: &LoggedRecord| {
        let writes: Vec<Address> = entry.writes_of(it).map(|write| write.address).collect();
        assert_eq!(writes, [it.address.plus(VERSION_AT)]);
        (entry.shown_by(it), entry.bytes(it))
    };
    let (half, whole) = (ShownBy::Version, ShownBy::Writer);
    let told: Vec<_> = entry.versions()[..3].iter().map(each).collect();
    assert_eq!(told, [(half, 64), (half, 32), (whole, 64)], "no further than the line");
    assert_eq!(entry.others().count(), 0);
}

#[test]
fn an_entry_lists_its_writes_with_the_first_line_first() {
    let (of, mut round) = (lined(100), Round::new());
    let (at, new) = (Address::new(GroupId(1), 640), record(of, NEW, 2));
    let (directory, chained) = (Address::new(GroupId(1), 1_280), Address::new(GroupId(1), 4_096));
    let image = round.reserve_lines(of.record_bytes());
    round.bytes_mut(image, of.record_bytes()).copy_from_slice(&new);
    let [old_version, new_version] = [OLD, NEW].map(Version::from_word);
    let logged = |address| LoggedRecord { address, old_version, new_version, nameless: false };
    let mut pieces = Vec::new();
    let mut push = |address, at, len_bytes| pieces.push(OldBytes { address, at, len_bytes });
    for range in of.writes() {
        push(at.plus(range.start), image.plus(range.start), range.len());
    }
    push(chained.plus(24), image, 8);
    push(directory.plus(VERSION_AT), image, 8);
    let (start, len) = encode(&mut round, &[at, directory].map(logged), &pieces);
    let entry = RedoEntry::decode(&round, start, len).expect("an entry");
    assert_eq!((entry.tag(), entry.records()), (tag(2), vec![at, directory]));
    assert_eq!(entry.versions()[0].new_version, Version::from_word(NEW));
    let [its, directorys] = [entry.versions()[0], entry.versions()[1]];
    let shown = [its, directorys].map(|it| entry.shown_by(&it));
    assert_eq!(shown, [ShownBy::Writer, ShownBy::Nothing]);
    assert_eq!([entry.bytes(&its), entry.bytes(&directorys)], [of.record_bytes(), LINE_BYTES]);
    assert_eq!(entry.others().map(|it| it.address).collect::<Vec<_>>(), [chained.plus(24)]);
    let mut copy = record(of, OLD, 1);
    let starts: Vec<usize> = entry
        .writes_of(&its)
        .map(|Write { address, bytes }| {
            let from = (address.offset_bytes() - at.offset_bytes()) as usize;
            copy[from..from + bytes.len()].copy_from_slice(bytes);
            from
        })
        .collect();
    assert_eq!(starts, [VERSION_AT, LINE_BYTES]);
    assert_eq!(copy, new);
    assert_eq!(RedoEntry::decode(&round, start, len - 8), None, "cut");
}

#[test]
fn a_lock_that_was_not_raised_is_held() {
    let held = |count, mode| Some(LockWord::held(tag(count), mode).word());
    for mode in [LockMode::Intent, LockMode::Exclusive] {
        assert_eq!(LockLeft::of(held(2, mode), tag(2)), LockLeft::Held);
        assert_eq!(LockLeft::of(held(3, mode), tag(2)), LockLeft::Released);
    }
    assert_eq!(LockLeft::of(Some(0), tag(2)), LockLeft::Released);
    assert_eq!(LockLeft::of(None, tag(2)), LockLeft::Lost);
}
