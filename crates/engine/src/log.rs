//! Undo images: what a coordinator writes beside its data, so that somebody else can finish or undo
//! the transaction.
//!
//! ```text
//! 0   TAG u64 | 8  CHECKSUM u64 | 16  RECORDS u32, PIECES u32 | 24  BYTES u64
//! 32  RECORDS × { LOCK address u64 | old VERSION u64 | new VERSION u64 }   (equal: only held)
//! …   PIECES  × { address u64 | length u64 | old bytes, padded to 8 }
//! ```
//! Invariants: an entry with a wrong checksum is no entry; at a node, the entry precedes the data
//! in the same batch, and a WRITE precedes whatever follows it in its batch, so wherever new data
//! are, the entry is. That is why no round of its own is needed
//! (docs/design/0004-fused-undo-log.md). The area is used again only when the locks of its last
//! transaction have been released.

use crate::layout::Version;
use crate::owner::OwnerTag;
use crate::working_set::{Lock, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};

/// In the first word of an entry, beside the tag: its transaction is being undone, by somebody who may
/// die on the way. Without it a record whose LOCK died with its node could not be told from one that was
/// released: its VERSION is beyond the entry's in both cases (docs/design/0013-memory-node-recovery.md).
pub const UNDOING: u64 = 1 << 62;

/// Bytes before the records.
pub const LOG_HEADER_BYTES: usize = 32;
const RECORD_BYTES: usize = 24;
const PIECE_HEADER_BYTES: usize = 16;
const VERSION_BYTES: usize = 8;
/// Words before what the checksum covers.
const COVERED_FROM: usize = 2;

/// Length of the transaction's entry.
pub fn encoded_bytes(txn: &Txn) -> usize {
    let records = txn.locks.len() * RECORD_BYTES;
    let piece = |bytes: u32| PIECE_HEADER_BYTES + (bytes as usize).next_multiple_of(8);
    let logged = txn.pieces.iter().filter(|each| each.logged);
    let pieces: usize = logged.map(|each| piece(each.len_bytes)).sum();
    LOG_HEADER_BYTES + records + pieces
}

/// Length of an entry whose first words, [`LOG_HEADER_BYTES`], are at `head`.
pub fn announced_bytes(round: &Round, head: BufferOffset) -> usize {
    round.word(head.plus(24)) as usize
}

/// Writes the transaction's entry into its buffer; returns where, and its length.
pub fn encode(txn: &mut Txn) -> (BufferOffset, usize) {
    let len = encoded_bytes(txn);
    let Txn { tag, round, locks, pieces, .. } = txn;
    let old = pieces.iter().filter(|piece| piece.logged).map(|piece| OldBytes {
        address: piece.address,
        at: piece.old,
        len_bytes: piece.len_bytes as usize,
    });
    (write_entry(round, *tag, locks, old, len), len)
}

/// A piece as its entry needs it.
#[derive(Clone, Copy, Debug)]
pub struct OldBytes {
    /// Where the piece will be written.
    pub address: Address,
    /// What is there so far, in the round's buffer.
    pub at: BufferOffset,
    /// How much.
    pub len_bytes: usize,
}

/// Length of an entry with so many records and pieces, whose old bytes, each padded to 8, add up to
/// `old_bytes`.
#[inline]
pub fn entry_bytes(records: usize, pieces: usize, old_bytes: usize) -> usize {
    LOG_HEADER_BYTES + records * RECORD_BYTES + pieces * PIECE_HEADER_BYTES + old_bytes
}

/// Writes an entry of `len` bytes ([`entry_bytes`]) into the buffer, behind the old bytes; returns
/// where.
///
/// # Panics
/// If the pieces need more room: our bug.
#[inline]
pub fn write_entry(
    round: &mut Round,
    tag: OwnerTag,
    locks: &[Lock],
    pieces: impl Iterator<Item = OldBytes>,
    len: usize,
) -> BufferOffset {
    let start = round.reserve_lines(len);
    let (before, entry) = round.split_words(start, len / 8);
    let (records, mut rest) =
        entry[LOG_HEADER_BYTES / 8..].split_at_mut(locks.len() * RECORD_BYTES / 8);
    for (record, lock) in records.as_chunks_mut::<3>().0.iter_mut().zip(locks) {
        *record = [lock.address.to_word(), lock.old_version.word(), lock.new_version.word()];
    }
    let mut logged = 0u64;
    for piece in pieces {
        logged += 1;
        let (head, after) = rest.split_at_mut(2 + piece.len_bytes.div_ceil(8));
        (head[0], head[1]) = (piece.address.to_word(), piece.len_bytes as u64);
        copy_old(before, piece.at, &mut head[2..]);
        rest = after;
    }
    entry[2] = locks.len() as u64 | (logged << 32);
    entry[3] = len as u64;
    entry[0] = tag.word();
    entry[1] = checksum(tag, &entry[COVERED_FROM..]);
    start
}

/// Copies whole words from position `at` on, any byte: what lies behind the old bytes is copied
/// too, and means nothing.
#[inline]
fn copy_old(buffer: &[u64], at: BufferOffset, old: &mut [u64]) {
    let (first, shift) = (at.0 as usize / 8, at.0 % 8 * 8);
    if shift == 0 {
        let from = &buffer[first..first + old.len()];
        let ((to, to_rest), (from, from_rest)) = (old.as_chunks_mut::<4>(), from.as_chunks::<4>());
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
        for (to, from) in to_rest.iter_mut().zip(from_rest) {
            *to = *from;
        }
        return;
    }
    for (index, to) in old.iter_mut().enumerate() {
        let next = buffer.get(first + index + 1).copied().unwrap_or(0);
        *to = (buffer[first + index] >> shift) | (next << (64 - shift));
    }
}

