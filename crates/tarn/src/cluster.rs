//! An embedded cluster: memory nodes and compute nodes in this process.
//!
//! Invariant: the catalog's stamp stands in every memory node's superblock, written when the
//! cluster is made and compared when somebody joins; a plan or protocol that differs is refused.

use crate::memory::check_caches;
use std::io;
use std::sync::Arc;
use tarn_engine::catalog::{Catalog, Options};
use tarn_engine::context::{ComputeNode, Context, Database};
use tarn_engine::membership::EmbeddedMembership;
use tarn_engine::outcome::UsageError;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::replica_groups::ReplicaGroups;
use tarn_engine::schema::TableSchema;
use tarn_fabric::address::{Address, GroupId, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;
use tarn_fabric::local::{Backing, LineAtomicity, LocalConfig, LocalFabric};
use tarn_fabric::port::Port;
use tarn_fabric::rng::mix;
use tarn_fabric::round::Round;

const MAGIC: u64 = u64::from_le_bytes(*b"TARNDB01");

/// The shape of an embedded cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Protocol's name.
    pub protocol: String,
    /// Its variant.
    pub variant: String,
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Copies of every record.
    pub replicas: usize,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Seed of every generator.
    pub seed: u64,
    /// Layout options.
    pub options: Options,
    /// What memory to ask for.
    pub backing: Backing,
    /// How lines are kept atomic.
    pub atomicity: LineAtomicity,
    /// Whether a posted round's lines are fetched ahead.
    pub prefetch: bool,
    /// Addresses that each thread remembers; 0 for none.
    pub address_cache_entries: usize,
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
            backing: Backing::Auto,
            atomicity: LineAtomicity::Striped { bits: 16 },
            prefetch: true,
            address_cache_entries: 0,
        }
    }
}

/// Why a cluster could not be made or joined.
#[derive(Debug)]
pub enum OpenError {
    /// A value that cannot be used.
    Usage(UsageError),
    /// The memory holds another database.
    Mismatch(String),
    /// The operating system's refusal.
    Io(io::Error),
    /// The fabric's.
    Fabric(FabricError),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Usage(error) => error.fmt(f),
            OpenError::Mismatch(text) => f.write_str(text),
            OpenError::Io(error) => error.fmt(f),
            OpenError::Fabric(error) => error.fmt(f),
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

/// An embedded cluster; see the module's text.
pub struct Cluster {
    fabric: Arc<LocalFabric>,
    database: Arc<Database>,
    config: ClusterConfig,
}

impl Cluster {
    /// Makes the memory nodes and lays out `schemas`.
    ///
    /// # Errors
    /// Names what cannot be.
    pub fn new(schemas: &[TableSchema], config: &ClusterConfig) -> Result<Cluster, OpenError> {
        Cluster::for_threads(schemas, config, 1)
    }

    /// As [`Cluster::new`], if there is memory for so many threads as well.
    ///
    /// # Errors
    /// Names what cannot be.
    pub fn for_threads(
        schemas: &[TableSchema],
        config: &ClusterConfig,
        threads: usize,
    ) -> Result<Cluster, OpenError> {
        let protocol = AnyProtocol::by_name(&config.protocol, &config.variant)?;
        protocol.refuse_unsafe(&config.variant)?;
        let catalog = Catalog::plan(schemas, &config.options, config.memory_nodes.max(1))?;
        check_memory(&catalog, config, threads)?;
        let fabric = LocalFabric::new(&LocalConfig {
            memory_nodes: config.memory_nodes,
            replicas: config.replicas,
            spare_nodes: 0,
            group_bytes: catalog.group_bytes(),
            backing: config.backing,
            atomicity: config.atomicity,
            prefetch: config.prefetch,
        })
        .map_err(usage_or_io)?;
        let groups = ReplicaGroups::new(fabric.groups().to_vec());
        let membership = Arc::new(EmbeddedMembership::new(config.compute_nodes));
        let database = Arc::new(Database::new(catalog, groups, protocol, membership));
        let cluster = Cluster { fabric, database, config: config.clone() };
        cluster.stamp()?;
        Ok(cluster)
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// The memory.
    pub fn fabric(&self) -> &Arc<LocalFabric> {
        &self.fabric
    }

    /// As it was asked for.
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// A compute node joins in a new life.
    ///
    /// # Errors
    /// When the slot is not of this cluster, or has used up its lives; when the memory's stamp is
    /// another than this cluster's.
    pub fn join(&self, slot: u16) -> Result<Arc<ComputeNode>, OpenError> {
        let id = self.database.membership.join(NodeSlot(slot))?;
        let port = self.fabric.port(id, 0, self.config.seed);
        self.compare_stamp(&port)?;
        Ok(Arc::new(ComputeNode::new(Arc::clone(&self.database), id)))
    }

    /// A thread of a compute node; call it on the thread that will use it.
    ///
    /// # Errors
    /// A thread number beyond what owner tags can name.
    pub fn context(&self, node: &Arc<ComputeNode>, thread: u16) -> Result<Context, UsageError> {
        let port = self.fabric.port(node.id, thread, self.config.seed);
        Context::new(Arc::clone(node), port, thread, self.config.address_cache_entries)
    }

    /// Memory laid out, over all nodes and replicas, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        laid_out_bytes(&self.database.catalog, &self.config)
    }

