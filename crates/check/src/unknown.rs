//! Decides which transactions of unknown outcome the checker takes as committed.
//!
//! The rule: the checker takes an unknown transaction as committed if and only if another transaction
//! that is taken as committed *observed* it. A transaction observed the unknown transaction if it
//! - read a version that only the unknown transaction wrote, or
//! - did not find a record that only a delete by the unknown transaction can have removed.
//!
//! The checker drops any other unknown transaction with all its reads and writes.
//!
//! The following arguments show that this rule accepts a history if and only if some way to settle
//! the unknown outcomes makes the history acceptable:
//! - *Observed transactions must be included.* Without an observed transaction, the observer's read
//!   would have no source, which is a violation.
//! - *Unobserved transactions may be left out.* Take an accepted serial order that contains an
//!   unobserved transaction, and remove this transaction. No transaction read its versions. An absent
//!   read after its delete still follows another delete or the initial absence, because otherwise the
//!   delete would count as observed. All other reads keep their source. The successor of each such
//!   read in the version order stays or moves to a later version. The real-time order among the other
//!   transactions is unchanged, so the order is still accepted. A gap in the version numbers is no
//!   observation, because version numbers need not be dense. A read by an aborted transaction is no
//!   observation either.
//! - *Sometimes several transactions could be the observed one.* Two unknown transactions may have
//!   tried to write the same version, or two unknown deletes may explain one absence. Each case with
//!   several possible transactions is a choice. `check` tries the alternatives of each choice, up to
//!   a bound, until it accepts one.
//!
//! Invariant: for the given choices, the result is the smallest set of transactions that is closed
//! under observation. The module computes this set in a fixed order.

use std::collections::BTreeSet;

use crate::history::{History, Outcome, Version};
use crate::index::{Index, Op, Role};

/// The transactions that are included in the graph.
pub(crate) struct Resolution {
    /// For each transaction, whether it is committed, or unknown and taken as committed.
    pub included: Vec<bool>,
    /// For each choice, in order, the number of its alternatives.
    pub choices: Vec<usize>,
}

impl Resolution {
    /// Settles the unknown outcomes. `picks` gives the alternatives that the first choices take. All
    /// later choices take their first alternative.
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

/// Returns the alternatives to try after the alternatives `picks` were rejected, depth first. Returns
/// `None` after the last alternatives.
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
            // The reads of the included transaction count from now on, so they may observe further
            // transactions. The writes of the included transaction may hide the delete that explains
            // an absent read.
            let first = touched.partition_point(|(other, _, _)| *other < txn);
            let own = touched[first..].iter().take_while(|(other, _, _)| *other == txn);
            pending.extend(own.map(|(_, record, _)| *record));
        }
    }

    /// Returns a sorted list of triples: an unknown transaction, a record that it touches, and
    /// whether it writes this record.
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

    /// Returns the first unknown transaction that is not included yet and that an included
    /// transaction observed at this record.
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

    /// Returns the unknown transactions that wrote the version that `read` read. If some of these
    /// transactions could have written the value that was read, the function returns only these.
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

    /// Returns the unknown transactions whose delete has a version later than `since`.
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
