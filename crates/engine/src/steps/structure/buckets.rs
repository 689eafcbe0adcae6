//! Growth of hash indexes by structural transactions, which add segments to an index and split buckets.
//!
//! Invariants: the structural transactions that split buckets and add segments follow the same rules as other
//! transactions. Structural transactions take locks under an owner's tag, and abort instead of waiting for a lock. At
//! each node, the log entry of a structural transaction comes before its data. Structural transactions write every
//! replica, and release their locks only after that. Recovery completes or undoes a structural transaction without
//! knowing the transaction's purpose.
//!
//! In layouts where records name the transaction that wrote them last, the index header also names its last writer.
//! The writer's name in the header then shows that a transaction which changed buckets, but no record, has committed.
//!
//! The lock of the index header allows only one structural transaction at a time in a shard. While a transaction
//! holds the lock of a bucket's directory record, no record enters or leaves the bucket. So the transaction knows
//! which records must move before it locks slots, and it locks only the slots that change.

use super::{Part, Structure, begin, raise};
use crate::site::Context;
use crate::steps::index::relocate::{
    Relocation, Side, depth_after, used_slots, write_lines, write_word,
};
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::{Allocated, Memory, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round, VERB_BYTES_MAX};
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::index::growth::{Grown, IndexHeader, Next, Shard, Step};
use tarn_store::layout::{
    DIRECTORY_DEPTH_AT, DIRECTORY_NEXT_AT, Geometry, Version, lined_writes, stamp_lines,
};
use tarn_store::placement::catalog::Table;

/// The number of log bytes that one changed word takes.
const WORD_LOG_BYTES: usize = PIECE_HEAD_BYTES + 8;
/// The number of log bytes that one piece takes in addition to its data.
const PIECE_HEAD_BYTES: usize = 16;
/// The greatest number of log bytes that the split of a bucket without a chain takes.
const SPLIT_LOG_BYTES: usize = 1536;

/// Performs the next step of a shard's growth; see [`crate::protocol::Protocol::restructure`].
pub(crate) async fn restructure(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    shard: Shard,
) -> Result<Grown, Failure> {
    let table = cx.table(shard.table);
    let address = table.geometry.header(shard.group);
    begin(protocol, cx, txn);
    txn.round.begin();
    let header = (address, Geometry::HEADER_BYTES);
    let image = protocol.ask_part(cx, txn, (table, Part::Bucket), header);
    if protocol.await_locks(cx, txn, 0).await? == 0 {
        return Err(AbortReason::LockRefused.into());
    }
    let header = IndexHeader::read(&txn.round, image);
    match header.next(cx.lookup_context(), table, shard.group) {
        Next::Full => Ok(Grown::TooLarge),
        Next::Extend { segment, bytes } => {
            let fresh = segment_memory(cx, shard, segment, bytes).await?;
            let word = (Geometry::segment_at(segment), fresh.to_word());
            change_header(txn, table, (address, image), word);
            protocol.commit_structure(cx, txn).await?;
            cx.growth.keep_spare(shard, segment, Address::NULL);
            Ok(Grown::Extended)
        }
        Next::Split(first) => {
            let grown = split(protocol, cx, txn, (shard, image), first).await?;
            if let Grown::Split { buckets } = grown {
                let state = first.before.word() + buckets;
                cx.node.index_view.learn(table, shard.group, state, &header.segments);
            }
            Ok(grown)
        }
    }
}

/// Returns the memory for a new segment of an index. If this try to add the segment fails, the next try uses the same
/// memory.
async fn segment_memory(
    cx: &Context,
    shard: Shard,
    segment: usize,
    bytes: u64,
) -> Result<Address, Failure> {
    if let Some(kept) = cx.growth.spare(shard, segment) {
        return Ok(kept);
    }
    let small = bytes * 4 <= cx.database().catalog.options().chunk_bytes;
    let fresh = match small {
        true => cx.allocate(shard.group, bytes as u32).await?,
        false => cx.allocate_run(shard.group, bytes).await?,
    };
    cx.growth.keep_spare(shard, segment, fresh);
    Ok(fresh)
}

