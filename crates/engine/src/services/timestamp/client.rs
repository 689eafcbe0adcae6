//! A thread's client of the timestamp service.
//!
//! Invariant: all coroutines of a thread that need timestamps in one turn of the scheduler share one call to the
//! service. Each coroutine gets one of the returned timestamps. A timestamp is valid only if the service that gave it
//! is still the timestamper. The client checks this after the reply has come. So if a service was replaced meanwhile,
//! the client ignores its timestamps, even if that service does not know it. The database's membership answers this
//! question without a message.
//!
//! If a call ends in an error, the client calls again. The client sends the new call to the node that serves by then.
//! Timestamps that the first call took are lost. So while no service exists, a request does not end. The request ends
//! when this node's incarnation ends, at the latest.

use super::{REPLY_BYTES, STAMP};
use crate::cluster::membership::{Membership, Timestamper};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::port::Port;
use tarn_fabric::rpc::{CallFuture, Peer, Rpc};
use tarn_store::ids::{Failure, Timestamp, ViewNumber};

/// The number of datagrams that a waiting coroutine processes in one step.
const BUDGET: usize = 16;
/// The pause before the client repeats a request to the service.
const PAUSE: Nanos = Nanos(2_000);

/// The environment of a thread that requests timestamps.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Tells which node runs the timestamp service.
    pub membership: &'a dyn Membership,
    /// The thread's compute node.
    pub node: NodeId,
    /// The thread's port to the fabric.
    pub port: &'a Port,
}

/// How a thread calls the timestamp service.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// The number of cores of the service. Each thread uses one of these cores.
    pub cores: u16,
    /// How long a call may take before the client repeats it.
    pub patience: Nanos,
    /// **Breaks the contract**: the client keeps using the service that it knows, as long as that service answers.
    /// Tests use this flag to prove that they detect the bug.
    #[doc(hidden)]
    pub planted_unfenced: bool,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig { cores: 1, patience: Nanos(2_000_000), planted_unfenced: false }
    }
}

/// A client that gets timestamps from the service by calls.
pub struct StampClient {
    rpc: Rpc,
    config: ClientConfig,
    batches: RefCell<Batches>,
    /// The timestamp service that answered last.
    known: Cell<Option<Timestamper>>,
}

#[derive(Default)]
struct Batches {
    all: Vec<Batch>,
    free: Vec<usize>,
    /// The index of the batch that has not been sent yet.
    open: Option<usize>,
}

/// A batch: the joint request of several coroutines of the thread.
struct Batch {
    /// The number of timestamps that the coroutines need.
    wanted: u32,
    /// The number of coroutines that still wait for the answer.
    waiting: u32,
    state: State,
}

enum State {
    Open,
    Called(CallFuture),
    /// The view since which the answering service serves, and the first timestamp; `None` if the call failed.
    Answered(Option<(ViewNumber, u64)>),
}

/// One coroutine's share of a batch.
struct Part<'a> {
    client: &'a StampClient,
    batch: usize,
    /// The index of the coroutine's commit timestamp in the batch. `None` for a start timestamp, which is the
    /// timestamp just below the batch's first.
    place: Option<u32>,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let Batches { all, free, open } = &mut *self.client.batches.borrow_mut();
        let batch = &mut all[self.batch];
        batch.waiting -= 1;
        if batch.waiting == 0 {
            batch.state = State::Answered(None);
            free.push(self.batch);
            open.take_if(|open| *open == self.batch);
        }
    }
}

impl StampClient {
    /// Creates a client that uses a thread's messages. Other code of the thread may use the same messages.
    ///
    /// # Panics
    /// If the service has no core.
    pub fn new(rpc: Rpc, config: ClientConfig) -> StampClient {
        assert!(config.cores > 0, "a service has at least one core");
        StampClient { rpc, config, batches: RefCell::default(), known: Cell::new(None) }
    }

    /// Returns a commit timestamp that only this coroutine gets.
    pub(crate) async fn commit(&self, cx: Caller<'_>) -> Result<Timestamp, Failure> {
        self.ask(cx, true).await
    }

    /// Returns the last timestamp that the service has given, as a start timestamp.
    pub(crate) async fn start(&self, cx: Caller<'_>) -> Result<Timestamp, Failure> {
        self.ask(cx, false).await
    }

