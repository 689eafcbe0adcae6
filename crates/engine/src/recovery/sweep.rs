//! The sweep: looks at every LOCK word of every table, and takes the strays away.
//!
//! Invariant: paced, and beside running transactions. One pass is enough for all lives that were
//! recovered before it began: none of them takes a lock any more, locks do not move, and a block or
//! segment that comes into being later holds none of theirs. Buckets that no key leads to yet (the next
//! ones of a segment) are looked at too: a split may have died on them.

use super::stray::{is_stray, plan_free};
use super::{Answer, Bulk, Wish};
use crate::catalog::Table;
use crate::context::Context;
use crate::index::SEGMENTS_MAX;
use crate::index::hash::Geometry;
use crate::layout::{DIRECTORY_BYTES, DIRECTORY_NEXT_AT, LOCK_AT};
use crate::metrics::RecoveryEvent;
use crate::outcome::Failure;
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::clock::Nanos;
use tarn_fabric::round::Round;

/// How a sweep makes room for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Blocks (buckets, and blocks of chains) that are looked at between two pauses.
    pub blocks: usize,
    /// How long each pause is.
    pub pause_ns: u64,
    /// How often [`super::attend`] asks whom to recover.
    pub look_every_ns: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { blocks: 64, pause_ns: 20_000, look_every_ns: 20_000 }
    }
}

/// What a sweep found.
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

/// One pass over all tables. A thread that runs nothing takes over the map of now first: the primary of an
/// older one may be gone. A primary changes only if it dies, so a map that falls behind on the way brings
/// an error, never another node's locks.
///
/// # Errors
/// The fabric's; a table's group whose primary is down cannot be swept.
pub async fn sweep(cx: &Context, pace: Pace) -> Result<Swept, Failure> {
    cx.follow();
    let mut swept = Swept::default();
    for table in cx.database().catalog.tables() {
        for group in 0..cx.groups.count() {
            swept.add(sweep_shard(cx, table, GroupId(group as u16), pace).await?);
        }
    }
    Ok(swept)
}

async fn sweep_shard(
    cx: &Context,
    table: &Table,
    group: GroupId,
    pace: Pace,
) -> Result<Swept, Failure> {
    let geometry = &table.geometry;
    let header = geometry.header(group);
    let read = Wish::Read(cx.groups.primary(header), Geometry::HEADER_BYTES);
    let [image] = &read_all(cx, &[read]).await?[..] else { unreachable!("one wish") };
    let mut swept = free(cx, &[(header, word_at(image, LOCK_AT))]).await?;
    let mut segments = vec![(Address::new(group, geometry.first_segment_at), geometry.buckets)];
    for segment in 0..SEGMENTS_MAX {
        let start = Address::from_word(word_at(image, Geometry::SEGMENTS_AT + segment * 8));
        if !start.is_null() {
            segments.push((start, geometry.buckets << segment));
        }
    }
    for (start, buckets) in segments {
        let at = |bucket: u64| start.plus((bucket * geometry.bucket_bytes as u64) as usize);
        for first in (0..buckets).step_by(pace.blocks.max(1)) {
            let last = buckets.min(first + pace.blocks.max(1) as u64);
            let mut blocks: Vec<Address> = (first..last).map(at).collect();
            while !blocks.is_empty() {
                let (found, next) = sweep_blocks(cx, table, &blocks).await?;
                swept.add(found);
                blocks = next;
                cx.port.sleep(Nanos(pace.pause_ns)).await;
            }
        }
    }
    Ok(swept)
}

/// Sweeps some blocks; the next blocks of their chains.
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

/// Takes away those of these locks that are strays.
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
