//! One thread's coroutines, polled in turn.
//!
//! Invariant: a finished coroutine leaves nothing behind. The next coroutine takes its place,
//! unless a scheduler numbers coroutines ([`Executor::numbered`]). There is no waker, no queue, and
//! no allocation after `spawn`. A coroutine that is not ready costs one poll per turn; on the data
//! path some coroutine is always ready, so turns are never idle. This also hides memory latency:
//! while one coroutine's lines travel, the others run. (Interleaving as in Psaropoulos et al.,
//! "Interleaving with Coroutines", VLDB 2017.)
//!
//! Another executor polls a future again only when its waker was called. Memory does not say that a round is complete:
//! the next poll finds out. So each future of this crate that is not ready calls its waker at once, and another executor
//! polls busily.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The waker of executors that poll in turn and need not be told: it does nothing. There is one
/// object, so that it can be recognised by its address.
pub static IN_TURN: &Waker = Waker::noop();

/// Returns "not ready, poll again", and calls the waker. Executors that poll in turn pay for a
/// comparison of two pointers.
#[inline(always)]
pub(crate) fn pending<T>(context: &Context<'_>) -> Poll<T> {
    let waker = context.waker();
    if !std::ptr::eq(waker, IN_TURN) {
        wake(waker);
    }
    Poll::Pending
}

/// A function of its own, so that the futures of the data path stay as small as they are.
#[cold]
#[inline(never)]
fn wake(waker: &Waker) {
    waker.wake_by_ref();
}

/// Names a spawned coroutine of one executor, until it has finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId(pub usize);

/// Polls its coroutines round-robin until all have finished.
#[derive(Default)]
pub struct Executor<'a> {
    tasks: Vec<Option<Task<'a>>>,
    /// Places of the coroutines that have finished.
    free: Vec<usize>,
    is_numbered: bool,
    live: usize,
}

impl<'a> Executor<'a> {
    /// An executor without coroutines.
    pub fn new() -> Executor<'a> {
        Executor::default()
    }

    /// Makes an executor whose coroutines are numbered from 0 in the order in which they are
    /// spawned. No number is used twice. It is for a scheduler that keeps a record of each
    /// coroutine for as long as it runs.
    pub fn numbered() -> Executor<'a> {
        Executor { is_numbered: true, ..Executor::default() }
    }

    /// Adds a coroutine; it first runs in the next turn.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + 'a) -> TaskId {
        self.live += 1;
        let task: Option<Task<'a>> = Some(Box::pin(task));
        match self.free.pop() {
            Some(index) => {
                self.tasks[index] = task;
                TaskId(index)
            }
            None => {
                self.tasks.push(task);
                TaskId(self.tasks.len() - 1)
            }
        }
    }

    /// Coroutines that have not finished.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Polls one coroutine once, for a scheduler that knows which coroutines are ready.
    #[inline]
    pub fn poll(&mut self, TaskId(index): TaskId) {
        let Some(task) = &mut self.tasks[index] else { return };
        let mut context = Context::from_waker(IN_TURN);
        if let Poll::Ready(()) = task.as_mut().poll(&mut context) {
            self.end(index);
        }
    }

    #[cold]
    fn end(&mut self, index: usize) {
        self.tasks[index] = None;
        self.live -= 1;
        if !self.is_numbered {
            self.free.push(index);
        }
    }

    /// Returns the place of a coroutine's frame and its size in bytes, for a scheduler that fetches
    /// frames before it polls. The frame's contents must never be read.
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
    let mut context = Context::from_waker(IN_TURN);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// One coroutine runs all the time. Many others beside it run for two turns each.
    #[test]
    fn finished_coroutines_leave_nothing_behind() {
        let rounds = if cfg!(miri) { 100 } else { 100_000 };
        let (done, is_over) = (Cell::new(0), Cell::new(false));
        let mut executor = Executor::new();
        executor.spawn(std::future::poll_fn(|_| match is_over.get() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }));
        for round in 0..rounds {
            let (done, mut turns) = (&done, 0);
            executor.spawn(std::future::poll_fn(move |_| {
                turns += 1;
                done.set(done.get() + u32::from(turns == 2));
                if turns == 2 { Poll::Ready(()) } else { Poll::Pending }
            }));
            executor.turn();
            assert!(executor.live() <= 3 && executor.tasks.len() <= 3, "round {round}");
        }
        is_over.set(true);
        executor.run();
        assert_eq!((executor.live(), done.get()), (0, rounds));
    }

    #[test]
    fn each_number_is_given_out_once_and_in_its_place() {
        let mut executor = Executor::numbered();
        for number in 0..10 {
            assert_eq!(executor.spawn(async {}), TaskId(number));
            executor.turn();
        }
    }
}
