//! The requester's side of a round: its processor, its NIC, and the path to the memory nodes.
//!
//! Invariant: batches reserve the NIC in the order in which the scheduler polls their coroutines. The
//! processor's time to post a batch and to ring the doorbell delays the batch, but does not occupy
//! the NIC. So a thread with a long turn does not prevent other threads from using the NIC. Otherwise
//! a reservation for a late ring of a doorbell could come before a reservation for an earlier ring.
//! The verbs of a batch leave one after the other: the first verb is on the wire while the last verb
//! is still in the NIC.

use crate::doorbells::NONE;
use crate::effects::execute;
use crate::flight::Interest;
use crate::nic::Stream;
use crate::threads::{Connection, Unawaited};
use crate::world::{Event, World};
use tarn_fabric::address::NodeId;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;

/// The number of later rounds that are posted before the lines of a round are prefetched. On a loaded
/// cluster a round arrives after about five further rounds were posted. On a lightly loaded cluster all
/// data is in the cache anyway.
pub(crate) const LINES_BEHIND: usize = 2;

fn connections_of(world: &mut World, thread: u32, at: usize) -> &mut Connection {
    &mut world.threads[thread as usize].connections[at]
}

impl World {
    /// Sends a round. Returns the ticket of the round.
    pub(crate) fn post(&mut self, thread: u32, round: &mut Round, interest: Interest) -> u64 {
        let waiter = if interest == Interest::Awaited { self.current } else { None };
        let model = (&self.costs, self.placement, &self.memory);
        let flight = self.flights.begin(round, thread, waiter, interest, model);
        self.prefetch_lines(flight);
        for batch in 0..self.flights.get(flight).batches.len() {
            self.ring(flight, batch);
        }
        self.flights.ticket(flight)
    }

    /// Prefetches the lines of a round that began earlier and has not arrived. The round's table
    /// entries were prefetched when the round began, so these entries are in the cache by now.
    #[inline(always)]
    fn prefetch_lines(&mut self, flight: u32) {
        let [earlier, later] = self.begun;
        self.begun = [later, flight];
        self.flights.prefetch_lines(earlier, &self.memory);
    }

    /// Posts one batch and rings its doorbell. If the requester rings several times for the batch, the batch is
    /// complete at its NIC after the last ring.
    fn ring(&mut self, index: u32, batch_index: u32) {
        let flight = self.flights.get(index);
        let (number, detached) = (flight.thread, flight.interest == Interest::Detached);
        let thread = &self.threads[number as usize];
        let known = thread.connections.len() - 1;
        let connection = usize::from(flight.batches.get(batch_index).node.0).min(known);
        if thread.connections[connection].register == NONE {
            self.connect(number, connection);
        }
        let costs = &self.costs;
        let batch = self.flights.get(index).batches.get_mut(batch_index);
        let thread = &mut self.threads[number as usize];
        let compute = &mut self.compute_nodes[usize::from(thread.node.slot.0)];

        let begun_ps = thread.local_ps;
        thread.spend(costs.post(batch.requests()));
        let (rings, register) = (&mut compute.registers, thread.connections[connection].register);
        for _ in 0..=batch.more_rings {
            let by = thread.ringer(number);
            thread.local_ps = rings.ring(register, by, costs.doorbells(), self.now_ps);
        }
        let processor_ps = thread.local_ps.saturating_sub(self.now_ps);
        if costs.credits != 0 && self.waits_for_credits((index, batch_index), connection, begun_ps)
        {
            return;
        }
        self.leave(index, batch_index, (number, connection), (processor_ps, detached));
    }

