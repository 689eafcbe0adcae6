//! A round: the verbs of one network round trip, and the buffer from which WRITEs take their bytes and into which
//! READs put theirs.
//!
//! Invariant: the next transaction reuses a round's memory. `clear` removes the contents and keeps the allocated
//! memory. So after its first transactions, a coordinator allocates no memory for rounds. The bytes of a READ keep
//! their position in the buffer until `clear`. Later rounds of the same transaction only append to the buffer. (A
//! position is an offset and not a reference, so it stays valid if the buffer grows.)
//!
//! The following table gives the order in which a memory node executes the verbs of one round. The order is that of
//! reliable connections (InfiniBand Architecture Specification, vol. 1, §9.5):
//!
//! | first \ second | READ | WRITE | atomic |
//! |---|---|---|---|
//! | READ   | in order | only with [`Round::fence`] | in order |
//! | WRITE  | in order | in order | in order |
//! | atomic | in order | only with [`Round::fence`] | in order |
//!
//! Verbs to different nodes have no order. Verbs of different rounds also have no order, with one exception: a round
//! that no coroutine awaits, because it was detached or its future was dropped. At each node, verbs that the same
//! port posts later come after the verbs of that round, as if both rounds were one batch.
//!
//! A READ or WRITE is atomic within an aligned 64-byte line and has no order across lines, with one exception. If
//! verbs of 8 bytes change a line at the same time, a READ takes the words of the line one after the other, in
//! ascending order. A READ beside verbs of 8 bytes may return a change of a later word without an earlier change of
//! an earlier word. A READ never returns a change of an earlier word without earlier changes of later words. For
//! example, LOCK lies before VERSION. If a writer changes first VERSION and then LOCK, a READ that returns the new
//! LOCK also returns the new VERSION.
//!
//! Atomics and WRITEs of one word are atomic with respect to all verbs at the same node.

use crate::address::Target;
pub use crate::verb::{Verb, VerbKind, VerbTally};

/// Names a verb of the current round, so that the caller can read the verb's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerbIndex(pub u32);

/// A position in a round's buffer, in bytes. The position is valid until [`Round::clear`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct BufferOffset(pub u32);

impl BufferOffset {
    /// Returns the position that is `bytes` bytes higher.
    #[inline]
    pub fn plus(self, bytes: usize) -> BufferOffset {
        BufferOffset(self.0 + bytes as u32)
    }
}

/// One aligned line of the buffer.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// The maximum length of a READ or WRITE in bytes.
pub const VERB_BYTES_MAX: usize = 32 * 1024;

/// The verbs of one round trip and the coordinator's buffer. See the module's documentation.
pub struct Round {
    verbs: Vec<Verb>,
    tally: VerbTally,
    lines: Vec<Line>,
    used_bytes: usize,
    fence_next: bool,
    hot: bool,
    followed: bool,
    rings_each: bool,
    /// A number that the backend sets while the round is in flight, with a meaning that the backend defines.
    pub ticket: u64,
}

impl Default for Round {
    fn default() -> Round {
        Round::new()
    }
}

impl Round {
    /// Creates an empty round with memory for a small transaction.
    pub fn new() -> Round {
        Round {
            verbs: Vec::with_capacity(8),
            tally: VerbTally::NONE,
            lines: vec![Line([0; 8]); 16],
            used_bytes: 0,
            fence_next: false,
            hot: false,
            followed: false,
            rings_each: false,
            ticket: 0,
        }
    }

    /// Starts a transaction: removes all verbs and all contents of the buffer.
    #[inline]
    pub fn clear(&mut self) {
        self.used_bytes = 0;
        self.begin();
    }

    /// Starts the next round of the same transaction: removes all verbs, and keeps the contents of the buffer.
    #[inline]
    pub fn begin(&mut self) {
        self.verbs.clear();
        self.tally = VerbTally::NONE;
        self.fence_next = false;
        self.hot = false;
        self.followed = false;
    }

