//! Runs a workload on a simulated cluster: loads the tables, runs phases in virtual time, and then checks the memory.
//!
//! Invariant: one thread of this machine runs the whole simulation. A phase ends when all of its transactions have
//! ended and no verb or message is in flight any more. After the end of a phase, the memory can be checked. For the
//! next phase, every compute node joins the cluster as a new incarnation.

use super::cluster::SimCluster;
use super::dispatch::Dispatch;
use super::hotspot::run::Heat;
use super::hotspot::trail;
use super::stamps::{self, Source, StampNode};
use super::warmth::Warmth;
use super::{Config, Seats};
use crate::harness::error::RunError;
pub use crate::harness::phase::{Length, Now};
use crate::harness::phase::{Phase, Reading};
use crate::harness::rest;
use crate::harness::worker::{Signals, Worker, WorkerShared, coroutine};
use crate::trace::recorder::Recorder;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tarn::cluster::OpenError;
use tarn_engine::admin::inspect::Audit;
use tarn_engine::requests::read_lease::manager::LeaseKeeper;
use tarn_engine::requests::resharding::balance;
use tarn_engine::requests::serve;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::Context;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::rpc::RpcConfig;
use tarn_sim::scheduler::{Ended, Scheduler};
use tarn_sim::usage::Usage;
use tarn_store::ids::UsageError;
use tarn_store::memory::address_cache::AddressCache;
use tarn_store::placement::routing::Router;
use tarn_store::placement::shard_map::ShardMap;
use tarn_workloads::{Invariant, Workload};

/// If a transaction has not ended this long after the end of its phase, the run reports that the transaction never
/// ends.
const PATIENCE: Nanos = Nanos(100_000_000);
/// The virtual time between two reports to the caller's watch.
const SLICE: Nanos = Nanos(100_000);

/// The context of one thread, and the numbers of the coordinators that run on this thread.
pub(super) type Crew = (Rc<Context>, Vec<u32>);

/// The results of one phase, and the use of the hardware in the phase's measured part.
pub struct SimPhase {
    /// The counters of the coordinators.
    pub phase: Phase,
    /// The use of the hardware by the phase's coordinators.
    pub used: Usage,
    /// The number of transactions in the phase's measured part whose tries were all aborted.
    pub given_up: u64,
}

/// A loaded simulated cluster and the workload that runs on it.
pub struct Driver<W: Workload> {
    workload: W,
    cluster: SimCluster,
    retry: Retry,
    /// The number of clients whose transactions are routed; `None` if the coordinators draw their
    /// own transactions.
    clients: Option<usize>,
    /// The shards that get more requests than others, and the rule by which shards move; `None`
    /// without hot shards.
    heat: Option<Heat>,
    /// The rule for the addresses that threads already know when a phase begins; `None` if threads begin with empty
    /// caches.
    warmth: Option<Warmth>,
    /// The addresses of all records, if threads are to know addresses when a phase begins.
    atlas: AddressCache,
    /// The node that serves timestamps. The driver makes this node for the first phase that needs it.
    stamp_node: Option<StampNode>,
    tally: W::Tally,
}

impl<W: Workload> Driver<W> {
    /// Makes the simulated cluster for this workload.
    ///
    /// # Errors
    /// Fails if a value cannot be used; the error names this value.
    pub fn new(workload: W, config: &Config) -> Result<Driver<W>, OpenError> {
        let mut config = config.clone();
        config.cluster.options = workload.sized(&config.cluster.options);
        let cluster = SimCluster::new(&workload.schemas(), &config, workload.records())?;
        let (retry, tally) = (Retry::default(), W::Tally::default());
        let (clients, heat, warmth, stamp_node) = (None, None, None, None);
        let atlas = AddressCache::new(0);
        Ok(Driver { workload, cluster, retry, clients, heat, warmth, atlas, stamp_node, tally })
    }

