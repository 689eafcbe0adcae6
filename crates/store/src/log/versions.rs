//! The entry of versions: it contains the cells that a transaction writes, the former bytes of these cells, and the
//! transaction's decision.
//!
//! ```text
//! 0    head: see [`crate::log`]; its own word is RECORDS u32, LINKS u32
//! 32   RECORDS × { slot address u64 | table 16, cell 8, came 8, length 32 | former bytes, padded to 8 }
//! …    LINKS   × { address of NEXT u64 | the block u64 }
//! …    NODES u64, PIECES u64 | NODES × { address u64 | VERSION before u64 } | PIECES: [`super::pieces`], if there are nodes
//! end − 16 of the area:  T_COMMIT u64 | CHECK u64
//! ```
//! Invariant: the round that writes the INVISIBLE versions also writes the entry, and a later round writes the
//! decision. CHECK is valid only for the entry's transaction, so a decision that an earlier transaction left in the
//! same place has no effect. The decision has the same position in every area. So a reader that finds an INVISIBLE
//! version can read the decision without reading the entry. Former bytes are the bytes from which the slot is
//! restored. For a record that existed before, the former bytes are the bytes of its cell. For an inserted record,
//! the former bytes are the slot's first line. Recovery writes the links again, whether the transaction committed or
//! not. An empty block at the end of a chain does no harm, so recovery never removes it.
//!
//! The entry follows the log slots of LOTUS (Hu, Zuo, Hu, Chen, Wang, Yang: "LOTUS: Optimizing Disaggregated
//! Transactions with Disaggregated Locks"). The former bytes, the links and the position of the decision are Tarn's
//! own.

use super::pieces::{self, LoggedPiece, OldBytes};
use super::{Entry, LOG_HEADER_BYTES, OWN, checksum, seal, whole};
use crate::ids::{OwnerTag, Timestamp};
use crate::layout::Version;
use crate::schema::TableId;
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};

/// The number of bytes of a decision, which is T_COMMIT and CHECK.
pub const DECISION_BYTES: usize = 16;
const RECORD_HEAD_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
const NODES_HEAD_BYTES: usize = 16;
const NODE_BYTES: usize = 16;
const AS_LONG: &str = "an entry is as long as was said";

/// The offset of the decision in a log area of `log_bytes` bytes.
#[inline]
pub fn decision_at(log_bytes: u64) -> usize {
    log_bytes as usize - DECISION_BYTES
}

/// Returns the two words of the decision that transaction `tag` commits at the time `at`.
#[inline]
pub fn decision(tag: OwnerTag, at: Timestamp) -> [u64; 2] {
    [at.0, checksum(tag, &[at.0])]
}

/// Returns the commit time of the transaction `tag`, if `words` are the decision of this transaction to commit.
#[inline]
pub fn decided(tag: OwnerTag, words: [u64; 2]) -> Option<Timestamp> {
    let at = Timestamp(words[0]);
    (at.0 != 0 && words == decision(tag, at)).then_some(at)
}

/// The address of NEXT at the end of a chain, and the address of the block that NEXT will contain.
pub type Link = (Address, Address);
/// A node of an ordered index, and the node's VERSION before the transaction.
pub type NodeBefore = (Address, Version);

/// A version that a transaction will write, with the data that the log entry needs about this version.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    /// The address of the slot.
    pub slot: Address,
    /// The table of the slot.
    pub table: TableId,
    /// The number of the cell.
    pub cell: u8,
    /// Whether the slot held no record before.
    pub came: bool,
    /// The position, a multiple of 8, of the bytes that the cell or slot holds now, in the round's buffer.
    pub former: BufferOffset,
    /// The number of bytes at `former`.
    pub former_bytes: usize,
}

/// The length in bytes of an entry with `records` records and `links` links. The former bytes of the records add up
/// to `former_bytes`.
#[inline]
pub fn entry_bytes(records: usize, former_bytes: usize, links: usize) -> usize {
    LOG_HEADER_BYTES + records * RECORD_HEAD_BYTES + former_bytes + links * LINK_BYTES
}

