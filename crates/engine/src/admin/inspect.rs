//! Inspects memory while no transaction runs: lists the stored records, and checks whether memory is free of errors.
//!
//! Invariant: the inspection only reads memory. The inspection reads every bucket of every replica and compares the
//! replicas, because it trusts no statement of a protocol.

use crate::admin::inspect_trees::audit_index;
use crate::admin::inspect_versions::{is_block, wrong_cells};
use crate::site::Context;
use std::fmt;
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::Failure;
use tarn_store::index::prints::{are_wrong, void_words};
use tarn_store::index::{GrowthState, hash_of};
use tarn_store::layout::{
    DIRECTORY_BYTES, DIRECTORY_DEPTH_AT, DIRECTORY_NEXT_AT, Geometry, KEY_AT, LOCK_AT, LockWords,
    Newest, PayloadAt, RecordLayout, SEGMENTS_MAX, VERSION_AT, Version,
};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::TableId;
use tarn_store::schema::row::Row;

/// A stored record, as the function [`scan`] passes it to its caller.
pub struct Stored<'a> {
    /// The key word.
    pub key: u64,
    /// The record's version.
    pub version: Version,
    /// The number of changes of the record since it was loaded, if the record's version is a counter. `None` if the
    /// version is a timestamp.
    pub changes: Option<u64>,
    /// The full key, if the table's keys are longer than one word.
    pub full_key: &'a [u8],
    /// The record's payload.
    pub row: Row<'a>,
}

/// The result of an audit.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Audit {
    /// The number of records that the audit found at the primaries.
    pub records: u64,
    /// The number of slots of deleted records whose old versions transactions may still read.
    pub tombstones: u64,
    /// The number of locks that are held although no transaction runs.
    pub locks_left: u64,
    /// The number of lines of backups that differ from the same line of the primary.
    pub replicas_differ: u64,
    /// The number of records that lie in a wrong bucket or twice in one bucket. The count of misplaced records also
    /// includes buckets whose depth differs from the depth that the index header implies.
    pub misplaced: u64,
    /// The number of wrong cells. A cell is wrong if its version is not committed, is out of order, or leads to a
    /// record of another key. The count of wrong cells also includes records whose lines have different versions.
    pub cells_wrong: u64,
    /// The number of buckets in use.
    pub buckets: u64,
    /// The number of overflow blocks in use.
    pub overflow_blocks: u64,
    /// The number of nodes of ordered indexes.
    pub index_nodes: u64,
    /// The number of entries of ordered indexes.
    pub index_entries: u64,
    /// The number of nodes of ordered indexes that contradict their neighbours, parents or entries.
    pub nodes_wrong: u64,
    /// The number of index entries without a record, plus the number of records without an index entry.
    pub entries_differ: u64,
}

impl Audit {
    /// Whether the audit found no error.
    pub fn is_clean(&self) -> bool {
        let records = self.locks_left == 0 && self.replicas_differ == 0 && self.misplaced == 0;
        records && self.cells_wrong == 0 && self.nodes_wrong == 0 && self.entries_differ == 0
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records, {} locks left, {} lines differ between replicas, {} records misplaced",
            self.records, self.locks_left, self.replicas_differ, self.misplaced
        )?;
        if self.tombstones + self.cells_wrong > 0 {
            write!(f, ", {} cells wrong, {} deleted", self.cells_wrong, self.tombstones)?;
        }
        if self.index_nodes == 0 {
            return Ok(());
        }
        write!(
            f,
            "; {} index entries in {} nodes, {} nodes wrong, {} entries differ from the records",
            self.index_entries, self.index_nodes, self.nodes_wrong, self.entries_differ
        )
    }
}

