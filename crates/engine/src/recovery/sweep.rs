//! One pass of the sweep: the pass reads every LOCK word of every table and removes the strays.
//!
//! Invariant: a pass runs step by step, while transactions run. One pass is enough for all incarnations that were
//! recovered before it began. None of these incarnations takes a lock any more, and locks do not move. A block or
//! segment that is created later contains none of their locks. The pass also reads buckets to which no key leads yet
//! (the next buckets of a segment). A node may have died while it split a bucket into such a bucket, and may have
//! left the new bucket locked.

use crate::site::Context;
use crate::site::metrics::RecoveryEvent;
use crate::steps::settle::{Answer, Bulk, Wish};
use crate::steps::settle::{is_stray, plan_free};
use crate::steps::trees::{Place, Step, Walk};
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::round::Round;
use tarn_store::ids::Failure;
use tarn_store::layout::{DIRECTORY_BYTES, DIRECTORY_NEXT_AT, Geometry, LOCK_AT, SEGMENTS_MAX};
use tarn_store::placement::catalog::Table;

/// The result of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Swept {
    /// The number of LOCK words that the sweep read.
    pub looked_at: u64,
    /// The number of strays that the sweep removed.
    pub freed: u64,
}

impl Swept {
    fn add(&mut self, other: Swept) {
        self.looked_at += other.looked_at;
        self.freed += other.freed;
    }
}

/// A pass that is not finished, with the places that the pass has not read yet.
#[derive(Default)]
pub(super) struct Pass {
    /// The result of the pass so far.
    pub(super) swept: Swept,
    /// The number of shards that the pass has begun. The fields below describe the shard that was begun last.
    shards: usize,
    /// The segments of the shard that are not finished: the start address and the number of buckets of each segment.
    /// The pass is reading the last segment of this list.
    segments: Vec<(Address, u64)>,
    /// The number of buckets of the last segment that the pass has read.
    looked_at: u64,
    /// The next blocks of the overflow chains whose blocks the previous step read.
    chained: Vec<Address>,
    /// The number of ordered indexes that the pass has swept completely.
    trees: usize,
    /// The position of the pass in the next ordered index, if the pass has begun to walk over that index.
    place: Option<Place>,
}

impl Pass {
    /// Reads at most `blocks` buckets, or the next blocks of the chains of the previous step. Returns whether the
    /// pass may still have blocks to read.
    ///
    /// # Errors
    /// An error of the fabric. After an error this pass cannot be continued.
    pub(super) async fn step(&mut self, cx: &Context, blocks: usize) -> Result<bool, Failure> {
        let groups = cx.groups.count();
        let batch = match self.chained.is_empty() {
            false => std::mem::take(&mut self.chained),
            true => match self.shards.checked_sub(1) {
                Some(shard) => {
                    self.next_buckets(&cx.database().catalog.tables()[shard / groups], blocks)
                }
                None => Vec::new(),
            },
        };
        let tables = cx.database().catalog.tables();
        if batch.is_empty() {
            let is_over = self.shards == tables.len() * groups;
            if !is_over {
                let group = GroupId((self.shards % groups) as u16);
                self.begin_shard(cx, &tables[self.shards / groups], group).await?;
                return Ok(true);
            }
            return self.step_tree(cx, blocks).await;
        }
        let table = &tables[(self.shards - 1) / groups];
        let (found, next) = sweep_blocks(cx, table, &batch).await?;
        self.swept.add(found);
        self.chained = next;
        Ok(true)
    }

    /// Runs one step of the walk over an ordered index. Locks do not move in an index, because a node is split or
    /// merged only under its own lock. The walk does not read a node that was merged away: a transaction that uses
    /// the node again meets its lock. A locked node ends the step, because the walk does not go past it.
    async fn step_tree(&mut self, cx: &Context, nodes: usize) -> Result<bool, Failure> {
        let Some(index) = cx.database().catalog.indexes().get(self.trees) else { return Ok(false) };
        cx.follow();
        let mut walk = Walk::resume(cx, index, self.place.take());
        let (mut past, mut held) = (0, Vec::new());
        while past < nodes.max(1) as u64 {
            match walk.next().await? {
                Step::Past(_) => past += 1,
                Step::Held(address, word) => {
                    held.push((address, word));
                    break;
                }
                Step::End => break,
            }
        }
        self.place = walk.place();
        // The next step reads the locked node again, so this step does not count the node.
        let freed = free(cx, &held).await?.freed;
        self.swept.add(Swept { looked_at: past, freed });
        self.trees += usize::from(self.place.is_none());
        Ok(true)
    }

