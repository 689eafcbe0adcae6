//! Routes the transactions of clients to compute nodes. Each client runs in a closed loop.
//!
//! A client draws a transaction, and the router decides at which node the transaction runs. The transaction waits in
//! the queue of this node until one of the node's coroutines takes the transaction. When the transaction has ended,
//! the transaction's client draws the next transaction. So a node with too many requests has a long queue, while
//! other nodes have idle coroutines. (If each coroutine drew until a transaction belongs to its own node, the
//! simulation would hide this imbalance.)
//!
//! Invariant: the number of transactions in progress, from their drawing to their end, equals the number of clients.
//! The latency of a transaction is measured from its arrival in the node's queue, by the observer's clock. Routing a
//! transaction to a queue takes no virtual time.

use super::hotspot::run::Heat;
use crate::harness::worker::Source;
use rand::RngExt as _;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use tarn_engine::services::shard_load::Load;
use tarn_engine::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::{Rng, seeded};
use tarn_sim::bell::Bell;
use tarn_sim::fabric::SimFabric;
use tarn_store::placement::routing::Router;
use tarn_workloads::Workload;
use tarn_workloads::routes::Routes;

/// If a transaction is to be hot, the client draws at most this number of transactions to find a hot one. If no draw
/// gives a hot transaction, the share of hot transactions is smaller than requested.
const DRAWS_MAX: u32 = 100_000;
/// The random stream of the clients' generator, which no coordinator uses.
const STREAM: u64 = u64::MAX;

/// A node's transactions that no coroutine has taken yet.
struct Queue<I> {
    waiting: RefCell<VecDeque<(I, Nanos)>>,
    bell: Bell,
}

/// The queues of all nodes, and the clients whose transactions wait in these queues.
pub(crate) struct Dispatch<'a, W: Workload> {
    workload: &'a W,
    router: Router<'a>,
    routes: Routes,
    queues: Vec<Queue<W::Input>>,
    rng: RefCell<Rng>,
    /// The hot shards and the rule for moves of shards, together with the trail that records the events.
    heat: Option<Heat>,
    is_over: Cell<bool>,
}

impl<'a, W: Workload> Dispatch<'a, W> {
    /// Makes queues for `nodes` nodes, and clients that have drawn their first transactions.
    pub(crate) fn new(
        workload: &'a W,
        (fabric, nodes): (&'a SimFabric, usize),
        router: Router<'a>,
        (clients, seed): (usize, u64),
        heat: Option<Heat>,
    ) -> Dispatch<'a, W> {
        let queue = |_| Queue { waiting: RefCell::default(), bell: fabric.bell() };
        let dispatch = Dispatch {
            workload,
            router,
            routes: Routes::of(workload),
            queues: (0..nodes).map(queue).collect(),
            rng: RefCell::new(seeded(seed, STREAM)),
            heat,
            is_over: Cell::new(false),
        };
        (0..clients).for_each(|_| dispatch.offer(fabric.now()));
        dispatch
    }

    /// Returns the source from which the coroutines of one node take transactions.
    pub(crate) fn of(&self, cx: &Rc<Context>) -> Own<'_, 'a, W> {
        Own { dispatch: self, cx: Rc::clone(cx), since: Cell::default() }
    }

    /// Lets a client draw its next transaction at the time `at`, and puts this transaction into a queue.
    fn offer(&self, at: Nanos) {
        let rng = &mut *self.rng.borrow_mut();
        let input = self.draw(rng, at);
        let (read_only, first) = self.routes.of_input::<W>(&input);
        let node = self.router.place(read_only, first, rng);
        let queue = &self.queues[usize::from(node.0)];
        queue.waiting.borrow_mut().push_back((input, at));
        queue.bell.ring();
    }

    fn draw(&self, rng: &mut Rng, at: Nanos) -> W::Input {
        let input = self.workload.draw(rng);
        let Some(Heat { hotspot, trail, .. }) = &self.heat else { return input };
        let passed = Nanos(at.0.saturating_sub(trail.start.get().0));
        let shard = |input: &W::Input| {
            let (read_only, first) = self.routes.of_input::<W>(input);
            Some(self.router.shard_of(first.filter(|_| !read_only)?))
        };
        if shard(&input).is_none() || rng.random_range(0..100) >= hotspot.share_percent {
            return input;
        }
        let is_hot = |input: &W::Input| shard(input).is_some_and(|it| hotspot.is_hot(it, passed));
        let mut draws = (0..DRAWS_MAX).map(|_| self.workload.draw(rng));
        draws.find(is_hot).unwrap_or(input)
    }

    /// Stops the queues: after this call, no coroutine takes a transaction.
    pub(crate) fn stop(&self) {
        self.is_over.set(true);
        self.queues.iter().for_each(|queue| queue.bell.ring_all());
    }

    /// Returns the number of transactions that wait at each node.
    #[cfg(test)]
    fn waiting(&self) -> Vec<usize> {
        self.queues.iter().map(|queue| queue.waiting.borrow().len()).collect()
    }
}

/// The source from which one node's coroutines take transactions.
pub(crate) struct Own<'d, 'a, W: Workload> {
    dispatch: &'d Dispatch<'a, W>,
    cx: Rc<Context>,
    /// The time at which the transaction that now runs arrived in the queue.
    since: Cell<Nanos>,
}

impl<W: Workload> Own<'_, '_, W> {
    /// Returns the load counter of this source's node, if the run has a hotspot.
    fn load(&self) -> Option<&Load> {
        self.dispatch.heat.as_ref()?;
        self.cx.node.services()?.load()
    }
}

impl<W: Workload> Source<W> for Own<'_, '_, W> {
    async fn next(&self, _: &W, _: &mut Rng) -> Option<(W::Input, Option<Nanos>)> {
        let queue = &self.dispatch.queues[usize::from(self.cx.node.id.slot.0)];
        while !self.dispatch.is_over.get() {
            let first = queue.waiting.borrow_mut().pop_front();
            if let Some((input, since)) = first {
                // The thread whose transaction ended may be ahead of this thread.
                let ahead = since.0.saturating_sub(self.cx.port.observed().0);
                if ahead > 0 {
                    self.cx.port.sleep(Nanos(ahead)).await;
                    if self.dispatch.is_over.get() {
                        break;
                    }
                }
                self.since.set(since);
                if let Some(load) = self.load() {
                    load.began();
                }
                return Some((input, Some(since)));
            }
            queue.bell.wait().await;
        }
        None
    }

    fn ended(&self, is_done: bool) {
        let now = self.cx.port.observed();
        if let Some(heat) = &self.dispatch.heat {
            if is_done {
                heat.trail.ended(now);
            }
            if let Some(load) = self.load() {
                load.ended(now.0.saturating_sub(self.since.get().0));
            }
        }
        if !self.dispatch.is_over.get() {
            self.dispatch.offer(now);
        }
    }
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
