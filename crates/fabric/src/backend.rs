//! The seam behind every port: what a fabric must do.
//!
//! Invariant: two virtual calls a round (`post`, `complete`), none a verb, so that protocols are
//! compiled once and run on threads, on a simulated cluster and on a network alike. A backend is one
//! thread's; it may share memory with others behind it.

use crate::address::{NodeId, NodeSlot};
use crate::clock::{ClockInterval, Nanos};
use crate::error::FabricError;
use crate::local::Hold;
use crate::round::Round;
use crate::window::{Closed, Drift, Wait, Window};
use std::task::Poll;

/// What a backend can do beyond the contract's minimum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Masked CAS is executed by the responder; otherwise the engine falls back to a CAS loop.
    pub masked_cas: bool,
    /// Largest datagram in bytes.
    pub datagram_bytes_max: usize,
    /// A round that was dropped is over: nothing of it lands later, so that whoever is told of it may look at what it did through any
    /// port. Otherwise only through its own ([`Backend::abandon`]).
    pub ends_when_dropped: bool,
}

/// Whether a posted round is already complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// Results are in the round.
    Done(Result<(), FabricError>),
    /// Ask with `complete`.
    InFlight,
}

/// What a piece of local work costs; the simulator charges it to the thread, real backends ignore
/// it because the work itself takes the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// Nanoseconds of work outside the engine (a lock service's critical section, say).
    WorkNanos(u64),
    /// Handing one message, a request or a reply, to whoever it is for.
    Handler,
    /// One try of a transaction, all that its coordinator does beside rounds and messages: drawing and
    /// hashing keys, the working set, copying and comparing, making versions and log records.
    Transaction {
        /// Records that it asked for.
        records: u32,
        /// Of these, those that it did not only read.
        written: u32,
    },
    /// One try of a transaction that reads records by keys that are known from the start, without a working set: the same.
    Together {
        /// Records that it asked for.
        records: u32,
    },
    /// One access to a table of the compute node.
    LocalLookup,
    /// One compare-and-swap on compute-node memory.
    LocalAtomic,
}

/// Where messages go: a thread of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// The node.
    pub node: NodeSlot,
    /// Its thread.
    pub thread: u16,
}

/// A part of what a compute node keeps in its own memory and coroutines of several nodes look at: a lock of its
/// table, say. Two things that are never the same may share a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocalPart {
    /// Whose memory it is in.
    pub node: NodeSlot,
    /// Which part, below [`LOCAL_PARTS`].
    pub number: u16,
}

/// Parts of one compute node.
pub const LOCAL_PARTS: u16 = 256;

/// A detached round: it completes without being awaited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detached(pub u64);

/// One thread's hold on a fabric.
pub trait Backend {
    /// What this backend can do.
    fn caps(&self) -> Caps;

    /// The compute node this thread belongs to.
    fn node(&self) -> NodeId;

    /// This thread's endpoint for messages.
    fn endpoint(&self) -> Endpoint;

    /// Sends a round. The backend may not keep references into it after returning: it copies what
    /// it needs, or does the work in `complete`.
    fn post(&self, round: &mut Round) -> Posted;

    /// A round is about to be sent, and sent as [`Round::hot`]: asks for its lines. Whether they are worth waiting
    /// for; then others run before it is sent, and [`Backend::warmed`] is called when it is, or never will be.
    fn warm(&self, _round: &Round) -> bool {
        false
    }

    /// What [`Backend::warm`] said yes to waits no more.
    fn warmed(&self) {}

    /// Whether a posted round is complete; its results are then in the round. The round given is
    /// the one posted, unchanged but for its own results.
    ///
    /// Complete means over, also in an error: each verb of it, to whichever node, has been executed or
    /// never will be. Which of them were is another matter. After an error any part of each batch that
    /// the order of verbs allows may have been executed, none of it as well, and at nodes that live too:
    /// one backend goes through with the other nodes' batches, another stops at the first verb that fails.
    fn complete(&self, round: &mut Round) -> Poll<Result<(), FabricError>>;

