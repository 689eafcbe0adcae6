//! Finds room for inserts: a slot for every key that the transaction knows to be absent, and a body if the table
//! needs one.
//!
//! Invariant: no two inserts of one transaction choose the same slot. The transaction fills a slot that this module
//! has chosen only under the slot's lock and the directory record's lock. Under these locks the transaction compares
//! the slot and the directory record with its earlier reads, on which the choice of the slot was based.

use crate::site::Context;
use crate::transaction::working_set::{Allocated, Entry, Memory, PendingWrite, Progress, Txn};
use tarn_fabric::address::Address;
use tarn_store::ids::{Failure, Mode};
use tarn_store::index::growth::Shard;
use tarn_store::layout::{DIRECTORY_BYTES, DIRECTORY_NEXT_AT};
use tarn_store::placement::catalog::Table;

/// Returns whether any insert may still need a slot.
pub(crate) fn wants_blocks(txn: &Txn) -> bool {
    // Every insert has begun a lookup in the index, so without lookups no insert needs a slot.
    !txn.lookups.is_empty()
        && txn.entries[txn.fetched..].iter().any(|entry| entry.mode == Mode::Insert)
}

/// Gives a slot to every insert whose key the transaction knows to be absent, and allocates a body if the insert
/// needs one.
pub(crate) async fn provide_blocks(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    // The inserts of the transaction's earlier fetches have already locked their slots.
    let first = txn.fetched;
    for index in first..txn.entries.len() {
        let entry = txn.entries[index];
        if entry.mode != Mode::Insert
            || entry.progress != Progress::Lock
            || !entry.address.is_null()
        {
            continue;
        }
        let table = cx.table(entry.table);
        // An insert that has found its record takes no free slot, even if another transaction has deleted the record
        // since. Validation detects that the record was deleted since the insert found it.
        let takes = |other: &Entry, slot| {
            other.mode == Mode::Insert && !other.found && other.address == slot
        };
        // A readers' lock on the slot was for the record that the slot contained before, so this lock does not count.
        let is_locked = |slot| {
            let lock = txn.lock_on(slot).map(|lock| txn.locks[lock as usize].held_as);
            lock.is_some_and(|held_as| !held_as.is_shared())
        };
        let is_taken =
            |slot| is_locked(slot) || txn.entries[first..].iter().any(|it| takes(it, slot));
        let chosen = txn.lookup(&entry).free.filter(|&(slot, _)| !is_taken(slot));
        let group = txn.lookup(&entry).group();
        if chosen.is_none() && txn.lookup(&entry).free.is_some() {
            // Another insert of this transaction has chosen this slot. After the other insert has locked that slot,
            // this insert reads the bucket again.
            txn.lookups[entry.lookup as usize].restart_at_bucket();
            txn.entries[index].progress = Progress::Locate;
            continue;
        }
        let slot = match chosen {
            Some((slot, _)) => slot,
            None => extend_chain(cx, txn, index, table).await?,
        };
        let directory = txn.lookup(&entry).directory;
        let entry = &mut txn.entries[index];
        entry.address = slot;
        if !table.geometry.contains(directory, slot) {
            cx.growth.request(Shard { table: entry.table, group });
        }
        if table.slot.is_out_of_line() {
            let bytes = table.slot.body_bytes() as u32;
            let body = cx.allocate_record(group, (table.id, bytes)).await?;
            txn.entries[index].body = body;
            let memory = Memory::Record(table.id);
            txn.allocated.push(Allocated { address: body, bytes, memory });
        }
    }
    Ok(())
}

/// Finds a slot for an insert in a new overflow block, because the bucket's chain has no free slot. The commit writes
/// NEXT of the block that was the last block of the chain, under the lock of the bucket's directory record.
async fn extend_chain(
    cx: &Context,
    txn: &mut Txn,
    index: usize,
    table: &Table,
) -> Result<Address, Failure> {
    let lookup = *txn.lookup(&txn.entries[index]);
    let bytes = table.geometry.bucket_bytes;
    let taken = |slot: Address| txn.entries.iter().any(|entry| entry.address == slot);
    let next_at = match room_in_new(txn, table, lookup.tail, taken) {
        Ok(slot) => return Ok(slot),
        Err(next_at) => next_at,
    };
    let block = cx.allocate_anyhow(lookup.group(), bytes as u32).await?;
    txn.allocated.push(Allocated { address: block, bytes: bytes as u32, memory: Memory::Zeros });
    let new = txn.round.reserve(8);
    let old = txn.round.reserve(8);
    txn.round.set_word(new, block.to_word());
    txn.round.set_word(old, 0);
    txn.pieces.push(PendingWrite { address: next_at, new, old, len_bytes: 8, logged: true });
    Ok(block.plus(DIRECTORY_BYTES))
}

/// Returns a free slot in the overflow blocks that the transaction has already added to a chain after the block
/// `tail`.
///
/// # Errors
/// The new overflow blocks have no free slot. The error value is the address of NEXT in the last block of the chain.
pub(crate) fn room_in_new(
    txn: &Txn,
    table: &Table,
    tail: Address,
    taken: impl Fn(Address) -> bool,
) -> Result<Address, Address> {
    let mut next_at = tail.plus(DIRECTORY_NEXT_AT);
    while let Some(link) = txn.pieces.iter().find(|piece| piece.address == next_at) {
        let block = Address::from_word(txn.round.word(link.new));
        let mut slots = (0..table.geometry.slots)
            .map(|slot| block.plus(DIRECTORY_BYTES + slot * table.slot.slot_bytes));
        if let Some(slot) = slots.find(|&slot| !taken(slot)) {
            return Ok(slot);
        }
        next_at = block.plus(DIRECTORY_NEXT_AT);
    }
    Err(next_at)
}
