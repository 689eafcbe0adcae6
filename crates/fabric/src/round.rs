//! A round: the verbs of one network round trip, and the buffer they read into and write from.
//!
//! Invariant: a round's memory is kept from transaction to transaction. `clear` forgets contents,
//! never capacity, so a coordinator that has warmed up allocates nothing. The bytes of a READ stay
//! where they landed until `clear`: later rounds of the same transaction append, they never move
//! them logically (positions are offsets, not references).
//!
//! Order at the responder, among the verbs of one round to one node (the order of reliable
//! connections; InfiniBand Architecture Specification, vol. 1, §9.5):
//!
//! | first \ second | READ | WRITE | atomic |
//! |---|---|---|---|
//! | READ   | in order | only with [`Round::fence`] | in order |
//! | WRITE  | in order | in order | in order |
//! | atomic | in order | only with [`Round::fence`] | in order |
//!
//! Between verbs to different nodes there is no order, nor between rounds, with one exception. A
//! round may have no waiter, because it was detached or because its future was dropped. The verbs
//! that its port posts later come after that round at each node, as if both were one batch.
//!
//! A READ or WRITE is atomic within an aligned 64-byte line and unordered across lines, with one
//! weakness. Beside verbs of 8 bytes, a READ takes the words of a line one after the other, in
//! ascending order. It may show a change of a later word without an earlier change of an earlier
//! word, never the reverse. Suppose that a writer changes VERSION and then LOCK, which stands
//! before it: a READ that shows the new LOCK shows the new VERSION.
//!
//! Atomics, and WRITEs of a word, are atomic against every access by verbs of that node.

use crate::address::Target;
pub use crate::verb::{Verb, VerbKind, VerbTally};

/// Names a verb of the current round, to ask for its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerbIndex(pub u32);

/// A position in a round's buffer, in bytes; valid until [`Round::clear`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct BufferOffset(pub u32);

impl BufferOffset {
    /// The position `bytes` further on.
    #[inline]
    pub fn plus(self, bytes: usize) -> BufferOffset {
        BufferOffset(self.0 + bytes as u32)
    }
}

/// One aligned line of buffer.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Largest READ or WRITE, in bytes.
pub const VERB_BYTES_MAX: usize = 32 * 1024;

/// The verbs of one round trip and the coordinator's buffer; see the module's text.
pub struct Round {
    verbs: Vec<Verb>,
    tally: VerbTally,
    lines: Vec<Line>,
    used_bytes: usize,
    fence_next: bool,
    hot: bool,
    followed: bool,
    /// Set by the backend while the round is in flight; its meaning is the backend's own.
    pub ticket: u64,
}

impl Default for Round {
    fn default() -> Round {
        Round::new()
    }
}

impl Round {
    /// An empty round with room for a small transaction.
    pub fn new() -> Round {
        Round {
            verbs: Vec::with_capacity(8),
            tally: VerbTally::NONE,
            lines: vec![Line([0; 8]); 16],
            used_bytes: 0,
            fence_next: false,
            hot: false,
            followed: false,
            ticket: 0,
        }
    }

    /// Starts a transaction: forgets verbs and buffer contents.
    #[inline]
    pub fn clear(&mut self) {
        self.used_bytes = 0;
        self.begin();
    }

    /// Starts the next round of the same transaction: forgets verbs, keeps the buffer.
    #[inline]
    pub fn begin(&mut self) {
        self.verbs.clear();
        self.tally = VerbTally::NONE;
        self.fence_next = false;
        self.hot = false;
        self.followed = false;
    }

    /// Becomes a copy of another round, in the memory that it has. It is for a backend that must go
    /// on with a round after its owner has it back.
    pub fn copy_from(&mut self, other: &Round) {
        self.verbs.clone_from(&other.verbs);
        self.tally = other.tally;
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

    /// Returns the counts and bytes of the verbs added since [`Round::begin`].
    #[inline]
    pub fn tally(&self) -> VerbTally {
        self.tally
    }

    /// Whether no verb was added.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.verbs.is_empty()
    }

