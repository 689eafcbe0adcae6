//! The backend through which a thread of a test uses the weak fabric.
//!
//! Invariant: a round is complete when each of its verbs has been executed or will never be executed.

use super::{Ticket, WeakFabric};
use rand::RngExt as _;
use std::task::Poll;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::backend::{Backend, Caps, Cost, Detached, Endpoint, Posted};
use tarn_fabric::clock::{ClockInterval, Nanos};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{Round, VerbKind};
use tarn_fabric::window::Drift;

pub(super) struct WeakBackend {
    pub(super) fabric: WeakFabric,
    pub(super) node: NodeId,
    pub(super) thread: u16,
}

impl Backend for WeakBackend {
    fn caps(&self) -> Caps {
        Caps { masked_cas: false, datagram_bytes_max: 1500, ends_when_dropped: false }
    }

    fn node(&self) -> NodeId {
        self.node
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { node: self.node.slot, thread: self.thread }
    }

    fn post(&self, round: &mut Round) -> Posted {
        round.ticket = self.fabric.world.borrow_mut().post(self.node, self.thread, round);
        Posted::InFlight
    }

    fn complete(&self, round: &mut Round) -> Poll<Result<(), FabricError>> {
        let world = &mut *self.fabric.world.borrow_mut();
        if world.tickets[&round.ticket].left > 0 {
            return Poll::Pending;
        }
        let ticket = world.tickets.remove(&round.ticket).expect("posted");
        for (index, value, bytes) in ticket.results {
            let verb = round.verbs()[index];
            match verb.kind() {
                VerbKind::Read => {
                    let at = verb.buffer();
                    round.bytes_mut(at, bytes.len()).copy_from_slice(&bytes);
                }
                VerbKind::Write => {}
                _ => round.parts_mut().0[index].value = value,
            }
        }
        Poll::Ready(ticket.error.map_or(Ok(()), Err))
    }

    fn abandon(&self, round: &mut Round) {
        self.fabric.world.borrow_mut().abandon(self.node, round.ticket);
    }

    fn post_detached(&self, round: &mut Round) -> Result<Detached, FabricError> {
        Ok(Detached(self.fabric.world.borrow_mut().post(self.node, self.thread, round)))
    }

    fn detached(&self, Detached(ticket): Detached) -> Poll<Result<(), FabricError>> {
        match self.fabric.world.borrow().tickets.get(&ticket) {
            Some(ticket) if ticket.left > 0 => Poll::Pending,
            Some(ticket) => Poll::Ready(ticket.error.map_or(Ok(()), Err)),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Sends a revocation. The revocation arrives later, as batches do. If a verb is being executed at that time, the
    /// revocation cuts the verb between two of its parts.
    fn revoke(&self, whom: NodeId, at: NodeSlot) -> Result<Detached, FabricError> {
        let world = &mut *self.fabric.world.borrow_mut();
        if world.fenced.contains(&(self.node, at)) {
            return Err(FabricError::Fenced);
        }
        if world.down.contains(&at) {
            return Err(FabricError::NodeDown(at));
        }
        world.posted += 1;
        let (ticket, delay) = (world.posted, world.rng.random_range(1..60));
        world.revocations.push((world.now + delay, whom, at, ticket));
        world.tickets.insert(ticket, Ticket { left: 1, ..Ticket::default() });
        Ok(Detached(ticket))
    }

    fn now(&self) -> Nanos {
        Nanos(self.fabric.world.borrow().now)
    }

    fn clock(&self) -> ClockInterval {
        let world = &*self.fabric.world.borrow();
        let (before, behind) = world.clock_bounds.get(&self.node.slot).copied().unwrap_or((0, 0));
        ClockInterval {
            earliest: Nanos(world.now.saturating_sub(before)),
            latest: Nanos(world.now + behind),
        }
    }

    fn drift(&self) -> Drift {
        Drift::ONE_CLOCK
    }

    fn charge(&self, _: Cost) {}

    fn send(&self, _: Endpoint, _: &[u8]) -> Result<(), FabricError> {
        unreachable!("no messages here")
    }

    fn receive(&self, _: usize, _: &mut dyn FnMut(Endpoint, &[u8])) -> usize {
        0
    }
}
