//! The environment of a coordinator: the database, its compute node, its thread.
//!
//! Invariant: there are three scopes, and each scope knows only the scopes outside it. A [`Database`] is the same for
//! all nodes; only its configuration changes. The threads of one node share a [`ComputeNode`]. A [`Context`] belongs
//! to one thread, whose coordinators share it without locks. At any time, all running transactions of a thread use
//! one configuration, because the map changes only when no transaction runs.

pub mod admission_gate;
mod database;
mod memory;
pub mod metrics;
mod node;
pub(crate) mod retry;
pub mod system;
pub mod thread_locks;
pub mod thread_readers;
pub mod thread_services;

pub use database::Database;
pub use node::ComputeNode;
pub(crate) use node::ThreadNumber;

use crate::cluster::configuration::ThreadSlot;
use crate::cluster::lease::ThreadDelays;
use crate::cluster::log_area_owners::Known;
use crate::cluster::membership::Standing;
use crate::services::timestamp::Timestamps;
use crate::site::metrics::Metrics;
use crate::site::thread_locks::ThreadLocks;
use crate::site::thread_readers::ThreadReaders;
use crate::site::thread_services::ThreadServices;
use crate::transaction::in_doubt::{Doubt, InDoubt};
use crate::transaction::lock::{HeldAs, Lock};
use crate::transaction::working_set::Txn;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tarn_fabric::address::{Address, GroupId, NodeId};
use tarn_fabric::error::FabricError;
use tarn_fabric::port::Port;
use tarn_store::ids::{
    ConfigurationNumber, Explanation, Failure, OwnerTag, Resolution, THREADS_MAX, TxnId, UsageError,
};
use tarn_store::index::btree::cache::TreeCache;
use tarn_store::index::btree::work::TreeWorks;
use tarn_store::index::growth::Growth;
use tarn_store::index::hash::LookupContext;
use tarn_store::layout::index_plan::Index;
use tarn_store::memory::address_cache::AddressCache;
use tarn_store::memory::heap::Heap;
use tarn_store::memory::record_gc::RecordGc;
use tarn_store::placement::catalog::Table;
use tarn_store::placement::replica_groups::ThreadGroups;
use tarn_store::schema::{IndexId, TableId};

/// One thread's access to the database.
pub struct Context {
    /// The compute node of the thread.
    pub node: Arc<ComputeNode>,
    /// The thread's port to the fabric.
    pub port: Port,
    /// Counts of the work of the thread's coordinators.
    pub metrics: Metrics,
    /// Whether the thread caches the addresses at which it found records.
    pub remembers: bool,
    /// Whether the thread also reaches memory nodes by loads and stores.
    pub is_near: bool,
    /// The cached addresses of records. The cache is the thread's own, unless the thread's driver makes the threads
    /// of a node share one cache.
    pub cache: Rc<RefCell<AddressCache>>,
    /// The indexes that should grow.
    pub growth: Growth,
    /// The cached nodes of ordered indexes.
    pub trees: RefCell<TreeCache>,
    /// The pending requests to change the shape of ordered indexes.
    pub tree_works: TreeWorks,
    /// Whether the database has any ordered index.
    pub has_ordered: bool,
    /// The map of replica groups for running transactions.
    pub groups: ThreadGroups,
    /// The source of timestamps. All threads of a database have the same source. The driver sets this source before
    /// the threads run.
    pub timestamps: Timestamps,
    /// The thread's state for locks, under a protocol that needs locks.
    pub(crate) services: Option<Box<ThreadServices>>,
    /// The delays of the thread's transactions, under a protocol whose readers have leases.
    pub(crate) delays: Option<Arc<ThreadDelays>>,
    /// The thread's state for explicit leases.
    pub(crate) readers: Option<Box<ThreadReaders>>,
    /// The thread's part in a lock service, under a protocol that needs one.
    pub(crate) locks: Option<Box<ThreadLocks>>,
    /// The thread's transactions in doubt.
    pub(crate) doubts: InDoubt,
    pub(crate) configuration: Cell<ConfigurationNumber>,
    /// The number of running tries and transactions in doubt.
    pub(crate) active: Cell<u32>,
    pub(crate) thread_slot: Arc<ThreadSlot>,
    /// Whether this thread has WRITEs to a joining copy that have not ended yet.
    pub(crate) writes_copy: Cell<bool>,
    pub(crate) heap: RefCell<Heap>,
    /// The memory of discarded versions that this thread may reuse.
    pub(crate) record_gc: RefCell<RecordGc>,
    pub(crate) tag: Cell<OwnerTag>,
    pub(crate) explanation: RefCell<Option<Explanation>>,
    /// The lock that last refused a transaction, and the value of its LOCK word.
    pub(crate) met: Cell<Option<(Address, u64)>>,
    pub(crate) decisions: RefCell<Vec<(TxnId, Resolution)>>,
    /// The thread's number. This field is the last one, so it is dropped last. Therefore the next thread with the
    /// same number finds no entries of this thread in the node's lists.
    pub(crate) number: ThreadNumber,
}

