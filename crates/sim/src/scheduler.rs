//! Runs coroutines in virtual time.
//!
//! Invariant: the scheduler polls a coroutine when the event that the coroutine waits for has happened
//! and its thread is free, and at no other time. Between two polls the world's events happen in their
//! order. Virtual time advances only from event to event. A run ends when no further event can happen,
//! when the given time has passed, or when all coroutines have finished.
//!
//! Let coroutines finish before the scheduler is dropped. The scheduler drops unfinished coroutines,
//! and during these drops the cluster is at rest. A round that a dropped coroutine awaited lands no
//! further verbs. Detached rounds in flight still land afterwards.

use crate::fabric::SimFabric;
use crate::prefetch::prefetch_range;
use crate::threads::{Status, Task};
use crate::world::{Event, World};
use std::cell::RefCell;
use std::rc::Rc;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, TaskId};
use tarn_fabric::port::Port;

/// The scheduler prefetches data for completions that are about this many events ahead. A prefetch has
/// several steps. Each step runs some completions after the previous step, when the data of the
/// previous step is in the cache.
const EVENTS_AHEAD: usize = 32;
/// The number of events that the scheduler examines together. A prefetch waits for the translation of
/// its address. Several translations run in parallel if their instructions are close together in the
/// program.
const SIDE_BY_SIDE: usize = 4;
/// The number of recently shown completions that the scheduler remembers, a power of two.
const IN_SIGHT: usize = 8;
const FRAMES_BEHIND: usize = 3;
const RESULTS_BEHIND: usize = 6;
/// The number of bytes of a coroutine's frame that are prefetched before the coroutine is polled.
const FRAME_BYTES: usize = 4096;

/// The reason why a run returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Every coroutine has finished.
    Finished,
    /// The run has reached its end time. Another call of `run_until` continues the run.
    TimeOver,
}

/// The coroutines of all threads of a cluster.
pub struct Scheduler<'a> {
    fabric: SimFabric,
    executor: Executor<'a>,
    /// The number that the world gave to this scheduler's first coroutine.
    first: usize,
    sight: Sight,
}

impl<'a> Scheduler<'a> {
    /// Creates a scheduler without coroutines. The creation of a scheduler ends loading.
    pub fn new(fabric: &SimFabric) -> Scheduler<'a> {
        fabric.end_loading();
        let first = fabric.world.borrow().tasks.len();
        Scheduler {
            fabric: fabric.clone(),
            executor: Executor::numbered(),
            first,
            sight: Sight::default(),
        }
    }

    /// Adds a coroutine to the thread of `port`. The coroutine first runs when the thread is free.
    ///
    /// # Panics
    /// If the port does not belong to this cluster.
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

    /// Returns the number of coroutines that have not finished.
    pub fn live(&self) -> usize {
        self.executor.live()
    }

    /// Runs until every coroutine has finished, or virtual time reaches `until`.
    ///
    /// # Panics
    /// If coroutines wait and no further event can happen. A run without a further event is a bug of
    /// the simulator.
    pub fn run_until(&mut self, until: Nanos) -> Ended {
        let until_ps = until.0.saturating_mul(1_000);
        self.fabric.world.borrow_mut().count_to(until_ps);
        while self.executor.live() > 0 {
            let Some(task) = self.next_task(until_ps) else { return Ended::TimeOver };
            self.turn(task);
        }
        Ended::Finished
    }

    /// Runs one future on the thread of `port` to its end. The other coroutines run at the same time.
    ///
    /// # Panics
    /// The same panics as [`Scheduler::run_until`].
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
            let task = self.next_task(u64::MAX).expect("virtual time has no end");
            self.turn(task);
        }
    }

    /// Lets all messages and verbs in flight arrive, without polling any coroutine. A caller uses this
    /// function to read memory after all coroutines have finished.
    pub fn drain(&mut self) {
        let world = &mut *self.fabric.world.borrow_mut();
        assert_eq!(self.executor.live(), 0, "coroutines still run");
        while let Some((at_ps, event)) = world.queue.pop() {
            world.happen(at_ps, event);
        }
        for connection in world.threads.iter().flat_map(|thread| &thread.connections) {
            assert_eq!(connection.arrived, connection.posted, "a batch is lost");
        }
    }

    /// Lets events happen until a coroutine can continue, and returns this coroutine.
    fn next_task(&mut self, until_ps: u64) -> Option<u32> {
        let world = &mut *self.fabric.world.borrow_mut();
        loop {
            let Some((at_ps, event)) = world.queue.pop_until(until_ps) else {
                let waits = !world.queue.is_empty();
                assert!(waits, "coroutines wait, but no event is left");
                world.now_ps = until_ps;
                return None;
            };
            if world.queue.shown() + SIDE_BY_SIDE <= EVENTS_AHEAD {
                self.sight.look_ahead(world, &self.executor, self.first);
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

/// The completions that the queue showed most recently.
#[derive(Default)]
struct Sight {
    flights: [u32; IN_SIGHT],
    seen: usize,
}

impl Sight {
    /// Prefetches the data that the next few completions will need. (`post` prefetches the data that
    /// arrivals need.)
    #[inline]
    fn look_ahead(&mut self, world: &mut World, executor: &Executor<'_>, first: usize) {
        let World { queue, flights, .. } = world;
        queue.show(EVENTS_AHEAD, |event| {
            let Event::Complete { flight } = event else { return };
            flights.prefetch(flight);
            self.flights[self.seen % IN_SIGHT] = flight;
            self.seen += 1;
            if self.seen < IN_SIGHT {
                return;
            }
            let of = |behind| self.flights[(self.seen - 1 - behind) % IN_SIGHT];
            if let Some(task) = flights.prefetch_verbs(of(FRAMES_BEHIND))
                && let Some((frame, bytes)) = executor.frame(TaskId(task as usize - first))
            {
                prefetch_range(frame, bytes.min(FRAME_BYTES));
            }
            flights.prefetch_results(of(RESULTS_BEHIND));
        });
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
