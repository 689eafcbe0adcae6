//! Undo images: what a coordinator writes beside its data, so that somebody else can finish or undo
//! the transaction.
//!
//! ```text
//! 0   TAG u64 | 8  CRC u32, BYTES u32 | 16  RECORDS u32, PIECES u32
//! 24  RECORDS × { LOCK address u64 | old VERSION u64 | new VERSION u64 }   (equal: only held)
//! …   PIECES  × { address u64 | length u64 | old bytes, padded to 8 }
//! ```
//! Invariants: an entry with a wrong CRC is no entry; at a node, the entry precedes the data in the
//! same batch, and a WRITE precedes whatever follows it in its batch, so wherever new data are, the
//! entry is. That is why no round of its own is needed (docs/design/0004-fused-undo-log.md). The
//! area is used again only when the locks of its last transaction have been released.

use crate::layout::Version;
use crate::owner::OwnerTag;
use crate::working_set::Txn;
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};

/// Bytes before the records.
pub const LOG_HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 24;
const PIECE_HEADER_BYTES: usize = 16;
const CRC_AT: usize = 8;
/// Old bytes up to this many are copied word by word.
const SHORT_BYTES: usize = 64;

/// Length of the transaction's entry.
pub fn encoded_bytes(txn: &Txn) -> usize {
    let records = txn.locks.len() * RECORD_BYTES;
    let piece = |bytes: u32| PIECE_HEADER_BYTES + (bytes as usize).next_multiple_of(8);
    let logged = txn.pieces.iter().filter(|each| each.logged);
    let pieces: usize = logged.map(|each| piece(each.len_bytes)).sum();
    LOG_HEADER_BYTES + records + pieces
}

/// Writes the transaction's entry into its buffer; returns where, and its length.
pub fn encode(txn: &mut Txn) -> (BufferOffset, usize) {
    let len = encoded_bytes(txn);
    let Txn { tag, round, locks, pieces, .. } = txn;
    let start = round.reserve_lines(len);
    round.set_word(start, tag.word());
    let mut at = start.plus(LOG_HEADER_BYTES);
    let (mut records, mut logged) = (0u64, 0u64);
    for lock in locks.iter() {
        round.set_word(at, lock.address.to_word());
        round.set_word(at.plus(8), lock.old_version.word());
        round.set_word(at.plus(16), lock.new_version.word());
        at = at.plus(RECORD_BYTES);
        records += 1;
    }
    for piece in pieces.iter().filter(|each| each.logged) {
        logged += 1;
        round.set_word(at, piece.address.to_word());
        round.set_word(at.plus(8), u64::from(piece.len_bytes));
        let padded = (piece.len_bytes as usize).next_multiple_of(8);
        at = at.plus(PIECE_HEADER_BYTES);
        if piece.old.0.is_multiple_of(8) && padded <= SHORT_BYTES {
            // Whole words: what lies behind the old bytes is copied too, and means nothing.
            round.copy_words(piece.old, at, padded / 8);
        } else {
            round.set_word(at.plus(padded.max(8) - 8), 0);
            round.copy_within(piece.old, at, piece.len_bytes as usize);
        }
        at = at.plus(padded);
    }
    round.set_word(start.plus(16), records | (logged << 32));
    let crc = checksum(*tag, round.bytes(start.plus(16), len - 16));
    round.set_word(start.plus(CRC_AT), u64::from(crc) | ((len as u64) << 32));
    (start, len)
}

/// The tag seeds the checksum: an entry under another tag is no entry.
fn checksum(tag: OwnerTag, body: &[u8]) -> u32 {
    let seed = tag.word() ^ (tag.word() >> 32);
    let mut hasher = crc32fast::Hasher::new_with_initial(seed as u32);
    hasher.update(body);
    hasher.finalize()
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
    /// VERSION once the transaction was undone: as present as before, and beyond what anybody may
    /// have seen of the transaction.
    pub fn restored_version(&self) -> Version {
        match self.old_version.is_present() {
            true => self.new_version.present_after(Version::NEVER),
            false => self.new_version.absent_after(),
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
    let (crc, len) = (word(CRC_AT)? as u32, (word(CRC_AT)? >> 32) as usize);
    if len < LOG_HEADER_BYTES || checksum(tag, bytes.get(16..len)?) != crc {
        return None;
    }
    let (records, pieces) = (word(16)? as u32, (word(16)? >> 32) as u32);
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
    use crate::working_set::{Lock, LockKind, Piece};
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
            txn.round.bytes_mut(at, len)[byte] ^= 1;
            assert_eq!(decode(&txn.round, at, len), None, "byte {byte}");
            txn.round.bytes_mut(at, len)[byte] ^= 1;
        }
        for cut in 0..len {
            assert_eq!(decode(&txn.round, at, cut), None, "cut at {cut}");
        }
    }
}
