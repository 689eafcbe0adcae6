//! Processors and coroutines: the state of each coroutine, and the processor time that it costs.
//!
//! Invariant: a thread does one thing at a time. A coroutine is queued, running, waiting or finished.
//! The scheduler polls a coroutine when the event that the coroutine waits for has happened and its
//! thread is free, and at no other time. A coroutine that only yields is polled again after every other
//! coroutine of its thread. If the coroutine continues to yield, the scheduler polls it after pauses.
//! Each pause is twice as long as the previous pause, up to one round trip. So a coroutine that waits
//! by polling does not use up virtual time by spinning.

use crate::costs::{Costs, SPEED};
use crate::doorbells::{Doorbell, DoorbellCosts, Registers, Ringer};
use crate::nic::Nic;
use crate::service::NodeKind;
use crate::world::World;
use std::collections::VecDeque;
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
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
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// The doorbell of the connection's queue pair.
    pub(crate) doorbell: Doorbell,
    /// The number of batches posted so far.
    pub(crate) posted: u64,
    /// The number of batches that arrived so far (in random mode: that ended so far). Assertions check
    /// that this number follows `posted`. The assertions also check that both numbers are equal when no
    /// batch is in flight.
    pub(crate) arrived: u64,
    pub(crate) last_arrival_ps: u64,
    /// Most runs do not use these parts, so they lie apart from those that each batch uses.
    pub(crate) rare: Box<RareConnection>,
}

/// The parts of a connection that only limited credits and random mode use.
#[derive(Clone, Default, Debug)]
pub(crate) struct RareConnection {
    /// Only with limited credits: the number of work requests that have not completed.
    pub(crate) outstanding: u64,
    /// Only with limited credits: the batches (flight, batch) that wait for credits, and how long the
    /// processor takes to post them.
    pub(crate) waiting: VecDeque<(u32, u32, u64)>,
    /// Only in random mode: the unawaited batches that are not done.
    pub(crate) unawaited: Vec<Unawaited>,
    /// Only in random mode: the batches (flight, batch) that arrived and wait for an unawaited batch.
    pub(crate) held: Vec<(u32, u32)>,
}

impl Connection {
    fn new() -> Connection {
        let rare = Box::default();
        let doorbell = Doorbell::NONE;
        Connection { doorbell, posted: 0, arrived: 0, last_arrival_ps: 0, rare }
    }
}

impl RareConnection {
    /// Takes the credits for a batch (flight, batch), if its connection has enough of all `credits`. Otherwise
    /// keeps the batch until enough of them are free, and returns true. A batch with more requests than
    /// there are credits waits until all of them are free. The processor has posted the batch for
    /// `posting_ps`. It takes the same time once more before the batch leaves, but it does other work
    /// meanwhile.
    #[cold]
    pub(crate) fn waits_for_credits(
        &mut self,
        (flight, batch): (u32, u32),
        (requests, credits): (u64, u64),
        posting_ps: u64,
    ) -> bool {
        if self.waiting.is_empty() && self.takes(requests, credits) {
            return false;
        }
        self.waiting.push_back((flight, batch, posting_ps));
        true
    }

    /// Takes the credits for so many work requests, if enough of all `credits` are free.
    pub(crate) fn takes(&mut self, requests: u64, credits: u64) -> bool {
        let is_free = self.outstanding == 0 || self.outstanding + requests <= credits;
        if is_free {
            self.outstanding += requests;
        }
        is_free
    }
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
    /// Whether the thread has begun to work.
    works: bool,
    /// The extra time until the thread sees a completion because its core is far from the NIC.
    pub(crate) far_completion_ps: u64,
    /// The extra time of a ring of the thread for the same reason.
    far_doorbell_ps: u64,
    /// The thread's own doorbell, if each thread has one.
    own_doorbell: Doorbell,
    /// The doorbell of the thread's queue pair for messages.
    pub(crate) mail_doorbell: Doorbell,
    /// The connections to the memory nodes, and one more for targets on nodes that do not exist.
    pub(crate) connections: Vec<Connection>,
    /// Whether the thread has queue pairs to all memory nodes, except to spare ones.
    pub(crate) is_connected: bool,
    /// The messages that arrived at the thread and were not received yet.
    pub(crate) inbox: VecDeque<u32>,
    /// How long all work of the thread takes, in units of 1 / [`SPEED`] of the time that the work takes
    /// alone on a core of a node that is not slow.
    pub(crate) slowness: u64,
}

