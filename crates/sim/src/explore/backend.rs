//! The access of one thread to the explored cluster.
//!
//! Invariant: while a coroutine is polled, its rounds are in flight until the scheduler lands them.
//! Outside of a poll (while a model loads, builds or judges) the explorer executes rounds
//! immediately. The time that a coroutine sees is a function of its own past: `now` counts the
//! coroutine's calls, and a sleep ends immediately.

use super::flight::Interest;
use super::hash::{chain, mix, of_bytes};
use super::machine::Machine;
use super::messages::Message;
use super::time::Asked;
use super::trace::What;
use super::world::World;
use std::rc::Rc;
use std::task::Poll;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::backend::{Backend, Caps, Cost, Detached, Endpoint, LocalPart, Posted};
use tarn_fabric::clock::{ClockInterval, Nanos};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;
use tarn_fabric::window::{Closed, Drift, Wait, Window};

/// The size of the largest datagram, in bytes.
const DATAGRAM_BYTES_MAX: usize = 4096;

/// The ticket of a request that was executed immediately.
const DONE: u64 = u64::MAX;

/// One thread's access to the explored cluster.
pub(crate) struct ExploreBackend {
    world: Rc<World>,
    node: NodeId,
    thread: u16,
    connection: u16,
}

impl ExploreBackend {
    pub(crate) fn new(world: Rc<World>, node: NodeId, thread: u16) -> ExploreBackend {
        let connection = world.machine.borrow_mut().join(node, thread);
        ExploreBackend { world, node, thread, connection }
    }

    fn ask_time(&self, asked: Asked) -> Poll<bool> {
        self.world.machine.borrow_mut().ask_time(asked)
    }
}

/// The result that a coroutine sees when one of its rounds has ended.
fn outcome(error: Option<FabricError>) -> Result<(), FabricError> {
    error.map_or(Ok(()), Err)
}

/// The number by which a coroutine's observations record an error.
fn error_code(error: Option<FabricError>) -> u64 {
    match error {
        None => 0,
        Some(FabricError::NodeDown(node)) => 1 << 32 | u64::from(node.0),
        Some(FabricError::Fenced) => 2 << 32,
        Some(_) => 3 << 32,
    }
}

/// Gives the coroutine the results of a round that is done. Returns the round's error, if it had one.
fn fetch(machine: &mut Machine, index: u32, round: &mut Round) -> Option<FabricError> {
    let flight = machine.flights.get_mut(index);
    std::mem::swap(&mut flight.round, round);
    let (number, landed, error) = (flight.number, flight.landed, flight.error);
    let actor = flight.actor;
    machine.add_landed(actor, landed.wrapping_neg());
    machine.flights.end(index);
    machine.observe(chain(landed, mix(u64::from(number), error_code(error))));
    machine.note(Some(actor), What::Completed { round: number, error });
    error
}

impl Backend for ExploreBackend {
    fn caps(&self) -> Caps {
        Caps { masked_cas: true, datagram_bytes_max: DATAGRAM_BYTES_MAX, ends_when_dropped: false }
    }

    fn node(&self) -> NodeId {
        self.node
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { node: self.node.slot, thread: self.thread }
    }

    fn post(&self, round: &mut Round) -> Posted {
        let machine = &mut *self.world.machine.borrow_mut();
        if machine.is_detached {
            return Posted::Done(Err(FabricError::Fenced));
        }
        if machine.current.is_none() {
            return Posted::Done(machine.execute_at_rest(self.node, round));
        }
        let ticket = machine.post(self.connection, round, Interest::Awaited);
        let index = machine.flights.find(ticket).expect(
            "a round is kept until its result is \
                                                         fetched",
        );
        if machine.flights.get(index).is_done() {
            return Posted::Done(outcome(fetch(machine, index, round)));
        }
        // The caller's own round is now in flight. Until the round is done, the caller holds an idle
        // round in its place.
        round.ticket = ticket;
        machine.flights.get_mut(index).is_waited_for = true;
        machine.polled.waits = true;
        Posted::InFlight
    }

    fn complete(&self, round: &mut Round) -> Poll<Result<(), FabricError>> {
        let machine = &mut *self.world.machine.borrow_mut();
        let index = machine.flights.find(round.ticket).expect("a round is completed once");
        let (sequence, flight) = (machine.sequence, machine.flights.get_mut(index));
        if machine.is_detached {
            flight.give_up(round, sequence);
            machine.flights.end(index);
            return Poll::Ready(Err(FabricError::Fenced));
        }
        if !flight.is_done() {
            flight.is_waited_for = true;
            machine.polled.waits = true;
            return Poll::Pending;
        }
        Poll::Ready(outcome(fetch(machine, index, round)))
    }

    fn abandon(&self, round: &mut Round) {
        let machine = &mut *self.world.machine.borrow_mut();
        let Some(index) = machine.flights.find(round.ticket) else { return };
        let sequence = machine.sequence;
        machine.flights.get_mut(index).give_up(round, sequence);
        // The abandoned round may be the only round for which the coroutine waited in this poll. If
        // no other round is waited for, the poll waits for no event any more.
        machine.polled.waits &= machine.flights.is_anything_waited_for(machine.current);
        if machine.is_detached || machine.flights.get(index).is_done() {
            machine.flights.end(index);
        }
    }

