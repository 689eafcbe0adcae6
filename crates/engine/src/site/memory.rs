//! Allocation: a thread takes memory from its replica groups and gives memory back.
//!
//! Invariant: an allocated block has one owner until the owner gives the block back. The owner gives a block back
//! only when no reader can reach it any more. If the block's transaction has written nothing, it gives the block back
//! immediately. The memory of a deleted record is free when its transaction has committed and cannot be undone.
//! Blocks of a transaction in doubt are never given back, because the transaction may have written them, and chains
//! may lead readers to them. A block that has been part of an index stays part of it. For readers that come too late
//! to a record, see [`tarn_store::memory::record_gc`].

use crate::site::{Context, Database};
use crate::transaction::working_set::{Allocated, Memory};
use std::cell::RefCell;
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_fabric::rng::mix;
use tarn_fabric::round::{Round, VERB_BYTES_MAX};
use tarn_store::ids::{Explanation, Failure};
use tarn_store::layout::RecordLayout;
use tarn_store::memory::heap::Heap;
use tarn_store::memory::left_memory::Found;
use tarn_store::memory::record_gc::{LIFETIME_DRIFT, READER_LIFETIME, RecordGc, batch_of};
use tarn_store::placement::catalog::Catalog;
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_store::schema::TableId;

/// One coroutine's claim of a chunk. The claim ends when this value is dropped.
struct Claiming<'a> {
    heap: &'a RefCell<Heap>,
    group: GroupId,
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        self.heap.borrow_mut().end_claim(self.group);
    }
}

impl Database {
    /// Creates the empty list of discarded records of a new thread.
    pub(crate) fn record_gc(&self, groups: usize) -> RecordGc {
        let tables = self.catalog.tables().iter();
        let batches = tables.map(|it| batch_of(self.catalog.chunk_of(it.slot.body_bytes())));
        RecordGc::of_thread(groups, batches.collect())
    }
}

impl Context {
    /// Allocates a block of zeroed memory in `group`. The block comes from the thread's own memory, from memory that
    /// another thread has left for reuse, or from a new chunk.
    ///
    /// # Errors
    /// `OutOfMemory`, or the fabric's error.
    pub async fn allocate(&self, group: GroupId, bytes: u32) -> Result<Address, Failure> {
        loop {
            if let Some(block) = self.heap.borrow_mut().take(group, bytes) {
                return Ok(block);
            }
            if self.heap.borrow_mut().begin_claim(group) {
                break;
            }
            self.port.yield_now().await;
        }
        let _claiming = Claiming { heap: &self.heap, group };
        let before = match self.node.left.take_zeros(group, bytes) {
            Some(Found::Block(block)) => return Ok(block),
            Some(Found::Rest(rest)) => self.heap.borrow_mut().open_rest(rest),
            None => {
                let owner = self.heap.borrow().owner();
                let (start, claimed) = self.claim(owner, group, u64::from(bytes)).await?;
                self.heap.borrow_mut().open(start, claimed)
            }
        };
        if let Some(before) = before {
            self.node.left.put_rest(before);
        }
        let block = self.heap.borrow_mut().take(group, bytes);
        block.ok_or_else(|| self.explain_out_of_memory(u64::from(bytes)))
    }

    /// Allocates a block as [`Context::allocate`] does, for a transaction that cannot continue without the block. If
    /// there is no other memory, the function clears a discarded record and uses its memory.
    ///
    /// # Errors
    /// The same errors as [`Context::allocate`].
    pub(crate) async fn allocate_anyhow(
        &self,
        group: GroupId,
        bytes: u32,
    ) -> Result<Address, Failure> {
        let block = self.allocate(group, bytes).await;
        if block != Err(Failure::OutOfMemory) {
            return block;
        }
        let (start, cleared) = self.clear_record(group, bytes).await?;
        let before = self.heap.borrow_mut().open(start, cleared);
        before.into_iter().for_each(|rest| self.node.left.put_rest(rest));
        self.heap.borrow_mut().take(group, bytes).map_or(block, Ok)
    }

