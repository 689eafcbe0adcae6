//! One thread's access to the outside: rounds, messages, time, random numbers, and counters.
//!
//! Invariant: the engine and the workloads use the network, time and randomness only through a `Port`. So their code
//! runs unchanged in virtual time.

use crate::address::{NodeId, NodeSlot};
use crate::backend::{Backend, Caps, Cost, Detached, Endpoint, LocalPart, Posted};
use crate::clock::{ClockInterval, Nanos};
use crate::counters::{Counters, Counts};
use crate::error::FabricError;
use crate::executor::pending;
use crate::local::DirectMemory;
use crate::rng::{Rng, seeded};
use crate::round::Round;
use crate::window::{Closed, Drift, Wait, Window};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

struct Shared {
    backend: Box<dyn Backend>,
    counters: Counters,
    seed: u64,
    streams: Cell<u64>,
    charges: bool,
    last_error: Cell<Option<FabricError>>,
}

/// A handle to one thread's backend. Clones of a port share the backend.
#[derive(Clone)]
pub struct Port {
    shared: Rc<Shared>,
}

impl Port {
    /// Creates a port over `backend`. The port's random generators are derived from `seed`.
    pub fn new(backend: Box<dyn Backend>, seed: u64) -> Port {
        let counters = Counters::default();
        let endpoint = backend.endpoint();
        let first_stream = (u64::from(endpoint.node.0) << 48) | (u64::from(endpoint.thread) << 32);
        let (streams, charges) = (Cell::new(first_stream), backend.charges());
        Port {
            shared: Rc::new(Shared {
                backend,
                counters,
                seed,
                streams,
                charges,
                last_error: Cell::new(None),
            }),
        }
    }

    /// Sends the round and waits until all its verbs have ended, which takes one round trip. An empty round is
    /// complete immediately and is not counted. If the round ends in an error, no more of its verbs will be executed.
    /// The caller does not know which verbs were executed, even at nodes that did not fail (see
    /// [`Backend::complete`]).
    #[inline]
    pub fn execute<'a>(&'a self, round: &'a mut Round) -> RoundFuture<'a> {
        RoundFuture { port: self, round, posted: false }
    }

    /// Prefetches the lines of a round that is not sent yet, and lets other coroutines run while the lines are
    /// fetched. So the caller can wait for the lines before it does the work that comes directly before the round. If
    /// the memory is not near memory, this call has no effect.
    #[inline]
    pub fn warm<'a>(&'a self, round: &'a Round) -> WarmFuture<'a> {
        WarmFuture { port: self, round, waits: false }
    }

