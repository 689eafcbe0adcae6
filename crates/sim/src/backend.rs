//! The access of one thread to the simulated cluster.
//!
//! Invariant: while the [`crate::scheduler::Scheduler`] polls a coroutine, every operation of the
//! coroutine takes virtual time. Outside of such a poll (for example in a loader or an audit) the
//! cluster is at rest. While the cluster is at rest, the simulation executes a round immediately, and
//! the round costs no virtual time.

use crate::flight::Interest;
use crate::revoke;
use crate::world::World;
use std::cell::RefCell;
use std::rc::Rc;
use std::task::Poll;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::backend::{Backend, Caps, Cost, Detached, Endpoint, Posted};
use tarn_fabric::clock::{ClockInterval, Nanos};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;
use tarn_fabric::window::{Closed, Drift, Wait, Window};

/// One thread's access to the simulated cluster.
pub(crate) struct SimBackend {
    world: Rc<RefCell<World>>,
    thread: u32,
    node: NodeId,
    number: u16,
}

/// The ticket of a detached round that was executed immediately, while the cluster was at rest.
const DONE: u64 = u64::MAX;

impl SimBackend {
    pub(crate) fn new(world: Rc<RefCell<World>>, node: NodeId, number: u16) -> SimBackend {
        let thread = world.borrow_mut().join(node, number);
        SimBackend { world, thread, node, number }
    }

    /// Returns how far this node's clock has advanced since 0.
    fn ran(&self) -> Nanos {
        self.ran_in(&self.world.borrow())
    }

    fn ran_in(&self, world: &World) -> Nanos {
        world.clocks[usize::from(self.node.slot.0)].ran(world.now_of(self.thread))
    }
}

impl Backend for SimBackend {
    fn caps(&self) -> Caps {
        let datagram_bytes_max = self.world.borrow().datagram_bytes_max();
        Caps { masked_cas: true, datagram_bytes_max, ends_when_dropped: false }
    }

    fn node(&self) -> NodeId {
        self.node
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { node: self.node.slot, thread: self.number }
    }

    fn post(&self, round: &mut Round) -> Posted {
        let world = &mut *self.world.borrow_mut();
        if world.current.is_none() {
            return Posted::Done(world.execute_at_rest(self.node, round));
        }
        let ticket = world.post(self.thread, round, Interest::Awaited);
        // While the round is in flight, the world owns the caller's round, and the caller holds an idle
        // round in its place.
        round.ticket = ticket;
        world.is_registered = true;
        Posted::InFlight
    }

    fn complete(&self, round: &mut Round) -> Poll<Result<(), FabricError>> {
        let world = &mut *self.world.borrow_mut();
        let index = world.flights.find(round.ticket).expect("a round is completed once");
        let flight = world.flights.get(index);
        if !flight.is_done {
            flight.waiter = world.current;
            world.is_registered = true;
            return Poll::Pending;
        }
        flight.hand_over(round);
        let error = flight.error;
        world.flights.end(index);
        Poll::Ready(error.map_or(Ok(()), Err))
    }

    fn abandon(&self, round: &mut Round) {
        let world = &mut *self.world.borrow_mut();
        let Some(index) = world.flights.find(round.ticket) else { return };
        world.abandon(index, round);
    }

    fn post_detached(&self, round: &mut Round) -> Result<Detached, FabricError> {
        let world = &mut *self.world.borrow_mut();
        if world.current.is_none() {
            return world.execute_at_rest(self.node, round).map(|()| Detached(DONE));
        }
        if round.is_empty() {
            return Ok(Detached(DONE));
        }
        Ok(Detached(world.post(self.thread, round, Interest::Detached)))
    }