    /// Allocates adjacent chunks for `bytes` in `group`.
    ///
    /// # Errors
    /// `OutOfMemory`, or the fabric's error.
    pub async fn allocate_run(&self, group: GroupId, bytes: u64) -> Result<Address, Failure> {
        let owner = self.heap.borrow().owner();
        self.allocate_run_for(owner, group, bytes).await
    }

    /// Does the same as [`Context::allocate_run`], for this owner of the chunks.
    ///
    /// # Errors
    /// The same errors as [`Context::allocate_run`].
    pub(crate) async fn allocate_run_for(
        &self,
        owner: u64,
        group: GroupId,
        bytes: u64,
    ) -> Result<Address, Failure> {
        self.claim(owner, group, bytes).await.map(|(start, _)| start)
    }

    async fn claim(
        &self,
        owner: u64,
        group: GroupId,
        bytes: u64,
    ) -> Result<(Address, u64), Failure> {
        let (catalog, groups) = (&self.database().catalog, self.groups.whole());
        let ground = Ground { port: &self.port, catalog, groups: &groups };
        claim(ground, owner, group, bytes).await.map_err(|failure| match failure {
            Failure::OutOfMemory => self.explain_out_of_memory(bytes),
            other => other,
        })
    }

    #[cold]
    fn explain_out_of_memory(&self, bytes: u64) -> Failure {
        let (catalog, groups) = (&self.database().catalog, self.groups.whole());
        let copies = (0..groups.count()).map(|group| groups.replicas(GroupId(group as u16)) as u64);
        let pool_bytes = copies.sum::<u64>() * catalog.group_bytes();
        self.explain(Explanation::OutOfMemory { bytes, pool_bytes })
    }

    /// Allocates memory for a record, or for a version that lies apart from its record. The allocated memory is not
    /// zeroed. The function prefers discarded records. In two cases it uses discarded records before their waiting
    /// time has passed. First, there is no other memory. Second, a whole chunk of discarded records waits, and the
    /// function would otherwise have to take another chunk. While a copy of the group joins, the function uses no
    /// discarded record, because the copy is filled with data that may have been read earlier.
    ///
    /// # Errors
    /// `OutOfMemory`, or the fabric's error.
    pub async fn allocate_record(
        &self,
        group: GroupId,
        (table, bytes): (TableId, u32),
    ) -> Result<Address, Failure> {
        let take = |enough: usize| {
            let now = self.port.now();
            let record = self.record_gc.borrow_mut().take(now, (group, table), enough)?;
            if self.groups.whole().joining(group).is_empty() {
                return Some(record);
            }
            let _ = self.record_gc.borrow_mut().put(Nanos(0), record, table);
            None
        };
        if let Some(record) = take(usize::MAX) {
            return Ok(record);
        }
        if let Some(block) = self.heap.borrow_mut().take(group, bytes) {
            return Ok(block);
        }
        // Before the thread takes another chunk, it checks whether more records wait than one chunk can contain.
        let enough = self.chunk_of(bytes as usize);
        if let Some(record) = take(enough) {
            return Ok(record);
        }
        self.take_left_records((group, table), enough);
        if let Some(record) = take(enough) {
            return Ok(record);
        }
        let block = self.allocate(group, bytes).await;
        if block != Err(Failure::OutOfMemory) {
            return block;
        }
        self.record_gc.borrow_mut().note_full(group);
        take(0)
            .or_else(|| {
                self.take_left_records((group, table), 0);
                take(0)
            })
            .map_or(block, Ok)
    }

    /// Fills a discarded record with zeros, so that the thread can cut blocks of an index from the record's memory.
    ///
    /// # Errors
    /// `OutOfMemory` if no discarded record is large enough, or the fabric's error.
    #[cold]
    async fn clear_record(&self, group: GroupId, bytes: u32) -> Result<(Address, u64), Failure> {
        let found = self.take_to_clear(group, bytes);
        let Some((record, bytes)) = found else { return Err(Failure::OutOfMemory) };
        let mut round = Round::new();
        for from in (0..bytes).step_by(VERB_BYTES_MAX) {
            let part = VERB_BYTES_MAX.min(bytes - from);
            let zeros = round.reserve_lines(part);
            round.bytes_mut(zeros, part).fill(0);
            for target in self.groups.whole().all(record.plus(from)) {
                round.write(target, zeros, part);
            }
        }
        // If the round fails, the record is lost, because the thread does not know which part of the record is
        // cleared.
        self.port.execute(&mut round).await?;
        Ok((record, bytes as u64))
    }

