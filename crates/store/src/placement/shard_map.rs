//! Shards decide which compute node grants the locks of a record.
//!
//! Invariant: every key is in one of 4,096 shards for ever, because its shard is a pure function of the table's
//! schema and the key. A shard has one owner at a time. The membership service keeps the authoritative map. A node
//! that changes an entry names the old entry that it has seen, and the service makes such changes one by one. With
//! each change, the service increases the entry's epoch by one. A node's view of the map may be out of date, but a
//! newer entry in the view is never replaced by an older entry.
//!
//! LOTUS (§4.2) computes shards from the low bits of a "critical field" of the key. With such shards, the records
//! that one transaction locks are likely to be in one shard. LOTUS moves a shard to another node by a message. If
//! LOTUS's message arrives twice, a shard can have two owners. Therefore in Tarn only the authoritative map decides,
//! and messages are only hints. (A compare-and-set on a word in memory nodes would not help, because it is not atomic
//! on a replicated word.)
//!
//! ```text
//! 63        32 | 31 28 | 27   22 | 21     12 | 11         0
//!   epoch      | state | (zero)  | slot (10) | incarnation 12      an entry; zero: no owner
//! ```

use crate::schema::{KeyWidth, TableSchema};
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::address::{Address, Incarnation, NodeId, NodeSlot};
use tarn_fabric::rng::mix;

/// The number of shards. The low 12 bits of a key's critical field are the number of its shard.
pub const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 12;

/// The number of a shard, 0 to 4,095.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardId(pub u16);

impl ShardId {
    /// All shards, in order.
    pub fn all() -> impl Iterator<Item = ShardId> {
        (0..SHARDS as u16).map(ShardId)
    }

    #[inline]
    fn of_bits(bits: u64) -> ShardId {
        ShardId((bits & (SHARDS as u64 - 1)) as u16)
    }

    #[inline]
    fn of_hash(hash: u64) -> ShardId {
        ShardId((hash >> (u64::BITS - SHARD_BITS)) as u16)
    }
}

/// Whether a shard's owner grants its locks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ShardState {
    /// The owner of the shard grants the shard's locks.
    Open = 1,
    /// The owner grants no more locks of the shard. Transactions that hold locks of the shard finish, and then
    /// another node takes over the shard (`resharding` of the engine).
    Closed = 2,
    /// The owner of the shard was expelled from the cluster. No node grants locks of the shard until the transactions
    /// that rely on the owner's locks have ended.
    Recovering = 3,
}

/// The entry of one shard in the shard map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShardEntry {
    /// The node that owns the shard, with its incarnation.
    pub owner: NodeId,
    /// Whether the owner grants the shard's locks.
    pub state: ShardState,
    /// The number of times that the entry has changed. The later one of two entries has the greater epoch.
    pub epoch: u32,
}

impl ShardEntry {
    /// Returns the entry as one word. The later one of two entries has the greater word.
    #[inline]
    pub fn word(self) -> u64 {
        let owner = u64::from(self.owner.slot.0) << 12 | u64::from(self.owner.incarnation.0);
        u64::from(self.epoch) << 32 | (self.state as u64) << 28 | owner
    }

    /// Decodes the word of an entry. Returns `None` if the shard has never had an owner.
    #[inline]
    pub fn from_word(word: u64) -> Option<ShardEntry> {
        let state = match word >> 28 & 0xf {
            1 => ShardState::Open,
            2 => ShardState::Closed,
            3 => ShardState::Recovering,
            _ => return None,
        };
        let owner = NodeId {
            slot: NodeSlot((word >> 12 & 0x3ff) as u16),
            incarnation: Incarnation((word & 0xfff) as u16),
        };
        Some(ShardEntry { owner, state, epoch: (word >> 32) as u32 })
    }

