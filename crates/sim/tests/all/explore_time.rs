//! Small tests of leases, in every order of events. A reader reads two records in a window that was
//! shorter than its lease. Every writer waits for the length of the lease after it has taken its
//! locks. Then a reader within its lease has seen all of a writer's writes or none of these writes.
//!
//! Invariant checked: if a program breaks one rule for leases, the explorer finds a torn read. One
//! word of a record says whether the record is locked and how often it was written.

use crate::common::cases::{budget, is_all, read, write};
use crate::common::timed::{LONGER, SHORTER, Timed, changes, lock_or_write, reader, writer};
use crate::common::toy::{Do, Op, Outcome, Program, Toy, program};
use std::collections::BTreeSet;
use tarn_sim::explore::{
    Bounds, ExploreConfig, FaultBudget, Reduction, Step, What, has_moments, replay, shrink,
};

use Timed::{Begin, Close, CloseByShorter, CloseCompared, CloseLoaded, End, EndLoaded, Load};

/// The word of a record that its only writer has locked.
const LOCKED: u64 = 1;

/// Returns whether actor 0 has seen the old contents of one record and the new contents of the other
/// record.
fn is_torn(outcome: &Outcome) -> bool {
    let [a, b, _] = outcome.logs[0][..] else { return false };
    a != LOCKED && b != LOCKED && (a == 0) != (b == 0)
}

fn in_lease(outcome: &Outcome) -> bool {
    outcome.logs[0].last() == Some(&SHORTER)
}

/// Returns all outcomes of a reader and other actors.
fn all(programs: &[Program], faults: FaultBudget) -> BTreeSet<Outcome> {
    let toy = Toy::new(programs, 1, 4);
    let config = ExploreConfig { faults, ..toy.config() };
    let (outcomes, explored) = toy.outcomes(&config, Reduction::Full);
    println!("{} executions, {} states", explored.progress.executions, explored.progress.states);
    assert!(is_all(&explored), "{explored:?}");
    outcomes
}

fn is_found(outcomes: &BTreeSet<Outcome>) -> bool {
    outcomes.iter().any(|it| is_torn(it) && in_lease(it))
}

fn without_faults(reader: Program, others: &[Program]) -> BTreeSet<Outcome> {
    all(&[&[reader], others].concat(), FaultBudget::NONE)
}

#[test]
fn a_reader_in_lease_has_seen_all_of_a_writer_or_nothing() {
    let outcomes = without_faults(reader(Close(10)), &[writer(&[Begin, End(10)])]);
    assert!(!is_found(&outcomes));
    let has = |log: [u64; 3]| outcomes.iter().any(|it| it.logs[0] == log);
    assert!(has([0, 0, SHORTER]) && has([2, 2, SHORTER]) && has([0, 2, LONGER]));
    assert!(has([0, 0, LONGER]), "nobody need be fast");
}

#[test]
fn a_wait_that_is_one_tick_short_is_found() {
    assert!(is_found(&without_faults(reader(Close(10)), &[writer(&[Begin, End(9)])])));
}

#[test]
fn waits_in_a_row_add_up() {
    let twice = [Begin, End(4), Begin, End(6)];
    assert!(!is_found(&without_faults(reader(Close(10)), &[writer(&twice)])));
    assert!(is_found(&without_faults(reader(Close(11)), &[writer(&twice)])));
}

/// If a writer began its wait before it held its locks, it has waited too short a time after taking the
/// locks.
#[test]
fn a_wait_from_before_the_locks_were_acknowledged_is_found() {
    let mut early = writer(&[End(10)]);
    early.transactions[0].insert(0, Do::Timed(Begin));
    assert!(is_found(&without_faults(reader(Close(10)), &[early])));
}

