//! One-sided allocation: threads of compute nodes own chunks of a group's heap, and allocate blocks inside their
//! chunks.
//!
//! Invariant: a chunk has one owner. A thread becomes the owner by a CAS on the primary's chunk table. The thread
//! copies the owner word to the backups before it uses a block of the chunk. So a backup that becomes the primary
//! also knows the owner of each chunk. A block that is allocated contains zeros. If a transaction aborts, its blocks
//! return to the thread, because the blocks were never written. When a thread ends, other threads of its node take
//! over its memory ([`crate::memory::left_memory`]). A full heap is an error, not a crash.

use tarn_fabric::address::{Address, GroupId};

/// A mark in the chunk table, beside a coordinator's number. The mark says that the chunk belongs to the log of
/// that number. The owner word of a thread never has this bit.
pub const LOG_OWNER: u64 = 1 << 63;

/// The unused part at the end of adjacent chunks of one thread. The unused part contains zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    next: Address,
    left_bytes: u64,
}

impl Rest {
    /// Returns the replica group to which this unused part belongs.
    pub fn group(&self) -> GroupId {
        self.next.group()
    }

    /// Whether the unused part has at least `bytes` bytes.
    pub fn has(&self, bytes: u32) -> bool {
        self.left_bytes >= u64::from(bytes)
    }
}

/// A block of zeros: its group, its size, and its address.
pub type Zeros = (GroupId, u32, Address);

/// The chunks and free blocks of one thread.
pub struct Heap {
    owner: u64,
    open: Vec<Option<Rest>>,
    /// The groups in which a coroutine of this thread is claiming a chunk.
    claiming: Vec<GroupId>,
    /// The free blocks. A thread has few free blocks, so a list is fast enough.
    free: Vec<Zeros>,
}

impl Heap {
    /// Creates the heap of a thread without chunks. The thread writes `owner`, which is not zero, into the chunk
    /// table.
    pub fn new(owner: u64, groups: usize) -> Heap {
        assert!(owner != 0);
        Heap { owner, open: vec![None; groups], claiming: Vec::new(), free: Vec::new() }
    }

    /// Takes a block from the memory that the thread already owns.
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
        // The end of the last chunk may be the end of the group's memory. Address arithmetic does not allow the
        // address of that end.
        if chunk.left_bytes > 0 {
            chunk.next = address.plus(bytes as usize);
        }
        Some(address)
    }

    /// Returns a block that was never written to the free blocks.
    pub fn give_back(&mut self, address: Address, bytes: u32) {
        self.free.push((address.group(), bytes, address));
    }

    /// Whether the caller may claim a chunk in `group`. Only one coroutine of a thread claims at a time, so that no
    /// new chunk displaces a chunk that was hardly used. If the answer is yes, the caller must call
    /// [`Heap::end_claim`] later.
    pub fn begin_claim(&mut self, group: GroupId) -> bool {
        let free = !self.claiming.contains(&group);
        if free {
            self.claiming.push(group);
        }
        free
    }

    /// Ends the claim of a chunk that [`Heap::begin_claim`] allowed.
    pub fn end_claim(&mut self, group: GroupId) {
        self.claiming.retain(|&claiming| claiming != group);
    }

    /// Adds claimed chunks to the heap. Returns the unused part that the heap had in the same group before, if any.
    pub fn open(&mut self, start: Address, bytes: u64) -> Option<Rest> {
        self.open_rest(Rest { next: start, left_bytes: bytes })
    }

    /// Does the same as [`Heap::open`] with unused memory that another thread has left behind.
    pub fn open_rest(&mut self, rest: Rest) -> Option<Rest> {
        let before = self.open[usize::from(rest.group().0)].replace(rest);
        before.filter(|before| before.left_bytes > 0)
    }

    /// Takes all memory from the heap of a thread that ends.
    pub fn leave(&mut self) -> (Vec<Rest>, Vec<Zeros>) {
        let open = self.open.iter_mut().filter_map(Option::take);
        let rests = open.filter(|rest| rest.left_bytes > 0).collect();
        (rests, std::mem::take(&mut self.free))
    }

    /// The word that this thread writes into the chunk table.
    pub fn owner(&self) -> u64 {
        self.owner
    }
}