    /// The entry that replaces this entry at the next change.
    ///
    /// # Panics
    /// After 2^32 changes of the entry.
    #[must_use]
    pub fn next(self, owner: NodeId, state: ShardState) -> ShardEntry {
        ShardEntry { owner, state, epoch: self.epoch.checked_add(1).expect("2^32 changes") }
    }

    /// Whether this incarnation of a node grants the shard's locks.
    #[inline]
    pub fn is_served_by(self, node: NodeId) -> bool {
        self.owner == node && self.state == ShardState::Open
    }
}

/// The part of an entry's word that names the granting incarnation of a node, without the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Serving(u32);

impl Serving {
    /// Returns the part of an entry's word that names the node `node` as the granting node.
    pub fn by(node: NodeId) -> Serving {
        let entry = ShardEntry { owner: node, state: ShardState::Open, epoch: 0 };
        Serving(entry.word() as u32)
    }
}

/// The function that maps a table's keys to shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sharding {
    /// The shard is given by adjacent bits of the key word.
    Field {
        /// The position in the key word of the lowest bit that gives the shard.
        shift: u32,
        /// The mask that selects the bits of the shifted key word that give the shard.
        mask: u64,
    },
    /// The shard is given by bits of the key word that are not all adjacent. Adjacent bits form a run. The lowest run
    /// comes first, and all runs have at most 12 bits in total.
    Runs(Box<[Run]>),
    /// The shard is given by a hash of the key word. If a table's keys are longer than one word, the key word itself
    /// is a hash.
    Hash {
        /// A number that makes the hashes of different tables differ.
        salt: u64,
    },
}

/// Adjacent bits of a key word, and their position in the shard's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    mask: u64,
    /// The number of bits by which the run is shifted down to its position in the shard's number.
    shift: u32,
}

impl Sharding {
    /// The sharding of a table. `salt` makes the hashes of different tables differ.
    pub fn of(schema: &TableSchema, salt: u64) -> Sharding {
        let bits = schema.critical_bits;
        if bits == 0 || schema.key != KeyWidth::Word {
            return Sharding::Hash { salt };
        }
        let shift = bits.trailing_zeros();
        let mask = bits >> shift;
        if mask & mask.wrapping_add(1) == 0 {
            return Sharding::Field { shift, mask };
        }
        Sharding::Runs(runs(bits))
    }

    /// Returns the shard of the key with this key word.
    #[inline]
    pub fn shard_of(&self, key: u64) -> ShardId {
        match self {
            Sharding::Field { shift, mask } => ShardId::of_bits(key >> shift & mask),
            Sharding::Runs(runs) => {
                let part = |run: &Run| (key & run.mask) >> run.shift;
                ShardId::of_bits(runs.iter().map(part).fold(0, |bits, part| bits | part))
            }
            Sharding::Hash { salt } => ShardId::of_hash(mix(key ^ salt)),
        }
    }
}

/// The runs of set bits of a mask, from the lowest run on, until the runs have as many bits as a shard's number.
fn runs(bits: u64) -> Box<[Run]> {
    let (mut runs, mut left, mut placed) = (Vec::new(), bits, 0);
    while left != 0 && placed < SHARD_BITS {
        let start = left.trailing_zeros();
        let length = (left >> start).trailing_ones();
        let mask = left & (u64::MAX >> (u64::BITS - length)) << start;
        runs.push(Run { mask, shift: start - placed });
        left &= !mask;
        placed += length;
    }
    runs.into()
}

/// The shard of an object that has an address and no key: a bucket, or a node of an index. The shard is a hash of the
/// address. The low bits of these objects' addresses differ little, because the addresses are multiples of the
/// object's size.
#[inline]
pub fn shard_of_address(address: Address) -> ShardId {
    ShardId::of_hash(mix(address.to_word()))
}

/// The authoritative shard map, which a service keeps.
pub trait ShardRecord {
    /// The entry of a shard. Returns `None` if the shard has never had an owner.
    fn shard(&self, shard: ShardId) -> Option<ShardEntry>;

