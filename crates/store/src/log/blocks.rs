//! Log entries that are longer than their area: they go on in blocks of the heap.
//!
//! ```text
//! the area   0  the entry's beginning | end − 24  the first block's address u64 | end − 16  kept free: a decision's place
//! a block    0  the next block's address u64, or 0 | 8  the rest of the entry
//! ```
//! Invariants: BYTES of such an entry has `CHAINED` set and, like the whole entry, is covered by the
//! checksum. An entry of which a block is missing, or is another entry's, is no entry. Blocks are chunks of
//! the area's group. So every copy of the group has them where it has the area, and the order of log and data
//! at a node holds for blocks as well. They belong to the coordinator's number, like its area: they are used
//! again when the area is, and are never given back. The chunk table names no life as their owner.

use super::{CHAINED, LOG_HEADER_BYTES};
use crate::placement::catalog::Catalog;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tarn_fabric::address::{Address, GroupId};

/// Bytes at the end of an area that hold no part of such an entry: the first block's address, and a
/// decision's place.
const AREA_TAIL_BYTES: usize = 24;
/// Bytes of the address of the next block.
pub const LINK_BYTES: usize = 8;

const _: () = assert!(CHAINED >> 63 == 1 && LOG_HEADER_BYTES + AREA_TAIL_BYTES < 256);

/// The blocks that log areas have been given, by number and group.
#[derive(Default, Debug)]
pub struct LogBlocks(Mutex<BTreeMap<(u32, GroupId), Vec<Address>>>);

impl LogBlocks {
    /// The blocks of this coordinator's number in this group, in the order that an entry fills them.
    pub fn of(&self, number: u32, group: GroupId) -> Vec<Address> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(number, group)).cloned().unwrap_or_default()
    }

    /// Gives a coordinator's number one more block, in the block's group.
    pub fn add(&self, number: u32, block: Address) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry((number, block.group())).or_default().push(block);
    }
}

/// How many bytes of such an entry stand in its area.
pub fn in_area(catalog: &Catalog) -> usize {
    catalog.options().log_bytes as usize - AREA_TAIL_BYTES
}

/// How many bytes of such an entry stand in a block.
pub fn in_block(catalog: &Catalog) -> usize {
    catalog.options().chunk_bytes as usize - LINK_BYTES
}

/// Where an entry goes on whose area or block ends with this word; `None` if the word leads to no block.
pub fn next_block(catalog: &Catalog, group: GroupId, link: u64) -> Option<Address> {
    let block = Address::from_word(link);
    (link != 0 && block.group() == group && catalog.is_chunk(block)).then_some(block)
}

/// How many bytes of a block must be read, its link included, if this many bytes of the entry are missing.
pub fn block_bytes(catalog: &Catalog, missing: usize) -> usize {
    missing.min(in_block(catalog)) + LINK_BYTES
}

/// Splits a block into its link and the bytes behind it.
pub fn split_block(bytes: &[u8]) -> (u64, &[u8]) {
    let (link, rest) = bytes.split_first_chunk::<LINK_BYTES>().expect("a block has a link");
    (u64::from_le_bytes(*link), rest)
}

/// Splits an area into the entry's beginning and the word that says where the entry goes on.
pub fn split_area<'a>(catalog: &Catalog, bytes: &'a [u8]) -> (&'a [u8], u64) {
    let (first, rest) = bytes.split_at(in_area(catalog));
    (first, split_block(rest).0)
}
