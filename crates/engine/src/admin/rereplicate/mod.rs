//! Fills a joining copy of a replica group while transactions run.
//!
//! Invariant: every WRITE of a transaction also goes to the joining copy. Transactions begin to do so before the
//! copier copies the first byte. The copier copies units; a unit is all memory that one lock protects. The place of
//! the lock decides how the copier copies a unit while transactions write the unit. If the lock is in the memory
//! node, `looked` compares LOCK and VERSION before and after the WRITE. If the lock is in a compute node, `locked`
//! takes the lock. If a lock service grants the lock, `granted` takes it. The arguments why such a copy is correct are
//! in docs/design/0013-memory-node-recovery.md.

mod granted;
mod locked;
mod looked;
mod unit;

use crate::recovery::Pace;
use crate::requests::timestamp::pool_word;
use crate::services::timestamp::Timestamps;
use crate::site::Context;
use crate::steps::settle::{Answer, Bulk, Wish, is_stray};
use crate::steps::trees::{Step, Walk};
use tarn_fabric::address::{Address, GroupId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_store::ids::Failure;
use tarn_store::layout::index_plan::Index;
use tarn_store::layout::{DIRECTORY_BYTES, Geometry, LOCK_AT, SEGMENTS_MAX};
use tarn_store::placement::catalog::{SUPERBLOCK_BYTES, Table};
use unit::{Kind, Unit, word};

/// The number of chunk words that the copier copies in one step.
const WORDS_AT_ONCE: u64 = 512;

/// The counters of the copier's work.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Copied {
    /// The number of units that the copier read.
    pub units: u64,
    /// The number of units of which the copier wrote some bytes.
    pub written: u64,
    /// The number of bytes that the copier wrote.
    pub bytes: u64,
    /// The number of units that the copier read again because a transaction had written them.
    pub again: u64,
}

impl Copied {
    pub(crate) fn add(&mut self, other: Copied) {
        self.units += other.units;
        self.written += other.written;
        self.bytes += other.bytes;
        self.again += other.again;
    }
}

/// The reason why a copier stops.
enum Stop {
    /// The repair would not accept the finished copy.
    BrokenOff,
    /// The fabric failed.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

/// A unit with the images that the copier copied.
type Copy = (Unit, Vec<Vec<u8>>);

/// The copier of one joining copy.
struct Copier<'a> {
    cx: &'a Context,
    bulk: Bulk<'a>,
    to: NodeSlot,
    pace: Pace,
    /// Returns whether the repair can still accept the copy when it is finished.
    goes_on: &'a dyn Fn() -> bool,
    done: Copied,
}

/// Copies a whole replica group to its joining copy on a node, at `pace`. Returns `None` if `goes_on` returned
/// false between two steps and the copying stopped.
///
/// # Errors
/// An error of the fabric: this node was expelled, or one of the two memory nodes is down.
pub async fn copy(
    cx: &Context,
    (group, to): (GroupId, NodeSlot),
    pace: Pace,
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<Copied>, Failure> {
    let (bulk, done) = (Bulk::new(cx), Copied::default());
    let mut copier = Copier { cx, bulk, to, pace, goes_on, done };
    let _guest = (!cx.is_in_lock_service()).then(|| Guest(cx));
    match copier.copy_group(group).await {
        Ok(()) => Ok(Some(copier.done)),
        Err(Stop::BrokenOff) => Ok(None),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

/// A thread that is a machine of the lock service only while it copies: afterwards it may serve no mail.
struct Guest<'a>(&'a Context);

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.leave_lock_service();
    }
}

