//! The lease word that a compute node's threads use.
//!
//! Invariant: the node acknowledges a word after it has stored it here, and a writer loads the word after its last lock
//! was acknowledged. Both are in one order with the stores and loads of all threads (`SeqCst`). So a writer whose locks
//! came after a word was acknowledged waits by that word or by a later one. A thread replaces only the word that it
//! loaded before it looked at the record. So when several threads follow the record, none of them puts an old word
//! back.

use super::LeaseWord;
use crate::cluster::membership::Membership;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::address::NodeId;

/// A node's copy of the lease word; see the module's text.
#[derive(Debug)]
pub struct NodeLease(AtomicU64);

impl NodeLease {
    /// Adopts and acknowledges the word of record, for a life that has joined and has run nothing yet.
    pub fn of(membership: &dyn Membership, node: NodeId) -> NodeLease {
        let word = membership.read_lease();
        let lease = NodeLease(AtomicU64::new(word.word()));
        membership.acknowledge_read_lease(node, word);
        lease
    }

    /// Loads the word. A reader compares its window with it, a writer waits it out.
    #[inline]
    pub fn load(&self) -> LeaseWord {
        LeaseWord::from_word(self.0.load(Ordering::SeqCst))
    }

    /// Adopts the word of record and acknowledges it. Returns whether the word was a new one. The membership service
    /// waits for a node whose threads do not call this now and then, and in the end expels it.
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
