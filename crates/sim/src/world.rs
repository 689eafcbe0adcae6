//! The cluster's state, and the handling of events.
//!
//! Invariant: every change of the cluster is an event. Events are handled in the order of the queue.
//! The configuration and the seed determine all events.
//!
//! The fault model. The following parts may fail:
//! - memory nodes: a request to a failed memory node ends in an error;
//! - a compute node's access: its verbs that had arrived have taken effect, and its other verbs never
//!   will;
//! - in random mode: every order that the contract does not fix, messages, clocks and the speed of
//!   processors.
//!
//! The following parts never fail: the order within a batch, single lines, the bytes of memory, and the
//! bytes of messages that arrive.

use crate::clocks::Clock;
use crate::config::{ConfigError, Mode, SimConfig, check};
use crate::costs::Costs;
use crate::dice::Dice;
use crate::effects::Placement;
use crate::flight::{Flights, Interest};
use crate::memory::{InitialContents, Memory};
use crate::messages::Messages;
use crate::nic::Nic;
use crate::observe::Eyes;
use crate::post::LINES_BEHIND;
use crate::profile::Clock as ClockBounds;
use crate::queue::EventQueue;
use crate::revoke::Revocation;
use crate::service::NodeKind;
use crate::switch::Switch;
use crate::threads::{ComputeNode, Task, Thread};
use std::collections::{BTreeMap, BTreeSet};
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::backend::Endpoint;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;

/// The kinds of events. An event has 8 bytes, so a processor holds it in one register. A round has at most
/// 2^16 batches: one for each slot of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A batch reaches its memory node.
    Arrive { flight: u32, batch: u16 },
    /// Only in random mode: the next piece of a batch is executed.
    Piece { flight: u32, batch: u16 },
    /// The requester sees the last answer to a round.
    Complete { flight: u32 },
    /// A thread reads its queue of ready coroutines.
    Run { thread: u32 },
    /// A coroutine's timer expires.
    Wake { task: u32 },
    /// A message reaches its node.
    Message { message: u32 },
    /// The receiving thread can see a message.
    Deliver { message: u32 },
    /// A revocation reaches its memory node.
    Revoke { number: u32 },
    /// The requester sees the answer to a revocation.
    Revoked { number: u32 },
}

const _: () = assert!(size_of::<Event>() == 8);

/// A memory node.
#[derive(Debug)]
pub(crate) struct MemoryNode {
    pub(crate) nic: Nic,
    pub(crate) is_down: bool,
}

/// Numbers that are counted during a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Tallies {
    pub(crate) verbs: u64,
    pub(crate) completions: u64,
    pub(crate) messages: u64,
    pub(crate) messages_lost: u64,
    pub(crate) turns: u64,
}

/// Draws the factor by which a node's processors are slower than normal.
fn slowness(dice: Option<&mut Dice>) -> u64 {
    dice.map_or(1, |dice| {
        let slow = dice.one_in(dice.chaos.slow_one_in);
        if slow { u64::from(dice.chaos.slow_factor.max(1)) } else { 1 }
    })
}

/// The state of the cluster.
pub(crate) struct World {
    pub(crate) now_ps: u64,
    pub(crate) queue: EventQueue<Event>,
    pub(crate) costs: Costs,
    pub(crate) placement: Placement,
    pub(crate) groups: Vec<Vec<NodeSlot>>,
    pub(crate) memory: Memory,
    pub(crate) memory_nodes: Vec<MemoryNode>,
    pub(crate) compute_nodes: Vec<ComputeNode>,
    pub(crate) clocks: Vec<Clock>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) endpoints: BTreeMap<Endpoint, u32>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) flights: Flights,
    /// The flights that began most recently. The module `post` prefetches data for these flights.
    pub(crate) begun: [u32; LINES_BEHIND],
    /// Errors of detached rounds, by ticket.
    pub(crate) detached_errors: BTreeMap<u64, FabricError>,
    pub(crate) messages: Messages,
    pub(crate) switches: Vec<Switch>,
    /// The incarnations whose access was revoked, and the memory node at which it was revoked.
    pub(crate) fenced: BTreeSet<(NodeId, NodeSlot)>,
    pub(crate) revocations: Vec<Revocation>,
    /// The dice of random mode. In timed mode this field is `None`.
    pub(crate) dice: Option<Dice>,
    /// The coroutine that is being polled.
    pub(crate) current: Option<u32>,
    /// The coroutines that asked about a detached round before another coroutine asked about the same
    /// round. Each entry has the round's ticket and the coroutine.
    pub(crate) also_waiting: Vec<(u64, u32)>,
    /// Whether an event will wake the current coroutine.
    pub(crate) is_registered: bool,
    pub(crate) tallies: Tallies,
    pub(crate) digest: u64,
    pub(crate) eyes: Eyes,
    clock_bounds: ClockBounds,
    seed: u64,
}

