//! At-most-once calls over datagrams that may be lost, doubled, delayed or reordered.
//!
//! - [`Rpc`]: one thread's layer: handlers, calls, notifications, and [`Rpc::poll`], its driver loop.
//! - `session`: pairs of lives, datagrams being filled. `client`: calls, slots, time-outs.
//!   `server`: at-most-once execution, recorded replies, order. `reassembly`, `wire`: bytes.
//!
//! Invariants:
//! - A request runs at most once: a duplicate gets the recorded reply (Birrell and Nelson,
//!   "Implementing remote procedure calls", TOCS 1984). A call that ends in an error may or may not
//!   have run, never twice.
//! - Every datagram carries the incarnations of both ends. A restarted node runs nothing that was
//!   meant for its former life; its callers' calls end in `NodeDown`. Within one incarnation an
//!   endpoint has one `Rpc`: the numbers of calls live in it.
//! - Nothing waits to fill a batch: packets to one destination share a datagram because they were
//!   made between two polls, and every poll ends by sending all packets.
//! - One thread; no allocation per call once warm; bounded memory (see `state`).
//!
//! Sessions, credits, slots, client-driven protocol and the driver loop are those of eRPC (Kalia,
//! Kaminsky, Andersen, "Datacenter RPCs can be General and Fast", NSDI 2019). We differ in four
//! points. Requests received are copied once, because a handler may call back into the layer.
//! Credits count requests, and each message has its own window of fragments. Time-outs are fixed
//! with doubling instead of congestion control. Sessions can be ordered.
//!
//! ```
//! use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
//! use tarn_fabric::executor::Executor;
//! use tarn_fabric::local::{LocalConfig, LocalFabric};
//! use tarn_fabric::rpc::{Answer, HandlerId, Peer, Rpc, RpcConfig};
//!
//! const DOUBLE: HandlerId = HandlerId(0);
//! let fabric = LocalFabric::new(&LocalConfig::default())?;
//! let node = |slot| NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) };
//! let client = Rpc::new(fabric.port(node(0), 0, 42), RpcConfig::default());
//! let server = Rpc::new(fabric.port(node(1), 0, 42), RpcConfig::default());
//! server.register(DOUBLE, |request, reply| {
//!     reply.extend(request.bytes.iter().map(|byte| byte * 2));
//!     Answer::Now
//! });
//!
//! let mut executor = Executor::new();
//! executor.spawn(async {
//!     let to = Peer { node: node(1), thread: 0 };
//!     let reply = client.call(to, DOUBLE, |bytes| bytes.extend([1, 2, 3])).await.unwrap();
//!     assert_eq!(*reply, [2, 4, 6]);
//! });
//! executor.run_with(|| {
//!     client.poll(64);
//!     server.poll(64);
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod future;
mod reassembly;
mod server;
mod session;
mod state;
mod wire;

pub use future::{CallFuture, Reply};
pub use session::Peer;

use crate::backend::{Cost, Endpoint};
use crate::clock::Nanos;
use crate::error::FabricError;
use crate::port::Port;
use client::Owner;
use server::{Place, Work};
use state::State;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The layer's bounds and times. Both ends of a session use the same.
#[derive(Clone, Copy, Debug)]
pub struct RpcConfig {
    /// Requests in flight per session and direction; more wait in a queue.
    pub credits: u16,
    /// Calls that may wait per session; one more ends in `Overloaded`.
    pub queue_max: usize,
    /// Peers.
    pub sessions_max: usize,
    /// Largest request and largest reply, in bytes.
    pub message_bytes_max: usize,
    /// Fragments of one message that may be in flight.
    pub fragments_in_flight: u32,
    /// The time after which a request is sent again.
    pub retransmit_after: Nanos,
    /// How often that time may double.
    pub backoff_doublings: u32,
    /// The time after which a call ends in `TimedOut`, unless the call names another one.
    pub deadline: Nanos,
    /// **Breaks the contract**: runs duplicates again. Here so that tests prove that they would
    /// notice.
    #[doc(hidden)]
    pub planted_no_reply_cache: bool,
}

impl RpcConfig {
    /// Bounds and times for threads that look for messages all the time, on a network that rarely
    /// loses any.
    pub const DEFAULT: RpcConfig = RpcConfig {
        credits: 32,
        queue_max: 1024,
        sessions_max: 1024,
        message_bytes_max: 1 << 20,
        fragments_in_flight: 16,
        retransmit_after: Nanos(500_000),
        backoff_doublings: 6,
        deadline: Nanos(2_000_000_000),
        planted_no_reply_cache: false,
    };
}

impl Default for RpcConfig {
    fn default() -> RpcConfig {
        RpcConfig::DEFAULT
    }
}

