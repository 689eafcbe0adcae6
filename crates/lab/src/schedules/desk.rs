//! The desk: the place where the coroutines of one seed put their counts and the errors that they found.
//!
//! Invariant: counts only grow while a seed runs, and the report of several seeds has the sum of each count. For the
//! longest time of a lease change, the report has the maximum over the seeds instead of the sum.

use serde::Serialize;
use std::cell::{Cell, RefCell};
use tarn_engine::services::lease_desk::Adjustments;

/// The number of transactions whose outcome was unknown at first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Settled {
    /// The number of transactions with an unknown outcome that were later resolved as committed.
    pub committed: u64,
    /// The number of transactions with an unknown outcome that were later resolved as aborted.
    pub aborted: u64,
}

/// The counts of events of transactions, calls, shards and leases. Commits and aborts are counted
/// elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Incidents {
    /// The number of transactions whose outcome was unknown at first, by their resolution.
    pub resolved: Settled,
    /// The number of transactions that were aborted at their deadline because of a fault.
    pub deadlines_missed: u64,
    /// The number of transactions that their callers dropped before the end.
    pub dropped: u64,
    /// The number of dropped transactions that had a round in flight.
    pub dropped_in_flight: u64,
    /// The counts of calls that run at the same time as the transactions.
    pub calls: Calls,
    /// The counts of moves of shards.
    pub moves: Moves,
    /// The counts of changes of readers' leases.
    pub lease_changes: LeaseChanges,
}

impl Incidents {
    /// Adds the incidents that another run counted.
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
    /// The number of calls whose caller got the right reply.
    pub replied: u64,
    /// The number of requests that were sent again.
    pub retransmissions: u64,
    /// The number of requests that arrived again and were not executed again.
    pub duplicates: u64,
}

impl Calls {
    /// Adds the calls that another run counted.
    pub fn add(&mut self, other: &Calls) {
        self.replied += other.replied;
        self.retransmissions += other.retransmissions;
        self.duplicates += other.duplicates;
    }
}

/// Counts of moves of shards.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Moves {
    /// The number of shards that moved to another node.
    pub made: u64,
    /// The number of moves that the old owner took back.
    pub taken_back: u64,
    /// The number of moves of shards whose coroutine was dropped before the move ended.
    pub dropped: u64,
}

impl Moves {
    /// Adds the moves of shards that another run counted.
    pub fn add(&mut self, other: &Moves) {
        self.made += other.made;
        self.taken_back += other.taken_back;
        self.dropped += other.dropped;
    }
}

/// Counts of changes of readers' leases.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct LeaseChanges {
    /// The number of requests for another lease length that were accepted, including requests that had not taken
    /// effect at the end of the run.
    pub begun: u64,
    /// The number of requests for another lease length that were refused because an earlier change had not ended.
    pub refused: u64,
    /// How often the managers of leases compared the lease length with the duration of transactions.
    pub looks: u64,
    /// The number of lease changes that managers requested and that took effect.
    pub adjusted: u64,
    /// The longest time that one of the managers' changes took, in nanoseconds of the manager's clock.
    pub adjust_longest_ns: u64,
    /// The number of members that were expelled because their clocks ran wrong.
    pub clocks: u64,
}

impl LeaseChanges {
    /// Adds the counts of a run's lease managers.
    pub(super) fn note(&mut self, told: &Adjustments) {
        (self.looks, self.adjusted) = (told.looks, told.count);
        (self.adjust_longest_ns, self.clocks) = (told.longest_ns, told.clocks.len() as u64);
    }

    /// Adds the changes of leases that another run counted.
    pub fn add(&mut self, other: &LeaseChanges) {
        self.begun += other.begun;
        self.refused += other.refused;
        self.looks += other.looks;
        self.adjusted += other.adjusted;
        self.adjust_longest_ns = self.adjust_longest_ns.max(other.adjust_longest_ns);
        self.clocks += other.clocks;
    }
}

/// The counts and failures that coroutines have put on the desk.
#[derive(Default)]
pub(super) struct Left<T> {
    pub(super) tally: T,
    pub(super) failures: Vec<String>,
    pub(super) incidents: Incidents,
    /// The number of coordinators that have not ended, counting only coordinators of incarnations that still run.
    pub(super) at_work: usize,
}

/// The shared place where coroutines put their counts and failures.
#[derive(Default)]
pub(super) struct Desk<T> {
    pub(super) left: RefCell<Left<T>>,
    /// Whether keepers (coroutines that repair the cluster) may end.
    pub(super) is_over: Cell<bool>,
    /// The number of probes that have not ended. A probe is a transaction that checks whether the repaired cluster
    /// works.
    pub(super) probes: Cell<usize>,
}
