//! The services that a compute node offers to other nodes, besides running transactions: its locks, and its view of
//! the shards.
//!
//! Invariants: a node has services only under a protocol that needs them. Under any other protocol, each use costs
//! one test for null. [`NodeServices`] contains the state that the threads of a node share.
//! [`crate::site::thread_services::ThreadServices`] contains the state of one thread. When a node's incarnation has
//! ended, no other node relies on its services. Before a node sends a request, it checks that the receiver is a
//! member.

pub mod lease_desk;
pub mod lock;
pub mod lock_stations;
pub mod readers;
pub(crate) mod shard_drain;
pub mod shard_load;
pub mod shard_rule;
pub mod timestamp;

use crate::cluster::membership::{Membership, Standing};
use crate::cluster::threads::ThreadSet;
use crate::services::lock::grants::Grants;
use crate::services::lock::name::LockName;
use crate::services::lock::table::{Bits, LOCK_TABLE_BYTES_DEFAULT, LockTable};
use crate::services::lock::versions::{VERSION_CACHE_ENTRIES_DEFAULT, VersionCache};
use crate::services::readers::READER_PLACES;
use crate::services::shard_drain::Drains;
use crate::services::shard_load::Load;
use crate::services::timestamp::LastSeen;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rpc::RpcConfig;
use tarn_store::ids::{THREADS_MAX, TxnId, UsageError, ViewNumber};
use tarn_store::placement::shard_map::{Serving, ShardEntry, ShardId, ShardMap};

/// The nodes that inherit the shards of an ended incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inheritance {
    /// The members that own shards inherit the shards of the ended incarnation, in turn.
    Survivors,
    /// The next incarnation of the same slot inherits the shards, if it is a member within this time after the
    /// recovery. Otherwise the survivors inherit the shards.
    NextLife {
        /// How long a node that distributes the shards waits for the next incarnation, by its own clock.
        within: Nanos,
    },
}

/// A planted bug in moves of shards. Tests plant this bug to prove that they detect it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The receiver of a shard grants locks as soon as the message arrives, without reading the map. The message
    /// comes twice (L11).
    TransferDecides,
    /// A move aborts the holders of the shard's locks by force. The move waits for no holder, and drops the holders'
    /// grants (L17).
    Forced,
}

/// How a node requests locks from other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// The database has one compute node, which grants all locks of all shards.
    Own,
    /// The node sends messages to request locks.
    Rpc,
    /// The node calls the other node's services directly. This transport requires all nodes to be in one process.
    Near,
    /// The node reads and changes the other node's memory in one step. The explorer uses this transport, because all
    /// its nodes are in one process, and each message would add one more choice to explore.
    Direct,
}

impl Transport {
    /// Whether the requesting thread itself accesses the owner's memory.
    #[inline]
    pub fn is_at_once(self) -> bool {
        matches!(self, Transport::Near | Transport::Direct)
    }
}

/// The options of a compute node's services, which its driver sets. All nodes of a database have the same options.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The number of threads of the node.
    pub threads: u16,
    /// The size of the node's lock table, in bytes.
    pub lock_table_bytes: u64,
    /// The number of counters for readers, under explicit leases: a power of two.
    pub reader_places: usize,
    /// The number of version tables of its own shards that the node caches. 0 means that it caches none.
    pub version_cache_entries: usize,
    /// How the node requests locks from other nodes.
    pub transport: Transport,
    /// The options of the node's messages.
    pub rpc: RpcConfig,
    /// The nodes that inherit the node's shards after its death.
    pub inheritance: Inheritance,
    /// Whether the node counts lock requests by shard, for code that moves shards by load.
    pub counts_load: bool,
    /// A bug that breaks the lock table's invariant. Tests plant this bug to prove that they detect it.
    #[doc(hidden)]
    pub planted_bits: Option<Bits>,
    /// A bug that breaks moves of shards. Tests plant this bug to prove that they detect it.
    #[doc(hidden)]
    pub planted_move: Option<Planted>,
}