/// Seeded by the tag: an entry under another tag is no entry. Two words at a time are folded in by a
/// full multiplication, whose halves are joined; a torn entry passes once in about 2^63 times.
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

/// A record that a logged transaction changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedRecord {
    /// Its LOCK word.
    pub address: Address,
    /// VERSION before.
    pub old_version: Version,
    /// VERSION after.
    pub new_version: Version,
}

impl LoggedRecord {
    /// VERSION once the transaction was undone; `piece_bytes` is the length of the piece that VERSION
    /// begins. An update, and a directory or header (whose piece is VERSION alone), count on beyond what
    /// anybody may have seen of the transaction. A record that came or went has its old VERSION back:
    /// nobody takes its bytes for a record while it is locked, and those of one that goes never
    /// changed. Nor, in a slot that lies in one line, for that of the record whose slot another took in a
    /// split; an update counts one on, whoever takes a slot more. So a record that a split was moving has
    /// the version that its readers know (docs/design/0003-single-version-layout.md).
    pub fn restored_version(&self, piece_bytes: usize) -> Version {
        let went = self.old_version.is_present() && !self.new_version.is_present();
        let came = !self.old_version.is_present() && piece_bytes > VERSION_BYTES;
        let is_jump = self.new_version.counter() > self.old_version.counter() + 1;
        let taken = self.old_version.is_present() && is_jump && piece_bytes > VERSION_BYTES;
        match went || came || taken {
            true => self.old_version,
            false => self.new_version.present_after(Version::NEVER),
        }
    }
}

/// Bytes as they were before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedPiece {
    /// Where.
    pub address: Address,
    /// What was there.
    pub old: Vec<u8>,
}

/// A transaction's entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Who wrote it.
    pub tag: OwnerTag,
    /// What it changed.
    pub records: Vec<LoggedRecord>,
    /// What to write back.
    pub pieces: Vec<LoggedPiece>,
}

/// The entry at `at` in the buffer, of which `available` bytes were read; `None` if there is none
/// or it is torn.
pub fn decode(round: &Round, at: BufferOffset, available: usize) -> Option<LogEntry> {
    let bytes = round.bytes(at, available);
    let word = |offset: usize| -> Option<u64> {
        let chunk = bytes.get(offset..offset + 8)?;
        Some(u64::from_le_bytes(chunk.try_into().ok()?))
    };
    let tag = OwnerTag::from_word(word(0)?)?;
    let (sum, len) = (word(8)?, word(24)? as usize);
    let (records, pieces) = (word(16)? as u32, (word(16)? >> 32) as u32);
    if len < LOG_HEADER_BYTES || len > available || !len.is_multiple_of(8) {
        return None;
    }
    if checksum(tag, &round.words(at, len / 8)[COVERED_FROM..]) != sum {
        return None;
    }
    let mut offset = LOG_HEADER_BYTES;
    let mut entry = LogEntry { tag, records: Vec::new(), pieces: Vec::new() };
    for _ in 0..records {
        entry.records.push(LoggedRecord {
            address: Address::from_word(word(offset)?),
            old_version: Version::from_word(word(offset + 8)?),
            new_version: Version::from_word(word(offset + 16)?),
        });
        offset += RECORD_BYTES;
    }
    for _ in 0..pieces {
        let (address, len) = (Address::from_word(word(offset)?), word(offset + 8)? as usize);
        offset += PIECE_HEADER_BYTES;
        let old = bytes.get(offset..offset + len)?.to_vec();
        entry.pieces.push(LoggedPiece { address, old });
        offset += len.next_multiple_of(8);
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::prints::Prints;
    use crate::working_set::{LockKind, Piece};
    use tarn_fabric::address::{GroupId, Incarnation, NodeId, NodeSlot};
    use tarn_fabric::round::VerbIndex;

    fn logged() -> (Txn, BufferOffset, usize) {
        let node = NodeId { slot: NodeSlot(3), incarnation: Incarnation(1) };
        let mut txn = Txn::new(OwnerTag::new(node, 0, 9), 0);
        let address = Address::new(GroupId(1), 640);
        let old = txn.round.reserve(13);
        txn.round.bytes_mut(old, 13).copy_from_slice(b"hello, world!");
        txn.locks.push(Lock {
            address,
            kind: LockKind::Record,
            granted: true,
            writes: true,
            old_version: Version::from_word(4),
            new_version: Version::from_word(5),
            prints: Prints::UNKNOWN,
            verb: VerbIndex(0),
        });
        let piece = Piece { address: address.plus(8), new: old, old, len_bytes: 13, logged: true };
        txn.pieces.push(piece);
        let (at, len) = encode(&mut txn);
        (txn, at, len)
    }

    #[test]
    fn an_entry_round_trips() {
        let (txn, at, len) = logged();
        let entry = decode(&txn.round, at, len).expect("an entry");
        assert_eq!(entry.tag, txn.tag);
        assert_eq!(entry.records[0].new_version, Version::from_word(5));
        assert_eq!(entry.pieces[0].old, b"hello, world!");
    }

    #[test]
    fn any_flipped_bit_and_any_cut_make_it_no_entry() {
        let (mut txn, at, len) = logged();
        for byte in 0..len {
            for bit in 0..8 {
                txn.round.bytes_mut(at, len)[byte] ^= 1 << bit;
                assert_eq!(decode(&txn.round, at, len), None, "byte {byte}, bit {bit}");
                txn.round.bytes_mut(at, len)[byte] ^= 1 << bit;
            }
        }
        for cut in 0..len {
            assert_eq!(decode(&txn.round, at, cut), None, "cut at {cut}");
        }
    }
}
