//! The responder's side in timed mode: a batch passes the pipeline, takes effect and is answered.
//!
//! Invariant: a memory node serves a batch when the batch arrives, after every batch that arrived
//! before. Batches take effect in the order of their arrival. Code reads a node's memory only through
//! the node's pipeline. Batches of one connection arrive in the order in which they were posted, and an
//! assertion checks this order. A response reserves the links and the requester's NIC from the present
//! time on, not from its later arrival. So another node's response that arrives earlier does not wait
//! for this response.

use crate::costs::Costs;
use crate::effects::{execute, out_of_bounds};
use crate::flight::{Batch, Flight};
use crate::memory::{Memory, Place};
use crate::nic::{Nic, Resource, Stream};
use crate::world::{Event, World};
use tarn_fabric::address::NodeId;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::VerbKind;

/// The times of the responses of a batch: when the first and the last response are ready, or when they
/// have left the node.
#[derive(Clone, Copy, Default, Debug)]
struct Responses {
    first_ps: u64,
    last_ps: u64,
    first_bytes: u64,
    last_bytes: u64,
    bytes: u64,
    count: u64,
}

impl Responses {
    #[inline(always)]
    fn add(&mut self, ready_ps: u64, bytes: u64) {
        if self.count == 0 {
            (self.first_ps, self.first_bytes) = (ready_ps, bytes);
        }
        self.last_ps = self.last_ps.max(ready_ps);
        self.last_bytes = bytes;
        self.bytes += bytes;
        self.count += 1;
    }

    /// Sends the responses one after the other.
    #[inline(always)]
    fn leave(&mut self, link: &mut Resource, costs: &Costs, now_ps: u64) {
        let stream = Stream {
            first_ps: self.first_ps,
            last_ps: self.last_ps,
            all_take_ps: costs.link(self.bytes),
            last_takes_ps: costs.link(self.last_bytes),
        };
        self.last_ps = link.pass(now_ps, stream);
        self.first_ps = self.last_ps.min(self.first_ps + costs.link(self.first_bytes));
    }
}

/// The result of serving a batch.
struct Served {
    responses: Responses,
    verbs: u64,
    /// A digest of the data that the batch saw. This digest becomes part of the digest of the run.
    seen: u64,
    error: Option<FabricError>,
}

impl World {
    /// Handles a batch that has arrived at its memory node.
    pub(crate) fn arrive(&mut self, index: u32, batch_index: u32) {
        let flight = self.flights.get(index);
        let batch = *flight.batches.get(batch_index);
        let thread = &mut self.threads[flight.thread as usize];
        let (node, to) = (thread.node, usize::from(batch.node.0));
        let memory_node = match self.memory_nodes.get_mut(to) {
            Some(up) if !up.is_down && self.fenced.is_empty() && self.dice.is_none() => up,
            _ => return self.arrive_rarely(index, batch_index, node),
        };
        let complete_ps = self.costs.complete + thread.far_completion_ps;
        let connection = &mut thread.connections[to];
        connection.arrived += 1;
        let (arrived, posted) = (connection.arrived, u64::from(batch.number));
        assert_eq!(arrived, posted, "a batch has overtaken another of its connection");
        let (costs, nic) = (&self.costs, &mut memory_node.nic);
        let served = serve(flight, &batch, (nic, &mut self.memory), costs, self.now_ps);
        if let Some(error) = served.error {
            flight.fail(error);
        }
        self.tallies.verbs += served.verbs;
        let (nic, responses) =
            (&mut self.compute_nodes[usize::from(node.slot.0)].nic, served.responses);
        let wait_ps = nic.link_in.join(self.now_ps, costs.link(responses.bytes)) + costs.travel;
        let stream = Stream {
            first_ps: responses.first_ps + wait_ps,
            last_ps: responses.last_ps + wait_ps,
            all_take_ps: costs.receive * responses.count,
            last_takes_ps: costs.receive,
        };
        let taken_ps = nic.receive.pass(self.now_ps, stream);
        let seen_ps = taken_ps + complete_ps;
        if let Some(done_ps) = flight.answered(seen_ps) {
            self.queue.push(done_ps, Event::Complete { flight: index });
        }
        self.note(self.now_ps ^ served.seen.rotate_left(17));
        if self.is_observed() {
            self.show_served(index, batch_index, [responses.last_ps, taken_ps, seen_ps]);
        }
    }

    /// Handles the arrival of a batch in a rare case: the memory node is down, an access was revoked,
    /// or the mode is random.
    #[cold]
    fn arrive_rarely(&mut self, index: u32, batch_index: u32, node: NodeId) {
        let to = self.flights.get(index).batches.get(batch_index).node;
        if let Some(error) = self.refusal(node, to) {
            return self.refuse(index, batch_index, error);
        }
        if self.dice.is_some() {
            return self.begin_pieces(index, batch_index);
        }
        // The revoked access belongs to another compute node, so the memory node serves this batch.
        let fenced = std::mem::take(&mut self.fenced);
        self.arrive(index, batch_index);
        self.fenced = fenced;
    }

    /// Refuses the rest of the batch, so no further verb of the batch takes effect. The requester
    /// learns that the batch was refused. If the memory node is dead, the requester learns of the
    /// refusal only after a timeout.
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

    /// Counts one more batch as answered. The requester sees the answer at `at_ps`.
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
    let apart_ps = costs.apart(batch.requests(), batch.request_bytes.into());
    let last_ps = nic.link_in.reserve_until(now_ps, costs.link(batch.request_bytes.into()));
    let (mut done_ps, mut responses, mut executed) = (0, Responses::default(), 0);
    let (mut unanswered, mut error, mut seen) = (false, None, 0);
    let (verbs, data, places) = flight.parts();
    // How much earlier than the last verb a verb arrived.
    let mut earlier_ps = apart_ps * u64::from(batch.verbs);
    let mut mine = batch.mine();
    while let Some(at) = mine.next(verbs) {
        let (Some(verb), Some(&place)) = (verbs.get_mut(at), places.get(at)) else { break };
        if place == Place::NOWHERE {
            error = Some(out_of_bounds(verb));
            break;
        }
        executed += 1;
        earlier_ps -= apart_ps;
        let here_ps = last_ps.saturating_sub(earlier_ps);
        let (service_ps, address) = (costs.pipeline(verb), verb.target.address().to_word());
        let through_ps = nic.pipeline.reserve(here_ps, service_ps);
        // A verb begins only after the earlier atomics of its own batch have ended. Verbs of other
        // batches need not wait for these atomics.
        let begun_ps = done_ps.max(through_ps - service_ps);
        done_ps = done_ps.max(through_ps);
        unanswered = verb.is(VerbKind::Write);
        if !unanswered {
            let bytes = costs.response_bytes(verb);
            if !verb.is(VerbKind::Read) {
                done_ps = nic.atomic(begun_ps, done_ps, address, costs.atomic_unit);
            }
            responses.add(done_ps + costs.respond, bytes);
        }
        execute(memory, place, verb, data);
        seen = seen ^ verb.value ^ address;
    }
    if unanswered || error.is_some() {
        responses.add(done_ps.max(last_ps) + costs.respond, costs.ack_bytes());
    }
    responses.leave(&mut nic.link_out, costs, now_ps);
    Served { responses, verbs: executed, seen, error }
}
