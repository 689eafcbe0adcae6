//! The blocks in which a transaction's log entry goes on if it is longer than its area.
//!
//! Invariant: the blocks are there, in every group that is written, before the entry is made.

use tarn_fabric::address::{Address, GroupId};

/// The length of an entry that is longer than its area, and the blocks where it goes on.
#[derive(Default, Debug)]
pub struct Chain {
    /// 0: the entry fits its area.
    pub(crate) bytes: usize,
    pub(crate) blocks: Vec<(GroupId, Vec<Address>)>,
}

impl Chain {
    /// Whether the entry is longer than its area.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.bytes != 0
    }
}