impl ServiceOptions {
    /// Options for `compute_nodes` nodes with `threads` threads each.
    pub fn new(threads: u16, compute_nodes: usize) -> ServiceOptions {
        ServiceOptions {
            threads,
            lock_table_bytes: LOCK_TABLE_BYTES_DEFAULT,
            reader_places: READER_PLACES,
            version_cache_entries: VERSION_CACHE_ENTRIES_DEFAULT,
            transport: if compute_nodes == 1 { Transport::Own } else { Transport::Rpc },
            rpc: RpcConfig::default(),
            inheritance: Inheritance::Survivors,
            counts_load: false,
            planted_bits: None,
            planted_move: None,
        }
    }

    /// Options for nodes in one process, which need no messages.
    pub fn near(threads: u16, compute_nodes: usize) -> ServiceOptions {
        let more = ServiceOptions::new(threads, compute_nodes);
        let transport = if compute_nodes == 1 { Transport::Own } else { Transport::Near };
        ServiceOptions { transport, ..more }
    }

    /// Options for small nodes in one process that access each other's memory. A database may have many such small
    /// nodes.
    pub fn direct(threads: u16) -> ServiceOptions {
        let (transport, lock_table_bytes) = (Transport::Direct, 1 << 14);
        let (version_cache_entries, reader_places) = (64, 1 << 8);
        let more = ServiceOptions::new(threads, 2);
        let small =
            ServiceOptions { lock_table_bytes, version_cache_entries, reader_places, ..more };
        ServiceOptions { transport, ..small }
    }
}

/// A function that the node calls in the same step as each write grant: see [`LockTable::acquire`].
pub type WriteHook = Box<dyn Fn(LockName) + Send + Sync>;

/// The threads of a node that have declared that they rely on no locks of a dead node.
#[derive(Default, Debug)]
struct Lost {
    /// For each dead node, the threads that rely on none of its locks.
    acked: BTreeMap<NodeId, ThreadSet>,
    /// The threads that exist.
    present: ThreadSet,
}

/// A compute node's services; see the module's text. The structure has cache lines of its own. The reference counts
/// next to it change often, because other nodes change them. These changes therefore do not slow this node's threads.
#[repr(align(128))]
pub struct NodeServices {
    /// The compute node to which the services belong.
    pub id: NodeId,
    /// The node's lock table.
    pub locks: LockTable,
    /// The node's cache of version tables.
    pub versions: VersionCache,
    /// The node's view of the shard map.
    pub shards: ShardMap,
    /// The part of the node's shard view that covers the shards whose locks the node itself grants.
    pub(crate) serving: Serving,
    pub(crate) membership: Arc<dyn Membership>,
    pub(crate) seen: Arc<LastSeen>,
    options: ServiceOptions,
    /// Locks granted to other nodes' transactions, indexed by the thread number of the requesting transaction.
    grants: Box<[Mutex<Grants>]>,
    lost: Mutex<Lost>,
    /// The membership view for which the node last dropped the grants of recovered incarnations.
    looked_after: AtomicU64,
    pub(crate) drains: Drains,
    load: Option<Load>,
    /// The threads whose service is running.
    running: Mutex<ThreadSet>,
    on_write: OnceLock<WriteHook>,
}

impl NodeServices {
    /// Creates the services of a node that has just joined. `version_table_bytes` is the size of the database's
    /// largest version table. A size of 0 means that no version table refers to records at other addresses; then the
    /// node caches no version table.
    ///
    /// # Errors
    /// The error names the option that is out of range.
    pub fn new(
        id: NodeId,
        membership: Arc<dyn Membership>,
        seen: Arc<LastSeen>,
        options: &ServiceOptions,
        version_table_bytes: usize,
    ) -> Result<NodeServices, UsageError> {
        if options.threads == 0 || usize::from(options.threads) > THREADS_MAX {
            return Err(UsageError {
                field: "threads_per_node".into(),
                value: options.threads.to_string(),
                allowed: format!("1 to {THREADS_MAX}"),
            });
        }
        let is_alone = options.threads == 1 && !options.transport.is_at_once();
        let bits = if is_alone { Bits::Alone } else { Bits::Shared };
        let bits = options.planted_bits.unwrap_or(bits);
        Ok(NodeServices {
            id,
            locks: LockTable::new(options.lock_table_bytes, bits)?,
            versions: VersionCache::new(options.version_cache_entries, version_table_bytes / 8),
            shards: ShardMap::default(),
            serving: Serving::by(id),
            membership,
            seen,
            options: options.clone(),
            grants: (0..options.threads).map(|_| Mutex::default()).collect(),
            lost: Mutex::default(),
            looked_after: AtomicU64::new(0),
            drains: Drains::default(),
            load: options.counts_load.then(Load::default),
            running: Mutex::default(),
            on_write: OnceLock::new(),
        })
    }