/// The number of bytes that `nodes` index nodes add to an entry. The nodes' old bytes form `pieces` pieces, and the
/// bytes of these pieces, each padded to 8, add up to `bytes`.
#[inline]
pub fn nodes_bytes(nodes: usize, pieces: usize, bytes: usize) -> usize {
    match nodes {
        0 => 0,
        _ => NODES_HEAD_BYTES + nodes * NODE_BYTES + pieces::encoded_bytes(pieces, bytes),
    }
}

/// Writes an entry of `len` bytes ([`entry_bytes`]) into the buffer. Returns the entry's position.
///
/// # Panics
/// If the parts of the entry do not take exactly `len` bytes (a bug of Tarn).
pub fn write_entry(
    round: &mut Round,
    tag: OwnerTag,
    writings: impl Iterator<Item = Writing>,
    (links, nodes, old): (&[Link], &[NodeBefore], &[OldBytes]),
    len: usize,
) -> BufferOffset {
    let start = round.reserve_lines(len);
    let (before, entry) = round.split_words(start, len / 8);
    let (mut at, mut records) = (LOG_HEADER_BYTES / 8, 0u64);
    for it in writings {
        let words = it.former_bytes / 8;
        let flags = u64::from(it.table.0) | u64::from(it.cell) << 16 | u64::from(it.came) << 24;
        entry[at] = it.slot.to_word();
        entry[at + 1] = flags | (it.former_bytes as u64) << 32;
        let from = it.former.0 as usize / 8;
        entry[at + 2..at + 2 + words].copy_from_slice(&before[from..from + words]);
        at += RECORD_HEAD_BYTES / 8 + words;
        records += 1;
    }
    for (next, block) in links {
        (entry[at], entry[at + 1]) = (next.to_word(), block.to_word());
        at += LINK_BYTES / 8;
    }
    if !nodes.is_empty() {
        (entry[at], entry[at + 1]) = (nodes.len() as u64, old.len() as u64);
        at += NODES_HEAD_BYTES / 8;
        for (node, version) in nodes {
            (entry[at], entry[at + 1]) = (node.to_word(), version.word());
            at += NODE_BYTES / 8;
        }
        pieces::write(old.iter().copied(), before, &mut entry[at..len / 8]);
        at = len / 8;
    }
    assert_eq!(at * 8, len, "{AS_LONG}");
    seal(entry, tag, records | (links.len() as u64) << 32);
    start
}

/// Writes the same entry as [`write_entry`], but takes the versions one by one. `Replacing` writes entries that
/// contain only versions, and each version replaces `WORDS` words.
pub struct Replacing<'a, const WORDS: usize> {
    before: &'a [u64],
    entry: &'a mut [u64],
    at: usize,
    records: u64,
}

impl<'a, const WORDS: usize> Replacing<'a, WORDS> {
    const RECORD_WORDS: usize = RECORD_HEAD_BYTES / 8 + WORDS;

    /// The length in words of an entry with `versions` versions.
    #[inline(always)]
    pub const fn words(versions: usize) -> usize {
        LOG_HEADER_BYTES / 8 + versions * Self::RECORD_WORDS
    }

    /// Begins an entry with `versions` versions. Returns the entry's position in the buffer.
    #[inline(always)]
    pub fn begin(round: &'a mut Round, versions: usize) -> (BufferOffset, Self) {
        let start = round.reserve_lines(Self::words(versions) * 8);
        let (before, entry) = round.split_words(start, Self::words(versions));
        (start, Replacing { before, entry, at: LOG_HEADER_BYTES / 8, records: 0 })
    }