/// The split of one bucket, with its old and its new bucket.
struct Halves {
    step: Step,
    relocation: Relocation,
    /// The image of the old bucket's directory record.
    old: BufferOffset,
    /// The image of the new bucket's directory record.
    new: BufferOffset,
    /// The address of the next overflow block to read in the old bucket's chain.
    next: Address,
    /// The new overflow blocks of the new bucket's chain.
    blocks: Vec<Address>,
    /// The index, in the transaction's list, of the first lock on a slot that this split changes.
    first_lock: usize,
}

/// Splits some of a shard's buckets, in order, from the split position on. The load of the index decides the number
/// of buckets that one call splits. The call splits no bucket that follows a bucket which cannot be split. Lock 0 is
/// the lock of the index header. Some locked buckets may not be split after all; the transaction releases their locks
/// together with its other locks.
async fn split(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    (shard, header): (Shard, BufferOffset),
    first: Step,
) -> Result<Grown, Failure> {
    let (table, buckets) = (cx.table(shard.table), cx.table(shard.table).geometry.buckets);
    let limit = cx.database().catalog.options().log_bytes.min(VERB_BYTES_MAX as u64) as usize;
    let count = cx.growth.batch(shard, &first, buckets, limit / SPLIT_LOG_BYTES);
    let steps = IndexHeader::steps(cx.lookup_context(), table, shard.group, first, count);
    let mut row = lock_buckets(protocol, cx, txn, table, (shard, &steps)).await?;
    row.truncate(cx.growth.splits_wanted(shard, &first, buckets));
    if row.is_empty() {
        return Ok(Grown::TooLight);
    }
    read_chains(cx, txn, table, &mut row).await?;
    for at in 0..row.len() {
        match add_blocks(cx, txn, table, &mut row[at]).await {
            Err(failure) if at == 0 => return Err(failure),
            Err(_) => row.truncate(at),
            Ok(()) if row[at].relocation.plan() => continue,
            Ok(()) => row.truncate(at),
        }
        break;
    }
    lock_changed(protocol, cx, txn, table, &mut row).await?;
    let most = cx.database().catalog.options().log_bytes_max as usize;
    let changed = write_row(protocol, txn, table, (&row, limit, most));
    cx.growth.note_fit(shard, changed == row.len());
    give_back_unused(cx, txn, &row[..changed]);
    let Some(last) = row[..changed].last() else { return Ok(Grown::TooLarge) };
    let state = (Geometry::STATE_AT, last.step.after.word());
    change_header(txn, table, (table.geometry.header(shard.group), header), state);
    protocol.commit_structure(cx, txn).await?;
    Ok(Grown::Split { buckets: changed as u64 })
}

/// Changes one word of the index header, and the header's VERSION. Lock 0 is the header's lock, and `image` is the
/// header's image that was read under this lock.
fn change_header(
    txn: &mut Txn,
    table: &Table,
    (address, image): (Address, BufferOffset),
    (at, word): (usize, u64),
) {
    raise(txn, 0, Version::NEVER);
    if table.slot.lined().is_none() {
        let before = txn.round.word(image.plus(at));
        return write_word(txn, address.plus(at), before, word);
    }
    let Txn { round, locks, tag, .. } = txn;
    let new = round.reserve_lines(Geometry::HEADER_BYTES);
    round.copy_within(image, new, Geometry::HEADER_BYTES);
    round.set_word(new.plus(at), word);
    let lines = round.bytes_mut(new, Geometry::HEADER_BYTES);
    stamp_lines(lines, locks[0].new_version, tag.word());
    // One write contains the header's VERSION together with the rest of the header.
    locks[0].kind = LockKind::Record;
    write_lines(txn, (address, image), new, lined_writes(Geometry::HEADER_BYTES));
}

