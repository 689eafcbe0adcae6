//! What a compute node keeps for others, beside running transactions: its locks, its view of the shards.
//!
//! Invariants: there are services only under a protocol that needs them: any other pays a null test. What the
//! threads of a node share is in [`NodeServices`], what is one thread's in [`crate::site::thread_services::ThreadServices`]. A node whose
//! life is over keeps nothing that anybody relies on: whoever asks it looks first whether it is a member.

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

/// Who gets the shards of a life that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inheritance {
    /// Those who own some, in turn.
    Survivors,
    /// The slot's next life, if it is a member so soon after the recovery; else survivors.
    NextLife {
        /// By the clock of whoever looks.
        within: Nanos,
    },
}

/// What breaks a move, for tests that prove that they would notice.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The receiver serves when it is told, and does not look at the map; and it is told twice (L11).
    TransferDecides,
    /// Who holds locks is aborted by force: nobody is waited for, and what was granted is gone (L17).
    Forced,
}

/// How locks of other nodes are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// There is one compute node: all locks are its own, whatever their shard.
    Own,
    /// By messages.
    Rpc,
    /// By a call of what the other node keeps, at once: where all nodes are in one process.
    Near,
    /// By a look into the other node's memory, in one step: where all nodes are in one process and each
    /// message would be a choice (the explorer).
    Direct,
}

impl Transport {
    /// Whether who asks looks into the owner's memory himself, in his own thread.
    #[inline]
    pub fn is_at_once(self) -> bool {
        matches!(self, Transport::Near | Transport::Direct)
    }
}

/// A compute node's services, as its driver wants them. All nodes of a database have the same.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Threads of the node.
    pub threads: u16,
    /// Size of its lock table.
    pub lock_table_bytes: u64,
    /// Places in which it counts readers, under explicit leases: a power of two.
    pub reader_places: usize,
    /// Version tables of its own shards that it remembers; 0: none.
    pub version_cache_entries: usize,
    /// How it asks for locks of others.
    pub transport: Transport,
    /// Its messages.
    pub rpc: RpcConfig,
    /// Who gets its shards when it has died.
    pub inheritance: Inheritance,
    /// Whether it counts what it is asked for, by shard: for whoever moves shards by that.
    pub counts_load: bool,
    /// Breaks the lock table's invariant, for tests that prove that they would notice.
    #[doc(hidden)]
    pub planted_bits: Option<Bits>,
    /// Breaks moves of shards, likewise.
    #[doc(hidden)]
    pub planted_move: Option<Planted>,
}

impl ServiceOptions {
    /// For nodes of so many threads, of which there are so many.
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

    /// For nodes in one process, which need no messages.
    pub fn near(threads: u16, compute_nodes: usize) -> ServiceOptions {
        let more = ServiceOptions::new(threads, compute_nodes);
        let transport = if compute_nodes == 1 { Transport::Own } else { Transport::Near };
        ServiceOptions { transport, ..more }
    }

    /// For nodes in one process that look into each other's memory: small ones, of which there may be many.
    pub fn direct(threads: u16) -> ServiceOptions {
        let (transport, lock_table_bytes) = (Transport::Direct, 1 << 14);
        let (version_cache_entries, reader_places) = (64, 1 << 8);
        let more = ServiceOptions::new(threads, 2);
        let small =
            ServiceOptions { lock_table_bytes, version_cache_entries, reader_places, ..more };
        ServiceOptions { transport, ..small }
    }
}

/// Who is told of write grants, in the same step: see [`LockTable::acquire`].
pub type WriteHook = Box<dyn Fn(LockName) + Send + Sync>;

/// Which threads of a node have seen to it that nothing of theirs rests on locks of the dead.
#[derive(Default, Debug)]
struct Lost {
    /// By the dead: a bit a thread.
    acked: BTreeMap<NodeId, u64>,
    /// The threads that there are.
    present: u64,
}

/// See the module's text. By itself in its lines: who counts on its being there from elsewhere disturbs nobody here.
#[repr(align(128))]
pub struct NodeServices {
    /// The node.
    pub id: NodeId,
    /// Its locks.
    pub locks: LockTable,
    /// Version tables that it remembers.
    pub versions: VersionCache,
    /// What it believes of shards.
    pub shards: ShardMap,
    /// What that says of shards which are its own to grant.
    pub(crate) serving: Serving,
    pub(crate) membership: Arc<dyn Membership>,
    pub(crate) seen: Arc<LastSeen>,
    options: ServiceOptions,
    /// What it has granted to others, by the askers' threads.
    grants: Box<[Mutex<Grants>]>,
    lost: Mutex<Lost>,
    /// The view after which nothing was left of what the recovered had been granted.
    looked_after: AtomicU64,
    pub(crate) drains: Drains,
    load: Option<Load>,
    /// Threads whose service runs: a bit each.
    running: AtomicU64,
    on_write: OnceLock<WriteHook>,
}

impl NodeServices {
    /// Those of a node that has just joined, of a database whose largest version table has so many bytes (0: none
    /// leads to records elsewhere, and none is remembered).
    ///
    /// # Errors
    /// Names what cannot be.
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

    /// How it asks for locks of others.
    #[inline]
    pub fn transport(&self) -> Transport {
        self.options.transport
    }

    /// As its driver wanted them.
    pub fn options(&self) -> &ServiceOptions {
        &self.options
    }

