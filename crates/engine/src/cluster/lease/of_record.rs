//! The lease word of record: the lease word that every compute node uses, or will use soon.
//!
//! Invariant: the word of record changes only when every node uses the present word and no other. So at most two
//! words are in use at any time. For any two successive words, the readers of neither word trust their reads for
//! longer than the other word's writers wait. So a change of the length first goes to a word with the shorter lease
//! and the longer wait.
//!
//! The membership service keeps the word of record, because only the service knows which incarnations count. An
//! incarnation counts until it is recovered, because it may still run and read until then. This module contains state
//! and rules, without a clock, messages or threads.

use super::{LEASE_NS_MAX, LeaseWord};
use std::collections::BTreeSet;
use tarn_fabric::address::NodeId;
use tarn_store::ids::UsageError;

/// The lease word of record, and the incarnations that use it; see the module's text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LeaseOfRecord {
    word: LeaseWord,
    /// While a change is under way, the length that leases will have after this change.
    target_ns: u32,
    /// The incarnations that use the present lease word and no other.
    acknowledged: BTreeSet<NodeId>,
}

/// The reason why a change of the lease length cannot begin now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotNow {
    /// Another change of the lease length is still under way.
    OnItsWay,
    /// These incarnations still use the previous lease word.
    Unacknowledged(Vec<NodeId>),
}

impl LeaseOfRecord {
    /// Creates the lease word of a cluster that begins with this lease length; 0 means no lease.
    ///
    /// # Errors
    /// If the lease length is too long.
    pub fn new(length_ns: u32) -> Result<LeaseOfRecord, UsageError> {
        allow(length_ns)?;
        let word = LeaseWord::new(0, length_ns, length_ns);
        Ok(LeaseOfRecord { word, target_ns: length_ns, acknowledged: BTreeSet::new() })
    }

    /// The lease word of record. An incarnation that joins adopts this word first, and acknowledges it.
    pub fn word(&self) -> LeaseWord {
        self.word
    }

    /// Records that an incarnation uses `word` from now on, and that none of its threads will load an earlier word.
    /// The function ignores an acknowledgement of an old word.
    pub fn acknowledge(&mut self, node: NodeId, word: LeaseWord) {
        if word == self.word {
            self.acknowledged.insert(node);
        }
    }

    /// The incarnations in `counting` that have not acknowledged the lease word. `counting` lists every incarnation
    /// that is a member, or is expelled and not recovered.
    pub fn unacknowledged(&self, counting: &[NodeId]) -> Vec<NodeId> {
        counting.iter().filter(|it| !self.acknowledged.contains(it)).copied().collect()
    }

    /// Begins to change the lease length. Returns the new word if the change has begun; [`LeaseOfRecord::go_on`]
    /// continues the change.
    ///
    /// # Errors
    /// If the lease length is too long.
    pub fn propose(
        &mut self,
        length_ns: u32,
        counting: &[NodeId],
    ) -> Result<Result<LeaseWord, NotNow>, UsageError> {
        allow(length_ns)?;
        if !self.word.is_settled() {
            return Ok(Err(NotNow::OnItsWay));
        }
        let missing = self.unacknowledged(counting);
        if !missing.is_empty() {
            return Ok(Err(NotNow::Unacknowledged(missing)));
        }
        let now_ns = self.word.read_ns();
        if length_ns != now_ns {
            self.target_ns = length_ns;
            self.follow(now_ns.min(length_ns), now_ns.max(length_ns));
        }
        Ok(Ok(self.word))
    }

    /// Continues a change to the proposed length if no incarnation uses the previous word any more. Returns whether
    /// the word of record has changed.
    pub fn go_on(&mut self, counting: &[NodeId]) -> bool {
        let may = !self.word.is_settled() && self.unacknowledged(counting).is_empty();
        if may {
            self.follow(self.target_ns, self.target_ns);
        }
        may
    }

    fn follow(&mut self, read_ns: u32, wait_ns: u32) {
        self.word = LeaseWord::new(self.word.change().wrapping_add(1), read_ns, wait_ns);
        self.acknowledged.clear();
    }
}

fn allow(length_ns: u32) -> Result<(), UsageError> {
    if length_ns <= LEASE_NS_MAX {
        return Ok(());
    }
    let (field, value) = ("read_lease_ns".to_owned(), length_ns.to_string());
    Err(UsageError { field, value, allowed: format!("0 to {LEASE_NS_MAX}") })
}
