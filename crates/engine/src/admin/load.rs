//! Fills tables before any transaction runs.
//!
//! Invariant: loaders run without any transaction, so they take no locks and write no log. Several loaders may run
//! concurrently if each loads the keys of its own [`Part`]; two parts never share a bucket. Keys must be unique. A
//! key that is loaded twice is a bug of the caller, and the loader does not detect it. The loader stores each record
//! with version 1 at every replica, in the same place as an insert would. Loaders collect the entries of ordered
//! indexes. The loader that finishes last builds trees of these entries ([`crate::admin::load_trees`]).

use crate::admin::load_trees::build;
use crate::cluster::loads::Run;
use crate::session::transaction::key_word;
use crate::site::Context;
use std::collections::BTreeMap;
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::Failure;
use tarn_store::index::prints::loaded_print;
use tarn_store::index::{Place, hash_of};
use tarn_store::layout::{DIRECTORY_BYTES, DIRECTORY_NEXT_AT, Geometry, KEY_AT, Loaded};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::row::Value;
use tarn_store::schema::{ColumnId, Key, TableId, TableSchema};

/// The number of records that one batch loads.
const BATCH: usize = 32;

/// The share of the keys that one loader loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The number of this share, counted from 0.
    pub index: u32,
    /// The number of shares in total.
    pub of: u32,
}

struct Pending {
    table: TableId,
    place: Place,
    /// The position of the image of the record's slot in the buffer.
    image: BufferOffset,
    body: Address,
    body_image: BufferOffset,
    /// The position in the buffer to which the bin was read.
    bin_at: BufferOffset,
    slot: Address,
}

/// A row that the caller is filling.
pub struct RowMut<'a> {
    schema: &'a TableSchema,
    payload: &'a mut [u8],
}

impl RowMut<'_> {
    /// Sets a column of the row.
    #[inline]
    pub fn set(&mut self, column: ColumnId, value: impl Value) {
        let column = &self.schema.columns[usize::from(column.0)];
        let (from, width) = (column.offset_bytes, column.column_type.width_bytes());
        value.store(&mut self.payload[from..from + width]);
    }

    /// The whole payload of the row.
    pub fn payload(&mut self) -> &mut [u8] {
        self.payload
    }
}

/// Loads one part; call [`Loader::finish`] at the end.
pub struct Loader<'a> {
    cx: &'a Context,
    part: Part,
    round: Round,
    pending: Vec<Pending>,
    /// For each long chain, the first block that may have a free slot. All earlier blocks of the chain are full.
    tails: BTreeMap<u64, Address>,
    loaded: u64,
    /// The payload that the caller is filling, for records in lines.
    row: Vec<u8>,
    /// The entries of each ordered index that this loader has collected.
    runs: Vec<Run>,
    tell: Option<&'a dyn Fn(u64)>,
}