    /// Takes a discarded record of any table, of `bytes` or more, and also returns the record's size. The function
    /// skips tables whose readers detect reuse by words after the record's first word. Another record of the same
    /// table has those words at the same offsets, but an index's block does not have them.
    fn take_to_clear(&self, group: GroupId, bytes: u32) -> Option<(Address, usize)> {
        if !self.groups.whole().joining(group).is_empty() {
            return None;
        }
        self.record_gc.borrow_mut().note_full(group);
        self.database().catalog.tables().iter().find_map(|table| {
            let slot = &table.slot;
            let is_whole = matches!(slot.record, RecordLayout::Deltas(it) if it.is_whole());
            if is_whole || slot.body_bytes() < bytes as usize {
                return None;
            }
            let of = (group, table.id);
            let take = || self.record_gc.borrow_mut().take(self.port.now(), of, 0);
            let record = take().or_else(|| {
                self.take_left_records(of, 0);
                take()
            });
            record.map(|record| (record, slot.body_bytes()))
        })
    }

    /// The number of records of a size that fit into one chunk.
    fn chunk_of(&self, bytes: usize) -> usize {
        self.database().catalog.chunk_of(bytes)
    }

    /// Takes over some of a table's records that other threads have left for reuse. If more than `enough` records
    /// wait, the function may take them before their waiting time has passed.
    #[cold]
    fn take_left_records(&self, (group, table): (GroupId, TableId), enough: usize) {
        let is_full = self.record_gc.borrow().is_full(group);
        let batch = batch_of(self.chunk_of(self.table(table).slot.body_bytes()));
        let (of, some) = ((group, table), (enough, batch));
        let left = self.node.left.take_records(self.port.now(), of, some, is_full);
        let mut own = self.record_gc.borrow_mut();
        left.into_iter().rev().for_each(|record| own.put_ready(record, table));
    }

    /// Takes back the memory of a version to which no index leads any more. A reader may still be reading the version
    /// and accept its content.
    pub fn discard_record(&self, record: Address, table: TableId) {
        let free_after = Nanos(self.port.now().0 + READER_LIFETIME.0 + LIFETIME_DRIFT.0);
        self.put_record(free_after, record, table);
    }

    /// Takes back the memory of a deleted record. A reader that still follows an address of the record notices that
    /// the record was deleted. Readers of earlier versions do not notice it.
    #[cold]
    pub(crate) fn free_record(&self, record: Address, table: TableId) {
        match self.table(table).slot.record {
            RecordLayout::Cells(_) => self.discard_record(record, table),
            _ => self.put_record(Nanos(0), record, table),
        }
    }

    fn put_record(&self, free_after: Nanos, record: Address, table: TableId) {
        let has_many = self.record_gc.borrow_mut().put(free_after, record, table);
        if has_many || self.node.left.has_full() {
            self.leave_surplus(record.group(), table);
        }
    }

    /// Leaves this thread's surplus of discarded records to other threads.
    #[cold]
    fn leave_surplus(&self, group: GroupId, table: TableId) {
        let mut own = self.record_gc.borrow_mut();
        if self.node.left.has_full() && !own.is_full(group) && self.node.left.is_full(group) {
            own.note_full(group);
        }
        let surplus = own.surplus(group, table);
        if !surplus.is_empty() {
            self.node.left.put_records(surplus, table);
        }
    }

    /// Takes back a block that no transaction wrote.
    pub fn give_back(&self, address: Address, bytes: u32) {
        self.heap.borrow_mut().give_back(address, bytes);
    }