    /// How the node requests locks from other nodes.
    #[inline]
    pub fn transport(&self) -> Transport {
        self.options.transport
    }

    /// The options that the node's driver set.
    pub fn options(&self) -> &ServiceOptions {
        &self.options
    }

    /// The counts of lock requests, if the node keeps them.
    #[inline]
    pub fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// Requests a report from each thread. A thread reports after its present transactions have released all locks.
    /// Returns the number of the request.
    pub(crate) fn want_drain(&self) -> u64 {
        self.drains.want()
    }

    /// Whether a closed shard is drained, which needs two conditions. First, the node's own transactions that held
    /// any lock at the time of the request have ended. Second, no other node's transaction holds a lock of the shard.
    pub(crate) fn is_drained(&self, drain: u64, shard: ShardId) -> bool {
        self.drains.is_done(drain, self.lost().present) && self.granted_of(shard).is_empty()
    }

    /// Drops the grants of recovered incarnations. This function runs in the thread of another node that requests
    /// locks without a message. The node's own threads also drop these grants while they serve. But they may sleep,
    /// or the node may have no thread.
    #[inline]
    pub(crate) fn look_after_by_asker(&self) {
        let view = self.membership.view();
        if self.looked_after.load(Ordering::Acquire) != view.0 {
            self.look_after(view);
        }
    }

    #[cold]
    fn look_after(&self, view: ViewNumber) {
        let is_recovered = |life| self.membership.standing(life) == Standing::Recovered;
        if !self.drop_recovered(is_recovered, &mut Vec::new()) {
            self.looked_after.store(view.0, Ordering::Release);
        }
    }

    /// **Breaks the invariant** of moves: drops all grants of the shard's locks to other nodes.
    pub(crate) fn planted_abort(&self, shard: ShardId) {
        self.all_grants().for_each(|mut grants| grants.planted_drop(&self.locks, shard));
    }

    /// Sets the hook that the node calls for every write grant while the bucket's bit is held. The caller calls this
    /// function once, before any transaction runs.
    ///
    /// # Panics
    /// If a hook is set already. A second hook would be a bug of this crate.
    pub fn tell_of_writes(&self, hook: WriteHook) {
        assert!(self.on_write.set(hook).is_ok(), "a node has one hook");
    }

    /// Calls the hook for a write grant, while the bucket's bit is held.
    #[inline]
    pub(crate) fn write_granted(&self, name: LockName) {
        if let Some(hook) = self.on_write.get() {
            tell(hook, name);
        }
    }

    /// The node's view of a shard. If the node has no view of the shard yet, the function reads the shard's record.
    #[inline]
    pub(crate) fn entry_of(&self, shard: ShardId) -> Option<ShardEntry> {
        match self.shards.entry(shard) {
            Some(entry) => Some(entry),
            None => self.shards.reread(&*self.membership, shard),
        }
    }

