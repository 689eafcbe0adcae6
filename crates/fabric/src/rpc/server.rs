//! The server part of the RPC layer. The handler of each request runs at most once, and the server keeps the reply
//! until the client has it.
//!
//! Invariant: a slot runs the request with a given number at most once, and never runs a smaller number later. A slot
//! keeps the reply of its last request until the client uses the slot again. By using the slot again, the client
//! shows that it no longer needs that reply (the implicit acknowledgement of Birrell and Nelson, "Implementing remote
//! procedure calls", TOCS 1984). A duplicate of a request gets the recorded reply. So a session records at most one
//! reply per credit.
//!
//! Ordered sessions: a request that arrives early waits in its slot. The early request waits until all requests with
//! smaller numbers were passed to their handlers, or were abandoned by the client. (The floor in the client's packets
//! says which requests the client has abandoned.)

use super::reassembly::{Reassembly, recycle};
use super::session::Peer;
use super::state::State;
use super::wire::{Header, PacketKind};

/// The maximum number of a request. This maximum is less than the greatest integer, so that a next number always
/// exists.
const SEQ_MAX: u64 = u64::MAX - 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// The slot has no request, or its request was refused. The slot's buffers for a request and a reply have no
    /// meaning.
    #[default]
    Void,
    /// Some fragments of the request have not arrived.
    Receiving,
    /// The request is complete, but requests with smaller numbers are missing.
    Early,
    /// The request was passed to its handler, which has not replied yet.
    Running,
    /// The slot has recorded the reply.
    Replied,
}

#[derive(Default)]
struct ServerSlot {
    /// The number of the slot's last request. Numbers of requests start at 1.
    seq: u64,
    stage: Stage,
    handler: u16,
    fragments: u32,
    request: Reassembly,
    reply: Vec<u8>,
    /// The number of fragments of the reply that were sent so far.
    reply_sent: u32,
    ack_due: bool,
}

/// The server part of a session.
#[derive(Default)]
pub struct ServerHalf {
    slots: Vec<ServerSlot>,
    /// For ordered sessions, the next number to run. All requests with smaller numbers were passed to their handlers
    /// or abandoned.
    next_seq: u64,
    /// The number of slots that hold an early request.
    early: u32,
}

/// The session, slot and number of a request, by which the layer finds the request's slot for the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub session: u32,
    generation: u32,
    slot: u16,
    seq: u64,
}

/// A request that the layer must now pass to its handler.
pub struct Work {
    pub place: Place,
    pub handler: u16,
    pub from: Peer,
    /// The bytes of the request, if it was reassembled from several fragments. The value is `None` if the request is
    /// the payload of one packet.
    pub assembled: Option<Vec<u8>>,
    /// The buffer into which the handler writes the reply.
    pub reply: Vec<u8>,
}

impl ServerHalf {
    /// Removes early requests that the client has abandoned.
    fn raise_floor(&mut self, floor: u64) {
        if floor <= self.next_seq {
            return;
        }
        self.next_seq = floor;
        if self.early == 0 {
            return;
        }
        for slot in &mut self.slots {
            if slot.stage == Stage::Early && slot.seq < floor {
                slot.stage = Stage::Void;
                self.early -= 1;
            }
        }
    }
}

impl State {
    /// Processes a fragment of a request. Returns the request that must now run, if any.
    pub fn on_request(&mut self, session: u32, header: &Header, payload: &[u8]) -> Option<Work> {
        let known = self.handlers_known.get(usize::from(header.handler)).is_some_and(|&k| k);
        let sound = header.slot < self.config.credits
            && header.total_bytes as usize <= self.config.message_bytes_max
            && (1..=SEQ_MAX).contains(&header.seq);
        if !known || !sound {
            self.link.stats.refused += 1;
            return None;
        }
        let server = &mut self.sessions.list[session as usize].server;
        if server.slots.is_empty() {
            server.slots.resize_with(usize::from(self.config.credits), ServerSlot::default);
        }
        if header.fifo {
            server.raise_floor(header.seq.saturating_sub(u64::from(header.floor_lag)).max(1));
        }
        let seen = server.slots[usize::from(header.slot)].seq;
        if header.seq < seen {
            self.link.stats.duplicates += 1;
            return None;
        }
        if header.seq > seen {
            self.begin_request(session, header);
        }
        self.continue_request(session, header, payload)
    }