    /// The number of changes of the authoritative map since it was created. A node whose view includes this number of
    /// changes has the newest map.
    fn shard_changes(&self) -> u64;
}

impl<T: ShardRecord + ?Sized> ShardRecord for &T {
    fn shard(&self, shard: ShardId) -> Option<ShardEntry> {
        (**self).shard(shard)
    }

    fn shard_changes(&self) -> u64 {
        (**self).shard_changes()
    }
}

/// A compute node's view of the shard map, which may be out of date.
#[derive(Debug)]
pub struct ShardMap {
    words: Box<[AtomicU64]>,
    /// The number of changes of the authoritative map that the node has read.
    changes: AtomicU64,
}

impl Default for ShardMap {
    fn default() -> ShardMap {
        let words = (0..SHARDS).map(|_| AtomicU64::new(0)).collect();
        ShardMap { words, changes: AtomicU64::new(0) }
    }
}

impl ShardMap {
    /// The entry of a shard in this node's view. Returns `None` if the shard has never had an owner, or does not
    /// exist.
    #[inline]
    pub fn entry(&self, shard: ShardId) -> Option<ShardEntry> {
        ShardEntry::from_word(self.words.get(usize::from(shard.0))?.load(Ordering::Acquire))
    }

    /// Whether this incarnation of a node grants the shard's locks, as far as the node with this view knows. If the
    /// owner itself has closed the shard, the owner's view shows that the shard is closed.
    #[inline]
    pub fn is_served_by(&self, shard: ShardId, node: NodeId) -> bool {
        self.is_served(shard, Serving::by(node))
    }

    /// Does the same as [`ShardMap::is_served_by`], with a precomputed part of the entry's word.
    #[inline(always)]
    pub fn is_served(&self, shard: ShardId, serving: Serving) -> bool {
        let word = self.words.get(usize::from(shard.0));
        word.is_some_and(|word| Serving(word.load(Ordering::Acquire) as u32) == serving)
    }

    /// Reads the entry of a shard from the authoritative map `record` into the view. Returns the entry that the view
    /// has afterwards.
    pub fn reread(&self, record: impl ShardRecord, shard: ShardId) -> Option<ShardEntry> {
        if let Some(entry) = record.shard(shard) {
            self.learn(shard, entry);
        }
        self.entry(shard)
    }

    /// Reads the whole authoritative map into the view, if that map has changed. Returns whether the authoritative
    /// map has changed.
    pub fn refresh(&self, record: impl ShardRecord) -> bool {
        let changes = record.shard_changes();
        if self.changes.load(Ordering::Acquire) >= changes {
            return false;
        }
        for shard in ShardId::all() {
            self.reread(&record, shard);
        }
        // The number of changes is stored after the entries, because a thread that finds the new
        // number does not read the entries again.
        self.changes.fetch_max(changes, Ordering::AcqRel);
        true
    }

    /// **Breaks the invariant**: a node's view names the node as the owner of the shard, without a change of the
    /// authoritative map.
    pub fn planted_take(&self, shard: ShardId, node: NodeId) {
        if let Some(entry) = self.entry(shard) {
            self.learn(shard, entry.next(node, ShardState::Open));
        }
    }