/// Two writers write one record each, at the same time. The wait of one writer does not count as a
/// wait of the other writer, and need not count.
#[test]
fn concurrent_writers_keep_readers_in_lease_consistent() {
    let one = |line| {
        let add = || Do::Round(vec![lock_or_write(line)]);
        program(vec![vec![add(), Do::Timed(Begin), Do::Timed(End(10)), add()]])
    };
    let outcomes = without_faults(reader(Close(10)), &[one(0), one(1)]);
    let saw = |log: [u64; 3]| outcomes.iter().any(|it| it.logs[0] == log);
    // Each record was written before the window opened, or was not written within the window.
    assert!(saw([0, 2, SHORTER]) && saw([2, 0, SHORTER]) && saw([2, 2, SHORTER]));
    let shorter = without_faults(reader(Close(11)), &[one(0), one(1)]);
    assert!(shorter.is_superset(&outcomes));
}

/// A reader loads its lease word, which is part 0, before its window opens. A writer loads its own
/// lease word, which is part 1, after its wait began.
fn with_words(close: Timed, words: &[(u16, u64)]) -> BTreeSet<Outcome> {
    let mut reader = reader(close);
    reader.transactions[0].insert(0, Do::Timed(Load(0)));
    without_faults(reader, &[writer(&[Begin, Load(1), EndLoaded]), changes(words)])
}

/// The lease is lowered from 20 to 10. The words change in steps. Both the reader and the writer use
/// the word of a step before either of them uses the word of the next step.
const LOWERED: [(u16, u64); 4] = [(0, 1), (1, 1), (0, 2), (1, 2)];
/// The lease is raised from 10 to 20. The words change in steps. Both the reader and the writer use
/// the word of a step before either of them uses the word of the next step.
const RAISED: [(u16, u64); 4] = [(0, 3), (1, 3), (0, 4), (1, 4)];

#[test]
fn a_lease_that_has_changed_is_not_believed() {
    let outcomes = with_words(CloseCompared(0), &LOWERED);
    assert!(!is_found(&outcomes));
    assert!(outcomes.iter().any(in_lease));
    assert!(is_found(&with_words(CloseLoaded, &LOWERED)), "the word at the start is believed");
}

/// The lease is 20 when a window opens and when it closes, and was 10 in between. Using the shorter
/// one of the two leases that the reader has seen does not protect this reader.
#[test]
fn a_lease_that_has_changed_and_changed_back_is_not_believed() {
    let words = [LOWERED, RAISED].concat();
    assert!(!is_found(&with_words(CloseCompared(0), &words)));
    assert!(is_found(&with_words(CloseByShorter(0), &words)));
}

#[test]
fn a_lease_word_that_moves_on_before_all_nodes_use_it_is_found() {
    assert!(is_found(&with_words(CloseCompared(0), &[(1, 1), (1, 2), (0, 1), (0, 2)])));
    assert!(is_found(&with_words(CloseCompared(0), &[(1, 2), (0, 2)])), "in one step");
}

/// An actor finishes a transaction of a dead writer that had only taken its locks. If the actor sees
/// that the dead writer had written no record, the actor waits, as the dead writer would have waited.
/// If the dead writer had written any record, it had already waited.
#[test]
fn recovery_that_finishes_an_unwritten_transaction_waits() {
    let both = |op: fn(u16, u16) -> Op| Do::Round(vec![op(0, 0), op(0, 1)]);
    let finishes = |waits: &[Timed]| {
        let waits = waits.iter().map(|it| Do::Timed(*it)).collect();
        let steps = [vec![Do::Revoke(1), both(read)], waits, vec![both(write)]].concat();
        Program { after: Some(1), spared: true, ..program(vec![steps]) }
    };
    // This code selects executions by the words that the finishing actor found. If it had found fewer
    // locks, the finishing actor would not have written.
    let after_death = |waits: &[Timed], found: [u64; 2]| {
        let reader = Program { spared: true, ..reader(Close(10)) };
        let outcomes = all(&[reader, writer(&[Begin, End(10)]), finishes(waits)], budget(1, 0, 0));
        outcomes.into_iter().filter(|it| it.logs[2].ends_with(&found)).collect::<BTreeSet<_>>()
    };
    let has_new = |it: &Outcome| in_lease(it) && it.logs[0][0] > 2 && it.logs[0][1] > 2;
    let waited = after_death(&[Begin, End(10)], [LOCKED; 2]);
    assert!(!is_found(&waited));
    assert!(waited.iter().any(has_new) && waited.iter().any(is_torn));
    assert!(is_found(&after_death(&[], [LOCKED; 2])));
    let begun = after_death(&[], [2, LOCKED]);
    assert!(!is_found(&begun));
    assert!(begun.iter().any(has_new) && begun.iter().any(is_torn));
}

