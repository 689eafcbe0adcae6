//! At-most-once calls over datagrams that may be lost, duplicated, delayed or reordered.
//!
//! - [`Rpc`]: the RPC layer of one thread: its handlers, calls and notifications, and [`Rpc::poll`], which the thread
//!   calls in a loop.
//! - `session`: pairs of incarnations, and datagrams that are being filled. `client`: calls, slots, time-outs.
//!   `server`: at-most-once execution, recorded replies, order. `reassembly` and `wire`: the bytes of messages.
//!
//! Invariants:
//! - A handler runs at most once for each request. A duplicate of the request gets the recorded reply (Birrell and
//!   Nelson, "Implementing remote procedure calls", TOCS 1984). If a call ends in an error, its handler has run once
//!   or never.
//! - Every datagram contains the incarnations of its sender and its receiver. A restarted node runs no request that
//!   was sent to its former incarnation, and the calls of these requests end in `NodeDown`. Within one incarnation,
//!   an endpoint has only one `Rpc`, because the `Rpc` stores the numbers of calls.
//! - No packet waits until a datagram is full. Packets to the same destination that are created between two polls
//!   share a datagram. At its end, every poll sends all packets.
//! - One thread uses the layer. After the first calls, a call allocates no memory. The memory of the layer is bounded
//!   (see `state`).
//!
//! The sessions, the credits, the slots, the client-driven protocol and the loop of polls follow eRPC (Kalia,
//! Kaminsky, Andersen, "Datacenter RPCs can be General and Fast", NSDI 2019). Tarn differs from eRPC in four points.
//! First, the layer copies each received request once, because a handler may call the layer. Second, credits count
//! requests, and each message has its own window of fragments. Third, time-outs are fixed times that double, and
//! there is no congestion control. Fourth, sessions can be ordered.
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

/// The bounds and times of the RPC layer. Both ends of a session must use the same bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct RpcConfig {
    /// The maximum number of requests in flight per session and direction. Further requests wait in a queue.
    pub credits: u16,
    /// The maximum number of calls that may wait per session. A further call ends in `Overloaded`.
    pub queue_max: usize,
    /// The maximum number of peers, and so of sessions.
    pub sessions_max: usize,
    /// The maximum size of a request and of a reply, in bytes.
    pub message_bytes_max: usize,
    /// The maximum number of fragments of one message that may be in flight.
    pub fragments_in_flight: u32,
    /// The time after which the client sends a request again, if no answer has arrived.
    pub retransmit_after: Nanos,
    /// The maximum number of times that `retransmit_after` may double.
    pub backoff_doublings: u32,
    /// The time after which a call ends in `TimedOut`, unless the call names another one.
    pub deadline: Nanos,
    /// **Breaks the contract**: runs the handler again for a duplicate of a request. The option exists so that tests
    /// can prove that they detect this bug.
    #[doc(hidden)]
    pub planted_no_reply_cache: bool,
}

impl RpcConfig {
    /// The bounds and times for threads that poll for messages all the time, on a network that rarely loses a
    /// message.
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

/// Counts of the work that the layer has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RpcStats {
    /// The number of datagrams sent.
    pub datagrams: u64,
    /// The number of packets sent in datagrams.
    pub packets: u64,
    /// The number of times that a call was sent again.
    pub retransmissions: u64,
    /// The number of requests passed to handlers.
    pub executed: u64,
    /// The number of packets of requests whose handler had run or was running already.
    pub duplicates: u64,
    /// The number of datagrams from another incarnation of the sender, or for another incarnation of this node.
    pub stale: u64,
    /// The number of requests that name a handler that is not registered, that exceed a bound, or that their handler
    /// refused.
    pub refused: u64,
}

/// Names a handler. Every node uses the same name for the handler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HandlerId(pub u16);

/// A request in the form in which its handler gets it.
#[derive(Debug)]
pub struct Request<'a> {
    /// The peer that made the call.
    pub from: Peer,
    /// The bytes of the request, which the caller has written.
    pub bytes: &'a [u8],
    /// The right to reply to the request. A handler that replies later keeps this token.
    pub token: ReplyToken,
}

/// The right to reply to one request, once.
#[derive(PartialEq, Eq, Debug)]
pub struct ReplyToken(Place);

