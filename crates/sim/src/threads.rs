//! Processors and coroutines: who runs, who waits, and what it costs.
//!
//! Invariant: a thread does one thing at a time. A coroutine is queued, running, waiting or finished;
//! it is polled when what it waits for has happened and its thread is free, and at no other time. One
//! that only yields is polled again after every other one of its thread, and if that goes on, after
//! pauses that double up to a round trip: waiting by polling does not spin through virtual time.

use crate::costs::Costs;
use crate::nic::{Nic, Resource};
use crate::service::NodeKind;
use std::collections::VecDeque;
use tarn_fabric::address::{Incarnation, NodeId};
use tarn_fabric::backend::Endpoint;

/// What a coroutine is about.
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
    /// The timer that may wake it; an earlier one has no effect any more.
    pub(crate) wake_at_ps: u64,
    /// Turns in a row in which it did nothing but yield.
    pub(crate) yields: u32,
}

/// One thread's requests to one memory node.
#[derive(Clone, Default, Debug)]
pub(crate) struct Connection {
    /// Batches posted so far.
    pub(crate) posted: u64,
    /// Batches that arrived so far (in random mode: that ended); asserted to follow `posted`, and to
    /// have reached it when nothing is on its way.
    pub(crate) arrived: u64,
    pub(crate) last_arrival_ps: u64,
    /// Random mode: batches that nobody awaits and that are not done.
    pub(crate) unawaited: Vec<Unawaited>,
    /// Random mode: batches (flight, batch) that arrived and wait.
    pub(crate) held: Vec<(u32, u32)>,
}

/// A batch that nobody awaits: of a detached round, or of one that was dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unawaited {
    /// Its number on its connection.
    pub(crate) number: u64,
    /// Batches with higher numbers wait for it: those that were posted when nobody awaited it any more.
    pub(crate) before: u64,
}

/// A thread of a compute node.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) node: NodeId,
    pub(crate) number: u16,
    /// Its processor's time while one of its coroutines runs, else when it is free.
    pub(crate) local_ps: u64,
    pub(crate) busy_ps: u64,
    /// All of `busy_ps` lies before this.
    pub(crate) busy_to_ps: u64,
    /// The turn in which it last rang for messages.
    pub(crate) rang_in_turn: u64,
    /// What it must do before the next coroutine: looking at completions.
    pub(crate) owed_ps: u64,
    pub(crate) ready: VecDeque<u32>,
    /// Whether an event will make it look at `ready`.
    pub(crate) is_scheduled: bool,
    /// Coroutines that wait by yielding.
    pub(crate) idlers: Vec<u32>,
    pub(crate) doorbell: usize,
    pub(crate) connections: Vec<Connection>,
    /// Messages that arrived.
    pub(crate) inbox: VecDeque<u32>,
    /// All that it does takes so many times as long.
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

    /// For how long it worked before `now_ps`; the last turn may end after it.
    pub(crate) fn busy_before(&self, now_ps: u64) -> u64 {
        self.busy_ps - self.busy_to_ps.saturating_sub(now_ps)
    }

    /// The processor works.
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
    /// For each register: its use, and the threads of this life that share it.
    doorbells: Vec<(Resource, u64)>,
    /// The first registers, one for each of the first threads.
    private: usize,
    threads: usize,
}

/// What ringing a doorbell costs.
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

    /// A thread of the node's current life gets a register. A new life begins without threads.
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

    /// A thread rings; it is busy until the register was free and has taken the ring. Registers are
    /// under a lock that costs the more the more threads want it (Ren et al., "Scaling up memory
    /// disaggregated applications with SMART", ASPLOS 2024). A turn that rings several times takes the
    /// register from its beginning on: between its rings others have theirs.
    #[inline]
    pub(crate) fn ring(&mut self, thread: &mut Thread, costs: DoorbellCosts, now_ps: u64) {
        let (register, threads) = &mut self.doorbells[thread.doorbell];
        let others = threads.saturating_sub(1);
        let shared = if others > 0 { costs.shared_ps + costs.handoff_ps * others } else { 0 };
        let service = (costs.alone_ps + shared) * thread.slowness;
        let rung_ps = register.reserve(now_ps, service);
        thread.local_ps = rung_ps.max(thread.local_ps + service);
    }

    /// For how long its busiest register was taken.
    pub(crate) fn doorbell_busy_ps(&self) -> u64 {
        self.doorbells.iter().map(|(register, _)| register.busy_ps()).max().unwrap_or(0)
    }

    /// See [`Resource::count_to`].
    pub(crate) fn count_to(&mut self, end_ps: u64) {
        self.nic.count_to(end_ps);
        self.doorbells.iter_mut().for_each(|(register, _)| register.count_to(end_ps));
    }
}