impl Context {
    /// Creates the context of a thread of `node`, on `port`; `thread` is the thread's number within the node.
    ///
    /// # Errors
    /// If the thread's number is greater than the greatest thread number of an owner tag.
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
        // The thread's owner word in the chunk table depends only on its node and number. The thread's tags continue
        // after the tags of the previous thread with this number.
        let owner = OwnerTag::new(node.id, thread, 0).word();
        let tag = OwnerTag::new(node.id, thread, node.threads.come(thread));
        let database = &node.database;
        let (open, thread_slot) =
            (database.configurations.open(), database.configurations.register(node.id));
        let groups = ThreadGroups::new(&open.groups);
        let heap = Heap::new(owner, groups.count());
        let record_gc = RefCell::new(database.record_gc(groups.count()));
        let growth = Growth::new(database.catalog.tables().len(), groups.count());
        let indexes = database.catalog.indexes().len();
        let services = node.services.as_ref();
        let services = services.map(|its| Box::new(ThreadServices::new(its, &port, thread)));
        let delays = node.delays.as_ref().map(|its| its.thread());
        let readers = node.readers.as_ref().map(|its| Box::new(ThreadReaders::new(its)));
        let locks = database.lock_stations.as_ref();
        let locks = locks.map(|its| Box::new(ThreadLocks::new(its, node.id, node.lock_ways)));
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
            locks,
            doubts: InDoubt::default(),
            configuration: Cell::new(open.number),
            active: Cell::new(0),
            thread_slot,
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

    /// Returns the thread's database.
    #[inline]
    pub fn database(&self) -> &Database {
        &self.node.database
    }

    /// Returns the table with this number.
    #[inline]
    pub fn table(&self, id: TableId) -> &Table {
        self.database().catalog.table(id)
    }