impl<'a> Loader<'a> {
    /// Creates a loader of `part` on this thread.
    pub fn new(cx: &'a Context, part: Part) -> Loader<'a> {
        assert!(part.index < part.of);
        let pending = Vec::with_capacity(BATCH);
        let (round, tails) = (Round::new(), BTreeMap::new());
        let runs = vec![Run::new(); cx.database().catalog.indexes().len()];
        Loader { cx, part, round, pending, tails, loaded: 0, row: Vec::new(), runs, tell: None }
    }

    /// Makes the loader call `tell` from time to time with the number of records stored since the previous call.
    #[must_use]
    pub fn telling(mut self, tell: &'a dyn Fn(u64)) -> Loader<'a> {
        self.tell = Some(tell);
        self
    }

    /// The number of records that callers have passed to this loader.
    pub fn loaded(&self) -> u64 {
        self.loaded
    }

    /// Loads a record if its key belongs to this loader's part.
    ///
    /// # Errors
    /// `OutOfMemory`, or an error of the fabric.
    pub async fn insert<'k>(
        &mut self,
        table: TableId,
        key: impl Into<Key<'k>>,
        fill: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<(), Failure> {
        let (word, full_key) = match key.into() {
            Key::Word(word) => (word, &[][..]),
            Key::Bytes(bytes) => (key_word(bytes), bytes),
        };
        let schema = self.cx.table(table);
        let hash = hash_of(schema, word);
        let place = self.cx.node.index_view.place(&self.cx.database().catalog, schema, hash);
        let share = tarn_fabric::rng::mix(place.bucket.to_word()) % u64::from(self.part.of);
        if share != u64::from(self.part.index) {
            return Ok(());
        }
        let slot = &schema.slot;
        let image = self.round.reserve_lines(slot.slot_bytes);
        self.round.bytes_mut(image, slot.slot_bytes).fill(0);
        let (mut body, mut body_image) = (Address::NULL, image);
        if slot.is_out_of_line() {
            body = self.cx.allocate(place.group, slot.body_bytes() as u32).await?;
            body_image = self.round.reserve_lines(slot.body_bytes());
            self.round.bytes_mut(body_image, slot.body_bytes()).fill(0);
        }
        let head = self.round.bytes_mut(image, slot.slot_bytes);
        let loaded = Loaded { table, key: word, full_key, body };
        slot.write_loaded(head, &loaded);
        match slot.lined() {
            None => {
                let at = body_image.plus(slot.payload_at);
                let payload = self.round.bytes_mut(at, slot.payload_bytes);
                fill(&mut RowMut { schema: &schema.schema, payload });
            }
            Some(lined) => {
                self.row.clear();
                self.row.resize(slot.payload_bytes, 0);
                fill(&mut RowMut { schema: &schema.schema, payload: &mut self.row });
                let record = self.round.bytes_mut(image, slot.slot_bytes);
                lined.scatter_payload(&self.row, record);
            }
        }
        if slot.is_out_of_line() {
            slot.seal_loaded(self.round.bytes_mut(body_image, slot.body_bytes()), word);
        }
        if schema.ordered.1 > 0 {
            self.add_entries(schema, (word, full_key), body_image);
        }
        let (bin_at, slot) = (BufferOffset::default(), Address::NULL);
        self.pending.push(Pending { table, place, image, body, body_image, bin_at, slot });
        self.loaded += 1;
        if self.pending.len() == BATCH {
            self.flush().await?;
        }
        Ok(())
    }

    /// Collects the index entries of one record for the ordered indexes of its table.
    fn add_entries(&mut self, table: &Table, (word, full_key): (u64, &[u8]), image: BufferOffset) {
        let slot = &table.slot;
        let payload = match slot.lined() {
            None => self.round.bytes(image.plus(slot.payload_at), slot.payload_bytes),
            Some(_) => &self.row,
        };
        for index in self.cx.database().catalog.indexes_of(table) {
            let key = index.key_of(word, full_key, payload);
            let run = &mut self.runs[usize::from(index.id.0)];
            let at = run.len();
            run.resize(at + index.shape.slot_bytes(0), 0);
            index.fill_slot(&key, (word, full_key), &mut run[at..]);
        }
    }

    /// Writes the records that are still pending. Every loader must call this, because the last loader to finish
    /// builds the ordered indexes.
    ///
    /// # Errors
    /// The same errors as [`Loader::insert`]. `UniqueViolation`, if two records have the same key in a unique
    /// index.
    pub async fn finish(mut self) -> Result<u64, Failure> {
        self.flush().await?;
        if !self.runs.is_empty() {
            let loads = &self.cx.database().loads;
            if let Some(runs) = loads.bring(std::mem::take(&mut self.runs), self.part.of) {
                build(self.cx, runs).await?;
            }
        }
        Ok(self.loaded)
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        self.round.begin();
        for pending in &mut self.pending {
            let slot_bytes = self.cx.table(pending.table).slot.slot_bytes;
            let target = self.cx.groups.primary(bin(pending, slot_bytes));
            let bytes = Geometry::SLOTS_PER_BIN * slot_bytes;
            pending.bin_at = self.round.read(target, bytes);
        }
        self.cx.port.execute(&mut self.round).await?;
        self.round.begin();
        let mut pending = std::mem::take(&mut self.pending);
        for index in 0..pending.len() {
            let (before, rest) = pending.split_at_mut(index);
            if let Some(slot) = self.free_in_bin(before, &rest[0]) {
                rest[0].slot = slot;
                self.add_writes(&rest[0]);
            }
        }
        self.cx.port.execute(&mut self.round).await?;
        for one in pending.iter_mut().filter(|one| one.slot.is_null()) {
            one.slot = self.free_in_bucket(one).await?;
            self.round.begin();
            self.add_writes(one);
            self.cx.port.execute(&mut self.round).await?;
        }
        if let Some(tell) = self.tell {
            tell(pending.len() as u64);
        }
        if self.cx.remembers {
            let mut cache = self.cx.cache.borrow_mut();
            for Pending { table, image, slot, body, .. } in &pending {
                cache.put(*table, self.round.word(image.plus(KEY_AT)), *slot, *body);
            }
        }
        pending.clear();
        self.pending = pending;
        self.round.clear();
        Ok(())
    }

    /// Finds a slot of the bin that was free when the loader read the bin, and that no earlier record of the batch
    /// took.
    fn free_in_bin(&self, before: &[Pending], one: &Pending) -> Option<Address> {
        let layout = &self.cx.table(one.table).slot;
        let slot_bytes = layout.slot_bytes;
        (0..Geometry::SLOTS_PER_BIN).find_map(|slot| {
            let at = one.bin_at.plus(slot * slot_bytes);
            let address = bin(one, slot_bytes).plus(slot * slot_bytes);
            let free = layout.is_free(self.round.bytes(at, slot_bytes));
            (free && !before.iter().any(|other| other.slot == address)).then_some(address)
        })
    }

    /// Finds a free slot in the bucket or its overflow chain. If no slot is free, the function adds a block to the
    /// chain.
    async fn free_in_bucket(&mut self, one: &Pending) -> Result<Address, Failure> {
        let table = self.cx.table(one.table);
        let (slot_bytes, bucket_bytes) = (table.slot.slot_bytes, table.geometry.bucket_bytes);
        let groups = self.cx.groups.whole();
        let bucket = one.place.bucket.to_word();
        let mut block = self.tails.get(&bucket).copied().unwrap_or(one.place.bucket);
        loop {
            self.round.begin();
            let at = self.round.read(groups.primary(block), bucket_bytes);
            self.cx.port.execute(&mut self.round).await?;
            for slot in 0..table.geometry.slots {
                let offset = DIRECTORY_BYTES + slot * slot_bytes;
                if table.slot.is_free(self.round.bytes(at.plus(offset), slot_bytes)) {
                    return Ok(block.plus(offset));
                }
            }
            let next = Address::from_word(self.round.word(at.plus(DIRECTORY_NEXT_AT)));
            if !next.is_null() {
                block = next;
                self.tails.insert(bucket, block);
                continue;
            }
            let fresh = self.cx.allocate(one.place.group, bucket_bytes as u32).await?;
            self.round.begin();
            let word = self.round.reserve(8);
            self.round.set_word(word, fresh.to_word());
            for target in groups.all(block.plus(DIRECTORY_NEXT_AT)) {
                self.round.write(target, word, 8);
            }
            self.cx.port.execute(&mut self.round).await?;
            return Ok(fresh.plus(DIRECTORY_BYTES));
        }
    }

    fn add_writes(&mut self, one: &Pending) {
        let table: &Table = self.cx.table(one.table);
        let groups = self.cx.groups.whole();
        for target in groups.all(one.slot) {
            self.round.write(target, one.image, table.slot.used_bytes());
        }
        let named = (one.place.bucket, hash_of(table, self.round.word(one.image.plus(KEY_AT))));
        if let Some((at, print)) = loaded_print(table, one.slot, named) {
            let byte = self.round.reserve(1);
            self.round.bytes_mut(byte, 1)[0] = print;
            for target in groups.all(at) {
                self.round.write(target, byte, 1);
            }
        }
        if !one.body.is_null() {
            for target in groups.all(one.body) {
                self.round.write(target, one.body_image, table.slot.apart_bytes());
            }
        }
    }
}

fn bin(one: &Pending, slot_bytes: usize) -> Address {
    let bin_bytes = Geometry::SLOTS_PER_BIN * slot_bytes;
    one.place.bucket.plus(DIRECTORY_BYTES + usize::from(one.place.bin) * bin_bytes)
}
