//! Computes the address of a key's bucket: it uses linear hashing over segments, and the growth state that a compute
//! node knows.
//!
//! Invariant: a compute node's growth state can be out of date, but it is always a state that the index once had. If
//! a bucket was split after that state, the depth in its directory record is greater than expected. The node then
//! corrects its growth state (`state_seen`). The linear hashing follows Litwin, "Linear hashing: a new tool for file
//! and table addressing", VLDB 1980. A bucket's position in the first segment is computed by multiplication, so that
//! any number of buckets is filled evenly. Each doubling of the number of buckets adds one hash bit and one segment.

use crate::layout::{DIRECTORY_BYTES, Geometry, SEGMENTS_MAX};
use crate::placement::catalog::{Catalog, Placement, Table};
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::rng::mix;

const GROUP_HASH_SHIFT: u32 = 16;
const BIN_HASH_SHIFT: u32 = 32;

/// The place where a key has its home: a group, a bucket and a bin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The replica group of the key.
    pub group: GroupId,
    /// The address of the bucket, which is the address of its directory record.
    pub bucket: Address,
    /// The number of the bin in the bucket.
    pub bin: u8,
    /// The number of growth bits that were used to choose the bucket. The bucket should have this depth.
    pub depth: u8,
}

/// A compute node's knowledge of the growth of every table in every group.
#[derive(Debug)]
pub struct IndexView {
    shards: Vec<Shard>,
    groups: usize,
}

/// The growth of the part of one table in one group, as the compute node knows it.
#[derive(Debug, Default)]
struct Shard {
    /// The shard's growth state as one word: the level in the upper byte, and the split position in the lower bytes.
    state: AtomicU64,
    /// The address words of the segments after the first segment.
    segments: [AtomicU64; SEGMENTS_MAX],
}

/// The growth state of a shard, decoded from its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrowthState {
    /// The number of times that the number of buckets has doubled completely.
    pub level: u8,
    /// The number of buckets of this level that were already split.
    pub split: u64,
}

impl GrowthState {
    /// Decodes the word STATE of the index header.
    #[inline]
    pub fn from_word(word: u64) -> GrowthState {
        GrowthState { level: (word >> 56) as u8, split: word & ((1 << 56) - 1) }
    }

    /// Returns the growth state as the word STATE of the index header.
    pub fn word(self) -> u64 {
        (u64::from(self.level) << 56) | self.split
    }

    /// Returns the growth state after the bucket at the split position was split. `buckets` is the number of buckets
    /// of the first segment.
    #[must_use]
    pub fn after_split(self, buckets: u64) -> GrowthState {
        if self.split + 1 == buckets << self.level {
            return GrowthState { level: self.level + 1, split: 0 };
        }
        GrowthState { level: self.level, split: self.split + 1 }
    }

    /// Whether a shard can have this growth state. A possible state needs at most the allowed number of segments, and
    /// has fewer split buckets than its level has buckets.
    fn is_possible(self, buckets: u64) -> bool {
        let is_level = usize::from(self.level) <= SEGMENTS_MAX && self.segments() <= SEGMENTS_MAX;
        is_level && self.split < buckets << self.level
    }

    /// The number of segments in use, without the first segment.
    pub fn segments(self) -> usize {
        usize::from(self.level) + usize::from(self.split > 0)
    }

    /// The number of buckets in use in this growth state. `buckets` is the number of buckets of the first segment.
    pub fn buckets(self, buckets: u64) -> u64 {
        (buckets << self.level) + self.split
    }

    /// The depth of bucket number `index` among the buckets in use.
    pub fn depth(self, buckets: u64, index: u64) -> u8 {
        let level_buckets = buckets << self.level;
        let split = index < self.split || index >= level_buckets;
        self.level + u8::from(split)
    }
}

impl IndexView {
    /// Creates the view in which no index has grown yet.
    pub fn new(catalog: &Catalog) -> IndexView {
        let groups = catalog.groups();
        let shards = (0..catalog.tables().len() * groups).map(|_| Shard::default()).collect();
        IndexView { shards, groups }
    }

    #[inline]
    fn shard(&self, table: &Table, group: GroupId) -> &Shard {
        &self.shards[usize::from(table.id.0) * self.groups + usize::from(group.0)]
    }

