//! Datagrams between threads of compute nodes, and through switches.
//!
//! Invariant: a datagram arrives whole or not at all. In timed mode a datagram arrives once if its
//! target endpoint exists. In random mode a datagram may be lost, arrive twice, or be overtaken. The
//! module reuses the buffers of datagrams, so in steady state it allocates no buffer.

use crate::doorbells::Doorbell;
use crate::service::NodeKind;
use crate::world::{Event, World};
use tarn_fabric::backend::Endpoint;
use tarn_fabric::error::FabricError;

/// A datagram.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) from: Endpoint,
    to: Endpoint,
    pub(crate) bytes: Vec<u8>,
}

/// All datagrams that are in flight or not yet received.
#[derive(Default, Debug)]
pub(crate) struct Messages {
    all: Vec<Message>,
    free: Vec<u32>,
}

impl Messages {
    fn begin(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8]) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Message { from, to, bytes: Vec::new() });
            self.all.len() as u32 - 1
        });
        let message = &mut self.all[index as usize];
        (message.from, message.to) = (from, to);
        message.bytes.clear();
        message.bytes.extend_from_slice(bytes);
        index
    }

    fn end(&mut self, index: u32) {
        self.free.push(index);
    }
}

impl World {
    /// The size of the largest datagram, in bytes. A datagram fits into one packet.
    pub(crate) fn datagram_bytes_max(&self) -> usize {
        self.costs.mtu_bytes() as usize
    }

    /// Sends a datagram.
    pub(crate) fn send(
        &mut self,
        thread: u32,
        to: Endpoint,
        bytes: &[u8],
    ) -> Result<(), FabricError> {
        let limit_bytes = self.datagram_bytes_max();
        if bytes.len() > limit_bytes {
            return Err(FabricError::MessageTooLarge { bytes: bytes.len(), limit_bytes });
        }
        let is_to_switch = self.is_switch(to);
        let travel_ps = if is_to_switch { self.costs.half_way } else { self.costs.travel };
        if self.threads[thread as usize].mail_doorbell == Doorbell::NONE {
            self.connect_mail(thread);
        }
        let thread = &mut self.threads[thread as usize];
        let compute = &mut self.compute_nodes[usize::from(thread.node.slot.0)];
        thread.spend(self.costs.send_message);
        // All datagrams of a thread share one send queue, whatever their targets. The datagrams sent in
        // one turn leave with one doorbell. The datagrams sent between two reads of the inbox also
        // leave with one doorbell.
        if thread.rang_in_turn != self.tallies.turns {
            thread.rang_in_turn = self.tallies.turns;
            thread.ring(
                thread.mail_doorbell,
                &mut compute.registers,
                &self.costs.doorbells,
                self.now_ps,
            );
        }
        let nic = &mut compute.nic;
        let wire_ps = self.costs.link(self.costs.datagram_bytes(bytes.len()));
        let transmit_ps = self.costs.transmit_message(bytes.len());
        let sent_ps = nic.transmit.reserve(self.now_ps, transmit_ps);
        let out_ps = sent_ps + wire_ps + nic.link_out.join(self.now_ps, wire_ps);
        let processor_ps = thread.local_ps.saturating_sub(self.now_ps);
        let mut arrival_ps = out_ps + processor_ps + self.costs.issue + travel_ps;
        if is_to_switch {
            // One send queue and one cable keep a thread's datagrams in order, whatever their lengths.
            arrival_ps = arrival_ps.max(thread.at_switch_ps + 1);
            thread.at_switch_ps = arrival_ps;
        }
        let from = thread.endpoint();
        if self.is_observed() {
            self.show_sent(to, bytes.len(), self.now_ps + processor_ps, arrival_ps);
        }
        self.set_off(from, to, bytes, arrival_ps);
        Ok(())
    }

    /// Draws the extra delay of each copy of a message. `None` means that the copy does not arrive.
    fn fates(&mut self) -> [Option<u64>; 2] {
        let Some(dice) = &mut self.dice else { return [Some(0), None] };
        let chaos = dice.chaos;
        let mut delay_ps = || dice.up_to(chaos.message_delay_max_ns) * 1_000;
        let delays = [delay_ps(), delay_ps()];
        let lost = dice.percent(chaos.loss_percent);
        let twice = dice.percent(chaos.duplicate_percent);
        self.tallies.messages_lost += u64::from(lost);
        [(!lost).then_some(delays[0]), twice.then_some(delays[1])]
    }

