//! The decider as a pipeline of register arrays: [`staged_step`] touches each array once a packet.
//!
//! Invariant: for every sequence of questions within its [`Shape`], it answers as
//! [`crate::decider::Decider`] with the same setup does. A question outside its shape is refused before any
//! register changes.
//!
//! | stage | array | a fresh packet | one that came before |
//! |---|---|---|---|
//! | 1 | last number of the lane | +1 if it is the next one | read |
//! | 1, 2 | number of packets, two halves | +1 | +1 |
//! | 3 | count of the lock | +1 by the table; compared | |
//! | 4 | cell of the lock | by the table | |
//! | 5 | answers of the lane | write | read |
//! | 6 | | packets that leave, by the table | the answer |
//!
//! After Zhang, Cheng, Chen, Chen, "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI
//! 2024, with its faults mended ([`crate::rules`]).

use super::program::{CellOp, Outcome, Program};
use super::registers::{Answers, Array, Cell, Count, Pass, Sequence, TokenHigh, TokenLow};
use super::table::{Asked, NewCell, Old, Sends};
use crate::decider::{Entry, Fanout, Held, Refusal, Sent};
use crate::packet::{Answer, Ask, LaneId, Notice, Payload, Question, Reply, Verdict};
use crate::value::{LockId, Machine, Mode, Token, View, Width};

/// The greatest number of a machine that a lock's cell can hold. The cell has six bits, and 0 means that no machine
/// holds the lock.
pub const MACHINES_MAX: u16 = 63;

/// Bits of a cell.
mod cell {
    pub(super) const EXCLUSIVE: u8 = 1;
    pub(super) const BARS_READERS: u8 = 2;
    pub(super) const MACHINE_SHIFT: u32 = 2;
}

/// Bits of a recorded answer.
mod record {
    pub(super) const NUMBER_BITS: u32 = 16;
    pub(super) const MACHINE_SHIFT: u32 = NUMBER_BITS;
    pub(super) const VERDICT_SHIFT: u32 = MACHINE_SHIFT + 6;
    pub(super) const RECORDED: u32 = 1 << (VERDICT_SHIFT + 3);
}

/// The sizes of the arrays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The number of locks.
    pub locks: u32,
    /// The greatest machine, up to [`MACHINES_MAX`].
    pub machines: u16,
    /// Lanes of a machine.
    pub threads: u16,
    /// Questions of a lane that may be unanswered at once: a power of two.
    pub window: u32,
    /// Bits of a count, up to 16.
    pub width: Width,
    /// The packets that it sends.
    pub fanout: Fanout,
}

/// A pipeline that is not built, or a question that it does not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// A machine above the greatest one.
    Machine {
        /// The machine.
        machine: u16,
        /// The greatest one.
        allowed: u16,
    },
    /// A thread without a lane: threads are numbered from 0.
    Thread {
        /// The thread.
        thread: u16,
        /// The number of lanes of a machine.
        lanes: u16,
    },
    /// A window that is no power of two.
    Window {
        /// The window.
        window: u32,
    },
    /// More bits of a count than a register has.
    Width {
        /// The bits.
        bits: u32,
        /// The bits of a register.
        allowed: u32,
    },
    /// A question that no table has: a planted fault of the search.
    Planted,
    /// A question that [`crate::decider::Decider`] does not take either.
    Refused(Refusal),
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::Machine { machine, allowed } => {
                write!(f, "machine {machine}: a switch with these cells has 1 to {allowed}")
            }
            Unfit::Thread { thread, lanes } => {
                write!(f, "thread {thread}: the switch has {lanes} lanes a machine, from 0")
            }
            Unfit::Window { window } => write!(f, "window {window}: not a power of two"),
            Unfit::Width { bits, allowed } => {
                write!(f, "count of {bits} bits: a register has {allowed}")
            }
            Unfit::Planted => f.write_str("a question that the protocol does not have"),
            Unfit::Refused(refusal) => write!(f, "{refusal:?}"),
        }
    }
}

/// The fields of a packet that the stages look at.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The lane's place in the arrays.
    pub lane: usize,
    /// The packet's number on the lane.
    pub number: u32,
    /// The lock.
    pub lock: usize,
    /// The question.
    pub asked: Asked,
}

/// The answer to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The answer.
    pub answer: Answer,
    /// The number of the packet among all packets.
    pub order: u64,
    /// The packets that leave.
    pub sends: Sends,
}

/// The register arrays.
#[derive(Debug)]
pub struct Arrays {
    sequence: Array<Sequence>,
    token_low: Array<TokenLow>,
    token_high: Array<TokenHigh>,
    count: Array<Count>,
    cell: Array<Cell>,
    answers: Array<Answers>,
}

impl Arrays {
    fn new(shape: &Shape) -> Arrays {
        let lanes = usize::from(shape.machines) * usize::from(shape.threads);
        Arrays {
            sequence: Array::new(lanes),
            token_low: Array::new(1),
            token_high: Array::new(1),
            count: Array::new(shape.locks as usize),
            cell: Array::new(shape.locks as usize),
            answers: Array::new(lanes * shape.window as usize),
        }
    }
}

