//! The interface between a port and a fabric: the operations that every fabric must have.
//!
//! Invariant: a round takes two virtual calls (`post` and `complete`), and a verb takes none. So the same compiled
//! protocols run on threads, on a simulated cluster and on a network. A backend belongs to one thread. Inside, a
//! backend may share memory with the backends of other threads.

use crate::address::{NodeId, NodeSlot};
use crate::clock::{ClockInterval, Nanos};
use crate::error::FabricError;
use crate::local::Hold;
use crate::round::Round;
use crate::window::{Closed, Drift, Wait, Window};
use std::task::Poll;

/// The capabilities of a backend that the contract does not demand of every backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Whether memory nodes execute masked CAS. No system of the engine uses masked CAS yet.
    pub masked_cas: bool,
    /// The maximum size of a datagram in bytes.
    pub datagram_bytes_max: usize,
    /// Whether no verb of a round takes effect after the round's future was dropped. If a backend ends dropped rounds
    /// in this way, a thread that learns of the drop may read the round's effects through any port. In other
    /// backends, the thread may read these effects only through the port that sent the round ([`Backend::abandon`]).
    pub ends_when_dropped: bool,
}

/// The state of a round directly after the backend has posted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// The round is complete, and its results are in the round.
    Done(Result<(), FabricError>),
    /// The round is not complete yet. The caller calls `complete` until the round has ended.
    InFlight,
}

/// The cost of a piece of local work. The simulator adds this cost to the thread's virtual time. Real backends ignore
/// the cost, because the work itself takes the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// The number of nanoseconds of some work outside the engine (for example a lock service's critical section).
    WorkNanos(u64),
    /// The work of passing one message, a request or a reply, to its receiver.
    Handler,
    /// The work of a coordinator for one try of a transaction, except rounds and messages. A coordinator's work for a
    /// try includes drawing and hashing keys, managing the working set, copying and comparing bytes, and creating
    /// versions and log records.
    Transaction {
        /// The number of records that the try requested.
        records: u32,
        /// The number of requested records that the try did not only read.
        written: u32,
    },
    /// The work of a coordinator for one try that needs no working set. All keys of a try without a working set are
    /// known from the start, and the try only reads records.
    Together {
        /// The number of records that the try requested.
        records: u32,
    },
    /// The work of one access to a table in the compute node's own memory.
    LocalLookup,
    /// The work of one compare-and-swap on the compute node's own memory.
    LocalAtomic,
}

/// The destination of messages: a thread of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// The node to which messages are sent.
    pub node: NodeSlot,
    /// The number of the thread on that node.
    pub thread: u16,
}

/// A part of a compute node's own memory that coroutines of several nodes access, for example a lock in the node's
/// lock table. Several objects may share the number of one part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocalPart {
    /// The compute node to which the memory belongs.
    pub node: NodeSlot,
    /// The part's number, below [`LOCAL_PARTS`].
    pub number: u16,
}

/// The number of parts of one compute node's memory.
pub const LOCAL_PARTS: u16 = 256;

/// Names a detached round, which completes although no coroutine awaits it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detached(pub u64);

/// The access of one thread to a fabric.
pub trait Backend {
    /// Returns this backend's capabilities.
    fn caps(&self) -> Caps;

    /// Returns the compute node to which this thread belongs.
    fn node(&self) -> NodeId;

    /// Returns this thread's endpoint for messages.
    fn endpoint(&self) -> Endpoint;

    /// Sends a round. After `post` has returned, the backend may not keep references into the round. The backend
    /// copies the parts that it needs, or does the work in `complete`.
    fn post(&self, round: &mut Round) -> Posted;

    /// Prefetches the lines of a round that the caller will soon send as [`Round::hot`]. Returns whether the caller
    /// should wait for the lines. If the result is true, the caller lets other coroutines run before it sends the
    /// round. The caller calls [`Backend::warmed`] when it sends the round or abandons it.
    fn warm(&self, _round: &Round) -> bool {
        false
    }

    /// Ends a wait for which [`Backend::warm`] returned `true`.
    fn warmed(&self) {}

    /// Returns whether a posted round is complete. If the round is complete, its results are in the round. The caller
    /// must pass the posted round, in which only the backend has changed anything.
    ///
    /// Each verb of a complete round has been executed or will never be executed, even if the round ended in an
    /// error. An error does not say which verbs were executed. At each node, even at a node that did not fail, any
    /// part of the batch that the order of verbs allows may have been executed. Some backends execute the batches of
    /// the other nodes after an error. Other backends stop at the first verb that fails.
    fn complete(&self, round: &mut Round) -> Poll<Result<(), FabricError>>;

    /// If this thread can access the memory nodes by its own loads and stores, returns the memory nodes as near
    /// memory.
    fn near(&self) -> Option<&Hold> {
        None
    }

    /// Stops waiting for a posted round. When this function has returned, the backend does not access the round's
    /// memory any more.
    ///
    /// The verbs of the abandoned round may or may not take effect. At each node, the verbs that take effect come
    /// before the verbs of rounds that this port posts later, as if all were one batch. (Rounds that this port had
    /// posted earlier remain concurrent with the abandoned round.) So a coroutine may read an abandoned round's
    /// effects through this port. At each node, it then sees all effects that the round will ever have there. Between
    /// the abandoned round and rounds of other ports, there is no order.
    fn abandon(&self, round: &mut Round);

