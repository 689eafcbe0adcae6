//! The services of a compute node for others, beside running transactions: its locks, its view of the shards.
//!
//! Invariants: services exist only under a protocol that needs them; any other protocol pays a null test.
//! [`NodeServices`] holds the state that the threads of a node share, [`crate::site::thread_services::ThreadServices`]
//! the state of one thread. When a node's life is over, no other node relies on its services: a node that asks it
//! checks first that it is a member.

pub mod lease_desk;
pub mod lock;
pub mod readers;
pub(crate) mod shard_drain;
pub mod shard_load;
pub mod shard_rule;
pub mod timestamp;

use crate::cluster::membership::{Membership, Standing};
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

/// The nodes that inherit the shards of a life that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inheritance {
    /// The members that own some shards, in turn.
    Survivors,
    /// The next life of the same slot, if it is a member within this time after the recovery; otherwise the survivors.
    NextLife {
        /// How long a node that looks waits for it, by its own clock.
        within: Nanos,
    },
}

/// A planted bug in moves of shards, for tests that prove that they would notice.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The receiver serves when the message tells it, without a look at the map. The message comes twice (L11).
    TransferDecides,
    /// Holders of locks are aborted by force: the move waits for none, and their grants are gone (L17).
    Forced,
}

/// How a node asks other nodes for locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// There is one compute node: it owns all locks, whatever their shard.
    Own,
    /// By messages.
    Rpc,
    /// By a direct call of the other node's services, where all nodes are in one process.
    Near,
    /// By a look into the other node's memory, in one step. It is for the explorer, where all nodes are in one process
    /// and each message would be one more choice.
    Direct,
}

impl Transport {
    /// Whether the asking thread itself looks into the owner's memory.
    #[inline]
    pub fn is_at_once(self) -> bool {
        matches!(self, Transport::Near | Transport::Direct)
    }
}

/// The options of a compute node's services, as its driver wants them. All nodes of a database have the same.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The number of threads of the node.
    pub threads: u16,
    /// The size of its lock table, in bytes.
    pub lock_table_bytes: u64,
    /// The number of places in which it counts readers, under explicit leases: a power of two.
    pub reader_places: usize,
    /// The number of version tables of its own shards that it remembers; 0: none.
    pub version_cache_entries: usize,
    /// How it asks other nodes for locks.
    pub transport: Transport,
    /// The options of its messages.
    pub rpc: RpcConfig,
    /// The nodes that get its shards when it has died.
    pub inheritance: Inheritance,
    /// Whether it counts requests for locks by shard, for code that moves shards by load.
    pub counts_load: bool,
    /// Breaks the lock table's invariant, for tests that prove that they would notice.
    #[doc(hidden)]
    pub planted_bits: Option<Bits>,
    /// Breaks moves of shards, for tests that prove that they would notice.
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

    /// Options for small nodes in one process that look into each other's memory. There may be many of them.
    pub fn direct(threads: u16) -> ServiceOptions {
        let (transport, lock_table_bytes) = (Transport::Direct, 1 << 14);
        let (version_cache_entries, reader_places) = (64, 1 << 8);
        let more = ServiceOptions::new(threads, 2);
        let small =
            ServiceOptions { lock_table_bytes, version_cache_entries, reader_places, ..more };
        ServiceOptions { transport, ..small }
    }
}

/// A function that is told of write grants, in the same step: see [`LockTable::acquire`].
pub type WriteHook = Box<dyn Fn(LockName) + Send + Sync>;

/// The threads of a node that have declared that they rely on no locks of a dead node.
#[derive(Default, Debug)]
struct Lost {
    /// For each dead node, one bit for each thread that has declared it.
    acked: BTreeMap<NodeId, u64>,
    /// The threads that exist, one bit each.
    present: u64,
}