    /// Stores the contents of an index header: its state word and the segments' address words. If the state is
    /// impossible, it comes from damaged memory, and the function ignores it. A compute node's known growth state
    /// never goes back to an older state.
    pub fn learn(&self, table: &Table, group: GroupId, state: u64, segments: &[u64]) {
        if !GrowthState::from_word(state).is_possible(table.geometry.buckets) {
            return;
        }
        let shard = self.shard(table, group);
        for (slot, &segment) in shard.segments.iter().zip(segments) {
            if segment != 0 {
                slot.store(segment, Ordering::Release);
            }
        }
        shard.state.fetch_max(state, Ordering::AcqRel);
    }

    /// The growth state that the compute node knows.
    pub fn state(&self, table: &Table, group: GroupId) -> GrowthState {
        GrowthState::from_word(self.shard(table, group).state.load(Ordering::Acquire))
    }

    /// Returns the home of the key with this hash.
    #[inline(always)]
    pub fn place(&self, catalog: &Catalog, table: &Table, hash: u64) -> Place {
        let group = group_of(catalog, table, hash);
        let geometry = &table.geometry;
        let base = base_of(table, hash);
        let bin = bin_of(hash);
        let state = self.shard(table, group).state.load(Ordering::Acquire);
        if state == 0 {
            let offset = geometry.first_segment_at + base * geometry.bucket_bytes as u64;
            return Place { group, bucket: Address::new(group, offset), bin, depth: 0 };
        }
        self.place_grown(table, group, hash, GrowthState::from_word(state))
    }

    /// If a table has not grown and lies in one group, returns a value that computes the homes of all its keys. The
    /// homes equal the results of [`IndexView::place`], but the parts that all keys share are computed only once.
    /// Like those results, the homes may be out of date.
    #[inline]
    pub fn ungrown(&self, catalog: &Catalog, table: &Table) -> Option<Ungrown> {
        let is_in_one = catalog.groups() == 1 || catalog.options().placement == Placement::Table;
        let group = group_of(catalog, table, 0);
        if !is_in_one || self.shard(table, group).state.load(Ordering::Acquire) != 0 {
            return None;
        }
        let Geometry { buckets, bucket_bytes, bin_bytes, first_segment_at, .. } = table.geometry;
        let first = Address::new(group, first_segment_at);
        Some(Ungrown { first, buckets, bucket_bytes, bin_bytes })
    }

    #[inline(never)]
    fn place_grown(&self, table: &Table, group: GroupId, hash: u64, state: GrowthState) -> Place {
        let (geometry, base, bin) = (&table.geometry, base_of(table, hash), bin_of(hash));
        let mut depth = state.level;
        if base + geometry.buckets * low_bits(hash, depth) < state.split {
            depth += 1;
        }
        let growth = low_bits(hash, depth);
        let bucket = self.bucket(table, group, base, growth);
        Place { group, bucket, bin, depth }
    }

    /// Returns the address of the bucket with this position in the first segment and these growth bits.
    pub fn bucket(&self, table: &Table, group: GroupId, base: u64, growth: u64) -> Address {
        let geometry = &table.geometry;
        if growth == 0 {
            let offset = geometry.first_segment_at + base * geometry.bucket_bytes as u64;
            return Address::new(group, offset);
        }
        let segment = growth.ilog2() as usize;
        let start = self.shard(table, group).segments[segment].load(Ordering::Acquire);
        let index = base + geometry.buckets * (growth - (1 << segment));
        Address::from_word(start).plus((index * geometry.bucket_bytes as u64) as usize)
    }

    /// The address word of a segment after the first; the word is 0 if the compute node does not know the segment.
    pub fn segment(&self, table: &Table, group: GroupId, segment: usize) -> u64 {
        self.shard(table, group).segments[segment].load(Ordering::Acquire)
    }
}

/// Computes the homes of all keys of a table that has not grown. [`IndexView::ungrown`] returns this value.
#[derive(Clone, Copy, Debug)]
pub struct Ungrown {
    first: Address,
    buckets: u64,
    bucket_bytes: usize,
    bin_bytes: usize,
}

impl Ungrown {
    /// Returns the address of the bin of the key with this hash.
    #[inline(always)]
    pub fn home(&self, hash: u64) -> Address {
        let (bucket, bin) = self.place(hash);
        bucket.plus(bin)
    }