    /// If this thread can access the memory nodes by loads and stores, returns an object for accesses by loads and
    /// stores. Accesses by loads and stores have the effects of [`Port::execute`], without a round.
    #[inline]
    pub fn near(&self) -> Option<DirectMemory<'_>> {
        self.shared.backend.near().map(|hold| DirectMemory::new(hold, &self.shared.counters))
    }

    /// Sends a round that the caller does not await, for example to release locks.
    ///
    /// # Errors
    /// Errors that are known immediately. [`Port::detached`] returns a later error.
    #[inline]
    pub fn post_detached(&self, round: &mut Round) -> Result<Detached, FabricError> {
        self.count(round);
        self.shared.backend.post_detached(round)
    }

    /// Whether a detached round is complete.
    #[inline]
    pub fn detached(&self, detached: Detached) -> Poll<Result<(), FabricError>> {
        self.shared.backend.detached(detached)
    }

    /// Waits for a detached round.
    ///
    /// # Errors
    /// The errors in which the round ends.
    pub async fn settle(&self, detached: Detached) -> Result<(), FabricError> {
        loop {
            match self.detached(detached) {
                Poll::Ready(result) => return result,
                Poll::Pending => self.yield_now().await,
            }
        }
    }

    /// Revokes a compute node's access to one memory node. After this function has returned, no verb of `whom` will
    /// ever take effect at that node (see [`Backend::revoke`]).
    ///
    /// # Errors
    /// `NodeDown` if the memory node is down. `Fenced` if the memory node has revoked the access of this node itself.
    pub async fn revoke(&self, whom: NodeId, at: NodeSlot) -> Result<(), FabricError> {
        let asked = self.post_revoke(whom, at)?;
        self.settle(asked).await
    }

    /// Requests the same as [`Port::revoke`], but the caller waits by [`Port::settle`]. So one caller can send this
    /// request to several memory nodes at the same time.
    ///
    /// # Errors
    /// The errors of [`Port::revoke`] that are known immediately.
    pub fn post_revoke(&self, whom: NodeId, at: NodeSlot) -> Result<Detached, FabricError> {
        self.shared.backend.revoke(whom, at)
    }

    /// Records an error that did not come from [`Port::execute`] as this port's last error.
    pub fn note_failure(&self, error: FabricError) -> Box<FabricError> {
        self.note_error(error)
    }

    #[inline]
    fn note(&self, result: Result<(), FabricError>) -> Result<(), Box<FabricError>> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => Err(self.note_error(error)),
        }
    }

    #[cold]
    fn note_error(&self, error: FabricError) -> Box<FabricError> {
        self.shared.last_error.set(Some(error));
        Box::new(error)
    }

    #[inline]
    fn count(&self, round: &Round) {
        self.shared.counters.round(round.tally());
    }

    /// Lets every other coroutine of this thread run once.
    pub fn yield_now(&self) -> YieldNow {
        YieldNow { yielded: false }
    }

    /// Makes the coroutine wait for at least `duration`.
    pub async fn sleep(&self, duration: Nanos) {
        let end = self.now() + duration;
        while self.now() < end {
            self.shared.backend.park_until(end);
            self.yield_now().await;
        }
    }

    /// This thread's monotone clock, in nanoseconds. The clock may run fast or slow, and the clocks of two nodes may
    /// differ. Use [`Port::clock`] to compare times of different nodes.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.shared.backend.now()
    }

    /// The true time, in nanoseconds, for the stamps of histories and the measurements of a run, and for no other
    /// purpose. No node of a network can know the true time (see [`Backend::observed`]).
    #[inline]
    pub fn observed(&self) -> Nanos {
        self.shared.backend.observed()
    }

    /// Returns the cluster's time as an interval, because the time is uncertain.
    pub fn clock(&self) -> ClockInterval {
        self.shared.backend.clock()
    }

    /// Returns the maximum error of this thread's clock, by which windows and waits are measured.
    pub fn drift(&self) -> Drift {
        self.shared.backend.drift()
    }

    /// Returns the time. A caller may use two results only to measure the duration of the work between the two calls.
    /// Returns `None` if the backend has no time.
    #[inline]
    pub fn stopwatch(&self) -> Option<Nanos> {
        self.shared.backend.stopwatch()
    }

    /// Opens a window. The caller must open the window before posting the first READ that this window protects. A
    /// coroutine has at most one window: a new window replaces the old window.
    #[inline]
    pub async fn open_window(&self) -> Window {
        chosen(|| self.shared.backend.open_window()).await
    }

    /// Closes a window. The caller closes it after the last READ has ended. Returns whether the window was shorter
    /// than `lease`. If the window was shorter, no wait of the length `lease`, at any node, has both begun and ended
    /// within the window.
    #[inline]
    pub async fn close_window(&self, window: Window, lease: Nanos) -> Closed {
        chosen(|| self.shared.backend.close_window(window, lease)).await
    }

    /// Begins a wait. The caller begins it after its last lock is acknowledged. A coroutine has at most one wait: a
    /// new wait replaces the old wait.
    #[inline]
    pub async fn begin_wait(&self) -> Wait {
        chosen(|| self.shared.backend.begin_wait()).await
    }

    /// Waits until `length` has passed since a wait began. If `length` has already passed since then, the function
    /// returns immediately. A caller may end a wait only once.
    #[inline]
    pub async fn end_wait(&self, wait: Wait, length: Nanos) {
        chosen(|| self.shared.backend.end_wait(wait, length)).await;
    }

    /// Announces that this coroutine has acknowledgements of all locks that it needs, and will now write under these
    /// locks. Other threads that read near memory by loads check such announcements ([`DirectMemory::is_still`]). So
    /// this call is necessary even if this thread accesses memory by rounds. If no thread has near memory, this call
    /// does nothing.
    #[inline]
    pub fn announce_writes(&self) {
        self.shared.backend.announce_writes();
    }

    /// Adds the cost of local work to this thread's virtual time, if the backend has virtual time.
    #[inline]
    pub fn charge(&self, cost: Cost) {
        self.shared.backend.charge(cost);
    }

    /// Tells the backend that the coroutine found the value `told` in some compute node's local memory, or has
    /// changed this memory: see [`Backend::looked_at`].
    pub fn looked_at(&self, part: LocalPart, told: u64, changed: bool) {
        self.shared.backend.looked_at(part, told, changed);
    }

    /// Returns a new generator: the n-th call on a port with a given seed always returns the same generator.
    pub fn rng(&self) -> Rng {
        let stream = self.shared.streams.get();
        self.shared.streams.set(stream + 1);
        seeded(self.shared.seed, stream)
    }

    /// Returns whether the backend uses the costs of local work. If the backend ignores these costs, the caller need
    /// not compute them.
    #[inline]
    pub fn charges(&self) -> bool {
        self.shared.charges
    }

    /// Returns the backend's capabilities.
    pub fn caps(&self) -> Caps {
        self.shared.backend.caps()
    }

    /// Returns the compute node to which this thread belongs.
    pub fn node(&self) -> NodeId {
        self.shared.backend.node()
    }

    /// Returns the endpoint to which messages for this thread are sent.
    pub fn endpoint(&self) -> Endpoint {
        self.shared.backend.endpoint()
    }

    /// Sends a datagram, which may be lost (see [`Backend::send`]).
    ///
    /// # Errors
    /// `MessageTooLarge` if the datagram is larger than the backend allows.
    pub fn send(&self, to: Endpoint, bytes: &[u8]) -> Result<(), FabricError> {
        self.shared.counters.message(bytes.len());
        self.shared.backend.send(to, bytes)
    }

    /// Passes up to `budget` datagrams that have arrived to `sink`. Returns the number of passed datagrams.
    pub fn receive(&self, budget: usize, sink: &mut dyn FnMut(Endpoint, &[u8])) -> usize {
        self.shared.backend.receive(budget, sink)
    }

    /// The last error in which a round of this port ended.
    pub fn last_error(&self) -> Option<FabricError> {
        self.shared.last_error.get()
    }

    /// Returns the counts of rounds, verbs and messages that this port has sent so far.
    pub fn counts(&self) -> Counts {
        self.shared.counters.snapshot()
    }
}