    fn detached(&self, Detached(ticket): Detached) -> Poll<Result<(), FabricError>> {
        let world = &mut *self.world.borrow_mut();
        if let Some(number) = revoke::number_of(ticket) {
            return world.ask_revoked(number).map_or(Poll::Pending, Poll::Ready);
        }
        if let Some(index) = world.flights.find(ticket) {
            // When the flight is done, the world wakes the coroutine that asked about this flight. The
            // woken coroutine then asks about the flight again.
            let before = std::mem::replace(&mut world.flights.get(index).waiter, world.current);
            if let Some(task) = before.filter(|_| before != world.current) {
                world.also_waiting.push((ticket, task));
            }
            world.is_registered = true;
            return Poll::Pending;
        }
        Poll::Ready(world.detached_errors.get(&ticket).map_or(Ok(()), |error| Err(*error)))
    }

    fn revoke(&self, whom: NodeId, at: NodeSlot) -> Result<Detached, FabricError> {
        let world = &mut *self.world.borrow_mut();
        if world.current.is_some() {
            return Ok(Detached(world.post_revoke(self.thread, whom, at)));
        }
        if let Some(error) = world.refusal(self.node, at) {
            return Err(error);
        }
        world.fenced.insert((whom, at));
        Ok(Detached(DONE))
    }

    fn park_until(&self, until: Nanos) {
        self.world.borrow_mut().park_until(|clock| clock.shows_at(until));
    }

    fn now(&self) -> Nanos {
        let world = self.world.borrow();
        world.clocks[usize::from(self.node.slot.0)].now(world.now_of(self.thread))
    }

    fn observed(&self) -> Nanos {
        self.world.borrow().now_of(self.thread)
    }

    fn clock(&self) -> ClockInterval {
        let world = self.world.borrow();
        world.clocks[usize::from(self.node.slot.0)].read(world.now_of(self.thread))
    }

    fn drift(&self) -> Drift {
        self.world.borrow().clocks[usize::from(self.node.slot.0)].believed()
    }

    fn stopwatch(&self) -> Option<Nanos> {
        Some(self.ran())
    }

    fn open_window(&self) -> Poll<Window> {
        Poll::Ready(Window(self.ran().0))
    }

    fn close_window(&self, window: Window, lease: Nanos) -> Poll<Closed> {
        let passed = self.ran() - Nanos(window.0);
        let is_shorter = self.drift().is_shorter(passed, lease);
        Poll::Ready(Closed { is_shorter, passed: Some(passed) })
    }

    fn begin_wait(&self) -> Poll<Wait> {
        Poll::Ready(Wait(self.ran().0))
    }

    fn end_wait(&self, wait: Wait, length: Nanos) -> Poll<()> {
        let end = self.drift().end_of(Nanos(wait.0), length);
        let world = &mut *self.world.borrow_mut();
        // While the cluster is at rest, no time passes, so a wait ends immediately.
        if world.current.is_none() || self.ran_in(world) >= end {
            return Poll::Ready(());
        }
        world.park_until(|clock| clock.ran_at(end));
        Poll::Pending
    }

    fn charge(&self, cost: Cost) {
        let world = &mut *self.world.borrow_mut();
        if world.current.is_none() {
            return;
        }
        let ps = match cost {
            Cost::WorkNanos(ns) => ns * 1_000,
            Cost::Handler => world.costs.handler,
            Cost::Transaction { records, written } => {
                world.costs.transaction(records.into(), written.into())
            }
            Cost::Together { records } => world.costs.together(records.into()),
            Cost::LocalLookup => world.costs.local_lookup,
            Cost::LocalAtomic => world.costs.local_atomic,
        };
        world.threads[self.thread as usize].spend(ps);
    }

    fn send(&self, to: Endpoint, bytes: &[u8]) -> Result<(), FabricError> {
        self.world.borrow_mut().send(self.thread, to, bytes)
    }

    fn receive(&self, budget: usize, sink: &mut dyn FnMut(Endpoint, &[u8])) -> usize {
        self.world.borrow_mut().look_at_inbox(self.thread);
        for count in 0..budget {
            // The sink may send a datagram, and sending borrows the world. So this function holds no
            // borrow of the world while the sink runs.
            let taken = self.world.borrow_mut().take_message(self.thread);
            let Some((from, bytes, index)) = taken else { return count };
            sink(from, &bytes);
            self.world.borrow_mut().give_back_message(index, bytes);
        }
        budget
    }
}
