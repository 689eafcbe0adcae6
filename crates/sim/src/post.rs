//! The requester's side of a round: its processor, its NIC, the way to the memory nodes.
//!
//! Invariant: the NIC is reserved in the order in which coroutines are polled. Its processor's time to
//! post and to ring delays a batch, not the NIC, so that a thread whose turn is long does not keep the
//! NIC from the others. (Reserving from the ring on would let an early reservation for a late ring
//! stand before a later one for an early ring.)

use crate::effects::execute;
use crate::flight::Interest;
use crate::threads::DoorbellCosts;
use crate::world::{Event, World};
use tarn_fabric::address::NodeId;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;

impl World {
    /// Sends a round; returns its ticket.
    pub(crate) fn post(&mut self, thread: u32, round: &mut Round, interest: Interest) -> u64 {
        let waiter = if interest == Interest::Awaited { self.current } else { None };
        let flight = self.flights.begin(round, thread, waiter, interest, &self.costs);
        for batch in 0..self.flights.get(flight).batches.len() {
            self.ring(flight, batch);
        }
        self.flights.ticket(flight)
    }

    /// Posts one batch and rings its doorbell.
    fn ring(&mut self, index: u32, batch_index: u32) {
        let costs = &self.costs;
        let flight = self.flights.get(index);
        let (thread, detached) = (flight.thread as usize, flight.interest == Interest::Detached);
        let thread = &mut self.threads[thread];
        let compute = &mut self.compute_nodes[usize::from(thread.node.slot.0)];
        let batch = flight.batches.get_mut(batch_index);
        let verbs = u64::from(batch.verbs);

        thread.spend(costs.post_verb * verbs);
        let doorbell = DoorbellCosts {
            alone_ps: costs.doorbell,
            shared_ps: costs.doorbell_shared,
            handoff_ps: costs.doorbell_handoff,
        };
        compute.ring(thread, doorbell);

        let nic = &mut compute.nic;
        nic.in_flight += verbs;
        let transmit_ps = costs.transmit(verbs, batch.fetched.into(), nic.in_flight);
        let sent_ps = nic.transmit.reserve(self.now_ps, transmit_ps);
        let out_ps = nic.link_out.reserve(sent_ps, costs.link(batch.request_bytes.into()));
        let processor_ps = thread.local_ps.saturating_sub(self.now_ps);
        let mut arrival_ps = out_ps + processor_ps + costs.issue + costs.travel;

        let known = thread.connections.len() - 1;
        let connection = &mut thread.connections[usize::from(batch.node.0).min(known)];
        connection.posted += 1;
        batch.number = connection.posted;
        match &mut self.dice {
            // Batches of one connection arrive in order; nothing may pass.
            None => arrival_ps = arrival_ps.max(connection.last_arrival_ps),
            Some(dice) => {
                arrival_ps += dice.up_to(dice.chaos.delay_max_ns) * 1_000 + dice.stall_ps();
                if detached {
                    connection.detached.push(connection.posted);
                }
            }
        }
        connection.last_arrival_ps = arrival_ps;
        self.queue.push(arrival_ps, Event::Arrive { flight: index, batch: batch_index });
        if self.is_observed() {
            let posted_ps = self.now_ps + processor_ps;
            self.show_posted(index, batch_index, [posted_ps, out_ps + processor_ps, arrival_ps]);
        }
    }

    /// A round of somebody who works while the cluster is at rest (a loader, an audit): done at once,
    /// in the order in which its verbs were added, at no cost.
    pub(crate) fn execute_at_rest(
        &mut self,
        node: NodeId,
        round: &mut Round,
    ) -> Result<(), FabricError> {
        for to in round.verbs().iter().map(|verb| verb.target.node()) {
            if let Some(error) = self.refusal(node, to) {
                return Err(error);
            }
        }
        let (verbs, data) = round.parts_mut();
        for verb in verbs {
            let replica = self.placement.locate(&self.memory, verb)?;
            execute(&mut self.memory, replica, verb, data);
        }
        Ok(())
    }
}
