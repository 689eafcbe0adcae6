//! The client part of the RPC layer: unfinished calls, their slots, and the timer that sends calls again.
//!
//! Invariant: a session has the same number of slots and credits, and each slot has at most one call at a time. So
//! the number of requests in flight is never greater than the number of credits. The server also records at most this
//! number of replies. A call never changes its number, and only a reply with that number ends the call. Only the
//! client sends again and measures time, and the server never starts a timer (eRPC, NSDI 2019, §5).
//!
//! Time-outs: the client sends a call again after `retransmit_after`. The time-out doubles with every attempt, up to
//! `backoff_doublings` times. When a fragment is acknowledged or received, the time is `retransmit_after` again.

use super::reassembly::{Reassembly, recycle};
use super::session::Peer;
use super::state::State;
use super::wire::{Header, PacketKind};
use crate::clock::Nanos;
use crate::error::FabricError;
use std::collections::VecDeque;
use std::task::Poll;

/// The value of a slot that has no call.
const NO_CALL: u32 = u32::MAX;
/// The maximum number of message buffers that a thread keeps for later calls.
const SPARE_BUFFERS_MAX: usize = 256;

/// The client part of a session.
#[derive(Default)]
pub struct ClientHalf {
    /// The slots that have no call. The slot that became free last is used first.
    free: Vec<u16>,
    /// The number of the call in each slot. Before the session's first call, this list is empty.
    slots: Vec<u32>,
    /// The calls that wait for a free slot.
    waiting: VecDeque<u32>,
    /// The number that was given to the most recent call.
    last_seq: u64,
}

/// Names a call of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallId {
    index: u32,
    generation: u32,
}

/// Says which kind of caller waits for the end of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A future waits for the end of the call.
    Future,
    /// No caller waits, because the future was dropped.
    Dropped,
    /// No caller waits, because the call is a notification.
    Notification,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Free,
    Waiting,
    InFlight,
    Done(Result<(), FabricError>),
}

struct Call {
    generation: u32,
    stage: Stage,
    owner: Owner,
    session: u32,
    slot: u16,
    handler: u16,
    seq: u64,
    request: Vec<u8>,
    /// The number of fragments of the request. The next two fields count the fragments that were sent, and the
    /// fragments that have certainly arrived.
    fragments: u32,
    sent: u32,
    acked: u32,
    reply: Reassembly,
    /// Whether the client must request more of the reply from the server before the next flush.
    more_due: bool,
    attempts: u32,
    due: Nanos,
    deadline: Nanos,
}

/// All calls of a thread. The list of calls grows to the largest number of unfinished calls that the thread ever has,
/// and never shrinks.
#[derive(Default)]
pub struct Calls {
    list: Vec<Call>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
    /// The time before which no call must be sent again or ended.
    next_due: Nanos,
    more_due: Vec<u32>,
}

impl Calls {
    /// Returns an empty buffer. If possible, the function reuses the memory of an old buffer.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps a buffer for a later call.
    pub fn keep(&mut self, mut buffer: Vec<u8>) {
        recycle(&mut buffer);
        if buffer.capacity() > 0 && self.spare.len() < SPARE_BUFFERS_MAX {
            self.spare.push(buffer);
        }
    }

    fn claim(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        self.list.push(Call {
            generation: 0,
            stage: Stage::Free,
            owner: Owner::Future,
            session: 0,
            slot: 0,
            handler: 0,
            seq: 0,
            request: Vec::new(),
            fragments: 0,
            sent: 0,
            acked: 0,
            reply: Reassembly::default(),
            more_due: false,
            attempts: 0,
            due: Nanos(0),
            deadline: Nanos(0),
        });
        self.list.len() as u32 - 1
    }

    fn release(&mut self, index: u32) {
        let call = &mut self.list[index as usize];
        call.generation = call.generation.wrapping_add(1);
        call.stage = Stage::Free;
        call.more_due = false;
        call.reply.clear();
        let (request, reply) =
            (std::mem::take(&mut call.request), std::mem::take(&mut call.reply.bytes));
        self.keep(request);
        self.keep(reply);
        self.free.push(index);
    }

    fn arm(&mut self, due: Nanos) {
        self.next_due = self.next_due.min(due);
    }
}

