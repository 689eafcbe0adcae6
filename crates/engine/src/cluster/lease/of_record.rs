//! The lease word of record: what every compute node's word is, or is about to be.
//!
//! Invariant: the word moves on only when nobody uses any but this one. So there are never three words in use, and of two that
//! follow one another neither has readers that trust for longer than the other's writers wait: a new length is come to over a word of
//! the shorter lease and the longer wait.
//!
//! For the membership service, which alone knows who counts: a life counts until it is recovered, since till then it may
//! still run and read. It is state and rules, without a clock, messages or threads.

use super::{LEASE_NS_MAX, LeaseWord};
use std::collections::BTreeSet;
use tarn_fabric::address::NodeId;
use tarn_store::ids::UsageError;

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LeaseOfRecord {
    word: LeaseWord,
    /// Where the length is going, while it is on its way.
    target_ns: u32,
    /// Who uses this word and no other.
    acknowledged: BTreeSet<NodeId>,
}

/// Why a change does not begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotNow {
    /// Another is not over.
    OnItsWay,
    /// These lives use the last word.
    Unacknowledged(Vec<NodeId>),
}

impl LeaseOfRecord {
    /// Of a cluster that begins with this length; 0 for none.
    ///
    /// # Errors
    /// If it is too long.
    pub fn new(length_ns: u32) -> Result<LeaseOfRecord, UsageError> {
        allow(length_ns)?;
        let word = LeaseWord::new(0, length_ns, length_ns);
        Ok(LeaseOfRecord { word, target_ns: length_ns, acknowledged: BTreeSet::new() })
    }

    /// The word: a life that joins begins with it, and acknowledges it.
    pub fn word(&self) -> LeaseWord {
        self.word
    }

    /// A life uses `word` from now on, and no thread of it will load another one before it. What is said of an old word is not heeded.
    pub fn acknowledge(&mut self, node: NodeId, word: LeaseWord) {
        if word == self.word {
            self.acknowledged.insert(node);
        }
    }

    /// Who of `counting` (every life that is a member, or is expelled and not recovered) has not acknowledged.
    pub fn unacknowledged(&self, counting: &[NodeId]) -> Vec<NodeId> {
        counting.iter().filter(|it| !self.acknowledged.contains(it)).copied().collect()
    }

    /// Begins to change the length. It is begun if this says so, and goes on by [`LeaseOfRecord::go_on`].
    ///
    /// # Errors
    /// If it is too long.
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

    /// Comes to the length that was proposed, if nobody uses the word before any more. Whether it did.
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
