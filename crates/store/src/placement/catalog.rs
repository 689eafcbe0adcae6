//! The catalog: the schema and layout of every table, and the place of every area in a replica group.
//!
//! Invariant: the plan is a pure function of schemas and options, so every compute node computes the same plan. Each
//! memory node's superblock contains the plan's stamp. A compute node whose plan or protocol differs from the
//! superblock's cannot open the database.
//!
//! ```text
//! one replica group's memory, the same on each of its nodes
//! 0          superblock, 4 KiB: magic | stamp of the plan | names of protocol and layout
//! 4096       chunk table: one owner word a chunk of the heap
//! …          log areas, one a coordinator
//! …          index headers, one a table
//! …          first segment of every table's index
//! …          root of every ordered index, in use in one group
//! heap       chunks, handed out to compute nodes: overflow blocks, bodies, later segments
//! ```

use crate::ids::UsageError;
use crate::layout::index_plan::Index;
use crate::layout::{BucketShape, Geometry, LayoutKind, Reach, RecordLayout, Slot};
use crate::placement::plan_sizes;
use crate::placement::shard_map::{ShardId, Sharding};
use crate::schema::{Cells, IndexId, TableId, TableSchema};
use serde::{Deserialize, Serialize};
use tarn_fabric::address::{Address, GROUP_BYTES_MAX, GROUPS_MAX, GroupId};

/// The number of bytes of the superblock.
pub const SUPERBLOCK_BYTES: u64 = 4096;
/// The alignment of areas, which is the assumed size of a memory page.
const AREA_ALIGN: u64 = 4096;
/// The minimum number of slots that may be laid out per 100 records.
const SLOTS_PER_100_MIN: u32 = 5;
/// If at least this many slots are laid out per 100 records, overflow chains are rare.
const SLOTS_PER_100_ROOMY: u32 = 50;

/// How records are placed on replica groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// The hash of a record's key chooses the group, so that the records of a table are spread evenly over the
    /// groups.
    #[default]
    Hash,
    /// All records of a table lie in group `table id mod groups`. The published measurements of FORD and Motor use
    /// this placement.
    Table,
}

/// The options on which the plan depends, in addition to the schemas.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Options {
    /// How records are placed on groups.
    pub placement: Placement,
    /// The maximum number of coordinators in the whole cluster. Each coordinator has its own log area in every
    /// group.
    pub coordinators_max: u32,
    /// The size of one log area. If a transaction's log is longer, the transaction takes chunks of the heap in every
    /// group that it writes.
    pub log_bytes: u64,
    /// The maximum length in bytes of one transaction's log.
    pub log_bytes_max: u64,
    /// The maximum number of records of one transaction, and the maximum number of its scans.
    pub records_max: u32,
    /// The unit of allocation from the heap in bytes. The unit of allocation is a multiple of 64.
    pub chunk_bytes: u64,
    /// The number of bytes of each group's heap in addition to the bytes that the expected records need.
    pub spare_bytes: u64,
    /// The number of slots laid out per 100 expected records. If the number is far below 100, many buckets have
    /// overflow chains.
    pub slots_per_100_records: u32,
    /// The shape of the buckets of all tables.
    pub bucket: BucketShape,
    /// The number of additional bodies per 100 expected records, beyond one body for each version of each record. The
    /// additional bodies hold discarded versions, until no reader can still read these versions. Only layouts with
    /// several versions in separate memory use this option.
    pub versions_spare_percent: u32,
    /// The layout of records. The protocol chooses the layout: `protocol::AnyProtocol::catalog` of the engine
    /// overwrites this option.
    pub layout: LayoutKind,
}

impl Options {
    /// Returns the slot for rows of `schema` under these options.
    pub fn slot(&self, schema: &TableSchema) -> Slot {
        self.bucket.slot(self.layout, schema)
    }
}

/// The minimum size of a log area. A log area must have room for a decision, and for the head and the beginning of a
/// log entry. It must also have room for the link to the rest of the entry.
const LOG_BYTES_MIN: u64 = 256;
/// The upper limit of [`Options::log_bytes_max`]. A transaction's buffer must hold the log in addition to all other
/// data of the transaction.
const LOG_BYTES_MOST: u64 = 1 << 30;
/// The upper limit of [`Options::records_max`], because handles of scans have only 31 bits for a number.
const RECORDS_MOST: u32 = (1 << 31) - 1;
/// The default of [`Options::records_max`].
const RECORDS_MAX: u32 = 1 << 20;

