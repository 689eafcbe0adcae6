//! Counts of the work of a thread's coordinators.
//!
//! Invariant: one thread uses these counts, in plain cells without atomics. The thread itself takes snapshots.

use std::cell::Cell;
use tarn_store::ids::AbortReason;

/// The greatest number of phases that a protocol names.
pub const PHASES_MAX: usize = 24;

/// The events of recovery. Each branch of the recovery code has one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryEvent {
    /// A node's incarnation was recovered.
    Recovered,
    /// A node took over a recovery from a node that died.
    TookOver,
    /// Recovery found a transaction with some of its locks released, so the transaction had committed.
    FoundReleased,
    /// Recovery found a transaction with all data written and all locks held, and committed the transaction.
    Finished,
    /// Recovery undid a transaction.
    Undone,
    /// A lock of a recovered incarnation refused a transaction, and the transaction released that lock.
    StrayMet,
    /// The sweep released a lock of a recovered incarnation.
    StraySwept,
    /// A coordinator waited until the last log of its number was settled.
    AreaAwaited,
    /// A coordinator could not begin a transaction, because its node is barred.
    Barred,
    /// Recovery found that other transactions followed a transaction whose LOCK words died with a memory node. So
    /// recovery committed the transaction.
    FoundFollowed,
    /// A configuration was opened whose map no longer contains a dead memory node.
    Promoted,
    /// Copies of replica groups on spare nodes were completed, and are replicas from then on.
    Rereplicated,
}

impl RecoveryEvent {
    /// All events, in the order of [`RecoveryEvent`].
    pub const ALL: [RecoveryEvent; 12] = [
        RecoveryEvent::Recovered,
        RecoveryEvent::TookOver,
        RecoveryEvent::FoundReleased,
        RecoveryEvent::Finished,
        RecoveryEvent::Undone,
        RecoveryEvent::StrayMet,
        RecoveryEvent::StraySwept,
        RecoveryEvent::AreaAwaited,
        RecoveryEvent::Barred,
        RecoveryEvent::FoundFollowed,
        RecoveryEvent::Promoted,
        RecoveryEvent::Rereplicated,
    ];

    /// The name of the event in reports.
    pub fn name(self) -> &'static str {
        match self {
            RecoveryEvent::Recovered => "recovered",
            RecoveryEvent::TookOver => "took_over",
            RecoveryEvent::FoundReleased => "found_released",
            RecoveryEvent::Finished => "finished",
            RecoveryEvent::Undone => "undone",
            RecoveryEvent::StrayMet => "stray_met",
            RecoveryEvent::StraySwept => "stray_swept",
            RecoveryEvent::AreaAwaited => "area_awaited",
            RecoveryEvent::Barred => "barred",
            RecoveryEvent::FoundFollowed => "found_followed",
            RecoveryEvent::Promoted => "promoted",
            RecoveryEvent::Rereplicated => "rereplicated",
        }
    }
}

/// A snapshot of a thread's counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// The number of acknowledged transactions.
    pub committed: u64,
    /// The number of aborted tries, for each [`AbortReason`] in order.
    pub aborts: [u64; AbortReason::ALL.len()],
    /// The number of transactions whose outcome was unknown.
    pub unknown: u64,
    /// For each phase of the protocol, the number of times that transactions entered the phase.
    pub phases: [u64; PHASES_MAX],
    /// The number of buckets that were split.
    pub splits: u64,
    /// The number of splits that were abandoned, because another transaction held a lock or there was no room.
    pub splits_refused: u64,
    /// The number of nodes of ordered indexes that were split.
    pub node_splits: u64,
    /// The number of nodes of ordered indexes that were merged into another node.
    pub node_merges: u64,
    /// For each [`RecoveryEvent`] in order, the number of times that the event happened.
    pub recovery: [u64; RecoveryEvent::ALL.len()],
}

impl Tally {
    /// The number of all aborted tries.
    pub fn aborted(&self) -> u64 {
        self.aborts.iter().sum()
    }

