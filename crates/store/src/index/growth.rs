//! Decides when and where a hash index grows: linear hashing, one bucket at a time, in a fixed order.
//!
//! An insert that was placed in an overflow block notes that its shard should grow. The next transaction of the same
//! thread first splits the bucket at the shard's split position. The bucket that is split need not be the bucket that
//! overflowed. The method is Litwin's, "Linear hashing: a new tool for file and table addressing", VLDB 1980, with
//! two differences. First, Tarn estimates the load from a sample of buckets, because no node counts the records. (If
//! the sample were only the bucket at the split position, a bucket that happens to be empty would stop growth.)
//! Second, readers correct their knowledge of the shard's growth in the same way as the clients of LH* (Litwin,
//! Neimat, Schneider, SIGMOD 1993). A bucket's depth gives a lower bound of the shard's growth.
//!
//! Invariant: this file knows no protocol. In this file, a shard is the part of one table in one replica group. A
//! shard's index header is written only under the header's lock, and the header's STATE only grows. A transaction
//! commits a segment's address before the first split that uses the segment, and the address never changes. The state
//! in this file belongs to one thread and may be lost, because it decides only when to split a bucket. The state
//! never decides whether an answer is correct.

use super::hash::LookupContext;
use super::locate::GrowthState;
use crate::layout::{Geometry, SEGMENTS_MAX};
use crate::placement::catalog::Table;
use crate::schema::TableId;
use std::cell::{Cell, RefCell};
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::rng::mix;
use tarn_fabric::round::{BufferOffset, Round};

/// A shard grows when more than this many of every 100 slots are in use.
pub const LOAD_PERCENT: u64 = 50;
/// The number of growth requests that a thread ignores after it has found the heap full.
const REST_WHEN_FULL: u32 = 4096;
/// The number of growth requests that a thread ignores after it has found the load low. The thread ignores one
/// request for each `.0` buckets, and at most `.1` requests.
const REST_WHEN_LIGHT: (u64, u64) = (32, 32);
/// The unit of the estimated fill of a bucket: one used slot counts as this number.
const FILL_UNIT: u64 = 256;
/// The number of buckets that are read to estimate the load.
const SAMPLE: u64 = 8;
/// The maximum number of buckets that one transaction splits.
const BATCH_MAX: usize = 16;

/// The part of one table that lies in one replica group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// The table to which the shard belongs.
    pub table: TableId,
    /// The replica group in which the shard lies.
    pub group: GroupId,
}

/// The result of one attempt to grow a shard, if the attempt did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grown {
    /// Some buckets of the shard were split.
    Split {
        /// The number of split buckets.
        buckets: u64,
    },
    /// The next segment was added, so later splits can put new buckets into this segment.
    Extended,
    /// The shard was not changed, because its load is low.
    TooLight,
    /// The shard was not changed. The shard cannot grow further, or the bucket's chain is so long that the undo log
    /// of the split does not fit.
    TooLarge,
}

#[derive(Default)]
struct ShardGrowth {
    busy: Cell<bool>,
    rest: Cell<u32>,
    /// The estimated average number of slots in use per bucket, times `FILL_UNIT`.
    fill: Cell<u64>,
    /// The maximum number of buckets that the next transaction splits. After a transaction whose changes did not fit
    /// into its log, the number is smaller.
    batch: Cell<usize>,
    /// The number and address of a segment that was allocated but not entered into the index header yet.
    spare: Cell<(usize, Address)>,
}

/// One thread's state for growth: its requests and its estimates of the load.
pub struct Growth {
    shards: Vec<ShardGrowth>,
    groups: usize,
    wanted: RefCell<Vec<Shard>>,
    enabled: Cell<bool>,
}

impl Growth {
    /// Creates the state of a thread that has made no request yet.
    pub fn new(tables: usize, groups: usize) -> Growth {
        let full = Cell::new(Geometry::BIN_SLOTS as u64 * FILL_UNIT);
        let shard = || ShardGrowth {
            fill: full.clone(),
            batch: Cell::new(BATCH_MAX),
            ..ShardGrowth::default()
        };
        let shards = (0..tables * groups).map(|_| shard()).collect();
        let (wanted, enabled) = (RefCell::new(Vec::new()), Cell::new(true));
        Growth { shards, groups, wanted, enabled }
    }

    fn shard(&self, shard: Shard) -> &ShardGrowth {
        &self.shards[usize::from(shard.table.0) * self.groups + usize::from(shard.group.0)]
    }

    /// Switches growth on (the default) or off. While growth is off, overflow chains become longer instead.
    pub fn enable(&self, enabled: bool) {
        self.enabled.set(enabled);
        self.wanted.borrow_mut().clear();
    }