impl Default for Options {
    fn default() -> Options {
        Options {
            placement: Placement::Hash,
            coordinators_max: 256,
            log_bytes: 64 << 10,
            log_bytes_max: 256 << 20,
            records_max: RECORDS_MAX,
            chunk_bytes: 256 << 10,
            spare_bytes: 64 << 20,
            slots_per_100_records: 200,
            bucket: BucketShape::default(),
            versions_spare_percent: 25,
            layout: LayoutKind::default(),
        }
    }
}

/// The schema and the place of one table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The table's id.
    pub id: TableId,
    /// The table's schema, as the caller declared it.
    pub schema: TableSchema,
    /// The layout of the table's records.
    pub slot: Slot,
    /// For each column, the lines and words of a row in which the column lies.
    pub reach: Reach,
    /// The place of the table's index.
    pub geometry: Geometry,
    /// The table's shards. A record's shard decides which compute node grants the record's lock.
    pub sharding: Sharding,
    /// The table's ordered indexes: the number of the first index, and the number of indexes.
    pub ordered: (u16, u16),
    /// The columns from which the keys of the table's ordered indexes are made. A transaction that changes a column
    /// of an ordered index must read all columns from which the table's index keys are made.
    pub index_cells: Cells,
}

impl Table {
    /// The shard of one of the table's records. `key` is the record's key word.
    #[inline]
    pub fn shard_of(&self, key: u64) -> ShardId {
        self.sharding.shard_of(key)
    }

    /// Calls `run(from, to)` for the byte ranges of a row in which the columns of `cells` lie. The ranges are widened
    /// to multiples of `unit` and merged where they touch.
    pub fn for_each_run(&self, cells: Cells, unit: usize, run: impl FnMut(usize, usize)) {
        let of = (unit, self.slot.payload_bytes);
        self.reach.for_each_run(&self.schema.columns, cells, of, run);
    }
}

/// The plan of a database: its tables, indexes, options and areas.
#[derive(Clone, Debug)]
pub struct Catalog {
    tables: Vec<Table>,
    indexes: Vec<Index>,
    options: Options,
    groups: usize,
    chunk_table_at: u64,
    logs_at: u64,
    heap_at: u64,
    chunks: u64,
    stamp: u64,
}

impl Catalog {
    /// Plans a database of `schemas` over `groups` replica groups. Code that runs transactions should let the
    /// protocol make the plan (`protocol::AnyProtocol::catalog` of the engine), because the protocol knows which
    /// layout it needs.
    ///
    /// # Errors
    /// The error names the field that is not possible, its value, and the allowed values.
    pub fn plan(
        schemas: &[TableSchema],
        options: &Options,
        groups: usize,
    ) -> Result<Catalog, UsageError> {
        validate(schemas, options, groups)?;
        let mut plan = Planner { at: SUPERBLOCK_BYTES };
        let heap_bytes = heap_bytes(schemas, options, groups);
        let chunks = heap_bytes.div_ceil(options.chunk_bytes);
        let chunk_table_at = plan.area(chunks * 8);
        let logs_at = plan.area(u64::from(options.coordinators_max) * options.log_bytes);
        let (mut tables, mut first) = (Vec::with_capacity(schemas.len()), 0);
        for (index, schema) in schemas.iter().enumerate() {
            let id = TableId(index as u16);
            let slot = options.slot(schema);
            let buckets = buckets(schema, options, groups);
            let header_at = plan.area(Geometry::HEADER_BYTES as u64);
            let bucket_bytes = options.bucket.bucket_bytes(&slot);
            let first_segment_at = plan.area(buckets * bucket_bytes as u64);
            let salt = tarn_fabric::rng::mix(u64::from(id.0) + 1);
            let (slots, bin_bytes) =
                (options.bucket.slots as usize, Geometry::SLOTS_PER_BIN * slot.slot_bytes);
            let geometry = Geometry {
                salt,
                buckets,
                slots,
                bucket_bytes,
                bin_bytes,
                header_at,
                first_segment_at,
            };
            let ordered = (first, schema.indexes.len() as u16);
            first += ordered.1;
            let index_cells = Cells::NONE;
            let sharding = Sharding::of(schema, tarn_fabric::rng::mix(salt));
            let (schema, reach) = (schema.clone(), Reach::of(schema));
            tables.push(Table {
                id,
                schema,
                slot,
                reach,
                geometry,
                sharding,
                ordered,
                index_cells,
            });
        }
        let indexes = plan_indexes(&mut plan, &mut tables, options, groups);
        let heap_at = plan.at.next_multiple_of(options.chunk_bytes.max(AREA_ALIGN));
        let stamp = stamp(schemas, options, groups);
        let catalog = Catalog {
            tables,
            indexes,
            options: options.clone(),
            groups,
            chunk_table_at,
            logs_at,
            heap_at,
            chunks,
            stamp,
        };
        if catalog.group_bytes() > GROUP_BYTES_MAX {
            let field = catalog.largest_part();
            let remedy = match field {
                "records" => "add memory nodes",
                _ => "further memory nodes do not help, since every group has this part",
            };
            return Err(UsageError {
                field: field.into(),
                value: format!("{} bytes in one replica group", catalog.group_bytes()),
                allowed: format!("at most {GROUP_BYTES_MAX} bytes; {remedy}"),
            });
        }
        Ok(catalog)
    }