/// Sends one packet through the pipeline. `None`: it is dropped.
///
/// The pass goes through all stages, so the compiler sees that each array is touched at most once.
#[must_use]
pub fn staged_step(
    arrays: &mut Arrays,
    program: &Program,
    (shape, header): (&Shape, &Header),
    pass: Pass<Sequence>,
) -> Option<Decision> {
    let Header { lane, number, lock, asked } = *header;
    let (last, pass) = arrays.sequence.touch(pass, lane, |last| {
        let before = *last;
        if number == before.wrapping_add(1) {
            *last = number;
        }
        before
    });
    let (low, pass) = arrays.token_low.touch(pass, 0, add_one);
    let (high, pass) = match low {
        0 => arrays.token_high.touch(pass, 0, add_one),
        _ => arrays.token_high.touch(pass, 0, |high| *high),
    };
    let order = u64::from(high) << u32::BITS | u64::from(low);
    let at = lane * shape.window as usize + (number & (shape.window - 1)) as usize;
    if number != last.wrapping_add(1) {
        let is_recent = last.wrapping_sub(number) < shape.window;
        let (word, _out) = arrays.answers.touch(pass.skip().skip(), at, |word| *word);
        let answer = (is_recent && word & record::RECORDED != 0).then(|| answer_of(word))?;
        return Some(Decision { answer, order, sends: Sends::Reply });
    }

    let width = shape.width;
    let asked_count = width.cut(asked.count.unwrap_or(0)) as u16;
    let op = program.count(asked.key(false));
    let ((is_equal, count), pass) = arrays.count.touch(pass, lock, |count| {
        let is_equal = *count == asked_count;
        *count = width.cut(u64::from(*count) + u64::from(op.adds(is_equal))) as u16;
        (is_equal, *count)
    });

    let key = asked.key(is_equal && asked.count.is_some());
    let CellOp { free, held } = program.cell(key);
    let first = cell_of(asked.holder, asked.mode, false);
    let next = cell_of(asked.holder, asked.mode, asked.bars_readers);
    let ((old, new), pass) = arrays.cell.touch(pass, lock, |cell| {
        let old = *cell;
        *cell = match if old == 0 { free } else { held } {
            NewCell::Same => old,
            NewCell::Free => 0,
            NewCell::First => first,
            NewCell::Next => next,
            NewCell::Bar => old | cell::BARS_READERS,
        };
        (old, *cell)
    });

    let Outcome { verdict, sends } = program.outcome(Old::of(held_of(old)), key);
    let agent = held_of(new).map(|held| held.agent);
    let answer = Answer { verdict, agent, number: u64::from(count) };
    let (_, _out) = arrays.answers.touch(pass, at, |word| *word = word_of(answer));
    Some(Decision { answer, order, sends })
}

fn add_one(number: &mut u32) -> u32 {
    *number = number.wrapping_add(1);
    *number
}

fn cell_of(holder: Option<Machine>, mode: Mode, bars_readers: bool) -> u8 {
    let exclusive = if mode == Mode::Exclusive { cell::EXCLUSIVE } else { 0 };
    let bars = if bars_readers { cell::BARS_READERS } else { 0 };
    holder.map_or(0, |machine| (machine.0 as u8) << cell::MACHINE_SHIFT | exclusive | bars)
}

fn held_of(cell: u8) -> Option<Held> {
    let agent = Machine(u16::from(cell >> cell::MACHINE_SHIFT));
    let mode = if cell & cell::EXCLUSIVE == 0 { Mode::Shared } else { Mode::Exclusive };
    (cell != 0).then_some(Held { agent, mode, bars_readers: cell & cell::BARS_READERS != 0 })
}

const VERDICTS: [Verdict; 5] =
    [Verdict::Granted, Verdict::Joined, Verdict::Queued, Verdict::Done, Verdict::Refused];

fn word_of(answer: Answer) -> u32 {
    let machine = answer.agent.map_or(0, |machine| u32::from(machine.0));
    record::RECORDED
        | (answer.verdict as u32) << record::VERDICT_SHIFT
        | machine << record::MACHINE_SHIFT
        | answer.number as u32
}

fn answer_of(word: u32) -> Answer {
    let machine = (word >> record::MACHINE_SHIFT) as u16 & MACHINES_MAX;
    Answer {
        verdict: VERDICTS[(word >> record::VERDICT_SHIFT & 7) as usize],
        agent: (machine != 0).then_some(Machine(machine)),
        number: u64::from(word & ((1 << record::NUMBER_BITS) - 1)),
    }
}

/// A decider in registers.
#[derive(Debug)]
pub struct Staged {
    shape: Shape,
    view: View,
    program: Program,
    arrays: Arrays,
}

