//! The blocks in which a transaction's log entry goes on that is longer than its area.
//!
//! Invariant: blocks are there, in every group that is written, before the entry is made.

use tarn_fabric::address::{Address, GroupId};

/// Of a transaction whose entry is longer than its area: the entry's length, and the blocks where it goes on.
#[derive(Default, Debug)]
pub struct Chain {
    /// 0: its entry fits its area.
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