/// The decision of a handler about its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The handler has written the reply into the buffer.
    Now,
    /// The handler has kept the token, and will call [`Rpc::reply`] later.
    Later,
    /// The handler does not know this request. The handler has done no work, and the server sends no reply. The layer
    /// counts the refusal ([`RpcStats::refused`]). The caller's call ends at its deadline.
    Refused,
}

type Handler = Box<dyn FnMut(Request<'_>, &mut Vec<u8>) -> Answer>;

struct Shared {
    state: RefCell<State>,
    handlers: RefCell<Vec<Option<Handler>>>,
    inbox: RefCell<Inbox>,
    polling: Cell<bool>,
    /// Whether another layer takes the datagrams that are not this layer's.
    keeps_others: Cell<bool>,
    others: RefCell<Vec<Vec<u8>>>,
    port: Port,
}

/// Datagrams that the layer has taken from the port, so that the layer can process them without borrowing the port.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    ends: Vec<(Endpoint, usize)>,
}

/// The RPC layer of one thread. Clones share the same layer. See the module's documentation.
#[derive(Clone)]
pub struct Rpc {
    shared: Rc<Shared>,
}

impl Rpc {
    /// Creates the layer over `port`. From now on, the layer receives all datagrams of this port.
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
            keeps_others: Cell::new(false),
            others: RefCell::default(),
            port,
        };
        Rpc { shared: Rc::new(shared) }
    }

    /// Returns the port that the layer uses.
    pub fn port(&self) -> &Port {
        &self.shared.port
    }

    /// Sets the function that runs for requests to the handler `id`. The layer drops a request whose handler is not
    /// registered. A handler that owns a clone of this layer keeps the layer alive for ever. Such a handler should
    /// own the port instead of the layer, or a coroutine should make the handler's calls.
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

    /// Makes all later requests to `peer` reach their handlers in the order of the calls. If a handler replies later,
    /// the next request need not wait for that reply.
    ///
    /// # Errors
    /// `NodeDown` if the layer has seen a later incarnation of the peer. `Overloaded` if there are already
    /// `sessions_max` sessions.
    pub fn order(&self, peer: Peer) -> Result<(), FabricError> {
        let mut state = self.shared.state.borrow_mut();
        let session = state.session_for(peer)?;
        state.sessions.list[session as usize].fifo = true;
        Ok(())
    }

    /// Calls the handler `handler` of the peer `to`. The function `fill` writes the request into an empty buffer. The
    /// next poll sends the request. The returned future gives the reply.
    pub fn call(
        &self,
        to: Peer,
        handler: HandlerId,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> CallFuture {
        let within = self.shared.state.borrow().config.deadline;
        self.call_within(to, handler, within, fill)
    }

    /// Does the same as [`Rpc::call`], but the call ends in `TimedOut` after `within`.
    pub fn call_within(
        &self,
        to: Peer,
        handler: HandlerId,
        within: Nanos,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> CallFuture {
        CallFuture::new(self.clone(), self.start(to, handler, Owner::Future, within, fill))
    }

    /// Sends a message that gets no reply. The message's handler runs at most once. The layer sends the message again
    /// until the peer has received it, but not after the default deadline.
    ///
    /// # Errors
    /// Only errors that are known immediately.
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

    /// Replies to a request whose handler returned [`Answer::Later`]. If the caller no longer waits for the reply,
    /// sends no reply and returns `false`.
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

    /// Does the work of the RPC layer. The thread must call this function once per turn of its executor. `poll` takes
    /// up to `budget` datagrams, runs the handlers of their requests, and then sends the packets that are due.
    /// Returns the number of datagrams that it has taken. If a handler calls this function, the function does no work
    /// and returns 0.
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

    /// Hands over the datagrams that have arrived since the last call of this function and are not this layer's, in
    /// their order. Before the first call, such datagrams are lost. Returns their number.
    pub fn take_others(&self, sink: &mut dyn FnMut(&[u8])) -> usize {
        self.shared.keeps_others.set(true);
        let others = std::mem::take(&mut *self.shared.others.borrow_mut());
        others.iter().for_each(|datagram| sink(datagram));
        others.len()
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
            let datagram = &inbox.bytes[start..end];
            if self.shared.keeps_others.get() && wire::take_ends(datagram).is_none() {
                self.shared.others.borrow_mut().push(datagram.to_vec());
            }
            self.on_datagram(from, datagram);
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
            // While a handler ran, the layer may have learned of a later incarnation of the peer.
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

    /// Runs the handler of a request. While the handler runs, the layer's state is not borrowed.
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
