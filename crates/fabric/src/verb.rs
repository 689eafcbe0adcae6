//! A verb, and the counts and bytes of a round's verbs.
//!
//! Invariant: a verb has 32 bytes, and its shape is one word. A round updates its tally with each added verb. So the
//! cost of counting a posted round does not depend on the number of its verbs.

use crate::address::Target;
use crate::round::{BufferOffset, VERB_BYTES_MAX};

/// The kind of a verb. The kinds have the same order as [`crate::counters::VERB_NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum VerbKind {
    /// The verb copies remote bytes into the round's buffer.
    Read = 0,
    /// The verb copies bytes of the round's buffer to remote memory.
    Write = 1,
    /// The verb is a compare-and-swap of an aligned word.
    CompareAndSwap = 2,
    /// The verb is a fetch-and-add to an aligned word.
    FetchAndAdd = 3,
    /// The verb is a compare-and-swap with masks (an extended atomic).
    MaskedCompareAndSwap = 4,
}

/// One verb of a round. A verb has 32 bytes, so that two verbs fill a cache line.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Verb {
    /// The remote address of the verb, and the node that executes the verb.
    pub target: Target,
    /// For a CAS, the expected value. For an FAA, the addend. For a READ of a watched word, the value that means that
    /// the word has not changed.
    pub expected: u64,
    /// For a CAS that is not complete, the new value. After any atomic has completed, the value that it found in
    /// memory.
    pub value: u64,
    /// The buffer position (32 bits), the length (16), the kind (8) and the flags (8), stored in one word. If they
    /// were separate fields, a processor that loads several of them in one access directly after separate stores
    /// would wait for these stores.
    shape: u64,
}

impl Verb {
    /// The length of a table that has an entry for each number of a kind.
    pub const KINDS_MAX: usize = 8;
    /// A flag: the verb takes effect after all earlier verbs of its batch.
    pub const FENCED: u8 = 1;
    /// A flag of a WRITE: no reader needs the lines of this WRITE to be atomic.
    pub const PRIVATE: u8 = 2;
    /// A flag of a READ of one word: a coroutine polls the word, and has nothing to do while the word equals
    /// `expected`.
    pub const WATCHES: u8 = 4;
    /// A flag: the verb needs no doorbell of its own ([`crate::round::Round::join_doorbells`]).
    pub const JOINED: u8 = 8;

    #[inline(always)]
    pub(crate) fn new(
        target: Target,
        kind: VerbKind,
        (expected, value): (u64, u64),
        (buffer, len_bytes): (BufferOffset, usize),
    ) -> Verb {
        debug_assert!(len_bytes <= VERB_BYTES_MAX);
        let shape = u64::from(buffer.0) | ((len_bytes as u64) << 32) | ((kind as u64) << 48);
        Verb { target, expected, value, shape }
    }

    /// For a READ or WRITE, the position of its bytes in the round's buffer. For a masked CAS, the position of its
    /// two masks.
    #[inline(always)]
    pub fn buffer(&self) -> BufferOffset {
        BufferOffset(self.shape as u32)
    }

    /// Returns the same verb with another buffer position. A backend that keeps a verb's bytes in its own buffer uses
    /// this function.
    #[must_use]
    pub fn moved_to(mut self, buffer: BufferOffset) -> Verb {
        self.shape = self.shape >> 32 << 32 | u64::from(buffer.0);
        self
    }

    /// For a READ or WRITE, the number of its bytes. For an atomic, the number is 8.
    #[inline(always)]
    pub fn len_bytes(&self) -> usize {
        usize::from((self.shape >> 32) as u16)
    }

    /// Returns the verb's kind.
    #[inline(always)]
    pub fn kind(&self) -> VerbKind {
        match (self.shape >> 48) as u8 {
            0 => VerbKind::Read,
            1 => VerbKind::Write,
            2 => VerbKind::CompareAndSwap,
            3 => VerbKind::FetchAndAdd,
            _ => VerbKind::MaskedCompareAndSwap,
        }
    }