    /// Returns the simulated cluster.
    pub fn cluster(&self) -> &SimCluster {
        &self.cluster
    }

    /// Returns the simulated cluster, so that the caller can change the configuration of the next phase.
    pub fn cluster_mut(&mut self) -> &mut SimCluster {
        &mut self.cluster
    }

    /// Sets the rule by which transactions of the next phases are retried.
    pub fn set_retry(&mut self, retry: Retry) {
        self.retry = retry;
    }

    /// Sets the number of clients from the next phase on. The transactions of clients are routed to nodes, and the
    /// coordinators of a node take transactions from the node's queue. Without clients, coordinators draw their own
    /// transactions.
    pub fn set_clients(&mut self, clients: Option<usize>) {
        self.clients = clients;
    }

    /// Sets the hot shards from the next phase on. Clients send more requests to hot shards than to other shards.
    /// Shards move to other nodes if `heat` has a rule for moves.
    pub(crate) fn set_heat(&mut self, heat: Option<Heat>) {
        self.cluster.set_counts_load(heat.is_some());
        self.heat = heat;
    }

    /// Sets the rule for the addresses that threads already know when a phase begins. The caller must call this
    /// function before loading, because loading collects the addresses of the records.
    ///
    /// # Errors
    /// Fails if the addresses need more memory than this machine has.
    pub fn set_warmth(&mut self, warmth: Option<Warmth>) -> Result<(), UsageError> {
        if let Some(warmth) = warmth {
            let config = self.cluster.config();
            let (nodes, threads) = (config.cluster.compute_nodes, config.threads);
            warmth.check(self.workload.records(), nodes, threads)?;
        }
        self.warmth = warmth;
        Ok(())
    }

    /// Replaces the workload from the next phase on. The coordinators then run other transactions on the same
    /// records, and the same tally counts these transactions.
    ///
    /// # Panics
    /// Panics if the new workload has other tables or another number of records.
    pub fn set_workload(&mut self, workload: W) {
        assert_eq!(workload.schemas(), self.workload.schemas(), "other tables");
        assert_eq!(workload.records(), self.workload.records(), "another number of records");
        self.workload = workload;
    }

    /// Returns the workload.
    pub fn workload(&self) -> &W {
        &self.workload
    }

    /// Returns the workload's counts of its transactions, summed over all phases.
    pub fn tally(&self) -> &W::Tally {
        &self.tally
    }

    /// Returns a context for reading memory while no coordinator runs.
    pub(crate) fn context_at_rest(&self) -> Result<Rc<Context>, OpenError> {
        self.bare_context_at_rest().map(Rc::new)
    }

    fn bare_context_at_rest(&self) -> Result<Context, OpenError> {
        Ok(self.cluster.context(&self.cluster.join(0)?, 0)?)
    }

    /// Loads the tables while no coordinator runs. Loading takes no virtual time.
    ///
    /// # Errors
    /// Fails if the pool has too little memory.
    pub fn load(&mut self, progress: &dyn Fn(u64, u64)) -> Result<u64, RunError> {
        let mut cx = self.bare_context_at_rest()?;
        let atlas = self.warmth.map(|warmth| warmth.atlas(self.workload.records()));
        if let Some(atlas) = atlas {
            (cx.cache, cx.remembers) = (Rc::new(RefCell::new(atlas)), true);
        }
        let (done, all) = (Cell::new(0), self.workload.records());
        let tell = |count| {
            done.set(done.get() + count);
            progress(done.get(), all);
        };
        let loaded = rest::load(&self.workload, &cx, rest::ALL, &tell);
        if self.warmth.is_some() {
            self.atlas = cx.cache.replace(AddressCache::new(0));
        }
        loaded.map_err(|failure| RunError::explained(&cx, failure))
    }

