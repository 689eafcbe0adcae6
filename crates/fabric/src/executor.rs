//! The executor of one thread, which polls the thread's coroutines one after the other.
//!
//! Invariant: a finished coroutine leaves no memory behind. The next spawned coroutine takes its place, unless a
//! scheduler numbers coroutines ([`Executor::numbered`]). The executor has no wakers and no queue, and allocates no
//! memory after `spawn`. A coroutine that is not ready costs one poll per turn. While transactions run, some
//! coroutine is always ready, so no turn is idle. Polling in turn also hides memory latency, because the other
//! coroutines run while one coroutine's cache lines are fetched. (Interleaving as in Psaropoulos et al.,
//! "Interleaving with Coroutines", VLDB 2017.)
//!
//! Other executors poll a future again only after its waker was called. But memory does not notify a thread that a
//! round is complete, so only the next poll detects the completion. So each future of this crate that is not ready
//! calls its waker immediately. As a result, other executors poll a future of this crate all the time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The waker of executors that poll all coroutines in turn. Executors that poll in turn need no notice, so this waker
/// does nothing. There is only one [`IN_TURN`], so that futures can recognise it by its address.
pub static IN_TURN: &Waker = Waker::noop();

/// Returns "not ready" and calls the waker, so that the future is polled again. For executors that poll in turn, this
/// costs only a comparison of two pointers.
#[inline(always)]
pub(crate) fn pending<T>(context: &Context<'_>) -> Poll<T> {
    let waker = context.waker();
    if !std::ptr::eq(waker, IN_TURN) {
        wake(waker);
    }
    Poll::Pending
}

/// A separate function, so that the compiled futures of transactions stay small.
#[cold]
#[inline(never)]
fn wake(waker: &Waker) {
    waker.wake_by_ref();
}

/// Names a spawned coroutine of one executor. The name is valid until the coroutine has finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId(pub usize);

/// An executor that polls its coroutines in turn until all have finished.
#[derive(Default)]
pub struct Executor<'a> {
    tasks: Vec<Option<Task<'a>>>,
    /// The free places in `tasks`, whose coroutines have finished.
    free: Vec<usize>,
    is_numbered: bool,
    live: usize,
}

impl<'a> Executor<'a> {
    /// Creates an executor without coroutines.
    pub fn new() -> Executor<'a> {
        Executor::default()
    }

    /// Creates an executor whose coroutines are numbered from 0 in the order in which they are spawned. No number is
    /// used twice. A scheduler that stores data about each coroutine for the scheduler's whole run needs such
    /// numbers.
    pub fn numbered() -> Executor<'a> {
        Executor { is_numbered: true, ..Executor::default() }
    }

    /// Adds a coroutine, which is first polled in the next turn.
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

    /// The number of coroutines that have not finished.
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

    /// Returns a pointer to a coroutine's frame and the frame's size in bytes. A scheduler uses them to prefetch the
    /// frame before it polls the coroutine. The caller must never read the frame's contents.
    #[inline]
    pub fn frame(&self, TaskId(index): TaskId) -> Option<(*const u8, usize)> {
        let task: &dyn Future<Output = ()> = &**self.tasks.get(index)?.as_ref()?;
        Some((std::ptr::from_ref(task).cast(), size_of_val(task)))
    }

    /// Runs one turn, which polls every coroutine once.
    #[inline]
    pub fn turn(&mut self) {
        for index in 0..self.tasks.len() {
            self.poll(TaskId(index));
        }
    }

    /// Runs turns until every coroutine has finished.
    pub fn run(&mut self) {
        while self.live > 0 {
            self.turn();
        }
    }

    /// Runs turns until every coroutine has finished, and calls `duty` after each turn, for example to poll messages.
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

    /// One coroutine runs all the time. Meanwhile many other coroutines run, for two turns each.
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