    /// The grants to transactions of any node whose thread number is that of `txn`.
    pub(crate) fn grants_of(&self, txn: TxnId) -> MutexGuard<'_, Grants> {
        let thread = usize::from(txn.thread()) % self.grants.len();
        self.grants[thread].lock().expect("no panic under this lock")
    }

    pub(crate) fn all_grants(&self) -> impl Iterator<Item = MutexGuard<'_, Grants>> {
        self.grants.iter().map(|grants| grants.lock().expect("no panic under this lock"))
    }

    /// The number of other nodes' transactions that hold locks at this node.
    pub fn granted(&self) -> usize {
        self.all_grants().map(|grants| grants.len()).sum()
    }

    /// The other nodes' transactions that hold locks of a shard at this node.
    pub fn granted_of(&self, shard: ShardId) -> Vec<TxnId> {
        self.all_grants().flat_map(|grants| grants.of_shard(shard).collect::<Vec<_>>()).collect()
    }

    /// The incarnations of other nodes whose transactions hold locks at this node.
    pub fn holders(&self) -> impl Iterator<Item = NodeId> {
        self.all_grants().flat_map(|grants| grants.lives())
    }

    /// A digest of all locks and grants and of the greatest timestamp seen, for code that compares states.
    pub fn digest(&self) -> u64 {
        let grants = self.all_grants().map(|grants| grants.digest());
        let counts = if self.versions.is_on() { self.locks.counts_digest() } else { 0 };
        let kept = self.versions.digest() ^ counts;
        let first = tarn_fabric::rng::mix(self.locks.digest() ^ self.seen.get().0 ^ kept);
        grants.fold(first, |all, one| tarn_fabric::rng::mix(all ^ one))
    }

    /// Records that a thread of the node has started.
    pub(crate) fn enter(&self, thread: u16) {
        self.lost().present |= 1 << thread;
    }

    /// Records that a thread has ended, and relies on no locks.
    pub(crate) fn leave(&self, thread: u16) {
        self.stop_running(thread);
        let mut lost = self.lost();
        lost.present &= !(1 << thread);
        // The thread that ends may be the last thread for which the membership service still waited.
        let present = lost.present;
        let all = lost.acked.iter().filter(|(_, acked)| present & !**acked == 0);
        all.for_each(|(dead, _)| self.membership.ack_lost(*dead, self.id));
    }

    fn lost(&self) -> MutexGuard<'_, Lost> {
        self.lost.lock().expect("no panic under this lock")
    }

    /// Records that `thread` relies on no lock that `dead` granted, now or later. After all threads of the node have
    /// called this function, the node tells the membership service.
    pub(crate) fn ack_lost(&self, dead: NodeId, thread: u16) {
        let mut lost = self.lost();
        let acked = lost.acked.entry(dead).or_default();
        *acked |= 1 << thread;
        if lost.present & !lost.acked[&dead] == 0 {
            self.membership.ack_lost(dead, self.id);
        }
    }

    pub(crate) fn start_running(&self, thread: u16) {
        *self.running() |= 1 << thread;
    }

    pub(crate) fn stop_running(&self, thread: u16) {
        *self.running() &= !(1 << thread);
    }

    fn running(&self) -> MutexGuard<'_, ThreadSet> {
        self.running.lock().expect("no panic under this lock")
    }
}

#[cold]
fn tell(hook: &WriteHook, name: LockName) {
    hook(name);
}

impl Drop for NodeServices {
    /// If all threads have ended properly, tells the membership service not to wait for this node any longer.
    fn drop(&mut self) {
        if self.lost.get_mut().is_ok_and(|lost| lost.present == 0) {
            self.membership.retire(self.id);
        }
    }
}

/// A directory of the services of all nodes of this process.
#[derive(Default)]
pub struct Directory {
    nodes: Mutex<BTreeMap<NodeId, Weak<NodeServices>>>,
}

impl Directory {
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<NodeId, Weak<NodeServices>>> {
        self.nodes.lock().expect("no panic under this lock")
    }

    pub(crate) fn enter(&self, services: &Arc<NodeServices>) {
        let mut nodes = self.nodes();
        nodes.retain(|_, services| services.strong_count() > 0);
        nodes.insert(services.id, Arc::downgrade(services));
    }

    /// The services of the node `node`, if it is a member.
    pub fn find(&self, node: NodeId) -> Option<Arc<NodeServices>> {
        let services = self.nodes().get(&node)?.upgrade()?;
        services.membership.is_member(node).then_some(services)
    }

    /// The services of all members, in the order of their node numbers.
    pub fn members(&self) -> Vec<Arc<NodeServices>> {
        let all: Vec<Arc<NodeServices>> = self.nodes().values().filter_map(Weak::upgrade).collect();
        all.into_iter().filter(|services| services.membership.is_member(services.id)).collect()
    }

    /// Whether any thread of a member may still request locks.
    pub(crate) fn is_any_running(&self) -> bool {
        self.members().iter().any(|services| *services.running() != 0)
    }
}
