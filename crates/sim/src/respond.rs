//! The responder's side in timed mode: a batch passes the pipeline, takes effect, is answered.
//!
//! Invariant: a batch is served when it arrives, after every batch that arrived before, and takes
//! effect in that order: nobody sees a node's memory but through its pipeline. Batches of one
//! connection arrive in the order in which they were posted, which is asserted.
//!
//! A response's place on the requester's NIC is reserved when it leaves: all responses travel equally
//! long, so that they are reserved in the order in which they arrive.

use crate::effects::execute;
use crate::flight::Batch;
use crate::world::{Event, World};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::VerbKind;

impl World {
    /// A batch has arrived at its memory node.
    pub(crate) fn arrive(&mut self, index: u32, batch_index: u32) {
        let flight = self.flights.get(index);
        let &Batch { node: to, number, .. } = flight.batches.get(batch_index);
        let thread = &mut self.threads[flight.thread as usize];
        let node = thread.node;
        if let Some(error) = self.refusal(node, to) {
            return self.refuse(index, batch_index, error);
        }
        if self.dice.is_some() {
            return self.begin_pieces(index, batch_index);
        }
        let thread = &mut self.threads[self.flights.get(index).thread as usize];
        let connection = &mut thread.connections[usize::from(to.0)];
        connection.arrived += 1;
        assert_eq!(connection.arrived, number, "a batch has passed another of its connection");
        let requester = usize::from(node.slot.0);
        let served = self.serve(index, batch_index);
        let (left_ps, bytes, responses) = served;
        let nic = &mut self.compute_nodes[requester].nic;
        let costs = &self.costs;
        let there_ps = nic.link_in.reserve_until(left_ps + costs.travel, costs.link(bytes));
        let taken_ps = nic.receive.reserve(there_ps, costs.receive * responses);
        let seen_ps = taken_ps + costs.complete;
        if self.is_observed() {
            self.show_served(index, batch_index, [left_ps, taken_ps, seen_ps]);
        }
        self.answer(index, seen_ps);
    }

    /// Executes the batch's verbs; when the last response leaves, bytes of all, and how many.
    fn serve(&mut self, index: u32, batch_index: u32) -> (u64, u64, u64) {
        let costs = &self.costs;
        let flight = self.flights.get(index);
        let batch = flight.batches.get(batch_index);
        let (to, request_bytes, mut mine) = (batch.node, batch.request_bytes, batch.mine());
        let nic = &mut self.memory_nodes[usize::from(to.0)].nic;
        let request_ps = costs.link(request_bytes.into());
        let mut at_ps = nic.link_in.reserve_until(self.now_ps, request_ps);
        let (mut left_ps, mut bytes, mut responses) = (at_ps, 0, 0);
        let (mut unanswered, mut error, mut seen) = (false, None, 0);
        let (verbs, data) = flight.parts();
        while let Some(verb) = mine.next(verbs).and_then(|index| verbs.get_mut(index)) {
            let replica = match self.placement.locate(&self.memory, verb) {
                Ok(replica) => replica,
                Err(out_of_bounds) => {
                    error = Some(out_of_bounds);
                    break;
                }
            };
            let service_ps = costs.pipeline(verb);
            let through_ps = nic.pipeline.reserve(at_ps, service_ps);
            at_ps = at_ps.max(through_ps);
            if !verb.is(VerbKind::Read) && !verb.is(VerbKind::Write) {
                let address = verb.target.address().to_word();
                let taken_ps = through_ps - service_ps;
                at_ps = at_ps.max(nic.atomic(taken_ps, through_ps, address, costs.atomic_unit));
            }
            execute(&mut self.memory, replica, verb, data);
            seen = seen ^ verb.value ^ verb.target.address().to_word();
            self.tallies.verbs += 1;
            match costs.response_bytes(verb) {
                Some(response_bytes) => {
                    unanswered = false;
                    bytes += response_bytes;
                    responses += 1;
                    let ready_ps = at_ps + costs.respond;
                    left_ps = nic.link_out.reserve(ready_ps, costs.link(response_bytes));
                }
                None => unanswered = true,
            }
        }
        if unanswered || error.is_some() {
            let ack_bytes = costs.ack_bytes();
            bytes += ack_bytes;
            responses += 1;
            left_ps = nic.link_out.reserve(at_ps + costs.respond, costs.link(ack_bytes));
        }
        if let Some(error) = error {
            flight.fail(error);
        }
        self.note(self.now_ps ^ seen.rotate_left(17));
        (left_ps, bytes, responses)
    }

    /// Nothing of what is left of the batch happens; its requester learns it, if its node was dead
    /// after a while.
    pub(crate) fn refuse(&mut self, index: u32, batch_index: u32, error: FabricError) {
        let flight = self.flights.get(index);
        flight.fail(error);
        if let Some(pending) = flight.pending.get_mut(batch_index as usize) {
            pending.clear();
        }
        let back_ps = match error {
            FabricError::NodeDown(_) => self.costs.retry_timeout,
            _ => self.costs.travel + self.costs.complete,
        };
        self.leave_connection(index, batch_index);
        self.answer(index, self.now_ps + back_ps);
    }

    /// One more batch is answered, seen by the requester at `at_ps`.
    pub(crate) fn answer(&mut self, index: u32, at_ps: u64) {
        let flight = self.flights.get(index);
        flight.done_ps = flight.done_ps.max(at_ps);
        flight.unanswered -= 1;
        if flight.unanswered == 0 {
            self.queue.push(flight.done_ps, Event::Complete { flight: index });
        }
    }
}