    /// Sends a round that is not awaited. At each node, verbs of later rounds of this port come after the verbs of
    /// this round, as if all were one batch.
    ///
    /// # Errors
    /// The call returns only errors that are known immediately.
    fn post_detached(&self, round: &mut Round) -> Result<Detached, FabricError>;

    /// Returns whether a detached round has completed, and its result. After the round has completed, every call
    /// returns the same result, even to another coroutine.
    fn detached(&self, detached: Detached) -> Poll<Result<(), FabricError>>;

    /// Requests that memory node `at`, in its present incarnation, execute no more verbs of the node `whom`. A
    /// revocation is a control request, not a verb, and a caller may repeat it. The caller learns of its completion
    /// by [`Backend::detached`]. When the request is complete, all verbs of `whom` at `at` have ended, and `at` will
    /// never execute another verb of `whom`. From then on, rounds of `whom` to `at` end in `Fenced`.
    ///
    /// # Errors
    /// The same errors as `post_detached`. If the memory node is down, the request completes with `NodeDown`. A node
    /// that is down executes no verb of `whom` either.
    fn revoke(&self, whom: NodeId, at: NodeSlot) -> Result<Detached, FabricError>;

    /// Tells the backend that the coroutine being polled has nothing to do before the time `until`, unless one of its
    /// rounds completes earlier. This call is only a hint. A backend in virtual time need not poll the coroutine
    /// before that time.
    fn park_until(&self, _until: Nanos) {}

    /// Returns the number of nanoseconds since the fabric started, by this thread's clock. The clock never goes back.
    /// The clocks of two nodes may differ.
    fn now(&self) -> Nanos;

    /// Returns the true time, by an observer's clock that is the same for all nodes. Code that records histories
    /// stamps them with the true time, because a checker compares stamps of different nodes. No node of a network can
    /// know the true time, so no code may base a decision on it. If all nodes share one clock, the result is the time
    /// of that clock.
    fn observed(&self) -> Nanos {
        self.now()
    }

    /// Returns the cluster's time as an interval, because the time is uncertain.
    fn clock(&self) -> ClockInterval;

    /// Returns the maximum error of this thread's clock, by which windows and waits are measured.
    fn drift(&self) -> Drift;

    /// Returns the time. A caller may use it only to measure the duration of some work, not for decisions. Returns
    /// `None` if the backend has no time.
    fn stopwatch(&self) -> Option<Nanos> {
        Some(self.now())
    }

    /// Opens a window. The window begins before every READ that the coroutine sends from now on. In some backends,
    /// another part of the program chooses the moment at which a window opens. Until that moment, the result of this
    /// call is pending. While the result is pending, the coroutine repeats this call, and makes none of the three
    /// calls below. The three calls below may be pending for the same reason.
    fn open_window(&self) -> Poll<Window> {
        Poll::Ready(Window(self.now().0))
    }

    /// Closes a window after all READs of the coroutine so far, and returns whether the window was shorter than
    /// `lease`. A backend may always answer "no", and must do so for a lease of 0.
    fn close_window(&self, window: Window, lease: Nanos) -> Poll<Closed> {
        let passed = self.now() - Nanos(window.0);
        let is_shorter = self.drift().is_shorter(passed, lease);
        Poll::Ready(Closed { is_shorter, passed: Some(passed) })
    }

    /// Begins a wait. The wait begins after all events that the coroutine knows of.
    fn begin_wait(&self) -> Poll<Wait> {
        Poll::Ready(Wait(self.now().0))
    }

    /// Is ready when at least `length` has passed since a wait began. When the result is ready, the wait has ended
    /// before any round that the coroutine posts from now on.
    fn end_wait(&self, wait: Wait, length: Nanos) -> Poll<()> {
        let end = self.drift().end_of(Nanos(wait.0), length);
        if self.now() >= end {
            return Poll::Ready(());
        }
        self.park_until(end);
        Poll::Pending
    }

    /// See [`crate::port::Port::announce_writes`].
    fn announce_writes(&self) {}

    /// Adds the cost of some local work to the thread's virtual time, if the backend has virtual time.
    fn charge(&self, cost: Cost);

    /// Returns whether the backend uses the costs passed to [`Backend::charge`]. If the backend ignores costs, a
    /// caller need not compute them.
    fn charges(&self) -> bool {
        true
    }

    /// Tells the backend that the coroutine being polled has accessed a part of some compute node's local memory. The
    /// coroutine has found the value `told` there, or has changed the part. Only a backend that explores every order
    /// of events needs this call, because it cannot observe the memory of compute nodes. Other backends ignore the
    /// call.
    fn looked_at(&self, _part: LocalPart, _told: u64, _changed: bool) {}

    /// Sends a datagram. The network may lose, delay, duplicate or reorder the datagram.
    ///
    /// # Errors
    /// `MessageTooLarge` if the datagram is larger than `caps().datagram_bytes_max`. If a queue is full, the datagram
    /// is lost without an error, as in a network.
    fn send(&self, to: Endpoint, bytes: &[u8]) -> Result<(), FabricError>;

    /// Passes up to `budget` datagrams that have arrived to `sink`. Returns the number of passed datagrams.
    fn receive(&self, budget: usize, sink: &mut dyn FnMut(Endpoint, &[u8])) -> usize;
}