    /// All tables, sorted by id.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The number of used bytes of the largest slot that has a table of cells. If no slot has a table of cells, the
    /// result is 0.
    pub fn version_table_bytes(&self) -> usize {
        let leads = |table: &&Table| matches!(table.slot.record, RecordLayout::Cells(_));
        let used = self.tables.iter().filter(leads).map(|table| table.slot.used_bytes());
        used.max().unwrap_or(0).next_multiple_of(8)
    }

    /// A table of this catalog.
    #[inline]
    pub fn table(&self, id: TableId) -> &Table {
        &self.tables[usize::from(id.0)]
    }

    /// The table called `name`.
    pub fn table_id(&self, name: &str) -> Option<TableId> {
        self.tables.iter().find(|table| table.schema.name == name).map(|table| table.id)
    }

    /// All ordered indexes, sorted by id.
    #[inline]
    pub fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    /// An ordered index of this catalog.
    #[inline]
    pub fn ordered(&self, id: IndexId) -> &Index {
        &self.indexes[usize::from(id.0)]
    }

    /// All ordered indexes of a table.
    #[inline]
    pub fn indexes_of(&self, table: &Table) -> &[Index] {
        let (first, count) = table.ordered;
        &self.indexes[usize::from(first)..usize::from(first) + usize::from(count)]
    }

    /// The ordered index called `index` of the table called `table`.
    pub fn index_id(&self, table: &str, index: &str) -> Option<IndexId> {
        let table = self.table(self.table_id(table)?);
        let found = self.indexes_of(table).iter().find(|it| it.schema.name == index)?;
        Some(found.id)
    }

    /// The options on which the plan depends, in addition to the schemas.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The number of replica groups in the plan.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// The number of bytes of memory that a memory node needs for each group that it hosts.
    pub fn group_bytes(&self) -> u64 {
        self.heap_at + self.chunks * self.options.chunk_bytes
    }

    /// The name of the option that takes most of a group's memory, or `records`. If a group is too large, the error
    /// contains this name.
    pub fn largest_part(&self) -> &'static str {
        let logs = u64::from(self.options.coordinators_max) * self.options.log_bytes;
        let spare = self.options.spare_bytes;
        let records = self.group_bytes().saturating_sub(logs + spare);
        let parts = [(records, "records"), (logs, "coordinators_max"), (spare, "spare_bytes")];
        parts.into_iter().max_by_key(|(bytes, _)| *bytes).map_or("records", |(_, name)| name)
    }

    /// The number of chunks of one group's heap.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// The number of blocks of `bytes` bytes that one chunk holds.
    pub fn chunk_of(&self, bytes: usize) -> usize {
        self.options.chunk_bytes as usize / bytes.max(1)
    }

    /// The address of a chunk's owner word.
    pub fn chunk_word(&self, group: GroupId, chunk: u64) -> Address {
        debug_assert!(chunk < self.chunks);
        Address::new(group, self.chunk_table_at + chunk * 8)
    }

    /// The address of the first byte of a chunk.
    pub fn chunk(&self, group: GroupId, chunk: u64) -> Address {
        debug_assert!(chunk < self.chunks);
        Address::new(group, self.heap_at + chunk * self.options.chunk_bytes)
    }

    /// The number of bytes of the largest record of any table, including a body outside its slot.
    pub fn record_bytes_max(&self) -> usize {
        let bytes = |table: &Table| table.slot.slot_bytes + table.slot.body_bytes();
        self.tables.iter().map(bytes).max().unwrap_or(0)
    }

    /// Whether a chunk of the heap begins at this address.
    pub fn is_chunk(&self, address: Address) -> bool {
        let at = address.offset_bytes().checked_sub(self.heap_at);
        let chunk = |at: u64| (at / self.options.chunk_bytes, at % self.options.chunk_bytes);
        at.map(chunk).is_some_and(|(chunk, rest)| chunk < self.chunks && rest == 0)
    }

    /// The address of a coordinator's log area in a group.
    #[inline]
    pub fn log(&self, group: GroupId, coordinator: u32) -> Address {
        debug_assert!(coordinator < self.options.coordinators_max);
        Address::new(group, self.logs_at + u64::from(coordinator) * self.options.log_bytes)
    }

    /// A hash of the schemas, the layout and the options, by which compute nodes compare their plans.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }
}

