//! The look-up of one key. A look-up reads the leaf's first lines and the group of slots that is the key's home,
//! instead of the whole leaf.
//!
//! Invariant: a look-up accepts an answer only if the leaf's LOCK was free. Also, the leaf's LOCK and VERSION must be
//! the same before and after the READ of the leaf's lines. The leaf must also be alive, belong to this tree, and
//! cover the key. If the group has an entry with the key, this entry is the answer. If the group has no such entry
//! and no strays, the answer is that the key is absent. A scan of that one key handles all other cases: a path that
//! is not cached, a wrong leaf, strays, changes by the transaction itself. Any insert into the leaf raises the leaf's
//! VERSION. So if a transaction validates this VERSION, the absent key is still absent.

use super::scan::{HEAD_BYTES, Near, Visit, settle_node};
use crate::layout::index_plan::{Index, KeyBytes};
use crate::layout::node::{BITMAP_AT, BOUNDED, GROUP_SLOTS, LOW_AT, META_AT, NodeShape, STRAYS_AT};
use crate::layout::{VERSION_AT, Version};
use crate::placement::replica_groups::ThreadGroups;
use crate::schema::IndexId;
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::{BufferOffset, Round};

/// One look-up of a whole key in an ordered index.
#[derive(Clone, Copy, Debug)]
pub struct Seek {
    /// The key, padded to the maximum key length.
    pub key: KeyBytes,
    /// The leaf that probably covers the key. The address is null if the path is not cached.
    pub address: Address,
    /// The position of the leaf's first lines in the round's buffer. The lines of the group of slots follow the
    /// leaf's first lines. Behind the group's lines, the buffer has LOCK and VERSION again.
    image: BufferOffset,
    /// The position of the entry's slot in the round's buffer, if the look-up has found an entry.
    pub item: Option<BufferOffset>,
    /// The number of the scan that answers this look-up instead, if a scan does.
    pub scan: Option<u32>,
    /// The cache position of a node on the path, while the thread searches the address of the leaf.
    pub node: u32,
    /// The id of the index in which the key is looked up.
    pub index: IndexId,
    /// The number of the line of the cached node in which the search continues.
    pub line: u8,
    /// The group of slots that is the key's home.
    home: u8,
}

/// The result of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought {
    /// The look-up has found the entry, or has shown that the key is absent. The field is the leaf with its version.
    Known(Visit),
    /// The look-up cannot tell whether the entry exists, so a scan of the key must follow.
    Elsewhere,
    /// The leaf is locked or was being changed, so the transaction must abort. The field is the address and the word
    /// of the leaf's lock, if the look-up has seen a lock.
    Unstable(Option<(Address, u64)>),
}

impl Seek {
    /// Creates the look-up of a whole key.
    #[inline]
    pub fn new(index: &Index, key: KeyBytes) -> Seek {
        Seek {
            key,
            address: Address::NULL,
            image: BufferOffset::default(),
            item: None,
            scan: None,
            node: 0,
            index: index.id,
            line: 0,
            home: index.shape.home(&key[..index.shape.key_bytes]) as u8,
        }
    }

    /// The key in the form that the index's nodes use.
    #[inline]
    pub fn key(&self, index: &Index) -> &[u8] {
        &self.key[..index.shape.key_bytes]
    }

    /// Adds the look-up's READs to the round: the leaf's first lines, the group's lines, and LOCK and VERSION again.
    #[inline]
    pub fn plan(&mut self, shape: &NodeShape, groups: &ThreadGroups, round: &mut Round) {
        let target = groups.primary(self.address);
        let (from, bytes) = shape.group_at(usize::from(self.home));
        let header = shape.header_bytes;
        let at = round.reserve_lines(header + bytes + HEAD_BYTES);
        round.read_into(target, at, LINE_BYTES);
        if header > LINE_BYTES {
            round.read_into(target.plus(LINE_BYTES), at.plus(LINE_BYTES), header - LINE_BYTES);
        }
        round.read_into(target.plus(from), at.plus(header), bytes);
        round.read_into(target, at.plus(header + bytes), HEAD_BYTES);
        self.image = at;
    }

    /// Processes the results of the look-up's READs.
    #[inline]
    pub fn absorb(&mut self, near: Near<'_>, index: &Index, round: &Round, me: u64) -> Sought {
        let shape = &index.shape;
        let (_, bytes) = shape.group_at(usize::from(self.home));
        let group_at = self.image.plus(shape.header_bytes);
        if let Err(met) =
            settle_node(round, (self.address, self.image, shape.header_bytes + bytes), me)
        {
            return Sought::Unstable(met);
        }
        let head = round.array::<6>(self.image);
        let meta = head[META_AT / 8];
        // The leaf must have level 0, be alive, and belong to this tree. The root may have no tree number, so a scan
        // answers look-ups in a root.
        let is_mine = meta & !(u64::from(BOUNDED) << 8) == u64::from(index.tree()) << 16;
        if !is_mine || (near.checks_fences && !self.is_covered(shape, round, meta)) {
            return Sought::Elsewhere;
        }
        let bitmap = head[BITMAP_AT / 8] >> (usize::from(self.home) * GROUP_SLOTS) & 0xff;
        let version = Version::from_word(head[VERSION_AT / 8]);
        let found = self.find(shape, round, group_at) & bitmap;
        if found != 0 {
            let slot_bytes = bytes / GROUP_SLOTS;
            self.item = Some(group_at.plus(found.trailing_zeros() as usize * slot_bytes));
        } else if head[STRAYS_AT / 8] >> self.home & 1 != 0 || head[BITMAP_AT / 8] == 0 {
            return Sought::Elsewhere; // an empty leaf should be merged, and only scans request merges
        }
        Sought::Known(Visit { address: self.address, version })
    }

    #[inline]
    fn is_covered(&self, shape: &NodeShape, round: &Round, meta: u64) -> bool {
        let bounded = meta >> 8 & u64::from(BOUNDED) != 0;
        let low = self.image.plus(LOW_AT);
        if shape.key_bytes == 8 {
            let [low, high] = round.array::<2>(low).map(u64::swap_bytes);
            let key = crate::layout::node::first_of(&self.key);
            return low <= key && (!bounded || key < high);
        }
        let len = shape.key_bytes;
        let key = &self.key[..len];
        round.bytes(low, len) <= key && (!bounded || key < round.bytes(low.plus(len), len))
    }

    /// The slots of the group that hold the key. Some of the returned slots may be unused.
    #[inline]
    fn find(&self, shape: &NodeShape, round: &Round, group_at: BufferOffset) -> u64 {
        let stride = shape.key_bytes + shape.value_bytes;
        let equal = |slot: usize| match shape.key_bytes {
            8 => {
                let key = u64::from_le_bytes(*self.key.first_chunk().expect(
                    "a key has 8 bytes or \
                    more",
                ));
                round.word(group_at.plus(slot * stride)) == key
            }
            len => round.bytes(group_at.plus(slot * stride), len) == &self.key[..len],
        };
        (0..GROUP_SLOTS).fold(0, |found, slot| found | u64::from(equal(slot)) << slot)
    }
}
