//! The lease word that a compute node's threads use.
//!
//! Invariant: the node acknowledges a word after it is stored here, and a writer loads after its last lock was acknowledged. Both are in
//! one order with the stores and loads of all threads (`SeqCst`): a writer whose locks came after a word was acknowledged waits
//! by that word or a later one. A word takes the place of the one before it alone, so that of several threads that follow the record
//! none puts an old one back.

use super::LeaseWord;
use crate::cluster::membership::Membership;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::address::NodeId;

/// See the module's text.
#[derive(Debug)]
pub struct NodeLease(AtomicU64);

impl NodeLease {
    /// Of a life that has joined and has run nothing yet: the word of record, acknowledged.
    pub fn of(membership: &dyn Membership, node: NodeId) -> NodeLease {
        let word = membership.read_lease();
        let lease = NodeLease(AtomicU64::new(word.word()));
        membership.acknowledge_read_lease(node, word);
        lease
    }

    /// What a reader holds its window against, and a writer waits out, that loads it now.
    #[inline]
    pub fn load(&self) -> LeaseWord {
        LeaseWord::from_word(self.0.load(Ordering::SeqCst))
    }

    /// Uses the word of record, and says so. Whether it was another. A node whose threads do not ask now and then is waited for, and given up.
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