    fn stamp_words(&self) -> [u64; 3] {
        let info = self.database.protocol.info();
        let layout = info.layout.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        let name = info.name.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        [MAGIC, self.database.catalog.stamp(), layout ^ name.rotate_left(1)]
    }

    fn stamp(&self) -> Result<(), Box<FabricError>> {
        let id = tarn_fabric::address::NodeId {
            slot: NodeSlot(0),
            incarnation: tarn_fabric::address::Incarnation(0),
        };
        let port = self.fabric.port(id, 0, self.config.seed);
        let mut round = Round::new();
        let words = round.reserve(24);
        for (index, word) in self.stamp_words().into_iter().enumerate() {
            round.set_word(words.plus(index * 8), word);
        }
        for group in 0..self.database.groups().count() {
            for target in self.database.groups().all(superblock(group)) {
                round.write(target, words, 24);
            }
        }
        block_on(port.execute(&mut round))
    }

    fn compare_stamp(&self, port: &Port) -> Result<(), OpenError> {
        let expected = self.stamp_words();
        for group in 0..self.database.groups().count() {
            let mut round = Round::new();
            let at = round.read(self.database.groups().primary(superblock(group)), 24);
            block_on(port.execute(&mut round))?;
            let found = [0, 8, 16].map(|offset| round.word(at.plus(offset)));
            if found != expected {
                return Err(OpenError::Mismatch(mismatch(found, expected)));
            }
        }
        Ok(())
    }
}

fn superblock(group: usize) -> Address {
    Address::new(GroupId(group as u16), 0)
}

fn mismatch(found: [u64; 3], expected: [u64; 3]) -> String {
    let what = match () {
        () if found[0] != expected[0] => "holds no Tarn database",
        () if found[1] != expected[1] => "was laid out for another schema or other options",
        () => "was laid out for another protocol",
    };
    format!("the memory {what}; open it as it was made, or dump it and load it anew")
}

fn usage_or_io(error: io::Error) -> OpenError {
    if error.kind() == io::ErrorKind::InvalidInput {
        let text = error.to_string();
        let (field, rest) = text.split_once(" = ").unwrap_or(("cluster", &text));
        let (value, allowed) = rest.split_once("; allowed: ").unwrap_or((rest, ""));
        let (field, value) = (field.replace('_', "-"), value.to_owned());
        return OpenError::Usage(UsageError { field, value, allowed: allowed.to_owned() });
    }
    OpenError::Io(error)
}

fn laid_out_bytes(catalog: &Catalog, config: &ClusterConfig) -> u64 {
    catalog.group_bytes() * config.memory_nodes as u64 * config.replicas as u64
}

/// Refuses a layout that the machine has not the memory for, before anything is touched.
fn check_memory(
    catalog: &Catalog,
    config: &ClusterConfig,
    threads: usize,
) -> Result<(), OpenError> {
    let wanted = laid_out_bytes(catalog, config);
    let Some(available) = crate::machine::available_bytes() else { return Ok(()) };
    if wanted > available {
        return Err(OpenError::Usage(UsageError {
            field: "records".into(),
            value: format!("{:.1} GiB of memory in all", gib(wanted)),
            allowed: format!(
                "what this machine has available, {:.1} GiB: fewer records, replicas or memory nodes",
                gib(available)
            ),
        }));
    }
    Ok(check_caches(config.address_cache_entries, threads, wanted, available)?)
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