impl World {
    pub(crate) fn new(
        config: &SimConfig,
        initial: Box<dyn InitialContents>,
        spares: usize,
    ) -> Result<World, ConfigError> {
        config.validate()?;
        let costs = Costs::of(&config.profile);
        let (nodes, replicas) = (config.memory_nodes, config.replicas);
        let all_nodes = nodes + spares;
        check("memory_nodes", all_nodes as u64, u64::from(u16::MAX), " (spare nodes included)")?;
        let mut dice = match config.mode {
            Mode::Timed => None,
            Mode::Random(chaos) => {
                Some(Dice::new(chaos, config.seed, all_nodes, config.compute_nodes))
            }
        };
        let compute_node = |_| ComputeNode::new(NodeKind::Compute, &costs, slowness(dice.as_mut()));
        let compute_nodes = (0..config.compute_nodes).map(compute_node).collect();
        let memory_node =
            |_| MemoryNode { nic: Nic::new(costs.unit, costs.atomic_slots), is_down: false };
        let clock = |slot| Clock::of(&config.profile.clock, config.mode, config.seed, slot);
        Ok(World {
            now_ps: 0,
            queue: EventQueue::new(),
            placement: Placement {
                nodes: nodes as u16,
                replicas: replicas as u16,
                spares: spares as u16,
            },
            groups: config.groups(),
            memory: Memory::with_spares(nodes, (replicas, spares), config.group_bytes, initial),
            memory_nodes: (0..all_nodes).map(memory_node).collect(),
            compute_nodes,
            clocks: (0..config.compute_nodes).map(clock).collect(),
            threads: Vec::new(),
            endpoints: BTreeMap::new(),
            tasks: Vec::new(),
            flights: Flights::default(),
            begun: [u32::MAX; LINES_BEHIND],
            detached_errors: BTreeMap::new(),
            messages: Messages::default(),
            switches: Vec::new(),
            fenced: BTreeSet::new(),
            revocations: Vec::new(),
            dice,
            current: None,
            also_waiting: Vec::new(),
            is_registered: false,
            tallies: Tallies::default(),
            digest: config.seed,
            eyes: Eyes::default(),
            clock_bounds: config.profile.clock.clone(),
            seed: config.seed,
            costs,
        })
    }

    /// Adds a node with processors.
    pub(crate) fn add_node(&mut self, kind: NodeKind) -> Result<NodeId, ConfigError> {
        let slot = self.compute_nodes.len();
        check("compute_nodes", slot as u64 + 1, u64::from(u16::MAX), " (service nodes included)")?;
        let node = ComputeNode::new(kind, &self.costs, slowness(self.dice.as_mut()));
        self.compute_nodes.push(node);
        if let Some(dice) = &mut self.dice {
            dice.add_compute_node();
        }
        let mode = self.dice.as_ref().map_or(Mode::Timed, |dice| Mode::Random(dice.chaos));
        self.clocks.push(Clock::of(&self.clock_bounds, mode, self.seed, slot));
        Ok(NodeId { slot: NodeSlot(slot as u16), incarnation: Incarnation(1) })
    }

    /// Adds a thread to its node. An earlier thread with the same endpoint gets no more messages.
    pub(crate) fn join(&mut self, node: NodeId, number: u16) -> u32 {
        let count = self.compute_nodes.len();
        let compute = self.compute_nodes.get_mut(usize::from(node.slot.0));
        let compute = compute.unwrap_or_else(|| {
            panic!(
                "compute node = {node}; allowed: below \
                                                        {count}"
            )
        });
        let slowness = compute.join(node.incarnation);
        // The thread has one connection for each memory node. The thread has one more connection for
        // targets on nodes that do not exist.
        let connections = self.memory_nodes.len() + 1;
        let mut thread = Thread::new(node, number, connections, slowness);
        thread.local_ps = self.now_ps;
        let index = self.threads.len() as u32;
        self.endpoints.insert(thread.endpoint(), index);
        self.threads.push(thread);
        index
    }

