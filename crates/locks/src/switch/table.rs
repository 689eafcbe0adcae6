//! The decider's transitions as data.
//!
//! Invariant: each input has exactly one row ([`Table::row`]), and the row says the same as
//! [`crate::decider::step`]. Rows say nothing of machines and numbers: in every row the answer names the
//! agent of the new cell, and the count after the question.
//! After Zhang, Cheng, Chen, Chen, "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI
//! 2024, with its faults mended ([`crate::rules`]).

use crate::decider::{Entry, Held};
use crate::packet::{Answer, Ask, Verdict};
use crate::value::{Machine, Mode, Width};

/// The states of a lock that rows tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Old {
    /// Free.
    Free,
    /// Held shared; shared requests join.
    Open,
    /// Held shared; shared requests wait, because an exclusive one does.
    Barred,
    /// Held exclusive.
    Exclusive,
}

impl Old {
    /// All states.
    pub const ALL: [Old; 4] = [Old::Free, Old::Open, Old::Barred, Old::Exclusive];
    /// The states in which the lock is held.
    pub const HELD: [Old; 3] = [Old::Open, Old::Barred, Old::Exclusive];

    /// The state of an entry.
    #[must_use]
    pub fn of(held: Option<Held>) -> Old {
        match held {
            None => Old::Free,
            Some(Held { mode: Mode::Exclusive, .. }) => Old::Exclusive,
            Some(Held { bars_readers: true, .. }) => Old::Barred,
            Some(_) => Old::Open,
        }
    }
}

/// The kinds of questions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AskKind {
    /// [`Ask::Acquire`].
    Acquire,
    /// [`Ask::Free`].
    Free,
    /// [`Ask::Transfer`].
    Transfer,
    /// [`Ask::BarReaders`].
    BarReaders,
}

impl AskKind {
    /// All kinds.
    pub const ALL: [AskKind; 4] =
        [AskKind::Acquire, AskKind::Free, AskKind::Transfer, AskKind::BarReaders];
}

/// The parts of a question that rows look at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// The kind.
    pub ask: AskKind,
    /// The mode of the requester or of the next holder; shared where there is none.
    pub mode: Mode,
    /// The question's flag that shared requests wait; false where there is none.
    pub bars_readers: bool,
    /// The question's count is the entry's.
    pub is_equal: bool,
}

impl Key {
    /// The number of keys.
    pub const COUNT: usize = 32;

    /// All keys, each at its [`Key::index`].
    pub fn all() -> impl Iterator<Item = Key> {
        (0..Key::COUNT).map(|at| Key {
            ask: AskKind::ALL[at >> 3],
            mode: if at & 4 == 0 { Mode::Shared } else { Mode::Exclusive },
            bars_readers: at & 2 != 0,
            is_equal: at & 1 != 0,
        })
    }

    /// The key's place.
    #[must_use]
    pub fn index(self) -> usize {
        let mode = usize::from(self.mode == Mode::Exclusive);
        let flags = usize::from(self.bars_readers) << 1 | usize::from(self.is_equal);
        (self.ask as usize) << 3 | mode << 2 | flags
    }
}

/// A lock's new state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NewCell {
    /// As before.
    Same,
    /// Free.
    Free,
    /// Held by the requester, in its mode; shared requests join.
    First,
    /// Held by the next holder, in its mode; shared requests wait if the question says so.
    Next,
    /// As before, but shared requests wait. A free lock has no such state.
    Bar,
}

/// Packets that leave for a question, of a decider that may send two for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Sends {
    /// The answer, to the machine that asked.
    Reply,
    /// The answer, and a copy of the acquire to the agent's machine.
    ReplyAndCopy,
    /// A copy of the acquire to the agent's machine, which acknowledges it.
    Copy,
    /// The agent, to the next holder's machine, which acknowledges it.
    Install,
}

/// A transition. `None` in a condition: it does not matter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The states that it is for.
    pub old: Vec<Old>,
    /// The kind of question.
    pub ask: AskKind,
    /// The mode of the requester or of the next holder.
    pub mode: Option<Mode>,
    /// The question's flag that shared requests wait.
    pub bars_readers: Option<bool>,
    /// The question's count is the entry's.
    pub is_equal: Option<bool>,
    /// The new state.
    pub cell: NewCell,
    /// The count goes up by one.
    pub counts: bool,
    /// The decision.
    pub verdict: Verdict,
    /// The packets that leave.
    pub sends: Sends,
}

impl Row {
    /// Whether the row is for this input.
    #[must_use]
    pub fn is_for(&self, old: Old, key: Key) -> bool {
        self.old.contains(&old)
            && self.ask == key.ask
            && self.mode.is_none_or(|mode| mode == key.mode)
            && self.bars_readers.is_none_or(|bars| bars == key.bars_readers)
            && self.is_equal.is_none_or(|equal| equal == key.is_equal)
    }
}

/// An input that has no row, or two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ambiguous {
    /// The lock's state.
    pub old: Old,
    /// The question.
    pub key: Key,
    /// The number of rows.
    pub rows: usize,
}

/// All transitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// In any order.
    pub rows: Vec<Row>,
}