/// Returns the number of log bytes that a changed index header takes.
fn header_log_bytes(table: &Table) -> usize {
    match table.slot.lined() {
        None => 2 * WORD_LOG_BYTES,
        Some(_) => 2 * PIECE_HEAD_BYTES + Geometry::HEADER_BYTES,
    }
}

/// Locks and reads the old and new buckets of several splits. The first split has the locks 1 and 2, the second split
/// has the locks 3 and 4, and so on. The same round also reads a sample of other buckets, to estimate the load of the
/// index.
async fn lock_buckets(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    (shard, steps): (Shard, &[Step]),
) -> Result<Vec<Halves>, Failure> {
    let bucket_bytes = table.geometry.bucket_bytes;
    txn.round.begin();
    let mut row = Vec::with_capacity(steps.len());
    for &step in steps {
        let part = (table, Part::Bucket);
        let mut ask = |address| protocol.ask_part(cx, txn, part, (address, bucket_bytes));
        let (old, new) = (ask(step.old), ask(step.new));
        let copies = cx.groups.whole().replicas(shard.group);
        let (relocation, next, blocks) = (Relocation::of(copies), Address::NULL, Vec::new());
        row.push(Halves { step, relocation, old, new, next, blocks, first_lock: 0 });
    }
    let (near, state) = (cx.lookup_context(), steps[0].before);
    let sample: Vec<BufferOffset> =
        IndexHeader::sample(near, table, shard.group, state, txn.tag.word())
            .map(|bucket| txn.round.read(near.groups.primary(bucket), bucket_bytes))
            .collect();
    let whole = protocol.await_locks(cx, txn, 1).await? / 2;
    cx.growth.sample(shard, sample.iter().map(|&at| used_slots(table, &txn.round, at)));
    row.truncate(whole);
    if row.is_empty() {
        return Err(AbortReason::LockRefused.into());
    }
    for halves in &mut row {
        let (round, step) = (&txn.round, halves.step);
        let (old, new) = ((step.old, halves.old), (step.new, halves.new));
        let relocation = &mut halves.relocation;
        relocation.add_block(table, round, old, (Side::Old, false), step.before.level);
        relocation.add_block(table, round, new, (Side::New, false), step.before.level);
        halves.next = next_of(round, halves.old);
    }
    Ok(row)
}

/// Reads the chains of overflow blocks of all old buckets together. Each round reads one overflow block of each
/// chain.
async fn read_chains(
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    row: &mut [Halves],
) -> Result<(), Failure> {
    loop {
        txn.round.begin();
        let mut read = Vec::new();
        for (index, halves) in row.iter().enumerate().filter(|(_, each)| !each.next.is_null()) {
            let target = cx.groups.primary(halves.next);
            read.push((index, txn.round.read(target, table.geometry.bucket_bytes)));
        }
        if read.is_empty() {
            return Ok(());
        }
        cx.port.execute(&mut txn.round).await?;
        for (index, image) in read {
            let Halves { relocation, step, next, .. } = &mut row[index];
            let block = (*next, image);
            relocation.add_block(table, &txn.round, block, (Side::Old, true), step.before.level);
            *next = next_of(&txn.round, image);
        }
    }
}

fn next_of(round: &Round, block: BufferOffset) -> Address {
    Address::from_word(round.word(block.plus(DIRECTORY_NEXT_AT)))
}

/// Allocates the overflow blocks that the new bucket of a split needs, if any.
async fn add_blocks(
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    halves: &mut Halves,
) -> Result<(), Failure> {
    let (bytes, step) = (table.geometry.bucket_bytes, halves.step);
    for _ in 0..halves.relocation.blocks_wanted(table) {
        let block = cx.allocate(step.new.group(), bytes as u32).await?;
        txn.allocated.push(Allocated {
            address: block,
            bytes: bytes as u32,
            memory: Memory::Zeros,
        });
        halves.blocks.push(block);
        let image = txn.round.reserve_lines(bytes);
        txn.round.bytes_mut(image, bytes).fill(0);
        let (round, side) = (&txn.round, (Side::New, true));
        halves.relocation.add_block(table, round, (block, image), side, step.before.level);
    }
    Ok(())
}

