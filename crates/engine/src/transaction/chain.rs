//! The blocks that continue a transaction's log entry if the entry is longer than its log area.
//!
//! Invariant: before the entry is written, its blocks are allocated in every group that the transaction writes.

use tarn_fabric::address::{Address, GroupId};

/// The length of a log entry that is longer than its log area, and the blocks that continue it.
#[derive(Default, Debug)]
pub struct Chain {
    /// The length of the entry in bytes; 0 if the entry fits in its log area.
    pub(crate) bytes: usize,
    pub(crate) blocks: Vec<(GroupId, Vec<Address>)>,
}

impl Chain {
    /// Whether the entry is longer than its log area.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.bytes != 0
    }
}
