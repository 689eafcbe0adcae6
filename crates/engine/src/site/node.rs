//! A compute node: the state that its threads share.
//!
//! Invariant: a compute node is one incarnation. At any time, a thread number of the node belongs to one thread.

use crate::cluster::lease::{LeaseWord, NodeLease};
use crate::cluster::recovering::Turns;
use crate::cluster::threads::Threads;
use crate::services::lease_desk::NodeDelays;
use crate::services::readers::NodeReaders;
use crate::services::timestamp::LastSeen;
use crate::services::{NodeServices, ServiceOptions};
use crate::site::Database;
use crate::site::admission_gate::AdmissionGate;
use crate::site::thread_locks::LockWays;
use std::sync::Arc;
use tarn_fabric::address::NodeId;
use tarn_store::ids::UsageError;
use tarn_store::index::IndexView;
use tarn_store::index::btree::work::DeadNodes;
use tarn_store::memory::left_memory::LeftMemory;

/// The state that the threads of one compute node share.
pub struct ComputeNode {
    /// The database that the node serves.
    pub database: Arc<Database>,
    /// The node's identifier, which includes its incarnation.
    pub id: NodeId,
    /// The node's view of which indexes have grown.
    pub index_view: IndexView,
    /// Whether the node's coordinators may begin transactions.
    pub admission_gate: AdmissionGate,
    /// Whether one of the node's coroutines is recovering dead nodes now.
    pub turns: Turns,
    /// The thread numbers in use, and the last transaction tag under each number.
    pub threads: Threads,
    /// Memory that threads of this node, or of other nodes of its process, have left for reuse.
    pub(crate) left: Arc<LeftMemory>,
    /// Nodes of ordered indexes that this node's threads have merged away.
    pub(crate) dead_nodes: DeadNodes,
    /// The greatest timestamp that the node has seen.
    pub(crate) seen: Arc<LastSeen>,
    /// The tables that the node keeps for other nodes, under a protocol that needs such tables.
    pub(crate) services: Option<Arc<NodeServices>>,
    /// How long the node's readers trust their reads and its writers wait, under a protocol with implicit leases.
    read_lease: Option<NodeLease>,
    /// The delays of the node's transactions, under a protocol with implicit leases.
    pub(crate) delays: Option<Arc<NodeDelays>>,
    /// The records that the node's transactions read, under explicit leases.
    pub(crate) readers: Option<Arc<NodeReaders>>,
    /// How the node's threads reach the lock service, under a protocol that needs one.
    pub(crate) lock_ways: LockWays,
}

impl ComputeNode {
    /// Creates a compute node that has just joined.
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
            lock_ways: LockWays::default(),
        }
    }

    /// Creates a compute node that has just joined, with the services that the protocol needs.
    ///
    /// # Errors
    /// The error names the option that is out of range.
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
        if needs.lock_service.is_some() {
            node.lock_ways = LockWays::of(options)?;
        }
        Ok(node)
    }

    /// Makes the node share memory with another node of its process: the memory that their threads leave for reuse.
    /// The caller calls this function before the node's first thread starts.
    pub fn share_memory(&mut self, other: &ComputeNode) {
        self.left = Arc::clone(&other.left);
    }

    /// Makes the node count the records that its transactions read. The caller calls this function before the node's
    /// first thread starts.
    fn count_readers(&mut self, options: &ServiceOptions) {
        let ServiceOptions { transport, rpc, reader_places, .. } = *options;
        let readers = Arc::new(NodeReaders::new(self.id, transport, rpc, reader_places));
        self.database.lease_desk.count_readers(&readers);
        self.readers = Some(readers);
    }

    /// Makes the node grant locks. The caller calls this function before the node's first thread starts.
    ///
    /// # Errors
    /// The error names the option that is out of range.
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

    /// The present lease word. The returned word is the word of record, unless another thread is just adopting the
    /// word of record. A thread that runs transactions, or handles deaths of other nodes, calls this function
    /// repeatedly. So the thread follows a change of the lease word. No thread waits for another thread.
    #[inline]
    pub fn read_lease(&self) -> LeaseWord {
        let Some(lease) = &self.read_lease else { return LeaseWord::NONE };
        lease.follow(&*self.database.membership, self.id);
        lease.load()
    }

    /// The stored lease word, without a read of the word of record. A reader compares this word with the word that it
    /// loaded when its window began. At that time the reader already followed the word of record.
    #[inline]
    pub fn kept_read_lease(&self) -> LeaseWord {
        self.read_lease.as_ref().map_or(LeaseWord::NONE, NodeLease::load)
    }

    /// The delays of the node's transactions, under a protocol whose readers have leases.
    pub fn delays(&self) -> Option<&Arc<NodeDelays>> {
        self.delays.as_ref()
    }

    /// The records that the node's transactions read, if the node counts them.
    pub fn readers(&self) -> Option<&NodeReaders> {
        self.readers.as_deref()
    }

    /// The tables that the node keeps for other nodes, if the protocol needs such tables.
    pub fn services(&self) -> Option<&NodeServices> {
        self.services.as_deref()
    }
}

impl Drop for ComputeNode {
    /// When the node is dropped, none of its threads runs any more. So no change of leases needs to wait for the
    /// node's acknowledgement.
    fn drop(&mut self) {
        if let Some(delays) = &self.delays {
            self.database.lease_desk.leave(delays);
            self.database.membership.retire(self.id);
        }
    }
}

/// The number of a thread. The thread drops its number last, after all its other parts.
pub(crate) struct ThreadNumber {
    pub(crate) node: Arc<ComputeNode>,
    pub(crate) number: u16,
    /// Whether the thread number stays in use after the thread has ended. Some of the thread's work then remains, and
    /// only recovery of the node ends this work.
    pub(crate) is_kept: bool,
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        if !self.is_kept {
            self.node.threads.give_back(self.number);
        }
    }
}
