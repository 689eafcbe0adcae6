//! What a coordinator works with: the database, its compute node, its thread.
//!
//! Invariant: three scopes, each knowing only the outer ones. A [`Database`] is the same for
//! everybody, and of it only the configuration changes; a [`ComputeNode`] is shared by the threads of
//! one node; a [`Context`] is one thread's, shared by its coordinators without locks. All transactions
//! that a thread runs at a time run in one configuration: the map changes when none runs.

use crate::clearance::Clearance;
use crate::configuration::{Configurations, Seat};
use crate::doubts::Doubts;
use crate::load_trees::Loads;
use crate::membership::Membership;
use crate::metrics::Metrics;
use crate::numbers::{Known, Numbers};
use crate::protocol::AnyProtocol;
use crate::read_lease::explicit::ThreadReaders;
use crate::read_lease::readers::NodeReaders;
use crate::read_lease::{LeaseDesk, LeaseWord, NodeDelays, NodeLease, ThreadDelays};
use crate::recovery::{Sweeps, Turns};
use crate::services::{Directory, NodeServices, ServiceOptions, ThreadServices};
use crate::threads::{ThreadNumber, Threads};
use crate::timestamp::{LastSeen, SharedCounter, Timestamps};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::address::{Address, GroupId, NodeId};
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::port::Port;
use tarn_store::ids::{
    ConfigurationNumber, Explanation, Failure, OwnerTag, Resolution, THREADS_MAX, TxnId, UsageError,
};
use tarn_store::index::IndexView;
use tarn_store::index::btree::cache::TreeCache;
use tarn_store::index::btree::work::{DeadNodes, TreeWorks};
use tarn_store::index::growth::Growth;
use tarn_store::index::hash::Surroundings;
use tarn_store::log::blocks::LogBlocks;
use tarn_store::memory::address_cache::AddressCache;
use tarn_store::memory::heap::Heap;
use tarn_store::memory::left_memory::LeftMemory;
use tarn_store::memory::record_gc::RecordGc;
use tarn_store::placement::catalog::{Catalog, Table};
use tarn_store::placement::replica_groups::{ReplicaGroups, ThreadGroups};
use tarn_store::schema::{IndexId, TableId};

/// How often a thread that waits for a configuration looks whether it is there.
const LOOK_AGAIN: Nanos = Nanos(1_000);

/// Schemas, layouts, placement, protocol: the same for every compute node.
pub struct Database {
    /// Schemas and layouts.
    pub catalog: Catalog,
    /// Where replica groups live, now and next.
    pub configurations: Configurations,
    /// How transactions are run.
    pub protocol: AnyProtocol,
    /// Who is in the cluster.
    pub membership: Arc<dyn Membership>,
    /// Entries of ordered indexes that loaders have brought.
    pub loads: Loads,
    /// Who takes away what the dead had locked.
    pub sweeps: Sweeps,
    /// Timestamps, unless they come from elsewhere.
    pub counter: SharedCounter,
    /// Where log entries go on that are longer than their areas.
    pub(crate) log_blocks: LogBlocks,
    /// What compute nodes of this process do for one another.
    pub directory: Directory,
    /// What they have counted of their transactions, and what became of leases because of it.
    pub lease_desk: LeaseDesk,
    /// Transactions in doubt, how they ended, and which coordinators' numbers they need.
    pub numbers: Numbers,
    number: u64,
}

/// How many databases this process has opened.
static DATABASES: AtomicU64 = AtomicU64::new(0);