impl Staged {
    /// A decider of free locks.
    ///
    /// # Errors
    /// The shape is none of a switch.
    pub fn new(shape: Shape, view: View, program: Program) -> Result<Staged, Unfit> {
        let Shape { machines, window, width, .. } = shape;
        if machines > MACHINES_MAX {
            return Err(Unfit::Machine { machine: machines, allowed: MACHINES_MAX });
        }
        if !window.is_power_of_two() {
            return Err(Unfit::Window { window });
        }
        if width.bits() > u16::BITS {
            return Err(Unfit::Width { bits: width.bits(), allowed: u16::BITS });
        }
        Ok(Staged { shape, view, program, arrays: Arrays::new(&shape) })
    }

    /// Sets the entries that are not free: the control plane's work before the first packet of a view.
    ///
    /// # Errors
    /// An entry's machine is none of this switch.
    pub fn preset(&mut self, entries: &[(LockId, Entry)]) -> Result<(), Unfit> {
        for (lock, entry) in entries {
            if lock.0 >= self.shape.locks {
                let locks = self.shape.locks;
                return Err(Unfit::Refused(Refusal::Lock { asked: *lock, locks }));
            }
            let cell = match entry.held {
                None => 0,
                Some(Held { agent, mode, bars_readers }) => {
                    self.fits(agent)?;
                    cell_of(Some(agent), mode, bars_readers)
                }
            };
            let count = self.shape.width.cut(entry.count) as u16;
            self.arrays.count.preset(lock.0 as usize, count);
            self.arrays.cell.preset(lock.0 as usize, cell);
        }
        Ok(())
    }

    /// A lock's entry.
    #[must_use]
    pub fn entry(&self, lock: LockId) -> Option<Entry> {
        (lock.0 < self.shape.locks).then(|| {
            let count = u64::from(self.arrays.count.peek(lock.0 as usize));
            Entry { count, held: held_of(self.arrays.cell.peek(lock.0 as usize)) }
        })
    }

    fn fits(&self, machine: Machine) -> Result<(), Unfit> {
        let allowed = self.shape.machines;
        match (1..=allowed).contains(&machine.0) {
            true => Ok(()),
            false => Err(Unfit::Machine { machine: machine.0, allowed }),
        }
    }

    fn header(&self, question: &Question) -> Result<Header, Unfit> {
        let Question { view, lane: LaneId { machine, thread }, number, lock, ref ask } = *question;
        if view != self.view {
            return Err(Unfit::Refused(Refusal::View { asked: view, current: self.view }));
        }
        if lock.0 >= self.shape.locks {
            let locks = self.shape.locks;
            return Err(Unfit::Refused(Refusal::Lock { asked: lock, locks }));
        }
        let asked = Asked::of(ask).ok_or(Unfit::Planted)?;
        self.fits(machine)?;
        asked.holder.map_or(Ok(()), |holder| self.fits(holder))?;
        let lanes = self.shape.threads;
        if thread.0 >= lanes {
            return Err(Unfit::Thread { thread: thread.0, lanes });
        }
        let lane = usize::from(machine.0 - 1) * usize::from(lanes) + usize::from(thread.0);
        Ok(Header { lane, number, lock: lock.0 as usize, asked })
    }

    /// Takes in a question, and hands the packets to send to `send`.
    ///
    /// # Errors
    /// A question that it does not take: nothing is sent.
    pub fn receive(
        &mut self,
        question: &Question,
        send: &mut impl FnMut(Sent),
    ) -> Result<(), Unfit> {
        let header = self.header(question)?;
        let at = (&self.shape, &header);
        let decision = staged_step(&mut self.arrays, &self.program, at, Pass::enter());
        let decision = decision.ok_or(Unfit::Refused(Refusal::Gap))?;
        self.leave(question, decision, send);
        Ok(())
    }

    /// The last stage: the packets that leave.
    fn leave(&self, question: &Question, decision: Decision, send: &mut impl FnMut(Sent)) {
        let Question { lane, number, lock, .. } = *question;
        let Decision { answer, order, sends } = decision;
        let view = self.view;
        let token = Token { view, order };
        let sends = if self.shape.fanout == Fanout::Answers { Sends::Reply } else { sends };
        if matches!(sends, Sends::Reply | Sends::ReplyAndCopy) {
            send(Sent::Reply(Reply { view, lane, number, lock, answer, token }));
        }
        let notice = match (&question.ask, sends) {
            (Ask::Acquire { waiter, .. }, Sends::Copy | Sends::ReplyAndCopy) => {
                let granted = answer.verdict == Verdict::Joined;
                Notice::Copy { waiter: *waiter, number: answer.number, granted }
            }
            (Ask::Transfer { next, payload, .. }, Sends::Install) => Notice::Install {
                holder: *next,
                from: lane.machine,
                payload: Payload { counted: answer.number, queue: payload.queue.clone() },
                token,
            },
            _ => return,
        };
        if let Some(to) = answer.agent {
            send(Sent::Notice { to, view, lock, notice });
        }
    }
}

#[cfg(test)]
mod tests;
