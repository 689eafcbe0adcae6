//! Where the coroutines of one seed leave their counts and the errors that they found.
//!
//! Invariant: counts only grow while a seed runs, and a sum over seeds is the sum of each count, but for the longest time.

use serde::Serialize;
use std::cell::{Cell, RefCell};
use tarn_engine::services::lease_desk::Adjustments;

/// Transactions whose outcome was unknown at first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Settled {
    /// Resolved as committed.
    pub committed: u64,
    /// Resolved as aborted.
    pub aborted: u64,
}

/// Events of transactions, calls, shards and leases beside commits and aborts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Incidents {
    /// Transactions whose outcome was unknown at first, by how they were resolved.
    pub resolved: Settled,
    /// Transactions that were given up beside a fault.
    pub deadlines_missed: u64,
    /// Transactions that their caller dropped half-way.
    pub dropped: u64,
    /// Dropped transactions with a round on its way.
    pub dropped_in_flight: u64,
    /// Calls beside the transactions.
    pub calls: Calls,
    /// Shards that moved.
    pub moves: Moves,
    /// Changes of readers' leases.
    pub lease_changes: LeaseChanges,
}

impl Incidents {
    /// Adds another run's.
    pub fn add(&mut self, other: &Incidents) {
        self.resolved.committed += other.resolved.committed;
        self.resolved.aborted += other.resolved.aborted;
        self.deadlines_missed += other.deadlines_missed;
        self.dropped += other.dropped;
        self.dropped_in_flight += other.dropped_in_flight;
        self.calls.add(&other.calls);
        self.moves.add(&other.moves);
        self.lease_changes.add(&other.lease_changes);
    }
}

/// Counts of calls.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Calls {
    /// Calls whose reply came, and was right.
    pub replied: u64,
    /// Requests sent again.
    pub retransmissions: u64,
    /// Requests that came again and were not executed.
    pub duplicates: u64,
}

impl Calls {
    /// Adds another run's.
    pub fn add(&mut self, other: &Calls) {
        self.replied += other.replied;
        self.retransmissions += other.retransmissions;
        self.duplicates += other.duplicates;
    }
}

/// Counts of moves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Moves {
    /// Shards that another node has got.
    pub made: u64,
    /// Moves that were taken back.
    pub taken_back: u64,
    /// Moves that were dropped half-way.
    pub dropped: u64,
}

impl Moves {
    /// Adds another run's.
    pub fn add(&mut self, other: &Moves) {
        self.made += other.made;
        self.taken_back += other.taken_back;
        self.dropped += other.dropped;
    }
}

/// Counts of changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct LeaseChanges {
    /// Lengths that were asked for and came, or were on their way at the end.
    pub begun: u64,
    /// Changes that had to wait for another.
    pub refused: u64,
    /// How often managers looked at how long transactions take.
    pub looks: u64,
    /// Changes that they asked for and that came.
    pub adjusted: u64,
    /// The longest time to adjust of these, in nanoseconds of a manager's clock.
    pub adjust_longest_ns: u64,
    /// Members that were expelled for their clocks.
    pub clocks: u64,
}

impl LeaseChanges {
    /// Takes in the counts of a run's managers.
    pub(super) fn note(&mut self, told: &Adjustments) {
        (self.looks, self.adjusted) = (told.looks, told.count);
        (self.adjust_longest_ns, self.clocks) = (told.longest_ns, told.clocks.len() as u64);
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &LeaseChanges) {
        self.begun += other.begun;
        self.refused += other.refused;
        self.looks += other.looks;
        self.adjusted += other.adjusted;
        self.adjust_longest_ns = self.adjust_longest_ns.max(other.adjust_longest_ns);
        self.clocks += other.clocks;
    }
}

/// The counts and failures of coroutines.
#[derive(Default)]
pub(super) struct Left<T> {
    pub(super) tally: T,
    pub(super) failures: Vec<String>,
    pub(super) incidents: Incidents,
    /// Coordinators that have not ended, of lives that have not.
    pub(super) at_work: usize,
}

/// Where they leave it.
#[derive(Default)]
pub(super) struct Desk<T> {
    pub(super) left: RefCell<Left<T>>,
    /// Keepers may go.
    pub(super) is_over: Cell<bool>,
    /// Probes that have not ended.
    pub(super) probes: Cell<usize>,
}
