//! Counts of the work of a thread's coordinators.
//!
//! Invariant: one thread uses them, in plain cells without atomics. The owning thread takes snapshots.

use std::cell::Cell;
use tarn_store::ids::AbortReason;

/// The greatest number of phases that a protocol names.
pub const PHASES_MAX: usize = 24;

/// The events of recovery, one for each of its branches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryEvent {
    /// A life was recovered.
    Recovered,
    /// A recovery was taken over from a node that died.
    TookOver,
    /// A transaction was found with some of its locks released: it had committed.
    FoundReleased,
    /// A transaction was found with all data in place and all locks held: it was committed.
    Finished,
    /// A transaction was undone.
    Undone,
    /// A transaction that a recovered life's lock refused took that lock away.
    StrayMet,
    /// The sweep took away a lock of a recovered life.
    StraySwept,
    /// A coordinator waited until its number's last log was settled.
    AreaAwaited,
    /// A coordinator could not begin a transaction, because its node is barred.
    Barred,
    /// A transaction whose LOCK words died with a memory node was found to have successors: it was committed.
    FoundFollowed,
    /// A configuration without a dead memory node was opened.
    Promoted,
    /// Copies on spares were completed and now count.
    Rereplicated,
}

impl RecoveryEvent {
    /// Every event, in order.
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

    /// The name in reports.
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

/// A snapshot of the counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Transactions acknowledged.
    pub committed: u64,
    /// Tries aborted, by [`AbortReason`] in order.
    pub aborts: [u64; AbortReason::ALL.len()],
    /// Transactions whose outcome was unknown.
    pub unknown: u64,
    /// How often each phase of the protocol was entered.
    pub phases: [u64; PHASES_MAX],
    /// Buckets split.
    pub splits: u64,
    /// Splits that were given up, because another transaction held a lock or there was no room.
    pub splits_refused: u64,
    /// Nodes of ordered indexes that were split.
    pub node_splits: u64,
    /// Nodes of ordered indexes that were merged into another.
    pub node_merges: u64,
    /// How often each [`RecoveryEvent`] happened, in order.
    pub recovery: [u64; RecoveryEvent::ALL.len()],
}

impl Tally {
    /// All aborted tries.
    pub fn aborted(&self) -> u64 {
        self.aborts.iter().sum()
    }

    /// The counts since an earlier snapshot.
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

/// A thread's counters.
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
    /// A transaction was acknowledged.
    #[inline]
    pub fn committed(&self) {
        bump(&self.committed);
    }

    /// A try was aborted.
    #[inline]
    pub fn aborted(&self, reason: AbortReason) {
        bump(&self.aborts[reason as usize]);
    }

    /// An outcome is unknown.
    pub fn unknown(&self) {
        bump(&self.unknown);
    }

    /// A phase was entered; `phase` numbers the protocol's phases.
    #[inline]
    pub fn phase(&self, phase: usize) {
        bump(&self.phases[phase]);
        self.last_phase.set(phase);
    }

    /// The phase that was entered last, on this thread.
    pub fn last_phase(&self) -> usize {
        self.last_phase.get()
    }

    /// How many phases were entered.
    pub fn phases_entered(&self) -> u64 {
        self.phases.iter().map(Cell::get).sum()
    }

    /// How many tries have ended, whatever their outcome.
    pub fn tries_ended(&self) -> u64 {
        let aborted: u64 = self.aborts.iter().map(Cell::get).sum();
        self.committed.get() + self.unknown.get() + aborted
    }

    /// Buckets were split.
    pub fn split(&self, buckets: u64) {
        self.splits.set(self.splits.get() + buckets);
    }

    /// A split was given up.
    pub fn split_refused(&self) {
        bump(&self.splits_refused);
    }

    /// A node of an ordered index was split.
    pub fn node_split(&self) {
        bump(&self.node_splits);
    }

    /// A node of an ordered index was merged into another.
    pub fn node_merge(&self) {
        bump(&self.node_merges);
    }

    /// An event of recovery happened.
    pub fn recovery(&self, event: RecoveryEvent) {
        bump(&self.recovery[event as usize]);
    }

    /// The counts so far.
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