    /// Whether any shard of this thread waits for growth.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        !self.wanted.borrow().is_empty()
    }

    /// Notes that an insert found its bucket full, so that the shard should grow.
    #[cold]
    pub fn request(&self, shard: Shard) {
        let state = self.shard(shard);
        if !self.enabled.get() || state.busy.get() {
            return;
        }
        if state.rest.get() > 0 {
            return state.rest.set(state.rest.get() - 1);
        }
        let mut wanted = self.wanted.borrow_mut();
        if !wanted.contains(&shard) {
            wanted.push(shard);
        }
    }

    /// Takes the most recent growth request. Until the returned guard is dropped, no other coordinator of this thread
    /// works on the request's shard.
    pub fn take(&self) -> Option<Working<'_>> {
        let shard = self.wanted.borrow_mut().pop()?;
        self.shard(shard).busy.set(true);
        Some(Working { growth: self, shard })
    }

    /// Makes this thread ignore the shard's next growth requests, because the heap is full.
    pub fn rest_when_full(&self, shard: Shard) {
        self.shard(shard).rest.set(REST_WHEN_FULL);
    }

    /// Returns the number of buckets that the next transaction should lock and split. The number of buckets is at
    /// most `room`, and at least 1.
    pub fn batch(&self, shard: Shard, step: &Step, buckets: u64, room: usize) -> usize {
        let wanted = self.splits_wanted(shard, step, buckets);
        wanted.min(self.shard(shard).batch.get()).min(room).max(1)
    }

    /// Notes whether the changes of a transaction that split buckets fitted into the transaction's log.
    pub fn note_fit(&self, shard: Shard, fitted: bool) {
        let batch = &self.shard(shard).batch;
        batch.set(if fitted { (batch.get() * 2).min(BATCH_MAX) } else { 1 });
    }

    /// Adds to the load estimate the numbers of used slots in some buckets.
    pub fn sample(&self, shard: Shard, used: impl ExactSizeIterator<Item = usize>) {
        let state = self.shard(shard);
        let buckets = used.len().max(1) as u64;
        let mean = used.map(|each| each as u64 * FILL_UNIT).sum::<u64>() / buckets;
        state.fill.set((state.fill.get() * 3 + mean) / 4);
    }

    /// Estimates the number of splits that would reduce the shard's load to [`LOAD_PERCENT`]. If the result is 0, the
    /// thread ignores the shard's next growth requests.
    pub fn splits_wanted(&self, shard: Shard, step: &Step, buckets: u64) -> usize {
        let state = self.shard(shard);
        let in_use = step.before.buckets(buckets);
        let full = Geometry::BIN_SLOTS as u64 * FILL_UNIT;
        let wanted = in_use * state.fill.get() * 100 / (full * LOAD_PERCENT);
        if wanted <= in_use {
            let (share, most) = REST_WHEN_LIGHT;
            state.rest.set((in_use / share).min(most) as u32);
        }
        wanted.saturating_sub(in_use) as usize
    }

    /// Returns a segment that this thread has allocated earlier and could not enter into the index header.
    pub fn spare(&self, shard: Shard, segment: usize) -> Option<Address> {
        let (number, address) = self.shard(shard).spare.get();
        (number == segment && !address.is_null()).then_some(address)
    }

    /// Keeps an allocated segment until a transaction has entered it into the index header. The caller passes
    /// `Address::NULL` after the segment was entered.
    pub fn keep_spare(&self, shard: Shard, segment: usize, address: Address) {
        self.shard(shard).spare.set((segment, address));
    }
}

/// A growth request on which a coordinator of this thread is working.
pub struct Working<'a> {
    growth: &'a Growth,
    /// The shard that should grow.
    pub shard: Shard,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.growth.shard(self.shard).busy.set(false);
    }
}

/// One split: the bucket that is split, and the bucket to which about half of the split bucket's records move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The shard's state before the split.
    pub before: GrowthState,
    /// The shard's state after the split.
    pub after: GrowthState,
    /// The bucket to split.
    pub old: Address,
    /// The bucket that the split brings into use.
    pub new: Address,
}

/// The next change by which a shard can grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The shard can make this split.
    Split(Step),
    /// The shard needs one more segment before the next split.
    Extend {
        /// The segment's number, counted from 0.
        segment: usize,
        /// The size of the new segment in bytes.
        bytes: u64,
    },
    /// The shard cannot grow, because it has doubled the maximum number of times.
    Full,
}

/// The contents of an index header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexHeader {
    /// The growth state of the shard.
    pub state: GrowthState,
    /// The address words of the segments after the first.
    pub segments: [u64; SEGMENTS_MAX],
}

impl IndexHeader {
    /// Reads a header from its image.
    pub fn read(round: &Round, at: BufferOffset) -> IndexHeader {
        let segment = |index: usize| round.word(at.plus(Geometry::segment_at(index)));
        let state = GrowthState::from_word(round.word(at.plus(Geometry::STATE_AT)));
        IndexHeader { state, segments: std::array::from_fn(segment) }
    }

    /// Whether the header contains every segment that its growth state needs. A READ of several lines may return a
    /// new STATE with old segments. A segment's address never changes, so each address in the image that is not 0 is
    /// correct.
    pub fn is_complete(&self) -> bool {
        self.segments[..self.state.segments()].iter().all(|&segment| segment != 0)
    }

