//! The lease word that a compute node's threads use.
//!
//! Invariant: the node stores a lease word here before it acknowledges the word. A writer loads the word after its
//! last lock was acknowledged. The store and the load are in one order with the stores and loads of all threads
//! (`SeqCst`). Suppose that a writer takes its locks after the node has acknowledged a word. Then the writer waits
//! for the time in the acknowledged lease word or in a later word. Before a thread reads the word of record, it loads
//! the node's word. The thread then replaces the node's word only if it is still the loaded word. So when several
//! threads follow the word of record, none of them restores an old word.

use super::LeaseWord;
use crate::cluster::membership::Membership;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::address::NodeId;

/// A node's copy of the lease word; see the module's text.
#[derive(Debug)]
pub struct NodeLease(AtomicU64);

impl NodeLease {
    /// Adopts and acknowledges the lease word of record, for an incarnation that has joined and has run no
    /// transaction yet.
    pub fn of(membership: &dyn Membership, node: NodeId) -> NodeLease {
        let word = membership.read_lease();
        let lease = NodeLease(AtomicU64::new(word.word()));
        membership.acknowledge_read_lease(node, word);
        lease
    }

    /// Loads the lease word. A reader compares its window with this word, and a writer waits for the time in this
    /// word.
    #[inline]
    pub fn load(&self) -> LeaseWord {
        LeaseWord::from_word(self.0.load(Ordering::SeqCst))
    }

    /// Adopts the lease word of record and acknowledges it. Returns whether the word was new. If a node's threads do
    /// not call this function, the membership service waits for the node and finally expels it.
    pub fn follow(&self, membership: &dyn Membership, node: NodeId) -> bool {
        let (before, word) = (self.load(), membership.read_lease());
        if before == word {
            return false;
        }
        let (from, to) = (before.word(), word.word());
        let is_mine = self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if is_mine {
            membership.acknowledge_read_lease(node, word);
        }
        is_mine
    }
}
