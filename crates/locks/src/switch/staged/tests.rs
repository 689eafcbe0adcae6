//! Holds the stages, the table and the decider equal: all pairs of small counts, and long random sequences.
//!
//! Invariant: each comparison would fail if one column of one row were different, which a test shows row by row.

use super::super::table::{AskKind, Row, Table};
use super::*;
use crate::decider::{Decider, Setup, step};
use crate::packet::Waiter;
use crate::rules::Rules;
use crate::value::{RequestId, Thread};

const VIEW: View = View(7);
const WINDOW: u32 = 8;

fn shape(width: Width, fanout: Fanout, locks: u32) -> Shape {
    Shape { locks, machines: MACHINES_MAX, threads: 2, window: WINDOW, width, fanout }
}

/// A decider and its stages, with the same entries.
struct Pair {
    decider: Decider,
    staged: Staged,
}

impl Pair {
    fn new(shape: Shape, program: &Program, entries: &[(LockId, Entry)]) -> Pair {
        let Shape { width, fanout, window, locks, .. } = shape;
        let setup = Setup { width, fanout, window, rules: Rules::ALL };
        let decider = Decider::rebuilt(setup, VIEW, locks, entries);
        let mut staged = Staged::new(shape, VIEW, program.clone()).expect("a switch's shape");
        staged.preset(entries).expect("entries of the switch");
        Pair { decider, staged }
    }

    /// Whether both give the same answer to a question, and are in the same state after it.
    fn agrees(&mut self, question: &Question) -> bool {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let one = self.decider.receive(question, &mut |sent| ours.push(sent));
        let other = self.staged.receive(question, &mut |sent| theirs.push(sent));
        let entry = self.staged.entry(question.lock);
        one.map_err(Unfit::Refused) == other
            && ours == theirs
            && entry.as_ref() == self.decider.entry(question.lock)
    }
}

fn waiter(machine: u16, mode: Mode) -> Waiter {
    Waiter { request: RequestId { machine: Machine(machine), thread: Thread(1), seq: 9 }, mode }
}

const MODES: [Mode; 2] = [Mode::Shared, Mode::Exclusive];
const BOOLS: [bool; 2] = [false, true];
const SOME_MACHINES: [u16; 3] = [1, 2, MACHINES_MAX];

fn entries(width: Width) -> Vec<Entry> {
    let mut entries = Vec::new();
    for count in 0..1 << width.bits() {
        entries.push(Entry { count, held: None });
        for machine in SOME_MACHINES {
            for mode in MODES {
                for bars_readers in BOOLS {
                    let held = Held { agent: Machine(machine), mode, bars_readers };
                    entries.push(Entry { count, held: Some(held) });
                }
            }
        }
    }
    entries
}

fn asks(width: Width) -> Vec<Ask> {
    let mut asks = vec![Ask::BarReaders];
    // Twice the width: counts of agents are wider than the register.
    let counts = 0..2 << width.bits();
    asks.extend(counts.clone().map(|count| Ask::Free { count }));
    for machine in SOME_MACHINES {
        for mode in MODES {
            for bars_readers in BOOLS {
                let waiter = waiter(machine, mode);
                asks.push(Ask::Acquire { waiter, bars_readers });
                for count in counts.clone() {
                    let payload = Payload { counted: count, queue: vec![waiter] };
                    asks.push(Ask::Transfer { count, next: waiter, bars_readers, payload });
                }
            }
        }
    }
    asks
}

fn question(number: u32, ask: &Ask) -> Question {
    let machine = match ask {
        Ask::Acquire { waiter, .. } => waiter.request.machine,
        _ => Machine(1),
    };
    let lane = LaneId { machine, thread: Thread(1) };
    Question { view: VIEW, lane, number, lock: LockId(0), ask: ask.clone() }
}

/// The number of pairs of an entry and a question that were compared, up to the first that differs.
fn compare(program: &Program, width: Width, fanout: Fanout) -> Result<u64, (Entry, Ask)> {
    let asks = asks(width);
    let mut pairs = 0;
    for entry in entries(width) {
        for ask in &asks {
            let mut pair = Pair::new(shape(width, fanout, 1), program, &[(LockId(0), entry)]);
            let question = question(1, ask);
            // The second time it has the recorded answer.
            if !pair.agrees(&question) || !pair.agrees(&question) {
                return Err((entry, ask.clone()));
            }
            pairs += 1;
        }
    }
    Ok(pairs)
}

