//! Runs coroutines in virtual time.
//!
//! Invariant: a coroutine is polled when what it waits for has happened and its thread is free, and
//! never otherwise; between two polls the world's events happen in their order. Time does not pass by
//! itself: a run ends when nothing can happen any more, when its time is over, or when all coroutines
//! have finished.
//!
//! Let coroutines finish before the scheduler is dropped. Those that have not are dropped with it, and
//! what they do as they are dropped, they do on a cluster at rest: their rounds that are on their way
//! may land after it.

use crate::fabric::SimFabric;
use crate::prefetch::prefetch_range;
use crate::queue::KNOWN_AHEAD;
use crate::threads::{Status, Task};
use crate::world::World;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, TaskId};
use tarn_fabric::port::Port;

/// So many events are looked at side by side: fetching waits for the translation of addresses, and
/// several translations go on at once if their instructions stand close together.
const SIDE_BY_SIDE: usize = 4;
/// How many events ahead things are fetched: a flight, what it holds, the entries of the pages that its
/// verbs name, the lines. Each is found in the one before.
const FLIGHTS_AHEAD: usize = 4 * SIDE_BY_SIDE;
const VERBS_AHEAD: usize = 3 * SIDE_BY_SIDE;
const ENTRIES_AHEAD: usize = 2 * SIDE_BY_SIDE;
const LINES_AHEAD: usize = SIDE_BY_SIDE;
const _: () = assert!(FLIGHTS_AHEAD + SIDE_BY_SIDE - 1 <= KNOWN_AHEAD);
/// So much of a coroutine's frame is fetched before it is polled.
const FRAME_BYTES: usize = 4096;

/// Why a run returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Every coroutine has finished.
    Finished,
    /// The time is over; call again to go on.
    TimeOver,
}

/// The coroutines of all threads of a cluster.
pub struct Scheduler<'a> {
    fabric: SimFabric,
    executor: Executor<'a>,
    /// The world's number of this scheduler's first coroutine.
    first: usize,
    /// Events that happened.
    popped: usize,
}

impl<'a> Scheduler<'a> {
    /// A scheduler without coroutines. Loading is over.
    pub fn new(fabric: &SimFabric) -> Scheduler<'a> {
        fabric.end_loading();
        let first = fabric.world.borrow().tasks.len();
        Scheduler { fabric: fabric.clone(), executor: Executor::new(), first, popped: 0 }
    }

    /// Adds a coroutine to the thread of `port`; it first runs when its thread is free.
    ///
    /// # Panics
    /// If the port is not of this cluster.
    pub fn spawn(&mut self, port: &Port, task: impl Future<Output = ()> + 'a) -> TaskId {
        let id = self.executor.spawn(task);
        let world = &mut *self.fabric.world.borrow_mut();
        let thread = *world.endpoints.get(&port.endpoint()).expect("a port of this cluster");
        let number = world.tasks.len();
        assert_eq!(number, self.first + id.0, "one scheduler adds coroutines at a time");
        world.tasks.push(Task { thread, status: Status::Queued, wake_at_ps: 0, yields: 0 });
        world.threads[thread as usize].ready.push_back(number as u32);
        world.schedule(thread);
        id
    }

    /// Coroutines that have not finished.
    pub fn live(&self) -> usize {
        self.executor.live()
    }

    /// Runs until every coroutine has finished, or virtual time reaches `until`.
    ///
    /// # Panics
    /// If coroutines wait and nothing can happen any more: a bug of ours.
    pub fn run_until(&mut self, until: Nanos) -> Ended {
        let until_ps = until.0.saturating_mul(1_000);
        while self.executor.live() > 0 {
            let Some(task) = self.next_task(until_ps) else { return Ended::TimeOver };
            self.turn(task);
        }
        Ended::Finished
    }

    /// Runs one future on the thread of `port` to its end, beside the coroutines.
    ///
    /// # Panics
    /// As [`Scheduler::run_until`].
    pub fn block_on<T: 'a>(&mut self, port: &Port, future: impl Future<Output = T> + 'a) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&result);
        self.spawn(port, async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
            let task = self.next_task(u64::MAX).expect("time does not end");
            self.turn(task);
        }
    }

    /// Lets everything that is on its way arrive, without polling anybody: for a look at memory when
    /// nobody runs any more.
    pub fn drain(&mut self) {
        let world = &mut *self.fabric.world.borrow_mut();
        assert_eq!(self.executor.live(), 0, "coroutines still run");
        while let Some((at_ps, event)) = world.queue.pop() {
            world.happen(at_ps, event);
        }
        for connection in world.threads.iter().flat_map(|thread| &thread.connections) {
            assert_eq!(connection.arrived, connection.posted, "a batch has got lost");
        }
    }

    /// Lets events happen until a coroutine can go on.
    fn next_task(&mut self, until_ps: u64) -> Option<u32> {
        let world = &mut *self.fabric.world.borrow_mut();
        loop {
            let at_ps = world.queue.next_at_ps();
            let at_ps = at_ps.expect("coroutines wait for something that will never happen");
            if at_ps > until_ps {
                world.now_ps = until_ps;
                return None;
            }
            let (at_ps, event) = world.queue.pop().expect("it was seen");
            self.popped = self.popped.wrapping_add(1);
            if self.popped.is_multiple_of(SIDE_BY_SIDE) {
                look_ahead(world, &self.executor, self.first);
            }
            if let Some(task) = world.happen(at_ps, event) {
                world.begin_turn(task);
                return Some(task);
            }
        }
    }

    #[inline]
    fn turn(&mut self, task: u32) {
        let live = self.executor.live();
        self.executor.poll(TaskId(task as usize - self.first));
        let has_finished = self.executor.live() < live;
        self.fabric.world.borrow_mut().end_turn(task, has_finished);
    }
}

/// Brings what the next few events will need.
#[inline]
fn look_ahead(world: &mut World, executor: &Executor<'_>, first: usize) {
    for ahead in LINES_AHEAD..LINES_AHEAD + SIDE_BY_SIDE {
        let Some(event) = world.queue.soon(ahead) else { return };
        world.prefetch_lines(event);
    }
    for ahead in ENTRIES_AHEAD..ENTRIES_AHEAD + SIDE_BY_SIDE {
        let Some(event) = world.queue.soon(ahead) else { return };
        world.prefetch_entries(event);
    }
    for ahead in VERBS_AHEAD..VERBS_AHEAD + SIDE_BY_SIDE {
        let Some(event) = world.queue.soon(ahead) else { return };
        if let Some(task) = world.prefetch_verbs(event)
            && let Some((frame, bytes)) = executor.frame(TaskId(task as usize - first))
        {
            prefetch_range(frame, bytes.min(FRAME_BYTES));
        }
    }
    for ahead in FLIGHTS_AHEAD..FLIGHTS_AHEAD + SIDE_BY_SIDE {
        let Some(event) = world.queue.soon(ahead) else { return };
        world.prefetch_flight(event);
    }
}

impl Drop for Scheduler<'_> {
    fn drop(&mut self) {
        let world = &mut *self.fabric.world.borrow_mut();
        for task in &mut world.tasks[self.first..] {
            task.status = Status::Finished;
        }
        world.threads.iter_mut().for_each(|thread| {
            thread.ready.clear();
            thread.idlers.clear();
        });
    }
}
