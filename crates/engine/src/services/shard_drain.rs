//! Detects when a node's own transactions have released all locks that they held at some moment.
//!
//! Invariants: a transaction that locks anything at its own node is counted in its thread's current period. The count
//! lasts from before its first lock until after its last release. A thread ends its period when a drain is requested.
//! The thread ends the period between two polls of its coroutines. So it never does so between a read of the map and
//! the lock that follows. A thread reports that it is drained when all transactions of its earlier periods have
//! ended. So a node first closes a shard and then requests the drain. The node then waits for all transactions that
//! may have seen the shard open. This mechanism makes no lock more expensive.

use crate::cluster::threads::ThreadSet;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_store::ids::THREADS_MAX;

/// The requests to a node's threads to drain, and the threads' answers.
pub(crate) struct Drains {
    wanted: AtomicU64,
    /// For each thread, the last request that the thread has answered.
    done: [AtomicU64; THREADS_MAX],
}

impl Default for Drains {
    fn default() -> Drains {
        Drains { wanted: AtomicU64::new(0), done: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Drains {
    /// Requests all threads to drain. Returns the number of the request.
    pub(crate) fn want(&self) -> u64 {
        self.wanted.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether these threads have answered the request.
    pub(crate) fn is_done(&self, wanted: u64, threads: ThreadSet) -> bool {
        let of = |thread: usize| self.done[thread].load(Ordering::Acquire) >= wanted;
        (0..THREADS_MAX).filter(|thread| threads >> thread & 1 == 1).all(of)
    }
}

/// The period of its thread in which a transaction took its first lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Period(u8);

/// One thread's periods: the current period and, while the thread drains, the previous period.
#[derive(Default)]
pub(crate) struct Periods {
    current: Cell<u8>,
    /// For each of the two periods, the number of transactions that hold locks.
    holding: [Cell<u32>; 2],
    /// The request to drain on which the thread is working.
    draining: Cell<Option<u64>>,
    answered: Cell<u64>,
}

impl Periods {
    /// Counts a transaction that is about to lock something for the first time.
    #[inline]
    pub(crate) fn enter(&self) -> Period {
        let at = self.current.get();
        let holding = &self.holding[usize::from(at)];
        holding.set(holding.get() + 1);
        Period(at)
    }

    /// Removes a transaction from its period's count, because the transaction holds no lock any longer.
    #[inline]
    pub(crate) fn leave(&self, Period(at): Period) {
        let holding = &self.holding[usize::from(at)];
        debug_assert!(holding.get() > 0, "a transaction leaves only a period that it entered");
        holding.set(holding.get() - 1);
    }

    /// Continues the thread's work on the latest request to drain. `thread` is the thread's number in its node.
    #[inline]
    pub(crate) fn advance(&self, drains: &Drains, thread: u16) {
        let wanted = drains.wanted.load(Ordering::Acquire);
        if wanted != self.answered.get() {
            self.drain(drains, thread, wanted);
        }
    }

    #[cold]
    fn drain(&self, drains: &Drains, thread: u16, wanted: u64) {
        let draining = self.draining.get().unwrap_or_else(|| {
            // The previous period has no transactions any more, because the thread has drained it.
            self.current.set(1 - self.current.get());
            wanted
        });
        let is_over = self.holding[usize::from(1 - self.current.get())].get() == 0;
        self.draining.set((!is_over).then_some(draining));
        if is_over {
            self.answered.set(draining);
            drains.done[usize::from(thread)].store(draining, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Enter,
        /// Ends the transaction at this index of the list, if there is one.
        Leave(usize),
        Want,
        Advance,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            Just(Step::Enter),
            (0usize..8).prop_map(Step::Leave),
            Just(Step::Want),
            Just(Step::Advance),
            Just(Step::Advance),
        ];
        prop::collection::vec(step, 0..120)
    }

    proptest! {
        /// Checks that no answer to a request to drain comes too early, and that each answer finally comes.
        #[test]
        fn a_drain_ends_when_all_earlier_transactions_have_ended(steps in steps()) {
            let (drains, periods) = (Drains::default(), Periods::default());
            let mut there: Vec<(usize, Period)> = Vec::new();
            let mut asked: Vec<(u64, Vec<usize>)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Enter => there.push((number, periods.enter())),
                    Step::Leave(at) if at < there.len() => periods.leave(there.swap_remove(at).1),
                    Step::Leave(_) => {}
                    Step::Want => {
                        let before = there.iter().map(|(number, _)| *number).collect();
                        asked.push((drains.want(), before));
                    }
                    Step::Advance => periods.advance(&drains, 0),
                }
                for (wanted, before) in &asked {
                    let is_left = there.iter().any(|(number, _)| before.contains(number));
                    prop_assert!(!(is_left && drains.is_done(*wanted, 1)));
                }
            }
            there.into_iter().for_each(|(_, period)| periods.leave(period));
            (0..2).for_each(|_| periods.advance(&drains, 0));
            prop_assert!(asked.iter().all(|(wanted, _)| drains.is_done(*wanted, 1)));
        }
    }

    #[test]
    fn every_thread_must_answer_a_drain() {
        let (drains, first, second) = (Drains::default(), Periods::default(), Periods::default());
        let wanted = drains.want();
        first.advance(&drains, 0);
        assert!(drains.is_done(wanted, 0b01) && !drains.is_done(wanted, 0b11));
        let late = second.enter();
        second.advance(&drains, 1);
        assert!(!drains.is_done(wanted, 0b11));
        second.leave(late);
        second.advance(&drains, 1);
        assert!(drains.is_done(wanted, 0b11));
    }
}
