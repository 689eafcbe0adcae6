//! Log entries that are longer than their area: they go on in blocks of the heap.
//!
//! ```text
//! the area   0  the entry's beginning | end − 24  the first block's address u64 | end − 16  kept free: a decision's place
//! a block    0  the next block's address u64, or 0 | 8  what follows of the entry
//! ```
//! Invariants: BYTES of such an entry has [`CHAINED`] set, and is covered by the checksum as all of it is: an entry of which a
//! block is missing or another's is no entry. Blocks are chunks of the area's group, so that every copy of the group has them
//! where it has the area, and what holds of the order of log and data at a node holds of them as well. They belong to the
//! coordinator's number, like its area: they are used again when the area is, are never given back, and the chunk table
//! names no life as their owner.

use super::{CHAINED, LOG_HEADER_BYTES, seal_chained};
use crate::catalog::Catalog;
use crate::context::Context;
use crate::heap::LOG_OWNER;
use crate::log::send::add_part;
use crate::outcome::{Explanation, Failure};
use crate::working_set::Txn;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::round::BufferOffset;

/// Bytes at the end of an area that such an entry leaves to others.
const AREA_TAIL_BYTES: usize = 24;
/// Bytes of the address of the next block.
const LINK_BYTES: usize = 8;

const _: () = assert!(CHAINED >> 63 == 1 && LOG_HEADER_BYTES + AREA_TAIL_BYTES < 256);

/// The blocks that log areas have been given: of each number and group.
#[derive(Default, Debug)]
pub struct LogBlocks(Mutex<BTreeMap<(u32, GroupId), Vec<Address>>>);

/// Of a transaction whose entry is longer than its area: the entry's length, and the blocks where it goes on.
#[derive(Default, Debug)]
pub struct Chain {
    /// 0: its entry fits its area.
    bytes: usize,
    blocks: Vec<(GroupId, Vec<Address>)>,
}

impl Chain {
    /// Whether the entry is longer than its area.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.bytes != 0
    }
}

/// How much of such an entry stands in its area.
pub(crate) fn in_area(catalog: &Catalog) -> usize {
    catalog.options().log_bytes as usize - AREA_TAIL_BYTES
}

/// How much of it stands in a block.
fn in_block(catalog: &Catalog) -> usize {
    catalog.options().chunk_bytes as usize - LINK_BYTES
}

/// Notes how long the transaction's entry will be, of which the area holds so much.
///
/// # Errors
/// It is longer than a log may be.
#[inline]
pub(crate) fn note_length(
    cx: &Context,
    txn: &mut Txn,
    (len, room): (usize, usize),
) -> Result<(), Failure> {
    txn.chain.bytes = 0;
    match len > room {
        true => note_long(cx, txn, len),
        false => Ok(()),
    }
}

#[cold]
fn note_long(cx: &Context, txn: &mut Txn, len: usize) -> Result<(), Failure> {
    let most = cx.database().catalog.options().log_bytes_max;
    if len as u64 > most {
        let allowed = format!("at most {most} bytes (log_bytes_max)");
        let field = "log entry of one transaction, bytes";
        return Err(cx.explain(Explanation::usage(field, len, &allowed)));
    }
    txn.chain.bytes = len;
    Ok(())
}

/// Gives the transaction's entry the blocks that it needs, in every group that is written. Before the entry is made.
///
/// # Errors
/// `OutOfMemory`, or the fabric's.
#[cold]
pub(crate) async fn provide(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let (catalog, blocks) = (&cx.database().catalog, &cx.database().log_blocks);
    let wanted = (txn.chain.bytes - in_area(catalog)).div_ceil(in_block(catalog));
    txn.chain.blocks.clear();
    for at in 0..txn.groups.len() {
        let (group, number) = (txn.groups[at], txn.coordinator);
        loop {
            let known = blocks.of(number, group);
            if known.len() >= wanted {
                txn.chain.blocks.push((group, known));
                break;
            }
            let bytes = catalog.options().chunk_bytes;
            let owner = LOG_OWNER | u64::from(number);
            let block = cx.allocate_run_for(owner, group, bytes).await?;
            blocks.add(number, block);
        }
    }
    Ok(())
}

impl LogBlocks {
    fn of(&self, number: u32, group: GroupId) -> Vec<Address> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(number, group)).cloned().unwrap_or_default()
    }

    fn add(&self, number: u32, block: Address) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry((number, block.group())).or_default().push(block);
    }
}

/// Completes an entry that was made as if its area had room for it.
#[cold]
pub(crate) fn complete(txn: &mut Txn, at: BufferOffset, len: usize) {
    debug_assert_eq!(txn.chain.bytes, len);
    seal_chained(txn.round.words_mut(at, len / 8), txn.tag);
}

/// Adds the entry for the copy of one group at `position`, in as many WRITEs as it takes.
#[cold]
pub(crate) fn add_log(
    cx: &Context,
    txn: &mut Txn,
    (group, position): (GroupId, usize),
    (entry, len): (BufferOffset, usize),
) {
    let (catalog, groups) = (&cx.database().catalog, cx.groups.whole());
    let target = |address| groups.replica(address, position);
    let area = catalog.log(group, txn.coordinator);
    let Txn { round, chain, .. } = txn;
    let its = chain.blocks.iter().find(|(its, _)| *its == group);
    let (_, blocks) = its.expect("blocks in every group that is written");
    let mut from = in_area(catalog);
    add_part(round, target(area), entry, from);
    let mut link_at = area.plus(from);
    for &block in blocks {
        let link = round.reserve(LINK_BYTES);
        round.set_word(link, if from < len { block.to_word() } else { 0 });
        round.write_private(target(link_at), link, LINK_BYTES);
        if from >= len {
            return;
        }
        let part = (len - from).min(in_block(catalog));
        add_part(round, target(block.plus(LINK_BYTES)), entry.plus(from), part);
        (from, link_at) = (from + part, block);
    }
}

/// Where an entry goes on whose area or block ends with this word, if that can be.
pub(crate) fn next_block(catalog: &Catalog, group: GroupId, link: u64) -> Option<Address> {
    let block = Address::from_word(link);
    (link != 0 && block.group() == group && catalog.is_chunk(block)).then_some(block)
}

/// How many bytes of a block are to be read, link and all, of an entry of which so many are missing.
pub(crate) fn block_bytes(catalog: &Catalog, missing: usize) -> usize {
    missing.min(in_block(catalog)) + LINK_BYTES
}

/// A block's link, and what stands behind it.
pub(crate) fn split_block(bytes: &[u8]) -> (u64, &[u8]) {
    let (link, rest) = bytes.split_first_chunk::<LINK_BYTES>().expect("a block has a link");
    (u64::from_le_bytes(*link), rest)
}

/// What an area says of such an entry: the beginning, and where it goes on.
pub(crate) fn split_area<'a>(catalog: &Catalog, bytes: &'a [u8]) -> (&'a [u8], u64) {
    let (first, rest) = bytes.split_at(in_area(catalog));
    (first, split_block(rest).0)
}
