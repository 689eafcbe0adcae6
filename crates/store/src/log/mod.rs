//! The log that a coordinator writes together with its data, so that another thread or node can finish or undo its
//! transaction.
//!
//! ```text
//! an entry, at the beginning of its coordinator's area
//! 0   TAG u64 | 8  CHECKSUM u64 | 16  its protocol's u64 | 24  BYTES 63, CHAINED 1 | 32  … its protocol's
//! ```
//! Invariant: an entry with a wrong checksum is invalid. The area is reused only when its contents are no longer
//! needed. Head and checksum are the same for every protocol, so that areas can be read without knowing the
//! protocol that wrote them (`steps::settle::logs` of the engine). The words behind the head are the protocol's own
//! [`Entry`]. [`undo`] is the entry of old bytes, [`redo`] the entry of new bytes, [`versions`] the entry of
//! versions. [`pieces`] defines how bytes are written with their address. [`blocks`] contain the rest of an entry
//! that is longer than its area.

pub mod blocks;
pub mod pieces;
pub mod redo;
pub mod undo;
pub mod versions;

use crate::ids::OwnerTag;
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};

/// A mark in the first word of an entry, beside the tag. The mark says that a thread, which may die before it is
/// done, is undoing the transaction. For entries of new bytes, the mark says that the thread is finishing the
/// transaction. Without the mark, a record whose LOCK was lost with its node would look like a record that was
/// released. In both cases the record's VERSION is beyond the entry's version
/// (docs/design/0013-memory-node-recovery.md). Also, locks that recovery has released would look like locks that
/// the transaction had released.
pub const SETTLING: u64 = 1 << 62;

/// A mark in BYTES. The mark says that the entry is longer than its area ([`blocks`]).
const CHAINED: u64 = 1 << 63;
/// The number of bytes of an entry's head.
pub const LOG_HEADER_BYTES: usize = 32;
/// The positions of the head's words.
const TAG: usize = 0;
const CHECKSUM: usize = 1;
/// The position of the head's word that belongs to the protocol.
const OWN: usize = 2;
const BYTES: usize = 3;
/// The position of the first word that the checksum covers.
const COVERED_FROM: usize = OWN;

const _: () = assert!((BYTES + 1) * 8 == LOG_HEADER_BYTES);

/// A protocol's log entry for one transaction, as recovery reads it.
pub trait Entry: Sized {
    /// Decodes the entry at `at` in the buffer, of which `available` bytes were read. Returns `None` if there is no
    /// entry or if the entry is torn.
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

/// Whether the entry at `head` is longer than its area.
pub fn is_chained(round: &Round, head: BufferOffset) -> bool {
    round.word(head.plus(BYTES * 8)) & CHAINED != 0
}

/// Completes an entry whose protocol words are already written: writes its head.
#[inline]
fn seal(entry: &mut [u64], tag: OwnerTag, own: u64) {
    entry[OWN] = own;
    entry[BYTES] = entry.len() as u64 * 8;
    entry[TAG] = tag.word();
    entry[CHECKSUM] = checksum(tag, &entry[COVERED_FROM..]);
}

/// Completes a whole entry again, as an entry that is longer than its area.
pub fn seal_chained(entry: &mut [u64], tag: OwnerTag) {
    entry[BYTES] |= CHAINED;
    entry[CHECKSUM] = checksum(tag, &entry[COVERED_FROM..]);
}

/// The words of a whole entry at `at`, of which `available` bytes were read, and the tag of the transaction that
/// wrote the entry.
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

/// The checksum of an entry. Its seed is the tag, so that a copy under another tag is invalid. Two words at a time
/// are mixed in by a full multiplication, whose halves are combined. A torn entry has a correct checksum with a
/// probability of about 1 in 2^63.
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