impl Database {
    /// A database whose first configuration has these groups.
    pub fn new(
        catalog: Catalog,
        groups: ReplicaGroups,
        protocol: AnyProtocol,
        membership: Arc<dyn Membership>,
    ) -> Database {
        let (configurations, sweeps) = (Configurations::new(groups), Sweeps::default());
        let (loads, counter) = (Loads::default(), SharedCounter::default());
        let directory = Directory::default();
        Database {
            catalog,
            configurations,
            protocol,
            membership,
            loads,
            sweeps,
            counter,
            log_blocks: LogBlocks::default(),
            directory,
            lease_desk: LeaseDesk::default(),
            numbers: Numbers::default(),
            number: DATABASES.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The same memory at rest, run by another variant of its protocol from now on. Timestamps go on behind those
    /// that were given: memory has versions of theirs.
    pub fn run_by(&self, protocol: AnyProtocol) -> Database {
        let membership = Arc::clone(&self.membership);
        let counter = SharedCounter::after(self.counter.last());
        let next = Database::new(self.catalog.clone(), self.groups(), protocol, membership);
        Database { counter, number: self.number, ..next }
    }

    /// Its number among those that this process has opened: what is one's is not another's.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where replica groups live in the configuration that was opened last.
    pub fn groups(&self) -> ReplicaGroups {
        self.configurations.open().groups.clone()
    }
}

/// What the threads of one compute node share.
pub struct ComputeNode {
    /// The database it serves.
    pub database: Arc<Database>,
    /// Its name in this life.
    pub id: NodeId,
    /// What it believes has grown.
    pub index_view: IndexView,
    /// Whether its coordinators may begin transactions.
    pub clearance: Clearance,
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
    delays: Option<Arc<NodeDelays>>,
    /// What they read, under explicit leases.
    readers: Option<Arc<NodeReaders>>,
}

impl ComputeNode {
    /// A node that has just joined.
    pub fn new(database: Arc<Database>, id: NodeId) -> ComputeNode {
        let index_view = IndexView::new(&database.catalog);
        let (clearance, turns) = (Clearance::default(), Turns::default());
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
            clearance,
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

/// One thread's hold on the database.
pub struct Context {
    /// Its compute node.
    pub node: Arc<ComputeNode>,
    /// Its fabric.
    pub port: Port,
    /// What its coordinators did.
    pub metrics: Metrics,
    /// Whether it remembers where records were seen.
    pub remembers: bool,
    /// Whether memory nodes are reached by loads and stores too.
    pub is_near: bool,
    /// Where records were seen: the thread's, unless its driver has it share a node's.
    pub cache: Rc<RefCell<AddressCache>>,
    /// Which indexes should grow.
    pub growth: Growth,
    /// What it remembers of ordered indexes.
    pub trees: RefCell<TreeCache>,
    /// What should be done about their shape.
    pub tree_works: TreeWorks,
    /// Whether there is any ordered index.
    pub has_ordered: bool,
    /// Where replica groups live, for transactions that run.
    pub groups: ThreadGroups,
    /// Where timestamps come from: the same for all threads of a database, set before they run.
    pub timestamps: Timestamps,
    /// What it does for locks, under a protocol that needs it.
    pub(crate) services: Option<Box<ThreadServices>>,
    /// How long its transactions take, under a protocol whose readers have leases.
    pub(crate) delays: Option<Arc<ThreadDelays>>,
    /// What it does for explicit leases.
    pub(crate) readers: Option<Box<ThreadReaders>>,
    /// Its transactions in doubt.
    pub(crate) doubts: Doubts,
    configuration: Cell<ConfigurationNumber>,
    /// Tries that run and transactions in doubt.
    active: Cell<u32>,
    seat: Arc<Seat>,
    /// Whether WRITEs to a joining copy are on their way.
    pub(crate) writes_copy: Cell<bool>,
    pub(crate) heap: RefCell<Heap>,
    /// Memory of discarded versions.
    pub(crate) record_gc: RefCell<RecordGc>,
    tag: Cell<OwnerTag>,
    explanation: RefCell<Option<Explanation>>,
    /// The lock that refused a transaction last, and its word.
    met: Cell<Option<(Address, u64)>>,
    decisions: RefCell<Vec<(TxnId, Resolution)>>,
    /// Behind all else: whoever has it next finds nothing of this thread in its node's lists.
    number: ThreadNumber,
}

impl Context {
    /// A thread of `node`, on `port`; `thread` is its number within the node.
    ///
    /// # Errors
    /// A thread number beyond what owner tags can name.
    pub fn new(
        node: Arc<ComputeNode>,
        port: Port,
        thread: u16,
        address_cache_entries: usize,
    ) -> Result<Context, UsageError> {
        if usize::from(thread) >= THREADS_MAX {
            return Err(UsageError {
                field: "threads_per_node".into(),
                value: (u64::from(thread) + 1).to_string(),
                allowed: format!("1 to {THREADS_MAX}"),
            });
        }
        // Its owner in the chunk table is the number's; its tags go on behind those of whoever had the number before.
        let owner = OwnerTag::new(node.id, thread, 0).word();
        let tag = OwnerTag::new(node.id, thread, node.threads.come(thread));
        let database = &node.database;
        let (open, seat) =
            (database.configurations.open(), database.configurations.sit_down(node.id));
        let groups = ThreadGroups::new(&open.groups);
        let heap = Heap::new(owner, groups.count());
        let record_gc = RefCell::new(database.record_gc(groups.count()));
        let growth = Growth::new(database.catalog.tables().len(), groups.count());
        let indexes = database.catalog.indexes().len();
        let services = node.services.as_ref();
        let services = services.map(|its| Box::new(ThreadServices::new(its, &port, thread)));
        let delays = node.delays.as_ref().map(|its| its.thread());
        let readers = node.readers.as_ref().map(|its| Box::new(ThreadReaders::new(its)));
        let number = ThreadNumber { node: Arc::clone(&node), number: thread, is_kept: false };
        Ok(Context {
            trees: RefCell::new(TreeCache::new(indexes)),
            tree_works: TreeWorks::default(),
            has_ordered: indexes > 0,
            node,
            is_near: port.near().is_some(),
            port,
            metrics: Metrics::default(),
            remembers: address_cache_entries > 0,
            cache: Rc::new(RefCell::new(AddressCache::new(address_cache_entries))),
            growth,
            groups,
            timestamps: Timestamps::Counter,
            services,
            delays,
            readers,
            doubts: Doubts::default(),
            configuration: Cell::new(open.number),
            active: Cell::new(0),
            seat,
            writes_copy: Cell::new(false),
            heap: RefCell::new(heap),
            record_gc,
            tag: Cell::new(tag),
            explanation: RefCell::new(None),
            met: Cell::new(None),
            decisions: RefCell::new(Vec::new()),
            number,
        })
    }

    /// The database.
    #[inline]
    pub fn database(&self) -> &Database {
        &self.node.database
    }

    /// A table.
    #[inline]
    pub fn table(&self, id: TableId) -> &Table {
        self.database().catalog.table(id)
    }

    /// What lookups need.
    #[inline]
    pub fn surroundings(&self) -> Surroundings<'_> {
        let database = self.database();
        Surroundings {
            catalog: &database.catalog,
            groups: &self.groups,
            view: &self.node.index_view,
        }
    }

    /// A name for a new transaction. A thread that has used up its count starts it anew, in the
    /// incarnation that its port has: see [`OwnerTag`] for why that is no reuse.
    #[inline]
    pub fn next_tag(&self) -> OwnerTag {
        let tag = self.tag.get();
        let tag = tag.next().unwrap_or_else(|| OwnerTag::new(tag.node(), tag.thread(), 1));
        self.tag.set(tag);
        tag
    }

    /// Notes what there is to say about a failure, and returns the failure.
    #[cold]
    pub fn explain(&self, explanation: Explanation) -> Failure {
        let failure = explanation.failure();
        *self.explanation.borrow_mut() = Some(explanation);
        failure
    }

    /// A failure of an unknown outcome was passed on, and was not that of the try `by`: what an earlier transaction has left in
    /// [`Context::explanation`] is not what there is to say about it.
    #[cold]
    pub(crate) fn forget_unknown_before(&self, by: TxnId) {
        let is_earlier = |id: TxnId| {
            (id.node(), id.thread()) == (by.node(), by.thread()) && id.count() < by.count()
        };
        let mut explanation = self.explanation.borrow_mut();
        if matches!(*explanation, Some(Explanation::Unknown(id)) if is_earlier(id)) {
            *explanation = None;
        }
    }

    /// What there is to say about the failure that a coordinator of this thread returned last. Ask
    /// before another one runs.
    pub fn explanation(&self, failure: Failure) -> Option<Explanation> {
        if failure == Failure::Fabric && self.node.clearance.is_barred() {
            return Some(Explanation::Fabric(FabricError::Fenced));
        }
        if failure == Failure::Fabric {
            return self.port.last_error().map(Explanation::Fabric);
        }
        self.explanation.borrow().clone().filter(|explanation| explanation.failure() == failure)
    }

    /// What this thread has decided about transactions in doubt that had a log entry, its own or those of
    /// the dead, in order. Each is here before anything is done about it, and all threads that decide
    /// about one come to the same, but for one that was expelled before it did: it may have read memory
    /// that has died since, and nothing of its decision lands. Whoever judges a history after crashes asks
    /// every thread. A transaction
    /// about which nobody has decided, and whose coordinator is no more, has written nothing.
    pub fn decisions(&self) -> Vec<(TxnId, Resolution)> {
        self.decisions.borrow().clone()
    }

    pub(crate) fn note_decision(&self, id: TxnId, resolution: Resolution) {
        let mut decisions = self.decisions.borrow_mut();
        if !decisions.contains(&(id, resolution)) {
            decisions.push((id, resolution));
        }
    }

    pub(crate) fn has_decided(&self, id: TxnId) -> bool {
        self.decisions.borrow().iter().any(|(known, _)| *known == id)
    }

    /// Whether an entry in a log said how a transaction ended, whoever looked.
    pub(crate) fn was_logged(&self, id: TxnId) -> bool {
        matches!(self.database().numbers.known(id), Known::Settled(verdict) if verdict.was_logged)
            || self.has_decided(id)
    }

    /// Notes which lock is about to make a transaction abort: it may be nobody's any more.
    #[cold]
    pub(crate) fn meet(&self, address: Address, word: u64) {
        self.met.set(Some((address, word)));
    }

    /// Whether one was noted.
    #[inline]
    pub(crate) fn has_met(&self) -> bool {
        self.met.get().is_some()
    }

    /// The lock noted last, once.
    pub(crate) fn take_met(&self) -> Option<(Address, u64)> {
        self.met.take()
    }

    /// Whether an index should grow, or a tree change its shape.
    #[inline]
    pub(crate) fn wants_restructuring(&self) -> bool {
        self.growth.is_wanted() || self.tree_works.is_wanted()
    }

    /// A try begins, if the thread runs in the announced configuration. If so, [`Context::leave`]
    /// must follow; if not, [`Context::adopt`].
    #[inline(always)]
    pub(crate) fn enter(&self) -> bool {
        if self.active.get() == 0 {
            self.seat.occupy();
        }
        self.active.set(self.active.get() + 1);
        if self.node.database.configurations.announced() == self.configuration.get() {
            return true;
        }
        self.leave();
        false
    }

    /// Something of a try goes on when it has ended, or of one that was settled: [`Context::leave`] must follow
    /// for it as well.
    pub(crate) fn stay(&self) {
        if self.active.get() == 0 {
            self.seat.occupy();
        }
        self.active.set(self.active.get() + 1);
    }

    /// A try has ended, or a doubt is settled.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let active = self.active.get() - 1;
        self.active.set(active);
        if active == 0 {
            self.seat.vacate();
        }
    }

    /// Whether no try of this thread is under way, or in doubt.
    pub fn is_at_rest(&self) -> bool {
        self.active.get() == 0
    }

    /// Takes over the configuration that was opened last, if nothing of this thread runs. What it remembers
    /// of ordered indexes is forgotten: a copy that has joined lacks nodes that were dead before.
    pub fn follow(&self) {
        let open = self.database().configurations.open();
        if self.is_at_rest() && open.number != self.configuration.get() {
            self.groups.become_copy_of(&open.groups);
            self.configuration.set(open.number);
            if self.has_ordered {
                *self.trees.borrow_mut() = TreeCache::new(self.database().catalog.indexes().len());
            }
        }
    }

    /// A node that is dead, or was never part of its tree, as of a transaction that has just ended; whether
    /// somebody else has it locked.
    pub(crate) fn keep_dead(&self, index: IndexId, node: Address, was_refused: bool) {
        self.node.dead_nodes.keep(self.configuration.get(), (index, node), was_refused);
    }

    /// A dead node of this tree, to be used again by the transaction that runs.
    pub(crate) fn take_dead(&self, index: IndexId) -> Option<Address> {
        self.node.dead_nodes.take(self.configuration.get(), index)
    }

    /// The configuration that the thread's transactions run in.
    pub fn configuration(&self) -> ConfigurationNumber {
        self.configuration.get()
    }

    /// Whether what a group has lies on one node, and nowhere else ever: where copies have died others may be made.
    #[inline]
    pub(crate) fn is_only_copy(&self, group: GroupId) -> bool {
        self.groups.replicas(group) == 1 && self.configuration.get() == ConfigurationNumber::FIRST
    }

    /// Whether the thread has the configuration that was opened last.
    pub(crate) fn is_current(&self) -> bool {
        self.database().configurations.open().number == self.configuration.get()
    }

    /// Whether this life is still a member: whoever tries something again asks first. A life that is over may be
    /// refused for ever, by nodes of the compute pool that no memory node speaks for.
    ///
    /// # Errors
    /// `Fenced`, if it is not: memory nodes refuse it already, or will soon.
    #[cold]
    pub(crate) fn check_membership(&self) -> Result<(), Failure> {
        match self.database().membership.is_member(self.node.id) {
            true => Ok(()),
            false => Err(self.port.note_failure(FabricError::Fenced).into()),
        }
    }

    /// Waits until the thread may run transactions of the announced configuration. Settles what is in
    /// doubt on this thread meanwhile: the change waits for it. A life that is over takes no map: safety
    /// does not rest on that, since every node of the map refuses it.
    ///
    /// # Errors
    /// `Fenced`, once this life is expelled; `DeadlineExceeded` after `deadline`.
    #[cold]
    pub(crate) async fn adopt(&self, deadline: Option<Nanos>) -> Result<(), Failure> {
        loop {
            self.attend().await;
            self.check_membership()?;
            self.follow();
            if self.database().configurations.announced() == self.configuration.get() {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| self.port.now() > deadline) {
                return Err(self.explain(Explanation::DeadlineExceeded { tries: 0 }));
            }
            self.port.sleep(LOOK_AGAIN).await;
        }
    }
}

impl Drop for Context {
    /// What is in doubt stays so, with its locks, until the node's life ends, or, where nothing lands later, until another thread settles
    /// it: the other threads of the node are not ended for it (docs/fault-model.md).
    fn drop(&mut self) {
        // First, so that whoever settles one from now on gives up its locks; then what others have settled before.
        self.database().numbers.leave(&self.doubts.ids(), &self.seat);
        self.reap();
        self.database().numbers.leave(&self.closing_ids(), &self.seat);
        let records = std::mem::take(self.record_gc.get_mut());
        self.node.left.take_over(self.heap.get_mut(), records);
        self.node.threads.end_with(self.tag.get());
        self.number.is_kept = self.services.as_ref().is_some_and(|its| its.rests_on_others());
        self.node.database.configurations.stand_up(&self.seat);
    }
}
