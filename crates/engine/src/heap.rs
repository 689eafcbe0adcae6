//! One-sided allocation: compute nodes own chunks of a group's heap and cut blocks from them.
//!
//! Invariant: a chunk has one owner, written by CAS into the primary's chunk table and copied to
//! the backups before a block of it is used, so that a promoted backup knows it too. A block handed
//! out is zero. Blocks of a transaction that aborts come back to the thread (they were never
//! written). What a thread leaves goes to its node's next threads ([`crate::left_memory`]). A full heap is an error,
//! not a crash.

use crate::catalog::Catalog;
use crate::outcome::Failure;
use crate::replica_groups::ReplicaGroups;
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::port::Port;
use tarn_fabric::rng::mix;
use tarn_fabric::round::{Round, VERB_BYTES_MAX};

/// In the chunk table, beside a coordinator's number: the chunk belongs to the number's log. No thread's name has this bit.
pub(crate) const LOG_OWNER: u64 = 1 << 63;

/// What is left of adjacent chunks: zeros that nobody has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    next: Address,
    left_bytes: u64,
}

impl Rest {
    /// Its group.
    pub fn group(&self) -> GroupId {
        self.next.group()
    }

    /// Whether so many bytes can be cut from it.
    pub fn has(&self, bytes: u32) -> bool {
        self.left_bytes >= u64::from(bytes)
    }
}

/// A block of zeros: its group, its size, where it lies.
pub type Zeros = (GroupId, u32, Address);

/// One thread's chunks and free blocks.
pub struct Heap {
    owner: u64,
    open: Vec<Option<Rest>>,
    /// Groups in which a coroutine of this thread is claiming a chunk.
    claiming: Vec<GroupId>,
    /// Free blocks: few, so a list.
    free: Vec<Zeros>,
}

/// What allocation needs from its thread.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// Sends the rounds.
    pub port: &'a Port,
    /// Where the heap lies.
    pub catalog: &'a Catalog,
    /// Where groups live.
    pub groups: &'a ReplicaGroups,
}

impl Heap {
    /// A thread without chunks. `owner` is what it writes into the chunk table: not zero.
    pub fn new(owner: u64, groups: usize) -> Heap {
        assert!(owner != 0);
        Heap { owner, open: vec![None; groups], claiming: Vec::new(), free: Vec::new() }
    }

    /// A block from what the thread owns already.
    pub fn take(&mut self, group: GroupId, bytes: u32) -> Option<Address> {
        let fits = |&(g, b, _): &Zeros| g == group && b == bytes;
        if let Some(index) = self.free.iter().position(fits) {
            return Some(self.free.swap_remove(index).2);
        }
        let chunk = self.open[usize::from(group.0)].as_mut()?;
        if chunk.left_bytes < u64::from(bytes) {
            return None;
        }
        let address = chunk.next;
        chunk.left_bytes -= u64::from(bytes);
        // The end of the last chunk may be the end of the group: do not form its address.
        if chunk.left_bytes > 0 {
            chunk.next = address.plus(bytes as usize);
        }
        Some(address)
    }

    /// Gives back a block that was never written.
    pub fn give_back(&mut self, address: Address, bytes: u32) {
        self.free.push((address.group(), bytes, address));
    }

    /// Whether the caller may claim a chunk in `group`: one coroutine of a thread at a time, so that
    /// no chunk displaces another that was hardly used. If so, [`Heap::end_claim`] must follow.
    pub fn begin_claim(&mut self, group: GroupId) -> bool {
        let free = !self.claiming.contains(&group);
        if free {
            self.claiming.push(group);
        }
        free
    }

    /// The claim is over.
    pub fn end_claim(&mut self, group: GroupId) {
        self.claiming.retain(|&claiming| claiming != group);
    }

    /// Adds claimed memory; what was left of the group's before, if anything.
    pub fn open(&mut self, start: Address, bytes: u64) -> Option<Rest> {
        self.open_rest(Rest { next: start, left_bytes: bytes })
    }

    /// As [`Heap::open`], of what another thread has left.
    pub fn open_rest(&mut self, rest: Rest) -> Option<Rest> {
        let before = self.open[usize::from(rest.group().0)].replace(rest);
        before.filter(|before| before.left_bytes > 0)
    }

    /// All that it has: the thread is no more.
    pub fn leave(&mut self) -> (Vec<Rest>, Vec<Zeros>) {
        let open = self.open.iter_mut().filter_map(Option::take);
        let rests = open.filter(|rest| rest.left_bytes > 0).collect();
        (rests, std::mem::take(&mut self.free))
    }

    /// What this thread writes into the chunk table.
    pub fn owner(&self) -> u64 {
        self.owner
    }
}

/// Claims enough adjacent chunks for `bytes`, at any replica's equal offset.
///
/// # Errors
/// `OutOfMemory`, or the fabric's.
pub async fn claim(
    ground: Ground<'_>,
    owner: u64,
    group: GroupId,
    bytes: u64,
) -> Result<(Address, u64), Failure> {
    let chunk_bytes = ground.catalog.options().chunk_bytes;
    let (wanted, chunks) = (bytes.div_ceil(chunk_bytes), ground.catalog.chunks());
    let (mut looking, mut taking) = (Round::new(), Round::new());
    let start = if wanted == 1 { mix(owner) % chunks } else { 0 };
    // As a rule the first is free. Of a large database half a million may not be: then many are looked at at once.
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

/// CASes a run of chunks; on a refusal gives back what it got.
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
