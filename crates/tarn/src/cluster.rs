//! An embedded cluster: memory nodes and compute nodes in this process.
//!
//! Invariant: the superblock of every memory node contains the catalog's stamp. The cluster writes the stamp when it
//! is created, and compares it when a compute node joins. If the plan or the protocol differs, the compute node is
//! refused.

pub use crate::memory::MemoryMax;
use crate::memory::{available_bytes, check_caches, plan_to_grow};
use crate::snapshot::SnapshotError;
use std::io;
use std::sync::Arc;
use tarn_engine::cluster::lease::LeasePolicy;
use tarn_engine::cluster::membership::EmbeddedMembership;
use tarn_engine::protocol::{ALL, AnyProtocol};
use tarn_engine::services::ServiceOptions;
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::{Address, GroupId, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;
use tarn_fabric::local::{Backing, LineAtomicity, LocalConfig, LocalFabric};
use tarn_fabric::port::Port;
use tarn_fabric::round::Round;
use tarn_store::ids::{THREADS_MAX, UsageError};
use tarn_store::placement::catalog::{Catalog, Options, SUPERBLOCK_BYTES};
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_store::schema::TableSchema;

/// The greatest number of version tables that a compute node may cache.
pub const VERSION_CACHE_MAX: usize = 1 << 24;

/// The number of bytes that a superblock uses for MAGIC, the plan's stamp, and the names of protocol and layout. The
/// words of timestamps are in the next cache line ([`tarn_engine::requests::timestamp::pool_word`]).
const SUPERBLOCK_USED: usize = 64;
/// The first word of a superblock. The version number in MAGIC increases when the meaning of the other words changes.
/// In version 2 these words contain names instead of hashes.
const MAGIC: &[u8; 8] = b"TARNDB03";
const STAMP_AT: usize = 8;
const PROTOCOL_AT: usize = 16;
const LAYOUT_AT: usize = 40;

const _: () = assert!(MAGIC.len() <= STAMP_AT && SUPERBLOCK_USED as u64 <= SUPERBLOCK_BYTES);
const _: () = {
    let mut at = 0;
    while at < ALL.len() {
        assert!(
            ALL[at].name.len() <= LAYOUT_AT - PROTOCOL_AT,
            "the name of each protocol has room"
        );
        at += 1;
    }
};

/// The configuration of an embedded cluster.
///
/// ```
/// use tarn::cluster::{ClusterConfig, MemoryMax};
///
/// let config = ClusterConfig {
///     memory_nodes: 3,
///     replicas: 3,
///     memory_max: MemoryMax::Bytes(1 << 30),
///     ..ClusterConfig::default()
/// };
/// assert_eq!(config.protocol, "ford");
/// ```
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The name of the protocol.
    pub protocol: String,
    /// The variant of the protocol.
    pub variant: String,
    /// The number of memory nodes.
    pub memory_nodes: usize,
    /// The number of copies of every record.
    pub replicas: usize,
    /// The number of compute nodes.
    pub compute_nodes: usize,
    /// The seed of every random generator.
    pub seed: u64,
    /// The options of the layout. A database that may grow raises `spare_bytes`.
    pub options: Options,
    /// The most memory that the database may use.
    pub memory_max: MemoryMax,
    /// The kind of memory that the cluster requests from the operating system.
    pub backing: Backing,
    /// The way in which the fabric keeps cache lines atomic.
    pub atomicity: LineAtomicity,
    /// Whether a thread prefetches the cache lines of a posted round.
    pub prefetch: bool,
    /// The number of record addresses that each thread caches. 0 means that it caches none.
    pub address_cache_entries: usize,
    /// The number of version tables that each compute node caches, under a protocol whose locks are in compute nodes.
    /// 0 means that it caches none. A READ of this machine's memory costs less than caching its result
    /// (`docs/design/0006-embedded-speed.md`).
    pub version_cache_entries: usize,
    /// How long readers trust their reads, and how long writers wait, in nanoseconds, under a protocol with implicit
    /// leases. 0 means that there are no leases.
    pub read_lease_ns: u32,
    /// The policy that adjusts the lease length while transactions run. `None`: the lease length is fixed.
    pub read_lease_policy: Option<LeasePolicy>,
    /// Whether compute nodes request locks from each other by messages, as different processes would. If this is
    /// false, compute nodes call each other directly.
    pub lock_messages: bool,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        ClusterConfig {
            protocol: "ford".into(),
            variant: "corrected".into(),
            memory_nodes: 1,
            replicas: 1,
            compute_nodes: 1,
            seed: 1,
            options: Options::default(),
            memory_max: MemoryMax::Expected,
            backing: Backing::Auto,
            atomicity: LineAtomicity::Striped { bits: 16 },
            prefetch: true,
            address_cache_entries: 0,
            version_cache_entries: 0,
            read_lease_ns: 0,
            read_lease_policy: None,
            lock_messages: false,
        }
    }
}

