//! Owner tags name the transaction that holds a lock, and the transaction that wrote a log entry.
//!
//! Invariant: a tag is never zero. No two transactions of which anything is left (a lock, a log entry, a
//! doubt) have the same tag. A tag names the compute node's slot and incarnation, the thread, and a count of
//! that thread's transactions. The count goes on when another thread takes over the thread's number
//! (`threads` of the engine). The count starts anew after 2^34 transactions. By then every coordinator of the
//! thread has long released the locks and overwritten the log of its own earlier transactions. The one
//! exception is a doubt that was left unresolved for so long; resolving by a tag that old is not allowed.
//!
//! So a tag says "mine" in words that its transaction gives up at its end: in LOCK, in marks of nodes and
//! headers, in the grants of other nodes. In data that stay, a tag says "mine" only together with a version.
//! A record of OOCC is a transaction's own if writer and VERSION are its own. A cell of LOTUS is a
//! transaction's own if the writer is its own and the cell differs from the former cell in the transaction's
//! log. Motor's STAMP is a version and no tag.
//!
//! ```text
//! 63 62 | 61        52 | 51          40 | 39    34 | 33                    0
//! mode  |  slot (10)   | incarnation 12 | thread 6 |        count (34)
//! ```

use std::fmt;
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};

const COUNT_BITS: u32 = 34;
const THREAD_BITS: u32 = 6;
const INCARNATION_BITS: u32 = 12;
const SLOT_BITS: u32 = 10;
const MODE_SHIFT: u32 = 62;

const _: () = assert!(COUNT_BITS + THREAD_BITS + INCARNATION_BITS + SLOT_BITS == MODE_SHIFT);

/// The most compute nodes of one cluster.
pub const SLOTS_MAX: usize = 1 << SLOT_BITS;
/// The most coordinator threads of one compute node.
pub const THREADS_MAX: usize = 1 << THREAD_BITS;
/// The number of lives of one slot.
pub const INCARNATIONS_MAX: usize = 1 << INCARNATION_BITS;
/// The number of transactions of one thread in one incarnation.
pub const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// A transaction's name, and the value of its locks. It is never zero: incarnations start at 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerTag(u64);

impl OwnerTag {
    /// The `count`-th transaction of a thread.
    ///
    /// # Panics
    /// If a field does not fit, or the incarnation is 0: our bug.
    pub fn new(node: NodeId, thread: u16, count: u64) -> OwnerTag {
        let (slot, incarnation) = (node.slot.0, node.incarnation.0);
        assert!(usize::from(slot) < SLOTS_MAX);
        assert!(usize::from(incarnation) < INCARNATIONS_MAX);
        assert!(incarnation != 0);
        assert!(usize::from(thread) < THREADS_MAX);
        assert!(count <= COUNT_MAX);
        let high = (u64::from(slot) << INCARNATION_BITS) | u64::from(incarnation);
        OwnerTag((((high << THREAD_BITS) | u64::from(thread)) << COUNT_BITS) | count)
    }

    /// The tag as a lock word stores it.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// The tag in a lock word; `None` if the word is free or a lease ([`crate::layout::LockWord`]).
    #[inline]
    pub fn from_word(word: u64) -> Option<OwnerTag> {
        (word != 0 && word >> 63 == 0).then_some(OwnerTag(word))
    }

    /// Reads a tag from a word that another part of the system says is a transaction's name. Returns `None`
    /// also if no thread can have made the tag: incarnations start at 1, and the mode bits of a name are 0.
    pub fn from_name(word: u64) -> Option<OwnerTag> {
        let tag = OwnerTag::from_word(word)?;
        (word >> MODE_SHIFT == 0 && tag.node().incarnation.0 != 0).then_some(tag)
    }

    /// The compute node, in the life that made the tag.
    pub fn node(self) -> NodeId {
        let slot = (self.0 >> (COUNT_BITS + THREAD_BITS + INCARNATION_BITS)) as u16;
        let incarnation = (self.0 >> (COUNT_BITS + THREAD_BITS)) as u16;
        NodeId {
            slot: NodeSlot(slot & (SLOTS_MAX - 1) as u16),
            incarnation: Incarnation(incarnation & (INCARNATIONS_MAX - 1) as u16),
        }
    }

    /// The thread of that node.
    pub fn thread(self) -> u16 {
        (self.0 >> COUNT_BITS) as u16 & (THREADS_MAX - 1) as u16
    }

    /// The number of the transaction within its thread.
    pub fn count(self) -> u64 {
        self.0 & COUNT_MAX
    }

    /// The next transaction of the same thread; `None` when the incarnation is used up.
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
        let tag = OwnerTag::new(node, 63, COUNT_MAX - 1);
        assert_eq!((tag.node(), tag.thread(), tag.count()), (node, 63, COUNT_MAX - 1));
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
