//! The small database on which one litmus (a test of a few transactions) runs with one shape. This file chooses the
//! database's catalog, keys and compute nodes.
//!
//! Invariant: litmus, shape, protocol and variant determine this database. The keys are chosen so that neighbouring
//! records are in different groups and no two records share a bucket. There is one exception: the records of a set in
//! the litmus's field `together` share a bin. So a transaction that uses only one record touches no line of another
//! record. The database has two compute nodes more than the litmus: the steward and the deputy. The steward loads the
//! records, recovers lost nodes, reads the memory when no transaction runs, and is never lost. In runs in which the
//! deputy may be lost, the deputy recovers lost nodes before the steward does.

use super::coordinate::write;
use super::litmus::Litmus;
use super::ranges::{self, Holder};
use super::script::RecordIndex;
use super::service::Service;
use super::shape::Shape;
use crate::harness::checks::guaranteed;
use crate::harness::rest::ALL;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use tarn_check::Isolation;
use tarn_engine::admin::load::Loader;
use tarn_engine::cluster::membership::Membership;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::services::ServiceOptions;
use tarn_engine::services::timestamp::Timestamps;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot};
use tarn_fabric::executor::block_on;
use tarn_fabric::port::Port;
use tarn_store::ids::{Failure, UsageError};
use tarn_store::index::btree::work::TreeTask;
use tarn_store::index::{IndexView, Place, hash_of};
use tarn_store::placement::catalog::{Catalog, Options, SUPERBLOCK_BYTES};
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_store::placement::shard_map::{ShardId, shard_of_address};
use tarn_store::schema::{TableId, TableSchema};

/// The only table of the database.
pub const TABLE: TableId = TableId(0);
/// The number of addresses that a coordinator remembers, if the litmus lets it remember addresses.
const REMEMBERED: usize = 16;
/// The seed from which every random generator of an execution starts. The code that the explorer runs draws no random
/// numbers.
pub const SEED: u64 = 1;
/// The length of readers' leases and of writers' waits. The length does not matter, because the
/// explorer only decides which waits fit into which windows.
const READ_LEASE_NS: u32 = 1;
/// The offset of the timestamp counter in memory. The counter is on the second line of the superblock's page, and
/// this line has no other use.
const TIMESTAMPS_AT: u64 = 64;
const _: () = assert!(TIMESTAMPS_AT + 8 <= SUPERBLOCK_BYTES);
/// The size of each node's lock table. The table is small because the digest of every state reads the whole table.
const LOCK_TABLE_BYTES: u64 = 1 << 10;
/// The number of keys that are tried for one record.
const KEYS_MAX: u64 = 1 << 20;

/// The small database of one litmus.
pub struct Cluster {
    /// The litmus that runs on the database.
    pub litmus: Rc<Litmus>,
    /// The shape of the cluster: the numbers of memory nodes, replicas and spares.
    pub shape: Shape,
    protocol: String,
    variant: String,
    /// The isolation level that histories must satisfy.
    pub isolation: Isolation,
    /// The catalog of the database, which is the plan of the memory.
    pub catalog: Catalog,
    keys: Vec<u64>,
    /// The keys of filler records, each with its value.
    pub fillers: Vec<(u64, u64)>,
    /// The shards of the records and of their buckets.
    pub shards: Vec<ShardId>,
}

impl Cluster {
    /// Plans the database.
    ///
    /// # Errors
    /// The error names the unknown protocol or variant, or says that the shape has too few buckets for
    /// the records.
    pub fn new(
        litmus: &Rc<Litmus>,
        shape: Shape,
        (protocol, variant): (&str, &str),
    ) -> Result<Cluster, UsageError> {
        let planner = AnyProtocol::by_name(protocol, variant)?;
        let options = Options {
            coordinators_max: litmus.coordinators.len() as u32 + 1,
            // The redo log of an ordered index contains whole tree nodes, so the log is larger.
            log_bytes: if litmus.ordered.is_some() { 2 << 10 } else { 1 << 10 },
            chunk_bytes: 4 << 10,
            // Each coordinator that splits a tree node takes a chunk of memory for its own use.
            spare_bytes: 4 << 10,
            ..Options::default()
        };
        let catalog = planner.catalog(&[schema(litmus)], &options, shape.memory_nodes)?;
        let places = Places::new(&catalog, litmus);
        let keys = places.keys().ok_or_else(|| UsageError {
            field: "litmus".into(),
            value: format!("{} with {} records", litmus.name, litmus.records.len()),
            allowed: format!(
                "on {shape} fewer that are not put together: each has a bucket of its own"
            ),
        })?;
        let (fillers, shards) = (places.fillers(&keys), places.shards(&keys));
        let (protocol, variant) = (protocol.to_owned(), variant.to_owned());
        let litmus = Rc::clone(litmus);
        let isolation = guaranteed(&planner);
        Ok(Cluster { litmus, shape, protocol, variant, isolation, catalog, keys, fillers, shards })
    }

    /// Returns the schema of the only table.
    pub fn schema(&self) -> &TableSchema {
        &self.catalog.table(TABLE).schema
    }