    /// Adds the next version to the entry. `former` is the position in the buffer of the bytes that the version
    /// replaces, and is a multiple of 8.
    ///
    /// # Panics
    /// If the caller adds more versions than it announced to `begin` (a bug of Tarn).
    #[inline(always)]
    pub fn add(&mut self, slot: Address, table: TableId, cell: u8, former: BufferOffset) {
        let (head, rest) = self.entry[self.at..].split_first_chunk_mut::<2>().expect(AS_LONG);
        let flags = u64::from(table.0) | u64::from(cell) << 16;
        *head = [slot.to_word(), flags | (WORDS as u64 * 8) << 32];
        let former = self.before[former.0 as usize / 8..].first_chunk::<WORDS>();
        *rest.first_chunk_mut().expect(AS_LONG) = *former.expect("a place in the buffer");
        self.at += Self::RECORD_WORDS;
        self.records += 1;
    }

    /// Completes the entry.
    ///
    /// # Panics
    /// If the caller added fewer versions than it announced to `begin` (a bug of Tarn).
    #[inline(always)]
    pub fn seal(self, tag: OwnerTag) {
        assert_eq!(self.at, self.entry.len(), "{AS_LONG}");
        seal(self.entry, tag, self.records);
    }
}

/// A version that a logged transaction wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedVersion {
    /// The address of the slot.
    pub slot: Address,
    /// The table of the slot.
    pub table: TableId,
    /// The number of the cell.
    pub cell: u8,
    /// Whether the slot held no record before.
    pub came: bool,
    /// The words that the cell or slot had before the transaction.
    pub former: Vec<u64>,
}

/// The entry of versions of one transaction, as recovery reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionLog {
    /// The transaction that wrote the entry.
    pub tag: OwnerTag,
    /// The versions that the transaction wrote.
    pub versions: Vec<LoggedVersion>,
    /// The links of block chains: each names the end of a chain, and the block that will follow there.
    pub links: Vec<Link>,
    /// The nodes of ordered indexes that the transaction changes, each with its VERSION before the transaction.
    pub nodes: Vec<NodeBefore>,
    /// The old bytes of the index nodes that the transaction changes.
    pub old: Vec<LoggedPiece>,
}

impl Entry for VersionLog {
    fn decode(round: &Round, at: BufferOffset, available: usize) -> Option<VersionLog> {
        let (tag, words) = whole(round, at, available)?;
        let (records, links) = (words[OWN] as u32, (words[OWN] >> 32) as usize);
        let mut rest = &words[LOG_HEADER_BYTES / 8..];
        let mut versions = Vec::new();
        for _ in 0..records {
            let [slot, flags, ..] = *rest else { return None };
            let (former, after) = rest[2..].split_at_checked((flags >> 32) as usize / 8)?;
            versions.push(LoggedVersion {
                slot: Address::from_word(slot),
                table: TableId(flags as u16),
                cell: (flags >> 16) as u8,
                came: flags >> 24 & 1 == 1,
                former: former.to_vec(),
            });
            rest = after;
        }
        let (links, rest) = rest.split_at_checked(links * LINK_BYTES / 8)?;
        let link =
            |&[next, block]: &[u64; 2]| (Address::from_word(next), Address::from_word(block));
        let links = links.as_chunks::<2>().0.iter().map(link).collect();
        let (nodes, old) = nodes(rest)?;
        Some(VersionLog { tag, versions, links, nodes, old })
    }

    fn tag(&self) -> OwnerTag {
        self.tag
    }

    fn records(&self) -> Vec<Address> {
        self.versions.iter().map(|version| version.slot).collect()
    }
}