#[test]
fn the_table_says_the_same_as_the_step() {
    let table = Table::shipped();
    let mut pairs = 0;
    for width in [Width::of_bits(2), Width::of_bits(3), Width::of_bits(4)] {
        let asks = asks(width);
        for entry in entries(width) {
            for ask in &asks {
                let stepped = step(entry, Machine(1), ask, (width, Rules::ALL));
                assert_eq!(table.step(entry, ask, width), Some(stepped), "{entry:?} {ask:?}");
                pairs += 1;
            }
        }
    }
    assert_eq!(pairs, 52 * (13 + 8 * 13) + 104 * (13 + 16 * 13) + 208 * (13 + 32 * 13));
}

#[test]
fn all_pairs_of_small_counts_are_equal() {
    let program = Program::of(&Table::shipped()).expect("it fits");
    for fanout in [Fanout::Sends, Fanout::Answers] {
        for width in [Width::of_bits(2), Width::of_bits(3)] {
            let pairs = compare(&program, width, fanout).expect("equal");
            assert!(pairs > 6_000, "{pairs}");
        }
    }
}

/// All tables that differ from the shipped one in one column of one row.
fn mutants() -> Vec<(Row, Row, Table)> {
    let shipped = Table::shipped();
    let mut mutants = Vec::new();
    for (at, row) in shipped.rows.iter().enumerate() {
        let mut add = |changed: Row| {
            if changed != *row {
                let mut table = shipped.clone();
                table.rows[at] = changed.clone();
                mutants.push((row.clone(), changed, table));
            }
        };
        let cells = [NewCell::Same, NewCell::Free, NewCell::First, NewCell::Next, NewCell::Bar];
        cells.iter().for_each(|cell| add(Row { cell: *cell, ..row.clone() }));
        VERDICTS.iter().for_each(|verdict| add(Row { verdict: *verdict, ..row.clone() }));
        let sends = [Sends::Reply, Sends::ReplyAndCopy, Sends::Copy, Sends::Install];
        sends.iter().for_each(|sends| add(Row { sends: *sends, ..row.clone() }));
        add(Row { counts: !row.counts, ..row.clone() });
    }
    mutants
}

/// Mutants that no comparison can tell from the shipped table.
fn is_equivalent(row: &Row, changed: &Row) -> bool {
    // A free lock that becomes free stays as it was.
    let stays_free =
        row.old == [Old::Free] && (row.cell, changed.cell) == (NewCell::Same, NewCell::Free);
    // A copy of an acquire, for a question that is none.
    let has_no_copy = row.ask != AskKind::Acquire
        && (row.sends, changed.sends) == (Sends::Reply, Sends::ReplyAndCopy);
    stays_free || has_no_copy
}

#[test]
fn each_change_of_one_column_of_one_row_is_found() {
    let mut found = 0;
    for (row, changed, table) in mutants() {
        // Either the stages cannot carry the table out, or they differ from the decider.
        let is_found = Program::of(&table)
            .map_or(true, |program| compare(&program, Width::of_bits(2), Fanout::Sends).is_err());
        assert_eq!(is_found, !is_equivalent(&row, &changed), "{row:?} changed to {changed:?}");
        found += u32::from(is_found);
    }
    assert_eq!(found, 11 * (4 + 4 + 3 + 1) - 6);
}

/// SplitMix64 of Steele, Lea and Flood, OOPSLA 2014.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// Kinds of random questions, counted.
#[derive(Default, Debug)]
struct Met {
    fresh: u64,
    again: u64,
    dropped: u64,
    refused: u64,
    wraps: u64,
}

const LOCKS: u64 = 3;

/// Compares `packets` random questions; counts begin just below their wrap.
fn random(seed: u64, packets: u64) -> Met {
    let mut draws = Draws(seed);
    let program = Program::of(&Table::shipped()).expect("it fits");
    let fanout = if seed.is_multiple_of(2) { Fanout::Sends } else { Fanout::Answers };
    let start = |lock| (LockId(lock), Entry { count: 0xfff0, held: None });
    let entries: Vec<_> = (0..LOCKS as u32).map(start).collect();
    let shape = shape(Width::SWITCH, fanout, LOCKS as u32);
    let mut pair = Pair::new(shape, &program, &entries);
    let mut last = [[0_u32; 2]; 5];
    let mut met = Met::default();
    for _ in 0..packets {
        let (machine, thread) = (draws.below(4) as u16 + 1, draws.below(2) as u16);
        let last = &mut last[usize::from(machine)][usize::from(thread)];
        let number = match draws.below(10) {
            0 => last.wrapping_sub(draws.below(u64::from(2 * WINDOW)) as u32),
            1 => last.wrapping_add(draws.below(4) as u32),
            _ => last.wrapping_add(1),
        };
        let beyond = u64::from(draws.below(50) == 0);
        let lock = LockId(draws.below(LOCKS + beyond) as u32);
        let count = pair.decider.entry(lock).map_or(0, |entry| entry.count);
        let stale = match draws.below(6) {
            0 => count.wrapping_sub(draws.below(3)),
            1 => draws.next(),
            2 => count + (draws.below(3) << 16),
            _ => count,
        };
        let mode = MODES[draws.below(2) as usize];
        let ask = match draws.below(8) {
            0..4 => Ask::Acquire { waiter: waiter(machine, mode), bars_readers: draws.flag() },
            4 | 5 => Ask::Free { count: stale },
            6 => Ask::Transfer {
                count: stale,
                next: waiter(draws.below(u64::from(MACHINES_MAX)) as u16 + 1, mode),
                bars_readers: draws.flag(),
                payload: Payload::default(),
            },
            _ => Ask::BarReaders,
        };
        let lane = LaneId { machine: Machine(machine), thread: Thread(thread) };
        let view = if draws.below(50) == 0 { View(6) } else { VIEW };
        let question = Question { view, lane, number, lock, ask };
        assert!(pair.agrees(&question), "seed {seed}: {question:?}");
        let is_taken = view == VIEW && u64::from(lock.0) < LOCKS;
        let is_next = number == last.wrapping_add(1);
        match (is_taken, is_next) {
            (false, _) => met.refused += 1,
            (true, true) => {
                *last = number;
                met.fresh += 1;
                met.wraps += u64::from(count > 0 && pair.staged.entry(lock).unwrap().count == 0);
            }
            (true, false) if last.wrapping_sub(number) < WINDOW.min(*last) => met.again += 1,
            (true, false) => met.dropped += 1,
        }
    }
    met
}