impl Thread {
    pub(crate) fn new(node: NodeId, number: u16, connections: usize, slowness: u64) -> Thread {
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
            works: false,
            far_completion_ps: 0,
            far_doorbell_ps: 0,
            own_doorbell: Doorbell::NONE,
            mail_doorbell: Doorbell::NONE,
            connections: vec![Connection::new(); connections],
            is_connected: false,
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

    /// Rings a doorbell.
    #[inline(always)]
    pub(crate) fn ring(
        &mut self,
        doorbell: Doorbell,
        registers: &mut Registers,
        costs: &DoorbellCosts,
        now_ps: u64,
    ) {
        let by = Ringer {
            doorbell,
            slowness: self.slowness,
            far_ps: self.far_doorbell_ps,
            local_ps: self.local_ps,
        };
        self.local_ps = registers.ring(by, costs, now_ps);
    }

    /// Rings a doorbell so many times.
    #[inline(never)]
    pub(crate) fn ring_often(
        &mut self,
        (doorbell, times): (Doorbell, u8),
        registers: &mut Registers,
        costs: &DoorbellCosts,
        now_ps: u64,
    ) {
        for _ in 0..times {
            self.ring(doorbell, registers, costs, now_ps);
        }
    }

    /// Returns the number of the connection to a memory node.
    #[inline]
    pub(crate) fn connection_to(&self, node: NodeSlot) -> usize {
        usize::from(node.0).min(self.connections.len() - 1)
    }

    /// Creates the queue pair of a connection to a spare memory node, or to nodes that do not exist. Returns
    /// the queue pair's doorbell. `number` is the number of this thread.
    #[cold]
    pub(crate) fn connect_spare(
        &mut self,
        number: u32,
        connection: usize,
        registers: &mut Registers,
    ) -> Doorbell {
        let doorbell = registers.give(number, &mut self.own_doorbell);
        self.connections[connection].doorbell = doorbell;
        doorbell
    }

    /// Lets the processor work for `ps` picoseconds.
    #[inline]
    pub(crate) fn spend(&mut self, ps: u64) {
        self.local_ps += ps * self.slowness / SPEED;
    }
}

/// A node with processors. The node has a NIC, and doorbell registers that its threads share.
#[derive(Debug)]
pub(crate) struct ComputeNode {
    pub(crate) kind: NodeKind,
    pub(crate) nic: Nic,
    pub(crate) registers: Registers,
    slowness: u64,
    incarnation: Incarnation,
    /// The threads of the node's current incarnation that have begun to work, in this order.
    working: Vec<u32>,
}

impl ComputeNode {
    pub(crate) fn new(kind: NodeKind, costs: &Costs, slowness: u64) -> ComputeNode {
        ComputeNode {
            kind,
            nic: Nic::new(costs.unit, costs.atomic_slots),
            registers: Registers::new(costs),
            slowness: slowness * SPEED,
            incarnation: Incarnation(0),
            working: Vec::new(),
        }
    }

    /// Adds a thread to an incarnation of the node, and returns the thread's slowness. A new
    /// incarnation begins without threads and without queue pairs.
    pub(crate) fn join(&mut self, incarnation: Incarnation) -> u64 {
        if incarnation != self.incarnation {
            self.incarnation = incarnation;
            self.working.clear();
            self.registers.clear();
        }
        self.slowness
    }

    /// Notes that a thread begins to work. Returns the number of its core, and the earlier thread that
    /// shares this core with it from now on.
    fn begin(&mut self, thread: u32, cores: usize) -> (usize, Option<u32>) {
        let number = self.working.len();
        self.working.push(thread);
        let earlier = number.checked_sub(cores).map(|earlier| self.working[earlier]);
        (number % cores, earlier)
    }

    /// Adds the parts' busy time before `end_ps` to their count. The rest waits for the next count.
    pub(crate) fn count_to(&mut self, end_ps: u64) {
        self.nic.count_to(end_ps);
        self.registers.count_to(end_ps);
    }
}

impl World {
    /// Creates a thread's queue pairs to all memory nodes, when the thread first sends to one of them. (The
    /// queue pair to a spare memory node comes into being when the thread first sends to that node.) So
    /// ports that only load or inspect memory have no queue pairs.
    #[cold]
    pub(crate) fn connect(&mut self, index: u32) {
        self.begin_work(index);
        let thread = &mut self.threads[index as usize];
        let registers = &mut self.compute_nodes[usize::from(thread.node.slot.0)].registers;
        for connection in &mut thread.connections[..usize::from(self.placement.nodes)] {
            connection.doorbell = registers.give(index, &mut thread.own_doorbell);
        }
        thread.is_connected = true;
    }

    /// Creates a thread's queue pair for messages.
    #[cold]
    pub(crate) fn connect_mail(&mut self, index: u32) {
        self.begin_work(index);
        let thread = &mut self.threads[index as usize];
        let registers = &mut self.compute_nodes[usize::from(thread.node.slot.0)].registers;
        thread.mail_doorbell = registers.give(index, &mut thread.own_doorbell);
    }

    /// Counts a thread among those that work. The threads of a compute node fill the socket of the NIC,
    /// then the other sockets, then share cores in the same order. If two threads share a core from now
    /// on, both of them become slower. A core of a service node runs one thread near its NIC.
    fn begin_work(&mut self, index: u32) {
        let thread = &mut self.threads[index as usize];
        if std::mem::replace(&mut thread.works, true) {
            return;
        }
        let compute = &mut self.compute_nodes[usize::from(thread.node.slot.0)];
        if compute.kind != NodeKind::Compute {
            return;
        }
        let (core, earlier) = compute.begin(index, self.costs.cores);
        if core >= self.costs.near_cores {
            thread.far_completion_ps = self.costs.far_completion;
            thread.far_doorbell_ps = self.costs.far_doorbell;
        }
        let Some(earlier) = earlier else { return };
        for sharing in [index, earlier] {
            let slowness = compute.slowness * self.costs.hyperthread / SPEED;
            self.threads[sharing as usize].slowness = slowness;
        }
    }
}
