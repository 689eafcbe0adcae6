//! A small embedded cluster for tests: tables, contexts, coordinators, histories.
//!
//! Invariant: everything in this module is deterministic. Only the test files use threads and clocks.

pub mod budget;
pub mod crash;
pub mod mix;
pub mod orders;
pub mod race;
pub mod scene;
pub mod weak;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_check::{History, Outcome, RecordId, Transaction as Recorded, TxnId, WriteKind};
use tarn_engine::admin::inspect::{self, Audit};
use tarn_engine::cluster::membership::{EmbeddedMembership, Membership};
use tarn_engine::protocol::{ALL, AnyProtocol};
use tarn_engine::services::ServiceOptions;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::{GroupId, NodeSlot};
use tarn_fabric::executor::block_on;
use tarn_fabric::local::{Backing, LineAtomicity, LocalConfig, LocalFabric};
use tarn_fabric::round::Round;
use tarn_store::history::{self, RecordedOutcome, RecordedTxn};
use tarn_store::ids::THREADS_MAX;
use tarn_store::placement::catalog::Options;
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_store::schema::{ColumnId, ColumnType, TableId, TableSchema};

/// The first column of every table that this module defines.
pub const A: ColumnId = ColumnId(0);
/// The second column of every table of this module that has two columns.
pub const B: ColumnId = ColumnId(1);

/// The parameters of a test's cluster.
#[derive(Clone)]
pub struct Shape {
    pub schemas: Vec<TableSchema>,
    pub options: Options,
    pub memory_nodes: usize,
    pub replicas: usize,
    pub compute_nodes: usize,
    pub protocol: &'static str,
    pub variant: String,
    pub atomicity: LineAtomicity,
    /// Whether threads also reach memory by loads and stores, without rounds.
    pub near: bool,
    /// The length of readers' leases in nanoseconds, for protocols with leases.
    pub read_lease_ns: u32,
}

impl Shape {
    pub fn of(schemas: &[TableSchema]) -> Shape {
        Shape {
            schemas: schemas.to_vec(),
            options: Options {
                coordinators_max: 64,
                log_bytes: 64 << 10,
                chunk_bytes: 16 << 10,
                spare_bytes: 4 << 20,
                ..Options::default()
            },
            memory_nodes: 1,
            replicas: 1,
            compute_nodes: 8,
            protocol: ALL[0].name,
            variant: "corrected".into(),
            atomicity: LineAtomicity::Striped { bits: 10 },
            near: true,
            read_lease_ns: 0,
        }
    }

    /// Sets the length of readers' leases.
    pub fn leasing_reads(mut self, length_ns: u32) -> Shape {
        self.read_lease_ns = length_ns;
        self
    }

    /// Chooses a protocol by its name.
    pub fn protocol(mut self, name: &'static str) -> Shape {
        self.protocol = name;
        self
    }

    /// Sets the number of memory nodes, and the number of replicas of each record.
    pub fn nodes(mut self, memory_nodes: usize, replicas: usize) -> Shape {
        (self.memory_nodes, self.replicas) = (memory_nodes, replicas);
        self
    }

    pub fn variant(mut self, variant: &str) -> Shape {
        self.variant = variant.into();
        self
    }

    pub fn database(&self) -> Arc<Database> {
        let protocol = AnyProtocol::by_name(self.protocol, &self.variant).unwrap();
        let catalog = protocol.catalog(&self.schemas, &self.options, self.memory_nodes).unwrap();
        let (nodes, replicas) = (self.memory_nodes, self.replicas);
        let groups = (0..nodes)
            .map(|group| {
                (group..group + replicas).map(|node| NodeSlot((node % nodes) as u16)).collect()
            })
            .collect();
        let membership = EmbeddedMembership::new(self.compute_nodes);
        let membership = Arc::new(membership.leasing_reads(self.read_lease_ns).unwrap());
        let groups = ReplicaGroups::new(groups);
        Arc::new(Database::new(catalog, groups, protocol, membership))
    }
}