impl Table {
    /// The protocol that ships.
    #[must_use]
    pub fn shipped() -> Table {
        use self::{AskKind as A, NewCell as C, Old as O, Sends as S};
        use crate::packet::Verdict as V;
        use Mode::{Exclusive, Shared};
        let row =
            |old: &[Old], (ask, mode, bars_readers, is_equal), (cell, counts), (verdict, sends)| {
                let old = old.to_vec();
                Row { old, ask, mode, bars_readers, is_equal, cell, counts, verdict, sends }
            };
        let (yes, no) = (Some(true), Some(false));
        let (shared, exclusive) = (Some(Shared), Some(Exclusive));
        let waits = [O::Barred, O::Exclusive];
        let (any, held) = (O::ALL, O::HELD);
        let rows = vec![
            row(
                &[O::Free],
                (A::Acquire, None, None, None),
                (C::First, true),
                (V::Granted, S::Reply),
            ),
            row(
                &[O::Open],
                (A::Acquire, shared, None, None),
                (C::Same, true),
                (V::Joined, S::ReplyAndCopy),
            ),
            row(&waits, (A::Acquire, shared, None, None), (C::Same, true), (V::Queued, S::Copy)),
            row(&held, (A::Acquire, exclusive, no, None), (C::Same, true), (V::Queued, S::Copy)),
            row(&held, (A::Acquire, exclusive, yes, None), (C::Bar, true), (V::Queued, S::Copy)),
            row(&any, (A::Free, None, None, yes), (C::Free, false), (V::Done, S::Reply)),
            row(&any, (A::Free, None, None, no), (C::Same, false), (V::Refused, S::Reply)),
            row(&any, (A::Transfer, None, None, yes), (C::Next, true), (V::Done, S::Install)),
            row(&any, (A::Transfer, None, None, no), (C::Same, false), (V::Refused, S::Reply)),
            row(
                &[O::Free],
                (A::BarReaders, None, None, None),
                (C::Same, false),
                (V::Done, S::Reply),
            ),
            row(&held, (A::BarReaders, None, None, None), (C::Bar, false), (V::Done, S::Reply)),
        ];
        Table { rows }
    }

    /// The row for an input.
    ///
    /// # Errors
    /// The input has no row, or two.
    pub fn row(&self, old: Old, key: Key) -> Result<&Row, Ambiguous> {
        let mut rows = self.rows.iter().filter(|row| row.is_for(old, key));
        match (rows.next(), rows.count()) {
            (Some(row), 0) => Ok(row),
            (None, _) => Err(Ambiguous { old, key, rows: 0 }),
            (Some(_), others) => Err(Ambiguous { old, key, rows: 1 + others }),
        }
    }

    /// Decides a question as [`crate::decider::step`] does, by the row for it. `None`: a question that no row is for.
    #[must_use]
    pub fn step(&self, entry: Entry, ask: &Ask, width: Width) -> Option<(Entry, Answer)> {
        let asked = Asked::of(ask)?;
        let key = asked.key(asked.count.is_some_and(|count| width.cut(count) == entry.count));
        let row = self.row(Old::of(entry.held), key).ok()?;
        let count = width.cut(entry.count + u64::from(row.counts));
        let Key { mode, bars_readers, .. } = key;
        let become_held =
            |bars_readers| asked.holder.map(|agent| Held { agent, mode, bars_readers });
        let held = match row.cell {
            NewCell::Same => entry.held,
            NewCell::Free => None,
            NewCell::First => become_held(false),
            NewCell::Next => become_held(bars_readers),
            NewCell::Bar => entry.held.map(|held| Held { bars_readers: true, ..held }),
        };
        let agent = held.map(|held| held.agent);
        let answer = Answer { verdict: row.verdict, agent, number: count };
        Some((Entry { count, held }, answer))
    }
}

/// The fields of a question that a switch looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The kind.
    pub ask: AskKind,
    /// The mode of the requester or of the next holder.
    pub mode: Mode,
    /// The flag that shared requests wait.
    pub bars_readers: bool,
    /// The machine of the requester or of the next holder.
    pub holder: Option<Machine>,
    /// The count that the agent has seen.
    pub count: Option<u64>,
}

impl Asked {
    /// The fields of a question. `None`: a planted fault of the search, which no table has.
    #[must_use]
    pub fn of(ask: &Ask) -> Option<Asked> {
        let none = Asked {
            ask: AskKind::BarReaders,
            mode: Mode::Shared,
            bars_readers: false,
            holder: None,
            count: None,
        };
        Some(match *ask {
            Ask::Acquire { waiter, bars_readers } => Asked {
                ask: AskKind::Acquire,
                mode: waiter.mode,
                bars_readers,
                holder: Some(waiter.request.machine),
                count: None,
            },
            Ask::Free { count } => Asked { ask: AskKind::Free, count: Some(count), ..none },
            Ask::Transfer { count, next, bars_readers, .. } => Asked {
                ask: AskKind::Transfer,
                mode: next.mode,
                bars_readers,
                holder: Some(next.request.machine),
                count: Some(count),
            },
            Ask::BarReaders => none,
            Ask::Release => return None,
        })
    }

    /// The question's key, once its count has been compared.
    #[must_use]
    pub fn key(&self, is_equal: bool) -> Key {
        let Asked { ask, mode, bars_readers, .. } = *self;
        Key { ask, mode, bars_readers, is_equal }
    }
}