impl State {
    /// Starts a call of a session. If the session has no free credit, the call waits in a queue.
    pub fn start_call(
        &mut self,
        to: Peer,
        handler: u16,
        owner: Owner,
        deadline: Nanos,
        request: Vec<u8>,
    ) -> Result<CallId, FabricError> {
        let (bytes, limit_bytes) = (request.len(), self.config.message_bytes_max);
        let session = self.session_for(to).and_then(|session| {
            let client = &self.sessions.list[session as usize].client;
            if bytes > limit_bytes {
                Err(FabricError::MessageTooLarge { bytes, limit_bytes })
            } else if client.waiting.len() >= self.config.queue_max {
                Err(FabricError::Overloaded(to.node.slot))
            } else {
                Ok(session)
            }
        });
        let session = match session {
            Ok(session) => session,
            Err(error) => {
                self.calls.keep(request);
                return Err(error);
            }
        };
        let index = self.calls.claim();
        let call = &mut self.calls.list[index as usize];
        call.stage = Stage::Waiting;
        call.owner = owner;
        call.session = session;
        call.handler = handler;
        call.fragments = self.link.fragments.count(bytes);
        call.request = request;
        call.deadline = deadline;
        let id = CallId { index, generation: call.generation };
        self.calls.arm(deadline);
        self.sessions.list[session as usize].client.waiting.push_back(index);
        self.start_waiting(session);
        Ok(id)
    }

    /// Gives free slots to the calls that wait for one.
    fn start_waiting(&mut self, session: u32) {
        let credits = self.config.credits;
        loop {
            let client = &mut self.sessions.list[session as usize].client;
            if client.slots.is_empty() {
                client.slots.resize(usize::from(credits), NO_CALL);
                client.free.extend((0..credits).rev());
            }
            if client.free.is_empty() {
                return;
            }
            let Some(index) = client.waiting.pop_front() else { return };
            let call = &mut self.calls.list[index as usize];
            if call.owner == Owner::Dropped {
                self.calls.release(index);
                continue;
            }
            let slot = client.free.pop().expect("the loop ends when no slot is free");
            client.slots[usize::from(slot)] = index;
            client.last_seq += 1;
            call.stage = Stage::InFlight;
            call.slot = slot;
            call.seq = client.last_seq;
            (call.sent, call.acked, call.attempts) = (0, 0, 0);
            self.send_request(index, false);
        }
    }

    /// Sends those fragments of a request that the request's window of fragments allows.
    fn send_request(&mut self, index: u32, again: bool) {
        let floor = self.floor(index);
        let call = &mut self.calls.list[index as usize];
        let session = &mut self.sessions.list[call.session as usize];
        let end = call.fragments.min(call.acked + self.config.fragments_in_flight);
        for fragment in call.sent..end {
            let header = Header {
                kind: PacketKind::Request,
                fifo: session.fifo,
                again,
                slot: call.slot,
                handler: call.handler,
                seq: call.seq,
                total_bytes: call.request.len() as u32,
                fragment,
                floor_lag: (call.seq - floor).min(u64::from(u32::MAX)) as u32,
            };
            let range = self.link.fragments.range(fragment, call.request.len());
            session.outbox.push(&mut self.link, &header, &call.request[range]);
        }
        call.sent = call.sent.max(end);
        self.rearm(index);
    }

    /// Returns the smallest number of a call that this session has not finished or abandoned. Only ordered sessions
    /// use this number.
    fn floor(&self, index: u32) -> u64 {
        let call = &self.calls.list[index as usize];
        let session = &self.sessions.list[call.session as usize];
        if !session.fifo {
            return call.seq;
        }
        let under_way = session.client.slots.iter().filter(|&&other| other != NO_CALL);
        under_way.map(|&other| self.calls.list[other as usize].seq).min().unwrap_or(call.seq)
    }

    fn rearm(&mut self, index: u32) {
        let call = &mut self.calls.list[index as usize];
        let doublings = call.attempts.min(self.config.backoff_doublings);
        call.due = self.now + Nanos(self.config.retransmit_after.0 << doublings);
        let due = call.due;
        self.calls.arm(due);
    }

    fn call_of(&self, session: u32, header: &Header) -> Option<u32> {
        let client = &self.sessions.list[session as usize].client;
        let index = *client.slots.get(usize::from(header.slot))?;
        let found = index != NO_CALL && self.calls.list[index as usize].seq == header.seq;
        found.then_some(index)
    }

    /// Processes a fragment of a reply.
    pub fn on_reply(&mut self, session: u32, header: &Header, payload: &[u8]) {
        let total_bytes = header.total_bytes as usize;
        let Some(index) = self.call_of(session, header) else { return };
        if total_bytes > self.config.message_bytes_max {
            return;
        }
        let fragments = self.link.fragments;
        let call = &mut self.calls.list[index as usize];
        if call.reply.bytes.capacity() == 0 {
            call.reply.bytes = self.calls.spare.pop().unwrap_or_default();
        }
        if !call.reply.has_begun() {
            call.reply.begin(fragments, total_bytes);
        } else if call.reply.bytes.len() != total_bytes {
            return;
        }
        call.reply.insert(fragments, header.fragment, payload);
        if call.reply.is_complete() {
            self.finish(index, Ok(()));
        } else {
            call.acked = call.fragments;
            call.attempts = 0;
            if !std::mem::replace(&mut call.more_due, true) {
                self.calls.more_due.push(index);
            }
            self.rearm(index);
        }
    }