    /// Returns the number of the verb's kind. The number is below [`Verb::KINDS_MAX`], and the compiler knows this. So
    /// an access to a table of kinds needs no check.
    #[inline(always)]
    pub fn kind_number(&self) -> usize {
        (self.shape >> 48) as usize % Verb::KINDS_MAX
    }

    /// Returns whether the verb is of this kind. `is` is cheaper than [`Verb::kind`].
    #[inline(always)]
    pub fn is(&self, kind: VerbKind) -> bool {
        (self.shape >> 48) as u8 == kind as u8
    }

    /// Returns whether the verb is a READ without any flag. READs without flags are the most frequent verbs, and one
    /// comparison recognises them.
    #[inline(always)]
    pub fn is_plain_read(&self) -> bool {
        const { assert!(VerbKind::Read as u8 == 0) };
        self.shape >> 48 == 0
    }

    /// Whether the verb has this flag.
    #[inline(always)]
    pub fn has(&self, flag: u8) -> bool {
        self.shape >> 56 & u64::from(flag) != 0
    }

    /// Adds the flag [`Verb::JOINED`].
    pub(crate) fn join(&mut self) {
        *self = self.with(Verb::JOINED);
    }

    #[inline(always)]
    pub(crate) fn with(mut self, flag: u8) -> Verb {
        self.shape |= u64::from(flag) << 56;
        self
    }
}

impl std::fmt::Debug for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, len, at) = (self.kind(), self.len_bytes(), self.buffer().0);
        write!(f, "{kind:?} {:?} {len} B, buffer {at}", self.target)
    }
}

const _: () = assert!(size_of::<Verb>() == 32);

/// The numbers of a round's verbs of each kind, and the numbers of bytes of its READs and WRITEs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VerbTally {
    /// The number of READs in the upper bits, and the number of their bytes in the lower bits. So counting a verb
    /// takes one addition.
    reads: u64,
    writes: u64,
    /// The numbers of CAS, FAA and masked CAS.
    atomics: [u32; 3],
}

/// The number of bits for the bytes in a word of a tally. A round has fewer than 2^40 bytes, and fewer than 2^24
/// verbs of one kind.
const TALLY_BYTES_BITS: u32 = 40;

impl VerbTally {
    /// The tally of a round without verbs.
    pub(crate) const NONE: VerbTally = VerbTally { reads: 0, writes: 0, atomics: [0; 3] };

    /// Adds one more verb to the tally. The verb's kind and length are arguments, because the caller knows them when
    /// it adds the verb.
    #[inline(always)]
    pub(crate) fn add(&mut self, kind: VerbKind, len_bytes: usize) {
        let one = (1 << TALLY_BYTES_BITS) + len_bytes as u64;
        match kind {
            VerbKind::Read => self.reads += one,
            VerbKind::Write => self.writes += one,
            VerbKind::CompareAndSwap => self.atomics[0] += 1,
            VerbKind::FetchAndAdd => self.atomics[1] += 1,
            VerbKind::MaskedCompareAndSwap => self.atomics[2] += 1,
        }
    }

    /// Returns the number of READs, and the number of bytes that they return.
    #[inline]
    pub fn reads(&self) -> (u64, u64) {
        (self.reads >> TALLY_BYTES_BITS, self.reads & ((1 << TALLY_BYTES_BITS) - 1))
    }

    /// Returns the number of WRITEs, and the number of bytes that they write.
    #[inline]
    pub fn writes(&self) -> (u64, u64) {
        (self.writes >> TALLY_BYTES_BITS, self.writes & ((1 << TALLY_BYTES_BITS) - 1))
    }

    /// Returns the numbers of CAS, FAA and masked CAS.
    #[inline]
    pub fn atomics(&self) -> [u32; 3] {
        self.atomics
    }
}
