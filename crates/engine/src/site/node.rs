//! A compute node: what its threads share.
//!
//! Invariant: a node is one life; a thread's number is one thread's at a time.

use crate::cluster::lease::{LeaseWord, NodeLease};
use crate::cluster::recovering::Turns;
use crate::cluster::threads::Threads;
use crate::services::lease_desk::NodeDelays;
use crate::services::readers::NodeReaders;
use crate::services::timestamp::LastSeen;
use crate::services::{NodeServices, ServiceOptions};
use crate::site::Database;
use crate::site::admission_gate::AdmissionGate;
use std::sync::Arc;
use tarn_fabric::address::NodeId;
use tarn_store::ids::UsageError;
use tarn_store::index::IndexView;
use tarn_store::index::btree::work::DeadNodes;
use tarn_store::memory::left_memory::LeftMemory;

/// What the threads of one compute node share.
pub struct ComputeNode {
    /// The database it serves.
    pub database: Arc<Database>,
    /// Its name in this life.
    pub id: NodeId,
    /// What it believes has grown.
    pub index_view: IndexView,
    /// Whether its coordinators may begin transactions.
    pub admission_gate: AdmissionGate,
    /// Whether one of its coroutines recovers the dead.
    pub turns: Turns,
    /// Which numbers of threads are in use, and how far their tags have come.
    pub threads: Threads,
    /// Memory that its threads have left, or those of other nodes of its process.
    pub(crate) left: Arc<LeftMemory>,
    /// Nodes of ordered indexes that its threads have merged away.
    pub(crate) dead_nodes: DeadNodes,
    /// The greatest timestamp that it has heard of.
    pub(crate) seen: Arc<LastSeen>,
    /// What it keeps for others, under a protocol that needs it.
    pub(crate) services: Option<Arc<NodeServices>>,
    /// For how long its readers trust what they read, and its writers wait, under a protocol that has such leases.
    read_lease: Option<NodeLease>,
    /// How long its transactions take, likewise.
    pub(crate) delays: Option<Arc<NodeDelays>>,
    /// What they read, under explicit leases.
    pub(crate) readers: Option<Arc<NodeReaders>>,
}

impl ComputeNode {
    /// A node that has just joined.
    pub fn new(database: Arc<Database>, id: NodeId) -> ComputeNode {
        let index_view = IndexView::new(&database.catalog);
        let (admission_gate, turns) = (AdmissionGate::default(), Turns::default());
        let dead_nodes = DeadNodes::default();
        let (seen, services) = (Arc::new(LastSeen::default()), None);
        let left = Arc::new(LeftMemory::new(database.groups().count()));
        let has_leases = database.protocol.needs().read_leases;
        let read_lease = has_leases.then(|| NodeLease::of(&*database.membership, id));
        let delays = has_leases.then(|| database.lease_desk.enter(id));
        ComputeNode {
            database,
            id,
            index_view,
            admission_gate,
            turns,
            threads: Threads::default(),
            left,
            dead_nodes,
            seen,
            services,
            read_lease,
            delays,
            readers: None,
        }
    }

    /// A node that has just joined, with what the protocol needs of it.
    ///
    /// # Errors
    /// Names what cannot be.
    pub fn serving(
        database: Arc<Database>,
        id: NodeId,
        options: &ServiceOptions,
    ) -> Result<ComputeNode, UsageError> {
        let needs = database.protocol.needs();
        let mut node = ComputeNode::new(database, id);
        if needs.locks {
            node.serve_locks(options)?;
        }
        if needs.readers {
            node.count_readers(options);
        }
        Ok(node)
    }

    /// From now on it shares the memory that its threads leave with another node of its process: before its first thread
    /// comes.
    pub fn share_memory(&mut self, other: &ComputeNode) {
        self.left = Arc::clone(&other.left);
    }

    /// From now on it counts what its transactions read: before its first thread comes.
    fn count_readers(&mut self, options: &ServiceOptions) {
        let ServiceOptions { transport, rpc, reader_places, .. } = *options;
        let readers = Arc::new(NodeReaders::new(self.id, transport, rpc, reader_places));
        self.database.lease_desk.count_readers(&readers);
        self.readers = Some(readers);
    }

    /// From now on it keeps locks: before its first thread comes.
    ///
    /// # Errors
    /// Names what cannot be.
    pub fn serve_locks(&mut self, options: &ServiceOptions) -> Result<(), UsageError> {
        let (membership, seen) = (Arc::clone(&self.database.membership), Arc::clone(&self.seen));
        let services = Arc::new(NodeServices::new(
            self.id,
            membership,
            seen,
            options,
            self.database.catalog.version_table_bytes(),
        )?);
        self.database.directory.enter(&services);
        self.services = Some(services);
        Ok(())
    }

    /// The lease word of now: that of record, unless another thread is about to take it over. Whoever runs, or looks after others,
    /// asks now and then, and so follows a change; nobody waits for another thread.
    #[inline]
    pub fn read_lease(&self) -> LeaseWord {
        let Some(lease) = &self.read_lease else { return LeaseWord::NONE };
        lease.follow(&*self.database.membership, self.id);
        lease.load()
    }

    /// The lease word of now, which a reader compares with that of his window's beginning: he has followed the record then.
    #[inline]
    pub fn kept_read_lease(&self) -> LeaseWord {
        self.read_lease.as_ref().map_or(LeaseWord::NONE, NodeLease::load)
    }

    /// How long its transactions take, under a protocol whose readers have leases.
    pub fn delays(&self) -> Option<&Arc<NodeDelays>> {
        self.delays.as_ref()
    }

    /// What its transactions read, if that is counted.
    pub fn readers(&self) -> Option<&NodeReaders> {
        self.readers.as_deref()
    }

    /// What it keeps for others, if the protocol needs it.
    pub fn services(&self) -> Option<&NodeServices> {
        self.services.as_deref()
    }
}

impl Drop for ComputeNode {
    /// When nothing of it runs any more, nobody need wait until it has acknowledged a word of leases.
    fn drop(&mut self) {
        if let Some(delays) = &self.delays {
            self.database.lease_desk.leave(delays);
            self.database.membership.retire(self.id);
        }
    }
}

/// A thread's number: the last that goes of a thread.
pub(crate) struct ThreadNumber {
    pub(crate) node: Arc<ComputeNode>,
    pub(crate) number: u16,
    /// Something is left of the thread that nobody ends but its node's recovery: nobody has the number again.
    pub(crate) is_kept: bool,
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        if !self.is_kept {
            self.node.threads.give_back(self.number);
        }
    }
}
