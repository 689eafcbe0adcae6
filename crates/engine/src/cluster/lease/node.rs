//! The lease word that a compute node's threads use.
//!
//! Invariant: the node acknowledges a lease word after it has stored it here, and a writer loads the word after its
//! last lock was acknowledged. The store and the load are in one order with the stores and loads of all threads
//! (`SeqCst`). So a writer whose locks came after a word was acknowledged waits for the time in that word or in a
//! later one. A thread replaces the word only if it is still the word that the thread loaded before it read the word
//! of record. So when several threads follow the word of record, none of them restores an old word.

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

    /// Loads the lease word. A reader compares its window with the word, and a writer waits for the time in it.
    #[inline]
    pub fn load(&self) -> LeaseWord {
        LeaseWord::from_word(self.0.load(Ordering::SeqCst))
    }

    /// Adopts the lease word of record and acknowledges it. Returns whether the word was new. The membership service
    /// waits for a node whose threads do not call this function, and in the end expels the node.
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