    /// Returns a record's key.
    pub fn key(&self, record: RecordIndex) -> u64 {
        self.keys[record.0]
    }

    /// Returns the record with this key.
    pub fn record(&self, key: u64) -> Option<RecordIndex> {
        self.keys.iter().position(|known| *known == key).map(RecordIndex)
    }

    /// Returns the holder of an index entry that has `value` and leads to the record of `key`.
    pub fn holder(&self, key: u64, value: u64) -> Holder {
        match self.record(key) {
            Some(record) => Holder::Record(record),
            None if self.fillers.contains(&(key, value)) => Holder::Filler,
            None => Holder::Nobody,
        }
    }

    /// Returns a compute node of the litmus in its only incarnation.
    pub fn node(&self, slot: u16) -> NodeId {
        NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }
    }

    /// Returns the steward: the compute node that is never lost.
    pub fn steward(&self) -> NodeId {
        self.node(self.litmus.compute_nodes() + 1)
    }

    /// Returns the deputy: the compute node that recovers lost nodes first, and may be lost itself.
    pub fn deputy(&self) -> NodeId {
        self.node(self.litmus.compute_nodes())
    }

    /// Returns the number of compute nodes, including the deputy and the steward.
    pub fn compute_nodes(&self) -> usize {
        usize::from(self.litmus.compute_nodes()) + 2
    }

    /// Creates the database of one execution. Each execution has new services, so that no state of an earlier
    /// execution remains, and every compute node is in its first incarnation.
    pub fn database(&self, groups: &[Vec<NodeSlot>]) -> (Arc<Database>, Arc<Service>) {
        let protocol = AnyProtocol::by_name(&self.protocol, &self.variant);
        let protocol = protocol.expect("it was looked at before");
        let read_lease_ns = if protocol.needs().read_leases { READ_LEASE_NS } else { 0 };
        let membership = Service::new(self.compute_nodes(), read_lease_ns);
        for slot in 0..self.compute_nodes() as u16 {
            let node = membership.join(NodeSlot(slot)).expect("a first life");
            debug_assert_eq!(node, self.node(slot));
        }
        let (catalog, groups) = (self.catalog.clone(), ReplicaGroups::new(groups.to_vec()));
        if protocol.needs().locks {
            let owners: Vec<NodeId> =
                (0..self.litmus.compute_nodes()).map(|slot| self.node(slot)).collect();
            membership.open_shards(&owners);
        }
        let database = Database::new(catalog, groups, protocol, membership.clone());
        for spare in 0..self.shape.spares {
            let slot = NodeSlot((self.shape.memory_nodes + spare) as u16);
            database.configurations.add_spare(slot);
        }
        (Arc::new(database), membership)
    }

    /// Creates a compute node of one execution.
    pub fn join(&self, database: &Arc<Database>, node: NodeId) -> Arc<ComputeNode> {
        let lock_table_bytes = LOCK_TABLE_BYTES;
        let services = ServiceOptions { lock_table_bytes, ..ServiceOptions::direct(1) };
        let joined = ComputeNode::serving(Arc::clone(database), node, &services);
        let joined = Arc::new(joined.expect("a small lock table"));
        if let Some(services) = joined.services() {
            // The node reads all shards of the litmus now, so it never learns a shard later, at a
            // moment that the explorer cannot see.
            for shard in &self.shards {
                services.shards.reread(&*database.membership, *shard);
            }
        }
        joined
    }

    /// Creates a thread's context, which gives the thread access to the database. Indexes do not grow.
    pub fn context(
        &self,
        node: &Arc<ComputeNode>,
        port: Port,
        thread: u16,
        remembers: bool,
    ) -> Rc<Context> {
        let remembered = if remembers { REMEMBERED } else { 0 };
        let cx = Context::new(Arc::clone(node), port, thread, remembered);
        let mut cx = cx.expect("a thread for each coordinator");
        // A counter of the process would be an object that every node sees. A counter in memory is a
        // word in a line, which the explorer treats like any other line.
        cx.timestamps = Timestamps::Pool(Address::new(GroupId(0), TIMESTAMPS_AT));
        cx.growth.enable(false);
        Rc::new(cx)
    }

    /// Loads the initial records, while no transaction of the litmus runs.
    ///
    /// # Panics
    /// Panics if memory cannot be written. No fault happens while the database is loaded, so the memory can be
    /// written.
    pub fn load(&self, cx: &Rc<Context>) {
        let loaded: Result<u64, Failure> = block_on(async {
            let mut loader = Loader::new(cx, ALL);
            let named = self.litmus.initial.iter().zip(&self.keys);
            let named = named.filter_map(|(content, &key)| Some((key, (*content)?)));
            let early = self.fillers.iter().copied().filter(|filler| !self.is_late(filler));
            for (key, value) in named.chain(early) {
                let fill =
                    |bytes: &mut [u8]| bytes.as_chunks_mut::<8>().0.fill(value.to_le_bytes());
                loader.insert(TABLE, key, |row| fill(row.payload())).await?;
            }
            let loaded = loader.finish().await?;
            self.prepare(cx).await?;
            Ok(loaded)
        });
        loaded.expect("a cluster at rest can be loaded");
    }

    fn is_late(&self, &(_, value): &(u64, u64)) -> bool {
        let ordered = self.litmus.ordered.as_ref();
        ordered.is_some_and(|ordered| ordered.late.contains(&value))
    }

    /// Splits the leaves that the litmus names, and inserts the late fillers, with the engine's own transactions.
    /// These transactions have a coordinator number that no coordinator of the litmus has.
    async fn prepare(&self, cx: &Rc<Context>) -> Result<(), Failure> {
        let Some(ordered) = &self.litmus.ordered else { return Ok(()) };
        let number = self.litmus.coordinators.len() as u32;
        let mut by = Coordinator::new(Rc::clone(cx), number, Retry::default());
        for &value in &ordered.splits {
            cx.tree_works.request(ranges::work(TreeTask::Split, value));
            by.transact(async |_| Ok(())).await?;
        }
        let late: Vec<_> = self.fillers.iter().filter(|filler| self.is_late(filler)).collect();
        let (singly, last) = late.split_at(late.len().saturating_sub(TOGETHER));
        for fillers in singly.chunks(1).chain([last]) {
            by.transact(async |tx| {
                let rows: Vec<Handle> =
                    fillers.iter().map(|(key, _)| tx.insert(TABLE, *key)).collect();
                tx.fetch().await?;
                for (&row, (_, value)) in rows.iter().zip(fillers) {
                    write(tx, row, *value);
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

fn schema(litmus: &Litmus) -> TableSchema {
    let table = litmus.layout.schema();
    match &litmus.ordered {
        Some(ordered) => ordered.schema(table, litmus.records.len()),
        None => table,
    }
}

/// The number of late fillers that the last transaction of the loading inserts. These inserts leave so little free
/// room in a leaf that the engine requests a split of the leaf. The engine would execute the requested split before
/// the next transaction with the same coordinator number, so no such transaction follows.
const TOGETHER: usize = 3;

/// Searches for the keys of the litmus's records, so that each record gets the wanted bucket.
struct Places<'a> {
    catalog: &'a Catalog,
    litmus: &'a Litmus,
    view: IndexView,
}

impl<'a> Places<'a> {
    fn new(catalog: &'a Catalog, litmus: &'a Litmus) -> Places<'a> {
        Places { catalog, litmus, view: IndexView::new(catalog) }
    }

    fn of(&self, key: u64) -> Place {
        let table = self.catalog.table(TABLE);
        self.view.place(self.catalog, table, hash_of(table, key))
    }

    /// Returns a key for each record, or `None` if the table has too few buckets.
    fn keys(&self) -> Option<Vec<u64>> {
        let mut keys: Vec<u64> = Vec::new();
        let mut group = 0;
        for record in 0..self.litmus.records.len() {
            let wanted = GroupId((group % self.catalog.groups()) as u16);
            let partner = self.partner(record).map(|other| self.of(keys[other]));
            let taken: Vec<Place> = keys.iter().map(|key| self.of(*key)).collect();
            let fits = |key: &u64| {
                let place = self.of(*key);
                match partner {
                    Some(partner) => (place.bucket, place.bin) == (partner.bucket, partner.bin),
                    None => {
                        place.group == wanted && taken.iter().all(|it| it.bucket != place.bucket)
                    }
                }
            };
            // In an ordered index, records with the same value are in the order of their keys.
            let ascends = |key: &u64| {
                self.litmus.ordered.is_none() || keys.last().is_none_or(|last| last < key)
            };
            let is_free = |key: &u64| !keys.contains(key) && ascends(key);
            keys.push((1..KEYS_MAX).find(|key| is_free(key) && fits(key))?);
            group += usize::from(partner.is_none());
        }
        Some(keys)
    }

    /// Returns a key for each filler, with the filler's value. The keys are larger than the keys of the
    /// records and belong to other buckets.
    fn fillers(&self, keys: &[u64]) -> Vec<(u64, u64)> {
        let Some(ordered) = &self.litmus.ordered else { return Vec::new() };
        let taken: Vec<Place> = keys.iter().map(|key| self.of(*key)).collect();
        let is_apart = |key: &u64| {
            let bucket = self.of(*key).bucket;
            taken.iter().all(|it| it.bucket != bucket)
        };
        let free = (keys.last().map_or(1, |last| last + 1)..).filter(is_apart);
        free.zip(ordered.fillers.iter().copied()).collect()
    }

    /// Returns the shards of the locks of these keys and of their buckets, each shard once.
    fn shards(&self, keys: &[u64]) -> Vec<ShardId> {
        let table = self.catalog.table(TABLE);
        let of = |key: &u64| [table.shard_of(*key), shard_of_address(self.of(*key).bucket)];
        let shards: BTreeSet<ShardId> = keys.iter().flat_map(of).collect();
        shards.into_iter().collect()
    }

    /// Returns an earlier record whose bin this record must share, if there is one.
    fn partner(&self, record: usize) -> Option<usize> {
        let shares = |set: &&Vec<usize>| set.contains(&record);
        let set = self.litmus.together.iter().find(shares)?;
        set.iter().copied().find(|other| *other < record)
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