struct Planner {
    at: u64,
}

impl Planner {
    fn area(&mut self, bytes: u64) -> u64 {
        let start = self.at;
        self.at = (start + bytes).next_multiple_of(AREA_ALIGN);
        start
    }
}

/// Plans the roots of all ordered indexes. The root of an index is used in one group. All other nodes of an index lie
/// in the groups of the table's records.
fn plan_indexes(
    plan: &mut Planner,
    tables: &mut [Table],
    options: &Options,
    groups: usize,
) -> Vec<Index> {
    let mut indexes: Vec<Index> = Vec::new();
    for table in tables {
        for schema in &table.schema.indexes {
            let id = IndexId(indexes.len() as u16);
            let (group, spread) = match options.placement {
                Placement::Hash => (usize::from(id.0) % groups, (0, groups as u16)),
                Placement::Table => {
                    let group = usize::from(table.id.0) % groups;
                    (group, (group as u16, 1))
                }
            };
            // The size of an index's root depends on the index's shape.
            let root = Address::new(GroupId(group as u16), plan.at);
            let index = Index::plan(id, (table.id, &table.schema), schema, root, spread);
            plan.area(index.shape.node_bytes as u64);
            table.index_cells = table.index_cells.union(index.columns);
            indexes.push(index);
        }
    }
    indexes
}