    /// Hints that the round's lines are warm: a backend whose memory is near may run it at once
    /// instead of letting other coroutines run first, which shortens the time locks are held.
    #[inline]
    pub fn hot(&mut self) {
        self.hot = true;
    }

    /// Promises that another round of this transaction follows before the outcome of this one is
    /// used: its effect need not be visible to others before the effect of that round.
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

    /// The next verb takes effect after all earlier verbs of its batch to the same node.
    #[inline]
    pub fn fence(&mut self) {
        self.fence_next = true;
    }

    /// How much of the buffer is in use.
    #[inline]
    pub fn buffered_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Reserves `bytes` of buffer at a multiple of 8.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> BufferOffset {
        self.reserve_at(self.used_bytes.next_multiple_of(8), bytes)
    }

    /// Reserves `bytes` of buffer at a multiple of 64, for a READ of whole lines.
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

    /// READ of `len_bytes` into fresh buffer, line-aligned. Returns where it will land.
    #[inline(always)]
    pub fn read(&mut self, target: Target, len_bytes: usize) -> BufferOffset {
        let buffer =
            if len_bytes < 64 { self.reserve(len_bytes) } else { self.reserve_lines(len_bytes) };
        self.read_into(target, buffer, len_bytes);
        buffer
    }

    /// READ of `len_bytes` into reserved buffer.
    #[inline]
    pub fn read_into(&mut self, target: Target, buffer: BufferOffset, len_bytes: usize) {
        assert!(len_bytes <= VERB_BYTES_MAX);
        debug_assert!(buffer.0 as usize + len_bytes <= self.used_bytes);
        self.push(target, VerbKind::Read, (0, 0), (buffer, len_bytes), 0);
    }

    /// READ of the aligned word at `target` by a coroutine that polls it, and has nothing to do
    /// while it equals `seen`. It is a READ wherever time passes. Where every order is explored, it
    /// is not executed before the word has changed, unless nothing else can happen.
    pub fn watch(&mut self, target: Target, seen: u64) -> BufferOffset {
        let buffer = self.reserve(8);
        self.push(target, VerbKind::Read, (seen, 0), (buffer, 8), Verb::WATCHES);
        buffer
    }

    /// WRITE of `len_bytes` of the buffer from `buffer` on; any byte range.
    #[inline]
    pub fn write(&mut self, target: Target, buffer: BufferOffset, len_bytes: usize) {
        assert!(len_bytes <= VERB_BYTES_MAX);
        debug_assert!(buffer.0 as usize + len_bytes <= self.used_bytes);
        self.push(target, VerbKind::Write, (0, 0), (buffer, len_bytes), 0);
    }

    /// WRITE of bytes that are not read meanwhile, or whose readers check them (a log entry with
    /// its checksum): a READ may see any mixture of old and new words.
    #[inline]
    pub fn write_private(&mut self, target: Target, buffer: BufferOffset, len_bytes: usize) {
        assert!(len_bytes <= VERB_BYTES_MAX);
        debug_assert!(buffer.0 as usize + len_bytes <= self.used_bytes);
        self.push(target, VerbKind::Write, (0, 0), (buffer, len_bytes), Verb::PRIVATE);
    }

    /// CAS of the aligned word at `target` from `expected` to `new`.
    #[inline]
    pub fn cas(&mut self, target: Target, expected: u64, new: u64) -> VerbIndex {
        let nowhere = (BufferOffset(0), 8);
        self.push(target, VerbKind::CompareAndSwap, (expected, new), nowhere, 0)
    }

    /// FAA of `addend` to the aligned word at `target`, wrapping.
    #[inline]
    pub fn faa(&mut self, target: Target, addend: u64) -> VerbIndex {
        let nowhere = (BufferOffset(0), 8);
        self.push(target, VerbKind::FetchAndAdd, (addend, 0), nowhere, 0)
    }

    /// Masked CAS: compares the bits of `compare_mask`, and if they are equal replaces the bits of
    /// `swap_mask`.
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