    /// For every thread, returns the thread's context in a new incarnation of its compute node, and the numbers of
    /// the thread's coordinators.
    fn contexts(&self) -> Result<Vec<Crew>, OpenError> {
        let config = self.cluster.config();
        let slots = 0..config.cluster.compute_nodes as u16;
        let nodes: Vec<Arc<_>> =
            slots.map(|slot| self.cluster.join(slot)).collect::<Result<_, _>>()?;
        let owners: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        serve::share_out(self.cluster.database(), &owners);
        // A thread without coordinators still answers the threads with the same number at other
        // nodes, if the protocol sends requests between nodes.
        let is_needed = |seats: &Seats| {
            !seats.coordinators.is_empty() || nodes[usize::from(seats.slot)].services().is_some()
        };
        let places: Vec<Seats> = config.places().filter(is_needed).collect();
        let thread =
            |seats: &Seats| self.cluster.thread(&nodes[usize::from(seats.slot)], seats.thread);
        let mut contexts: Vec<Context> = places.iter().map(thread).collect::<Result<_, _>>()?;
        self.warm(&mut contexts)?;
        let numbers = places.into_iter().map(|seats| seats.coordinators);
        Ok(contexts.into_iter().map(Rc::new).zip(numbers).collect())
    }

    /// Gives each thread the addresses that the thread is to know at the start of the phase.
    fn warm(&self, contexts: &mut [Context]) -> Result<(), OpenError> {
        let Some(warmth) = self.warmth else { return Ok(()) };
        let (database, map) = (self.cluster.database(), ShardMap::default());
        map.refresh(&*database.membership);
        let router =
            (&self.router(&map), self.clients.is_some(), self.cluster.config().cluster.seed);
        Ok(warmth.warm(&self.workload, contexts, router, &self.atlas)?)
    }

    fn router<'a>(&'a self, map: &'a ShardMap) -> Router<'a> {
        let nodes = 0..self.cluster.config().cluster.compute_nodes as u16;
        Router::new(&self.cluster.database().catalog, map, nodes.map(NodeSlot).collect())
    }

    /// Prepares the source of timestamps for the phase, before any coroutine runs.
    fn prepare_timestamps(&mut self) -> Result<(), OpenError> {
        let (cluster, source) = (&self.cluster, self.cluster.config().timestamps);
        if source == Source::Service && self.stamp_node.is_none() {
            let slot = cluster.config().cluster.compute_nodes;
            self.stamp_node = Some(StampNode::new(cluster.fabric(), cluster.database(), slot)?);
        }
        if source == Source::Pool {
            stamps::raise_pool(&*self.context_at_rest()?)?;
        }
        Ok(())
    }

    /// Returns the node that serves timestamps in this phase.
    fn serving_timestamps(&self) -> Option<&StampNode> {
        let is_asked = self.cluster.config().timestamps == Source::Service;
        self.stamp_node.as_ref().filter(|_| is_asked)
    }

