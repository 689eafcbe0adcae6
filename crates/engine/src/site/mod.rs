//! What a coordinator works with: the database, its compute node, its thread.
//!
//! Invariant: three scopes, each knowing only the outer ones. A [`Database`] is the same for
//! everybody, and of it only the configuration changes; a [`ComputeNode`] is shared by the threads of
//! one node; a [`Context`] is one thread's, shared by its coordinators without locks. All transactions
//! that a thread runs at a time run in one configuration: the map changes when none runs.

pub mod admission_gate;
mod database;
mod memory;
pub mod metrics;
mod node;
pub(crate) mod retry;
pub mod system;
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
use crate::site::thread_readers::ThreadReaders;
use crate::site::thread_services::ThreadServices;
use crate::transaction::in_doubt::{Doubt, InDoubt};
use crate::transaction::working_set::{Lock, Txn};
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
use tarn_store::memory::address_cache::AddressCache;
use tarn_store::memory::heap::Heap;
use tarn_store::memory::record_gc::RecordGc;
use tarn_store::placement::catalog::Table;
use tarn_store::placement::replica_groups::ThreadGroups;
use tarn_store::schema::{IndexId, TableId};

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
    pub(crate) doubts: InDoubt,
    pub(crate) configuration: Cell<ConfigurationNumber>,
    /// Tries that run and transactions in doubt.
    pub(crate) active: Cell<u32>,
    pub(crate) seat: Arc<ThreadSlot>,
    /// Whether WRITEs to a joining copy are on their way.
    pub(crate) writes_copy: Cell<bool>,
    pub(crate) heap: RefCell<Heap>,
    /// Memory of discarded versions.
    pub(crate) record_gc: RefCell<RecordGc>,
    pub(crate) tag: Cell<OwnerTag>,
    pub(crate) explanation: RefCell<Option<Explanation>>,
    /// The lock that refused a transaction last, and its word.
    pub(crate) met: Cell<Option<(Address, u64)>>,
    pub(crate) decisions: RefCell<Vec<(TxnId, Resolution)>>,
    /// Behind all else: whoever has it next finds nothing of this thread in its node's lists.
    pub(crate) number: ThreadNumber,
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
            doubts: InDoubt::default(),
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
    pub fn lookup_context(&self) -> LookupContext<'_> {
        let database = self.database();
        LookupContext {
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
        if failure == Failure::Fabric && self.node.admission_gate.is_barred() {
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
    pub(crate) fn note_blocking_lock(&self, address: Address, word: u64) {
        self.met.set(Some((address, word)));
    }

    /// Whether one was noted.
    #[inline]
    pub(crate) fn has_blocking_lock(&self) -> bool {
        self.met.get().is_some()
    }

    /// The lock noted last, once.
    pub(crate) fn take_blocking_lock(&self) -> Option<(Address, u64)> {
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
}

impl Context {
    /// Notes a transaction in doubt: its try has not left.
    #[cold]
    pub(crate) fn doubt(&self, txn: &Txn) {
        let (id, number) = (txn.tag, txn.coordinator);
        self.doubts.list.borrow_mut().push(Doubt { id, number, left: None, is_awaited: false });
        let locks = txn.locks.iter().filter(|lock| lock.held_as.is_by_cas());
        let locks = locks.map(|lock: &Lock| lock.address).collect();
        let is_bound = !txn.held.is_empty()
            || txn.locks.iter().any(|lock| lock.granted && !lock.held_as.is_by_cas());
        self.database().numbers.doubt(number, id, locks, is_bound);
    }

    /// Whether nothing of another node goes on any more: its access is gone.
    pub(crate) fn is_over(&self, node: NodeId) -> bool {
        node != self.node.id && self.database().membership.standing(node) == Standing::Recovered
    }

    /// Whether this node takes no part any more.
    pub(crate) fn is_expelled(&self) -> bool {
        !self.database().membership.is_member(self.node.id)
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
        self.node.database.configurations.unregister(&self.seat);
    }
}
