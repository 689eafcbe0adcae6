//! The log that a coordinator writes together with its data, so that another thread or node can finish or undo the
//! coordinator's transaction.
//!
//! ```text
//! an entry, at the beginning of its coordinator's area
//! 0   TAG u64 | 8  CHECKSUM u64 | 16  its protocol's u64 | 24  BYTES 63, CHAINED 1 | 32  … its protocol's
//! ```
//! Invariant: an entry with a wrong checksum is invalid. The area is reused only when its contents are no longer
//! needed. The head and the checksum of an entry have the same form in every protocol. So recovery can read an area
//! without knowing the protocol that wrote the entry (`steps::settle::logs` of the engine). The words behind an
//! entry's head have a form that the protocol defines ([`Entry`]). [`undo`] defines the entry of old bytes, [`redo`]
//! the entry of new bytes, and [`versions`] the entry of versions. [`pieces`] defines how an entry stores bytes
//! together with their address. [`blocks`] defines the heap blocks that contain the rest of an entry that is longer
//! than its area.

pub mod blocks;
pub mod pieces;
pub mod redo;
pub mod undo;
pub mod versions;

use crate::ids::OwnerTag;
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};

/// A mark in the first word of an entry, beside the tag. The mark says that a thread is undoing the transaction, and
/// that this thread may die before it has finished. In an entry of new bytes, the mark says that a thread is
/// finishing the transaction instead of undoing it. If a memory node failed, the LOCK word of a record there was
/// lost. Without the mark, such a record would look like a record whose lock was released, because either record has
/// a VERSION beyond the entry's version (docs/design/0013-memory-node-recovery.md). Without the mark, locks that
/// recovery has released would also look like locks that the transaction had released.
pub const SETTLING: u64 = 1 << 62;

/// A mark in the word BYTES of an entry. The mark says that the entry is longer than its area ([`blocks`]).
const CHAINED: u64 = 1 << 63;
/// The number of bytes of an entry's head.
pub const LOG_HEADER_BYTES: usize = 32;
/// The positions of the words of an entry's head.
const TAG: usize = 0;
const CHECKSUM: usize = 1;
/// The position of the word in an entry's head that the protocol may use as it likes.
const OWN: usize = 2;
const BYTES: usize = 3;
/// The position of the first word that the checksum of an entry covers.
const COVERED_FROM: usize = OWN;

const _: () = assert!((BYTES + 1) * 8 == LOG_HEADER_BYTES);

/// A protocol's log entry for one transaction, as recovery reads it.
pub trait Entry: Sized {
    /// Decodes the entry at `at` in the buffer. The buffer contains `available` bytes of the entry's area. Returns
    /// `None` if there is no entry or if the entry is torn.
    fn decode(round: &Round, at: BufferOffset, available: usize) -> Option<Self>;

    /// The transaction that wrote the entry.
    fn tag(&self) -> OwnerTag;

    /// The addresses of the first words of the records that the entry names.
    fn records(&self) -> Vec<Address>;
}

/// The length of an entry whose first [`LOG_HEADER_BYTES`] bytes are at `head`.
pub fn announced_bytes(round: &Round, head: BufferOffset) -> usize {
    (round.word(head.plus(BYTES * 8)) & !CHAINED) as usize
}

/// Whether the entry at `head` is longer than its log area.
pub fn is_chained(round: &Round, head: BufferOffset) -> bool {
    round.word(head.plus(BYTES * 8)) & CHAINED != 0
}

/// Completes an entry whose protocol words are already written: writes the entry's head.
#[inline]
fn seal(entry: &mut [u64], tag: OwnerTag, own: u64) {
    entry[OWN] = own;
    entry[BYTES] = entry.len() as u64 * 8;
    entry[TAG] = tag.word();
    entry[CHECKSUM] = checksum(tag, &entry[COVERED_FROM..]);
}

/// Writes the head of a complete entry again, and marks the entry as longer than its area.
pub fn seal_chained(entry: &mut [u64], tag: OwnerTag) {
    entry[BYTES] |= CHAINED;
    entry[CHECKSUM] = checksum(tag, &entry[COVERED_FROM..]);
}

/// Returns the words of the complete entry at `at`, and the tag of the transaction that wrote the entry. The buffer
/// contains `available` bytes of the entry's area.
fn whole(round: &Round, at: BufferOffset, available: usize) -> Option<(OwnerTag, &[u64])> {
    if available < LOG_HEADER_BYTES {
        return None;
    }
    let len = announced_bytes(round, at);
    if len < LOG_HEADER_BYTES || len > available || !len.is_multiple_of(8) {
        return None;
    }
    let words = round.words(at, len / 8);
    let tag = OwnerTag::from_word(words[TAG])?;
    (checksum(tag, &words[COVERED_FROM..]) == words[CHECKSUM]).then_some((tag, words))
}

/// The checksum of an entry. The seed of the checksum is the tag, so that a copy of the words under another tag is
/// invalid. The function mixes in two words at a time by a full multiplication, and combines the two halves of the
/// product. A torn entry has a correct checksum with a probability of about 1 in 2^63.
#[inline]
fn checksum(tag: OwnerTag, words: &[u64]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    const OTHER: u64 = 0xd1b5_4a32_d192_ed03;
    let fold = |sum: u64, one: u64, other: u64| {
        let product = u128::from(sum ^ one ^ ODD) * u128::from(other ^ OTHER);
        sum.rotate_left(23) ^ product as u64 ^ (product >> 64) as u64
    };
    let (pairs, last) = words.as_chunks::<2>();
    let sum = pairs.iter().fold(tag.word(), |sum, &[one, other]| fold(sum, one, other));
    last.iter().fold(sum, |sum, &word| fold(sum, word, ODD))
}
