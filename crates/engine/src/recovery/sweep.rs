//! A pass of the sweep: it looks at every LOCK word of every table, and takes the strays away.
//!
//! Invariant: a pass goes step by step, beside running transactions. One pass is enough for all lives that
//! were recovered before it began. None of them takes a lock any more, locks do not move, and a block or
//! segment that comes into being later holds none of their locks. Buckets that no key leads to yet (the next
//! ones of a segment) are looked at too: a split may have died on them.

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
    /// LOCK words looked at.
    pub looked_at: u64,
    /// Strays taken away.
    pub freed: u64,
}

impl Swept {
    fn add(&mut self, other: Swept) {
        self.looked_at += other.looked_at;
        self.freed += other.freed;
    }
}

/// A pass under way, with the places that it has still to look at.
#[derive(Default)]
pub(super) struct Pass {
    /// The result so far.
    pub(super) swept: Swept,
    /// How many shards were begun. The fields below are about the last one.
    shards: usize,
    /// The shard's segments that are not done: where each begins, and its buckets. The last one is being
    /// looked at.
    segments: Vec<(Address, u64)>,
    /// How many buckets of the last segment were looked at.
    looked_at: u64,
    /// The next blocks of the chains of the last step.
    chained: Vec<Address>,
    /// How many ordered indexes are swept.
    trees: usize,
    /// Where the walk over the next index is, if it has begun.
    place: Option<Place>,
}

impl Pass {
    /// Looks at no more than this many buckets, or at the next blocks of their chains. Returns whether there
    /// may be more.
    ///
    /// # Errors
    /// An error of the fabric: then the pass is lost.
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

    /// Takes a step of the walk over an ordered index. A stray stays where it was: nothing is split or merged
    /// under a lock. A node that was merged away is not looked at: a transaction that uses it again meets its
    /// lock. A node that is locked ends the step: the walk does not go past it.
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
        // The next step looks at the locked node again: each node counts once.
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
        // Strays lie where the primary is now.
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

    /// The next buckets of the shard; none if the shard is done.
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

/// Sweeps some blocks. Returns the next blocks of their chains.
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

/// Takes away the strays among these locks.
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
