//! Toy programs with windows and waits: the steps that coroutines take, and cases written by hand.
//!
//! Invariant: a record is one word that holds a count. A record with an even count is free, and a
//! record with an odd count is locked. The record's writer adds one to lock the record, waits, and
//! adds one to write and unlock the record. So a reader sees the lock and the data of a record in one
//! word. A reader within its lease must have seen all of a writer's writes or none of these writes.

use super::cases::{Case, budget, case, large, read};
use super::toy::{Do, Op, Program, program};
use Timed::{Begin, Close, End, Open};
use proptest::prelude::{Just, Strategy, any, prop};
use proptest::prop_oneof;
use std::cell::Cell;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_fabric::window::{Wait, Window};
use tarn_sim::explore::FaultBudget;

/// A step that an actor takes with its window or its wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timed {
    /// Opens a window.
    Open,
    /// Closes the window, if a window is open, and records whether the window was shorter than this
    /// length.
    Close(u64),
    /// Begins a wait.
    Begin,
    /// Ends the wait, if a wait has begun, after this length.
    End(u64),
    /// Loads the lease word in this part of node 0's memory, and remembers it.
    Load(u16),
    /// Like `Close`, with the lease that the remembered word gives.
    CloseLoaded,
    /// Like `CloseLoaded`, but records `LONGER` if the lease word in this part has changed since the
    /// actor loaded it.
    CloseCompared(u16),
    /// Like `CloseLoaded`, with the shorter one of the leases that the loaded word and the present word
    /// give.
    CloseByShorter(u16),
    /// Like `End`, with the length that the remembered word gives.
    EndLoaded,
}

/// The values that an actor records: `SHORTER` for a window that was shorter than its lease, and
/// `LONGER` for any other window.
pub const SHORTER: u64 = 0x51;
pub const LONGER: u64 = 0x50;

/// The window, the wait and the remembered word of one actor.
#[derive(Default)]
pub struct Held {
    window: Cell<Option<Window>>,
    wait: Cell<Option<Wait>>,
    word: Cell<u64>,
}

/// Returns the lease length that readers take from a lease word, and the time for which writers wait
/// under this word. As the value of the word grows, the lease length is 20, changes from 20 to 10, is
/// 10, changes from 10 to 20, and is 20 again.
fn lengths(word: u64) -> (u64, u64) {
    match word & 7 {
        0 | 4 => (20, 20),
        1 | 3 => (10, 20),
        _ => (10, 10),
    }
}

impl Held {
    /// Takes a step with the actor's window or wait. The function `look` reads a part of node 0's
    /// memory.
    pub async fn step(&self, port: &Port, step: Timed, look: impl Fn(u16) -> u64) -> Option<u64> {
        let (word, loaded) = (self.word.get(), lengths(self.word.get()));
        match step {
            Timed::Open => self.window.set(Some(port.open_window().await)),
            Timed::Begin => self.wait.set(Some(port.begin_wait().await)),
            Timed::End(length) => self.end(port, length).await,
            Timed::EndLoaded => self.end(port, loaded.1).await,
            Timed::Load(part) => self.word.set(look(part)),
            Timed::Close(lease) => return self.close(port, lease, || true).await,
            Timed::CloseLoaded => return self.close(port, loaded.0, || true).await,
            Timed::CloseCompared(part) => {
                return self.close(port, loaded.0, || look(part) == word).await;
            }
            Timed::CloseByShorter(part) => {
                let lease = loaded.0.min(lengths(look(part)).0);
                return self.close(port, lease, || true).await;
            }
        }
        None
    }

    async fn close(&self, port: &Port, lease: u64, believes: impl FnOnce() -> bool) -> Option<u64> {
        let window = self.window.take()?;
        let is_shorter = port.close_window(window, Nanos(lease)).await.is_shorter;
        Some(if believes() && is_shorter { SHORTER } else { LONGER })
    }

    async fn end(&self, port: &Port, length: u64) {
        let Some(wait) = self.wait.take() else { return };
        port.end_wait(wait, Nanos(length)).await;
    }
}

/// Creates a step of windows and waits.
fn t(step: Timed) -> Do {
    Do::Timed(step)
}