/// Decodes the index nodes and their old bytes, which are the entry's last part.
fn nodes(words: &[u64]) -> Option<(Vec<NodeBefore>, Vec<LoggedPiece>)> {
    let Some((&[count, pieces], rest)) = words.split_first_chunk::<2>() else {
        return words.is_empty().then(Default::default);
    };
    let words = usize::try_from(count).ok()?.checked_mul(NODE_BYTES / 8)?;
    let (nodes, rest) = rest.split_at_checked(words)?;
    let node = |&[at, version]: &[u64; 2]| (Address::from_word(at), Version::from_word(version));
    let nodes = nodes.as_chunks::<2>().0.iter().map(node).collect();
    Some((nodes, pieces::read(rest, pieces as u32)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{GroupId, Incarnation, NodeId, NodeSlot};

    fn tag(count: u64) -> OwnerTag {
        let node = NodeId { slot: NodeSlot(3), incarnation: Incarnation(1) };
        OwnerTag::new(node, 0, count)
    }

    fn logged() -> (Round, BufferOffset, usize) {
        let (mut round, slot) = (Round::new(), Address::new(GroupId(1), 640));
        let former = round.reserve(64);
        (0..8).for_each(|word| round.set_word(former.plus(word * 8), word as u64 + 1));
        let writing = |cell, came, former_bytes| Writing {
            slot,
            table: TableId(5),
            cell,
            came,
            former,
            former_bytes,
        };
        let links = [(slot.plus(40), slot.plus(4096))];
        let len = entry_bytes(2, 96, 1);
        let writings = [writing(1, false, 32), writing(0, true, 64)];
        let at = write_entry(&mut round, tag(9), writings.into_iter(), (&links, &[], &[]), len);
        (round, at, len)
    }

    #[test]
    fn an_entry_round_trips() {
        let (round, at, len) = logged();
        let log = VersionLog::decode(&round, at, len).expect("an entry");
        assert_eq!((log.tag, log.links.len(), log.versions.len()), (tag(9), 1, 2));
        let [first, second] = &log.versions[..] else { panic!("{log:?}") };
        assert_eq!((first.cell, first.came, &first.former[..]), (1, false, &[1, 2, 3, 4][..]));
        assert_eq!((second.cell, second.came, second.former.len()), (0, true, 8));
        assert_eq!(second.table, TableId(5));
        assert_eq!(log.links[0].1, Address::new(GroupId(1), 640 + 4096));
    }

    #[test]
    fn a_replacing_entry_is_written_like_any_other() {
        let former: [BufferOffset; 3] = [8, 64, 120].map(BufferOffset);
        let slot = |at: usize| Address::new(GroupId(1), 640 * at as u64);
        let filled = || {
            let mut round = Round::new();
            let at = round.reserve(160);
            (0..20).for_each(|word| round.set_word(at.plus(word * 8), word as u64 * 77 + 1));
            round
        };
        for count in 1..=3 {
            let len = entry_bytes(count, count * 40, 0);
            let (mut one, mut other) = (filled(), filled());
            let table = TableId(5);
            let writings = (0..count).map(|at| Writing {
                slot: slot(at),
                table,
                cell: 1,
                came: false,
                former: former[at],
                former_bytes: 40,
            });
            let (at, mut replacing) = Replacing::<5>::begin(&mut one, count);
            (0..count).for_each(|it| replacing.add(slot(it), table, 1, former[it]));
            replacing.seal(tag(9));
            assert_eq!(Replacing::<5>::words(count) * 8, len);
            assert_eq!(at, write_entry(&mut other, tag(9), writings, (&[], &[], &[]), len));
            assert_eq!(one.bytes(at, len), other.bytes(at, len), "{count}");
        }
    }

    #[test]
    fn any_flipped_bit_and_any_cut_make_it_no_entry() {
        let (mut round, at, len) = logged();
        for byte in 0..len {
            for bit in 0..8 {
                round.bytes_mut(at, len)[byte] ^= 1 << bit;
                assert_eq!(VersionLog::decode(&round, at, len), None, "byte {byte}, bit {bit}");
                round.bytes_mut(at, len)[byte] ^= 1 << bit;
            }
        }
        for cut in 0..len {
            assert_eq!(VersionLog::decode(&round, at, cut), None, "cut at {cut}");
        }
    }

    #[test]
    fn a_decision_is_of_one_transaction() {
        let words = decision(tag(9), Timestamp(77));
        assert_eq!(decided(tag(9), words), Some(Timestamp(77)));
        assert_eq!(decided(tag(10), words), None);
        assert_eq!(decided(tag(9), [78, words[1]]), None);
        assert_eq!(decided(tag(9), [0, 0]), None);
    }
}