/// A cluster with a database on the local backend.
pub struct World {
    pub fabric: Arc<LocalFabric>,
    pub database: Arc<Database>,
}

impl World {
    pub fn new(shape: &Shape) -> World {
        let database = shape.database();
        let fabric = LocalFabric::new(&LocalConfig {
            memory_nodes: shape.memory_nodes,
            replicas: shape.replicas,
            group_bytes: database.catalog.group_bytes(),
            backing: Backing::Private,
            atomicity: shape.atomicity,
            near: shape.near,
            ..LocalConfig::default()
        })
        .unwrap();
        assert_eq!(database.groups(), ReplicaGroups::new(fabric.groups().to_vec()));
        World { fabric, database }
    }

    /// Returns the same database with another membership service.
    pub fn with_membership(&self, membership: Arc<dyn Membership>) -> Arc<Database> {
        let protocol =
            AnyProtocol::by_name(self.database.protocol.info().name, "corrected").unwrap();
        let (catalog, groups) = (self.database.catalog.clone(), self.database.groups());
        Arc::new(Database::new(catalog, groups, protocol, membership))
    }

    /// Lets a compute node join. If the protocol keeps locks in compute nodes, the first node's memory contains all
    /// locks, and the other nodes access this memory directly.
    pub fn join(&self, slot: u16) -> Arc<ComputeNode> {
        let id = self.database.membership.join(NodeSlot(slot)).unwrap();
        let services = ServiceOptions::direct(THREADS_MAX as u16);
        let node = ComputeNode::serving(Arc::clone(&self.database), id, &services).unwrap();
        if node.services().is_some() {
            self.database.membership.open_shards(&[id]);
        }
        Arc::new(node)
    }

    /// Creates a thread of a compute node.
    pub fn thread(&self, node: &Arc<ComputeNode>, thread: u16, cache: usize) -> Rc<Context> {
        let port = self.fabric.port(node.id, thread, 7);
        Rc::new(Context::new(Arc::clone(node), port, thread, cache).unwrap())
    }

    /// Creates a compute node with one thread.
    pub fn context(&self, slot: u16, cache: usize) -> Rc<Context> {
        self.thread(&self.join(slot), 0, cache)
    }

    /// Creates a coordinator on a compute node of its own, with log area `slot`.
    pub fn coordinator(&self, slot: u16, cache: usize) -> Coordinator {
        coordinator(&self.context(slot, cache), u32::from(slot))
    }

    pub fn audit(&self) -> Audit {
        let cx = self.context(7, 0);
        block_on(inspect::audit(&cx)).unwrap()
    }

    /// Asserts that no lock is held, replicas are equal, and records are at the positions to which their keys lead.
    #[track_caller]
    pub fn assert_clean(&self) -> Audit {
        let audit = self.audit();
        assert!(audit.is_clean(), "{audit}");
        audit
    }
}

/// Polls a future at most `polls` times. Calls `between` after each poll that does not end the future. Returns `None`
/// if the future has not ended after these polls.
pub fn poll_times<T>(
    mut future: Pin<&mut impl Future<Output = T>>,
    polls: usize,
    mut between: impl FnMut(),
) -> Option<T> {
    let mut waiting = Waiting::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(value) = future.as_mut().poll(&mut waiting) {
            return Some(value);
        }
        between();
    }
    None
}

/// Returns the number in the environment variable `TARN_SEEDS`, or `usual` if it is not set.
pub fn seeds(usual: u64) -> u64 {
    std::env::var("TARN_SEEDS").map_or(usual, |seeds| seeds.parse().unwrap())
}

/// Creates a coordinator whose pauses between tries are short.
pub fn coordinator(cx: &Rc<Context>, number: u32) -> Coordinator {
    Coordinator::new(Rc::clone(cx), number, Retry { pause_max_ns: 4_000, ..Retry::default() })
}

/// Returns a table whose records have two words, so that a slot takes one cache line.
pub fn narrow(name: &str, records: u64) -> TableSchema {
    TableSchema::new(name, records).column("a", ColumnType::U64).column("b", ColumnType::U64)
}