pub fn lock_or_write(line: u16) -> Op {
    Op::Faa { node: 0, line }
}

/// Creates a program that reads two records in a window, and closes the window by the step `close`.
pub fn reader(close: Timed) -> Program {
    let reads = Do::Round(vec![read(0, 0), read(0, 1)]);
    program(vec![vec![t(Timed::Open), reads, t(close)]])
}

/// Creates a program that locks two records, takes the steps `waits`, and writes both records.
pub fn writer(waits: &[Timed]) -> Program {
    let both = || Do::Round(vec![lock_or_write(0), lock_or_write(1)]);
    let waits = waits.iter().map(|it| t(*it)).collect();
    program(vec![[vec![both()], waits, vec![both()]].concat()])
}

/// Creates a program that writes words into parts of node 0's local memory, one after the other.
pub fn changes(words: &[(u16, u64)]) -> Program {
    let pause = || Do::Round(vec![read(0, 3)]);
    program(vec![words.iter().flat_map(|(part, to)| [pause(), Do::PutPart(*part, *to)]).collect()])
}

fn round(ops: &[Op]) -> Do {
    Do::Round(ops.to_vec())
}

fn write(line: u16) -> Op {
    super::cases::write(0, line)
}

fn of(steps: Vec<Do>) -> Program {
    program(vec![steps])
}

/// Creates a program that writes line 0 in a window and then runs the verbs `seen` in the same
/// window. Suppose that a waiting actor saw line 0 written, and `seen` sees the waiting actor's
/// WRITE. Then the waiting actor's wait was within the window.
fn window(lease: u64, seen: &[Op]) -> Program {
    of(vec![t(Open), round(&[write(0)]), round(seen), t(Close(lease))])
}

/// Returns the toys written by hand.
pub fn cases() -> Vec<Case> {
    smaller().into_iter().chain(larger()).collect()
}

/// Returns toys with one window and one wait.
fn smaller() -> Vec<Case> {
    let none = FaultBudget::NONE;
    vec![
        case(
            "a window and a wait",
            &[
                of(vec![t(Open), round(&[read(0, 0)]), t(Close(2))]),
                of(vec![round(&[lock_or_write(0)]), t(Begin), t(End(2)), round(&[write(0)])]),
            ],
            1,
            none,
        ),
        case(
            "a wait that is too short",
            &[
                of(vec![t(Open), round(&[read(0, 0)]), t(Close(2))]),
                of(vec![t(Begin), t(End(1)), round(&[write(0)])]),
            ],
            1,
            none,
        ),
        case(
            "a window that opens late",
            &[
                of(vec![round(&[write(0)]), t(Open), round(&[read(0, 1)]), t(Close(1))]),
                of(vec![t(Begin), round(&[read(0, 0)]), t(End(1)), round(&[write(1)])]),
            ],
            1,
            none,
        ),
        large(
            "a window behind private lines",
            &[
                of(vec![
                    round(&[write(0)]),
                    round(&[read(0, 2)]),
                    t(Open),
                    round(&[read(0, 1)]),
                    t(Close(1)),
                ]),
                of(vec![round(&[read(0, 0)]), t(Begin), t(End(1)), round(&[write(1)])]),
            ],
            1,
            none,
        ),
        // Only the closing of the window shows whether the window was open when the wait began.
        large(
            "a wait that began before the window or in it",
            &[
                window(2, &[read(0, 1)]),
                of(vec![t(Begin), round(&[read(0, 0)]), t(End(2)), round(&[write(1)])]),
            ],
            1,
            none,
        ),
    ]
}