    /// What it is asked for, if that is counted.
    #[inline]
    pub fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// Asks for word that nothing is held any more of what was granted until now; of whom.
    pub(crate) fn want_drain(&self) -> u64 {
        self.drains.want()
    }

    /// Whether that is so: of its own transactions all that held anything then have ended, and nobody else's holds a lock of the
    /// shard, which is closed.
    pub(crate) fn is_drained(&self, drain: u64, shard: ShardId) -> bool {
        self.drains.is_done(drain, self.lost().present) && self.granted_of(shard).is_empty()
    }

    /// Gives up what the recovered had been granted, in the thread of another node that asks for locks without a
    /// message. Threads of this node do that, too, as they serve; but they may sleep, or there may be none.
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

    /// **Breaks the invariant** of moves: whoever else holds locks of a shard holds nothing any more.
    pub(crate) fn planted_abort(&self, shard: ShardId) {
        self.all_grants().for_each(|mut grants| grants.planted_drop(&self.locks, shard));
    }

    /// From now on `hook` is told of every write grant, with the bucket's bit held. Once, before any
    /// transaction runs.
    ///
    /// # Panics
    /// If there is one: our bug.
    pub fn tell_of_writes(&self, hook: WriteHook) {
        assert!(self.on_write.set(hook).is_ok(), "one hook a node");
    }

    /// A write was granted, and the bucket's bit is held.
    #[inline]
    pub(crate) fn write_granted(&self, name: LockName) {
        if let Some(hook) = self.on_write.get() {
            tell(hook, name);
        }
    }

    /// What the node believes of a shard; the record is read if it believes nothing yet.
    #[inline]
    pub(crate) fn entry_of(&self, shard: ShardId) -> Option<ShardEntry> {
        match self.shards.entry(shard) {
            Some(entry) => Some(entry),
            None => self.shards.reread(&*self.membership, shard),
        }
    }

    /// What was granted to transactions of the same thread, other nodes' included.
    pub(crate) fn grants_of(&self, txn: TxnId) -> MutexGuard<'_, Grants> {
        let thread = usize::from(txn.thread()) % self.grants.len();
        self.grants[thread].lock().expect("no panic under this lock")
    }

    pub(crate) fn all_grants(&self) -> impl Iterator<Item = MutexGuard<'_, Grants>> {
        self.grants.iter().map(|grants| grants.lock().expect("no panic under this lock"))
    }

    /// Transactions of other nodes that hold locks here.
    pub fn granted(&self) -> usize {
        self.all_grants().map(|grants| grants.len()).sum()
    }

    /// Transactions of other nodes that hold locks of a shard here.
    pub fn granted_of(&self, shard: ShardId) -> Vec<TxnId> {
        self.all_grants().flat_map(|grants| grants.of_shard(shard).collect::<Vec<_>>()).collect()
    }

    /// Lives of other nodes whose transactions hold locks here.
    pub fn holders(&self) -> impl Iterator<Item = NodeId> {
        self.all_grants().flat_map(|grants| grants.lives())
    }

    /// Stands for all that is locked and granted, and for the last timestamp seen, for whoever tells states apart.
    pub fn digest(&self) -> u64 {
        let grants = self.all_grants().map(|grants| grants.digest());
        let counts = if self.versions.is_on() { self.locks.counts_digest() } else { 0 };
        let kept = self.versions.digest() ^ counts;
        let first = tarn_fabric::rng::mix(self.locks.digest() ^ self.seen.get().0 ^ kept);
        grants.fold(first, |all, one| tarn_fabric::rng::mix(all ^ one))
    }

    /// A thread of the node has come.
    pub(crate) fn enter(&self, thread: u16) {
        self.lost().present |= 1 << thread;
    }

    /// It has gone, and nothing of it rests on anything.
    pub(crate) fn leave(&self, thread: u16) {
        self.stop_running(thread);
        let mut lost = self.lost();
        lost.present &= !(1 << thread);
        // The others may have waited for it alone.
        let present = lost.present;
        let all = lost.acked.iter().filter(|(_, acked)| present & !**acked == 0);
        all.for_each(|(dead, _)| self.membership.ack_lost(*dead, self.id));
    }

    fn lost(&self) -> MutexGuard<'_, Lost> {
        self.lost.lock().expect("no panic under this lock")
    }

    /// Nothing of `thread` rests on a lock that `dead` granted, or will. When that holds for all threads the
    /// membership service is told.
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
    /// When all of its threads have gone as they should, nobody need wait for its word any more.
    fn drop(&mut self) {
        if self.lost.get_mut().is_ok_and(|lost| lost.present == 0) {
            self.membership.retire(self.id);
        }
    }
}

/// Where the services of all nodes of this process are.
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

    /// A member's.
    pub fn find(&self, node: NodeId) -> Option<Arc<NodeServices>> {
        let services = self.nodes().get(&node)?.upgrade()?;
        services.membership.is_member(node).then_some(services)
    }

    /// Those of all members, in order.
    pub fn members(&self) -> Vec<Arc<NodeServices>> {
        let all: Vec<Arc<NodeServices>> = self.nodes().values().filter_map(Weak::upgrade).collect();
        all.into_iter().filter(|services| services.membership.is_member(services.id)).collect()
    }

    /// Whether a thread of a member may still ask for locks.
    pub(crate) fn is_any_running(&self) -> bool {
        self.members().iter().any(|services| services.running.load(Ordering::Acquire) != 0)
    }
}