    /// Spawns, on the first thread of each compute node, a coroutine that moves shards to other nodes, if the phase
    /// has a rule for moves.
    fn balance<'a>(
        &'a self,
        scheduler: &mut Scheduler<'a>,
        all: &'a [Rc<Context>],
        signals: &'a Signals,
    ) {
        let Some(Heat { terms: Some(terms), trail, .. }) = &self.heat else { return };
        let mut last = None;
        for cx in all {
            if last.replace(cx.node.id) == Some(cx.node.id) {
                continue;
            }
            let refused = Cell::new(trail::refused(all));
            let nodes = self.cluster.config().cluster.compute_nodes;
            scheduler.spawn(&cx.port, async move {
                let refused = &refused;
                let report = async |shard, to, came| {
                    trail.moved((cx, all), (shard, to), came, refused).await;
                };
                balance(cx, nodes, terms, || signals.has_stopped(), report).await;
            });
        }
    }

    /// Spawns, on the first thread of each compute node, a coroutine that manages the read leases, if the node has
    /// read leases to manage.
    fn keep_leases<'a>(scheduler: &mut Scheduler<'a>, all: &[Rc<Context>], signals: &'a Signals) {
        let mut last = None;
        let firsts = all.iter().filter(|cx| last.replace(cx.node.id) != Some(cx.node.id));
        for cx in firsts {
            let keeper = LeaseKeeper::apart(Rc::clone(cx), RpcConfig::DEFAULT);
            let Some(keeper) = keeper else { continue };
            scheduler.spawn(&cx.port, async move { keeper.run(|| !signals.has_stopped()).await });
        }
    }

    /// Makes the queues for the transactions of clients, if the phase has clients.
    fn routed<'a>(&'a self, map: &'a ShardMap) -> Option<Dispatch<'a, W>> {
        let clients = self.clients?;
        let shape = &self.cluster.config().cluster;
        let (router, nodes) = (self.router(map), (self.cluster.fabric(), shape.compute_nodes));
        let clients = (clients, shape.seed);
        Some(Dispatch::new(&self.workload, nodes, router, clients, self.heat.clone()))
    }

    /// Spawns all coroutines of a phase: coordinators, services, the coroutines that manage shards and leases, and
    /// the node that serves timestamps.
    fn spawn<'a>(
        &'a self,
        scheduler: &mut Scheduler<'a>,
        cast: &Cast<'a, W>,
        (contexts, all): (&'a [Crew], &'a [Rc<Context>]),
    ) -> Result<(), OpenError> {
        let (signals, desk) = (cast.signals, cast.desk);
        for (cx, numbers) in contexts {
            numbers.iter().for_each(|number| cast.begin(scheduler, cx, *number));
            if cx.answers() {
                // Until the phase stops, another node may send requests to this thread, even if the thread has no
                // coordinators.
                let is_over = || signals.has_stopped() && !cx.has_coordinators();
                scheduler.spawn(&cx.port, serve::run(cx, is_over));
            }
        }
        self.balance(scheduler, all, signals);
        Self::keep_leases(scheduler, all, signals);
        if let Some(node) = self.serving_timestamps() {
            let seats = contexts.iter().map(|(_, them)| them.len()).sum::<usize>();
            node.start(self.cluster.database(), scheduler, move || desk.has_left() == seats)?;
        }
        Ok(())
    }

    /// Runs one phase, and reports the progress to `watch` at regular intervals.
    ///
    /// # Errors
    /// Fails if a compute node cannot join the cluster.
    pub fn phase(&mut self, length: Length, watch: &dyn Fn(Now)) -> Result<SimPhase, OpenError> {
        self.phase_seen(length, watch, None)
    }

    /// Runs a phase as [`Driver::phase`] does, with a recorder that watches the phase's
    /// transactions. The recorder does not change the run.
    ///
    /// # Errors
    /// Returns the same errors as [`Driver::phase`].
    pub fn phase_seen(
        &mut self,
        length: Length,
        watch: &dyn Fn(Now),
        recorder: Option<&Recorder>,
    ) -> Result<SimPhase, OpenError> {
        self.prepare_timestamps()?;
        let contexts = self.contexts()?;
        let (workload, fabric) = (&self.workload, self.cluster.fabric());
        let signals = Signals::default();
        let desk = WorkerShared::<W::Tally>::new(W::TRANSACTIONS.len(), 1, PATIENCE);
        let database = self.cluster.database();
        let map = ShardMap::default();
        map.refresh(&*database.membership);
        if let Some(heat) = &self.heat {
            heat.trail.start.set(fabric.now());
        }
        let all: Vec<Rc<Context>> = contexts.iter().map(|(cx, _)| Rc::clone(cx)).collect();
        let dispatch = self.routed(&map);
        let mut scheduler = Scheduler::new(fabric);
        if let Some(recorder) = recorder {
            fabric.observe(Box::new(recorder.clone()));
        }
        let (retry, record) = (self.retry, length.record);
        let dispatch = dispatch.as_ref();
        let cast =
            Cast { workload, retry, desk: &desk, signals: &signals, record, recorder, dispatch };
        self.spawn(&mut scheduler, &cast, (&contexts, &all))?;
        let start = fabric.now();
        let of = length.warm_up + length.measured;
        let mut run_to = |until: Nanos, is_enough: &dyn Fn() -> bool| {
            while fabric.now() < until && !is_enough() {
                if scheduler.run_until((fabric.now() + SLICE).min(until)) == Ended::Finished {
                    break;
                }
                if dispatch.is_some() {
                    map.refresh(&*database.membership);
                }
                watch(Now { passed: fabric.now() - start, of });
            }
        };
        run_to(start + length.warm_up, &|| false);
        signals.measure();
        if let Some(recorder) = recorder {
            recorder.begin(fabric.now());
        }
        let read =
            || (Reading::take(all.iter().map(|cx| &**cx), &desk, fabric.now()), fabric.usage());
        let before = read();
        let is_enough = || length.record && signals.recorded() >= length.transactions_max;
        run_to(start + of, &is_enough);
        signals.stop();
        if let Some(dispatch) = dispatch {
            dispatch.stop();
        }
        let after = read();
        if scheduler.run_until(fabric.now() + desk.patience) == Ended::Finished {
            scheduler.drain();
        }
        drop(scheduler);
        // The next phase must give timestamps that are greater than all timestamps in memory. So the driver asks each
        // thread for the greatest timestamp that the thread knows.
        let heard = contexts.iter().map(|(cx, _)| cx.timestamps.known(cx));
        heard.for_each(|known| database.counter.raise(known));
        let used = after.1.since(&before.1);
        let (phase, tallies) = desk.close(&before.0, &after.0);
        tallies.into_iter().for_each(|tally| W::merge(&mut self.tally, tally));
        Ok(SimPhase { given_up: phase.given_up, phase, used })
    }

    /// Checks the memory while no coordinator runs: the workload's invariants must hold, and the engine's audit must
    /// find no error.
    ///
    /// # Errors
    /// Returns the errors that the fabric reports.
    pub fn check(&self) -> Result<(Vec<Invariant>, Audit), RunError> {
        let cx = self.context_at_rest()?;
        let judged = rest::look(&self.workload, &cx, &self.tally);
        judged.map_err(|failure| RunError::explained(&cx, failure))
    }
}