    async fn ask(&self, cx: Caller<'_>, commits: bool) -> Result<Timestamp, Failure> {
        loop {
            let membership = cx.membership;
            if !membership.is_member(cx.node) {
                return Err(cx.port.note_failure(FabricError::Fenced).into());
            }
            let known = self.known.get().filter(|_| self.config.planted_unfenced);
            if let Some(service) = known.or_else(|| membership.timestamper()) {
                let answer = self.ask_once(cx, service, commits).await;
                self.known.set(answer.map(|_| service));
                if let Some((since, given)) = answer
                    && (self.config.planted_unfenced || self.is_current(cx, since))
                {
                    return Ok(given);
                }
            }
            cx.port.sleep(PAUSE).await;
        }
    }

    fn is_current(&self, cx: Caller<'_>, since: ViewNumber) -> bool {
        cx.membership.timestamper().is_some_and(|service| service.since == since)
    }

    async fn ask_once(
        &self,
        cx: Caller<'_>,
        service: Timestamper,
        commits: bool,
    ) -> Option<(ViewNumber, Timestamp)> {
        let part = self.join(commits);
        // All coroutines that run in this turn of the scheduler join the batch. Then the first of these coroutines
        // sends the batch.
        cx.port.yield_now().await;
        self.send(cx, part.batch, service);
        let answer = poll_fn(|waiting| {
            while self.rpc.poll(BUDGET) > 0 {}
            self.look(part.batch, waiting)
        })
        .await;
        let (since, first) = answer?;
        let given = part.place.map_or(first - 1, |place| first + u64::from(place));
        Some((since, Timestamp(given)))
    }

    fn join(&self, commits: bool) -> Part<'_> {
        let Batches { all, free, open } = &mut *self.batches.borrow_mut();
        let index = *open.get_or_insert_with(|| {
            let fresh = Batch { wanted: 0, waiting: 0, state: State::Open };
            match free.pop() {
                Some(index) => {
                    all[index] = fresh;
                    index
                }
                None => {
                    all.push(fresh);
                    all.len() - 1
                }
            }
        });
        let batch = &mut all[index];
        let place = commits.then_some(batch.wanted);
        batch.wanted += u32::from(commits);
        batch.waiting += 1;
        Part { client: self, batch: index, place }
    }

    /// Sends a batch to the service, unless it was sent already.
    fn send(&self, cx: Caller<'_>, index: usize, service: Timestamper) {
        let Batches { all, open, .. } = &mut *self.batches.borrow_mut();
        let batch = &mut all[index];
        if !matches!(batch.state, State::Open) {
            return;
        }
        *open = None;
        let endpoint = cx.port.endpoint();
        let place = u64::from(endpoint.node.0) << 16 | u64::from(endpoint.thread);
        let core = tarn_fabric::rng::mix(place) % u64::from(self.config.cores);
        let (to, wanted) = (Peer { node: service.node, thread: core as u16 }, batch.wanted);
        let fill = |bytes: &mut Vec<u8>| bytes.extend(wanted.to_le_bytes());
        let call = self.rpc.call_within(to, STAMP, self.config.patience, fill);
        batch.state = State::Called(call);
    }

    /// The answer to a batch that was sent. The result is pending until the answer has come.
    fn look(
        &self,
        index: usize,
        waiting: &mut std::task::Context<'_>,
    ) -> Poll<Option<(ViewNumber, u64)>> {
        let batch = &mut self.batches.borrow_mut().all[index];
        match &mut batch.state {
            State::Open => unreachable!("the request was sent"),
            State::Answered(answer) => Poll::Ready(*answer),
            State::Called(call) => {
                let Poll::Ready(reply) = Pin::new(call).poll(waiting) else { return Poll::Pending };
                let answer = reply.ok().and_then(|reply| read_reply(&reply));
                batch.state = State::Answered(answer);
                Poll::Ready(answer)
            }
        }
    }
}

/// Decodes a reply: the view since which the answering service serves, and the first timestamp. `None` if the service
/// gave no timestamp.
fn read_reply(reply: &[u8]) -> Option<(ViewNumber, u64)> {
    let reply: &[u8; REPLY_BYTES] = reply.try_into().ok()?;
    let [since, first] =
        [0, 8].map(|at| u64::from_le_bytes(*reply[at..].first_chunk().expect("inside the reply")));
    (first > 0).then_some((ViewNumber(since), first))
}
