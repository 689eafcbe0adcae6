//! Processors and coroutines: the state of each coroutine, and the processor time that it costs.
//!
//! Invariant: a thread does one thing at a time. A coroutine is queued, running, waiting or finished.
//! The scheduler polls a coroutine when the event that the coroutine waits for has happened and its
//! thread is free, and at no other time. A coroutine that only yields is polled again after every other
//! coroutine of its thread. If the coroutine continues to yield, the scheduler polls it after pauses.
//! Each pause is twice as long as the previous pause, up to one round trip. So a coroutine that waits
//! by polling does not use up virtual time by spinning.

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
    /// The time of the timer that may wake the coroutine. Earlier timers of the coroutine have no
    /// effect any more.
    pub(crate) wake_at_ps: u64,
    /// The number of successive turns in which the coroutine only yielded.
    pub(crate) yields: u32,
}

/// The connection over which one thread sends requests to one memory node.
#[derive(Clone, Default, Debug)]
pub(crate) struct Connection {
    /// The number of batches posted so far.
    pub(crate) posted: u64,
    /// The number of batches that arrived so far (in random mode: that ended so far). Assertions check
    /// that this number follows `posted`. The assertions also check that both numbers are equal when no
    /// batch is in flight.
    pub(crate) arrived: u64,
    pub(crate) last_arrival_ps: u64,
    /// Only in random mode: the unawaited batches that are not done.
    pub(crate) unawaited: Vec<Unawaited>,
    /// Only in random mode: the batches (flight, batch) that arrived and wait for an unawaited batch.
    pub(crate) held: Vec<(u32, u32)>,
}

/// A batch that no coroutine awaits. Such a batch belongs to a detached round, or to a round that was
/// dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unawaited {
    /// The number of the unawaited batch on its connection.
    pub(crate) number: u64,
    /// Batches with numbers above `before` wait for the unawaited batch. These batches were posted
    /// after the unawaited batch became unawaited.
    pub(crate) before: u64,
}

/// A thread of a compute node.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) node: NodeId,
    pub(crate) number: u16,
    /// While a coroutine of the thread runs, this field is the time of the thread's processor. While no
    /// coroutine of the thread runs, the field is the time at which the thread becomes free.
    pub(crate) local_ps: u64,
    pub(crate) busy_ps: u64,
    /// The end of the time that `busy_ps` counts. All time in `busy_ps` lies before this time.
    pub(crate) busy_to_ps: u64,
    /// The turn in which the thread last rang the doorbell for messages.
    pub(crate) rang_in_turn: u64,
    /// The arrival of the thread's last datagram at a switch.
    pub(crate) at_switch_ps: u64,
    /// The time that the thread must spend on reading completions before the next coroutine runs.
    pub(crate) owed_ps: u64,
    pub(crate) ready: VecDeque<u32>,
    /// Whether an event is scheduled that will make the thread read its queue `ready`.
    pub(crate) is_scheduled: bool,
    /// The coroutines that wait by yielding.
    pub(crate) idlers: Vec<u32>,
    pub(crate) doorbell: usize,
    pub(crate) connections: Vec<Connection>,
    /// The messages that arrived at the thread and were not received yet.
    pub(crate) inbox: VecDeque<u32>,
    /// The factor by which all work of the thread takes longer than on a node that is not slow.
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
            at_switch_ps: 0,
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

    /// Returns how long the thread worked before `now_ps`. The last turn may end after `now_ps`.
    pub(crate) fn busy_before(&self, now_ps: u64) -> u64 {
        self.busy_ps - self.busy_to_ps.saturating_sub(now_ps)
    }

    /// Lets the processor work for `ps` picoseconds.
    #[inline]
    pub(crate) fn spend(&mut self, ps: u64) {
        self.local_ps += ps * self.slowness;
    }
}

/// A node with processors. The node has a NIC, and doorbell registers that its threads share.
#[derive(Debug)]
pub(crate) struct ComputeNode {
    pub(crate) kind: NodeKind,
    pub(crate) nic: Nic,
    pub(crate) slowness: u64,
    incarnation: Incarnation,
    /// For each register: how long it was used, and the number of threads of the node's current
    /// incarnation that share it.
    doorbells: Vec<(Resource, u64)>,
    /// The number of registers, counted from the first, that belong to one thread each.
    private: usize,
    threads: usize,
}

/// The costs of ringing a doorbell.
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

    /// Assigns a doorbell register to a thread of the node's current incarnation. A new incarnation
    /// begins without threads.
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

    /// Rings the doorbell of a thread. The thread is busy until the register is free and has accepted
    /// the ring. A lock protects each register. The cost of the lock grows with the number of threads
    /// that share the register (Ren et al., "Scaling up memory disaggregated applications with SMART",
    /// ASPLOS 2024). If one turn rings several times, each ring reserves the register from the
    /// beginning of the turn on. So other threads can use the register between these rings.
    #[inline]
    pub(crate) fn ring(&mut self, thread: &mut Thread, costs: DoorbellCosts, now_ps: u64) {
        let (register, threads) = &mut self.doorbells[thread.doorbell];
        let others = threads.saturating_sub(1);
        let shared = if others > 0 { costs.shared_ps + costs.handoff_ps * others } else { 0 };
        let service = (costs.alone_ps + shared) * thread.slowness;
        let rung_ps = register.reserve(now_ps, service);
        thread.local_ps = rung_ps.max(thread.local_ps + service);
    }

    /// Returns how long the node's busiest register was occupied.
    pub(crate) fn doorbell_busy_ps(&self) -> u64 {
        self.doorbells.iter().map(|(register, _)| register.busy_ps()).max().unwrap_or(0)
    }

    /// Counts the busy time of the node's parts before `end_ps`, as [`Resource::count_to`] does.
    pub(crate) fn count_to(&mut self, end_ps: u64) {
        self.nic.count_to(end_ps);
        self.doorbells.iter_mut().for_each(|(register, _)| register.count_to(end_ps));
    }
}