/// Calls `visit` with every record of a table at the primaries.
///
/// # Errors
/// An error of the fabric.
pub async fn scan(
    cx: &Context,
    table: TableId,
    visit: impl FnMut(Stored<'_>),
) -> Result<(), Failure> {
    cx.follow();
    scan_followed(cx, table, visit).await
}

/// Reads a table like [`scan`], without [`Context::follow`], which the caller has called before. This function takes no
/// lock. So it may run in an image of the process, in which other threads never release their locks.
///
/// # Errors
/// An error of the fabric.
pub async fn scan_followed(
    cx: &Context,
    table: TableId,
    mut visit: impl FnMut(Stored<'_>),
) -> Result<(), Failure> {
    let table = cx.table(table);
    let mut round = Round::new();
    for group in 0..cx.groups.count() {
        let group = GroupId(group as u16);
        for bucket in buckets(cx, table, group).await? {
            let mut block = bucket;
            while !block.is_null() {
                round.clear();
                let at = read_block(cx, &mut round, table, block, 0).await?;
                for slot in 0..table.geometry.slots {
                    let image = at.plus(DIRECTORY_BYTES + slot * table.slot.slot_bytes);
                    if let Some(newest) = table.slot.newest(slot_at(&round, table, image)) {
                        show(cx, &mut round, table, (image, newest), &mut visit).await?;
                    }
                }
                block = Address::from_word(round.word(at.plus(DIRECTORY_NEXT_AT)));
            }
        }
    }
    Ok(())
}

/// Calls `visit` with every block (bucket or overflow block) of a table at the primaries. `visit` receives the buffer
/// and the position of the block's image in the buffer.
///
/// # Errors
/// An error of the fabric.
pub async fn blocks(
    cx: &Context,
    table: TableId,
    mut visit: impl FnMut(&Round, BufferOffset),
) -> Result<(), Failure> {
    cx.follow();
    let table = cx.table(table);
    let mut round = Round::new();
    for group in 0..cx.groups.count() {
        for bucket in buckets(cx, table, GroupId(group as u16)).await? {
            let mut block = bucket;
            while !block.is_null() {
                round.clear();
                let at = read_block(cx, &mut round, table, block, 0).await?;
                visit(&round, at);
                block = Address::from_word(round.word(at.plus(DIRECTORY_NEXT_AT)));
            }
        }
    }
    Ok(())
}

/// The positions of the images of a block's slots. The block's image lies at `at`.
pub fn slots(table: &Table, at: BufferOffset) -> impl Iterator<Item = BufferOffset> {
    let slot_bytes = table.slot.slot_bytes;
    (0..table.geometry.slots).map(move |slot| at.plus(DIRECTORY_BYTES + slot * slot_bytes))
}

async fn show(
    cx: &Context,
    round: &mut Round,
    table: &Table,
    (image, newest): (BufferOffset, Newest),
    visit: &mut impl FnMut(Stored<'_>),
) -> Result<(), Failure> {
    let payload = match newest.payload {
        PayloadAt::Slot(at) => image.plus(at),
        PayloadAt::Lines(lined) => {
            let record = slot_at(round, table, image).to_vec();
            let row = round.reserve_lines(table.slot.payload_bytes);
            lined.gather_payload(&record, round.bytes_mut(row, table.slot.payload_bytes));
            row
        }
        PayloadAt::Apart(body) => {
            let into = table.slot.versions_apart(slot_at(round, table, image))[0];
            round.begin();
            let image = round.read(cx.groups.primary(body), table.slot.body_bytes());
            cx.port.execute(round).await?;
            image.plus(into + table.slot.payload_at)
        }
    };
    let row = Row::new(&table.schema, round.bytes(payload, table.slot.payload_bytes));
    let (key, version) = (round.word(image.plus(KEY_AT)), newest.version);
    let full_key = round.bytes(image.plus(table.slot.full_key_at), table.slot.full_key_bytes);
    let counts = matches!(table.slot.record, RecordLayout::InPlace | RecordLayout::Lined(_));
    let changes = counts.then(|| version.counter() - 1);
    visit(Stored { key, version, changes, full_key, row });
    Ok(())
}

/// Compares replicas, counts the locks that are still held, and checks that every record lies in the bucket of its
/// key.
///
/// # Errors
/// An error of the fabric.
pub async fn audit(cx: &Context) -> Result<Audit, Failure> {
    cx.follow();
    let mut audit = Audit::default();
    for table in cx.database().catalog.tables() {
        for group in 0..cx.groups.count() {
            let group = GroupId(group as u16);
            audit_header(cx, table, group, &mut audit).await?;
            let state = |cx: &Context| cx.node.index_view.state(table, group);
            for (index, bucket) in buckets(cx, table, group).await?.enumerate() {
                let depth = state(cx).depth(table.geometry.buckets, index as u64);
                audit_bucket(cx, table, (bucket, depth), &mut audit).await?;
            }
        }
    }
    for index in cx.database().catalog.indexes() {
        audit_index(cx, index, &mut audit).await?;
    }
    Ok(audit)
}

/// Audits the index header: the header must not show an unfinished split, and it must be equal at every member of the
/// group.
async fn audit_header(
    cx: &Context,
    table: &Table,
    group: GroupId,
    audit: &mut Audit,
) -> Result<(), Failure> {
    let mut round = Round::new();
    let header = table.geometry.header(group);
    let images: Vec<BufferOffset> = cx
        .groups
        .whole()
        .counted(header)
        .map(|target| round.read(target, Geometry::HEADER_BYTES))
        .collect();
    cx.port.execute(&mut round).await?;
    audit.locks_left += u64::from(!LockWords::Tags.is_free(round.word(images[0].plus(LOCK_AT))));
    let (skip, rest) = (VERSION_AT, Geometry::HEADER_BYTES - VERSION_AT);
    let bytes = |image: &BufferOffset| round.bytes(image.plus(skip), rest);
    let differ = images.iter().filter(|image| bytes(image) != bytes(&images[0])).count();
    audit.replicas_differ += differ as u64;
    Ok(())
}

async fn audit_bucket(
    cx: &Context,
    table: &Table,
    (bucket, depth): (Address, u8),
    audit: &mut Audit,
) -> Result<(), Failure> {
    let mut round = Round::new();
    let mut keys = Vec::new();
    let mut block = bucket;
    while !block.is_null() {
        round.clear();
        let at = read_block(cx, &mut round, table, block, 0).await?;
        let depth_found = round.word(at.plus(DIRECTORY_DEPTH_AT));
        audit.misplaced += u64::from(block == bucket && depth_found != u64::from(depth));
        audit.buckets += u64::from(block == bucket);
        audit.misplaced += u64::from(block == bucket && are_wrong(table, &round, at));
        let slots =
            (0..table.geometry.slots).map(|slot| DIRECTORY_BYTES + slot * table.slot.slot_bytes);
        for offset in std::iter::once(0).chain(slots) {
            let words = if offset > 0 { table.slot.lock_words } else { LockWords::Tags };
            audit.locks_left += u64::from(!words.is_free(round.word(at.plus(offset + LOCK_AT))));
            let image = at.plus(offset);
            if offset > 0 && !table.slot.is_free(slot_at(&round, table, image)) {
                let is_there = table.slot.newest(slot_at(&round, table, image)).is_some();
                audit.records += u64::from(is_there);
                audit.tombstones += u64::from(!is_there);
                let slot = (block.plus(offset), image);
                audit.cells_wrong += wrong_cells(cx, &mut round, table, slot).await?;
                let key = round.word(at.plus(offset + KEY_AT));
                let view = &cx.node.index_view;
                let place = view.place(&cx.database().catalog, table, hash_of(table, key));
                let twice = keys.contains(&key) && table.slot.full_key_bytes == 0;
                audit.misplaced += u64::from(place.bucket != bucket || twice);
                keys.push(key);
            }
        }
        let is_bucket = block == bucket;
        compare_replicas(cx, &mut round, table, (block, is_bucket), at, audit).await?;
        audit.overflow_blocks += u64::from(!is_bucket);
        block = Address::from_word(round.word(at.plus(DIRECTORY_NEXT_AT)));
    }
    Ok(())
}

async fn compare_replicas(
    cx: &Context,
    round: &mut Round,
    table: &Table,
    (block, is_bucket): (Address, bool),
    at: BufferOffset,
    audit: &mut Audit,
) -> Result<(), Failure> {
    for position in 1..cx.groups.whole().members(block.group()).len() {
        let other = read_block(cx, round, table, block, position).await?;
        audit.replicas_differ += differing(round, table, at, other);
        // A backup may be promoted to primary, and its fingerprints are then used. So the audit checks the
        // fingerprints of backups too.
        audit.misplaced += u64::from(is_bucket && are_wrong(table, round, other));
        for slot in 0..table.geometry.slots {
            let image = at.plus(DIRECTORY_BYTES + slot * table.slot.slot_bytes);
            let bodies: Vec<Address> = table.slot.apart(slot_at(round, table, image)).collect();
            let slot_image = slot_at(round, table, image).to_vec();
            // Another check counts a cell as wrong if the cell leads to an impossible address.
            for body in bodies.into_iter().filter(|&body| is_block(cx, table, body)) {
                round.begin();
                let bytes = table.slot.body_bytes();
                let first = round.read(cx.groups.primary(body), bytes);
                let second = round.read(cx.groups.whole().replica(body, position), bytes);
                cx.port.execute(round).await?;
                for at in table.slot.versions_apart(&slot_image) {
                    let version = |image: BufferOffset| {
                        round.bytes(image.plus(at), table.slot.apart_bytes()).chunks(64)
                    };
                    let lines = version(first).zip(version(second));
                    audit.replicas_differ += lines.filter(|(one, two)| one != two).count() as u64;
                }
            }
        }
    }
    Ok(())
}

/// The number of lines that differ between two images of one block. LOCK words are not compared.
fn differing(round: &Round, table: &Table, first: BufferOffset, second: BufferOffset) -> u64 {
    let slots =
        (0..table.geometry.slots).map(|slot| DIRECTORY_BYTES + slot * table.slot.slot_bytes);
    let records = std::iter::once((0, DIRECTORY_BYTES))
        .chain(slots.map(|offset| (offset, table.slot.slot_bytes)));
    let mut lines = 0;
    for (offset, len) in records {
        let len = match offset {
            0 => len,
            _ => table.slot.replicated_bytes(slot_at(round, table, first.plus(offset))),
        };
        for line in (0..len).step_by(64) {
            let skip = if line == 0 { VERSION_AT } else { 0 };
            let end = len.min(line + 64);
            let bytes =
                |image: BufferOffset, from, to| round.bytes(image.plus(offset + from), to - from);
            let same = |from, to| bytes(first, from, to) == bytes(second, from, to);
            // If a transaction is undone, void fingerprints remain. If the primary's fingerprints are void, they must
            // be void at every replica.
            let void = |image| (offset == 0).then(|| void_words(round, image)).flatten();
            let equal = match (void(first), void(second)) {
                (Some((from, to)), Some(_)) => same(VERSION_AT, from) && same(to, end),
                (None, None) => same(line + skip, end),
                (Some(_), None) | (None, Some(_)) => false,
            };
            lines += u64::from(!equal);
        }
    }
    lines
}

/// The bytes of a slot whose image is in the buffer.
fn slot_at<'a>(round: &'a Round, table: &Table, image: BufferOffset) -> &'a [u8] {
    round.bytes(image, table.slot.slot_bytes)
}

async fn read_block(
    cx: &Context,
    round: &mut Round,
    table: &Table,
    block: Address,
    position: usize,
) -> Result<BufferOffset, Failure> {
    round.begin();
    let target = cx.groups.whole().replica(block, position);
    let at = round.read(target, table.geometry.bucket_bytes);
    // The scan reads memory in address order, so it would gain no time by waiting for a prefetch.
    round.hot();
    cx.port.execute(round).await?;
    Ok(at)
}

/// Reads every bucket of a table in one group. The index header determines which buckets exist.
async fn buckets(
    cx: &Context,
    table: &Table,
    group: GroupId,
) -> Result<impl Iterator<Item = Address>, Failure> {
    let mut round = Round::new();
    let header = cx.groups.primary(table.geometry.header(group));
    let at = round.read(header, Geometry::HEADER_BYTES);
    cx.port.execute(&mut round).await?;
    let state = round.word(at.plus(Geometry::STATE_AT));
    let segments: Vec<u64> =
        (0..SEGMENTS_MAX).map(|index| round.word(at.plus(Geometry::segment_at(index)))).collect();
    let view = &cx.node.index_view;
    view.learn(table, group, state, &segments);
    let state = GrowthState::from_word(state);
    let base = table.geometry.buckets;
    let total = state.buckets(base);
    Ok((0..total).map(move |index| view.bucket(table, group, index % base, index / base)))
}

#[cfg(test)]
#[path = "inspect_lined_tests.rs"]
mod tests;