    /// Sends a posted batch. `processor_ps` is the time that the processor still needs before the batch leaves.
    #[inline(always)]
    fn leave(
        &mut self,
        index: u32,
        batch_index: u32,
        (number, connection): (u32, usize),
        (processor_ps, detached): (u64, bool),
    ) {
        let costs = &self.costs;
        let batch = self.flights.get(index).batches.get_mut(batch_index);
        let thread = &mut self.threads[number as usize];
        let compute = &mut self.compute_nodes[usize::from(thread.node.slot.0)];
        let verbs = u64::from(batch.verbs);

        let nic = &mut compute.nic;
        nic.in_flight += verbs;
        let transmit_ps = costs.transmit(batch.requests(), nic.in_flight);
        let sent_ps = nic.transmit.reserve(self.now_ps, transmit_ps);
        let wire_ps = costs.link(batch.request_bytes.into());
        let stream = Stream {
            first_ps: sent_ps - transmit_ps + transmit_ps / verbs,
            last_ps: sent_ps,
            all_take_ps: wire_ps,
            last_takes_ps: wire_ps / verbs,
        };
        let out_ps = nic.link_out.pass(self.now_ps, stream);
        let mut arrival_ps = out_ps + processor_ps + costs.issue + costs.travel;

        let connection = &mut thread.connections[connection];
        connection.posted += 1;
        batch.number = connection.posted as u32;
        match &mut self.dice {
            // Batches of one connection arrive in order. So no batch may overtake an earlier batch of
            // its connection.
            None => arrival_ps = arrival_ps.max(connection.last_arrival_ps),
            Some(dice) => {
                let (index, node) = (number, usize::from(thread.node.slot.0));
                arrival_ps += dice.way_ps(self.now_ps, index, node);
                if detached {
                    let number = connection.posted;
                    connection.unawaited.push(Unawaited { number, before: number });
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

    /// Takes the credits for a batch, if its connection has limited credits and enough of them are free. Otherwise
    /// keeps the batch until they are, and returns true. A batch with more requests than there are credits waits until
    /// all of them are free. The processor, which began to post the batch at `begun_ps`, then takes the same time once
    /// more before the batch leaves, but it does other work meanwhile. Random mode has no limit.
    #[cold]
    fn waits_for_credits(
        &mut self,
        (index, batch_index): (u32, u32),
        connection: usize,
        begun_ps: u64,
    ) -> bool {
        if self.dice.is_some() {
            return false;
        }
        let flight = self.flights.get(index);
        let (thread, verbs) = (flight.thread, flight.batches.get(batch_index).verbs.into());
        let thread = &mut self.threads[thread as usize];
        let connection = &mut thread.connections[connection];
        if connection.waiting.is_empty() && connection.takes(verbs, self.costs.credits) {
            return false;
        }
        connection.waiting.push_back((index, batch_index, thread.local_ps - begun_ps));
        true
    }

    /// Gives the credits of a completed round back. Batches that waited for them leave.
    #[cold]
    pub(crate) fn give_credits_back(&mut self, index: u32) {
        if self.dice.is_some() {
            return;
        }
        let credits = self.costs.credits;
        for batch in 0..self.flights.get(index).batches.len() {
            let flight = self.flights.get(index);
            let (number, batch) = (flight.thread, *flight.batches.get(batch));
            let connections = &mut self.threads[number as usize].connections;
            let at = usize::from(batch.node.0).min(connections.len() - 1);
            connections[at].outstanding -= u64::from(batch.verbs);
            while let Some(&(next, part, posting_ps)) =
                connections_of(self, number, at).waiting.front()
            {
                let verbs = self.flights.get(next).batches.get(part).verbs.into();
                let connection = connections_of(self, number, at);
                if !connection.takes(verbs, credits) {
                    break;
                }
                connection.waiting.pop_front();
                self.leave(next, part, (number, at), (posting_ps, false));
            }
        }
    }

    /// The owner of a round calls this function when it stops waiting for the round. In timed mode
    /// batches of one connection arrive, and are done, one after the other. So timed mode keeps the
    /// order of batches without further work. In random mode later batches wait for the abandoned
    /// batches that are still in flight. If the owner drops the round while the cluster is at rest,
    /// none of the round's remaining verbs lands. The reason is that rounds at rest are executed
    /// immediately.
    pub(crate) fn abandon(&mut self, index: u32, round: &mut Round) {
        let flight = self.flights.get(index);
        flight.give_up(round);
        if flight.is_done {
            return self.flights.end(index);
        }
        if self.current.is_none() {
            return flight.forget_places();
        }
        // No event of the abandoned round wakes the coroutine. If the coroutine yields now, it is
        // polled again without a wake-up.
        self.is_registered = false;
        if self.dice.is_none() {
            return;
        }
        let connections = &mut self.threads[flight.thread as usize].connections;
        let known = connections.len() - 1;
        for batch in (0..flight.batches.len()).map(|batch| flight.batches.get(batch)) {
            let connection = &mut connections[usize::from(batch.node.0).min(known)];
            if !batch.is_done {
                let (number, before) = (batch.number.into(), connection.posted);
                connection.unawaited.push(Unawaited { number, before });
            }
        }
    }

    /// Executes a round while the cluster is at rest (for example for a loader or an audit). The
    /// function executes the verbs immediately, in the order in which they were added to the round.
    /// The round costs no virtual time.
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
            let place = self.placement.locate(&self.memory, verb)?;
            execute(&mut self.memory, place, verb, data);
        }
        Ok(())
    }
}
