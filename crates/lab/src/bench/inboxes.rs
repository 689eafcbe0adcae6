//! Hands each transaction from the thread that draws it to the thread that runs it. The thread that runs it belongs
//! to the node that owns the shard of the transaction's first record.
//!
//! Invariants: each drawn input is run once, by one thread, unless the phase ends earlier. Threads
//! hand over inputs in batches and take one lock per batch, so a single transaction takes no lock
//! of its own. A thread that draws for a busy thread waits, so the figures show a node with too
//! many requests. If each thread drew until an input belongs to its own node, the figures would
//! hide such a node.

use crate::harness::worker::{Signals, Source};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tarn_engine::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::Rng;
use tarn_workloads::Workload;
use tarn_workloads::routes::Routes;

/// The number of inputs that a thread hands over together.
const BATCH: usize = 32;
/// The largest number of inputs that wait for one thread.
const WAITING_MAX: usize = 32 * BATCH;

/// Inputs that wait for one thread. An inbox has cachelines of its own, since its thread reads it
/// often.
#[repr(align(128))]
struct Inbox<I> {
    waiting: Mutex<Vec<I>>,
    /// The number of waiting inputs, for threads that only check this number.
    count: AtomicUsize,
}

/// The inboxes of all threads.
pub(super) struct Inboxes<I> {
    of: Vec<Inbox<I>>,
    threads_per_node: usize,
}

impl<I> Inboxes<I> {
    /// Makes an inbox for each of `threads` threads.
    pub(super) fn new(threads: usize, threads_per_node: usize) -> Inboxes<I> {
        let inbox = |_| Inbox { waiting: Mutex::default(), count: AtomicUsize::new(0) };
        Inboxes { of: (0..threads).map(inbox).collect(), threads_per_node }
    }

    /// Hands a batch over to a thread. The batch stays with the caller if too many inputs already
    /// wait for that thread.
    fn hand_over(&self, to: usize, batch: &mut Vec<I>) {
        let inbox = &self.of[to];
        if inbox.count.load(Ordering::Relaxed) + batch.len() > WAITING_MAX {
            return;
        }
        let mut waiting = inbox.waiting.lock().expect("no panic under this lock");
        waiting.append(batch);
        inbox.count.store(waiting.len(), Ordering::Release);
    }

    /// Takes all inputs that wait for a thread.
    fn take(&self, thread: usize, into: &mut VecDeque<I>) {
        let inbox = &self.of[thread];
        if inbox.count.load(Ordering::Acquire) > 0 {
            let mut waiting = inbox.waiting.lock().expect("no panic under this lock");
            into.extend(waiting.drain(..));
            inbox.count.store(0, Ordering::Release);
        }
    }
}

/// The source from which a thread's coroutines take transactions.
pub(super) struct Routed<'a, W: Workload> {
    inboxes: &'a Inboxes<W::Input>,
    signals: &'a Signals,
    cx: Rc<Context>,
    thread: usize,
    routes: Routes,
    own: RefCell<VecDeque<W::Input>>,
    /// For each thread, the inputs that are to be handed over to that thread.
    others: RefCell<Vec<Vec<W::Input>>>,
}

impl<'a, W: Workload> Routed<'a, W> {
    /// Makes the source of transactions for one thread. `thread` is the thread's number among all threads.
    pub(super) fn new(
        inboxes: &'a Inboxes<W::Input>,
        signals: &'a Signals,
        (workload, cx, thread): (&W, &Rc<Context>, usize),
    ) -> Routed<'a, W> {
        let others = inboxes.of.iter().map(|_| Vec::with_capacity(BATCH)).collect();
        Routed {
            inboxes,
            signals,
            cx: Rc::clone(cx),
            thread,
            routes: Routes::of(workload),
            own: RefCell::default(),
            others: RefCell::new(others),
        }
    }

    /// Returns the number of the thread that is to run the input. This thread belongs to the node that owns the
    /// input's shard. The shard's number selects one of the owner's threads.
    fn thread_for(&self, input: &W::Input) -> usize {
        let (read_only, first) = self.routes.of_input::<W>(input);
        let place = first.filter(|_| !read_only).and_then(|(table, key)| {
            let shard = self.cx.table(table).shard_of(key);
            let owner = self.cx.node.services()?.shards.entry(shard)?.owner;
            let (node, of) = (usize::from(owner.slot.0), self.inboxes.threads_per_node);
            Some(node * of + usize::from(shard.0) / (self.inboxes.of.len() / of) % of)
        });
        place.filter(|thread| *thread < self.inboxes.of.len()).unwrap_or(self.thread)
    }

    /// Returns the next input for this thread, if one is available. To find this input, the function draws as few
    /// inputs as possible.
    fn look(&self, workload: &W, rng: &mut Rng) -> Option<W::Input> {
        let (own, others) = (&mut *self.own.borrow_mut(), &mut *self.others.borrow_mut());
        loop {
            if own.is_empty() {
                self.inboxes.take(self.thread, own);
            }
            if let Some(input) = own.pop_front() {
                return Some(input);
            }
            let input = workload.draw(rng);
            let to = self.thread_for(&input);
            if to == self.thread {
                return Some(input);
            }
            others[to].push(input);
            if others[to].len() >= BATCH {
                self.inboxes.hand_over(to, &mut others[to]);
                if !others[to].is_empty() {
                    return None;
                }
            }
        }
    }
}

impl<W: Workload> Source<W> for &Routed<'_, W> {
    async fn next(&self, workload: &W, rng: &mut Rng) -> Option<(W::Input, Option<Nanos>)> {
        while !self.signals.has_stopped() {
            if let Some(input) = self.look(workload, rng) {
                return Some((input, None));
            }
            self.cx.port.yield_now().await;
        }
        None
    }

    #[inline(always)]
    fn ended(&self, _: bool) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_is_taken_once_and_in_order_and_too_much_stays() {
        let inboxes = Inboxes::new(2, 1);
        let mut next = 0..;
        let mut handed = 0;
        loop {
            let mut batch: Vec<u32> = next.by_ref().take(BATCH).collect();
            inboxes.hand_over(1, &mut batch);
            if !batch.is_empty() {
                assert_eq!((batch.len(), handed), (BATCH, WAITING_MAX), "all of a batch stays");
                break;
            }
            handed += BATCH;
        }
        let mut taken = VecDeque::new();
        inboxes.take(0, &mut taken);
        assert!(taken.is_empty(), "another's");
        inboxes.take(1, &mut taken);
        assert_eq!(taken, (0..WAITING_MAX as u32).collect::<Vec<_>>());
        inboxes.take(1, &mut taken);
        assert_eq!(taken.len(), WAITING_MAX, "once");
    }
}
