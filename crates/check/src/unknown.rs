//! Decides which transactions of unknown outcome are taken as committed.
//!
//! The rule: an unknown transaction is taken as committed if and only if a transaction that is
//! itself taken as committed *observed* it, that is
//! - read a version that only it wrote, or
//! - found a record absent that only its delete can have removed.
//!
//! Any other unknown transaction is dropped with all its reads and writes.
//!
//! Why this decides "is there a way to settle the unknown outcomes such that the history is
//! accepted":
//! - *Observed ones must be in.* Without them the observer's read has no source, a violation.
//! - *Unobserved ones may be left out.* Take an accepted serial order that contains one, and strike
//!   it out. No transaction read its versions. An absent read behind its delete still follows a
//!   delete or the initial absence, else the delete would count as observed. All other reads keep
//!   their source, their successor in the version order moves later or stays, and real-time order
//!   among the rest is unchanged: the order is still accepted. A gap in the version numbers is no
//!   observation, since versions need not be dense, and neither is a read by an aborted
//!   transaction.
//! - *Sometimes several could be the one observed*: two unknown transactions tried to write the
//!   same version, or two unknown deletes explain one absence. Each such place is a choice;
//!   `check` tries the alternatives, up to a bound, until one is accepted.
//!
//! Invariant: the result is the least set closed under observation for the given choices, computed
//! in a fixed order.

use std::collections::BTreeSet;

use crate::history::{History, Outcome, Version};
use crate::index::{Index, Op, Role};

/// The transactions that take part in the graph.
pub(crate) struct Resolution {
    /// By transaction: committed, or unknown and taken as committed.
    pub included: Vec<bool>,
    /// For each place where a choice was made, in order: the number of alternatives.
    pub choices: Vec<usize>,
}

impl Resolution {
    /// Settles the unknown outcomes. `picks` gives the alternatives to take at the first choices;
    /// all later choices take their first alternative.
    pub fn settle(history: &History, index: &Index, picks: &[usize]) -> Self {
        let outcomes = history.transactions.iter().map(|txn| txn.outcome);
        let included = outcomes.clone().map(|outcome| outcome == Outcome::Committed).collect();
        let mut resolution = Self { included, choices: Vec::new() };
        if outcomes.clone().any(|outcome| outcome == Outcome::Unknown) {
            Settler { history, index, picks, resolution: &mut resolution }.run();
        }
        resolution
    }
}

/// The alternatives to try after these picks were rejected, depth first; `None` after the last.
pub(crate) fn next_picks(picks: &[usize], choices: &[usize]) -> Option<Vec<usize>> {
    let mut next: Vec<usize> =
        (0..choices.len()).map(|at| picks.get(at).copied().unwrap_or(0)).collect();
    while let Some(last) = next.pop() {
        if last + 1 < choices[next.len()] {
            next.push(last + 1);
            return Some(next);
        }
    }
    None
}

struct Settler<'a> {
    history: &'a History,
    index: &'a Index,
    picks: &'a [usize],
    resolution: &'a mut Resolution,
}

impl Settler<'_> {
    fn run(&mut self) {
        let touched = self.records_by_unknown();
        let mut pending: BTreeSet<usize> =
            touched.iter().filter(|(_, _, writes)| *writes).map(|(_, record, _)| *record).collect();
        while let Some(record) = pending.pop_first() {
            let Some(txn) = self.observed_in(record) else {
                continue;
            };
            self.resolution.included[txn as usize] = true;
            // Its reads bind from now on, and its writes may hide the explanation of an absence.
            let first = touched.partition_point(|(other, _, _)| *other < txn);
            let own = touched[first..].iter().take_while(|(other, _, _)| *other == txn);
            pending.extend(own.map(|(_, record, _)| *record));
        }
    }

    /// (unknown transaction, record it touches, whether it writes it), sorted.
    fn records_by_unknown(&self) -> Vec<(u32, usize, bool)> {
        let mut touched = Vec::new();
        for record in 0..self.index.records() {
            let ops = &self.index.ops[self.index.range(record)];
            let unknown = ops.iter().filter(|op| self.is_unknown(op));
            touched.extend(unknown.map(|op| (op.txn, record, op.is_write())));
        }
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    fn is_unknown(&self, op: &Op) -> bool {
        self.history.transactions[op.txn as usize].outcome == Outcome::Unknown
    }

    fn is_included(&self, op: &Op) -> bool {
        self.resolution.included[op.txn as usize]
    }

    /// Returns the first unknown transaction, not yet included, that an included one observed at
    /// this record.
    fn observed_in(&mut self, record: usize) -> Option<u32> {
        let index = self.index;
        let ops = &index.ops[index.range(record)];
        let initial = index.initial_read(index.range(record), &self.resolution.included);
        let mut last_write: Option<&Op> = None;
        for (at, op) in ops.iter().enumerate() {
            if !self.is_included(op) {
                continue;
            }
            let candidates = match op.role {
                Role::Write(_) => {
                    last_write = Some(op);
                    continue;
                }
                Role::Present if last_write.is_some_and(|w| w.version == op.version) => continue,
                Role::Present => self.writers_of(&ops[..at], op),
                Role::Absent if last_write.map_or(initial.is_none(), Op::is_delete) => continue,
                Role::Absent => self.deleters_since(&ops[..at], last_write.map(|w| w.version)),
            };
            if !candidates.is_empty() {
                return Some(self.choose(&candidates));
            }
        }
        None
    }

    fn choose(&mut self, candidates: &[u32]) -> u32 {
        if candidates.len() == 1 {
            return candidates[0];
        }
        let pick = self.picks.get(self.resolution.choices.len()).copied().unwrap_or(0);
        self.resolution.choices.push(candidates.len());
        candidates[pick]
    }

    /// Returns the unknown transactions that wrote the version read. If some of them could have
    /// written the value read, only those are returned.
    fn writers_of(&self, before: &[Op], read: &Op) -> Vec<u32> {
        let same = before.iter().rev().take_while(|op| op.version == read.version);
        let writers: Vec<&Op> = same.filter(|op| op.is_write() && self.is_unknown(op)).collect();
        let fits = |op: &&&Op| {
            let unmarked = op.fingerprint == 0 || read.fingerprint == 0;
            !op.is_delete() && (unmarked || op.fingerprint == read.fingerprint)
        };
        let fitting: Vec<u32> = writers.iter().filter(fits).map(|op| op.txn).collect();
        if fitting.is_empty() {
            distinct(writers.iter().map(|op| op.txn))
        } else {
            distinct(fitting)
        }
    }

    /// Returns the unknown transactions whose delete lies behind `since`.
    fn deleters_since(&self, before: &[Op], since: Option<Version>) -> Vec<u32> {
        let recent = before.iter().rev().take_while(|op| since.is_none_or(|v| op.version > v));
        distinct(recent.filter(|op| op.is_delete() && self.is_unknown(op)).map(|op| op.txn))
    }
}

fn distinct(txns: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut txns: Vec<u32> = txns.into_iter().collect();
    txns.sort_unstable();
    txns.dedup();
    txns
}