    /// Returns the bucket of the key with this hash, and the offset of the key's bin in the bucket.
    #[inline(always)]
    pub fn place(&self, hash: u64) -> (Address, usize) {
        let base = ((u128::from(hash) * u128::from(self.buckets)) >> 64) as usize;
        let bin = usize::from(bin_of(hash)) * self.bin_bytes;
        (self.first.plus(base * self.bucket_bytes), DIRECTORY_BYTES + bin)
    }
}

/// Returns the lowest `bits` bits of a hash, which are the growth bits.
#[inline]
pub fn low_bits(hash: u64, bits: u8) -> u64 {
    hash & ((1 << bits) - 1)
}

/// Returns the base position of the key with this hash: the number of a bucket in the first segment.
#[inline]
fn base_of(table: &Table, hash: u64) -> u64 {
    ((u128::from(hash) * u128::from(table.geometry.buckets)) >> 64) as u64
}

/// Returns the number of the key's bin in its bucket, for the key with this hash.
#[inline]
pub fn bin_of(hash: u64) -> u8 {
    (hash >> BIN_HASH_SHIFT) as u8 % Geometry::BINS as u8
}

/// Returns a lower bound of the shard's growth state. The bucket of the key with this hash was expected at depth
/// `assumed`, but a lookup found it unlocked at the greater depth `found`. The bound is correct, because buckets are
/// split in a fixed order and this bucket's last split is complete. LH* clients correct their image of a file in the
/// same way (Litwin, Neimat, Schneider: "LH*: linear hashing for distributed files", SIGMOD 1993).
pub fn state_seen(table: &Table, hash: u64, assumed: u8, found: u8) -> GrowthState {
    assert!(found > assumed);
    if usize::from(found) > SEGMENTS_MAX {
        // No bucket can have the depth `found`, so the depth comes from damaged memory.
        return GrowthState::from_word(0);
    }
    let buckets = table.geometry.buckets;
    let split = base_of(table, hash) + buckets * low_bits(hash, assumed);
    GrowthState { level: found - 1, split }.after_split(buckets)
}

/// Returns the hash of a key word in a table.
#[inline]
pub fn hash_of(table: &Table, key_word: u64) -> u64 {
    mix(key_word ^ table.geometry.salt)
}

