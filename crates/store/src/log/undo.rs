//! The entry of old bytes: it contains the records that a transaction has locked, and the bytes that the
//! transaction overwrites.
//!
//! ```text
//! 0   head: see [`crate::log`]; its own word is RECORDS u32, PIECES u32
//! 32  RECORDS × { LOCK address u64 | old VERSION u64 | new VERSION u64 }   (equal: only held; bit 63 of the address: nameless)
//! …   PIECES  × { address u64 | length u64 | old bytes, padded to 8 }
//! ```
//! Invariant: each memory node receives the entry before the data in the same batch, and a WRITE takes effect before
//! all later verbs of its batch. So a node that has new data also has the entry. Therefore the transaction needs no
//! separate round for the entry (docs/design/0004-fused-undo-log.md). The area is reused only after the locks of the
//! transaction whose entry it contains have been released.

use super::pieces::{self, LoggedPiece, OldBytes};
use super::{Entry, LOG_HEADER_BYTES, OWN, seal, whole};
use crate::ids::OwnerTag;
use crate::layout::Version;
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};

const RECORD_BYTES: usize = 24;
const VERSION_BYTES: usize = 8;
/// A mark in the word of an entry that holds a record's address. The mark says that the bytes written to the record
/// do not name their writer ([`super::redo`]).
const NAMELESS: u64 = 1 << 63;

/// The length in bytes of an entry with `records` records and `pieces` pieces. The old bytes of the pieces, each
/// piece padded to 8, add up to `old_bytes`.
#[inline]
pub fn entry_bytes(records: usize, pieces: usize, old_bytes: usize) -> usize {
    LOG_HEADER_BYTES + records * RECORD_BYTES + pieces::encoded_bytes(pieces, old_bytes)
}

/// Writes an entry of `len` bytes ([`entry_bytes`]) into the buffer, behind the old bytes. Returns the entry's
/// position.
///
/// # Panics
/// If the entry needs more than `len` bytes (a bug of Tarn).
#[inline]
pub fn write_entry(
    round: &mut Round,
    tag: OwnerTag,
    logged: impl ExactSizeIterator<Item = LoggedRecord>,
    old: impl Iterator<Item = OldBytes>,
    len: usize,
) -> BufferOffset {
    let start = round.reserve_lines(len);
    let (before, entry) = round.split_words(start, len / 8);
    let count = logged.len();
    let (records, rest) = entry[LOG_HEADER_BYTES / 8..].split_at_mut(count * RECORD_BYTES / 8);
    for (record, its) in records.as_chunks_mut::<3>().0.iter_mut().zip(logged) {
        let nameless = if its.nameless { NAMELESS } else { 0 };
        let address = its.address.to_word() | nameless;
        *record = [address, its.old_version.word(), its.new_version.word()];
    }
    let pieces = pieces::write(old, before, rest);
    seal(entry, tag, count as u64 | (pieces << 32));
    start
}

/// A record that a logged transaction changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedRecord {
    /// The address of the record's LOCK word.
    pub address: Address,
    /// The record's VERSION before the transaction.
    pub old_version: Version,
    /// The record's VERSION after the transaction.
    pub new_version: Version,
    /// Whether the bytes that the transaction writes to the record do not name their writer. If a transaction logs a
    /// nameless record and then does not write it, the transaction removes its log entry.
    pub nameless: bool,
}

impl LoggedRecord {
    /// The VERSION that the record gets when the transaction is undone. `piece_bytes` is the length of the piece that
    /// begins with VERSION. For an update, the new VERSION is greater than every version of the transaction that a
    /// reader may have seen. A directory record or header, whose piece is VERSION alone, also gets a VERSION greater
    /// than every version that a reader may have seen. A record that the transaction inserted or deleted gets its old
    /// VERSION back. While an inserted or deleted record is locked, no reader takes its bytes for a record. The bytes
    /// of a deleted record never changed. During a split, another record may take a record's slot of one line. A
    /// record whose slot was taken in a split gets its old VERSION back for the same reason. (An update increases
    /// VERSION by one. A record that takes over a slot increases VERSION by more.) So after the undo of a split, a
    /// record that the split was moving has the version that its readers have seen
    /// (docs/design/0003-single-version-layout.md).
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

/// The entry of old bytes of one transaction, as recovery reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// The transaction that wrote the entry.
    pub tag: OwnerTag,
    /// The records that the transaction changed.
    pub records: Vec<LoggedRecord>,
    /// The bytes that an undo writes back.
    pub pieces: Vec<LoggedPiece>,
}

impl Entry for LogEntry {
    fn decode(round: &Round, at: BufferOffset, available: usize) -> Option<LogEntry> {
        let (tag, words) = whole(round, at, available)?;
        let (records, pieces) = (words[OWN] as u32 as usize, (words[OWN] >> 32) as u32);
        let body = &words[LOG_HEADER_BYTES / 8..];
        let (records, rest) = body.split_at_checked(records * RECORD_BYTES / 8)?;
        let record = |&[address, old, new]: &[u64; 3]| LoggedRecord {
            address: Address::from_word(address),
            old_version: Version::from_word(old),
            new_version: Version::from_word(new),
            nameless: address & NAMELESS != 0,
        };
        let records = records.as_chunks::<3>().0.iter().map(record).collect();
        Some(LogEntry { tag, records, pieces: pieces::read(rest, pieces)? })
    }

    fn tag(&self) -> OwnerTag {
        self.tag
    }

    fn records(&self) -> Vec<Address> {
        self.records.iter().map(|record| record.address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{GroupId, Incarnation, NodeId, NodeSlot};

    fn tag() -> OwnerTag {
        let node = NodeId { slot: NodeSlot(3), incarnation: Incarnation(1) };
        OwnerTag::new(node, 0, 9)
    }

    fn logged() -> (Round, BufferOffset, usize) {
        let (mut round, address) = (Round::new(), Address::new(GroupId(1), 640));
        let old = round.reserve(13);
        round.bytes_mut(old, 13).copy_from_slice(b"hello, world!");
        let [old_version, new_version] = [4, 5].map(Version::from_word);
        let record = LoggedRecord { address, old_version, new_version, nameless: false };
        let piece = OldBytes { address: address.plus(8), at: old, len_bytes: 13 };
        let len = entry_bytes(1, 1, 16);
        let at = write_entry(&mut round, tag(), [record].into_iter(), [piece].into_iter(), len);
        (round, at, len)
    }

    #[test]
    fn an_entry_round_trips() {
        let (round, at, len) = logged();
        let entry = LogEntry::decode(&round, at, len).expect("an entry");
        assert_eq!(entry.tag, tag());
        assert_eq!(entry.records[0].new_version, Version::from_word(5));
        assert_eq!(entry.pieces[0].old, b"hello, world!");
    }

    #[test]
    fn any_flipped_bit_and_any_cut_make_it_no_entry() {
        let (mut round, at, len) = logged();
        for byte in 0..len {
            for bit in 0..8 {
                round.bytes_mut(at, len)[byte] ^= 1 << bit;
                assert_eq!(LogEntry::decode(&round, at, len), None, "byte {byte}, bit {bit}");
                round.bytes_mut(at, len)[byte] ^= 1 << bit;
            }
        }
        for cut in 0..len {
            assert_eq!(LogEntry::decode(&round, at, cut), None, "cut at {cut}");
        }
    }
}
