//! Numbers of a compute node's threads, which are given again.
//!
//! Invariant: a number is one thread's at a time, and whoever has it next names its transactions behind all that were
//! named under it before. So no two transactions of a node's life have one tag ([`tarn_store::ids`]), however many threads
//! come and go; what the thread before has left, locks and doubts, is not taken for the next one's.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tarn_store::ids::{OwnerTag, THREADS_MAX};

struct Seen {
    /// A bit for each number in use.
    taken: u64,
    /// The last count under each number.
    counts: [u64; THREADS_MAX],
}

/// Of a compute node; see the module's text.
pub struct Threads(Mutex<Seen>);

const _: () = assert!(THREADS_MAX == u64::BITS as usize);

impl Default for Threads {
    fn default() -> Threads {
        Threads(Mutex::new(Seen { taken: 0, counts: [0; THREADS_MAX] }))
    }
}

impl Threads {
    /// Nothing under this lock panics.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no thread has, for a thread that will come, if there is one.
    pub fn reserve(&self) -> Option<u16> {
        let mut seen = self.seen();
        let number = seen.taken.trailing_ones();
        let free = (number < u64::BITS).then_some(number as u16)?;
        seen.taken |= 1 << free;
        Some(free)
    }

    /// A number is nobody's any more.
    pub fn give_back(&self, number: u16) {
        self.seen().taken &= !(1 << number);
    }

    /// A thread has come under a number: the count that its tags go on behind.
    pub(crate) fn come(&self, number: u16) -> u64 {
        let mut seen = self.seen();
        seen.taken |= 1 << number;
        seen.counts[usize::from(number)]
    }

    /// A thread names no more transactions: this was its last tag.
    pub(crate) fn end_with(&self, last: OwnerTag) {
        self.seen().counts[usize::from(last.thread())] = last.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};

    #[test]
    fn a_number_comes_again_and_its_count_goes_on() {
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
