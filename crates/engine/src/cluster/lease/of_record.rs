//! The lease word of record: the word that every compute node uses, or is about to use.
//!
//! Invariant: the word moves on only when every node uses this one and no other. So there are never three words in use.
//! Of two words that follow one another, neither has readers that trust for longer than the other's writers wait. A
//! change of length therefore passes through a word with the shorter lease and the longer wait.
//!
//! The membership service keeps it, because only the service knows which lives count. A life counts until it is
//! recovered, since until then it may still run and read. This is state and rules, without a clock, messages or
//! threads.

use super::{LEASE_NS_MAX, LeaseWord};
use std::collections::BTreeSet;
use tarn_fabric::address::NodeId;
use tarn_store::ids::UsageError;

/// The word of record, and the lives that use it; see the module's text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LeaseOfRecord {
    word: LeaseWord,
    /// The length that the present change leads to, while one is under way.
    target_ns: u32,
    /// The lives that use this word and no other.
    acknowledged: BTreeSet<NodeId>,
}

/// Why a change does not begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotNow {
    /// Another change is not over.
    OnItsWay,
    /// These lives still use the word before.
    Unacknowledged(Vec<NodeId>),
}

impl LeaseOfRecord {
    /// The word of a cluster that begins with this length; 0 means no lease.
    ///
    /// # Errors
    /// If it is too long.
    pub fn new(length_ns: u32) -> Result<LeaseOfRecord, UsageError> {
        allow(length_ns)?;
        let word = LeaseWord::new(0, length_ns, length_ns);
        Ok(LeaseOfRecord { word, target_ns: length_ns, acknowledged: BTreeSet::new() })
    }

    /// The word of record. A life that joins begins with it, and acknowledges it.
    pub fn word(&self) -> LeaseWord {
        self.word
    }

    /// A life uses `word` from now on, and none of its threads will load an earlier word. An acknowledgement of an old
    /// word is ignored.
    pub fn acknowledge(&mut self, node: NodeId, word: LeaseWord) {
        if word == self.word {
            self.acknowledged.insert(node);
        }
    }

    /// The lives in `counting` that have not acknowledged. `counting` is every life that is a member, or is expelled
    /// and not recovered.
    pub fn unacknowledged(&self, counting: &[NodeId]) -> Vec<NodeId> {
        counting.iter().filter(|it| !self.acknowledged.contains(it)).copied().collect()
    }

    /// Begins to change the length. Returns the new word if the change has begun; [`LeaseOfRecord::go_on`] continues
    /// it.
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

    /// Moves on to the proposed length if no life uses the word before any more. Returns whether it did.
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
