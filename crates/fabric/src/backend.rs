//! The seam behind every port: the operations that a fabric must have.
//!
//! Invariant: two virtual calls a round (`post`, `complete`), none a verb. So protocols are
//! compiled once and run on threads, on a simulated cluster and on a network alike. A backend
//! belongs to one thread; behind it, it may share memory with other threads.

use crate::address::{NodeId, NodeSlot};
use crate::clock::{ClockInterval, Nanos};
use crate::error::FabricError;
use crate::local::Hold;
use crate::round::Round;
use crate::window::{Closed, Drift, Wait, Window};
use std::task::Poll;

/// A backend's capabilities beyond the contract's minimum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Whether the responder executes masked CAS. No system of the engine uses masked CAS yet.
    pub masked_cas: bool,
    /// Largest datagram in bytes.
    pub datagram_bytes_max: usize,
    /// Whether a dropped round is over, so that none of its verbs lands later. If so, a thread that
    /// learns of the drop may look at the round's effects through any port. If not, it may do so
    /// only through the port that sent the round ([`Backend::abandon`]).
    pub ends_when_dropped: bool,
}

/// Whether a posted round is already complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// Results are in the round.
    Done(Result<(), FabricError>),
    /// The round is under way; `complete` tells when it has ended.
    InFlight,
}

/// The cost of a piece of local work. The simulator charges it to the thread; real backends ignore
/// it because the work itself takes the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// Nanoseconds of work outside the engine (for example a lock service's critical section).
    WorkNanos(u64),
    /// Handing one message, a request or a reply, to its receiver.
    Handler,
    /// One try of a transaction: all that its coordinator does beside rounds and messages. That is
    /// drawing and hashing keys, the working set, copying and comparing, making versions and log
    /// records.
    Transaction {
        /// Records that the try asked for.
        records: u32,
        /// Those of the records that it did not only read.
        written: u32,
    },
    /// The same for a try that reads records by keys that are known from the start, without a
    /// working set.
    Together {
        /// Records that the try asked for.
        records: u32,
    },
    /// One access to a table of the compute node.
    LocalLookup,
    /// One compare-and-swap on compute-node memory.
    LocalAtomic,
}

/// The place that messages go to: a thread of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// The node.
    pub node: NodeSlot,
    /// Its thread.
    pub thread: u16,
}

/// A part of a compute node's own memory that coroutines of several nodes look at: a lock of its
/// table, for example. Two things that are never the same may share a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocalPart {
    /// The node that has the memory.
    pub node: NodeSlot,
    /// The part's number, below [`LOCAL_PARTS`].
    pub number: u16,
}

/// Number of parts of one compute node.
pub const LOCAL_PARTS: u16 = 256;

/// A detached round: it completes without being awaited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detached(pub u64);

/// One thread's hold on a fabric.
pub trait Backend {
    /// Returns this backend's capabilities.
    fn caps(&self) -> Caps;

    /// The compute node this thread belongs to.
    fn node(&self) -> NodeId;

    /// This thread's endpoint for messages.
    fn endpoint(&self) -> Endpoint;

    /// Sends a round. The backend may not keep references into it after returning: it copies the
    /// parts that it needs, or does the work in `complete`.
    fn post(&self, round: &mut Round) -> Posted;

    /// Asks for the lines of a round that is about to be sent as [`Round::hot`]. Returns whether
    /// the lines are worth waiting for. If so, other coroutines run before the round is sent, and
    /// the caller calls [`Backend::warmed`] when it sends the round or gives it up.
    fn warm(&self, _round: &Round) -> bool {
        false
    }

    /// Ends a wait for which [`Backend::warm`] returned `true`.
    fn warmed(&self) {}

    /// Says whether a posted round is complete; its results are then in the round. The round given
    /// is the one posted, unchanged but for its own results.
    ///
    /// Complete means over, also in an error: each verb of the round, to any node, has been
    /// executed or never will be. An error does not say which of them were executed. At each node,
    /// also at one that lives, it may be any part of the batch that the order of verbs allows, or
    /// none of it. One backend goes through with the other nodes' batches; another stops at the
    /// first verb that fails.
    fn complete(&self, round: &mut Round) -> Poll<Result<(), FabricError>>;

    /// Returns the memory nodes as near memory, where this thread reaches them by its own loads and
    /// stores.
    fn near(&self) -> Option<&Hold> {
        None
    }