/// Returns the replica group of the key with this hash.
#[inline]
pub fn group_of(catalog: &Catalog, table: &Table, hash: u64) -> GroupId {
    let groups = catalog.groups() as u64;
    match catalog.options().placement {
        Placement::Hash if groups == 1 => GroupId(0),
        Placement::Hash => GroupId((((hash >> GROUP_HASH_SHIFT & 0xffff) * groups) >> 16) as u16),
        Placement::Table => GroupId((u64::from(table.id.0) % groups) as u16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::catalog::Options;
    use crate::schema::{ColumnType, TableSchema};
    use proptest::prelude::*;

    const GROUP: GroupId = GroupId(0);

    fn catalog(records: u64) -> Catalog {
        let schema = TableSchema::new("t", records).column("c", ColumnType::U64);
        Catalog::plan(&[schema], &Options::default(), 1).expect("a plan")
    }

    /// Builds a view whose segments have the required lengths and lie far apart.
    fn view(catalog: &Catalog, state: GrowthState) -> IndexView {
        let (view, table) = (IndexView::new(catalog), &catalog.tables()[0]);
        let bytes = table.geometry.buckets * table.geometry.bucket_bytes as u64;
        let start = |segment: usize| Address::new(GROUP, (1 << 30) + (bytes << segment)).to_word();
        let segments: Vec<u64> = (0..state.segments()).map(start).collect();
        view.learn(table, GROUP, state.word(), &segments);
        view
    }

    fn all_buckets(table: &Table, view: &IndexView, state: GrowthState) -> Vec<Address> {
        let buckets = table.geometry.buckets;
        let total = state.buckets(buckets);
        (0..total).map(|at| view.bucket(table, GROUP, at % buckets, at / buckets)).collect()
    }

    proptest! {
        /// Whatever bytes a header or a directory record contains, every key gets a valid place.
        #[test]
        fn damaged_states_teach_nothing(
            records in 1u64..120, words: [u64; 4], level: u8, found in 1u8.., hash: u64,
        ) {
            let catalog = catalog(records);
            let (view, table) = (IndexView::new(&catalog), &catalog.tables()[0]);
            let words = words.into_iter().chain([0, u64::from(level) << 56, u64::MAX]);
            for state in words.chain([state_seen(table, hash, 0, found).word()]) {
                view.learn(table, GROUP, state, &[4096; SEGMENTS_MAX]);
                let place = view.place(&catalog, table, hash);
                prop_assert!(usize::from(place.depth) <= SEGMENTS_MAX);
            }
        }

        /// In every state, buckets are disjoint. A key's place is one of these buckets and has the depth that the
        /// state implies. The next split leaves a key in its bucket, or moves it to the new bucket.
        #[test]
        fn places_and_buckets_agree(
            records in 1u64..120,
            level in 0u8..6,
            split in any::<prop::sample::Index>(),
            keys in prop::collection::vec(any::<u64>(), 50),
        ) {
            let catalog = catalog(records);
            let table = &catalog.tables()[0];
            let buckets = table.geometry.buckets;
            let split = split.index((buckets << level) as usize) as u64;
            let state = GrowthState { level, split };
            let after = state.after_split(buckets);
            // The index view may already know a segment that is not in use yet.
            let (before, later) = (view(&catalog, state), view(&catalog, after));
            let all = all_buckets(table, &before, state);
            let mut sorted: Vec<u64> = all.iter().map(|bucket| bucket.to_word()).collect();
            sorted.sort_unstable();
            for pair in sorted.windows(2) {
                prop_assert!(pair[0] + table.geometry.bucket_bytes as u64 <= pair[1]);
            }
            let grown = all_buckets(table, &later, after);
            prop_assert_eq!(grown.len(), all.len() + 1);
            prop_assert_eq!(&grown[..all.len()], &all[..]);
            for key in keys {
                let hash = hash_of(table, key);
                let place = before.place(&catalog, table, hash);
                let index = all.iter().position(|&bucket| bucket == place.bucket);
                prop_assert!(index.is_some());
                let index = index.unwrap_or_default() as u64;
                prop_assert_eq!(place.depth, state.depth(buckets, index));
                let ungrown = before.ungrown(&catalog, table);
                prop_assert_eq!(ungrown.is_some(), state.word() == 0);
                let bin = DIRECTORY_BYTES + usize::from(place.bin) * table.geometry.bin_bytes;
                let home = ungrown.map_or(place.bucket.plus(bin), |it| it.home(hash));
                prop_assert_eq!(home, place.bucket.plus(bin));
                let next = later.place(&catalog, table, hash);
                if index == split {
                    let moves = hash >> level & 1 == 1;
                    prop_assert_eq!(next.depth, level + 1);
                    prop_assert_eq!(next.bucket, if moves { grown[all.len()] } else { place.bucket });
                } else {
                    prop_assert_eq!(next, place);
                }
            }
        }

        /// The growth state derived from a bucket's depth is never ahead of the true state, and it is enough to find
        /// the key's current bucket.
        #[test]
        fn a_depth_tells_the_truth(
            records in 1u64..120,
            old in (0u8..5, any::<prop::sample::Index>()),
            new in (0u8..6, any::<prop::sample::Index>()),
            key in any::<u64>(),
        ) {
            let catalog = catalog(records);
            let table = &catalog.tables()[0];
            let buckets = table.geometry.buckets;
            let state = |(level, split): (u8, prop::sample::Index)| {
                GrowthState { level, split: split.index((buckets << level) as usize) as u64 }
            };
            let (old, new) = (state(old), state(new));
            prop_assume!(old.word() <= new.word());
            let hash = hash_of(table, key);
            let believed = view(&catalog, old).place(&catalog, table, hash);
            let truth = view(&catalog, new);
            let all = all_buckets(table, &truth, new);
            let index = all.iter().position(|&bucket| bucket == believed.bucket);
            let found = new.depth(buckets, index.expect("buckets stay") as u64);
            prop_assert!(found >= believed.depth);
            if found > believed.depth {
                let seen = state_seen(table, hash, believed.depth, found);
                prop_assert!(seen.word() > old.word());
                prop_assert!(seen.word() <= new.word());
                let place = view(&catalog, seen).place(&catalog, table, hash);
                prop_assert!(place.depth > believed.depth);
            } else {
                prop_assert_eq!(truth.place(&catalog, table, hash).bucket, believed.bucket);
            }
        }
    }
}