    /// Handles the arrival of a datagram at the NIC of its target node.
    pub(crate) fn message_arrives(&mut self, index: u32) {
        let message = &self.messages.all[index as usize];
        let node = self.compute_nodes.get_mut(usize::from(message.to.node.0));
        let Some(node) = node else { return self.messages.end(index) };
        if node.kind == NodeKind::Switch {
            return self.pass_switch(index);
        }
        let wire_ps = self.costs.link(self.costs.datagram_bytes(message.bytes.len()));
        let there_ps = node.nic.link_in.reserve_until(self.now_ps, wire_ps);
        let taken_ps = node.nic.receive.reserve(there_ps, self.costs.receive);
        self.queue.push(taken_ps + self.costs.complete, Event::Deliver { message: index });
    }

    /// Returns whether a message goes to a switch.
    fn is_switch(&self, to: Endpoint) -> bool {
        let node = self.compute_nodes.get(usize::from(to.node.0));
        node.is_some_and(|node| node.kind == NodeKind::Switch)
    }

    /// A datagram reaches a switch: the program processes the datagram, and the packets that leave set off.
    fn pass_switch(&mut self, index: u32) {
        let Message { from, to, .. } = self.messages.all[index as usize];
        let slot = usize::from(to.node.0);
        let Some(at) = self.switches.iter().position(|switch| switch.slot == slot) else {
            return self.messages.end(index);
        };
        let bytes = std::mem::take(&mut self.messages.all[index as usize].bytes);
        let switch = &mut self.switches[at];
        let (taken_ps, passes) = switch.take(self.now_ps, from, &bytes);
        let mut leaving = std::mem::take(&mut switch.leaving);
        self.give_back_message(index, bytes);
        let left_ps = taken_ps + passes * self.costs.through_switch;
        let arrival_ps = left_ps + self.costs.half_way;
        for (next, bytes) in leaving.drain(..) {
            if self.is_observed() {
                self.show_sent(next, bytes.len(), left_ps, arrival_ps);
            }
            self.set_off(to, next, &bytes, arrival_ps);
            self.switches[at].free.push(bytes);
        }
        self.switches[at].leaving = leaving;
    }

    /// Puts a message on its way, with the fates that the dice choose.
    fn set_off(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8], arrival_ps: u64) {
        self.tallies.messages += 1;
        for delay_ps in self.fates() {
            let Some(delay_ps) = delay_ps else { continue };
            let message = self.messages.begin(from, to, bytes);
            self.queue.push(arrival_ps + delay_ps, Event::Message { message });
        }
    }

    /// Handles the moment from which the target thread of the datagram can see the datagram.
    pub(crate) fn deliver(&mut self, index: u32) {
        let to = self.messages.all[index as usize].to;
        let Some(&thread) = self.endpoints.get(&to) else { return self.messages.end(index) };
        self.note(self.now_ps ^ u64::from(index) << 48);
        self.threads[thread as usize].inbox.push_back(index);
        // A coroutine that waits by yielding may be waiting for this datagram.
        while let Some(task) = self.threads[thread as usize].idlers.pop() {
            if let Some(task) = self.wake(task) {
                // `wake` would run the coroutine immediately. The ready queue instead keeps several
                // woken coroutines in order.
                self.tasks[task as usize].status = crate::threads::Status::Queued;
                self.threads[thread as usize].ready.push_back(task);
                self.schedule(thread);
            }
        }
    }

    /// Notes that a thread reads its inbox. The thread's next datagrams leave with another doorbell.
    pub(crate) fn look_at_inbox(&mut self, thread: u32) {
        self.threads[thread as usize].rang_in_turn = u64::MAX;
    }

    /// Takes the next datagram out of a thread's inbox.
    pub(crate) fn take_message(&mut self, thread: u32) -> Option<(Endpoint, Vec<u8>, u32)> {
        let thread = &mut self.threads[thread as usize];
        let index = thread.inbox.pop_front()?;
        thread.spend(self.costs.receive_message);
        let message = &mut self.messages.all[index as usize];
        Some((message.from, std::mem::take(&mut message.bytes), index))
    }

    /// Returns a datagram's buffer to this module for reuse.
    pub(crate) fn give_back_message(&mut self, index: u32, bytes: Vec<u8>) {
        self.messages.all[index as usize].bytes = bytes;
        self.messages.end(index);
    }
}