/// The reason why a cluster could not be created, or why a compute node could not join it.
///
/// ```
/// use tarn::cluster::{Cluster, ClusterConfig, OpenError};
/// use tarn::{ColumnType, TableSchema};
///
/// let schema = TableSchema::new("players", 100).column("points", ColumnType::U64);
/// let config = ClusterConfig { memory_nodes: 0, ..ClusterConfig::default() };
/// let Err(OpenError::Usage(usage)) = Cluster::new(&[schema], &config) else { panic!() };
/// assert_eq!(usage.value, "0");
/// ```
#[derive(Debug)]
pub enum OpenError {
    /// The caller gave a value that cannot be used.
    Usage(UsageError),
    /// The memory contains another database.
    Mismatch(String),
    /// The operating system refused a request.
    Io(io::Error),
    /// The fabric returned an error.
    Fabric(FabricError),
    /// A snapshot was not saved or not loaded.
    Snapshot(SnapshotError),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Usage(error) => error.fmt(f),
            OpenError::Mismatch(text) => f.write_str(text),
            OpenError::Io(error) => error.fmt(f),
            OpenError::Fabric(error) => error.fmt(f),
            OpenError::Snapshot(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<UsageError> for OpenError {
    fn from(error: UsageError) -> OpenError {
        OpenError::Usage(error)
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::Io(error)
    }
}

impl From<Box<FabricError>> for OpenError {
    fn from(error: Box<FabricError>) -> OpenError {
        OpenError::Fabric(*error)
    }
}

/// An embedded cluster; see the module's documentation. [`Tarn::cluster`](crate::Tarn::cluster) returns the cluster of
/// a database.
///
/// ```
/// use tarn::cluster::{Cluster, ClusterConfig};
/// use tarn::{ColumnType, TableSchema};
///
/// let schema = TableSchema::new("players", 100).column("points", ColumnType::U64);
/// let cluster = Cluster::new(&[schema], &ClusterConfig::default())?;
/// let node = cluster.join(0)?;
/// let context = cluster.context(&node, 0)?; // of this thread
/// assert_eq!(context.database().catalog.tables().len(), 1);
/// # Ok::<(), tarn::cluster::OpenError>(())
/// ```
pub struct Cluster {
    fabric: Arc<LocalFabric>,
    database: Arc<Database>,
    config: ClusterConfig,
    /// The greatest number of threads of each compute node.
    threads: u16,
}

impl Cluster {
    /// Creates the memory nodes and lays out the tables of `schemas` in their memory.
    ///
    /// # Errors
    /// The error names the value that cannot be used.
    pub fn new(schemas: &[TableSchema], config: &ClusterConfig) -> Result<Cluster, OpenError> {
        Cluster::of(schemas, config, (1, THREADS_MAX))
    }

    /// Does the same as [`Cluster::new`], and also checks that the memory is sufficient for `threads` threads.
    ///
    /// # Errors
    /// The error names the value that cannot be used.
    pub fn for_threads(
        schemas: &[TableSchema],
        config: &ClusterConfig,
        threads: usize,
    ) -> Result<Cluster, OpenError> {
        Cluster::of(schemas, config, (threads, threads.div_ceil(config.compute_nodes.max(1))))
    }

    /// Creates a cluster. The first number of the pair is the number of threads for which the memory must be
    /// sufficient. The second number is the greatest number of threads of one node.
    fn of(
        schemas: &[TableSchema],
        config: &ClusterConfig,
        (threads, of_node): (usize, usize),
    ) -> Result<Cluster, OpenError> {
        let protocol = AnyProtocol::by_name(&config.protocol, &config.variant)?;
        protocol.refuse_unsafe(&config.variant)?;
        let catalog = protocol.catalog(schemas, &config.options, config.memory_nodes.max(1))?;
        check_memory(&catalog, config, threads)?;
        check_version_cache(config)?;
        let mut config = config.clone();
        let catalog = plan_to_grow(catalog, &protocol, schemas, &mut config)?;
        let fabric = LocalFabric::new(&LocalConfig {
            memory_nodes: config.memory_nodes,
            replicas: config.replicas,
            spare_nodes: 0,
            group_bytes: catalog.group_bytes(),
            backing: config.backing,
            atomicity: config.atomicity,
            prefetch: config.prefetch,
            near: true,
        })
        .map_err(usage_or_io)?;
        let groups = ReplicaGroups::new(fabric.groups().to_vec());
        let membership = EmbeddedMembership::new(config.compute_nodes);
        let membership = membership.leasing_reads(config.read_lease_ns)?;
        let membership = Arc::new(membership.adjusting_reads(config.read_lease_policy));
        let database = Arc::new(Database::new(catalog, groups, protocol, membership));
        let cluster = Cluster { fabric, database, config, threads: of_node as u16 };
        cluster.stamp()?;
        Ok(cluster)
    }

    /// Returns the database of this cluster.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Returns the fabric, which contains the memory nodes.
    pub fn fabric(&self) -> &Arc<LocalFabric> {
        &self.fabric
    }

    /// Returns the configuration that the caller requested.
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Lets a compute node join the cluster as a new incarnation of its slot.
    ///
    /// # Errors
    /// If the slot does not belong to this cluster, or has used up its incarnations. If the memory's stamp differs
    /// from this cluster's stamp.
    pub fn join(&self, slot: u16) -> Result<Arc<ComputeNode>, OpenError> {
        self.join_with(slot, None)
    }

    /// Does the same as [`Cluster::join`]. In addition, the new node shares memory with another node of this cluster:
    /// the memory that their threads leave for reuse.
    ///
    /// # Errors
    /// The same errors as [`Cluster::join`].
    pub fn join_beside(
        &self,
        slot: u16,
        other: &ComputeNode,
    ) -> Result<Arc<ComputeNode>, OpenError> {
        self.join_with(slot, Some(other))
    }

    fn join_with(
        &self,
        slot: u16,
        other: Option<&ComputeNode>,
    ) -> Result<Arc<ComputeNode>, OpenError> {
        let id = self.database.membership.join(NodeSlot(slot))?;
        let port = self.fabric.port(id, 0, self.config.seed);
        self.compare_stamp(&port)?;
        let nodes = self.config.compute_nodes;
        if self.config.lock_messages && self.database.protocol.needs().lock_service.is_some() {
            return Err(UsageError {
                field: "lock_messages".into(),
                value: "true".into(),
                allowed: "false, under a protocol over a lock service: a thread that sleeps \
                          answers no message"
                    .into(),
            }
            .into());
        }
        let services = match self.config.lock_messages {
            true => ServiceOptions::new(self.threads, nodes),
            false => ServiceOptions::near(self.threads, nodes),
        };
        let version_cache_entries = self.config.version_cache_entries;
        let services = ServiceOptions { version_cache_entries, ..services };
        let mut node = ComputeNode::serving(Arc::clone(&self.database), id, &services)?;
        if let Some(other) = other {
            node.share_memory(other);
        }
        Ok(Arc::new(node))
    }

    /// Creates a context for a thread of a compute node. The thread that will use the context must call this
    /// function.
    ///
    /// # Errors
    /// If the thread's number is greater than the greatest thread number of an owner tag.
    pub fn context(&self, node: &Arc<ComputeNode>, thread: u16) -> Result<Context, UsageError> {
        let port = self.fabric.port(node.id, thread, self.config.seed);
        Context::new(Arc::clone(node), port, thread, self.config.address_cache_entries)
    }

    /// The number of bytes of memory that the cluster laid out, over all nodes and replicas. The operating system gives
    /// a page of this memory when it is first written.
    pub fn memory_bytes(&self) -> u64 {
        laid_out_bytes(&self.database.catalog, &self.config)
    }

    fn superblock(&self) -> [u8; SUPERBLOCK_USED] {
        let (catalog, protocol) = (&self.database.catalog, self.database.protocol.info().name);
        superblock(catalog.stamp(), protocol, &catalog.options().layout.to_string())
    }

    fn stamp(&self) -> Result<(), Box<FabricError>> {
        let id = tarn_fabric::address::NodeId {
            slot: NodeSlot(0),
            incarnation: tarn_fabric::address::Incarnation(0),
        };
        let port = self.fabric.port(id, 0, self.config.seed);
        let mut round = Round::new();
        let bytes = round.reserve(SUPERBLOCK_USED);
        round.bytes_mut(bytes, SUPERBLOCK_USED).copy_from_slice(&self.superblock());
        for group in 0..self.database.groups().count() {
            for target in self.database.groups().all(superblock_at(group)) {
                round.write(target, bytes, SUPERBLOCK_USED);
            }
        }
        block_on(port.execute(&mut round))
    }

    fn compare_stamp(&self, port: &Port) -> Result<(), OpenError> {
        let expected = self.superblock();
        for group in 0..self.database.groups().count() {
            let mut round = Round::new();
            let target = self.database.groups().primary(superblock_at(group));
            let at = round.read(target, SUPERBLOCK_USED);
            block_on(port.execute(&mut round))?;
            let found = round.bytes(at, SUPERBLOCK_USED);
            if found != expected {
                return Err(OpenError::Mismatch(mismatch(found, &expected)));
            }
        }
        Ok(())
    }
}

fn superblock_at(group: usize) -> Address {
    Address::new(GroupId(group as u16), 0)
}

/// Returns the bytes of a memory node's superblock; see [`SUPERBLOCK_USED`].
///
/// # Panics
/// If the layout's name is too long, which is a bug of the protocol.
fn superblock(stamp: u64, protocol: &str, layout: &str) -> [u8; SUPERBLOCK_USED] {
    assert!(layout.len() <= SUPERBLOCK_USED - LAYOUT_AT, "the layout's name {layout} is too long");
    let mut bytes = [0; SUPERBLOCK_USED];
    let mut set = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    set(0, MAGIC);
    set(STAMP_AT, &stamp.to_le_bytes());
    set(PROTOCOL_AT, protocol.as_bytes());
    set(LAYOUT_AT, layout.as_bytes());
    bytes
}

/// Describes the first difference between the superblock that was found and the expected superblock.
fn mismatch(found: &[u8], expected: &[u8]) -> String {
    let name = |bytes: &[u8], from: usize, to: usize| {
        String::from_utf8_lossy(&bytes[from..to]).trim_end_matches('\0').to_owned()
    };
    let protocol = |bytes| name(bytes, PROTOCOL_AT, LAYOUT_AT);
    let layout = |bytes| name(bytes, LAYOUT_AT, SUPERBLOCK_USED);
    let differ = |from: usize, to: usize| found[from..to] != expected[from..to];
    let what = match () {
        () if differ(0, STAMP_AT) => "holds no Tarn database of this version".to_owned(),
        () if differ(PROTOCOL_AT, SUPERBLOCK_USED) => format!(
            "was laid out for protocol {} in layout {}, not for {} in {}",
            protocol(found),
            layout(found),
            protocol(expected),
            layout(expected)
        ),
        () => "was laid out for another schema or other options".to_owned(),
    };
    format!("the memory {what}; open it as it was made, or dump it and load it anew")
}

fn usage_or_io(error: io::Error) -> OpenError {
    if error.kind() == io::ErrorKind::InvalidInput {
        let text = error.to_string();
        let (field, rest) = text.split_once(" = ").unwrap_or(("cluster", &text));
        let (value, allowed) = rest.split_once("; allowed: ").unwrap_or((rest, ""));
        let (field, value) = (field.to_owned(), value.to_owned());
        return OpenError::Usage(UsageError { field, value, allowed: allowed.to_owned() });
    }
    OpenError::Io(error)
}

fn laid_out_bytes(catalog: &Catalog, config: &ClusterConfig) -> u64 {
    let copies = (config.memory_nodes as u64).saturating_mul(config.replicas as u64);
    catalog.group_bytes().saturating_mul(copies)
}

/// Refuses a layout for which the machine has too little memory. This check comes before the first use of the memory.
fn check_memory(
    catalog: &Catalog,
    config: &ClusterConfig,
    threads: usize,
) -> Result<(), OpenError> {
    let wanted = laid_out_bytes(catalog, config);
    let Some(available) = available_bytes() else { return Ok(()) };
    if wanted > available {
        let all = format!("{:.1} GiB of memory in all", gib(wanted));
        // If one copy on one node has room, the number of copies or nodes is too large, and not a part of a copy.
        let (field, value) = match (config.replicas, config.memory_nodes) {
            _ if catalog.group_bytes() > available => (catalog.largest_part(), all),
            (1, nodes) => ("memory_nodes", format!("{nodes}, {all}")),
            (replicas, _) => ("replicas", format!("{replicas}, {all}")),
        };
        return Err(OpenError::Usage(UsageError {
            field: field.into(),
            value,
            allowed: format!(
                "at most {:.1} GiB, which this machine has available; use fewer records, replicas \
                 or memory nodes",
                gib(available)
            ),
        }));
    }
    Ok(check_caches(config.address_cache_entries, threads, wanted, available)?)
}

fn check_version_cache(config: &ClusterConfig) -> Result<(), UsageError> {
    let entries = config.version_cache_entries;
    if entries <= VERSION_CACHE_MAX {
        return Ok(());
    }
    let (field, value) = ("version_cache".to_owned(), entries.to_string());
    Err(UsageError { field, value, allowed: format!("0 to {VERSION_CACHE_MAX}") })
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::NodeId;
    use tarn_store::schema::ColumnType;

    fn cluster() -> Cluster {
        let schema = TableSchema::new("t", 100).column("c", ColumnType::U64);
        let backing = Backing::Private;
        Cluster::new(&[schema], &ClusterConfig { backing, ..ClusterConfig::default() })
            .expect("a cluster")
    }

    /// Returns the error of a compute node that joins when the memory has this superblock.
    fn refusal(cluster: &Cluster, superblock: [u8; SUPERBLOCK_USED]) -> String {
        let id: NodeId = cluster.database.membership.join(NodeSlot(0)).expect("a life");
        let port = cluster.fabric.port(id, 0, 1);
        let mut round = Round::new();
        let bytes = round.reserve(SUPERBLOCK_USED);
        round.bytes_mut(bytes, SUPERBLOCK_USED).copy_from_slice(&superblock);
        let target = cluster.database.groups().primary(superblock_at(0));
        round.write(target, bytes, SUPERBLOCK_USED);
        block_on(port.execute(&mut round)).expect("a round");
        cluster.join(0).err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn opening_memory_of_another_layout_is_refused_with_the_difference() {
        let cluster = cluster();
        let info = cluster.database.protocol.info();
        let stamp = cluster.database.catalog.stamp();
        let layout = cluster.database.catalog.options().layout.to_string();
        assert!(cluster.join(0).is_ok());
        let said = refusal(&cluster, superblock(stamp ^ 1, "other", "cells-of-2"));
        let both =
            format!("for protocol other in layout cells-of-2, not for {} in {layout}", info.name);
        assert!(said.contains(&both), "{said}");
        let said = refusal(&cluster, superblock(stamp ^ 1, info.name, &layout));
        assert!(said.contains("another schema or other options"), "{said}");
        let said = refusal(&cluster, [0; SUPERBLOCK_USED]);
        assert!(said.contains("no Tarn database of this version"), "{said}");
        assert_eq!(refusal(&cluster, superblock(stamp, info.name, &layout)), "");
    }
}
