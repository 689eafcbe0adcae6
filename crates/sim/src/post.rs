//! The requester's side of a round: its processor, its NIC, and the path to the memory nodes.
//!
//! Invariant: batches reserve the NIC in the order in which the scheduler polls their coroutines. The
//! processor's time to post a batch and to ring the doorbell delays the batch, but does not occupy
//! the NIC. So a thread with a long turn does not prevent other threads from using the NIC. Otherwise
//! a reservation for a late ring of a doorbell could come before a reservation for an earlier ring.
//! The verbs of a batch leave one after the other: the first verb is on the wire while the last verb
//! is still in the NIC.

use crate::costs::Costs;
use crate::dice::Dice;
use crate::doorbells::Doorbell;
use crate::effects::execute;
use crate::flight::{Batch, Flights, Interest};
use crate::nic::Stream;
use crate::observe::Eyes;
use crate::queue::EventQueue;
use crate::threads::{ComputeNode, Thread, Unawaited};
use crate::world::{Event, World};
use tarn_fabric::address::NodeId;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;

/// The number of later rounds that are posted before the lines of a round are prefetched. On a loaded
/// cluster a round arrives after about five further rounds were posted. On a lightly loaded cluster all
/// data is in the cache anyway.
pub(crate) const LINES_BEHIND: usize = 2;

/// A thread that sends batches, and the parts of the cluster that it uses for this.
struct Sender<'a> {
    number: u32,
    thread: &'a mut Thread,
    compute: &'a mut ComputeNode,
    costs: &'a Costs,
    queue: &'a mut EventQueue<Event>,
    dice: &'a mut Option<Dice>,
    eyes: &'a mut Eyes,
    now_ps: u64,
}

impl World {
    /// Sends a round. Returns the ticket of the round.
    pub(crate) fn post(&mut self, thread: u32, round: &mut Round, interest: Interest) -> u64 {
        let waiter = if interest == Interest::Awaited { self.current } else { None };
        let model = (&self.costs, self.placement, &self.memory);
        let index = self.flights.begin(round, thread, waiter, interest, model);
        self.prefetch_lines(index);
        if !self.threads[thread as usize].is_connected {
            self.connect(thread);
        }
        let (mut sender, flights) = self.sender(thread);
        let flight = flights.get(index);
        let is_detached = interest == Interest::Detached;
        for number in 0..flight.batches.len() {
            let batch = flight.batches.get_mut(number);
            let Some(times_ps) = sender.ring(batch, (index, number), is_detached) else { continue };
            if sender.eyes.0.is_some() {
                sender.eyes.show_posted((flight, index), number, times_ps);
            }
        }
        flight.ticket(index)
    }

    #[inline(always)]
    fn sender(&mut self, number: u32) -> (Sender<'_>, &mut Flights) {
        let World { threads, compute_nodes, flights, costs, queue, dice, eyes, now_ps, .. } = self;
        let thread = &mut threads[number as usize];
        let compute = &mut compute_nodes[usize::from(thread.node.slot.0)];
        let now_ps = *now_ps;
        (Sender { number, thread, compute, costs, queue, dice, eyes, now_ps }, flights)
    }

    /// Prefetches the lines of a round that began earlier and has not arrived. The round's table
    /// entries were prefetched when the round began, so these entries are in the cache by now.
    #[inline(always)]
    fn prefetch_lines(&mut self, flight: u32) {
        let [earlier, later] = self.begun;
        self.begun = [later, flight];
        self.flights.prefetch_lines(earlier, &self.memory);
    }

