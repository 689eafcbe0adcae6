//! The turns of coroutines: which coroutine becomes ready, which coroutine is polled next, and the
//! processor time that a turn costs.
//!
//! Invariant: a coroutine has at most one place in one queue. A coroutine becomes ready when a round
//! completes, a timer expires or a message arrives. The scheduler may poll a coroutine again without an
//! event if the coroutine yields without waiting for a round, a timer or a message.

use crate::clocks::Clock;
use crate::threads::Status;
use crate::world::{Event, World};
use tarn_fabric::clock::Nanos;

impl World {
    /// Makes a waiting coroutine ready. Returns the coroutine if it can be polled immediately.
    pub(crate) fn wake(&mut self, task: u32) -> Option<u32> {
        let state = &mut self.tasks[task as usize];
        if state.status != Status::Waiting {
            return None;
        }
        let index = state.thread;
        let thread = &mut self.threads[index as usize];
        if state.yields > 0 {
            thread.idlers.retain(|idler| *idler != task);
        }
        if !thread.is_scheduled && thread.ready.is_empty() && thread.local_ps <= self.now_ps {
            return Some(task);
        }
        state.status = Status::Queued;
        thread.ready.push_back(task);
        self.schedule(index);
        None
    }

    /// Like [`World::wake`], but puts the coroutine behind the coroutines that are already ready.
    pub(crate) fn wake_in_turn(&mut self, task: u32) {
        let state = &mut self.tasks[task as usize];
        if state.status != Status::Waiting {
            return;
        }
        state.status = Status::Queued;
        let (index, was_idle) = (state.thread, state.yields > 0);
        let thread = &mut self.threads[index as usize];
        if was_idle {
            thread.idlers.retain(|idler| *idler != task);
        }
        thread.ready.push_back(task);
        self.schedule(index);
    }

    /// Makes the thread read its queue as soon as the thread is free.
    pub(crate) fn schedule(&mut self, index: u32) {
        let thread = &mut self.threads[index as usize];
        if !thread.is_scheduled {
            thread.is_scheduled = true;
            let at_ps = thread.local_ps.max(self.now_ps);
            self.queue.push(at_ps, Event::Run { thread: index });
        }
    }

    pub(crate) fn next_ready(&mut self, thread: u32) -> Option<u32> {
        let ready = &mut self.threads[thread as usize].ready;
        match &mut self.dice {
            Some(dice) if ready.len() > 1 => {
                let chosen = dice.up_to(ready.len() as u64 - 1) as usize;
                ready.swap_remove_back(chosen)
            }
            _ => ready.pop_front(),
        }
    }

    /// Begins the turn of a coroutine that is about to be polled.
    #[inline]
    pub(crate) fn begin_turn(&mut self, task: u32) {
        let state = &mut self.tasks[task as usize];
        state.status = Status::Running;
        let thread = &mut self.threads[state.thread as usize];
        debug_assert!(thread.local_ps <= self.now_ps, "the thread is busy");
        thread.local_ps = self.now_ps;
        let owed_ps = std::mem::take(&mut thread.owed_ps);
        thread.spend(self.costs.switch + owed_ps);
        self.current = Some(task);
        self.is_registered = false;
        self.tallies.turns += 1;
    }

    /// Ends the turn of a coroutine that was polled.
    #[inline]
    pub(crate) fn end_turn(&mut self, task: u32, has_finished: bool) {
        self.current = None;
        let state = &mut self.tasks[task as usize];
        let index = state.thread;
        let thread = &mut self.threads[index as usize];
        thread.busy_ps += thread.local_ps - self.now_ps;
        thread.busy_to_ps = thread.local_ps;
        if let Some(dice) = &mut self.dice
            && dice.one_in(dice.chaos.pause_one_in)
        {
            thread.local_ps += dice.up_to(dice.chaos.pause_max_ns) * 1_000;
        }
        if has_finished {
            state.status = Status::Finished;
        } else if self.is_registered {
            state.status = Status::Waiting;
            state.yields = 0;
        } else {
            self.has_yielded(task);
        }
        if !self.threads[index as usize].ready.is_empty() {
            self.schedule(index);
        }
    }

    /// Handles a coroutine that yielded. A coroutine that yields waits for an event that the world does
    /// not know.
    fn has_yielded(&mut self, task: u32) {
        let state = &mut self.tasks[task as usize];
        let thread = &mut self.threads[state.thread as usize];
        if state.yields == 0 {
            state.status = Status::Queued;
            thread.ready.push_back(task);
        } else {
            let longest = 2 * self.costs.travel + self.costs.respond + self.costs.complete;
            let pause = (self.costs.switch.max(1) << state.yields.min(32)).min(longest);
            state.status = Status::Waiting;
            state.wake_at_ps = thread.local_ps + pause;
            thread.idlers.push(task);
            self.queue.push(state.wake_at_ps, Event::Wake { task });
        }
        state.yields += 1;
    }

    /// Makes the current coroutine sleep until its node's clock shows the given time. The coroutine
    /// wakes earlier if another event that it waits for happens. `at` computes the true time from the
    /// clock.
    pub(crate) fn park_until(&mut self, at: impl FnOnce(&Clock) -> Nanos) {
        let Some(task) = self.current else { return };
        let state = &mut self.tasks[task as usize];
        let thread = &self.threads[state.thread as usize];
        let at = at(&self.clocks[usize::from(thread.node.slot.0)]);
        state.wake_at_ps = (at.0.saturating_mul(1_000)).max(thread.local_ps);
        self.queue.push(state.wake_at_ps, Event::Wake { task });
        self.is_registered = true;
    }
}
