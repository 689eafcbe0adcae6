//! The responder's side in timed mode: a batch passes the pipeline, takes effect, is answered.
//!
//! Invariant: a batch is served when it arrives, after every batch that arrived before, and takes
//! effect in that order: nobody sees a node's memory but through its pipeline. Batches of one
//! connection arrive in the order in which they were posted, which is asserted.
//!
//! A response's place on the requester's NIC is reserved when it leaves: all responses travel equally
//! long, so that they are reserved in the order in which they arrive.

use crate::costs::Costs;
use crate::effects::{execute, out_of_bounds};
use crate::flight::{Batch, Flight};
use crate::memory::{Memory, Place};
use crate::nic::Nic;
use crate::world::{Event, World};
use tarn_fabric::address::NodeId;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::VerbKind;

/// What a batch came to.
struct Served {
    /// When its last response leaves.
    left_ps: u64,
    /// Of all responses.
    bytes: u64,
    responses: u64,
    verbs: u64,
    /// What it saw, for the digest of the run.
    seen: u64,
    error: Option<FabricError>,
}

impl World {
    /// A batch has arrived at its memory node.
    pub(crate) fn arrive(&mut self, index: u32, batch_index: u32) {
        let flight = self.flights.get(index);
        let batch = *flight.batches.get(batch_index);
        let thread = &mut self.threads[flight.thread as usize];
        let (node, to) = (thread.node, usize::from(batch.node.0));
        let memory_node = match self.memory_nodes.get_mut(to) {
            Some(up) if !up.is_down && self.fenced.is_empty() && self.dice.is_none() => up,
            _ => return self.arrive_rarely(index, batch_index, node),
        };
        let connection = &mut thread.connections[to];
        connection.arrived += 1;
        let (arrived, posted) = (connection.arrived, batch.number);
        assert_eq!(arrived, posted, "a batch has passed another of its connection");
        let (costs, nic) = (&self.costs, &mut memory_node.nic);
        let served = serve(flight, &batch, (nic, &mut self.memory), costs, self.now_ps);
        if let Some(error) = served.error {
            flight.fail(error);
        }
        self.tallies.verbs += served.verbs;
        let requester = &mut self.compute_nodes[usize::from(node.slot.0)].nic;
        let (head_ps, wire_ps) = (served.left_ps + costs.travel, costs.link(served.bytes));
        let there_ps = requester.link_in.reserve_until(head_ps, wire_ps);
        let taken_ps = requester.receive.reserve(there_ps, costs.receive * served.responses);
        let seen_ps = taken_ps + costs.complete;
        if let Some(done_ps) = flight.answered(seen_ps) {
            self.queue.push(done_ps, Event::Complete { flight: index });
        }
        self.note(self.now_ps ^ served.seen.rotate_left(17));
    }

    /// A batch arrives where things go wrong, or in random mode.
    #[cold]
    fn arrive_rarely(&mut self, index: u32, batch_index: u32, node: NodeId) {
        let to = self.flights.get(index).batches.get(batch_index).node;
        if let Some(error) = self.refusal(node, to) {
            return self.refuse(index, batch_index, error);
        }
        if self.dice.is_some() {
            return self.begin_pieces(index, batch_index);
        }
        // Another node is fenced: this one goes on.
        let fenced = std::mem::take(&mut self.fenced);
        self.arrive(index, batch_index);
        self.fenced = fenced;
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
        if let Some(done_ps) = self.flights.get(index).answered(at_ps) {
            self.queue.push(done_ps, Event::Complete { flight: index });
        }
    }
}

/// Executes the batch's verbs at `now_ps`.
#[inline(always)]
fn serve(
    flight: &mut Flight,
    batch: &Batch,
    (nic, memory): (&mut Nic, &mut Memory),
    costs: &Costs,
    now_ps: u64,
) -> Served {
    let mut at_ps = nic.link_in.reserve_until(now_ps, costs.link(batch.request_bytes.into()));
    let (mut pipeline, mut link_out) = (nic.pipeline, nic.link_out);
    let (mut left_ps, mut bytes, mut responses, mut verbs_done) = (at_ps, 0, 0, 0);
    let (mut unanswered, mut error, mut seen) = (false, None, 0);
    let (verbs, data, places) = flight.parts();
    let mut mine = batch.mine();
    while let Some(at) = mine.next(verbs) {
        let (Some(verb), Some(&place)) = (verbs.get_mut(at), places.get(at)) else { break };
        if place == Place::NOWHERE {
            error = Some(out_of_bounds(verb));
            break;
        }
        let (service_ps, address) = (costs.pipeline(verb), verb.target.address().to_word());
        let through_ps = pipeline.reserve(at_ps, service_ps);
        at_ps = at_ps.max(through_ps);
        verbs_done += 1;
        if verb.is(VerbKind::Write) {
            seen = seen ^ verb.value ^ address;
            unanswered = true;
            execute(memory, place, verb, data);
            continue;
        }
        let response_bytes = costs.response_bytes(verb).unwrap_or_default();
        if verb.is(VerbKind::Read) {
            seen ^= verb.value;
            execute(memory, place, verb, data);
        } else {
            let taken_ps = through_ps - service_ps;
            at_ps = at_ps.max(nic.atomic(taken_ps, through_ps, address, costs.atomic_unit));
            execute(memory, place, verb, data);
            seen ^= verb.value;
        }
        seen ^= address;
        unanswered = false;
        bytes += response_bytes;
        responses += 1;
        left_ps = link_out.reserve(at_ps + costs.respond, costs.link(response_bytes));
    }
    if unanswered || error.is_some() {
        bytes += costs.ack_bytes();
        responses += 1;
        left_ps = link_out.reserve(at_ps + costs.respond, costs.link(costs.ack_bytes()));
    }
    (nic.pipeline, nic.link_out) = (pipeline, link_out);
    Served { left_ps, bytes, responses, verbs: verbs_done, seen, error }
}