    /// Gives the credits of a completed round back. Batches that waited for them leave.
    #[cold]
    pub(crate) fn give_credits_back(&mut self, index: u32) {
        if self.dice.is_some() {
            return;
        }
        let credits = self.costs.credits;
        let thread = self.flights.get(index).thread;
        let (mut sender, flights) = self.sender(thread);
        for batch in 0..flights.get(index).batches.len() {
            let batch = *flights.get(index).batches.get(batch);
            let at = sender.thread.connection_to(batch.node);
            sender.thread.connections[at].rare.outstanding -= u64::from(batch.verbs);
            loop {
                let connection = &mut sender.thread.connections[at].rare;
                let Some(&(next, part, posting_ps)) = connection.waiting.front() else { break };
                let flight = flights.get(next);
                if !connection.takes(flight.batches.get(part).verbs.into(), credits) {
                    break;
                }
                connection.waiting.pop_front();
                let batch = flight.batches.get_mut(part);
                let times_ps = sender.leave(batch, (next, part), at, (posting_ps, false));
                sender.eyes.show_posted((flight, next), part, times_ps);
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
                connection.rare.unawaited.push(Unawaited { number, before });
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

impl Sender<'_> {
    /// Posts one batch and rings its doorbell. If the requester rings several times for the batch, the batch is
    /// complete at its NIC after the last ring. Returns the times of [`Sender::leave`], or nothing if the batch waits
    /// for credits.
    #[inline(always)]
    fn ring(
        &mut self,
        batch: &mut Batch,
        names: (u32, u32),
        is_detached: bool,
    ) -> Option<[u64; 3]> {
        let Sender { thread, compute, costs, now_ps, .. } = self;
        let at = thread.connection_to(batch.node);
        let registers = &mut compute.registers;
        let mut doorbell = thread.connections[at].doorbell;
        if doorbell == Doorbell::NONE {
            doorbell = thread.connect_spare(self.number, at, registers);
        }
        let begun_ps = thread.local_ps;
        thread.spend(costs.post(batch.requests()));
        thread.ring(doorbell, registers, &costs.doorbells, *now_ps);
        if batch.more_rings > 0 {
            let more = (doorbell, batch.more_rings);
            thread.ring_often(more, registers, &costs.doorbells, *now_ps);
        }
        let processor_ps = thread.local_ps.saturating_sub(*now_ps);
        // Random mode has no limit of credits.
        if costs.credits != 0 && self.dice.is_none() {
            let posting_ps = thread.local_ps - begun_ps;
            let connection = &mut thread.connections[at].rare;
            if connection.waits_for_credits(names, (batch.verbs.into(), costs.credits), posting_ps)
            {
                return None;
            }
        }
        Some(self.leave(batch, names, at, (processor_ps, is_detached)))
    }

    /// Sends a posted batch over connection `at`. `processor_ps` is the time that the processor still needs before
    /// the batch leaves. Returns when the processor and the NIC finish the batch, and when the batch arrives.
    #[inline(always)]
    fn leave(
        &mut self,
        batch: &mut Batch,
        (flight, batch_index): (u32, u32),
        at: usize,
        (processor_ps, is_detached): (u64, bool),
    ) -> [u64; 3] {
        let Sender { thread, compute, costs, .. } = self;
        let (now_ps, verbs) = (self.now_ps, u64::from(batch.verbs));

        let nic = &mut compute.nic;
        nic.in_flight += verbs;
        let transmit_ps = costs.transmit(batch.requests(), nic.in_flight);
        let sent_ps = nic.transmit.reserve(now_ps, transmit_ps);
        let wire_ps = costs.link(batch.request_bytes.into());
        let stream = Stream {
            first_ps: sent_ps - transmit_ps + transmit_ps / verbs,
            last_ps: sent_ps,
            all_take_ps: wire_ps,
            last_takes_ps: wire_ps / verbs,
        };
        let out_ps = nic.link_out.pass(now_ps, stream);
        let mut arrival_ps = out_ps + processor_ps + costs.issue + costs.travel;

        let connection = &mut thread.connections[at];
        connection.posted += 1;
        batch.number = connection.posted as u32;
        match self.dice {
            // Batches of one connection arrive in order. So no batch may overtake an earlier batch of
            // its connection.
            None => arrival_ps = arrival_ps.max(connection.last_arrival_ps),
            Some(dice) => {
                let node = usize::from(thread.node.slot.0);
                arrival_ps += dice.way_ps(now_ps, self.number, node);
                if is_detached {
                    let number = connection.posted;
                    let unawaited = Unawaited { number, before: number };
                    connection.rare.unawaited.push(unawaited);
                }
            }
        }
        connection.last_arrival_ps = arrival_ps;
        self.queue.push(arrival_ps, Event::Arrive { flight, batch: batch_index as u16 });
        [now_ps + processor_ps, out_ps + processor_ps, arrival_ps]
    }
}