    /// Makes this round a copy of another round, and reuses this round's memory. A backend needs a copy of a round if
    /// it must still execute a round after the caller has its own round back.
    pub fn copy_from(&mut self, other: &Round) {
        self.verbs.clone_from(&other.verbs);
        (self.tally, self.rings_each) = (other.tally, other.rings_each);
        let lines = other.used_bytes.div_ceil(64);
        if self.lines.len() < lines {
            self.grow(other.used_bytes);
        }
        self.lines[..lines].copy_from_slice(&other.lines[..lines]);
        self.used_bytes = other.used_bytes;
    }

    /// The verbs added since [`Round::begin`].
    #[inline]
    pub fn verbs(&self) -> &[Verb] {
        &self.verbs
    }

    /// Returns the numbers and the bytes of the verbs added since [`Round::begin`].
    #[inline]
    pub fn tally(&self) -> VerbTally {
        self.tally
    }

    /// Whether no verb was added since [`Round::begin`].
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.verbs.is_empty()
    }

    /// Gives the hint that the round's lines are already in the processor's cache. A backend with near memory may
    /// then execute the round immediately, instead of letting other coroutines run first. Immediate execution
    /// shortens the time for which the transaction holds its locks.
    #[inline]
    pub fn hot(&mut self) {
        self.hot = true;
    }

    /// Promises that the transaction sends another round before any code uses the outcome of this round. So the
    /// effect of this round need not be visible to other threads before the effect of the next round.
    #[inline]
    pub fn followed(&mut self) {
        self.followed = true;
    }

    /// Whether [`Round::followed`] was called.
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.followed
    }

    /// Whether [`Round::hot`] was called.
    #[inline]
    pub fn is_hot(&self) -> bool {
        self.hot
    }

    /// Sets whether the owner rings a doorbell for each verb, and not one doorbell for each memory node. The setting
    /// lasts for all later rounds of this memory. It changes only the cost of a round, in backends that simulate it.
    pub fn ring_each(&mut self, rings_each: bool) {
        self.rings_each = rings_each;
    }

    /// Whether the owner rings a doorbell for each verb that has not joined an earlier one.
    #[inline]
    pub fn rings_each(&self) -> bool {
        self.rings_each
    }

    /// Makes the verbs from number `from` on need no doorbells of their own: they travel with earlier verbs to their
    /// nodes.
    pub fn join_doorbells(&mut self, from: usize) {
        self.verbs[from..].iter_mut().for_each(Verb::join);
    }

    /// Makes the next verb take effect after all earlier verbs of its batch to the same node.
    #[inline]
    pub fn fence(&mut self) {
        self.fence_next = true;
    }

    /// The number of bytes of the buffer that are in use.
    #[inline]
    pub fn buffered_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Reserves `bytes` bytes of the buffer, at a position that is a multiple of 8.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> BufferOffset {
        self.reserve_at(self.used_bytes.next_multiple_of(8), bytes)
    }

    /// Reserves `bytes` bytes of the buffer, at a position that is a multiple of 64, for a READ of whole lines.
    #[inline(always)]
    pub fn reserve_lines(&mut self, bytes: usize) -> BufferOffset {
        self.reserve_at(self.used_bytes.next_multiple_of(64), bytes)
    }

    #[inline]
    fn reserve_at(&mut self, start: usize, bytes: usize) -> BufferOffset {
        let end = start + bytes;
        if end > self.lines.len() * 64 {
            self.grow(end);
        }
        self.used_bytes = end;
        BufferOffset(start as u32)
    }

    #[cold]
    fn grow(&mut self, end_bytes: usize) {
        assert!(end_bytes <= u32::MAX as usize, "a transaction's buffer is limited to 4 GiB");
        let lines = end_bytes.div_ceil(64).next_power_of_two();
        self.lines.resize(lines, Line([0; 8]));
    }

    #[inline(always)]
    fn push(
        &mut self,
        target: Target,
        kind: VerbKind,
        operands: (u64, u64),
        (buffer, len_bytes): (BufferOffset, usize),
        flags: u8,
    ) -> VerbIndex {
        let fenced = if std::mem::take(&mut self.fence_next) { Verb::FENCED } else { 0 };
        self.tally.add(kind, len_bytes);
        self.verbs
            .push(Verb::new(target, kind, operands, (buffer, len_bytes)).with(flags | fenced));
        VerbIndex(self.verbs.len() as u32 - 1)
    }

    /// Adds a READ of `len_bytes` bytes into newly reserved, line-aligned memory of the buffer. Returns the position
    /// in the buffer at which the bytes will be.
    #[inline(always)]
    pub fn read(&mut self, target: Target, len_bytes: usize) -> BufferOffset {
        let buffer =
            if len_bytes < 64 { self.reserve(len_bytes) } else { self.reserve_lines(len_bytes) };
        self.read_into(target, buffer, len_bytes);
        buffer
    }

    /// Adds a READ of `len_bytes` bytes into memory of the buffer that the caller has reserved.
    #[inline]
    pub fn read_into(&mut self, target: Target, buffer: BufferOffset, len_bytes: usize) {
        assert!(len_bytes <= VERB_BYTES_MAX);
        debug_assert!(buffer.0 as usize + len_bytes <= self.used_bytes);
        self.push(target, VerbKind::Read, (0, 0), (buffer, len_bytes), 0);
    }

    /// Adds a READ of the aligned word at `target`. The calling coroutine polls this word, and has nothing to do
    /// while the word equals `seen`. In most backends, this verb is an ordinary READ. A backend that explores every
    /// order of events executes the READ only after the word has changed, unless no other event is possible.
    pub fn watch(&mut self, target: Target, seen: u64) -> BufferOffset {
        let buffer = self.reserve(8);
        self.push(target, VerbKind::Read, (seen, 0), (buffer, 8), Verb::WATCHES);
        buffer
    }

    /// Adds a WRITE of `len_bytes` bytes of the buffer, from the position `buffer` on. The bytes may be any range.
    #[inline]
    pub fn write(&mut self, target: Target, buffer: BufferOffset, len_bytes: usize) {
        assert!(len_bytes <= VERB_BYTES_MAX);
        debug_assert!(buffer.0 as usize + len_bytes <= self.used_bytes);
        self.push(target, VerbKind::Write, (0, 0), (buffer, len_bytes), 0);
    }

    /// Adds a WRITE of bytes that no thread reads at the same time, or whose readers check them (for example a log
    /// entry with its checksum). A READ may return any mixture of the old and new words.
    #[inline]
    pub fn write_private(&mut self, target: Target, buffer: BufferOffset, len_bytes: usize) {
        assert!(len_bytes <= VERB_BYTES_MAX);
        debug_assert!(buffer.0 as usize + len_bytes <= self.used_bytes);
        self.push(target, VerbKind::Write, (0, 0), (buffer, len_bytes), Verb::PRIVATE);
    }

    /// Adds a CAS of the aligned word at `target` from `expected` to `new`.
    #[inline]
    pub fn cas(&mut self, target: Target, expected: u64, new: u64) -> VerbIndex {
        let nowhere = (BufferOffset(0), 8);
        self.push(target, VerbKind::CompareAndSwap, (expected, new), nowhere, 0)
    }

    /// Adds an FAA that adds `addend` to the aligned word at `target`. The sum wraps at 2^64.
    #[inline]
    pub fn faa(&mut self, target: Target, addend: u64) -> VerbIndex {
        let nowhere = (BufferOffset(0), 8);
        self.push(target, VerbKind::FetchAndAdd, (addend, 0), nowhere, 0)
    }

    /// Adds a masked CAS. The masked CAS compares the bits of `compare_mask`, and if they are equal, it replaces the
    /// bits of `swap_mask`.
    pub fn masked_cas(
        &mut self,
        target: Target,
        (expected, compare_mask): (u64, u64),
        (new, swap_mask): (u64, u64),
    ) -> VerbIndex {
        let buffer = self.reserve(16);
        self.set_word(buffer, compare_mask);
        self.set_word(buffer.plus(8), swap_mask);
        self.push(target, VerbKind::MaskedCompareAndSwap, (expected, new), (buffer, 8), 0)
    }

    /// Returns the value that an atomic found in memory. The round must have completed.
    #[inline]
    pub fn found(&self, verb: VerbIndex) -> u64 {
        self.verbs[verb.0 as usize].value
    }

    /// Whether a CAS without masks has changed the word. The round must have completed.
    #[inline]
    pub fn swapped(&self, verb: VerbIndex) -> bool {
        let verb = &self.verbs[verb.0 as usize];
        debug_assert!(verb.kind() == VerbKind::CompareAndSwap);
        verb.value == verb.expected
    }

    /// Returns the whole buffer as bytes.
    #[inline]
    pub fn buffer(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }

    /// Returns `len_bytes` bytes of the buffer, from the position `at` on.
    #[inline]
    pub fn bytes(&self, at: BufferOffset, len_bytes: usize) -> &[u8] {
        &self.buffer()[at.0 as usize..at.0 as usize + len_bytes]
    }

    /// Returns `len_bytes` bytes of the buffer, from the position `at` on, as bytes that the caller may change.
    #[inline]
    pub fn bytes_mut(&mut self, at: BufferOffset, len_bytes: usize) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[at.0 as usize..at.0 as usize + len_bytes]
    }

    /// Returns the word of the buffer at `at`, which is a multiple of 8.
    #[inline]
    pub fn word(&self, at: BufferOffset) -> u64 {
        debug_assert!(at.0.is_multiple_of(8));
        bytemuck::cast_slice::<Line, u64>(&self.lines)[(at.0 / 8) as usize]
    }

    /// Returns `len` words of the buffer, from `at` on. `at` is a multiple of 8.
    #[inline]
    pub fn words(&self, at: BufferOffset, len: usize) -> &[u64] {
        debug_assert!(at.0.is_multiple_of(8));
        let at = (at.0 / 8) as usize;
        &bytemuck::cast_slice::<Line, u64>(&self.lines)[at..at + len]
    }

    /// Returns the same words as [`Round::words`], as words that the caller may change.
    #[inline]
    pub fn words_mut(&mut self, at: BufferOffset, len: usize) -> &mut [u64] {
        self.split_words(at, len).1
    }

    /// Returns all words of the buffer before `at`, and the `len` words from `at` on. The caller may change the words
    /// from `at` on. `at` is a multiple of 8.
    #[inline]
    pub fn split_words(&mut self, at: BufferOffset, len: usize) -> (&[u64], &mut [u64]) {
        debug_assert!(at.0.is_multiple_of(8));
        let words = bytemuck::cast_slice_mut::<Line, u64>(&mut self.lines);
        let (before, after) = words.split_at_mut((at.0 / 8) as usize);
        (before, &mut after[..len])
    }

    /// Sets the word of the buffer at `at`, which is a multiple of 8.
    #[inline]
    pub fn set_word(&mut self, at: BufferOffset, value: u64) {
        debug_assert!(at.0.is_multiple_of(8));
        bytemuck::cast_slice_mut::<Line, u64>(&mut self.lines)[(at.0 / 8) as usize] = value;
    }

    /// Returns the `N` words of the buffer from `at` on. `at` is a multiple of 8.
    #[inline]
    pub fn array<const N: usize>(&self, at: BufferOffset) -> &[u64; N] {
        debug_assert!(at.0.is_multiple_of(8));
        let words = bytemuck::cast_slice::<Line, u64>(&self.lines);
        words[(at.0 / 8) as usize..].first_chunk().expect("a position inside the buffer")
    }

    /// Returns the `N` words of the buffer from `at` on, as words that the caller may change. `at` is a multiple of
    /// 8.
    #[inline]
    pub fn array_mut<const N: usize>(&mut self, at: BufferOffset) -> &mut [u64; N] {
        debug_assert!(at.0.is_multiple_of(8));
        let words = bytemuck::cast_slice_mut::<Line, u64>(&mut self.lines);
        words[(at.0 / 8) as usize..].first_chunk_mut().expect("a position inside the buffer")
    }

    /// Copies `words` aligned words within the buffer, to a position behind these words.
    #[inline]
    pub fn copy_words(&mut self, from: BufferOffset, to: BufferOffset, words: usize) {
        debug_assert!(from.0.is_multiple_of(8) && to.0.is_multiple_of(8));
        let (from, to) = ((from.0 / 8) as usize, (to.0 / 8) as usize);
        let buffer = bytemuck::cast_slice_mut::<Line, u64>(&mut self.lines);
        let (before, after) = buffer.split_at_mut(to);
        let (from, to) = (&before[from..from + words], &mut after[..words]);
        let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<4>(), to.as_chunks_mut::<4>());
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
        for (to, from) in to_rest.iter_mut().zip(from_rest) {
            *to = *from;
        }
    }

    /// Copies `len_bytes` bytes within the buffer. The two ranges may overlap.
    #[inline]
    pub fn copy_within(&mut self, from: BufferOffset, to: BufferOffset, len_bytes: usize) {
        let from = from.0 as usize;
        bytemuck::cast_slice_mut::<Line, u8>(&mut self.lines)
            .copy_within(from..from + len_bytes, to.0 as usize);
    }

    /// Returns the verbs and the buffer as two separate borrows, so that a backend can execute the verbs.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut [Verb], &mut [u64]) {
        (&mut self.verbs, bytemuck::cast_slice_mut(&mut self.lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Address, GroupId, NodeSlot};

    #[test]
    fn the_buffer_outlives_rounds_but_not_transactions() {
        let target = Address::new(GroupId(0), 64).at(NodeSlot(0));
        let mut round = Round::new();
        let first = round.read(target, 64);
        round.set_word(first.plus(8), 7);
        round.begin();
        assert!(round.is_empty());
        let second = round.read(target, 4096);
        assert!(second > first);
        assert_eq!(second.0 % 64, 0);
        assert_eq!(round.word(first.plus(8)), 7);
        assert_eq!(round.bytes(first.plus(8), 8), 7u64.to_ne_bytes());
        round.clear();
        assert_eq!(round.read(target, 64), first);
    }

    #[test]
    fn a_copy_has_the_same_verbs_and_bytes() {
        let target = Address::new(GroupId(0), 64).at(NodeSlot(0));
        let (mut round, mut copy) = (Round::new(), Round::new());
        copy.faa(target, 1);
        let large = round.reserve(5_000);
        round.bytes_mut(large, 5_000).fill(7);
        round.write(target, large, 5_000);
        copy.copy_from(&round);
        assert_eq!((copy.verbs().len(), copy.tally()), (1, round.tally()));
        assert!(copy.verbs()[0].is(VerbKind::Write) && copy.verbs()[0].buffer() == large);
        assert_eq!(copy.bytes(large, 5_000), round.bytes(large, 5_000));
    }

    #[test]
    fn a_fence_binds_the_next_verb_only() {
        let target = Address::new(GroupId(0), 64).at(NodeSlot(0));
        let mut round = Round::new();
        round.cas(target, 0, 1);
        round.fence();
        let at = round.reserve(8);
        round.write(target, at, 8);
        round.faa(target, 1);
        let fenced: Vec<bool> = round.verbs().iter().map(|verb| verb.has(Verb::FENCED)).collect();
        assert_eq!(fenced, [false, true, false]);
    }
}
