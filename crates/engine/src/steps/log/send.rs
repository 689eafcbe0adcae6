//! Sends a transaction's log entry and data to the replicas of a group.
//!
//! Invariant: at each node the log entry comes before the data in the same batch, and the node executes the WRITEs of
//! the data in their order.

use super::chain;
use crate::site::Context;
use crate::steps::log::encode::encode_undo;
use crate::steps::node_locks::add_unlocks;
use crate::steps::unknown;
use crate::transaction::working_set::{PendingWrite, Txn};
use tarn_fabric::address::{GroupId, LINE_BYTES, Target};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{BufferOffset, Round, VERB_BYTES_MAX};
use tarn_store::ids::Failure;

/// Adds the log entry for one group's replica at `position` to the round. The checksum in the log entry shows whether
/// the entry in memory is incomplete.
#[inline]
pub(crate) fn add_log(
    cx: &Context,
    txn: &mut Txn,
    (group, position): (GroupId, usize),
    area: Target,
    log: (BufferOffset, usize),
) {
    match txn.chain.is_used() {
        true => chain::add_log(cx, txn, (group, position), log),
        false => add_part(&mut txn.round, area, log.0, log.1),
    }
}

/// Adds a contiguous part of a log entry to the round, in as many WRITEs as the part needs.
#[inline]
pub(crate) fn add_part(round: &mut Round, target: Target, entry: BufferOffset, len: usize) {
    for from in (0..len).step_by(VERB_BYTES_MAX) {
        let part = VERB_BYTES_MAX.min(len - from);
        round.write_private(target.plus(from), entry.plus(from), part);
    }
}

/// Adds the log entry and the data of one group to the round. The WRITEs of the group go to the replicas whose
/// position `choose` accepts.
pub(crate) fn add_data(
    cx: &Context,
    txn: &mut Txn,
    group: GroupId,
    log: Option<(BufferOffset, usize)>,
    choose: impl Fn(usize) -> bool,
) {
    add_pieces(cx, txn, group, log, choose, |_| true);
}

/// Adds the log entry and data of one group in the same way as [`add_data`], but only those pieces of data for which
/// `is_meant` is true.
pub(crate) fn add_pieces(
    cx: &Context,
    txn: &mut Txn,
    group: GroupId,
    log: Option<(BufferOffset, usize)>,
    choose: impl Fn(usize) -> bool,
    is_meant: impl Fn(&PendingWrite) -> bool,
) {
    let (area, groups) = (cx.database().catalog.log(group, txn.coordinator), cx.groups.whole());
    let replicas = groups.replicas(group);
    for position in (0..replicas).filter(|&position| choose(position)) {
        if let Some(log) = log {
            add_log(cx, txn, (group, position), groups.replica(area, position), log);
        }
        let Txn { round, pieces, .. } = txn;
        let its = |piece: &&PendingWrite| piece.address.group() == group && is_meant(piece);
        let mut rest = pieces.iter().filter(its).peekable();
        while let Some(piece) = rest.next() {
            let target = groups.replica(piece.address, position);
            let mut len_bytes = piece.len_bytes as usize;
            if let Some(next) = rest.next_if(|next| continues(piece, next)) {
                len_bytes += next.len_bytes as usize;
            }
            round.write(target, piece.new, len_bytes);
        }
    }
}

/// Returns whether `next` directly follows `piece` both in memory and in the buffer, and all their bytes lie in one
/// cache line. If the function returns true, one WRITE writes both pieces to memory together.
fn continues(piece: &PendingWrite, next: &PendingWrite) -> bool {
    let len_bytes = piece.len_bytes as usize;
    let end = piece.address.offset_bytes() + u64::from(piece.len_bytes + next.len_bytes);
    next.address == piece.address.plus(len_bytes)
        && next.new == piece.new.plus(len_bytes)
        && piece.address.offset_bytes() / LINE_BYTES as u64 == (end - 1) / LINE_BYTES as u64
}

/// Makes the transaction's redo entry invalid at every replica of the log area. After this call, recovery cannot
/// mistake another transaction's VERSION for a VERSION of this transaction. This transaction has written no data, and
/// after this call it is no longer in doubt.
///
/// A node that does not answer has lost its copy of the log entry. If a node refuses writes from this node, this
/// function leaves the transaction's locks in place. Recovery of this node finds these locks in the transaction's log
/// entry, and releases them.
pub(crate) async fn take_back(cx: &Context, txn: &mut Txn) {
    let area = cx.database().catalog.log(txn.groups[0], txn.coordinator);
    add_clear(&mut txn.round, cx.groups.whole().all(area));
    let mut is_gone = cx.port.execute(&mut txn.round).await.is_ok();
    if !is_gone {
        // The failed round does not show which of its WRITEs have happened, so a separate round sends each WRITE
        // again.
        is_gone = true;
        let copies: Vec<Target> = cx.groups.whole().all(area).collect();
        for copy in copies {
            add_clear(&mut txn.round, std::iter::once(copy));
            is_gone &= match cx.port.execute(&mut txn.round).await {
                Ok(()) => true,
                Err(error) => matches!(*error, FabricError::NodeDown(_)),
            };
        }
    }
    if !is_gone {
        txn.locks.clear();
    }
    txn.in_doubt = false;
}

/// Begins a round that clears the log area at each of `copies`, so that the area contains no entry.
fn add_clear(round: &mut Round, copies: impl Iterator<Item = Target>) {
    round.begin();
    let none = round.reserve(8);
    round.set_word(none, 0);
    copies.for_each(|copy| round.write_private(copy, none, 8));
}

/// Sends the undo log in a separate round, to the replicas of the first `groups` groups that the transaction writes.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub(crate) async fn send_log(cx: &Context, txn: &mut Txn, groups: usize) -> Result<(), Failure> {
    add_logs(cx, txn, groups);
    cx.port.execute(&mut txn.round).await?;
    Ok(())
}

/// Begins a round with the undo log, for the replicas of the first `groups` groups that the transaction writes.
pub(crate) fn add_logs(cx: &Context, txn: &mut Txn, groups: usize) {
    txn.round.begin();
    let log = encode_undo(txn);
    for at in 0..groups.min(txn.groups.len()) {
        let group = txn.groups[at];
        let area = cx.database().catalog.log(group, txn.coordinator);
        for (position, target) in cx.groups.whole().all(area).enumerate() {
            add_log(cx, txn, (group, position), target, log);
        }
    }
}

/// Planted bug: sends the data and the unlocks to the primary in one batch, before the backups have acknowledged the
/// data. The function sends the backups' batch after the primary's batch. The two batches could land in this order
/// even if both were sent together.
///
/// # Errors
/// `CommitUnknown`, because some of the data may have been written.
pub(crate) async fn write_and_unlock_early(
    cx: &Context,
    txn: &mut Txn,
    log: Option<(BufferOffset, usize)>,
) -> Result<(), Failure> {
    txn.round.begin();
    for index in 0..txn.groups.len() {
        add_data(cx, txn, txn.groups[index], log, |position| position == 0);
    }
    add_unlocks(cx, txn);
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    txn.round.begin();
    for index in 0..txn.groups.len() {
        add_data(cx, txn, txn.groups[index], log, |position| position > 0);
    }
    cx.port.execute(&mut txn.round).await.map_err(|_| unknown(cx, txn))?;
    txn.locks.clear();
    Ok(())
}