    /// Gives up waiting for a posted round; when this returns, the round's memory is the caller's again.
    ///
    /// Its verbs may or may not take effect. Those that do come before the verbs of rounds that
    /// this port posts to the same node from now on, as if all were one batch. (Rounds that this
    /// port had posted before remain concurrent with it.) So a coroutine may look through this port
    /// at a dropped round's effects. At each node by itself, it sees all effects that the round
    /// will ever have. To other ports there is no order.
    fn abandon(&self, round: &mut Round);

    /// Sends a round that is not awaited. Verbs of later rounds of this port to the same node come
    /// after it as if in one batch.
    ///
    /// # Errors
    /// Only errors known at once are returned.
    fn post_detached(&self, round: &mut Round) -> Result<Detached, FabricError>;

    /// Says whether a detached round has completed, and how. Each later call, also by another
    /// coroutine, returns the same.
    fn detached(&self, detached: Detached) -> Poll<Result<(), FabricError>>;

    /// Asks memory node `at` to execute no verb of `whom` any more, in this life. This is a control
    /// request, not a verb, and may be repeated. It is complete, as [`Backend::detached`] says,
    /// when all verbs of `whom` that were being executed at `at` have ended and no more will ever
    /// be executed. From then on, rounds of `whom` to `at` end in `Fenced`.
    ///
    /// # Errors
    /// Those of `post_detached`. If the memory node is down, the request completes in `NodeDown`,
    /// and nothing is executed there either.
    fn revoke(&self, whom: NodeId, at: NodeSlot) -> Result<Detached, FabricError>;

    /// Says that the coroutine being polled has nothing to do before `until`, unless a round of its
    /// own completes earlier. A hint: a backend in virtual time need not poll the coroutine
    /// meanwhile.
    fn park_until(&self, _until: Nanos) {}

    /// Nanoseconds since the fabric started, by this thread's clock: monotone. The clocks of two nodes
    /// may differ.
    fn now(&self) -> Nanos;

    /// Returns the true time, by an observer's clock that is the same for all nodes. It is for the
    /// stamps of histories, which are judged across nodes. No node of a network can know it, so
    /// nothing may be decided by it. Where nodes share a clock, it is that clock.
    fn observed(&self) -> Nanos {
        self.now()
    }

    /// The cluster's time with its uncertainty.
    fn clock(&self) -> ClockInterval;

    /// Returns how far this thread's clock is believed where windows and waits are measured.
    fn drift(&self) -> Drift;

    /// Returns the time, for measuring how long something took and for no other decision; `None`
    /// where there is no time.
    fn stopwatch(&self) -> Option<Nanos> {
        Some(self.now())
    }

    /// Opens a window, before all that the coroutine reads from now on. The result is pending where
    /// another part of the program chooses the moment. Then, as with the three calls below, the
    /// coroutine repeats this call and makes no other of the four meanwhile.
    fn open_window(&self) -> Poll<Window> {
        Poll::Ready(Window(self.now().0))
    }

    /// Closes a window, after all that the coroutine has read, and says whether it was shorter than
    /// `lease`. "No" is always allowed, and is the only answer to a lease of 0.
    fn close_window(&self, window: Window, lease: Nanos) -> Poll<Closed> {
        let passed = self.now() - Nanos(window.0);
        let is_shorter = self.drift().is_shorter(passed, lease);
        Poll::Ready(Closed { is_shorter, passed: Some(passed) })
    }

    /// Begins a wait, after all events that the coroutine knows of.
    fn begin_wait(&self) -> Poll<Wait> {
        Poll::Ready(Wait(self.now().0))
    }

    /// Is ready when at least `length` has passed since a wait began. The wait has then ended,
    /// before all that the coroutine posts from now on.
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

    /// Accounts for local work.
    fn charge(&self, cost: Cost);

    /// Returns whether local work is accounted for at all. A caller that would have to count the
    /// work first may ask.
    fn charges(&self) -> bool {
        true
    }

    /// Says that the coroutine being polled has looked at a part of some node's local memory, and
    /// was told `told`; or that it has changed the part. This is for an explorer of every order: it
    /// knows nothing else of the memory of compute nodes. Other backends need not know.
    fn looked_at(&self, _part: LocalPart, _told: u64, _changed: bool) {}

    /// Sends a datagram; it may be lost, delayed, duplicated or reordered.
    ///
    /// # Errors
    /// `MessageTooLarge` above `caps().datagram_bytes_max`; a full queue loses the datagram
    /// silently, as a network would.
    fn send(&self, to: Endpoint, bytes: &[u8]) -> Result<(), FabricError>;

    /// Hands up to `budget` datagrams that have arrived to `sink`; returns how many.
    fn receive(&self, budget: usize, sink: &mut dyn FnMut(Endpoint, &[u8])) -> usize;
}
