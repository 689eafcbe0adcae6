//! Handles log entries that are longer than their log area. A transaction allocates blocks before it writes such a
//! log entry, and sends the entry in parts.
//!
//! Invariant: every group that the transaction writes has the blocks before the transaction makes the log entry.
//! [`tarn_store::log::blocks`] describes the bytes of a log entry that is longer than its log area.

use crate::site::Context;
use crate::steps::log::send::add_part;
use crate::transaction::working_set::Txn;
use tarn_fabric::address::GroupId;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{Explanation, Failure};
use tarn_store::log::blocks::{LINK_BYTES, in_area, in_block};
use tarn_store::log::seal_chained;
use tarn_store::memory::heap::LOG_OWNER;

/// Notes the length of the transaction's log entry if its log area, which has `room` bytes, is too small for the
/// entry.
///
/// # Errors
/// The log entry is longer than the limit of a log entry.
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

/// Allocates the blocks that the transaction's log entry needs, in every group that the transaction writes. The
/// caller makes the log entry only after this call.
///
/// # Errors
/// `OutOfMemory`, or a failure of the fabric.
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

/// Completes a log entry that was written as if its log area had room for the whole entry.
#[cold]
pub(crate) fn complete(txn: &mut Txn, at: BufferOffset, len: usize) {
    debug_assert_eq!(txn.chain.bytes, len);
    seal_chained(txn.round.words_mut(at, len / 8), txn.tag);
}

/// Adds the log entry for one group's replica at `position` to the round, in as many WRITEs as the entry needs.
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
    let (_, blocks) = its.expect("every group that is written has blocks");
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
