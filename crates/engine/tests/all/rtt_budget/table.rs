//! A system's table of round trips, as the documentation in its source states it.
//!
//! Invariant checked: a row names lines of the table that exist, and the numbers of its lines add up to its rounds.
//! If the row's last line states that a detached round follows, the row has one. If no line states this, the row has
//! none. At the end the rows have named every line. A line's number counts only if the line states one number for
//! every transaction. Examples are "2: read, validate", "+ 1: the record's bin" and "as above". Counterexamples are
//! "1 at lock, 2 at validation" and "+ 1 for each".

use super::{ANY, Row};

struct Line {
    name: String,
    /// The number of rounds until the reply, if the line states one number for every transaction.
    rounds: Option<i64>,
    /// The text of the table's column for the rounds after the reply.
    then: String,
    is_covered: bool,
}

pub(super) struct Table {
    lines: Vec<Line>,
}

impl Table {
    pub(super) fn of(source: &str) -> Table {
        let cells = source.lines().filter_map(|line| {
            let cells: Vec<_> = line.strip_prefix("//! |")?.split('|').map(str::trim).collect();
            (cells.len() == 4 && cells[0] != "transaction" && !cells[0].starts_with("---"))
                .then_some(cells)
        });
        let line = |cells: Vec<&str>| Line {
            name: cells[0].into(),
            rounds: rounds(cells[1]),
            then: cells[2].into(),
            is_covered: false,
        };
        let lines: Vec<_> = cells.map(line).collect();
        assert!(!lines.is_empty(), "the source has no table of round trips");
        Table { lines }
    }

    fn find(&mut self, name: &str) -> &mut Line {
        let found = self.lines.iter_mut().find(|line| line.name == name);
        found.unwrap_or_else(|| panic!("the system's table has no line \"{name}\""))
    }

    pub(super) fn cover(&mut self, name: &str) {
        self.find(name).is_covered = true;
    }

    /// Compares the cost of a row with the lines that the row names.
    pub(super) fn note(&mut self, row: &Row<'_>, wrong: &mut Vec<String>) {
        let (Some(cost), false) = (row.cost, row.lines.is_empty()) else { return };
        let (mut sum, mut then) = (Some(0), String::new());
        for name in &row.lines {
            let line = self.find(name);
            line.is_covered = true;
            sum = sum.zip(line.rounds).map(|(sum, rounds)| sum + rounds);
            if !line.then.is_empty() {
                then.clone_from(&line.then);
            }
        }
        let counted = (cost.rounds + cost.messages) as i64;
        if sum.is_some_and(|sum| sum != counted) {
            wrong.push(format!(
                "{:?}: {sum:?} rounds in the table, {counted} in the row",
                row.lines
            ));
        }
        let detached = match then.as_str() {
            "" => 0,
            then if then.starts_with("nothing") => 0,
            then if then.starts_with("unlock") => 1,
            _ => return,
        };
        if cost.detached != ANY && cost.detached != detached {
            wrong.push(format!("{:?}: then \"{then}\" in the table, {cost:?}", row.lines));
        }
    }

    /// Returns a message for each line of the table that no row names.
    pub(super) fn left(&self) -> Vec<String> {
        let left = self.lines.iter().filter(|line| !line.is_covered);
        left.map(|line| format!("no row counts \"{}\"", line.name)).collect()
    }
}

/// Reads the number of rounds of a line, if the number is the same for every transaction.
fn rounds(text: &str) -> Option<i64> {
    if text.starts_with("as above") {
        return Some(0);
    }
    let (number, rest) = text.split_once(':').unwrap_or((text, ""));
    let varies = rest.contains(';') || rest.contains(" none ");
    number.replace(' ', "").parse().ok().filter(|_| !varies)
}
