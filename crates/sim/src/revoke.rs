//! Revocation: a control request that takes away a compute node's access at one memory node.
//!
//! Invariant: the request travels to the memory node's control service like a message that is never
//! lost, and its answer travels back. Once the request has arrived, no verb of the named incarnation
//! takes effect at that memory node. The memory node refuses later batches of this incarnation. A batch
//! that is being executed piece by piece (random mode) stops. So after the requester has seen the
//! answer, no verb of that incarnation lands at the memory node any more. The revocation request costs
//! as much as a message. The time that an adapter needs to close its connections is in no profile, so
//! it is not charged.

use crate::world::{Event, World};
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::error::FabricError;

/// The lower half of a ticket that names a revocation. No flight has this number as its place.
const TICKETS: u64 = 0xffff_fffe;

/// One request to revoke an access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Revocation {
    thread: u32,
    whom: NodeId,
    at: NodeSlot,
    waiter: Option<u32>,
    answer: Result<(), FabricError>,
    is_seen: bool,
}

/// Returns the number of the revocation that a ticket names, if the ticket names a revocation.
pub(crate) fn number_of(ticket: u64) -> Option<u32> {
    (ticket & u64::from(u32::MAX) == TICKETS).then_some((ticket >> 32) as u32)
}

impl World {
    /// Sends a thread's revocation request. Returns the ticket of the request.
    pub(crate) fn post_revoke(&mut self, thread: u32, whom: NodeId, at: NodeSlot) -> u64 {
        let number = self.revocations.len() as u32;
        let node = usize::from(self.threads[thread as usize].node.slot.0);
        let delay_ps = match &mut self.dice {
            Some(dice) => dice.way_ps(self.now_ps, thread, node),
            None => 0,
        };
        let asking = &mut self.threads[thread as usize];
        asking.spend(self.costs.send_message);
        let processor_ps = asking.local_ps.saturating_sub(self.now_ps);
        let there_ps = self.now_ps + processor_ps + self.costs.issue + self.costs.travel;
        let taken_ps = there_ps + self.costs.receive_message + self.costs.handler;
        self.revocations.push(Revocation {
            thread,
            whom,
            at,
            waiter: None,
            answer: Ok(()),
            is_seen: false,
        });
        self.queue.push(taken_ps + delay_ps, Event::Revoke { number });
        u64::from(number) << 32 | TICKETS
    }

    /// Handles the arrival of the revocation request at the memory node's control service.
    pub(crate) fn revoke(&mut self, number: u32) {
        let Revocation { thread, whom, at, .. } = self.revocations[number as usize];
        let asking = self.threads[thread as usize].node;
        let refusal = self.refusal(asking, at);
        if refusal.is_none() {
            self.fenced.insert((whom, at));
        }
        self.revocations[number as usize].answer = refusal.map_or(Ok(()), Err);
        self.note(self.now_ps ^ u64::from(number) << 44);
        let back_ps = match refusal {
            Some(FabricError::NodeDown(_)) => self.costs.retry_timeout,
            _ => self.costs.send_message + self.costs.travel + self.costs.complete,
        };
        let delay_ps = match &mut self.dice {
            Some(dice) => dice.way_ps(self.now_ps, thread, usize::from(asking.slot.0)),
            None => 0,
        };
        self.queue.push(self.now_ps + back_ps + delay_ps, Event::Revoked { number });
    }

    /// Handles the moment at which the requester sees the answer to its revocation request.
    pub(crate) fn revoked(&mut self, number: u32) -> Option<u32> {
        let revocation = &mut self.revocations[number as usize];
        revocation.is_seen = true;
        let waiter = revocation.waiter.take();
        waiter.and_then(|task| self.wake(task))
    }

    /// Returns the answer if the requester has already seen it. Otherwise the simulation wakes the
    /// asking coroutine when the requester sees the answer.
    pub(crate) fn ask_revoked(&mut self, number: u32) -> Option<Result<(), FabricError>> {
        let revocation = &mut self.revocations[number as usize];
        if revocation.is_seen {
            return Some(revocation.answer);
        }
        revocation.waiter = self.current;
        self.is_registered = true;
        None
    }
}