impl Copier<'_> {
    async fn copy_group(&mut self, group: GroupId) -> Result<(), Stop> {
        let cx = self.cx;
        self.copy_superblock(group).await?;
        let catalog = &cx.database().catalog;
        self.copy_words(catalog.chunk_word(group, 0), catalog.chunks()).await?;
        for table in catalog.tables() {
            self.copy_shard(table, group).await?;
        }
        for index in catalog.indexes() {
            self.copy_tree(index, group).await?;
        }
        Ok(())
    }

    /// Returns an error if the repair could not accept the copy any more.
    fn go_on(&self) -> Result<(), Stop> {
        if (self.goes_on)() { Ok(()) } else { Err(Stop::BrokenOff) }
    }

    /// Copies the superblock without the timestamp counter. The counter changes all the time, and only the primary's
    /// counter is used.
    async fn copy_superblock(&mut self, group: GroupId) -> Result<(), Stop> {
        let end = SUPERBLOCK_BYTES / 8;
        let start = Address::new(group, 0);
        match self.cx.timestamps {
            Timestamps::Pool(_) => {
                let counter = pool_word().offset_bytes() / 8;
                self.copy_words(start, counter).await?;
                let behind = counter + 1;
                self.copy_words(start.plus(behind as usize * 8), end - behind).await
            }
            _ => self.copy_words(start, end).await,
        }
    }

    /// Copies words that transactions change one by one without a lock. Transactions change such a word by CAS at the
    /// primary first, then at the other members of the group.
    async fn copy_words(&mut self, start: Address, count: u64) -> Result<(), Stop> {
        for first in (0..count).step_by(WORDS_AT_ONCE as usize) {
            let bytes = (WORDS_AT_ONCE.min(count - first) * 8) as usize;
            let at = start.plus(first as usize * 8);
            let reads =
                [Wish::Read(self.cx.groups.primary(at), bytes), Wish::Read(at.at(self.to), bytes)];
            loop {
                let [image, copy] = &self.read(&reads).await?[..] else { unreachable!() };
                if image == copy {
                    break;
                }
                self.write(vec![Wish::Write(at.at(self.to), image.clone())]).await?;
                // A word may have changed at the primary before the copier's WRITE overwrote it at the copy. So the
                // copier reads the words again.
            }
        }
        Ok(())
    }

    /// Copies a shard. A split may move a slot from a bucket ahead of the copier to a bucket behind it, while the
    /// slot's bodies stay in place. The copier would then miss the bodies of that slot. Each split changes the index
    /// header. So the copier repeats its walk over the buckets until the header is the same at the end as at the
    /// beginning.
    async fn copy_shard(&mut self, table: &Table, group: GroupId) -> Result<(), Stop> {
        let mut header = self.copy_header(table, group).await?;
        loop {
            self.copy_segments(table, group, &header).await?;
            let now = self.copy_header(table, group).await?;
            if now == header {
                return Ok(());
            }
            header = now;
        }
    }

    /// Copies the index header. Returns an image of the header from a moment at which no split was under way.
    async fn copy_header(&mut self, table: &Table, group: GroupId) -> Result<Vec<u8>, Stop> {
        let unit = Unit::new(Kind::Header, table.geometry.header(group), Geometry::HEADER_BYTES);
        let mut copied = self.copy_units(table, vec![unit]).await?;
        let (_, mut images) = copied.pop().expect("the only unit was copied");
        Ok(images.swap_remove(0))
    }

    async fn copy_segments(
        &mut self,
        table: &Table,
        group: GroupId,
        header: &[u8],
    ) -> Result<(), Stop> {
        let geometry = &table.geometry;
        let mut segments = vec![(Address::new(group, geometry.first_segment_at), geometry.buckets)];
        for segment in 0..SEGMENTS_MAX {
            let at = Geometry::segment_at(segment);
            let start = Address::from_word(word(header, at));
            segments.extend((!start.is_null()).then_some((start, geometry.buckets << segment)));
        }
        for (start, buckets) in segments {
            for first in (0..buckets).step_by(self.pace.blocks.max(1)) {
                let last = buckets.min(first + self.pace.blocks.max(1) as u64);
                let began = self.cx.port.now();
                self.copy_buckets(table, start, first..last).await?;
                let took = self.cx.port.now() - began;
                self.rest(self.pace.after_copying(took)).await;
                self.go_on()?;
            }
        }
        Ok(())
    }

    /// Copies buckets. The copier copies their directory records first, because directory records contain the
    /// addresses of the blocks of each chain. A transaction that links a new block writes that block to the joining
    /// copy itself.
    async fn copy_buckets(
        &mut self,
        table: &Table,
        start: Address,
        which: std::ops::Range<u64>,
    ) -> Result<(), Stop> {
        let at = |bucket: u64| start.plus((bucket * table.geometry.bucket_bytes as u64) as usize);
        let directory = |bucket| Unit::new(Kind::Directory, at(bucket), DIRECTORY_BYTES);
        let directories = self.copy_units(table, which.map(directory).collect()).await?;
        let blocks = directories.into_iter().flat_map(|(unit, _)| {
            let bucket = unit.guard;
            unit.spans.into_iter().map(move |(block, _)| (bucket, block))
        });
        let slot_bytes = table.slot.slot_bytes;
        let slots = blocks.flat_map(|(bucket, block)| {
            (0..table.geometry.slots).map(move |slot| {
                let address = block.plus(DIRECTORY_BYTES + slot * slot_bytes);
                Unit::new(Kind::Slot { bucket }, address, slot_bytes)
            })
        });
        let slots: Vec<Unit> = slots.collect();
        self.copy_units(table, slots).await?;
        Ok(())
    }

    /// Copies the nodes of an ordered index that lie in `group`. One walk over the tree is enough. A transaction that
    /// creates a node during the walk writes the whole node to the joining copy. A transaction that moves entries to
    /// another node also writes these entries to the joining copy. Dead nodes are not copied. A compute node that has
    /// merged a node away uses the dead node again only in the same configuration. In that configuration the joining
    /// copy also has the mark of death.
    async fn copy_tree(&mut self, index: &Index, group: GroupId) -> Result<(), Stop> {
        let table = self.cx.table(index.table);
        let mut walk = Walk::new(self.cx, index);
        loop {
            let began = self.cx.port.now();
            let (mut nodes, mut last) = (Vec::new(), Step::End);
            for _ in 0..self.pace.blocks.max(1) {
                last = walk.next().await?;
                let Step::Past(address) = last else { break };
                if address.group() == group {
                    nodes.push(Unit::new(Kind::Node, address, index.shape.node_bytes));
                }
            }
            self.copy_units(table, nodes).await?;
            if let Step::Held(address, lock) = last
                && is_stray(self.cx, lock)
            {
                let at = self.cx.groups.primary(address.plus(LOCK_AT));
                self.write(vec![Wish::Clear(at, lock)]).await?;
            }
            let took = self.cx.port.now() - began;
            self.rest(self.pace.after_copying(took)).await;
            self.go_on()?;
            if last == Step::End {
                return Ok(());
            }
        }
    }

    /// Pauses between two steps. A machine of a lock service serves its mail meanwhile.
    async fn rest(&self, pause: Nanos) {
        let (port, since) = (&self.cx.port, self.cx.port.now());
        while self.cx.is_in_lock_service() && port.now() - since < pause {
            self.cx.serve_locks();
            port.yield_now().await;
        }
        port.sleep(pause - (port.now() - since)).await;
    }

    /// Copies units of one kind. Returns the units with the images that the copier copied.
    async fn copy_units(&mut self, table: &Table, units: Vec<Unit>) -> Result<Vec<Copy>, Stop> {
        self.done.units += units.len() as u64;
        let are_slots = units.first().is_some_and(|it| matches!(it.kind, Kind::Slot { .. }));
        let are_apart = are_slots && self.cx.copies_under_service_locks();
        match self.cx.has_services() || are_apart {
            true => self.copy_locked(table, units).await,
            false => self.copy_looked(table, units).await,
        }
    }

    async fn read(&mut self, wishes: &[Wish]) -> Result<Vec<Vec<u8>>, Failure> {
        let bytes = self.bulk.run(wishes).await?.into_iter().map(|answer| match answer {
            Answer::Done(bytes) => Ok(bytes),
            Answer::Down => Err(Failure::Fabric),
        });
        bytes.collect()
    }

    /// Sends WRITEs to the copy. If the future is dropped, WRITEs may still be in flight. `writes_copy` is true until
    /// the copy has acknowledged all these WRITEs.
    async fn write(&mut self, wishes: Vec<Wish>) -> Result<(), Failure> {
        self.cx.writes_copy.set(true);
        let written = self.read(&wishes).await;
        self.cx.writes_copy.set(false);
        written.map(|_| ())
    }
}
