//! A verb, and the counts and bytes of a round's verbs.
//!
//! Invariant: a verb is 32 bytes and its shape one word. A round's tally is kept while its verbs are
//! added, so that counting a round costs the same whatever it holds.

use crate::address::Target;
use crate::round::{BufferOffset, VERB_BYTES_MAX};

/// A verb's kind; the numbers are the order of [`crate::counters::VERB_NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum VerbKind {
    /// Copies remote bytes into the round's buffer.
    Read = 0,
    /// Copies bytes of the round's buffer to remote memory.
    Write = 1,
    /// Compare-and-swap of an aligned word.
    CompareAndSwap = 2,
    /// Fetch-and-add to an aligned word.
    FetchAndAdd = 3,
    /// Compare-and-swap under masks (extended atomics).
    MaskedCompareAndSwap = 4,
}

/// One verb. 32 bytes, so that a batch of two fills a line.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Verb {
    /// The place that it goes to.
    pub target: Target,
    /// CAS: the expected value. FAA: the addend. READ that watches: the value that means "no news".
    pub expected: u64,
    /// CAS: the new value; after completion of any atomic, the value found.
    pub value: u64,
    /// Buffer position (32 bits), length (16), kind (8), flags (8). They are one word, because a
    /// processor that loads several fields just after they were stored one by one has to wait for
    /// the stores.
    shape: u64,
}

impl Verb {
    /// This verb waits for all earlier verbs of its batch.
    pub const FENCED: u8 = 1;
    /// WRITE: no reader relies on seeing one of its lines whole.
    pub const PRIVATE: u8 = 2;
    /// READ of a word by a coroutine that polls it, and has nothing to do while it equals
    /// `expected`.
    pub const WATCHES: u8 = 4;

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

    /// READ, WRITE: position in the round's buffer. Masked CAS: position of its two masks.
    #[inline(always)]
    pub fn buffer(&self) -> BufferOffset {
        BufferOffset(self.shape as u32)
    }

    /// The same verb with its bytes at another position: a backend keeps them in a buffer of its own.
    #[must_use]
    pub fn moved_to(mut self, buffer: BufferOffset) -> Verb {
        self.shape = self.shape >> 32 << 32 | u64::from(buffer.0);
        self
    }

    /// READ, WRITE: bytes; 8 for atomics.
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

    /// Returns whether it is of this kind; cheaper than [`Verb::kind`].
    #[inline(always)]
    pub fn is(&self, kind: VerbKind) -> bool {
        (self.shape >> 48) as u8 == kind as u8
    }

    /// Returns whether it is a READ without any flag: the commonest verb, recognised by one
    /// comparison.
    #[inline(always)]
    pub fn is_plain_read(&self) -> bool {
        const { assert!(VerbKind::Read as u8 == 0) };
        self.shape >> 48 == 0
    }

    /// Whether a flag is set.
    #[inline(always)]
    pub fn has(&self, flag: u8) -> bool {
        self.shape >> 56 & u64::from(flag) != 0
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

/// The sum of a round's verbs: how many of each kind, and the bytes of READs and WRITEs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VerbTally {
    /// The count in the upper bits, the bytes below: one addition a verb.
    reads: u64,
    writes: u64,
    /// CAS, FAA, masked CAS.
    atomics: [u32; 3],
}

/// Bits for the bytes of a tally: a round has fewer than 2^40 bytes, and fewer than 2^24 verbs of a
/// kind.
const TALLY_BYTES_BITS: u32 = 40;

impl VerbTally {
    /// The tally of no verb.
    pub(crate) const NONE: VerbTally = VerbTally { reads: 0, writes: 0, atomics: [0; 3] };

    /// Counts one more verb. Its kind and length are arguments, because they are known where it is
    /// added.
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

    /// READs, and the bytes that they bring.
    #[inline]
    pub fn reads(&self) -> (u64, u64) {
        (self.reads >> TALLY_BYTES_BITS, self.reads & ((1 << TALLY_BYTES_BITS) - 1))
    }

    /// WRITEs, and the bytes that they carry.
    #[inline]
    pub fn writes(&self) -> (u64, u64) {
        (self.writes >> TALLY_BYTES_BITS, self.writes & ((1 << TALLY_BYTES_BITS) - 1))
    }

    /// CAS, FAA and masked CAS.
    #[inline]
    pub fn atomics(&self) -> [u32; 3] {
        self.atomics
    }
}