    /// The difference between these counts and an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Tally) -> Tally {
        let mut aborts = self.aborts;
        for (mine, theirs) in aborts.iter_mut().zip(earlier.aborts) {
            *mine -= theirs;
        }
        let mut phases = self.phases;
        for (mine, theirs) in phases.iter_mut().zip(earlier.phases) {
            *mine -= theirs;
        }
        let mut recovery = self.recovery;
        for (mine, theirs) in recovery.iter_mut().zip(earlier.recovery) {
            *mine -= theirs;
        }
        Tally {
            recovery,
            committed: self.committed - earlier.committed,
            aborts,
            unknown: self.unknown - earlier.unknown,
            phases,
            splits: self.splits - earlier.splits,
            splits_refused: self.splits_refused - earlier.splits_refused,
            node_splits: self.node_splits - earlier.node_splits,
            node_merges: self.node_merges - earlier.node_merges,
        }
    }

    /// Adds another thread's counts.
    pub fn add(&mut self, other: &Tally) {
        self.committed += other.committed;
        self.unknown += other.unknown;
        self.splits += other.splits;
        self.splits_refused += other.splits_refused;
        self.node_splits += other.node_splits;
        self.node_merges += other.node_merges;
        for (mine, theirs) in self.aborts.iter_mut().zip(other.aborts) {
            *mine += theirs;
        }
        for (mine, theirs) in self.phases.iter_mut().zip(other.phases) {
            *mine += theirs;
        }
        for (mine, theirs) in self.recovery.iter_mut().zip(other.recovery) {
            *mine += theirs;
        }
    }
}

/// The counters of a thread.
#[derive(Default, Debug)]
pub struct Metrics {
    committed: Cell<u64>,
    aborts: [Cell<u64>; AbortReason::ALL.len()],
    unknown: Cell<u64>,
    phases: [Cell<u64>; PHASES_MAX],
    last_phase: Cell<usize>,
    splits: Cell<u64>,
    splits_refused: Cell<u64>,
    node_splits: Cell<u64>,
    node_merges: Cell<u64>,
    recovery: [Cell<u64>; RecoveryEvent::ALL.len()],
}

#[inline]
fn bump(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

impl Metrics {
    /// Counts an acknowledged transaction.
    #[inline]
    pub fn committed(&self) {
        bump(&self.committed);
    }

    /// Counts an aborted try.
    #[inline]
    pub fn aborted(&self, reason: AbortReason) {
        bump(&self.aborts[reason as usize]);
    }

    /// Counts a transaction whose outcome is unknown.
    pub fn unknown(&self) {
        bump(&self.unknown);
    }

    /// Counts that a transaction enters a phase; `phase` is the phase's index in the protocol's phases.
    #[inline]
    pub fn phase(&self, phase: usize) {
        bump(&self.phases[phase]);
        self.last_phase.set(phase);
    }

    /// The phase that a transaction of this thread entered last.
    pub fn last_phase(&self) -> usize {
        self.last_phase.get()
    }

    /// The number of times that transactions entered any phase.
    pub fn phases_entered(&self) -> u64 {
        self.phases.iter().map(Cell::get).sum()
    }

    /// The number of tries that have ended, whatever their outcome.
    pub fn tries_ended(&self) -> u64 {
        let aborted: u64 = self.aborts.iter().map(Cell::get).sum();
        self.committed.get() + self.unknown.get() + aborted
    }

    /// Counts buckets that were split.
    pub fn split(&self, buckets: u64) {
        self.splits.set(self.splits.get() + buckets);
    }

    /// Counts a split that was abandoned.
    pub fn split_refused(&self) {
        bump(&self.splits_refused);
    }

    /// Counts a node of an ordered index that was split.
    pub fn node_split(&self) {
        bump(&self.node_splits);
    }

    /// Counts a node of an ordered index that was merged into another node.
    pub fn node_merge(&self) {
        bump(&self.node_merges);
    }

    /// Counts an event of recovery.
    pub fn recovery(&self, event: RecoveryEvent) {
        bump(&self.recovery[event as usize]);
    }

    /// Returns a snapshot of the counts so far.
    pub fn snapshot(&self) -> Tally {
        Tally {
            committed: self.committed.get(),
            aborts: std::array::from_fn(|index| self.aborts[index].get()),
            unknown: self.unknown.get(),
            phases: std::array::from_fn(|index| self.phases[index].get()),
            splits: self.splits.get(),
            splits_refused: self.splits_refused.get(),
            node_splits: self.node_splits.get(),
            node_merges: self.node_merges.get(),
            recovery: std::array::from_fn(|index| self.recovery[index].get()),
        }
    }
}