    /// The value that an atomic found, once the round has completed.
    #[inline]
    pub fn found(&self, verb: VerbIndex) -> u64 {
        self.verbs[verb.0 as usize].value
    }

    /// Whether a plain CAS swapped, once the round has completed.
    #[inline]
    pub fn swapped(&self, verb: VerbIndex) -> bool {
        let verb = &self.verbs[verb.0 as usize];
        debug_assert!(verb.kind() == VerbKind::CompareAndSwap);
        verb.value == verb.expected
    }

    /// The buffer as bytes.
    #[inline]
    pub fn buffer(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }

    /// `len_bytes` of the buffer.
    #[inline]
    pub fn bytes(&self, at: BufferOffset, len_bytes: usize) -> &[u8] {
        &self.buffer()[at.0 as usize..at.0 as usize + len_bytes]
    }

    /// `len_bytes` of the buffer, to change.
    #[inline]
    pub fn bytes_mut(&mut self, at: BufferOffset, len_bytes: usize) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[at.0 as usize..at.0 as usize + len_bytes]
    }

    /// The word at `at`, a multiple of 8.
    #[inline]
    pub fn word(&self, at: BufferOffset) -> u64 {
        debug_assert!(at.0.is_multiple_of(8));
        bytemuck::cast_slice::<Line, u64>(&self.lines)[(at.0 / 8) as usize]
    }

    /// `len` words from `at`, a multiple of 8, on.
    #[inline]
    pub fn words(&self, at: BufferOffset, len: usize) -> &[u64] {
        debug_assert!(at.0.is_multiple_of(8));
        let at = (at.0 / 8) as usize;
        &bytemuck::cast_slice::<Line, u64>(&self.lines)[at..at + len]
    }

    /// Like [`Round::words`], to change.
    #[inline]
    pub fn words_mut(&mut self, at: BufferOffset, len: usize) -> &mut [u64] {
        self.split_words(at, len).1
    }

    /// The words before `at`, a multiple of 8, and the `len` from there on, to change.
    #[inline]
    pub fn split_words(&mut self, at: BufferOffset, len: usize) -> (&[u64], &mut [u64]) {
        debug_assert!(at.0.is_multiple_of(8));
        let words = bytemuck::cast_slice_mut::<Line, u64>(&mut self.lines);
        let (before, after) = words.split_at_mut((at.0 / 8) as usize);
        (before, &mut after[..len])
    }

    /// Sets the word at `at`, a multiple of 8.
    #[inline]
    pub fn set_word(&mut self, at: BufferOffset, value: u64) {
        debug_assert!(at.0.is_multiple_of(8));
        bytemuck::cast_slice_mut::<Line, u64>(&mut self.lines)[(at.0 / 8) as usize] = value;
    }

    /// The `N` words from `at`, a multiple of 8, on.
    #[inline]
    pub fn array<const N: usize>(&self, at: BufferOffset) -> &[u64; N] {
        debug_assert!(at.0.is_multiple_of(8));
        let words = bytemuck::cast_slice::<Line, u64>(&self.lines);
        words[(at.0 / 8) as usize..].first_chunk().expect("a position inside the buffer")
    }

    /// The `N` words from `at`, a multiple of 8, on, to change.
    #[inline]
    pub fn array_mut<const N: usize>(&mut self, at: BufferOffset) -> &mut [u64; N] {
        debug_assert!(at.0.is_multiple_of(8));
        let words = bytemuck::cast_slice_mut::<Line, u64>(&mut self.lines);
        words[(at.0 / 8) as usize..].first_chunk_mut().expect("a position inside the buffer")
    }

    /// Copies `words` aligned words within the buffer to a place behind them.
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

    /// Copies `len_bytes` within the buffer; the ranges may overlap.
    #[inline]
    pub fn copy_within(&mut self, from: BufferOffset, to: BufferOffset, len_bytes: usize) {
        let from = from.0 as usize;
        bytemuck::cast_slice_mut::<Line, u8>(&mut self.lines)
            .copy_within(from..from + len_bytes, to.0 as usize);
    }

    /// Returns verbs and buffer apart, for a backend to execute them.
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