    /// Begins a request with a new number in a slot. The new number shows that the client no longer needs the slot's
    /// last request.
    fn begin_request(&mut self, session: u32, header: &Header) {
        let server = &mut self.sessions.list[session as usize].server;
        let slot = &mut server.slots[usize::from(header.slot)];
        if slot.stage == Stage::Early {
            server.early -= 1;
        }
        slot.stage = Stage::Receiving;
        slot.seq = header.seq;
        slot.handler = header.handler;
        slot.fragments = self.link.fragments.count(header.total_bytes as usize);
        slot.reply_sent = 0;
        slot.request.clear();
        recycle(&mut slot.reply);
    }

    fn continue_request(&mut self, session: u32, header: &Header, payload: &[u8]) -> Option<Work> {
        let (index, fragments) = (header.slot, self.link.fragments);
        let server = &mut self.sessions.list[session as usize].server;
        let next_seq = server.next_seq;
        let slot = &mut server.slots[usize::from(index)];
        match slot.stage {
            Stage::Void => return None,
            Stage::Receiving if header.fifo && header.seq < next_seq => {
                slot.stage = Stage::Void; // the client has abandoned this request
                return None;
            }
            Stage::Receiving => {}
            Stage::Replied if self.config.planted_no_reply_cache && slot.fragments == 1 => {
                return Some(self.hand_over(session, index, None));
            }
            Stage::Early | Stage::Running | Stage::Replied => {
                self.on_duplicate(session, header);
                return None;
            }
        }
        let early = header.fifo && header.seq > next_seq;
        if slot.fragments == 1 && !early {
            let whole = payload.len() == header.total_bytes as usize;
            return whole.then(|| self.hand_over(session, index, None));
        }
        if !slot.request.has_begun() {
            if slot.request.bytes.capacity() == 0 {
                slot.request.bytes = self.calls.buffer();
            }
            slot.request.begin(fragments, header.total_bytes as usize);
        }
        slot.request.insert(fragments, header.fragment, payload);
        if slot.request.is_complete() && !early {
            let request = std::mem::take(&mut slot.request.bytes);
            return Some(self.hand_over(session, index, Some(request)));
        }
        if slot.request.is_complete() {
            slot.stage = Stage::Early;
            server.early += 1;
        }
        self.owe_ack(session, index);
        None
    }

    fn on_duplicate(&mut self, session: u32, header: &Header) {
        let slot = &self.sessions.list[session as usize].server.slots[usize::from(header.slot)];
        let last = header.fragment.saturating_add(1) == slot.fragments;
        if slot.stage == Stage::Replied && last && (header.again || slot.fragments == 1) {
            self.send_reply(session, header.slot, 0, 0);
        } else if slot.stage != Stage::Replied || header.again {
            self.owe_ack(session, header.slot);
        }
        self.link.stats.duplicates += 1;
    }

    fn hand_over(&mut self, session: u32, index: u16, assembled: Option<Vec<u8>>) -> Work {
        let generation = self.sessions.list[session as usize].generation;
        let from = self.sessions.list[session as usize].peer;
        let server = &mut self.sessions.list[session as usize].server;
        let slot = &mut server.slots[usize::from(index)];
        slot.stage = Stage::Running;
        server.next_seq = server.next_seq.max(slot.seq + 1);
        self.link.stats.executed += 1;
        let mut reply = std::mem::take(&mut slot.reply);
        reply.clear();
        let place = Place { session, generation, slot: index, seq: slot.seq };
        Work { place, handler: slot.handler, from, assembled, reply }
    }

    /// Returns an early request that may run now, because no request with a smaller number is missing.
    pub fn next_in_order(&mut self, session: u32) -> Option<Work> {
        let server = &mut self.sessions.list[session as usize].server;
        if server.early == 0 {
            return None;
        }
        let next = server.next_seq;
        let turn = |slot: &ServerSlot| slot.stage == Stage::Early && slot.seq == next;
        let index = server.slots.iter().position(turn)?;
        server.early -= 1;
        let request = std::mem::take(&mut server.slots[index].request.bytes);
        Some(self.hand_over(session, index as u16, Some(request)))
    }

    fn slot_of(&mut self, place: Place) -> Option<&mut ServerSlot> {
        let session = &mut self.sessions.list[place.session as usize];
        let current = session.generation == place.generation;
        let slot = session.server.slots.get_mut(usize::from(place.slot)).filter(|_| current)?;
        (slot.seq == place.seq && slot.stage == Stage::Running).then_some(slot)
    }