    async fn begin_shard(
        &mut self,
        cx: &Context,
        table: &Table,
        group: GroupId,
    ) -> Result<(), Failure> {
        // The pass follows the newest configuration, because strays lie at the current primary of each group.
        cx.follow();
        let geometry = &table.geometry;
        let header = geometry.header(group);
        let read = Wish::Read(cx.groups.primary(header), Geometry::HEADER_BYTES);
        let [image] = &read_all(cx, &[read]).await?[..] else {
            unreachable!(
                "one READ has one \
            answer"
            )
        };
        self.swept.add(free(cx, &[(header, word_at(image, LOCK_AT))]).await?);
        self.segments.push((Address::new(group, geometry.first_segment_at), geometry.buckets));
        for segment in 0..SEGMENTS_MAX {
            let start = Address::from_word(word_at(image, Geometry::segment_at(segment)));
            if !start.is_null() {
                self.segments.push((start, geometry.buckets << segment));
            }
        }
        self.shards += 1;
        Ok(())
    }

    /// The addresses of the next buckets of the shard. The list is empty if the shard is finished.
    fn next_buckets(&mut self, table: &Table, blocks: usize) -> Vec<Address> {
        let bucket_bytes = table.geometry.bucket_bytes as u64;
        while let Some(&(start, buckets)) = self.segments.last() {
            let first = self.looked_at;
            let last = buckets.min(first.saturating_add(blocks.max(1) as u64));
            if first < last {
                self.looked_at = last;
                let at = |bucket: u64| start.plus((bucket * bucket_bytes) as usize);
                return (first..last).map(at).collect();
            }
            self.segments.pop();
            self.looked_at = 0;
        }
        Vec::new()
    }
}

/// Sweeps some blocks. Returns the addresses of the next blocks in the chains of these blocks.
async fn sweep_blocks(
    cx: &Context,
    table: &Table,
    blocks: &[Address],
) -> Result<(Swept, Vec<Address>), Failure> {
    let groups = &cx.groups;
    let read = |block: &Address| Wish::Read(groups.primary(*block), table.geometry.bucket_bytes);
    let images = read_all(cx, &blocks.iter().map(read).collect::<Vec<Wish>>()).await?;
    let (mut words, mut next) = (Vec::new(), Vec::new());
    for (block, image) in blocks.iter().zip(&images) {
        let slots = (0..table.geometry.slots)
            .map(|slot| DIRECTORY_BYTES + slot * table.slot.slot_bytes + LOCK_AT);
        for at in std::iter::once(LOCK_AT).chain(slots) {
            words.push((block.plus(at - LOCK_AT), word_at(image, at)));
        }
        let after = Address::from_word(word_at(image, DIRECTORY_NEXT_AT));
        next.extend((!after.is_null()).then_some(after));
    }
    Ok((free(cx, &words).await?, next))
}

/// Removes the strays among the given locks.
async fn free(cx: &Context, locks: &[(Address, u64)]) -> Result<Swept, Failure> {
    let mut round = Round::new();
    let mut freed = 0;
    for lock in locks.iter().filter(|(_, word)| is_stray(cx, *word)) {
        plan_free(cx, &mut round, *lock);
        cx.metrics.recovery(RecoveryEvent::StraySwept);
        freed += 1;
    }
    cx.port.execute(&mut round).await?;
    Ok(Swept { looked_at: locks.len() as u64, freed })
}

async fn read_all(cx: &Context, wishes: &[Wish]) -> Result<Vec<Vec<u8>>, Failure> {
    let answers = Bulk::new(cx).run(wishes).await?;
    let bytes = answers.into_iter().map(|answer| match answer {
        Answer::Done(bytes) => Ok(bytes),
        Answer::Down => Err(Failure::Fabric),
    });
    bytes.collect()
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..].first_chunk().expect("inside the image");
    u64::from_le_bytes(*word)
}