/// Locks every slot that the splits change, and reads the slot again under its lock.
async fn lock_changed(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    row: &mut Vec<Halves>,
) -> Result<(), Failure> {
    let start = txn.locks.len();
    txn.round.begin();
    for halves in row.iter_mut() {
        halves.first_lock = txn.locks.len();
        for slot in halves.relocation.changed() {
            let (part, lies) = (Part::Slot(slot.held_key()), (slot.address, table.slot.slot_bytes));
            slot.image = protocol.ask_part(cx, txn, (table, part), lies);
        }
    }
    let asked = txn.locks.len();
    let granted = start + protocol.await_locks(cx, txn, start).await?;
    let ends = row.iter().skip(1).map(|next| next.first_lock).chain([asked]);
    let whole = ends.take_while(|&end| end <= granted).count();
    row.truncate(whole);
    let holds = |halves: &mut Halves| halves.relocation.still_holds(&txn.round);
    let whole = row.iter_mut().map(holds).take_while(|&held| held).count();
    row.truncate(whole);
    if row.is_empty() { Err(AbortReason::LockRefused.into()) } else { Ok(()) }
}

/// Adds the writes of one split after the other, as long as the log entry has room. If the transaction splits more
/// than one bucket, the log bytes of all splits must fit into the log area. Returns the number of splits whose writes
/// were added.
fn write_row(
    protocol: &impl Structure,
    txn: &mut Txn,
    table: &Table,
    (row, limit, most): (&[Halves], usize, usize),
) -> usize {
    for (index, halves) in row.iter().enumerate() {
        let pieces = txn.pieces.len();
        let slots = halves.first_lock..halves.first_lock + halves.relocation.changes();
        write_halves(txn, table, halves, 1 + 2 * index);
        // The log entry also needs room for the header, and for the VERSIONs of the directory records of all buckets
        // up to this bucket.
        let rest = 2 * (index + 1) * WORD_LOG_BYTES + header_log_bytes(table);
        let limit = if index == 0 { most } else { limit };
        if protocol.log_bytes(txn) + rest > limit {
            txn.pieces.truncate(pieces);
            for lock in slots.chain(1 + 2 * index..3 + 2 * index) {
                txn.locks[lock].writes = false;
            }
            return index;
        }
    }
    row.len()
}

/// Adds the writes of the split of one bucket. The locks of the directory records of the old and new bucket are
/// `first` and `first + 1`.
fn write_halves(txn: &mut Txn, table: &Table, halves: &Halves, first: usize) {
    halves.relocation.write(table, txn, halves.first_lock);
    let floor = later(txn.locks[first].old_version, txn.locks[first + 1].old_version);
    for (lock, image) in [(first, halves.old), (first + 1, halves.new)] {
        let before = txn.round.word(image.plus(DIRECTORY_DEPTH_AT));
        let address = txn.locks[lock].address.plus(DIRECTORY_DEPTH_AT);
        write_word(txn, address, before, depth_after(&halves.step));
        raise(txn, lock, floor);
    }
    let mut tail = halves.step.new;
    let mut next = txn.round.word(halves.new.plus(DIRECTORY_NEXT_AT));
    for block in &halves.blocks {
        write_word(txn, tail.plus(DIRECTORY_NEXT_AT), next, block.to_word());
        (tail, next) = (*block, 0);
    }
}

/// Frees the overflow blocks that were allocated for buckets that the transaction does not split after all.
fn give_back_unused(cx: &Context, txn: &mut Txn, row: &[Halves]) {
    txn.allocated.retain(|&block| {
        let used = row.iter().any(|halves| halves.blocks.contains(&block.address));
        if !used {
            cx.take_back(block);
        }
        used
    });
}

fn later(one: Version, other: Version) -> Version {
    if one.counter() >= other.counter() { one } else { other }
}