/// Calls `ask` in each poll until the backend returns a result.
async fn chosen<T>(ask: impl Fn() -> Poll<T>) -> T {
    poll_fn(|context| match ask() {
        Poll::Pending => pending(context),
        ready => ready,
    })
    .await
}

/// Completes when the round has completed. If the future is dropped before, each verb of the round may or may not
/// take effect. No verb of the dropped round takes effect after verbs that the port later sends to the same node (see
/// [`Backend::abandon`]).
#[must_use = "a round does nothing until it is awaited"]
pub struct RoundFuture<'a> {
    port: &'a Port,
    round: &'a mut Round,
    posted: bool,
}

impl Future for RoundFuture<'_> {
    /// The error is boxed, so that a successful result fits into a register.
    type Output = Result<(), Box<FabricError>>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let backend = &*this.port.shared.backend;
        if this.posted {
            return match backend.complete(this.round) {
                Poll::Pending => pending(context),
                Poll::Ready(result) => {
                    this.posted = false;
                    Poll::Ready(this.port.note(result))
                }
            };
        }
        if this.round.is_empty() {
            return Poll::Ready(Ok(()));
        }
        this.port.count(this.round);
        match backend.post(this.round) {
            Posted::Done(result) => Poll::Ready(this.port.note(result)),
            Posted::InFlight => {
                this.posted = true;
                pending(context)
            }
        }
    }
}

impl Drop for RoundFuture<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.posted {
            self.port.shared.backend.abandon(self.round);
        }
    }
}

/// Completes after other coroutines have run, or immediately if the caller need not wait: see [`Port::warm`].
#[must_use = "futures do nothing until they are awaited"]
pub struct WarmFuture<'a> {
    port: &'a Port,
    round: &'a Round,
    waits: bool,
}

impl Future for WarmFuture<'_> {
    type Output = ();

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let backend = &*self.port.shared.backend;
        if self.waits {
            backend.warmed();
            self.waits = false;
            return Poll::Ready(());
        }
        self.waits = backend.warm(self.round);
        if self.waits { pending(context) } else { Poll::Ready(()) }
    }
}

impl Drop for WarmFuture<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            self.port.shared.backend.warmed();
        }
    }
}

/// A future that is pending in its first poll and ready in its second poll.
#[must_use = "futures do nothing until they are awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.yielded, true) { Poll::Ready(()) } else { pending(context) }
    }
}
