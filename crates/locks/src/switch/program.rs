//! The table of transitions as the match-action tables of stages, one for each register array of a lock.
//!
//! Invariant: the stage of the counts runs before the stage of the cells. It sees the question alone, and
//! the cells' stage sees the question and the comparison. A table that wants more of a stage is refused: the
//! packet would have to come back.

use super::table::{Ambiguous, AskKind, Key, NewCell, Old, Sends, Table};
use crate::packet::Verdict;

/// When the count goes up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CountOp {
    /// Never: it is read and compared.
    Read,
    /// Always.
    Add,
    /// If it is the question's count.
    AddIfEqual,
    /// If it is not.
    AddIfOther,
}

impl CountOp {
    /// Whether the count goes up.
    #[must_use]
    pub fn adds(self, is_equal: bool) -> bool {
        match self {
            CountOp::Read => false,
            CountOp::Add => true,
            CountOp::AddIfEqual => is_equal,
            CountOp::AddIfOther => !is_equal,
        }
    }
}

/// The new state of a free cell, and of one that is held: the one condition that the stage's unit looks at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CellOp {
    /// A free cell becomes this.
    pub free: NewCell,
    /// A cell that is held becomes this.
    pub held: NewCell,
}

/// The decision, and the packets that leave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    /// The decision.
    pub verdict: Verdict,
    /// The packets that leave.
    pub sends: Sends,
}

/// A table that does not fit the stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unstaged {
    /// An input has no row, or two.
    Ambiguous(Ambiguous),
    /// Whether this question counts depends on the cell, which a later stage holds.
    CountNeedsCell(Key),
    /// The new cell depends on the mode of the holders, beside the one condition.
    CellNeedsMode(Key),
    /// The new cell names a holder, and the question does not.
    NoHolder(Key),
}

/// The match-action tables, by [`Key::index`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    counts: [CountOp; Key::COUNT],
    cells: [CellOp; Key::COUNT],
    outcomes: [[Outcome; Old::ALL.len()]; Key::COUNT],
}

impl Program {
    /// The stages of a table.
    ///
    /// # Errors
    /// The table does not fit the stages.
    pub fn of(table: &Table) -> Result<Program, Unstaged> {
        let nothing = CellOp { free: NewCell::Same, held: NewCell::Same };
        let refuse = Outcome { verdict: Verdict::Refused, sends: Sends::Reply };
        let mut program = Program {
            counts: [CountOp::Read; Key::COUNT],
            cells: [nothing; Key::COUNT],
            outcomes: [[refuse; Old::ALL.len()]; Key::COUNT],
        };
        for key in Key::all() {
            program.counts[key.index()] = count_op(table, key)?;
            program.cells[key.index()] = cell_op(table, key)?;
            for old in Old::ALL {
                let row = table.row(old, key).map_err(Unstaged::Ambiguous)?;
                let outcome = Outcome { verdict: row.verdict, sends: row.sends };
                program.outcomes[key.index()][old as usize] = outcome;
            }
        }
        Ok(program)
    }

    /// The operation on the count. It does not look at [`Key::is_equal`].
    #[must_use]
    pub fn count(&self, key: Key) -> CountOp {
        self.counts[key.index()]
    }

    /// The operation on the cell.
    #[must_use]
    pub fn cell(&self, key: Key) -> CellOp {
        self.cells[key.index()]
    }

    /// The outcome.
    #[must_use]
    pub fn outcome(&self, old: Old, key: Key) -> Outcome {
        self.outcomes[key.index()][old as usize]
    }
}

fn count_op(table: &Table, key: Key) -> Result<CountOp, Unstaged> {
    let counts = |is_equal| {
        let key = Key { is_equal, ..key };
        let mut all = Old::ALL.iter().map(|old| table.row(*old, key).map(|row| row.counts));
        let first = all.next().expect("a lock has states").map_err(Unstaged::Ambiguous)?;
        for one in all {
            if one.map_err(Unstaged::Ambiguous)? != first {
                return Err(Unstaged::CountNeedsCell(key));
            }
        }
        Ok(first)
    };
    Ok(match (counts(true)?, counts(false)?) {
        (false, false) => CountOp::Read,
        (true, true) => CountOp::Add,
        (true, false) => CountOp::AddIfEqual,
        (false, true) => CountOp::AddIfOther,
    })
}

fn cell_op(table: &Table, key: Key) -> Result<CellOp, Unstaged> {
    let new = |old| table.row(old, key).map(|row| row.cell).map_err(Unstaged::Ambiguous);
    let (free, held) = (new(Old::Free)?, new(Old::HELD[0])?);
    let names_holder = matches!(key.ask, AskKind::Acquire | AskKind::Transfer);
    let needs_holder = |cell| matches!(cell, NewCell::First | NewCell::Next);
    if !names_holder && (needs_holder(free) || needs_holder(held)) {
        return Err(Unstaged::NoHolder(key));
    }
    for old in Old::HELD {
        if new(old)? != held {
            return Err(Unstaged::CellNeedsMode(key));
        }
    }
    Ok(CellOp { free, held })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Mode;

    #[test]
    fn the_shipped_table_fits_and_its_stages_say_the_same() {
        let table = Table::shipped();
        let program = Program::of(&table).expect("it fits");
        for key in Key::all() {
            assert_eq!(Key::all().nth(key.index()), Some(key));
            for old in Old::ALL {
                let row = table.row(old, key).expect("one row");
                let op = program.cell(key);
                assert_eq!(if old == Old::Free { op.free } else { op.held }, row.cell);
                assert_eq!(program.count(key).adds(key.is_equal), row.counts);
            }
        }
    }

    #[test]
    fn a_table_that_needs_a_second_touch_is_refused() {
        // An acquire that is counted only where it joins: the count would need the cell.
        let mut published = Table::shipped();
        published.rows[2].counts = false;
        assert!(matches!(Program::of(&published), Err(Unstaged::CountNeedsCell(_))));
        let mut by_mode = Table::shipped();
        by_mode.rows[2].cell = NewCell::Bar;
        let at =
            Key { ask: AskKind::Acquire, mode: Mode::Shared, bars_readers: false, is_equal: false };
        assert_eq!(Program::of(&by_mode), Err(Unstaged::CellNeedsMode(at)));
        let mut missing = Table::shipped();
        missing.rows.remove(0);
        assert!(matches!(
            Program::of(&missing),
            Err(Unstaged::Ambiguous(Ambiguous { rows: 0, .. }))
        ));
        let mut twice = Table::shipped();
        twice.rows[0].old.push(Old::Open);
        assert!(matches!(Program::of(&twice), Err(Unstaged::Ambiguous(Ambiguous { rows: 2, .. }))));
    }
}
