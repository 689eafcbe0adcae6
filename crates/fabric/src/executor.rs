//! One thread's coroutines, polled in turn.
//!
//! Invariant: no waker, no queue, no allocation after `spawn`. A coroutine that is not ready costs
//! one poll per turn; on the data path something is always ready, so turns are never idle. That is
//! also what hides memory latency: while one coroutine's lines travel, the others run.
//! (Interleaving as in Psaropoulos et al., "Interleaving with Coroutines", VLDB 2017.)

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Names a spawned coroutine of one executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId(pub usize);

/// Polls its coroutines round-robin until all have finished.
#[derive(Default)]
pub struct Executor<'a> {
    tasks: Vec<Option<Task<'a>>>,
    live: usize,
}

impl<'a> Executor<'a> {
    /// An executor without coroutines.
    pub fn new() -> Executor<'a> {
        Executor::default()
    }

    /// Adds a coroutine; it first runs in the next turn.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + 'a) -> TaskId {
        self.tasks.push(Some(Box::pin(task)));
        self.live += 1;
        TaskId(self.tasks.len() - 1)
    }

    /// Coroutines that have not finished.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Polls one coroutine once: what a scheduler that knows who is ready calls.
    #[inline]
    pub fn poll(&mut self, TaskId(index): TaskId) {
        let Some(task) = &mut self.tasks[index] else { return };
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(()) = task.as_mut().poll(&mut context) {
            self.tasks[index] = None;
            self.live -= 1;
        }
    }

    /// Where a coroutine's frame lies and how many bytes it has, for a scheduler that fetches frames
    /// before it polls: never to be looked into.
    #[inline]
    pub fn frame(&self, TaskId(index): TaskId) -> Option<(*const u8, usize)> {
        let task: &dyn Future<Output = ()> = &**self.tasks.get(index)?.as_ref()?;
        Some((std::ptr::from_ref(task).cast(), size_of_val(task)))
    }

    /// One turn: polls every coroutine once.
    #[inline]
    pub fn turn(&mut self) {
        for index in 0..self.tasks.len() {
            self.poll(TaskId(index));
        }
    }

    /// Turns until every coroutine has finished.
    pub fn run(&mut self) {
        while self.live > 0 {
            self.turn();
        }
    }

    /// Turns until every coroutine has finished, calling `duty` between turns (polling messages,
    /// say).
    pub fn run_with(&mut self, mut duty: impl FnMut()) {
        while self.live > 0 {
            self.turn();
            duty();
        }
    }
}

/// Runs one future to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}