/// One wait spans two overlapping windows and is as long as the two windows together. The explorer's
/// rule allows this order, but no clock can show this order.
#[test]
fn an_order_that_no_clock_shows_differs_from_one_that_a_clock_shows() {
    let window = |mine, theirs| {
        let (write, read) = (Do::Round(vec![write(0, mine)]), Do::Round(vec![read(0, theirs)]));
        program(vec![vec![Do::Timed(Timed::Open), write, read, Do::Timed(Close(1))]])
    };
    let (begin, end) = (Do::Timed(Begin), Do::Timed(End(2)));
    let (read, write) = (Do::Round(vec![read(0, 0)]), Do::Round(vec![write(0, 2)]));
    let waits = program(vec![vec![read, begin, end, write]]);
    // The wait began after the first window opened, and ended before the second window closed. The
    // second window opened before the first window closed.
    let toy = Toy::new(&[window(0, 1), waits, window(1, 2)], 1, 4).objecting(|outcome| {
        let is_it = outcome.logs == [vec![3000, SHORTER], vec![1000], vec![2000, SHORTER]];
        if is_it { Err("a wait across both".to_owned()) } else { Ok(()) }
    });
    let bounds = Bounds { violations: u32::MAX, ..Bounds::NONE };
    let config = ExploreConfig { bounds, ..toy.config() };
    let (_, explored) = toy.outcomes(&config, Reduction::Full);
    assert!(is_all(&explored) && !explored.violations.is_empty(), "{explored:?}");
    assert!(explored.violations.iter().all(|it| !has_moments(&it.trace)));
}

#[test]
fn steps_of_time_are_in_the_trace_and_replay() {
    let programs = [reader(Close(10)), writer(&[Begin, End(9)])];
    let toy = Toy::new(&programs, 1, 4).objecting(|outcome| match is_torn(outcome) {
        true if in_lease(outcome) => Err("torn in lease".to_owned()),
        _ => Ok(()),
    });
    let (_, explored) = toy.outcomes(&toy.config(), Reduction::Full);
    let [violation] = &explored.violations[..] else { panic!("{explored:?}") };
    let of_time = |step: &Step| {
        use What::{WaitBegan, WaitEnded, WindowClosed, WindowOpened};
        let is =
            matches!(step.what, WindowOpened | WindowClosed { .. } | WaitBegan | WaitEnded { .. });
        is.then_some((step.actor, step.what.clone()))
    };
    let seen: Vec<_> = violation.trace.iter().filter_map(of_time).collect();
    let closed = What::WindowClosed { lease_ns: 10, is_shorter: true };
    assert!(seen.contains(&(Some(0), What::WindowOpened)) && seen.contains(&(Some(0), closed)));
    assert!(seen.contains(&(Some(1), What::WaitBegan)));
    assert!(seen.contains(&(Some(1), What::WaitEnded { length_ns: 9 })));
    assert!(has_moments(&violation.trace), "clocks show it");
    let small = shrink(&toy, &toy.config(), violation).unwrap();
    assert!(small.schedule.choices.len() <= violation.schedule.choices.len());
    assert!(has_moments(&small.trace) && small.text == violation.text);
    let again = replay(&toy, &toy.config(), &violation.schedule).unwrap();
    assert_eq!((&again.trace, again.verdict), (&violation.trace, Err(violation.text.clone())));
}
