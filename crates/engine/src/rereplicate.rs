//! Makes a joining copy complete while transactions run.
//!
//! Invariant: every WRITE of a transaction goes to the joining copy as well, from before the first byte
//! is copied. What is copied are units, each under the LOCK and VERSION of one record: it is read free at
//! version v, written to the copy, and looked at again; if it is still free at v, the copy has it, else
//! all of it once more. A writer holds LOCK until every copy has acknowledged, so whatever reached the
//! joining copy before our WRITE shows in the second look; what reaches it after our WRITE is newer.
//! LOCK words are not copied: a backup's are zero. The argument, and why growth needs nothing more, is
//! in docs/design/0013-memory-node-recovery.md.

use crate::catalog::{SUPERBLOCK_BYTES, Table};
use crate::context::Context;
use crate::index::SEGMENTS_MAX;
use crate::index::btree::plan::Index;
use crate::index::hash::Geometry;
use crate::layout::{DIRECTORY_BYTES, DIRECTORY_NEXT_AT, LOCK_AT, VERSION_AT};
use crate::outcome::Failure;
use crate::recovery::{Answer, Bulk, Pace, Wish, is_stray};
use crate::trees::{Step, Walk};
use tarn_fabric::address::{Address, GroupId, LINE_BYTES, NodeSlot};

/// Chunk words that are copied at a time.
const WORDS_AT_ONCE: u64 = 512;

/// What a copier did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Copied {
    /// Units looked at.
    pub units: u64,
    /// Units of which something was written.
    pub written: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Units that were looked at once more, because somebody wrote them.
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

/// What a unit is the image of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// An index header.
    Header,
    /// A bucket's directory record, and the links of its chain.
    Directory,
    /// A slot, and its body.
    Slot,
    /// A node of an ordered index.
    Node,
}

/// What stands under one LOCK.
#[derive(Clone, Debug)]
struct Unit {
    kind: Kind,
    /// The LOCK word.
    guard: Address,
    /// What is known to belong to it, the line with the guard first.
    spans: Vec<(Address, usize)>,
}

impl Unit {
    fn new(kind: Kind, guard: Address, bytes: usize) -> Unit {
        Unit { kind, guard, spans: vec![(guard, bytes)] }
    }

    /// What belongs to it, as its image says; the image is of one moment.
    fn spans_of(&self, table: &Table, images: &[Vec<u8>]) -> Vec<(Address, usize)> {
        let mut spans = vec![self.spans[0]];
        match self.kind {
            Kind::Header | Kind::Node => {}
            Kind::Directory => {
                for image in images {
                    let next = Address::from_word(word(image, DIRECTORY_NEXT_AT));
                    spans.extend((!next.is_null()).then_some((next, DIRECTORY_BYTES)));
                }
            }
            Kind::Slot => {
                let bytes = table.slot.body_bytes();
                spans.extend(table.slot.apart(&images[0]).map(|body| (body, bytes)));
            }
        }
        spans
    }

    /// Whether one READ of one line brings all of it.
    fn is_one_line(&self) -> bool {
        let (first, bytes) = self.spans[0];
        self.spans.len() == 1 && first.offset_bytes() as usize % LINE_BYTES + bytes <= LINE_BYTES
    }
}

/// What a look at a unit has shown.
enum Seen {
    /// Its images at the primary, of one moment, and at the copy.
    Free(Vec<Vec<u8>>, Vec<Vec<u8>>),
    /// Somebody holds it, under this LOCK, or has changed it meanwhile.
    Busy(u64),
}

impl Seen {
    /// By images whose first line is of one moment, and all of them if `is_steady`.
    fn of(is_steady: bool, images: Vec<Vec<u8>>, copies: Vec<Vec<u8>>) -> Seen {
        match word(&images[0], LOCK_AT) {
            0 if is_steady => Seen::Free(images, copies),
            lock => Seen::Busy(lock),
        }
    }
}