    /// Returns the buffer for a reply. Returns `None` if the client no longer waits for this reply.
    pub fn reply_buffer(&mut self, place: Place) -> Option<Vec<u8>> {
        self.slot_of(place).map(|slot| std::mem::take(&mut slot.reply))
    }

    /// Records a reply and sends it. Returns `false` if the client no longer waits for this reply.
    pub fn record_reply(&mut self, place: Place, reply: Vec<u8>) -> bool {
        let (bytes, limit_bytes) = (reply.len(), self.config.message_bytes_max);
        assert!(bytes <= limit_bytes, "reply = {bytes} bytes; allowed: at most {limit_bytes}");
        let Some(slot) = self.slot_of(place) else {
            self.calls.keep(reply);
            return false;
        };
        slot.reply = reply;
        slot.stage = Stage::Replied;
        self.send_reply(place.session, place.slot, 0, 0);
        true
    }

    /// Refuses a request, because its handler does not know it.
    #[cold]
    pub fn refuse(&mut self, place: Place, reply: Vec<u8>) {
        self.link.stats.refused += 1;
        if let Some(slot) = self.slot_of(place) {
            slot.stage = Stage::Void;
        }
        self.calls.keep(reply);
    }

    /// Takes the buffer of a reply back from a handler that will reply later.
    pub fn defer_reply(&mut self, place: Place, reply: Vec<u8>) {
        let Some(slot) = self.slot_of(place) else { return self.calls.keep(reply) };
        slot.reply = reply;
        if slot.fragments > 1 {
            self.owe_ack(place.session, place.slot);
        }
    }

    /// Sends fragments of a recorded reply, from the fragment `first` on. The window of fragments starts at `base`
    /// and limits the fragments that may be sent.
    fn send_reply(&mut self, session: u32, index: u16, base: u32, first: u32) {
        let fragments = self.link.fragments;
        let session = &mut self.sessions.list[session as usize];
        let slot = &mut session.server.slots[usize::from(index)];
        let count = fragments.count(slot.reply.len());
        let end = count.min(base.saturating_add(self.config.fragments_in_flight));
        for fragment in first..end {
            let header = Header {
                kind: PacketKind::Reply,
                fifo: false,
                again: false,
                slot: index,
                handler: slot.handler,
                seq: slot.seq,
                total_bytes: slot.reply.len() as u32,
                fragment,
                floor_lag: 0,
            };
            let range = fragments.range(fragment, slot.reply.len());
            session.outbox.push(&mut self.link, &header, &slot.reply[range]);
        }
        slot.reply_sent = slot.reply_sent.max(end);
    }

    /// Processes a client's request for more of a reply. The request says up to which fragment the client has the
    /// reply.
    pub fn on_more(&mut self, session: u32, header: &Header) {
        let server = &self.sessions.list[session as usize].server;
        let Some(slot) = server.slots.get(usize::from(header.slot)) else { return };
        if slot.seq != header.seq || slot.stage != Stage::Replied {
            return;
        }
        let base = header.fragment;
        let first = if header.again { base } else { slot.reply_sent.max(base) };
        self.send_reply(session, header.slot, base, first);
    }

    fn owe_ack(&mut self, session: u32, index: u16) {
        let slot = &mut self.sessions.list[session as usize].server.slots[usize::from(index)];
        if !std::mem::replace(&mut slot.ack_due, true) {
            self.acks_due.push((session, index));
        }
    }

    /// Tells clients which fragments of their requests have arrived. The layer calls this function once per poll.
    pub fn acknowledge(&mut self) {
        while let Some((session, index)) = self.acks_due.pop() {
            let session = &mut self.sessions.list[session as usize];
            let Some(slot) = session.server.slots.get_mut(usize::from(index)) else { continue };
            if !std::mem::take(&mut slot.ack_due) {
                continue;
            }
            let receiving = slot.stage == Stage::Receiving;
            let header = Header {
                kind: PacketKind::Ack,
                fifo: false,
                again: false,
                slot: index,
                handler: slot.handler,
                seq: slot.seq,
                total_bytes: 0,
                fragment: if receiving { slot.request.first_missing() } else { slot.fragments },
                floor_lag: 0,
            };
            session.outbox.push(&mut self.link, &header, &[]);
        }
    }
}
