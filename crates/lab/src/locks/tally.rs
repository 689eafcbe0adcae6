//! Counts of a run: grants of the clients, and messages of the services.
//!
//! Invariant: the clients' counts contain only requests that end while counting is on. The services' counts only grow;
//! a measurement takes the difference of two readings.

use super::HOSTS;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use tarn_fabric::clock::Nanos;
use tarn_locks::value::LockId;
use tarn_store::ids::UsageError;

/// Copies of one lock that may wait at its agent: half of the numbers that the decider's count has (16 bits on the
/// switch). With more, a copy's number no longer tells its place.
const COPIES_MAX: u32 = 1 << 15;

/// Messages of the services, and places of their decisions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sent {
    /// Datagrams that are no acknowledgements, those of the switch included.
    pub messages: u64,
    /// Acknowledgements of notices and of releases.
    pub acknowledgements: u64,
    /// Questions and notices that were sent again.
    pub resends: u64,
    /// Acquires that left no message: granted by an agent or a share of the locks on the same machine.
    pub local: u64,
    /// Acquires that the switch answered.
    pub by_switch: u64,
    /// Frees and transfers that the decider refused.
    pub refused: u64,
}

impl Sent {
    /// Returns the counts since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Sent) -> Sent {
        Sent {
            messages: self.messages - earlier.messages,
            acknowledgements: self.acknowledgements - earlier.acknowledgements,
            resends: self.resends - earlier.resends,
            local: self.local - earlier.local,
            by_switch: self.by_switch - earlier.by_switch,
            refused: self.refused - earlier.refused,
        }
    }
}

/// The counts of one run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Whether clients count.
    pub is_on: Cell<bool>,
    pub sent: Cell<Sent>,
    /// Acquires that each share of the locks, or each core of the lock server, served.
    pub served: RefCell<[u64; HOSTS as usize]>,
    /// Acquires that were granted before counting began.
    pub acquires_before: Cell<u64>,
    pub acquires: Cell<u64>,
    pub transactions: Cell<u64>,
    pub timed_out: Cell<u64>,
    /// The time from each request to its grant.
    pub granted_ns: RefCell<Vec<u32>>,
    /// The time of each transaction, by its kind.
    pub took_ns: RefCell<Vec<Vec<u32>>>,
    /// Acquires in each bucket of time since counting began.
    pub timeline: RefCell<Vec<u64>>,
    pub bucket_ns: Cell<u64>,
    pub began: Cell<Nanos>,
    /// Copies of acquires on their way to an agent, or in the queue of its core, by their locks.
    copies: RefCell<BTreeMap<LockId, u32>>,
    /// The first reason for which the run has no result.
    pub stopped: RefCell<Option<UsageError>>,
}

impl Tally {
    /// The run has no result. Only the first reason is kept.
    pub(crate) fn stop(&self, field: &str, value: impl ToString, allowed: impl Into<String>) {
        self.stopped.borrow_mut().get_or_insert_with(|| UsageError {
            field: field.to_owned(),
            value: value.to_string(),
            allowed: allowed.into(),
        });
    }

    /// A copy of an acquire leaves for an agent on another machine.
    pub(crate) fn copy_leaves(&self, lock: LockId) {
        let copies = &mut *self.copies.borrow_mut();
        let waiting = copies.entry(lock).or_default();
        *waiting += 1;
        if *waiting >= COPIES_MAX {
            let field = format!("copies of requests for lock {} that wait at its agent", lock.0);
            self.stop(&field, *waiting, format!("less than {COPIES_MAX}: counts of 16 bits"));
        }
    }

    /// An agent takes a copy in.
    pub(crate) fn copy_arrives(&self, lock: LockId) {
        let copies = &mut *self.copies.borrow_mut();
        let Some(waiting) = copies.get_mut(&lock) else { return };
        *waiting -= 1;
        if *waiting == 0 {
            copies.remove(&lock);
        }
    }

    /// Returns the number of copies that wait.
    pub(crate) fn copies_waiting(&self) -> u64 {
        self.copies.borrow().values().map(|it| u64::from(*it)).sum()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Sent)) {
        let mut sent = self.sent.get();
        change(&mut sent);
        self.sent.set(sent);
    }

    /// A request is granted.
    pub(crate) fn granted(&self, now: Nanos, took: Nanos) {
        if !self.is_on.get() {
            self.acquires_before.set(self.acquires_before.get() + 1);
            return;
        }
        self.acquires.set(self.acquires.get() + 1);
        self.granted_ns.borrow_mut().push(took.0.min(u64::from(u32::MAX)) as u32);
        if let Some(bucket) = (now - self.began.get()).0.checked_div(self.bucket_ns.get()) {
            let timeline = &mut *self.timeline.borrow_mut();
            if timeline.len() <= bucket as usize {
                timeline.resize(bucket as usize + 1, 0);
            }
            timeline[bucket as usize] += 1;
        }
    }

    /// A transaction ends, with all its locks or timed out.
    pub(crate) fn ended(&self, kind: u8, took: Nanos, has_timed_out: bool) {
        if !self.is_on.get() {
            return;
        }
        if has_timed_out {
            self.timed_out.set(self.timed_out.get() + 1);
            return;
        }
        self.transactions.set(self.transactions.get() + 1);
        let kinds = &mut *self.took_ns.borrow_mut();
        if kinds.len() <= usize::from(kind) {
            kinds.resize(usize::from(kind) + 1, Vec::new());
        }
        kinds[usize::from(kind)].push(took.0.min(u64::from(u32::MAX)) as u32);
    }
}