    /// Stores an entry of the authoritative map in the view. If `entry` is older than the view's entry, the view does
    /// not change.
    pub fn learn(&self, shard: ShardId, entry: ShardEntry) {
        if let Some(word) = self.words.get(usize::from(shard.0)) {
            word.fetch_max(entry.word(), Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bits of `key` that `mask` selects, moved together into the lowest bits, one bit at a time.
    fn extracted(key: u64, mask: u64) -> u64 {
        let ones = (0..64).filter(|bit| mask >> bit & 1 == 1);
        ones.enumerate().fold(0, |bits, (to, from)| bits | (key >> from & 1) << to)
    }

    fn schema(critical_bits: u64) -> TableSchema {
        TableSchema::new("t", 1).critical_bits(critical_bits)
    }

    proptest! {
        #[test]
        fn the_shard_is_the_low_bits_of_the_critical_field(key: u64, mask in 1u64..) {
            let shard = Sharding::of(&schema(mask), 1).shard_of(key);
            prop_assert_eq!(u64::from(shard.0), extracted(key, mask) & 4095);
        }

        #[test]
        fn adjacent_bits_are_shifted(key: u64, shift in 0u32..64, width in 1u32..=64) {
            let mask = (u64::MAX >> (64 - width)) << shift;
            let sharding = Sharding::of(&schema(mask), 1);
            let is_shifted = matches!(sharding, Sharding::Field { .. });
            prop_assert!(is_shifted);
            prop_assert_eq!(u64::from(sharding.shard_of(key).0), extracted(key, mask) & 4095);
        }

        #[test]
        fn entries_come_apart_as_they_were_packed(
            slot in 0u16..1024, incarnation in 1u16..4096, state in 0usize..3, epoch: u32,
        ) {
            let owner = NodeId { slot: NodeSlot(slot), incarnation: Incarnation(incarnation) };
            let states = [ShardState::Open, ShardState::Closed, ShardState::Recovering];
            let entry = ShardEntry { owner, state: states[state], epoch };
            prop_assert_eq!(ShardEntry::from_word(entry.word()), Some(entry));
        }
    }

    /// A shard is computed by a hash in three cases: the table has no critical field, its keys are long, or the shard
    /// belongs to an address.
    #[test]
    fn hashes_spread_evenly() {
        let hashed = Sharding::of(&schema(0), mix(1));
        let mut long = schema(u64::MAX);
        long.key = KeyWidth::Bytes(20);
        assert_eq!(Sharding::of(&long, mix(1)), hashed, "its key word is a hash already");
        let address = |it: u64| Address::new(tarn_fabric::address::GroupId(3), it * 4096);
        let shards: [&dyn Fn(u64) -> ShardId; 2] =
            [&|it| hashed.shard_of(it), &|it| shard_of_address(address(it))];
        for shard in shards {
            let mut counts = vec![0u64; SHARDS];
            (0..400 * SHARDS as u64).for_each(|it| counts[usize::from(shard(it).0)] += 1);
            let (least, most) = (counts.iter().min(), counts.iter().max());
            // The distribution is binomial with mean 400 and standard deviation 20. The limits of the assertion are
            // five standard deviations from the mean.
            assert!(least > Some(&300) && most < Some(&500), "{least:?} to {most:?}");
        }
    }

    /// An authoritative map in which no shard has an entry.
    struct Nothing;

    impl ShardRecord for Nothing {
        fn shard(&self, _: ShardId) -> Option<ShardEntry> {
            None
        }

        fn shard_changes(&self) -> u64 {
            0
        }
    }

    #[test]
    fn shard_numbers_beyond_the_last_are_refused() {
        let (view, none) = (ShardMap::default(), ShardId(SHARDS as u16));
        let node = NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) };
        view.learn(none, ShardEntry { owner: node, state: ShardState::Open, epoch: 1 });
        assert_eq!((view.entry(none), view.is_served_by(none, node)), (None, false));
        assert_eq!(view.reread(Nothing, none), None);
    }

    #[test]
    fn a_view_never_goes_back() {
        let view = ShardMap::default();
        let node = |slot| NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) };
        assert_eq!(view.entry(ShardId(7)), None);
        let first = ShardEntry { owner: node(0), state: ShardState::Open, epoch: 1 };
        let closed = first.next(node(0), ShardState::Closed);
        let moved = closed.next(node(1), ShardState::Open);
        for learnt in [first, moved, closed, first] {
            view.learn(ShardId(7), learnt);
        }
        assert_eq!(view.entry(ShardId(7)), Some(moved));
        assert!(view.is_served_by(ShardId(7), node(1)) && !view.is_served_by(ShardId(7), node(0)));
    }
}