    /// The memory nodes as near memory, where this thread reaches them by loads and stores of its own.
    fn near(&self) -> Option<&Hold> {
        None
    }

    /// Gives up waiting for a posted round; when this returns, the round's memory is the caller's again.
    ///
    /// Its verbs may or may not take effect. Those that do come first: verbs of rounds that this port posts
    /// from now on to the same node come after them, as if in one batch. (Rounds that this port had posted
    /// before are concurrent with it, as they were.) So whoever looks through this port at what a dropped
    /// round did sees all of it that will ever be, at each node by itself. To other ports there is no order.
    fn abandon(&self, round: &mut Round);

    /// Sends a round that nobody awaits. Verbs of later rounds of this port to the same node come
    /// after it as if in one batch.
    ///
    /// # Errors
    /// Only errors known at once are returned.
    fn post_detached(&self, round: &mut Round) -> Result<Detached, FabricError>;

    /// Whether a detached round has completed, and how. Whoever asks again, or after somebody else, is told the same.
    fn detached(&self, detached: Detached) -> Poll<Result<(), FabricError>>;

    /// Asks memory node `at` to execute no verb of `whom` any more, in this life: a control request, not
    /// a verb, which may be repeated. It is complete, as [`Backend::detached`] says, when whatever of
    /// `whom` was being executed at `at` has ended and nothing more ever will be; its rounds to `at` end
    /// in `Fenced` from then on.
    ///
    /// # Errors
    /// As `post_detached`; a memory node that is down completes in `NodeDown`, and nothing is executed
    /// there either.
    fn revoke(&self, whom: NodeId, at: NodeSlot) -> Result<Detached, FabricError>;

    /// The coroutine that is being polled has nothing to do before `until`, unless a round of its own
    /// completes earlier. A hint: a backend in virtual time need not poll it meanwhile.
    fn park_until(&self, _until: Nanos) {}

    /// Nanoseconds since the fabric started, by this thread's clock: monotone. The clocks of two nodes
    /// may differ.
    fn now(&self) -> Nanos;

    /// The true time, by an observer's clock that is the same for all nodes: for the stamps of
    /// histories, which are judged across nodes. No node of a network can know it, so nothing may be
    /// decided by it. Where nodes share a clock, it is that clock.
    fn observed(&self) -> Nanos {
        self.now()
    }

    /// The cluster's time with its uncertainty.
    fn clock(&self) -> ClockInterval;

    /// How far this thread's clock is believed where windows and waits are measured.
    fn drift(&self) -> Drift;

    /// Now, by which nothing is decided but how long something took; `None` where there is no time.
    fn stopwatch(&self) -> Option<Nanos> {
        Some(self.now())
    }

    /// A window opens, before whatever the coroutine reads from now on. Pending where that is somebody else's to choose: then, as
    /// with the three calls below, the coroutine asks again and for nothing else of the four meanwhile.
    fn open_window(&self) -> Poll<Window> {
        Poll::Ready(Window(self.now().0))
    }

    /// A window closes, after whatever the coroutine has read: whether it was shorter than `lease`. "No" is always allowed, and the
    /// only answer to a lease of 0.
    fn close_window(&self, window: Window, lease: Nanos) -> Poll<Closed> {
        let passed = self.now() - Nanos(window.0);
        let is_shorter = self.drift().is_shorter(passed, lease);
        Poll::Ready(Closed { is_shorter, passed: Some(passed) })
    }

    /// A wait begins, after whatever the coroutine knows to have happened.
    fn begin_wait(&self) -> Poll<Wait> {
        Poll::Ready(Wait(self.now().0))
    }

    /// Whether at least `length` has passed since a wait began: then it has ended, before whatever the coroutine posts from now on.
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

    /// Whether local work is accounted for at all: whoever would have to count it first may ask.
    fn charges(&self) -> bool {
        true
    }

    /// The coroutine that is being polled has looked at a part of some node's local memory, and was told so
    /// much; or has changed it. For whoever explores every order, to whom memory of compute nodes is
    /// nothing else than that; everybody else need not know.
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
