//! Numbers of a compute node's threads. After a thread has ended, another thread may use its number.
//!
//! Invariant: a number belongs to one thread at a time. The next thread with a number continues the count of
//! transactions at the point where the previous thread stopped. So no two transactions of a node's incarnation have
//! the same tag ([`tarn_store::ids`]), however many threads start and end. A thread may leave locks and transactions
//! in doubt. Other nodes do not mistake them for locks and transactions of the next thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tarn_store::ids::{OwnerTag, THREADS_MAX};

struct Seen {
    /// One bit for each thread number in use.
    taken: ThreadSet,
    /// For each thread number, the last count of transactions.
    counts: [u64; THREADS_MAX],
}

/// The thread numbers of a compute node; see the module's text.
pub struct Threads(Mutex<Seen>);

/// A set of a node's threads, with one bit for each thread.
pub(crate) type ThreadSet = u128;

const _: () = assert!(THREADS_MAX == ThreadSet::BITS as usize);

impl Default for Threads {
    fn default() -> Threads {
        Threads(Mutex::new(Seen { taken: 0, counts: [0; THREADS_MAX] }))
    }
}

impl Threads {
    /// Locks the state of the thread numbers. No code that holds this lock panics.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a free thread number for a future thread; `None` if all numbers are taken.
    pub fn reserve(&self) -> Option<u16> {
        let mut seen = self.seen();
        let number = seen.taken.trailing_ones();
        let free = (number < ThreadSet::BITS).then_some(number as u16)?;
        seen.taken |= 1 << free;
        Some(free)
    }

    /// Frees a thread number.
    pub fn give_back(&self, number: u16) {
        self.seen().taken &= !(1 << number);
    }

    /// Starts a thread with this number. Returns the count of transactions after which the thread's tags continue.
    pub(crate) fn come(&self, number: u16) -> u64 {
        let mut seen = self.seen();
        seen.taken |= 1 << number;
        seen.counts[usize::from(number)]
    }

    /// Records that a thread creates no more transaction tags; `last` was its last tag.
    pub(crate) fn end_with(&self, last: OwnerTag) {
        self.seen().counts[usize::from(last.thread())] = last.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};

    #[test]
    fn a_thread_number_is_reused_and_its_count_goes_on() {
        let node = NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) };
        let threads = Threads::default();
        let numbers: Vec<u16> = std::iter::from_fn(|| threads.reserve()).collect();
        assert_eq!(numbers, (0..THREADS_MAX as u16).collect::<Vec<_>>());
        assert_eq!(threads.come(7), 0);
        threads.end_with(OwnerTag::new(node, 7, 12));
        assert_eq!(threads.reserve(), None, "the thread is there");
        threads.give_back(7);
        assert_eq!((threads.reserve(), threads.reserve(), threads.come(7)), (Some(7), None, 12));
    }
}