/// Counts of the layer's work so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RpcStats {
    /// Datagrams sent.
    pub datagrams: u64,
    /// Packets sent in them.
    pub packets: u64,
    /// Calls sent again.
    pub retransmissions: u64,
    /// Requests handed to handlers.
    pub executed: u64,
    /// Packets of requests that had run or were running already.
    pub duplicates: u64,
    /// Datagrams from or for another incarnation.
    pub stale: u64,
    /// Requests for a handler that is not registered, outside the bounds, or refused by their handler.
    pub refused: u64,
}

/// Names a handler, the same on every node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HandlerId(pub u16);

/// A request, as its handler sees it.
#[derive(Debug)]
pub struct Request<'a> {
    /// The caller.
    pub from: Peer,
    /// The bytes that the caller filled in.
    pub bytes: &'a [u8],
    /// The handler keeps it to reply later.
    pub token: ReplyToken,
}

/// The right to reply to one request, once.
#[derive(PartialEq, Eq, Debug)]
pub struct ReplyToken(Place);

/// A handler's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The reply is in the buffer.
    Now,
    /// The handler kept the token; [`Rpc::reply`] follows.
    Later,
    /// The handler does not know this request: it did nothing, and there will be no reply. The
    /// refusal is counted ([`RpcStats::refused`]); the caller's deadline ends its call.
    Refused,
}

type Handler = Box<dyn FnMut(Request<'_>, &mut Vec<u8>) -> Answer>;

struct Shared {
    state: RefCell<State>,
    handlers: RefCell<Vec<Option<Handler>>>,
    inbox: RefCell<Inbox>,
    polling: Cell<bool>,
    port: Port,
}

/// Datagrams taken from the port, so that they can be looked at without borrowing it.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    ends: Vec<(Endpoint, usize)>,
}

/// One thread's layer; clones share it. See the module's text.
#[derive(Clone)]
pub struct Rpc {
    shared: Rc<Shared>,
}

impl Rpc {
    /// Makes the layer over `port`. From now on all of the port's datagrams belong to the layer.
    pub fn new(port: Port, config: RpcConfig) -> Rpc {
        assert!(config.credits > 0);
        assert!(config.fragments_in_flight > 0);
        assert!(config.backoff_doublings < 32);
        assert!(config.message_bytes_max <= u32::MAX as usize);
        let shared = Shared {
            state: RefCell::new(State::new(port.clone(), config)),
            handlers: RefCell::default(),
            inbox: RefCell::default(),
            polling: Cell::new(false),
            port,
        };
        Rpc { shared: Rc::new(shared) }
    }

    /// The port underneath.
    pub fn port(&self) -> &Port {
        &self.shared.port
    }