    /// Returns the part of this context that lookups need.
    #[inline]
    pub fn lookup_context(&self) -> LookupContext<'_> {
        let database = self.database();
        LookupContext {
            catalog: &database.catalog,
            groups: &self.groups,
            view: &self.node.index_view,
            proves_absent: true,
        }
    }

    /// Returns the tag of a new transaction. A thread that has used up its count of tags restarts the count, with
    /// another incarnation of its port. [`OwnerTag`] explains why no two transactions have the same tag.
    #[inline]
    pub fn next_tag(&self) -> OwnerTag {
        let tag = self.tag.get();
        let tag = tag.next().unwrap_or_else(|| OwnerTag::new(tag.node(), tag.thread(), 1));
        self.tag.set(tag);
        tag
    }

    /// Stores the explanation of a failure, and returns the failure.
    #[cold]
    pub fn explain(&self, explanation: Explanation) -> Failure {
        let failure = explanation.failure();
        *self.explanation.borrow_mut() = Some(explanation);
        failure
    }

    /// Returns the abort of a transaction that would give two records the same key in a unique index.
    #[cold]
    pub(crate) fn duplicate(&self, index: &Index) -> Failure {
        let table = self.database().catalog.table(index.table).schema.name.clone();
        self.explain(Explanation::Duplicate { table, index: index.schema.name.clone() })
    }

    /// Deletes an explanation that an earlier transaction has left in [`Context::explanation`]. A caller calls this
    /// function when it returns a failure with an unknown outcome that is not the failure of the try `by`.
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

    /// The explanation of the failure that a coordinator of this thread returned last. The caller must call this
    /// function before another coordinator runs.
    pub fn explanation(&self, failure: Failure) -> Option<Explanation> {
        if failure == Failure::Fabric && self.node.admission_gate.is_barred() {
            return Some(Explanation::Fabric(FabricError::Fenced));
        }
        if failure == Failure::Fabric {
            return self.port.last_error().map(Explanation::Fabric);
        }
        self.explanation.borrow().clone().filter(|explanation| explanation.failure() == failure)
    }

    /// The decisions of this thread about transactions in doubt that had a log entry, in order. The transactions are
    /// the thread's own or transactions of dead nodes. The thread records a decision here before it acts on it. All
    /// threads that decide about one transaction reach the same decision, with one exception. If a node was expelled
    /// before its thread decided, the thread may have read memory that has died since. No verb of that thread's
    /// decision takes effect. To check a history after crashes, collect the decisions of every thread. A transaction
    /// without a decision, whose coordinator has ended, has written nothing.
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

    /// Whether a log entry stated how a transaction ended. Any thread may have read the entry.
    pub(crate) fn was_logged(&self, id: TxnId) -> bool {
        matches!(self.database().log_area_owners.known(id), Known::Settled(verdict) if verdict.was_logged)
            || self.has_decided(id)
    }

    /// Records the lock that will make a transaction abort. The lock's owner may be dead and recovered.
    #[cold]
    pub(crate) fn note_blocking_lock(&self, address: Address, word: u64) {
        self.met.set(Some((address, word)));
    }

    /// Whether a blocking lock is recorded.
    #[inline]
    pub(crate) fn has_blocking_lock(&self) -> bool {
        self.met.get().is_some()
    }

    /// Returns the recorded blocking lock and clears the record.
    pub(crate) fn take_blocking_lock(&self) -> Option<(Address, u64)> {
        self.met.take()
    }

    /// Whether an index should grow, or an ordered index should change its shape.
    #[inline]
    pub(crate) fn wants_restructuring(&self) -> bool {
        self.growth.is_wanted() || self.tree_works.is_wanted()
    }

    /// Begins a try. Returns whether the thread runs in the announced configuration. If the result is true, a call of
    /// [`Context::leave`] must follow. If the result is false, a call of [`Context::adopt`] must follow.
    #[inline(always)]
    pub(crate) fn enter(&self) -> bool {
        if self.active.get() == 0 {
            self.thread_slot.occupy();
        }
        self.active.set(self.active.get() + 1);
        if self.node.database.configurations.announced() == self.configuration.get() {
            return true;
        }
        self.leave();
        false
    }

    /// Counts work that continues after its try has ended or its transaction was settled. A call of
    /// [`Context::leave`] must follow for this work too.
    pub(crate) fn stay(&self) {
        if self.active.get() == 0 {
            self.thread_slot.occupy();
        }
        self.active.set(self.active.get() + 1);
    }

    /// Records that a try has ended, or that a transaction in doubt is settled.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let active = self.active.get() - 1;
        self.active.set(active);
        if active == 0 {
            self.thread_slot.vacate();
        }
    }

    /// Whether this thread has no running try and no transaction in doubt.
    pub fn is_at_rest(&self) -> bool {
        self.active.get() == 0
    }

    /// Adopts the configuration that was opened last, if this thread has no running try and no transaction in doubt.
    /// The thread clears its cached nodes of ordered indexes, because a copy that has joined lacks nodes that were
    /// dead before.
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

    /// Keeps a dead node of an ordered index, or a node that was never part of its tree, for reuse. The transaction
    /// that removed the node has just ended. `was_refused` tells whether another transaction has locked the node.
    pub(crate) fn keep_dead(&self, index: IndexId, node: Address, was_refused: bool) {
        self.node.dead_nodes.keep(self.configuration.get(), (index, node), was_refused);
    }

    /// Returns a dead node of this ordered index for use by the running transaction.
    pub(crate) fn take_dead(&self, index: IndexId) -> Option<Address> {
        self.node.dead_nodes.take(self.configuration.get(), index)
    }

    /// The configuration in which the thread's transactions run.
    pub fn configuration(&self) -> ConfigurationNumber {
        self.configuration.get()
    }

    /// Whether a group's data have always been on only one memory node. If other copies have died, new copies may be
    /// made.
    #[inline]
    pub(crate) fn is_only_copy(&self, group: GroupId) -> bool {
        self.groups.replicas(group) == 1 && self.configuration.get() == ConfigurationNumber::FIRST
    }

    /// Whether the thread has the configuration that was opened last.
    pub(crate) fn is_current(&self) -> bool {
        self.database().configurations.open().number == self.configuration.get()
    }

    /// Checks that this incarnation of the node is still a member. A caller calls this function before it tries an
    /// operation again. Otherwise the caller could try for ever. The reason is that other compute nodes may refuse an
    /// ended incarnation at every try, and no memory node tells the incarnation that it has ended.
    ///
    /// # Errors
    /// `Fenced`, if the incarnation is no member: memory nodes already refuse the incarnation, or will soon.
    #[cold]
    pub(crate) fn check_membership(&self) -> Result<(), Failure> {
        match self.database().membership.is_member(self.node.id) {
            true => Ok(()),
            false => Err(self.port.note_failure(FabricError::Fenced).into()),
        }
    }
}