#[test]
fn a_million_random_packets_are_equal() {
    for seed in [1, 2] {
        let met = random(seed, 600_000);
        let Met { fresh, again, dropped, refused, wraps } = met;
        assert!(fresh > 400_000 && again > 30_000 && dropped > 30_000 && refused > 10_000);
        assert!(wraps >= 3, "{wraps} wraps of a count");
    }
}

#[test]
#[ignore = "takes 15 seconds"]
fn a_hundred_million_random_packets_are_equal() {
    for seed in 3..13 {
        random(seed, 10_000_000);
    }
}

#[test]
fn a_64th_machine_is_refused() {
    let program = Program::of(&Table::shipped()).expect("it fits");
    let fit = shape(Width::SWITCH, Fanout::Sends, 1);
    let refused = Unfit::Machine { machine: 64, allowed: 63 };
    let wide = Shape { machines: 64, ..fit };
    assert_eq!(Staged::new(wide, VIEW, program.clone()).err(), Some(refused));
    assert_eq!(refused.to_string(), "machine 64: a switch with these cells has 1 to 63");
    let odd = Shape { window: 6, ..fit };
    assert_eq!(Staged::new(odd, VIEW, program.clone()).err(), Some(Unfit::Window { window: 6 }));
    let long = Shape { width: Width::WIDE, ..fit };
    let width = Unfit::Width { bits: 48, allowed: 16 };
    assert_eq!(Staged::new(long, VIEW, program.clone()).err(), Some(width));

    let mut staged = Staged::new(fit, VIEW, program).expect("a switch's shape");
    let none = &mut |_| panic!("it sends nothing");
    let acquire = Ask::Acquire { waiter: waiter(64, Mode::Shared), bars_readers: false };
    assert_eq!(staged.receive(&question(1, &acquire), none), Err(refused));
    let payload = Payload::default();
    let next = waiter(64, Mode::Shared);
    let transfer = Ask::Transfer { count: 0, next, bars_readers: false, payload };
    assert_eq!(staged.receive(&question(1, &transfer), none), Err(refused));
    let mut question = question(1, &Ask::BarReaders);
    question.lane.thread = Thread(2);
    let thread = Unfit::Thread { thread: 2, lanes: 2 };
    assert_eq!(staged.receive(&question, none), Err(thread));
    // A refused question does not use up its number.
    question.lane.thread = Thread(1);
    assert_eq!(staged.receive(&question, &mut |_| {}), Ok(()));
}

#[test]
fn the_number_of_packets_carries_into_its_high_half() {
    let program = Program::of(&Table::shipped()).expect("it fits");
    let fit = shape(Width::SWITCH, Fanout::Sends, 1);
    let mut staged = Staged::new(fit, VIEW, program).expect("a switch's shape");
    staged.arrays.token_low.preset(0, u32::MAX - 1);
    let mut orders = Vec::new();
    for number in 1..=3 {
        let question = question(number, &Ask::BarReaders);
        let sent = staged.receive(&question, &mut |sent| match sent {
            Sent::Reply(reply) => orders.push(reply.token.order),
            Sent::Notice { .. } => panic!("a bar is answered alone"),
        });
        assert_eq!(sent, Ok(()));
    }
    assert_eq!(orders, [0xffff_ffff, 0x1_0000_0000, 0x1_0000_0001]);
}