    /// Takes back the memory that a transaction has allocated, if the transaction has written nothing.
    pub(crate) fn take_back(&self, allocated: Allocated) {
        let Allocated { address, bytes, memory } = allocated;
        match memory {
            Memory::Zeros => self.give_back(address, bytes),
            // The memory may contain an older record, so the thread does not zero it. This transaction has led no
            // reader to the memory.
            Memory::Record(table) => self.put_record(Nanos(0), address, table),
            Memory::Gone(_) => {} // the record stays in use
        }
    }

    /// Processes the allocations of a transaction that has committed and cannot be undone. The memory that it has
    /// allocated is in use, and the memory of its deleted records is free.
    #[cold]
    pub(crate) fn keep_allocated(&self, allocated: &mut Vec<Allocated>) {
        for Allocated { address, memory, .. } in allocated.drain(..) {
            if let Memory::Gone(table) = memory {
                self.free_record(address, table);
            }
        }
    }
}

/// The parts of a thread's context that allocation uses.
#[derive(Clone, Copy)]
struct Ground<'a> {
    /// The port that sends the rounds of verbs.
    port: &'a Port,
    /// The catalog, which tells where the heap is.
    catalog: &'a Catalog,
    /// The map of replica groups.
    groups: &'a ReplicaGroups,
}

/// Claims enough adjacent chunks for `bytes`, at the same offset on every replica.
///
/// # Errors
/// `OutOfMemory`, or the fabric's error.
async fn claim(
    ground: Ground<'_>,
    owner: u64,
    group: GroupId,
    bytes: u64,
) -> Result<(Address, u64), Failure> {
    let chunk_bytes = ground.catalog.options().chunk_bytes;
    let (wanted, chunks) = (bytes.div_ceil(chunk_bytes), ground.catalog.chunks());
    let (mut looking, mut taking) = (Round::new(), Round::new());
    let start = if wanted == 1 { mix(owner) % chunks } else { 0 };
    // Usually the first chunk is free. In a large database half a million chunks may be taken. So each round reads
    // more chunk words than the previous round.
    let mut words_max = 1;
    let (mut run, mut at, mut left) = (0, start, chunks + wanted);
    while left > 0 {
        if at == chunks {
            (at, run) = (0, 0);
        }
        let words = left.min(chunks - at).min(words_max);
        looking.clear();
        let first = ground.groups.primary(ground.catalog.chunk_word(group, at));
        let seen = looking.read(first, words as usize * 8);
        ground.port.execute(&mut looking).await?;
        for word in 0..words as usize {
            let is_free = looking.words(seen, words as usize)[word] == 0;
            run = if is_free { run + 1 } else { 0 };
            at += 1;
            if run == wanted {
                let first = at - wanted;
                if take_run(ground, &mut taking, owner, group, first, wanted).await? {
                    return Ok((ground.catalog.chunk(group, first), wanted * chunk_bytes));
                }
                run = 0;
            }
        }
        left -= words;
        words_max = (words_max * 8).min(VERB_BYTES_MAX as u64 / 8);
    }
    Err(Failure::OutOfMemory)
}

/// Claims a run of chunks by CAS. If one CAS is refused, the function gives back the chunks that it has claimed.
async fn take_run(
    ground: Ground<'_>,
    round: &mut Round,
    owner: u64,
    group: GroupId,
    first: u64,
    count: u64,
) -> Result<bool, Failure> {
    for chunk in first..first + count {
        let word = ground.catalog.chunk_word(group, chunk);
        round.clear();
        let cas = round.cas(ground.groups.primary(word), 0, owner);
        ground.port.execute(round).await?;
        if !round.swapped(cas) {
            for taken in first..chunk {
                let word = ground.catalog.chunk_word(group, taken);
                round.clear();
                round.cas(ground.groups.primary(word), owner, 0);
                ground.port.execute(round).await?;
            }
            return Ok(false);
        }
    }
    for chunk in first..first + count {
        round.clear();
        let copy = round.reserve(8);
        round.set_word(copy, owner);
        for target in ground.groups.backups(ground.catalog.chunk_word(group, chunk)) {
            round.write(target, copy, 8);
        }
        ground.port.execute(round).await?;
    }
    Ok(true)
}
