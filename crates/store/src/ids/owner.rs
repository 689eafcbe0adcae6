//! Owner tags: who holds a lock, and which transaction wrote a log entry.
//!
//! Invariant: a tag is never zero, and no two transactions of which anything is left (a lock, a log
//! entry, a doubt) have the same: it names the compute node's slot and incarnation, the thread, and
//! a count of that thread's transactions, which goes on when another thread has its number
//! (`threads` of the engine). The count starts anew after 2^34 of them. By then every
//! coordinator of the thread has long released the locks and overwritten the log of its own earlier
//! transactions; a doubt that was left unresolved for so long is the one exception, and resolving
//! by a tag that old is not allowed.
//!
//! So a tag says "mine" where its transaction gives the word up: in LOCK, in marks of nodes and headers, in the
//! grants of other nodes. In data that stay it says so only beside a version: a record of OOCC's is a transaction's
//! if writer and VERSION are its own, and a cell of LOTUS's if the writer is its own and the cell is not what its log
//! says was there before. Motor's STAMP is a version and no tag.
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

/// Most compute nodes of one cluster.
pub const SLOTS_MAX: usize = 1 << SLOT_BITS;
/// Most coordinator threads of one compute node.
pub const THREADS_MAX: usize = 1 << THREAD_BITS;
/// Lives of one slot.
pub const INCARNATIONS_MAX: usize = 1 << INCARNATION_BITS;
/// Transactions of one thread in one incarnation.
pub const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// A transaction's name and its locks' value. Never zero: incarnations start at 1.
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

    /// As stored in a lock word.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// From a lock word: `None` if it is nobody's, free or a lease ([`crate::layout::LockWord`]).
    #[inline]
    pub fn from_word(word: u64) -> Option<OwnerTag> {
        (word != 0 && word >> 63 == 0).then_some(OwnerTag(word))
    }

    /// As [`OwnerTag::from_word`], of a word that somebody else says is a transaction's name: `None` too if no
    /// thread can have made it, since incarnations start at 1 and nothing stands beside a name.
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

    /// Which transaction of that thread.
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
