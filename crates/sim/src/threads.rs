//! Processors and coroutines: which run, which wait, and at which cost.
//!
//! Invariant: a thread does one thing at a time. A coroutine is queued, running, waiting or finished.
//! It is polled when the event that it waits for has happened and its thread is free, and at no other
//! time. A coroutine that only yields is polled again after every other coroutine of its thread. If it
//! goes on yielding, it is polled after pauses that double up to a round trip. So a coroutine that
//! waits by polling does not spin through virtual time.

use crate::costs::Costs;
use crate::nic::{Nic, Resource};
use crate::service::NodeKind;
use std::collections::VecDeque;
use tarn_fabric::address::{Incarnation, NodeId};
use tarn_fabric::backend::Endpoint;

/// The state of a coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Queued,
    Running,
    Waiting,
    Finished,
}

/// A coroutine.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) thread: u32,
    pub(crate) status: Status,
    /// The timer that may wake it. Earlier timers have no effect any more.
    pub(crate) wake_at_ps: u64,
    /// Turns in a row in which it only yielded.
    pub(crate) yields: u32,
}

/// One thread's requests to one memory node.
#[derive(Clone, Default, Debug)]
pub(crate) struct Connection {
    /// Batches posted so far.
    pub(crate) posted: u64,
    /// Batches that arrived so far (in random mode: that ended). Asserted to follow `posted`, and to be
    /// equal to it when nothing is in flight.
    pub(crate) arrived: u64,
    pub(crate) last_arrival_ps: u64,
    /// Random mode: unawaited batches that are not done.
    pub(crate) unawaited: Vec<Unawaited>,
    /// Random mode: batches (flight, batch) that arrived and wait for an unawaited one.
    pub(crate) held: Vec<(u32, u32)>,
}

/// A batch that no coroutine awaits: of a detached round, or of one that was dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unawaited {
    /// Its number on its connection.
    pub(crate) number: u64,
    /// Batches with higher numbers wait for it: those that were posted after it became unawaited.
    pub(crate) before: u64,
}

/// A thread of a compute node.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) node: NodeId,
    pub(crate) number: u16,
    /// The time of its processor while one of its coroutines runs, else the time at which it becomes
    /// free.
    pub(crate) local_ps: u64,
    pub(crate) busy_ps: u64,
    /// All of `busy_ps` lies before this time.
    pub(crate) busy_to_ps: u64,
    /// The turn in which it last rang for messages.
    pub(crate) rang_in_turn: u64,
    /// Work that it must do before the next coroutine: looking at completions.
    pub(crate) owed_ps: u64,
    pub(crate) ready: VecDeque<u32>,
    /// Whether an event will make it look at `ready`.
    pub(crate) is_scheduled: bool,
    /// Coroutines that wait by yielding.
    pub(crate) idlers: Vec<u32>,
    pub(crate) doorbell: usize,
    pub(crate) connections: Vec<Connection>,
    /// Messages that arrived and were not received yet.
    pub(crate) inbox: VecDeque<u32>,
    /// All its work takes this many times as long.
    pub(crate) slowness: u64,
}

impl Thread {
    pub(crate) fn new(
        node: NodeId,
        number: u16,
        doorbell: usize,
        connections: usize,
        slowness: u64,
    ) -> Thread {
        Thread {
            node,
            number,
            local_ps: 0,
            busy_ps: 0,
            busy_to_ps: 0,
            rang_in_turn: 0,
            owed_ps: 0,
            ready: VecDeque::new(),
            is_scheduled: false,
            idlers: Vec::new(),
            doorbell,
            connections: vec![Connection::default(); connections],
            inbox: VecDeque::new(),
            slowness,
        }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { node: self.node.slot, thread: self.number }
    }

    /// How long it worked before `now_ps`; the last turn may end after it.
    pub(crate) fn busy_before(&self, now_ps: u64) -> u64 {
        self.busy_ps - self.busy_to_ps.saturating_sub(now_ps)
    }

    /// The processor works for `ps`.
    #[inline]
    pub(crate) fn spend(&mut self, ps: u64) {
        self.local_ps += ps * self.slowness;
    }
}

/// A node with processors: its NIC, and the doorbell registers that its threads share.
#[derive(Debug)]
pub(crate) struct ComputeNode {
    pub(crate) kind: NodeKind,
    pub(crate) nic: Nic,
    pub(crate) slowness: u64,
    incarnation: Incarnation,
    /// For each register: its use, and how many threads of this life share it.
    doorbells: Vec<(Resource, u64)>,
    /// Number of first registers that belong to one thread each.
    private: usize,
    threads: usize,
}

/// The cost of ringing a doorbell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DoorbellCosts {
    pub(crate) alone_ps: u64,
    pub(crate) shared_ps: u64,
    pub(crate) handoff_ps: u64,
}

impl ComputeNode {
    pub(crate) fn new(kind: NodeKind, costs: &Costs, slowness: u64) -> ComputeNode {
        let registers = costs.doorbell_registers as usize;
        ComputeNode {
            kind,
            nic: Nic::new(costs.unit, costs.atomic_slots),
            slowness,
            incarnation: Incarnation(0),
            doorbells: vec![(Resource::default(), 0); registers],
            private: (costs.doorbell_private as usize).min(registers - 1),
            threads: 0,
        }
    }

    /// Gives a register to a thread of the node's current life. A new life begins without threads.
    pub(crate) fn join(&mut self, incarnation: Incarnation) -> usize {
        if incarnation != self.incarnation {
            self.incarnation = incarnation;
            self.threads = 0;
            self.doorbells.iter_mut().for_each(|(_, threads)| *threads = 0);
        }
        let register = match self.threads.checked_sub(self.private) {
            None => self.threads,
            Some(later) => self.private + later % (self.doorbells.len() - self.private),
        };
        self.threads += 1;
        self.doorbells[register].1 += 1;
        register
    }

    /// A thread rings. It is busy until the register was free and has taken the ring. A lock protects
    /// each register, and it costs more the more threads share it (Ren et al., "Scaling up memory
    /// disaggregated applications with SMART", ASPLOS 2024). A turn that rings several times takes the
    /// register from the turn's beginning on, so other threads get the register between its rings.
    #[inline]
    pub(crate) fn ring(&mut self, thread: &mut Thread, costs: DoorbellCosts, now_ps: u64) {
        let (register, threads) = &mut self.doorbells[thread.doorbell];
        let others = threads.saturating_sub(1);
        let shared = if others > 0 { costs.shared_ps + costs.handoff_ps * others } else { 0 };
        let service = (costs.alone_ps + shared) * thread.slowness;
        let rung_ps = register.reserve(now_ps, service);
        thread.local_ps = rung_ps.max(thread.local_ps + service);
    }

    /// How long its busiest register was taken.
    pub(crate) fn doorbell_busy_ps(&self) -> u64 {
        self.doorbells.iter().map(|(register, _)| register.busy_ps()).max().unwrap_or(0)
    }

    /// See [`Resource::count_to`].
    pub(crate) fn count_to(&mut self, end_ps: u64) {
        self.nic.count_to(end_ps);
        self.doorbells.iter_mut().for_each(|(register, _)| register.count_to(end_ps));
    }
}