    /// Processes an acknowledgement, which says up to which fragment the server has the request.
    pub fn on_ack(&mut self, session: u32, header: &Header) {
        let Some(index) = self.call_of(session, header) else { return };
        let call = &mut self.calls.list[index as usize];
        if header.fragment > call.acked && header.fragment <= call.fragments {
            call.acked = header.fragment;
            call.sent = call.sent.max(call.acked);
            call.attempts = 0;
            self.send_request(index, false);
        }
    }

    /// Requests the rest of replies that have begun to arrive. The layer calls this function once per poll.
    pub fn ask_for_more(&mut self) {
        while let Some(index) = self.calls.more_due.pop() {
            let call = &mut self.calls.list[index as usize];
            if std::mem::take(&mut call.more_due) && call.stage == Stage::InFlight {
                self.send_more(index, false);
            }
        }
    }

    fn send_more(&mut self, index: u32, again: bool) {
        let call = &self.calls.list[index as usize];
        let header = Header {
            kind: PacketKind::More,
            fifo: false,
            again,
            slot: call.slot,
            handler: call.handler,
            seq: call.seq,
            total_bytes: 0,
            fragment: call.reply.first_missing(),
            floor_lag: 0,
        };
        self.sessions.list[call.session as usize].outbox.push(&mut self.link, &header, &[]);
    }

    /// Sends calls again whose time-out has expired, and ends calls whose deadline has passed.
    pub fn look_at_timers(&mut self) {
        if self.now < self.calls.next_due {
            return;
        }
        self.calls.next_due = Nanos(u64::MAX);
        for index in 0..self.calls.list.len() as u32 {
            let call = &self.calls.list[index as usize];
            if !matches!(call.stage, Stage::Waiting | Stage::InFlight) {
                continue;
            }
            let (deadline, due, in_flight) =
                (call.deadline, call.due, call.stage == Stage::InFlight);
            if deadline <= self.now {
                let node = self.sessions.list[call.session as usize].peer.node.slot;
                self.finish(index, Err(FabricError::TimedOut(node)));
                continue;
            }
            self.calls.arm(deadline);
            if in_flight && due <= self.now {
                self.send_again(index);
            } else if in_flight {
                self.calls.arm(due);
            }
        }
    }

    fn send_again(&mut self, index: u32) {
        self.link.stats.retransmissions += 1;
        let call = &mut self.calls.list[index as usize];
        call.attempts += 1;
        if call.reply.has_begun() {
            self.send_more(index, true);
            self.rearm(index);
        } else {
            // All fragments of the request have arrived, but no reply came. When the client sends the last fragment
            // again, the server sends the reply again.
            call.sent = call.acked.min(call.fragments - 1);
            self.send_request(index, true);
        }
    }

    /// Ends a call, whose slot then serves the next call.
    fn finish(&mut self, index: u32, result: Result<(), FabricError>) {
        let call = &mut self.calls.list[index as usize];
        let (session, slot) = (call.session, call.slot);
        let stage = std::mem::replace(&mut call.stage, Stage::Done(result));
        let wanted = call.owner == Owner::Future;
        let client = &mut self.sessions.list[session as usize].client;
        if stage == Stage::InFlight {
            client.slots[usize::from(slot)] = NO_CALL;
            client.free.push(slot);
        } else {
            client.waiting.retain(|&other| other != index);
        }
        if !wanted {
            self.calls.release(index);
        }
        self.start_waiting(session);
    }

    /// Ends all calls of a session whose peer's incarnation has ended.
    pub fn fail_calls(&mut self, session: u32) {
        let node = self.sessions.list[session as usize].peer.node.slot;
        let client = std::mem::take(&mut self.sessions.list[session as usize].client);
        let under_way = client.slots.into_iter().filter(|&index| index != NO_CALL);
        for index in under_way.chain(client.waiting) {
            let call = &mut self.calls.list[index as usize];
            call.stage = Stage::Done(Err(FabricError::NodeDown(node)));
            if call.owner != Owner::Future {
                self.calls.release(index);
            }
        }
    }

    /// Returns the result of a call that has ended: the reply's bytes, or the error. The layer then removes the call.
    pub fn take_result(&mut self, id: CallId) -> Poll<Result<Vec<u8>, FabricError>> {
        let call = &mut self.calls.list[id.index as usize];
        debug_assert!(call.generation == id.generation);
        let Stage::Done(result) = call.stage else { return Poll::Pending };
        let reply = result.map(|()| std::mem::take(&mut call.reply.bytes));
        self.calls.release(id.index);
        Poll::Ready(reply)
    }

    /// Notes that no caller waits for the call any more.
    pub fn abandon(&mut self, id: CallId) {
        let call = &mut self.calls.list[id.index as usize];
        debug_assert!(call.generation == id.generation);
        if matches!(call.stage, Stage::Done(_)) {
            self.calls.release(id.index);
        } else {
            call.owner = Owner::Dropped;
        }
    }
}