    /// Removes the segments that `state` does not need, because they may not be committed.
    #[must_use]
    pub fn limited_to(mut self, state: GrowthState) -> IndexHeader {
        self.state = state;
        self.segments[state.segments()..].fill(0);
        self
    }

    /// Returns a random sample of the buckets in use, chosen by `seed`. The caller estimates the load from this
    /// sample.
    pub fn sample(
        near: LookupContext<'_>,
        table: &Table,
        group: GroupId,
        state: GrowthState,
        seed: u64,
    ) -> impl Iterator<Item = Address> {
        let buckets = table.geometry.buckets;
        (0..SAMPLE).map(move |each| {
            let index = mix(seed ^ (each << 48)) % state.buckets(buckets);
            near.view.bucket(table, group, index % buckets, index / buckets)
        })
    }

    /// Returns the next splits of the shard: at most `count` splits, beginning with `first`, that belong to the same
    /// level as `first`.
    pub fn steps(
        near: LookupContext<'_>,
        table: &Table,
        group: GroupId,
        first: Step,
        count: usize,
    ) -> Vec<Step> {
        let next = |last: &Step| {
            let same_level = last.after.level == first.before.level;
            same_level.then(|| step_at(near, table, group, last.after))
        };
        std::iter::successors(Some(first), next).take(count).collect()
    }

    /// Returns the next change by which the shard can grow. The caller has read this header under the header's lock.
    /// `next` also stores the header's contents in the index view.
    pub fn next(&self, near: LookupContext<'_>, table: &Table, group: GroupId) -> Next {
        let (before, buckets) = (self.state, table.geometry.buckets);
        near.view.learn(table, group, before.word(), &self.segments);
        let segment = usize::from(before.level);
        if segment == SEGMENTS_MAX {
            return Next::Full;
        }
        if self.segments[segment] == 0 {
            let bytes = (buckets << segment) * table.geometry.bucket_bytes as u64;
            return Next::Extend { segment, bytes };
        }
        Next::Split(step_at(near, table, group, before))
    }
}

/// Returns the split of the bucket at the shard's split position. The index view must already contain the addresses
/// of the segments.
fn step_at(near: LookupContext<'_>, table: &Table, group: GroupId, before: GrowthState) -> Step {
    let buckets = table.geometry.buckets;
    let (base, bits) = (before.split % buckets, before.split / buckets);
    let old = near.view.bucket(table, group, base, bits);
    let new = near.view.bucket(table, group, base, bits | (1 << before.level));
    Step { before, after: before.after_split(buckets), old, new }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: Shard = Shard { table: TableId(1), group: GroupId(2) };

    /// No segment's address lies in the first word of a line. So the header's lines are like a record's lines, and
    /// recovery can identify them by their first words.
    #[test]
    fn no_segment_s_address_lies_where_a_line_begins_or_another_does() {
        let places: Vec<usize> = (0..SEGMENTS_MAX).map(Geometry::segment_at).collect();
        assert!(places.is_sorted_by(|one, next| one + 8 <= *next), "{places:?}");
        assert!(places.iter().all(|at| at % 64 >= 8 && at % 8 == 0), "{places:?}");
        assert!(places[0] > Geometry::STATE_AT + 8, "{places:?}");
    }

    #[test]
    fn a_request_is_taken_once_and_then_rests() {
        let growth = Growth::new(2, 3);
        growth.request(SHARD);
        growth.request(SHARD);
        let working = growth.take().expect("a request");
        assert_eq!(working.shard, SHARD);
        growth.request(SHARD);
        assert!(!growth.is_wanted(), "somebody works on it");
        drop(working);
        growth.rest_when_full(SHARD);
        for _ in 0..REST_WHEN_FULL {
            growth.request(SHARD);
            assert!(!growth.is_wanted());
        }
        growth.request(SHARD);
        assert!(growth.is_wanted());
        growth.enable(false);
        growth.request(SHARD);
        assert!(!growth.is_wanted());
    }

    #[test]
    fn a_light_shard_does_not_grow_and_a_full_one_does() {
        let growth = Growth::new(2, 3);
        let before = GrowthState { level: 2, split: 8 };
        let after = before.after_split(4);
        let step = Step { before, after, old: Address::NULL, new: Address::NULL };
        let wanted = |used: usize| {
            (0..40).for_each(|_| growth.sample(SHARD, std::iter::repeat_n(used, 8)));
            growth.splits_wanted(SHARD, &step, 4)
        };
        assert_eq!(before.buckets(4), 24);
        assert_eq!(wanted(4), 0);
        assert_eq!(growth.batch(SHARD, &step, 4, 9), 1);
        assert!((10..=20).contains(&wanted(7)), "{}", wanted(7));
        assert_eq!(growth.batch(SHARD, &step, 4, 9), 9);
        growth.note_fit(SHARD, false);
        assert_eq!(growth.batch(SHARD, &step, 4, 9), 1);
        growth.note_fit(SHARD, true);
        assert_eq!(growth.batch(SHARD, &step, 4, 9), 2);
    }
}
