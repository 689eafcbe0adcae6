//! One thread's hold on the world: rounds, messages, time, randomness, counters.
//!
//! Invariant: the engine and the workloads reach the outside through a `Port` and through nothing
//! else. That makes them run unchanged in virtual time.

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

/// A handle to one thread's backend; clones share it.
#[derive(Clone)]
pub struct Port {
    shared: Rc<Shared>,
}

impl Port {
    /// A port over `backend`; its generators derive from `seed`.
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

    /// Sends the round and waits for all of it: one round trip. An empty round is complete at once
    /// and is not counted. When it ends in an error, no verb of it will be executed any more; which
    /// verbs were executed is unknown, at nodes that live too (see [`Backend::complete`]).
    #[inline]
    pub fn execute<'a>(&'a self, round: &'a mut Round) -> RoundFuture<'a> {
        RoundFuture { port: self, round, posted: false }
    }

    /// Asks for the lines of a round that is not sent yet, and lets other coroutines run while they
    /// travel, where memory is near enough for that. So the work right before the round need not be
    /// done earlier. Elsewhere this call has no effect.
    #[inline]
    pub fn warm<'a>(&'a self, round: &'a Round) -> WarmFuture<'a> {
        WarmFuture { port: self, round, waits: false }
    }

    /// Returns the memory nodes that this thread reaches by loads and stores, if it does: the
    /// effects of [`Port::execute`], without a round.
    #[inline]
    pub fn near(&self) -> Option<DirectMemory<'_>> {
        self.shared.backend.near().map(|hold| DirectMemory::new(hold, &self.shared.counters))
    }

    /// Sends a round that is not awaited (an asynchronous unlock).
    ///
    /// # Errors
    /// Errors known at once; a later one shows in [`Port::detached`].
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
    /// Those of the round.
    pub async fn settle(&self, detached: Detached) -> Result<(), FabricError> {
        loop {
            match self.detached(detached) {
                Poll::Ready(result) => return result,
                Poll::Pending => self.yield_now().await,
            }
        }
    }

    /// Revokes a compute node's access to one memory node: when this returns, no verb of `whom`
    /// will ever take effect there (see [`Backend::revoke`]).
    ///
    /// # Errors
    /// `NodeDown`, `Fenced` if this node is itself fenced there.
    pub async fn revoke(&self, whom: NodeId, at: NodeSlot) -> Result<(), FabricError> {
        let asked = self.post_revoke(whom, at)?;
        self.settle(asked).await
    }

    /// Like [`Port::revoke`], but the caller waits with [`Port::settle`]: so several memory nodes
    /// are asked at once.
    ///
    /// # Errors
    /// Those that are known at once.
    pub fn post_revoke(&self, whom: NodeId, at: NodeSlot) -> Result<Detached, FabricError> {
        self.shared.backend.revoke(whom, at)
    }

    /// Records an error that did not come from [`Port::execute`] as the last one of this port.
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

    /// Waits at least `duration`.
    pub async fn sleep(&self, duration: Nanos) {
        let end = self.now() + duration;
        while self.now() < end {
            self.shared.backend.park_until(end);
            self.yield_now().await;
        }
    }

    /// This thread's monotone clock, in nanoseconds. It may run fast or slow, and clocks of two nodes
    /// may differ: compare times of different nodes by [`Port::clock`].
    #[inline]
    pub fn now(&self) -> Nanos {
        self.shared.backend.now()
    }

    /// The true time, in nanoseconds, for the stamps of histories and for nothing else: no node of a
    /// network can know it (see [`Backend::observed`]).
    #[inline]
    pub fn observed(&self) -> Nanos {
        self.shared.backend.observed()
    }

    /// The cluster's time with its uncertainty.
    pub fn clock(&self) -> ClockInterval {
        self.shared.backend.clock()
    }

    /// Returns how far this thread's clock is believed.
    pub fn drift(&self) -> Drift {
        self.shared.backend.drift()
    }

    /// Returns the time, for measuring by a second call how long something took; `None` where there
    /// is no time.
    #[inline]
    pub fn stopwatch(&self) -> Option<Nanos> {
        self.shared.backend.stopwatch()
    }

    /// Opens a window, before the first READ that the window is to protect is posted. A coroutine
    /// has one window: another takes its place.
    #[inline]
    pub async fn open_window(&self) -> Window {
        chosen(|| self.shared.backend.open_window()).await
    }

    /// Closes a window, when the last READ has ended. Returns whether it was shorter than `lease`:
    /// then no wait of that length, at any node, has both begun and ended in it.
    #[inline]
    pub async fn close_window(&self, window: Window, lease: Nanos) -> Closed {
        chosen(|| self.shared.backend.close_window(window, lease)).await
    }

    /// Begins a wait, when the last lock is acknowledged. A coroutine has one wait: another takes its place.
    #[inline]
    pub async fn begin_wait(&self) -> Wait {
        chosen(|| self.shared.backend.begin_wait()).await
    }

    /// Waits until `length` has passed since a wait began; returns at once if it has already. A
    /// wait ends once.
    #[inline]
    pub async fn end_wait(&self, wait: Wait, length: Nanos) {
        chosen(|| self.shared.backend.end_wait(wait, length)).await;
    }

    /// Says that this coroutine has acknowledgements of all locks that it needs, and is going to
    /// write under them. It is for threads that read near memory in one look
    /// ([`DirectMemory::is_still`]), also if this thread goes to memory by rounds. It does nothing
    /// where no thread has near memory.
    #[inline]
    pub fn announce_writes(&self) {
        self.shared.backend.announce_writes();
    }

    /// Accounts for local work in virtual time.
    #[inline]
    pub fn charge(&self, cost: Cost) {
        self.shared.backend.charge(cost);
    }

    /// Reports the value that the coroutine found in some compute node's local memory, or that it
    /// has changed it: see [`Backend::looked_at`].
    pub fn looked_at(&self, part: LocalPart, told: u64, changed: bool) {
        self.shared.backend.looked_at(part, told, changed);
    }

    /// Returns a new generator: the n-th call of one port with one seed always returns the same.
    pub fn rng(&self) -> Rng {
        let stream = self.shared.streams.get();
        self.shared.streams.set(stream + 1);
        seeded(self.shared.seed, stream)
    }

    /// Returns whether local work is accounted for: if not, it need not be counted.
    #[inline]
    pub fn charges(&self) -> bool {
        self.shared.charges
    }

    /// Returns the backend's capabilities.
    pub fn caps(&self) -> Caps {
        self.shared.backend.caps()
    }

    /// The compute node of this thread.
    pub fn node(&self) -> NodeId {
        self.shared.backend.node()
    }

    /// Where messages to this thread go.
    pub fn endpoint(&self) -> Endpoint {
        self.shared.backend.endpoint()
    }

    /// Sends a datagram (unreliable; see [`Backend::send`]).
    ///
    /// # Errors
    /// `MessageTooLarge`.
    pub fn send(&self, to: Endpoint, bytes: &[u8]) -> Result<(), FabricError> {
        self.shared.counters.message(bytes.len());
        self.shared.backend.send(to, bytes)
    }

    /// Hands arrived datagrams to `sink`; returns how many.
    pub fn receive(&self, budget: usize, sink: &mut dyn FnMut(Endpoint, &[u8])) -> usize {
        self.shared.backend.receive(budget, sink)
    }

    /// The last error that a round ended in.
    pub fn last_error(&self) -> Option<FabricError> {
        self.shared.last_error.get()
    }

    /// Returns the counts of rounds, verbs and messages that this port has sent so far.
    pub fn counts(&self) -> Counts {
        self.shared.counters.snapshot()
    }
}

/// Asks the backend again, poll by poll, until it has chosen.
async fn chosen<T>(ask: impl Fn() -> Poll<T>) -> T {
    poll_fn(|context| match ask() {
        Poll::Pending => pending(context),
        ready => ready,
    })
    .await
}

/// Completes when the round has. If it is dropped before, each verb of the round may or may not
/// take effect, and none takes effect after verbs that the port later sends to the same node (see
/// [`Backend::abandon`]).
#[must_use = "a round does nothing until it is awaited"]
pub struct RoundFuture<'a> {
    port: &'a Port,
    round: &'a mut Round,
    posted: bool,
}

impl Future for RoundFuture<'_> {
    /// The error is boxed so that success travels in a register.
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

/// Completes when others have run, or at once; see [`Port::warm`].
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

/// Pending once, then ready.
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
