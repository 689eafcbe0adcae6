//! Sweeps: transactions that empty the slots of deleted records, so that other keys can use these slots. Sweeps are
//! for layouts where a deleted record keeps its slot, so that readers of earlier versions still find the record.
//!
//! Invariants: a sweep follows the same rules as other transactions, and runs at the same time as transactions that
//! insert. While the sweep holds the bucket's lock, no key enters the bucket. While the sweep holds the lock of a
//! deleted record, no other transaction relies on the slot of this record.
//!
//! Two rules preserve the facts about absent keys and old versions that the emptied slots have shown to readers.
//! First, the directory record's VERSION becomes the sweep's version, which is later than each of the deletions. So a
//! key that is in no slot of the bucket was absent at the VERSION of the directory record. Readers cannot know
//! whether this key was absent at any earlier version. Second, each place for a version in a
//! slot keeps the newest version that it has contained ([`tarn_store::layout::choose()`], rule 5). This second rule
//! protects a reader that sees some cache lines of a slot from before the sweep and some from after it.
//!
//! Recovery completes or undoes a sweep without knowing the sweep's purpose.

use super::{Part, Structure, begin, raise};
use crate::site::Context;
use crate::transaction::working_set::{PendingWrite, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, VERB_BYTES_MAX};
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::layout::{DIRECTORY_BYTES, DIRECTORY_NEXT_AT, KEY_AT, Version};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::TableId;

/// The number of log bytes that the directory record and its VERSION take.
const REST_LOG_BYTES: usize = 64;

/// A slot that contains a deleted record.
struct Gone {
    address: Address,
    key: u64,
    image: BufferOffset,
}

/// Empties the slots of deleted records in a bucket and its chain, until the log entry has no more room. Returns the
/// number of slots that the sweep has emptied.
///
/// # Errors
/// The same errors as [`crate::protocol::Protocol::commit`], because other transactions may hold the locks that the
/// sweep requests.
pub(crate) async fn sweep(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    (table, bucket): (TableId, Address),
) -> Result<usize, Failure> {
    let table = cx.table(table);
    begin(protocol, cx, txn);
    txn.round.begin();
    let whole = (bucket, table.geometry.bucket_bytes);
    let image = protocol.ask_part(cx, txn, (table, Part::Bucket), whole);
    if protocol.await_locks(cx, txn, 0).await? == 0 {
        return Err(AbortReason::LockRefused.into());
    }
    let mut gone = find(cx, txn, table, (bucket, image)).await?;
    if gone.is_empty() {
        return Ok(0);
    }
    let first = txn.locks.len();
    txn.round.begin();
    for it in &mut gone {
        let lies = (it.address, table.slot.slot_bytes);
        it.image = protocol.ask_part(cx, txn, (table, Part::Slot(Some(it.key))), lies);
    }
    let granted = protocol.await_locks(cx, txn, first).await?;
    gone.truncate(granted);
    let emptied = empty(protocol, cx, txn, (table, &gone));
    if emptied > 0 {
        raise(txn, 0, Version::NEVER);
        protocol.commit_structure(cx, txn).await?;
    }
    Ok(emptied)
}

/// Finds the slots of deleted records in a bucket and in its chain. The caller gives the image of the bucket.
async fn find(
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    (bucket, image): (Address, BufferOffset),
) -> Result<Vec<Gone>, Failure> {
    let (mut block, mut at, mut gone) = (bucket, image, Vec::new());
    loop {
        for slot in 0..table.geometry.slots {
            let offset = DIRECTORY_BYTES + slot * table.slot.slot_bytes;
            let (address, image) = (block.plus(offset), at.plus(offset));
            if table.slot.is_tombstone(txn.round.bytes(image, table.slot.slot_bytes)) {
                gone.push(Gone { address, key: txn.round.word(image.plus(KEY_AT)), image });
            }
        }
        block = Address::from_word(txn.round.word(at.plus(DIRECTORY_NEXT_AT)));
        if block.is_null() {
            return Ok(gone);
        }
        txn.round.begin();
        at = txn.round.read(cx.groups.primary(block), table.geometry.bucket_bytes);
        cx.port.execute(&mut txn.round).await?;
    }
}

/// Adds the writes that empty the slots in `gone`, whose images were read under their locks, until the log entry has
/// no more room. Returns the number of slots whose writes were added.
fn empty(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    (table, gone): (&Table, &[Gone]),
) -> usize {
    let limit = cx.database().catalog.options().log_bytes.min(VERB_BYTES_MAX as u64) as usize;
    let bytes = table.slot.slot_bytes;
    let mut emptied = 0;
    for it in gone {
        let image = txn.round.bytes(it.image, bytes);
        let newest = table.slot.newest_committed(image);
        let is_same = txn.round.word(it.image.plus(KEY_AT)) == it.key;
        let Some(newest) = newest.filter(|_| is_same && table.slot.is_tombstone(image)) else {
            continue;
        };
        // The sweep's timestamp must be later than the newest version in the slot.
        cx.timestamps.observe(cx, newest.version);
        let new = txn.round.reserve_lines(bytes);
        txn.round.copy_within(it.image, new, bytes);
        table.slot.vacate(txn.round.bytes_mut(new, bytes));
        let (address, old, len_bytes) = (it.address, it.image, bytes as u32);
        txn.pieces.push(PendingWrite { address, new, old, len_bytes, logged: true });
        if protocol.log_bytes(txn) + REST_LOG_BYTES > limit {
            txn.pieces.pop();
            break;
        }
        emptied += 1;
    }
    emptied
}