/// A compute node's services; see the module's text. They have their cache lines to themselves, so the reference counts
/// beside them, which other nodes change, disturb no thread here.
#[repr(align(128))]
pub struct NodeServices {
    /// The node.
    pub id: NodeId,
    /// The node's locks.
    pub locks: LockTable,
    /// Version tables that the node remembers.
    pub versions: VersionCache,
    /// The node's view of the shard map.
    pub shards: ShardMap,
    /// The part of that view about shards whose locks the node itself grants.
    pub(crate) serving: Serving,
    pub(crate) membership: Arc<dyn Membership>,
    pub(crate) seen: Arc<LastSeen>,
    options: ServiceOptions,
    /// Locks granted to other nodes' transactions, by the number of the asker's thread.
    grants: Box<[Mutex<Grants>]>,
    lost: Mutex<Lost>,
    /// The view after which recovered lives held no grants any more.
    looked_after: AtomicU64,
    pub(crate) drains: Drains,
    load: Option<Load>,
    /// Threads whose service runs, one bit each.
    running: AtomicU64,
    on_write: OnceLock<WriteHook>,
}

impl NodeServices {
    /// The services of a node that has just joined. `version_table_bytes` is the size of the database's largest version
    /// table. 0 means that no version table leads to records elsewhere, and none is remembered.
    ///
    /// # Errors
    /// Names the option that is out of range.
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
            running: AtomicU64::new(0),
            on_write: OnceLock::new(),
        })
    }

    /// How the node asks other nodes for locks.
    #[inline]
    pub fn transport(&self) -> Transport {
        self.options.transport
    }

    /// The options, as the node's driver wanted them.
    pub fn options(&self) -> &ServiceOptions {
        &self.options
    }

    /// The counts of requests for locks, if they are kept.
    #[inline]
    pub fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// Asks all threads to report when their present transactions hold nothing any more. Returns the number of the
    /// request.
    pub(crate) fn want_drain(&self) -> u64 {
        self.drains.want()
    }

    /// Whether a closed shard is drained. It is drained when two things hold. The node's own transactions that held
    /// anything at the request have ended. No other node's transaction holds a lock of the shard.
    pub(crate) fn is_drained(&self, drain: u64, shard: ShardId) -> bool {
        self.drains.is_done(drain, self.lost().present) && self.granted_of(shard).is_empty()
    }

    /// Drops the grants of recovered lives. It runs in the thread of another node that asks for locks without a
    /// message. The node's own threads do the same as they serve, but they may sleep, or there may be none.
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

    /// **Breaks the invariant** of moves: all grants of a shard's locks to other nodes are dropped.
    pub(crate) fn planted_abort(&self, shard: ShardId) {
        self.all_grants().for_each(|mut grants| grants.planted_drop(&self.locks, shard));
    }

    /// Sets the hook that is told of every write grant, while the bucket's bit is held. Call it once, before any
    /// transaction runs.
    ///
    /// # Panics
    /// If there is a hook already: our bug.
    pub fn tell_of_writes(&self, hook: WriteHook) {
        assert!(self.on_write.set(hook).is_ok(), "a node has one hook");
    }

    /// A write was granted, and the bucket's bit is held.
    #[inline]
    pub(crate) fn write_granted(&self, name: LockName) {
        if let Some(hook) = self.on_write.get() {
            tell(hook, name);
        }
    }

    /// The node's view of a shard. It reads the record if it has no view yet.
    #[inline]
    pub(crate) fn entry_of(&self, shard: ShardId) -> Option<ShardEntry> {
        match self.shards.entry(shard) {
            Some(entry) => Some(entry),
            None => self.shards.reread(&*self.membership, shard),
        }
    }

    /// The grants to transactions of the same thread number, on any node.
    pub(crate) fn grants_of(&self, txn: TxnId) -> MutexGuard<'_, Grants> {
        let thread = usize::from(txn.thread()) % self.grants.len();
        self.grants[thread].lock().expect("no panic under this lock")
    }

    pub(crate) fn all_grants(&self) -> impl Iterator<Item = MutexGuard<'_, Grants>> {
        self.grants.iter().map(|grants| grants.lock().expect("no panic under this lock"))
    }

    /// The number of other nodes' transactions that hold locks here.
    pub fn granted(&self) -> usize {
        self.all_grants().map(|grants| grants.len()).sum()
    }

    /// Other nodes' transactions that hold locks of a shard here.
    pub fn granted_of(&self, shard: ShardId) -> Vec<TxnId> {
        self.all_grants().flat_map(|grants| grants.of_shard(shard).collect::<Vec<_>>()).collect()
    }

    /// Lives of other nodes whose transactions hold locks here.
    pub fn holders(&self) -> impl Iterator<Item = NodeId> {
        self.all_grants().flat_map(|grants| grants.lives())
    }

    /// A digest of all locks and grants and of the last timestamp seen, for code that tells states apart.
    pub fn digest(&self) -> u64 {
        let grants = self.all_grants().map(|grants| grants.digest());
        let counts = if self.versions.is_on() { self.locks.counts_digest() } else { 0 };
        let kept = self.versions.digest() ^ counts;
        let first = tarn_fabric::rng::mix(self.locks.digest() ^ self.seen.get().0 ^ kept);
        grants.fold(first, |all, one| tarn_fabric::rng::mix(all ^ one))
    }

    /// A thread of the node has started.
    pub(crate) fn enter(&self, thread: u16) {
        self.lost().present |= 1 << thread;
    }

    /// A thread has ended, and relies on no locks.
    pub(crate) fn leave(&self, thread: u16) {
        self.stop_running(thread);
        let mut lost = self.lost();
        lost.present &= !(1 << thread);
        // The other threads may have waited for this one alone.
        let present = lost.present;
        let all = lost.acked.iter().filter(|(_, acked)| present & !**acked == 0);
        all.for_each(|(dead, _)| self.membership.ack_lost(*dead, self.id));
    }

    fn lost(&self) -> MutexGuard<'_, Lost> {
        self.lost.lock().expect("no panic under this lock")
    }

    /// `thread` declares that it relies on no lock that `dead` granted, now or ever. When all threads have declared it,
    /// the membership service is told.
    pub(crate) fn ack_lost(&self, dead: NodeId, thread: u16) {
        let mut lost = self.lost();
        let acked = lost.acked.entry(dead).or_default();
        *acked |= 1 << thread;
        if lost.present & !lost.acked[&dead] == 0 {
            self.membership.ack_lost(dead, self.id);
        }
    }

    pub(crate) fn start_running(&self, thread: u16) {
        self.running.fetch_or(1 << thread, Ordering::AcqRel);
    }

    pub(crate) fn stop_running(&self, thread: u16) {
        self.running.fetch_and(!(1 << thread), Ordering::AcqRel);
    }
}

#[cold]
fn tell(hook: &WriteHook, name: LockName) {
    hook(name);
}

impl Drop for NodeServices {
    /// All threads have ended properly, so the membership service no longer waits for this node.
    fn drop(&mut self) {
        if self.lost.get_mut().is_ok_and(|lost| lost.present == 0) {
            self.membership.retire(self.id);
        }
    }
}

/// The services of all nodes of this process.
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

    /// The services of a member.
    pub fn find(&self, node: NodeId) -> Option<Arc<NodeServices>> {
        let services = self.nodes().get(&node)?.upgrade()?;
        services.membership.is_member(node).then_some(services)
    }

    /// The services of all members, in order.
    pub fn members(&self) -> Vec<Arc<NodeServices>> {
        let all: Vec<Arc<NodeServices>> = self.nodes().values().filter_map(Weak::upgrade).collect();
        all.into_iter().filter(|services| services.membership.is_member(services.id)).collect()
    }

    /// Whether a thread of a member may still ask for locks.
    pub(crate) fn is_any_running(&self) -> bool {
        self.members().iter().any(|services| services.running.load(Ordering::Acquire) != 0)
    }
}
