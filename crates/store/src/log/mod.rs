//! The log that a coordinator writes beside its data, so that another thread or node can finish or undo its
//! transaction.
//!
//! ```text
//! an entry, at the beginning of its coordinator's area
//! 0   TAG u64 | 8  CHECKSUM u64 | 16  its protocol's u64 | 24  BYTES 63, CHAINED 1 | 32  … its protocol's
//! ```
//! Invariants: an entry with a wrong checksum is no entry. The area is used again only when its contents are
//! needed no more. Head and checksum are the same for every protocol, so that areas are read without knowing
//! whose they are (`recovery::logs` of the engine). The words behind the head are an [`Entry`] of the
//! protocol's own. [`undo`] is the entry of old bytes, [`redo`] that of new ones, [`versions`] that of
//! versions. [`pieces`] says how bytes with their address are written. An entry that is longer than its area
//! goes on elsewhere: [`blocks`].

pub mod blocks;
pub mod pieces;
pub mod redo;
pub mod undo;
pub mod versions;

use crate::ids::OwnerTag;
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};

/// A mark in the first word of an entry, beside the tag. It says that the transaction is being undone, or
/// finished where entries are of new bytes, by a thread that may die on the way. Without it a record whose
/// LOCK died with its node could not be told from one that was released: its VERSION is beyond the entry's in
/// both cases (docs/design/0013-memory-node-recovery.md). Nor could locks that recovery has released be told
/// from those that the transaction had released.
pub const SETTLING: u64 = 1 << 62;

/// A mark in BYTES: the entry is longer than its area ([`blocks`]).
const CHAINED: u64 = 1 << 63;
/// Bytes of an entry's head.
pub const LOG_HEADER_BYTES: usize = 32;
/// The positions of the head's words.
const TAG: usize = 0;
const CHECKSUM: usize = 1;
/// The position of the head's word that belongs to the protocol.
const OWN: usize = 2;
const BYTES: usize = 3;
/// The checksum covers the words from here on.
const COVERED_FROM: usize = OWN;

const _: () = assert!((BYTES + 1) * 8 == LOG_HEADER_BYTES);

/// A protocol's log entry of a transaction, as recovery reads it.
pub trait Entry: Sized {
    /// Decodes the entry at `at` in the buffer, of which `available` bytes were read. Returns `None` if there
    /// is no entry or it is torn.
    fn decode(round: &Round, at: BufferOffset, available: usize) -> Option<Self>;

    /// The transaction that wrote the entry.
    fn tag(&self) -> OwnerTag;

    /// The addresses of the first words of the records that the entry names.
    fn records(&self) -> Vec<Address>;
}

/// Length of an entry whose first words, [`LOG_HEADER_BYTES`], are at `head`.
pub fn announced_bytes(round: &Round, head: BufferOffset) -> usize {
    (round.word(head.plus(BYTES * 8)) & !CHAINED) as usize
}

/// Whether the entry at `head` is longer than its area.
pub fn is_chained(round: &Round, head: BufferOffset) -> bool {
    round.word(head.plus(BYTES * 8)) & CHAINED != 0
}

/// Completes an entry whose own words are written: fills in its head.
#[inline]
fn seal(entry: &mut [u64], tag: OwnerTag, own: u64) {
    entry[OWN] = own;
    entry[BYTES] = entry.len() as u64 * 8;
    entry[TAG] = tag.word();
    entry[CHECKSUM] = checksum(tag, &entry[COVERED_FROM..]);
}

/// Completes a whole entry anew, as one that is longer than its area.
pub fn seal_chained(entry: &mut [u64], tag: OwnerTag) {
    entry[BYTES] |= CHAINED;
    entry[CHECKSUM] = checksum(tag, &entry[COVERED_FROM..]);
}

/// The words of a whole entry at `at`, of which `available` bytes were read, and the transaction that wrote
/// it.
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

/// The checksum of an entry. The tag is its seed: an entry under another tag is no entry. Two words at a time
/// are folded in by a full multiplication, whose halves are joined. A torn entry passes once in about 2^63
/// times.
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