    fn post_detached(&self, round: &mut Round) -> Result<Detached, FabricError> {
        let machine = &mut *self.world.machine.borrow_mut();
        if machine.is_detached {
            return Err(FabricError::Fenced);
        }
        if machine.current.is_none() {
            return machine.execute_at_rest(self.node, round).map(|()| Detached(DONE));
        }
        if round.is_empty() {
            return Ok(Detached(DONE));
        }
        Ok(Detached(machine.post(self.connection, round, Interest::Detached)))
    }

    fn detached(&self, Detached(ticket): Detached) -> Poll<Result<(), FabricError>> {
        let machine = &mut *self.world.machine.borrow_mut();
        if machine.is_detached {
            return Poll::Ready(Err(FabricError::Fenced));
        }
        if ticket != DONE {
            machine.sharing.ask();
        }
        if let Some(index) = machine.flights.find(ticket) {
            let flight = machine.flights.get_mut(index);
            flight.is_waited_for = true;
            let (was_asked, number) = (flight.was_asked, flight.number);
            flight.was_asked = true;
            machine.polled.waits = true;
            if !was_asked {
                machine.observe(mix(u64::from(number), 0xde7));
            }
            return Poll::Pending;
        }
        let error = machine.errors.iter().find(|(of, _)| *of == ticket).map(|(_, error)| *error);
        machine.observe(mix(error_code(error), 0xd0e));
        Poll::Ready(outcome(error))
    }

    fn revoke(&self, whom: NodeId, at: NodeSlot) -> Result<Detached, FabricError> {
        let machine = &mut *self.world.machine.borrow_mut();
        if machine.is_detached {
            return Err(FabricError::Fenced);
        }
        if machine.current.is_none() {
            machine.fenced.push((whom, at));
            return Ok(Detached(DONE));
        }
        Ok(Detached(machine.ask_to_revoke(self.connection, whom, at)))
    }

    fn park_until(&self, until: Nanos) {
        let machine = &mut *self.world.machine.borrow_mut();
        machine.polled.slept = true;
        let clock = match machine.current {
            Some(actor) => &mut machine.actors[usize::from(actor)].clock,
            None => &mut machine.rest_clock,
        };
        *clock = until.0.max(*clock);
    }

    fn now(&self) -> Nanos {
        let machine = &mut *self.world.machine.borrow_mut();
        let clock = match machine.current {
            Some(actor) => &mut machine.actors[usize::from(actor)].clock,
            None => &mut machine.rest_clock,
        };
        *clock += 1;
        Nanos(*clock)
    }

    /// Returns a stamp from one counter for all actors, so the order of stamps is the order of events.
    fn observed(&self) -> Nanos {
        let machine = &mut *self.world.machine.borrow_mut();
        machine.stamps += 1;
        Nanos(machine.stamps)
    }

    /// No node knows anything about the time of other nodes, so the interval has no bounds.
    fn clock(&self) -> ClockInterval {
        ClockInterval { earliest: Nanos(0), latest: Nanos(u64::MAX) }
    }

    /// Clocks do not drift in an exploration. The explorer chooses whether an actor finds a window
    /// shorter than its lease. This choice covers every drift that clocks may have.
    fn drift(&self) -> Drift {
        Drift::ONE_CLOCK
    }

    fn stopwatch(&self) -> Option<Nanos> {
        None
    }

    fn open_window(&self) -> Poll<Window> {
        self.ask_time(Asked::Open).map(|_| Window(0))
    }

    fn close_window(&self, _: Window, lease: Nanos) -> Poll<Closed> {
        let closed = self.ask_time(Asked::Close { lease_ns: lease.0 });
        closed.map(|is_shorter| Closed { is_shorter, passed: None })
    }

    fn begin_wait(&self) -> Poll<Wait> {
        self.ask_time(Asked::Begin).map(|_| Wait(0))
    }

    fn end_wait(&self, _: Wait, length: Nanos) -> Poll<()> {
        self.ask_time(Asked::End { length_ns: length.0 }).map(|_| ())
    }

    fn charge(&self, _: Cost) {}

    fn charges(&self) -> bool {
        false
    }

    fn looked_at(&self, part: LocalPart, told: u64, changed: bool) {
        self.world.machine.borrow_mut().look_at_part(part, told, changed);
    }

    fn send(&self, to: Endpoint, bytes: &[u8]) -> Result<(), FabricError> {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            let (bytes, limit_bytes) = (bytes.len(), DATAGRAM_BYTES_MAX);
            return Err(FabricError::MessageTooLarge { bytes, limit_bytes });
        }
        let machine = &mut *self.world.machine.borrow_mut();
        let Some(actor) = machine.current.filter(|_| !machine.is_detached) else { return Ok(()) };
        machine.sharing.message();
        let state = &mut machine.actors[usize::from(actor)];
        state.messages += 1;
        let (number, from) = (state.messages, self.endpoint());
        let bytes = bytes.to_vec();
        machine.messages.send(Message { actor, number, from, to, bytes, is_doubled: false });
        machine.note(Some(actor), What::MessageSent { message: number, to });
        Ok(())
    }

    fn receive(&self, budget: usize, sink: &mut dyn FnMut(Endpoint, &[u8])) -> usize {
        for count in 0..budget {
            // The sink may send a datagram, and sending borrows the machine. So this function holds
            // no borrow of the machine while the sink runs.
            let taken = {
                let machine = &mut *self.world.machine.borrow_mut();
                let taken = machine.messages.take(self.endpoint());
                if let Some(message) = &taken {
                    machine.observe(chain(message.digest(), of_bytes(b"received")));
                }
                taken
            };
            let Some(message) = taken else { return count };
            sink(message.from, &message.bytes);
        }
        budget
    }
}
