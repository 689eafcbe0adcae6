//! Log entries that are longer than their area: blocks of the heap contain the rest of the entry.
//!
//! ```text
//! the area   0  the entry's beginning | end − 24  the first block's address u64 | end − 16  kept free: a decision's place
//! a block    0  the next block's address u64, or 0 | 8  the rest of the entry
//! ```
//! Invariant: The BYTES word of an entry that is longer than its area has `CHAINED` set, and the entry's checksum
//! covers BYTES and the whole entry. If a block is missing or belongs to another entry, the entry is invalid. Blocks
//! are chunks of the area's replica group. So every copy of the group that has a log area also has the blocks of that
//! area. At each node, the blocks are written before the transaction's data, like the area itself. Blocks belong to
//! the coordinator's number, as the coordinator's log area does. Blocks are reused when their area is reused, and are
//! never freed. The chunk table names no incarnation of a node as the owner of blocks.

use super::{CHAINED, LOG_HEADER_BYTES};
use crate::placement::catalog::Catalog;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tarn_fabric::address::{Address, GroupId};

/// The number of bytes at the end of an area that contain no part of an entry that continues in blocks. The last
/// bytes of such an area contain the first block's address, and the space for a decision.
const AREA_TAIL_BYTES: usize = 24;
/// The number of bytes of the address of the next block.
pub const LINK_BYTES: usize = 8;

const _: () = assert!(CHAINED >> 63 == 1 && LOG_HEADER_BYTES + AREA_TAIL_BYTES < 256);

/// The blocks that belong to log areas, by coordinator number and group.
#[derive(Default, Debug)]
pub struct LogBlocks(Mutex<BTreeMap<(u32, GroupId), Vec<Address>>>);

impl LogBlocks {
    /// The blocks of this coordinator number in this group, in the order in which an entry fills them.
    pub fn of(&self, number: u32, group: GroupId) -> Vec<Address> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(number, group)).cloned().unwrap_or_default()
    }

    /// Adds a block to a coordinator's number, in the block's group.
    pub fn add(&self, number: u32, block: Address) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry((number, block.group())).or_default().push(block);
    }
}

/// If an entry is longer than its area, the area contains this number of the entry's first bytes.
pub fn in_area(catalog: &Catalog) -> usize {
    catalog.options().log_bytes as usize - AREA_TAIL_BYTES
}

/// The number of bytes of an entry that one block contains.
pub fn in_block(catalog: &Catalog) -> usize {
    catalog.options().chunk_bytes as usize - LINK_BYTES
}

/// Returns the address of the block that continues an entry. `link` is the link word of the entry's area, or of the
/// block before. Returns `None` if `link` is not the address of a block.
pub fn next_block(catalog: &Catalog, group: GroupId, link: u64) -> Option<Address> {
    let block = Address::from_word(link);
    (link != 0 && block.group() == group && catalog.is_chunk(block)).then_some(block)
}

/// The number of bytes of a block that a reader must read, including the block's link. `missing` is the number of
/// bytes of the entry that the reader has not read yet.
pub fn block_bytes(catalog: &Catalog, missing: usize) -> usize {
    missing.min(in_block(catalog)) + LINK_BYTES
}

/// Splits a block into its link and the bytes behind it.
pub fn split_block(bytes: &[u8]) -> (u64, &[u8]) {
    let (link, rest) = bytes.split_first_chunk::<LINK_BYTES>().expect("a block has a link");
    (u64::from_le_bytes(*link), rest)
}

/// Splits an area into the entry's beginning and the link to the first block.
pub fn split_area<'a>(catalog: &Catalog, bytes: &'a [u8]) -> (&'a [u8], u64) {
    let (first, rest) = bytes.split_at(in_area(catalog));
    (first, split_block(rest).0)
}