fn validate(schemas: &[TableSchema], options: &Options, groups: usize) -> Result<(), UsageError> {
    let refuse = |field: &str, value: String, allowed: String| {
        Err(UsageError { field: field.to_owned(), value, allowed })
    };
    for (index, schema) in schemas.iter().enumerate() {
        schema.validate()?;
        options.layout.validate_schema(schema)?;
        if schemas[..index].iter().any(|other| other.name == schema.name) {
            return refuse(
                "table name",
                schema.name.clone(),
                "each name once, and each table declared once".into(),
            );
        }
    }
    if schemas.is_empty() || schemas.len() > usize::from(u16::MAX) {
        return refuse("tables", schemas.len().to_string(), "1 to 65535".into());
    }
    let indexes: usize = schemas.iter().map(|schema| schema.indexes.len()).sum();
    if schemas.len() + indexes > usize::from(u16::MAX) {
        return refuse(
            "indexes",
            indexes.to_string(),
            "at most 65535 indexes and tables together".into(),
        );
    }
    if groups == 0 || groups > GROUPS_MAX {
        return refuse("groups", groups.to_string(), format!("1 to {GROUPS_MAX}"));
    }
    if options.coordinators_max == 0 {
        return refuse("coordinators_max", "0".into(), "1 or more".into());
    }
    // These checks refuse a size that is larger than a group. `plan_sizes` checks the sums of sizes.
    let is_size =
        |bytes, least| (least..=GROUP_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(64);
    if !is_size(options.log_bytes, LOG_BYTES_MIN) {
        let value = options.log_bytes.to_string();
        let allowed = format!("multiples of 64 from {LOG_BYTES_MIN} to {GROUP_BYTES_MAX}");
        return refuse("log_bytes", value, allowed);
    }
    if options.log_bytes_max < options.log_bytes || options.log_bytes_max > LOG_BYTES_MOST {
        let value = options.log_bytes_max.to_string();
        let allowed = format!("{} (log_bytes) to {LOG_BYTES_MOST}", options.log_bytes);
        return refuse("log_bytes_max", value, allowed);
    }
    if options.records_max == 0 || options.records_max > RECORDS_MOST {
        let value = options.records_max.to_string();
        return refuse("records_max", value, format!("1 to {RECORDS_MOST}"));
    }
    if !is_size(options.chunk_bytes, 4096) {
        let value = options.chunk_bytes.to_string();
        return refuse(
            "chunk_bytes",
            value,
            format!("multiples of 64 from 4096 to {GROUP_BYTES_MAX}"),
        );
    }
    if options.spare_bytes > GROUP_BYTES_MAX {
        let value = options.spare_bytes.to_string();
        return refuse("spare_bytes", value, format!("at most {GROUP_BYTES_MAX}"));
    }
    if options.slots_per_100_records < SLOTS_PER_100_MIN {
        let value = options.slots_per_100_records.to_string();
        return refuse("slots_per_100_records", value, format!("{SLOTS_PER_100_MIN} or more"));
    }
    options.layout.validate(options.coordinators_max)?;
    options.bucket.validate(options.layout, schemas)?;
    plan_sizes::validate(schemas, options, sharing(options, groups))
}

/// The number of groups over which the records of one table are distributed.
fn sharing(options: &Options, groups: usize) -> u64 {
    if options.placement == Placement::Hash { groups as u64 } else { 1 }
}

fn buckets(schema: &TableSchema, options: &Options, groups: usize) -> u64 {
    let records = schema.expected_records.div_ceil(sharing(options, groups)).max(1);
    let slots = records * u64::from(options.slots_per_100_records) / 100;
    slots.div_ceil(u64::from(options.bucket.slots)).max(4)
}

/// The number of bytes of the heap. The heap has room for the bodies of the expected records, for overflow blocks,
/// and for the spare bytes. The heap also has an allowance for groups that get more records than others.
fn heap_bytes(schemas: &[TableSchema], options: &Options, groups: usize) -> u64 {
    let share = sharing(options, groups);
    let expected: u64 = schemas
        .iter()
        .map(|schema| {
            let slot = options.slot(schema);
            let records = schema.expected_records.div_ceil(share);
            let overflow = options.bucket.bucket_bytes(&slot) as u64;
            let body_bytes = slot.body_bytes() as u64;
            let bodies = bodies(&slot, options, records) * body_bytes;
            // The hash may give a group more records than the average. The allowance for these records is five
            // standard deviations of a binomial distribution. The allowance also covers the last chunks of loaders.
            let uneven = 5 * records.isqrt() * slot.cells() as u64 * body_bytes;
            let nodes = node_bytes(schema, records);
            bodies + uneven + overflow_blocks(schema, options, groups) * overflow + nodes
        })
        .sum();
    expected + options.spare_bytes.max(4 * options.chunk_bytes)
}

/// The number of bodies that `records` records need. Each version has one body. Additional bodies hold discarded
/// versions, until no reader can still read these versions.
fn bodies(slot: &Slot, options: &Options, records: u64) -> u64 {
    let waiting = match options.layout {
        LayoutKind::SingleVersion
        | LayoutKind::Ticketed
        | LayoutKind::Deltas { .. }
        | LayoutKind::Wholes { .. }
        | LayoutKind::Lined { .. } => 0,
        LayoutKind::MultiVersion { .. } => {
            records * u64::from(options.versions_spare_percent) / 100
        }
    };
    records * slot.cells() as u64 + waiting
}

/// The number of bytes of the nodes of a table's ordered indexes, in a group with `records` records.
fn node_bytes(schema: &TableSchema, records: u64) -> u64 {
    let of = |index| {
        let (id, table, root) = (IndexId(0), (TableId(0), schema), Address::NULL);
        let plan = Index::plan(id, table, index, root, (0, 1));
        plan.nodes(records) * plan.shape.node_bytes as u64
    };
    schema.indexes.iter().map(of).sum()
}

/// The number of overflow blocks of a table in one group. Some buckets overflow because the hash gives them more keys
/// than others. If the table has more records than slots, blocks are added for all missing slots. One partly used
/// block is also added for every overflow chain.
fn overflow_blocks(schema: &TableSchema, options: &Options, groups: usize) -> u64 {
    let records = schema.expected_records.div_ceil(sharing(options, groups));
    if options.slots_per_100_records >= SLOTS_PER_100_ROOMY {
        return records / 64;
    }
    records.div_ceil(u64::from(options.bucket.slots)) + buckets(schema, options, groups)
}

/// The version number of the layout of index nodes. The version number is raised whenever the meaning of index nodes
/// changes. Since number 1, a node of zeros belongs to no index. Since number 2, entries lie in home groups.
const NODES_LAYOUT: u32 = 2;

fn stamp(schemas: &[TableSchema], options: &Options, groups: usize) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = StampHasher(0xcbf2_9ce4_8422_2325);
    (NODES_LAYOUT, schemas, options, groups).hash(&mut hasher);
    hasher.finish().max(1)
}

/// The FNV-1a hash. The default hasher may change with the compiler, but a stamp must not change.
struct StampHasher(u64);

impl std::hash::Hasher for StampHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