    /// Sets the function that runs for `id`. A request for an unregistered handler is dropped,
    /// unrun. A handler that owns a clone of this layer keeps it alive for ever; let it hold the
    /// port instead, or leave the calling to a coroutine.
    pub fn register(
        &self,
        HandlerId(id): HandlerId,
        handler: impl FnMut(Request<'_>, &mut Vec<u8>) -> Answer + 'static,
    ) {
        let (index, mut handlers) = (usize::from(id), self.shared.handlers.borrow_mut());
        let known = &mut self.shared.state.borrow_mut().handlers_known;
        if handlers.len() <= index {
            handlers.resize_with(index + 1, || None);
            known.resize(index + 1, false);
        }
        handlers[index] = Some(Box::new(handler));
        known[index] = true;
    }

    /// Makes all later requests to `peer` reach their handlers in the order of the calls. A handler
    /// that replies later does not hold up the next request.
    ///
    /// # Errors
    /// `NodeDown` if a later life of the peer was seen; `Overloaded` above `sessions_max`.
    pub fn order(&self, peer: Peer) -> Result<(), FabricError> {
        let mut state = self.shared.state.borrow_mut();
        let session = state.session_for(peer)?;
        state.sessions.list[session as usize].fifo = true;
        Ok(())
    }

    /// Calls `handler` at `to` with the request that `fill` writes into an empty buffer. The
    /// request leaves with the next poll; awaiting gives the reply.
    pub fn call(
        &self,
        to: Peer,
        handler: HandlerId,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> CallFuture {
        let within = self.shared.state.borrow().config.deadline;
        self.call_within(to, handler, within, fill)
    }

    /// [`Rpc::call`] that ends in `TimedOut` after `within`.
    pub fn call_within(
        &self,
        to: Peer,
        handler: HandlerId,
        within: Nanos,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> CallFuture {
        CallFuture::new(self.clone(), self.start(to, handler, Owner::Future, within, fill))
    }

    /// Sends a message that wants no reply. It runs at most once; it is sent again until the other
    /// end has it, but no longer than the default deadline.
    ///
    /// # Errors
    /// Only those known at once.
    pub fn notify(
        &self,
        to: Peer,
        handler: HandlerId,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), FabricError> {
        let within = self.shared.state.borrow().config.deadline;
        self.start(to, handler, Owner::Notification, within, fill).map(|_| ())
    }

    fn start(
        &self,
        to: Peer,
        HandlerId(handler): HandlerId,
        owner: Owner,
        within: Nanos,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<client::CallId, FabricError> {
        let mut request = self.shared.state.borrow_mut().calls.buffer();
        fill(&mut request);
        let mut state = self.shared.state.borrow_mut();
        state.now = self.shared.port.now();
        let deadline = state.now + within;
        state.start_call(to, handler, owner, deadline, request)
    }

    /// Replies to a request whose handler returned [`Answer::Later`]. Returns `false` if the caller
    /// no longer waits for the reply; then nothing is sent.
    pub fn reply(&self, ReplyToken(place): ReplyToken, fill: impl FnOnce(&mut Vec<u8>)) -> bool {
        let buffer = self.shared.state.borrow_mut().reply_buffer(place);
        let Some(mut reply) = buffer else { return false };
        fill(&mut reply);
        self.shared.state.borrow_mut().record_reply(place, reply)
    }

    /// Returns the counts of the layer's work so far.
    pub fn stats(&self) -> RpcStats {
        self.shared.state.borrow().link.stats
    }

    /// The driver loop's body, to be called once a turn of the thread's executor. It takes up to
    /// `budget` datagrams and runs the handlers of their requests, then sends the packets that are
    /// due. Returns the number of datagrams taken. A handler that calls it gets 0.
    pub fn poll(&self, budget: usize) -> usize {
        if self.shared.polling.replace(true) {
            return 0;
        }
        let taken = self.receive(budget);
        self.dispatch();
        let mut state = self.shared.state.borrow_mut();
        state.look_at_timers();
        state.acknowledge();
        state.ask_for_more();
        let State { sessions, link, .. } = &mut *state;
        sessions.flush(link);
        self.shared.polling.set(false);
        taken
    }

    fn receive(&self, budget: usize) -> usize {
        self.shared.state.borrow_mut().now = self.shared.port.now();
        let Inbox { bytes, ends } = &mut *self.shared.inbox.borrow_mut();
        bytes.clear();
        ends.clear();
        self.shared.port.receive(budget, &mut |from, datagram| {
            bytes.extend_from_slice(datagram);
            ends.push((from, bytes.len()));
        })
    }

    fn dispatch(&self) {
        let inbox = self.shared.inbox.borrow();
        let mut start = 0;
        for &(from, end) in &inbox.ends {
            self.on_datagram(from, &inbox.bytes[start..end]);
            start = end;
        }
    }

    fn on_datagram(&self, from: Endpoint, datagram: &[u8]) {
        let admitted = self.shared.state.borrow_mut().admit(from, datagram);
        let Some((session, mut packets)) = admitted else { return };
        let generation = self.generation(session);
        while let Some((header, payload)) = wire::take_packet(&mut packets) {
            self.shared.port.charge(Cost::Handler);
            let work = self.shared.state.borrow_mut().on_packet(session, &header, payload);
            if let Some(work) = work {
                self.run(work, payload);
            }
            while let Some(work) = self.next_in_order(session) {
                self.run(work, &[]);
            }
            // A handler may have learned of a later life of the peer.
            if self.generation(session) != generation {
                return;
            }
        }
    }

    fn generation(&self, session: u32) -> u32 {
        self.shared.state.borrow().sessions.list[session as usize].generation
    }

    fn next_in_order(&self, session: u32) -> Option<Work> {
        self.shared.state.borrow_mut().next_in_order(session)
    }

    /// Runs a handler. Nothing is borrowed meanwhile.
    fn run(&self, work: Work, payload: &[u8]) {
        let Work { place, handler: id, from, assembled, mut reply } = work;
        let index = usize::from(id);
        let handler = self.shared.handlers.borrow_mut()[index].take();
        let mut handler = handler.expect(
            "the handler is registered, and no handler runs within a \
                                          handler",
        );
        let bytes = assembled.as_deref().unwrap_or(payload);
        let answer = handler(Request { from, bytes, token: ReplyToken(place) }, &mut reply);
        self.shared.handlers.borrow_mut()[index].get_or_insert(handler);
        let mut state = self.shared.state.borrow_mut();
        match answer {
            Answer::Now => {
                state.record_reply(place, reply);
            }
            Answer::Later => state.defer_reply(place, reply),
            Answer::Refused => state.refuse(place, reply),
        }
        if let Some(request) = assembled {
            state.calls.keep(request);
        }
    }
}