/// Returns toys with more actors, or with more possible orders.
fn larger() -> Vec<Case> {
    let none = FaultBudget::NONE;
    let waiter = || of(vec![round(&[read(0, 0)]), t(Begin), t(End(1)), round(&[lock_or_write(1)])]);
    vec![
        large(
            "two waits in a row",
            &[
                window(2, &[read(0, 1)]),
                of(vec![
                    round(&[read(0, 0)]),
                    t(Begin),
                    t(End(1)),
                    t(Begin),
                    t(End(1)),
                    round(&[write(1)]),
                ]),
            ],
            1,
            none,
        ),
        large("two waits of two", &[window(2, &[read(0, 1)]), waiter(), waiter()], 1, none),
        large(
            "two windows and a wait",
            &[
                of(vec![t(Open), round(&[read(0, 0)]), t(Close(1))]),
                of(vec![t(Open), round(&[read(0, 0)]), t(Close(2))]),
                of(vec![round(&[read(0, 1)]), t(Begin), t(End(1)), round(&[write(0)])]),
            ],
            1,
            none,
        ),
        case(
            "windows that nobody waits for",
            &[
                of(vec![t(Open), round(&[read(0, 0)]), t(Close(1))]),
                of(vec![t(Open), round(&[write(0)]), t(Close(1))]),
            ],
            1,
            none,
        ),
        large("a record and a lease", &[reader(Close(2)), writer(&[Begin, End(2)])], 1, none),
        large(
            "a death beside a wait",
            &[
                of(vec![t(Open), round(&[read(0, 0)]), t(Close(2))]),
                of(vec![round(&[lock_or_write(0)]), t(Begin), t(End(2)), round(&[write(0)])]),
            ],
            1,
            budget(1, 0, 0),
        ),
    ]
}

/// Generates steps of windows and waits for random toys.
pub fn drawn() -> impl Strategy<Value = Do> {
    prop_oneof![
        2 => Just(Timed::Open),
        2 => (1..4u64).prop_map(Timed::Close),
        2 => Just(Timed::Begin),
        2 => (1..3u64).prop_map(Timed::End),
    ]
    .prop_map(Do::Timed)
}

/// Generates small programs. Each actor of such a program has a window or a wait, and rounds before,
/// within and after this window or wait.
pub fn drawn_toys() -> impl Strategy<Value = Case> {
    let op = || {
        prop_oneof![
            4 => (0..2u16).prop_map(|line| read(0, line)),
            4 => (0..2u16).prop_map(write),
            2 => (0..2u16).prop_map(lock_or_write),
        ]
    };
    let step = move || {
        prop_oneof![
            18 => op().prop_map(|op| round(&[op])),
            1 => op().prop_map(|op| Do::Detached(vec![op])),
            1 => Just(Do::PutPart(0, 3)),
            1 => Just(Do::LookPart(0)),
        ]
    };
    let some = move |least: usize, most: usize| prop::collection::vec(step(), least..=most);
    let reader = (some(0, 1), some(1, 2), 1..3u64).prop_map(|(before, within, lease)| {
        [before, vec![t(Open)], within, vec![t(Close(lease))]].concat()
    });
    let waiter = (some(1, 1), some(0, 1), 1..3u64, any::<bool>(), some(1, 1)).prop_map(
        |(before, within, length, twice, after)| {
            let again = if twice { vec![t(Begin), t(End(1))] } else { Vec::new() };
            [before, vec![t(Begin)], within, vec![t(End(length))], again, after].concat()
        },
    );
    let both = (reader.clone(), waiter.clone()).prop_map(|(one, other)| [one, other].concat());
    let third = prop_oneof![2 => reader.clone(), 2 => waiter.clone(), 1 => both];
    let faults = prop_oneof![
        3 => Just(FaultBudget::NONE),
        1 => Just(budget(1, 0, 0)),
        1 => Just(budget(0, 1, 0)),
    ];
    let extra = (0..5usize, 0..4u32, 0..3usize);
    (reader, waiter, third, faults, extra).prop_map(
        |(reader, waiter, third, faults, (how, company, split))| {
            let mut actors = vec![of(reader), of(waiter)];
            if company == 0 {
                actors.push(of(third));
            }
            let last = actors.len() - 1;
            let steps = actors[last].transactions[0].clone();
            match how {
                0 => {
                    actors[last].after = Some(0);
                    actors[last].transactions[0].insert(0, Do::Revoke(0));
                    actors[last].spared = true;
                }
                1 => actors[1].node = Some(0),
                // A transaction begins in the middle of the steps.
                2 if steps.len() > split => {
                    let (one, other) = steps.split_at(split);
                    actors[last].transactions = vec![one.to_vec(), other.to_vec()];
                }
                _ => {}
            }
            large("drawn, with time", &actors, 1, faults)
        },
    )
}