/// The state that a phase's coordinators share.
struct Cast<'a, W: Workload> {
    workload: &'a W,
    retry: Retry,
    desk: &'a WorkerShared<W::Tally>,
    signals: &'a Signals,
    record: bool,
    recorder: Option<&'a Recorder>,
    dispatch: Option<&'a Dispatch<'a, W>>,
}

impl<'a, W: Workload> Cast<'a, W> {
    /// Adds a coordinator to its thread.
    fn begin(&self, scheduler: &mut Scheduler<'a>, cx: &Rc<Context>, number: u32) {
        let &Cast { workload, retry, desk, signals, record, recorder, dispatch } = self;
        let mut coordinator = Coordinator::new(Rc::clone(cx), number, retry);
        if record {
            coordinator.record_history();
        }
        let seat = Worker::<W>::new(coordinator, desk);
        match (recorder, dispatch) {
            (Some(recorder), _) => {
                let told = (recorder.pen(number, cx), ());
                let coroutine = coroutine(workload, seat, signals, record, told);
                scheduler.spawn(&cx.port, recorder.watch(number, cx, coroutine));
            }
            (None, Some(dispatch)) => {
                let source = dispatch.of(cx);
                let coroutine = coroutine(workload, seat, signals, record, ((), source));
                scheduler.spawn(&cx.port, coroutine);
            }
            (None, None) => {
                let coroutine = coroutine(workload, seat, signals, record, ((), ()));
                scheduler.spawn(&cx.port, coroutine);
            }
        }
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
