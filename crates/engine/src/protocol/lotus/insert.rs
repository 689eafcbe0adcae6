//! Room for LOTUS's inserts: finds a slot for every key that the transaction knows to be absent.
//!
//! Invariant: the transaction holds the bucket's lock, so a slot that was free when the bucket was read is still
//! free. No two inserts of one transaction take the same slot. The transaction keeps the former bytes of the slot's
//! first line, because the undo of the insert writes them back.

use super::execute::reserve_payload;
use crate::site::Context;
use crate::steps::index::room::room_in_new;
use crate::transaction::working_set::{Allocated, Entry, Memory, PendingWrite, Progress, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure, Mode};
use tarn_store::index::growth::Shard;
use tarn_store::layout::{DIRECTORY_BYTES, DIRECTORY_NEXT_AT};
use tarn_store::placement::catalog::Table;

/// Gives a slot to every insert of the transaction that does not have a slot yet.
pub(super) async fn provide(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    for index in txn.fetched..txn.entries.len() {
        let entry = txn.entries[index];
        if entry.mode != Mode::Insert || !entry.stable || entry.progress != Progress::Locate {
            continue;
        }
        let table = cx.table(entry.table);
        let (slot, image) = match free_slot(txn, index, table) {
            Some(found) => found,
            None if wants_sweep(txn, index, table) => {
                txn.to_sweep = Some((entry.table, txn.lookup(&entry).directory));
                return Err(AbortReason::IndexChanged.into());
            }
            None => (extend_chain(cx, txn, index, table).await?, None),
        };
        let lookup = *txn.lookup(&entry);
        if !table.geometry.contains(lookup.directory, slot) {
            let group = lookup.group();
            cx.growth.request(Shard { table: entry.table, group });
        }
        let entry = &mut txn.entries[index];
        entry.address = slot;
        match image {
            Some(image) => {
                entry.image = image;
                take_slot(cx, txn, index);
            }
            // The transaction must first read the present bytes of the slot.
            None => (entry.body, entry.progress) = (Address::NULL, Progress::Body),
        }
    }
    Ok(())
}

/// Returns whether slots of deleted records fill an insert's bucket or its chain. If the function returns true, a
/// sweep must empty the slots of deleted records before the insert. Returns false if a sweep was already tried
/// without success, for example because other transactions use the deleted records.
fn wants_sweep(txn: &Txn, index: usize, table: &Table) -> bool {
    let lookup = txn.lookup(&txn.entries[index]);
    let next_at = lookup.tail.plus(DIRECTORY_NEXT_AT);
    if txn.swept_in_vain.contains(&lookup.directory)
        || txn.pieces.iter().any(|piece| piece.address == next_at)
    {
        return false;
    }
    let slot_bytes = table.slot.slot_bytes;
    let mut in_bucket = lookup.bucket_image.into_iter().flat_map(|image| {
        (0..table.geometry.slots).map(move |slot| image.plus(DIRECTORY_BYTES + slot * slot_bytes))
    });
    lookup.has_tombstones
        || in_bucket.any(|image| table.slot.is_tombstone(txn.round.bytes(image, slot_bytes)))
}

/// Gives the insert its slot, whose image the transaction has read. All bytes of the new row are zero until the
/// caller sets them.
pub(super) fn take_slot(cx: &Context, txn: &mut Txn, index: usize) {
    let Txn { entries, round, .. } = txn;
    let entry = &mut entries[index];
    let table = cx.table(entry.table);
    entry.payload = reserve_payload(round, table);
    round.bytes_mut(entry.payload, table.slot.payload_bytes).fill(0);
    (entry.progress, entry.writable) = (Progress::Done, true);
}

/// Returns a free slot that no other insert of this transaction has taken. The slot is in the bucket itself, or is
/// the free slot that the search has found last. If the transaction has read the image of the slot, the function also
/// returns the image.
fn free_slot(txn: &Txn, index: usize, table: &Table) -> Option<(Address, Option<BufferOffset>)> {
    let lookup = txn.lookup(&txn.entries[index]);
    let slot_bytes = table.slot.slot_bytes;
    let in_bucket = lookup.bucket_image.into_iter().flat_map(|image| {
        (0..table.geometry.slots).map(move |slot| {
            let at = DIRECTORY_BYTES + slot * slot_bytes;
            (lookup.directory.plus(at), image.plus(at))
        })
    });
    let is_free = |image| table.slot.is_free(txn.round.bytes(image, slot_bytes));
    let image_of = |address| in_bucket.clone().find(|it| it.0 == address).map(|it| it.1);
    // The search prefers this slot, which is in the key's home bin if possible.
    let seen = lookup.free.map(|(address, _)| (address, image_of(address)));
    let others = in_bucket.clone().filter(|it| is_free(it.1)).map(|(at, image)| (at, Some(image)));
    seen.into_iter().chain(others).find(|(address, _)| !is_taken(txn, index, *address))
}

/// Returns whether another insert of this transaction has taken the slot.
fn is_taken(txn: &Txn, index: usize, slot: Address) -> bool {
    let takes = |(at, it): (usize, &Entry)| {
        at != index && it.mode == Mode::Insert && !it.found && it.address == slot
    };
    txn.entries.iter().enumerate().any(takes)
}

/// Adds a new overflow block to the bucket's chain, because the chain has no free slot. The insert takes the first
/// slot of the new overflow block. Phase C1 writes NEXT of the block that was the last block of the chain, under the
/// bucket's lock.
async fn extend_chain(
    cx: &Context,
    txn: &mut Txn,
    index: usize,
    table: &Table,
) -> Result<Address, Failure> {
    let lookup = *txn.lookup(&txn.entries[index]);
    let bytes = table.geometry.bucket_bytes;
    let next_at = match room_in_new(txn, table, lookup.tail, |slot| is_taken(txn, index, slot)) {
        Ok(slot) => return Ok(slot),
        Err(next_at) => next_at,
    };
    let block = cx.allocate_anyhow(lookup.group(), bytes as u32).await?;
    txn.allocated.push(Allocated { address: block, bytes: bytes as u32, memory: Memory::Zeros });
    let new = txn.round.reserve(8);
    txn.round.set_word(new, block.to_word());
    txn.pieces.push(PendingWrite { address: next_at, new, old: new, len_bytes: 8, logged: false });
    Ok(block.plus(DIRECTORY_BYTES))
}