/// Returns a table whose records have 8 bytes. A slot takes half a cache line and shares the line with another slot.
/// The table's buckets have fingerprints.
pub fn half(name: &str, records: u64) -> TableSchema {
    TableSchema::new(name, records).column("a", ColumnType::U64).fingerprinted()
}

/// Returns a table whose records have 88 bytes, so that a slot takes two cache lines.
pub fn double(name: &str, records: u64) -> TableSchema {
    TableSchema::new(name, records).column("a", ColumnType::U64).column("b", ColumnType::Bytes(80))
}

/// Returns a table whose records have 264 bytes, stored apart from the slot. Each record has a column in the first
/// line, 248 other bytes, and a column in the last line.
pub fn apart(name: &str, records: u64) -> TableSchema {
    TableSchema::new(name, records)
        .column("a", ColumnType::U64)
        .column("b", ColumnType::Bytes(248))
        .column("c", ColumnType::U64)
}

/// Sets column A of each key to `value`. Inserts the records that do not exist.
pub fn fill(by: &mut Coordinator, table: TableId, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        block_on(by.transact(async |tx| {
            let row = tx.insert(table, key);
            tx.fetch().await?;
            if !tx.existed(row) {
                tx.set(row, A, key);
            }
            Ok(())
        }))
        .unwrap();
    }
}

/// Returns the value of column A of this key's record, or `None` if the record does not exist.
pub fn value_of(by: &mut Coordinator, table: TableId, key: u64) -> Option<u64> {
    block_on(by.transact(async |tx| Ok(tx.get_row(table, key).await?.map(|row| row.u64(A)))))
        .unwrap()
}

/// Counts the chunks of the heap that have an owner.
pub fn chunks_taken(world: &World) -> usize {
    let cx = world.context(6, 0);
    let catalog = &world.database.catalog;
    let mut taken = 0;
    for group in 0..world.database.groups().count() {
        let group = GroupId(group as u16);
        for chunk in 0..catalog.chunks() {
            let mut round = Round::new();
            let target = world.database.groups().primary(catalog.chunk_word(group, chunk));
            let word = round.read(target, 8);
            block_on(cx.port.execute(&mut round)).unwrap();
            taken += usize::from(round.word(word) != 0);
        }
    }
    taken
}

/// Converts the coordinators' records to the checker's form of a history.
pub fn history(database: &Database, recorded: Vec<RecordedTxn>) -> History {
    let tables = database.catalog.tables().iter().map(|table| table.schema.name.clone()).collect();
    let transactions = recorded.into_iter().map(convert).collect();
    History { meta: BTreeMap::new(), tables, transactions }
}

fn convert(txn: RecordedTxn) -> Recorded {
    let outcome = match txn.outcome {
        RecordedOutcome::Committed | RecordedOutcome::GaveUp => Outcome::Committed,
        RecordedOutcome::Aborted => Outcome::Aborted,
        RecordedOutcome::Unknown | RecordedOutcome::MayBeThere => Outcome::Unknown,
    };
    let reads = txn.reads.iter().map(|read| tarn_check::Read {
        record: RecordId::new(read.table.0, read.key),
        version: tarn_check::Version(read.version),
        present: read.present,
        fingerprint: read.fingerprint,
    });
    let writes = txn.writes.iter().map(|write| tarn_check::Write {
        record: RecordId::new(write.table.0, write.key),
        version: tarn_check::Version(write.version),
        kind: match write.kind {
            history::WriteKind::Insert => WriteKind::Insert,
            history::WriteKind::Update => WriteKind::Update,
            history::WriteKind::Delete => WriteKind::Delete,
        },
        fingerprint: write.fingerprint,
    });
    Recorded {
        id: TxnId(txn.id.word()),
        coordinator: txn.coordinator,
        invoked_ns: txn.invoked.0,
        completed_ns: txn.completed.0,
        outcome,
        reads: reads.collect(),
        writes: writes.collect(),
    }
}
