//! Owner tags name the transaction that holds a lock, and the transaction that wrote a log entry.
//!
//! Invariant: a tag is never zero. As long as a lock, a log entry or an unresolved outcome of a transaction remains,
//! no other transaction has the same tag. A tag names the compute node's slot and incarnation, the thread, and a
//! count of that thread's transactions. If another thread takes over the number of a thread, it continues the count
//! (`threads` of the engine). The count starts again at 0 after 2^33 transactions. After so many transactions, every
//! coordinator of the thread has released the locks of its old transactions and overwritten their log entries. The
//! only exception is a transaction in doubt that stayed unresolved during 2^33 later transactions. A caller must not
//! resolve a transaction whose tag is so old.
//!
//! So if a transaction releases a word at its end, the tag in that word is enough to identify the transaction. The
//! words that a transaction releases at its end are LOCK words, marks of nodes and headers, and grants of other
//! nodes. Data that remain after the transaction are identified only by the tag together with a version. A record of
//! OOCC is a transaction's own if both WRITER and VERSION are the transaction's. A cell of LOTUS is a transaction's
//! own if the cell's writer is the transaction, and the cell differs from the former cell in the transaction's log.
//! Motor's STAMP is a version and not a tag.
//!
//! ```text
//! 63 62 | 61        52 | 51          40 | 39        34 | 33              | 32                 0
//! mode  |  slot (10)   | incarnation 12 | thread 5..=0 | thread 6        |     count (33)
//! ```
//! The highest bit of the thread number lies below its other bits. So a tag of one of the first 64 threads is the
//! same word as before nodes could have more threads.

use std::fmt;
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};

const COUNT_BITS: u32 = 33;
const THREAD_BITS: u32 = 7;
/// The bits of the thread number above its highest bit.
const THREAD_LOW_BITS: u32 = THREAD_BITS - 1;
const THREAD_LOW: u64 = (1 << THREAD_LOW_BITS) - 1;
const INCARNATION_BITS: u32 = 12;
const SLOT_BITS: u32 = 10;
const MODE_SHIFT: u32 = 62;

const _: () = assert!(COUNT_BITS + THREAD_BITS + INCARNATION_BITS + SLOT_BITS == MODE_SHIFT);

/// The maximum number of compute nodes in one cluster.
pub const SLOTS_MAX: usize = 1 << SLOT_BITS;
/// The maximum number of coordinator threads on one compute node.
pub const THREADS_MAX: usize = 1 << THREAD_BITS;
/// The number of incarnations of one node slot.
pub const INCARNATIONS_MAX: usize = 1 << INCARNATION_BITS;
/// The number of transactions of one thread in one incarnation.
pub const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// The tag that names a transaction, and that its LOCK words contain. The tag is never zero, because incarnations
/// start at 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerTag(u64);

impl OwnerTag {
    /// Creates the tag of the `count`-th transaction of a thread.
    ///
    /// # Panics
    /// If an argument has more bits than its field in the tag, or if the incarnation is 0 (a bug of Tarn).
    pub fn new(node: NodeId, thread: u16, count: u64) -> OwnerTag {
        let (slot, incarnation) = (node.slot.0, node.incarnation.0);
        assert!(usize::from(slot) < SLOTS_MAX);
        assert!(usize::from(incarnation) < INCARNATIONS_MAX);
        assert!(incarnation != 0);
        assert!(usize::from(thread) < THREADS_MAX);
        assert!(count <= COUNT_MAX);
        let high = (u64::from(slot) << INCARNATION_BITS) | u64::from(incarnation);
        let thread = u64::from(thread);
        let thread = (thread & THREAD_LOW) << 1 | thread >> THREAD_LOW_BITS;
        OwnerTag((((high << THREAD_BITS) | thread) << COUNT_BITS) | count)
    }

    /// Returns the tag in the form in which a lock word stores it.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Returns the tag that a lock word contains. Returns `None` if the lock is free or the word is a lease
    /// ([`crate::layout::LockWord`]).
    #[inline]
    pub fn from_word(word: u64) -> Option<OwnerTag> {
        (word != 0 && word >> 63 == 0).then_some(OwnerTag(word))
    }

    /// Reads a tag from a word that is said to be a transaction's name. Returns `None` if the word contains no tag,
    /// or a tag that no thread can have created. Valid tags have an incarnation of at least 1, and mode bits of 0.
    pub fn from_name(word: u64) -> Option<OwnerTag> {
        let tag = OwnerTag::from_word(word)?;
        (word >> MODE_SHIFT == 0 && tag.node().incarnation.0 != 0).then_some(tag)
    }

    /// Returns the slot and the incarnation of the compute node that created the tag.
    pub fn node(self) -> NodeId {
        let slot = (self.0 >> (COUNT_BITS + THREAD_BITS + INCARNATION_BITS)) as u16;
        let incarnation = (self.0 >> (COUNT_BITS + THREAD_BITS)) as u16;
        NodeId {
            slot: NodeSlot(slot & (SLOTS_MAX - 1) as u16),
            incarnation: Incarnation(incarnation & (INCARNATIONS_MAX - 1) as u16),
        }
    }

    /// Returns the number of the thread that created the tag, on its compute node.
    pub fn thread(self) -> u16 {
        let thread = self.0 >> COUNT_BITS;
        ((thread >> 1 & THREAD_LOW) | (thread & 1) << THREAD_LOW_BITS) as u16
    }

    /// The number of the transaction within its thread.
    pub fn count(self) -> u64 {
        self.0 & COUNT_MAX
    }

    /// The tag of the next transaction of the same thread. Returns `None` when all counts of the incarnation are
    /// used.
    #[inline]
    pub fn next(self) -> Option<OwnerTag> {
        (self.count() < COUNT_MAX).then_some(OwnerTag(self.0 + 1))
    }
}

impl fmt::Display for OwnerTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node();
        let (slot, incarnation) = (node.slot.0, node.incarnation.0);
        write!(f, "txn {slot}.{incarnation}/{}/{}", self.thread(), self.count())
    }
}

impl fmt::Debug for OwnerTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip_and_the_count_ends() {
        let node = NodeId { slot: NodeSlot(1023), incarnation: Incarnation(4095) };
        let tag = OwnerTag::new(node, 127, COUNT_MAX - 1);
        assert_eq!((tag.node(), tag.thread(), tag.count()), (node, 127, COUNT_MAX - 1));
        let threads = (0..THREADS_MAX as u16).map(|thread| OwnerTag::new(node, thread, 5));
        assert!(threads.enumerate().all(|(at, tag)| (tag.thread().into(), tag.count()) == (at, 5)));
        assert!(tag.word() < 1 << MODE_SHIFT);
        let last = tag.next().expect("one left");
        assert_eq!(last.count(), COUNT_MAX);
        assert_eq!(last.next(), None);
        assert_eq!(OwnerTag::from_word(tag.word()), Some(tag));
        assert_eq!(OwnerTag::from_word(0), None);
        assert_eq!(OwnerTag::from_name(tag.word()), Some(tag));
        let no_life = OwnerTag::from_name(tag.word() & !(0xfff << (COUNT_BITS + THREAD_BITS)));
        assert_eq!((no_life, OwnerTag::from_name(tag.word() | 1 << 62)), (None, None));
        assert_eq!(OwnerTag::from_word(tag.word() | 1 << 63), None, "nobody owns a lease");
    }
}