/// Units in runs that are read at once: of one line each, one behind the other. A READ of many lines brings
/// each of them as of one moment. Any other unit is alone.
fn runs(units: &[Unit]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let follows = index.checked_sub(1).is_some_and(|before| {
            let (at, bytes) = units[before].spans[0];
            let is_next = unit.spans[0] == (at.plus(bytes), bytes);
            is_next && units[before].is_one_line() && unit.is_one_line()
        });
        match runs.last_mut().filter(|_| follows) {
            Some(run) => run.end = index + 1,
            None => runs.push(index..index + 1),
        }
    }
    runs
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the image"))
}

/// One joining copy being filled.
struct Copier<'a> {
    cx: &'a Context,
    bulk: Bulk<'a>,
    to: NodeSlot,
    pace: Pace,
    /// Whether it is worth going on.
    goes_on: &'a dyn Fn() -> bool,
    done: Copied,
}

/// Copies all of a group to its joining copy on a node, at `pace`. `None` if it was broken off between two
/// steps, because `goes_on` said so.
///
/// # Errors
/// The fabric's: this node was expelled, or one of both nodes is down.
pub async fn copy(
    cx: &Context,
    (group, to): (GroupId, NodeSlot),
    pace: Pace,
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<Copied>, Failure> {
    let (bulk, done) = (Bulk::new(cx), Copied::default());
    let mut copier = Copier { cx, bulk, to, pace, goes_on, done };
    copier.copy_words(Address::new(group, 0), SUPERBLOCK_BYTES / 8).await?;
    let catalog = &cx.database().catalog;
    copier.copy_words(catalog.chunk_word(group, 0), catalog.chunks()).await?;
    for table in catalog.tables() {
        if !copier.copy_shard(table, group).await? {
            return Ok(None);
        }
    }
    for index in catalog.indexes() {
        if !copier.copy_tree(index, group).await? {
            return Ok(None);
        }
    }
    Ok(Some(copier.done))
}

impl Copier<'_> {
    /// Words that change one by one, without a lock: at the primary by CAS first, then elsewhere.
    async fn copy_words(&mut self, start: Address, count: u64) -> Result<(), Failure> {
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
                // What changed at the primary meanwhile may have been overwritten: look again.
            }
        }
        Ok(())
    }

    /// A split moves slots from a bucket to another, and their bodies stay where they are: who is moved
    /// past the copier keeps a body that was never copied. Each split changes the header, so the shard is
    /// walked until the header is as it was when the walk began. False if it was broken off.
    async fn copy_shard(&mut self, table: &Table, group: GroupId) -> Result<bool, Failure> {
        let mut header = self.copy_header(table, group).await?;
        loop {
            if !self.copy_segments(table, group, &header).await? {
                return Ok(false);
            }
            let now = self.copy_header(table, group).await?;
            if now == header {
                return Ok(true);
            }
            header = now;
        }
    }

    /// Copies the index header; its image, of a moment at which nothing split.
    async fn copy_header(&mut self, table: &Table, group: GroupId) -> Result<Vec<u8>, Failure> {
        let unit = Unit::new(Kind::Header, table.geometry.header(group), Geometry::HEADER_BYTES);
        let mut copied = self.copy_units(table, vec![unit]).await?;
        let (_, mut images) = copied.pop().expect("one unit");
        Ok(images.swap_remove(0))
    }

    async fn copy_segments(
        &mut self,
        table: &Table,
        group: GroupId,
        header: &[u8],
    ) -> Result<bool, Failure> {
        let geometry = &table.geometry;
        let mut segments = vec![(Address::new(group, geometry.first_segment_at), geometry.buckets)];
        for segment in 0..SEGMENTS_MAX {
            let at = Geometry::SEGMENTS_AT + segment * 8;
            let start = Address::from_word(word(header, at));
            segments.extend((!start.is_null()).then_some((start, geometry.buckets << segment)));
        }
        for (start, buckets) in segments {
            for first in (0..buckets).step_by(self.pace.blocks.max(1)) {
                let last = buckets.min(first + self.pace.blocks.max(1) as u64);
                let began = self.cx.port.now();
                self.copy_buckets(table, start, first..last).await?;
                let took = self.cx.port.now() - began;
                self.cx.port.sleep(self.pace.after_copying(took)).await;
                if !(self.goes_on)() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Directories first: they say which blocks there are. A block that is linked later is written by
    /// those who link it.
    async fn copy_buckets(
        &mut self,
        table: &Table,
        start: Address,
        which: std::ops::Range<u64>,
    ) -> Result<(), Failure> {
        let at = |bucket: u64| start.plus((bucket * table.geometry.bucket_bytes as u64) as usize);
        let directory = |bucket| Unit::new(Kind::Directory, at(bucket), DIRECTORY_BYTES);
        let directories = self.copy_units(table, which.map(directory).collect()).await?;
        let blocks = directories.into_iter().flat_map(|(unit, _)| unit.spans);
        let slot_bytes = table.slot.slot_bytes;
        let slots = blocks.flat_map(|(block, _)| {
            (0..table.geometry.slots).map(move |slot| {
                let address = block.plus(DIRECTORY_BYTES + slot * slot_bytes);
                Unit::new(Kind::Slot, address, slot_bytes)
            })
        });
        let slots: Vec<Unit> = slots.collect();
        self.copy_units(table, slots).await?;
        Ok(())
    }

    /// Copies the nodes of an ordered index that lie in `group`. A node that comes while the walk is under
    /// way is written whole by who makes it, and entries that move to another node are written there: so
    /// one walk is enough. Dead nodes are not copied: who has merged one uses it again in the same
    /// configuration only, in which its mark reached the joining copy too. False if it was broken off.
    async fn copy_tree(&mut self, index: &Index, group: GroupId) -> Result<bool, Failure> {
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
            self.cx.port.sleep(self.pace.after_copying(took)).await;
            if !(self.goes_on)() {
                return Ok(false);
            }
            if last == Step::End {
                return Ok(true);
            }
        }
    }

    /// Copies units until each is equal, or was free at one version before its WRITE and after it. Returns
    /// them with the images that were copied.
    async fn copy_units(
        &mut self,
        table: &Table,
        units: Vec<Unit>,
    ) -> Result<Vec<(Unit, Vec<Vec<u8>>)>, Failure> {
        let (mut pending, mut done) = (units, Vec::new());
        self.done.units += pending.len() as u64;
        while !pending.is_empty() {
            let (mut later, mut written) = (Vec::new(), Vec::new());
            let (mut wishes, mut strays) = (Vec::new(), Vec::new());
            for (mut unit, read) in self.read_units(pending).await? {
                let (images, copies) = match read {
                    Seen::Free(images, copies) => (images, copies),
                    Seen::Busy(lock) => {
                        strays.extend(is_stray(self.cx, lock).then_some((unit.guard, lock)));
                        later.push(unit);
                        continue;
                    }
                };
                let spans = unit.spans_of(table, &images);
                if spans != unit.spans {
                    unit.spans = spans;
                    later.push(unit);
                    continue;
                }
                let count = wishes.len();
                self.add_writes(&unit, (&images, &copies), &mut wishes);
                match wishes.len() > count {
                    true => written.push((unit, images)),
                    false => done.push((unit, images)),
                }
            }
            // A lock of a recovered life is nobody's: it would keep its record from the copy for ever.
            let free = |(guard, lock): (Address, u64)| {
                Wish::Clear(self.cx.groups.primary(guard.plus(LOCK_AT)), lock)
            };
            wishes.extend(strays.into_iter().map(free));
            self.write(wishes).await?;
            let looks: Vec<Wish> = written.iter().map(|(unit, _)| self.look_at(unit)).collect();
            let heads = self.read(&looks).await?;
            for ((unit, images), head) in written.into_iter().zip(heads) {
                match head[..] == images[0][..16] {
                    true => done.push((unit, images)),
                    false => later.push(unit),
                }
            }
            self.done.again += later.len() as u64;
            pending = later;
        }
        Ok(done)
    }

    /// LOCK and VERSION at the primary.
    fn look_at(&self, unit: &Unit) -> Wish {
        Wish::Read(self.cx.groups.primary(unit.guard.plus(LOCK_AT)), 16)
    }

    /// The images of units at the primary and at the copy.
    async fn read_units(&mut self, units: Vec<Unit>) -> Result<Vec<(Unit, Seen)>, Failure> {
        let (mut wishes, runs) = (Vec::new(), runs(&units));
        let primary = |address: Address| self.cx.groups.primary(address);
        for run in &runs {
            let (first, bytes) = units[run.start].spans[0];
            match &units[run.clone()] {
                [unit] if !unit.is_one_line() => {
                    let spans = || unit.spans.iter();
                    wishes.push(self.look_at(unit));
                    wishes.extend(spans().map(|&(at, bytes)| Wish::Read(primary(at), bytes)));
                    wishes.push(self.look_at(unit));
                    wishes.extend(spans().map(|&(at, bytes)| Wish::Read(at.at(self.to), bytes)));
                }
                run => {
                    wishes.push(Wish::Read(primary(first), bytes * run.len()));
                    wishes.push(Wish::Read(first.at(self.to), bytes * run.len()));
                }
            }
        }
        let mut found = self.read(&wishes).await?.into_iter();
        let mut next = |count: usize| -> Vec<Vec<u8>> { found.by_ref().take(count).collect() };
        let (mut read, mut units) = (Vec::with_capacity(units.len()), units.into_iter());
        for run in runs {
            let (count, first) = (run.len(), units.next().expect("a unit of the run"));
            if !first.is_one_line() {
                let before = next(1).swap_remove(0);
                let mut images = next(first.spans.len());
                let after = next(1).swap_remove(0);
                let copies = next(first.spans.len());
                images[0][..16].copy_from_slice(&before);
                let seen = Seen::of(before == after, images, copies);
                read.push((first, seen));
                continue;
            }
            let (image, copy) = (next(1).swap_remove(0), next(1).swap_remove(0));
            let bytes = first.spans[0].1;
            let parts = image.chunks_exact(bytes).zip(copy.chunks_exact(bytes));
            let run = std::iter::once(first).chain(units.by_ref().take(count - 1));
            read.extend(run.zip(parts).map(|(unit, (image, copy))| {
                (unit, Seen::of(true, vec![image.to_vec()], vec![copy.to_vec()]))
            }));
        }
        Ok(read)
    }

    /// What of a unit differs, all but the LOCK word. The span with VERSION comes last; the lines of one span
    /// come in any order.
    fn add_writes(
        &mut self,
        unit: &Unit,
        (images, copies): (&[Vec<u8>], &[Vec<u8>]),
        wishes: &mut Vec<Wish>,
    ) {
        let mut written = 0;
        for (index, &(address, _)) in unit.spans.iter().enumerate().rev() {
            let skip = if index == 0 { VERSION_AT } else { 0 };
            let (image, copy) = (&images[index][skip..], &copies[index][skip..]);
            if image != copy {
                written += image.len() as u64;
                wishes.push(Wish::Write(address.plus(skip).at(self.to), image.to_vec()));
            }
        }
        self.done.bytes += written;
        self.done.written += u64::from(written > 0);
    }

    async fn read(&mut self, wishes: &[Wish]) -> Result<Vec<Vec<u8>>, Failure> {
        let bytes = self.bulk.run(wishes).await?.into_iter().map(|answer| match answer {
            Answer::Done(bytes) => Ok(bytes),
            Answer::Down => Err(Failure::Fabric),
        });
        bytes.collect()
    }

    /// Who drops this leaves WRITEs on their way: noted until they have come back.
    async fn write(&mut self, wishes: Vec<Wish>) -> Result<(), Failure> {
        self.cx.writes_copy.set(true);
        let written = self.read(&wishes).await;
        self.cx.writes_copy.set(false);
        written.map(|_| ())
    }
}