    /// Counts the use of the hardware up to `end_ps`. The counts stay unchanged until the next call of
    /// this function.
    pub(crate) fn count_to(&mut self, end_ps: u64) {
        self.memory_nodes.iter_mut().for_each(|node| node.nic.count_to(end_ps));
        self.compute_nodes.iter_mut().for_each(|node| node.count_to(end_ps));
        self.switches.iter_mut().for_each(|switch| switch.pipeline.count_to(end_ps));
    }

    /// Returns the true time for a thread. The thread's processor may be ahead of the last event.
    pub(crate) fn now_of(&self, thread: u32) -> Nanos {
        Nanos(self.threads[thread as usize].local_ps.max(self.now_ps) / 1_000)
    }

    /// Returns the true time for the coroutine that runs. If no coroutine runs, returns the time of the
    /// last event.
    pub(crate) fn now_of_current_ps(&self) -> u64 {
        let thread = self.current.map(|task| self.tasks[task as usize].thread);
        thread.map_or(self.now_ps, |thread| self.threads[thread as usize].local_ps.max(self.now_ps))
    }

    /// Adds an event to the digest of the run.
    #[inline]
    pub(crate) fn note(&mut self, word: u64) {
        self.digest = (self.digest.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Returns the error that a batch gets at its memory node, if the node refuses the batch.
    pub(crate) fn refusal(&self, node: NodeId, to: NodeSlot) -> Option<FabricError> {
        if self.fenced.contains(&(node, to)) {
            return Some(FabricError::Fenced);
        }
        let memory_node = self.memory_nodes.get(usize::from(to.0));
        memory_node.is_none_or(|node| node.is_down).then_some(FabricError::NodeDown(to))
    }

    /// Handles the next event. Returns the coroutine that can continue because of this event, if there
    /// is such a coroutine.
    #[inline]
    pub(crate) fn happen(&mut self, at_ps: u64, event: Event) -> Option<u32> {
        self.now_ps = at_ps;
        match event {
            Event::Arrive { flight, batch } => {
                self.arrive(flight, batch.into());
                None
            }
            Event::Piece { flight, batch } => {
                self.piece(flight, batch.into());
                None
            }
            Event::Complete { flight } => self.complete(flight),
            Event::Run { thread } => {
                self.threads[thread as usize].is_scheduled = false;
                self.next_ready(thread)
            }
            Event::Wake { task } => {
                let due = self.tasks[task as usize].wake_at_ps == at_ps;
                if due { self.wake(task) } else { None }
            }
            Event::Message { message } => {
                self.message_arrives(message);
                None
            }
            Event::Deliver { message } => {
                self.deliver(message);
                None
            }
            Event::Revoke { number } => {
                self.revoke(number);
                None
            }
            Event::Revoked { number } => self.revoked(number),
        }
    }

    fn complete(&mut self, index: u32) -> Option<u32> {
        let flight = self.flights.get(index);
        flight.is_done = true;
        let (batches, verbs) = (u64::from(flight.batches.len()), flight.verbs().len() as u64);
        let (waiter, interest, ticket) = (flight.waiter, flight.interest, flight.ticket(index));
        let (found, number) = (flight.completions(), flight.thread);
        if self.costs.credits != 0 {
            self.give_credits_back(index);
        }
        let thread = &mut self.threads[number as usize];
        thread.owed_ps += found * self.costs.poll_completion;
        let node = usize::from(thread.node.slot.0);
        self.compute_nodes[node].nic.in_flight -= verbs;
        self.tallies.completions += batches;
        self.note(self.now_ps ^ u64::from(index) << 40);
        if self.is_observed() {
            self.show_completed(index);
        }
        if interest != Interest::Awaited {
            if let (Interest::Detached, Some(error)) = (interest, self.flights.get(index).error) {
                self.detached_errors.insert(ticket, error);
            }
            self.flights.end(index);
        }
        if !self.also_waiting.is_empty() {
            self.wake_others(ticket);
        }
        waiter.and_then(|task| self.wake(task))
    }

    /// Wakes the coroutines that asked about a detached round before the last coroutine asked about it.
    #[cold]
    fn wake_others(&mut self, ticket: u64) {
        let is_its = |&(of, _): &(u64, u32)| of == ticket;
        let (its, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.also_waiting).into_iter().partition(is_its);
        self.also_waiting = others;
        its.into_iter().for_each(|(_, task)| self.wake_in_turn(task));
    }
}