/// Whether any thread frees such a lock when it settles the transaction, or a thread's end has left it to the lock
/// service, which frees it once the transaction is settled.
fn may_be_freed_by_others(held_as: HeldAs) -> bool {
    held_as.is_by_cas() || held_as.is_by_service()
}

impl Context {
    /// Records a transaction in doubt. The transaction's try still counts as running.
    #[cold]
    pub(crate) fn doubt(&self, txn: &Txn) {
        let (id, number) = (txn.tag, txn.coordinator);
        self.doubts.list.borrow_mut().push(Doubt { id, number, left: None, is_awaited: false });
        let locks = txn.locks.iter().filter(|lock| lock.held_as.is_by_cas());
        let locks = locks.map(|lock: &Lock| lock.address).collect();
        let is_bound = !txn.held.is_empty()
            || txn.locks.iter().any(|lock| lock.granted && !may_be_freed_by_others(lock.held_as));
        self.database().log_area_owners.doubt(number, id, locks, is_bound);
    }

    /// Whether another node is recovered. That node's access is revoked, so none of its work continues.
    pub(crate) fn is_over(&self, node: NodeId) -> bool {
        node != self.node.id && self.database().membership.standing(node) == Standing::Recovered
    }

    /// Whether this node is no member any more.
    pub(crate) fn is_expelled(&self) -> bool {
        !self.database().membership.is_member(self.node.id)
    }
}

impl Drop for Context {
    /// Transactions in doubt stay in doubt, with their locks, until the node's incarnation ends. On a backend where
    /// no verb takes effect after its round was dropped, another thread may settle them earlier. The node's other
    /// threads continue (docs/fault-model.md).
    fn drop(&mut self) {
        // First the function marks the transactions as abandoned by their thread. So if another thread settles one of
        // them, that thread also releases its locks. Then the function releases the locks of the transactions that
        // other threads have settled already.
        self.database().log_area_owners.leave(&self.doubts.ids(), &self.thread_slot);
        self.reap();
        self.database().log_area_owners.leave(&self.closing_ids(), &self.thread_slot);
        let records = std::mem::take(self.record_gc.get_mut());
        self.node.left.take_over(self.heap.get_mut(), records);
        self.node.threads.end_with(self.tag.get());
        self.number.is_kept = self.services.as_ref().is_some_and(|its| its.rests_on_others());
        self.leave_locks_behind();
        self.node.database.configurations.unregister(&self.thread_slot);
    }
}
