//! Runs a workload on an embedded cluster: loads the tables, runs the phases, and then checks the memory.
//!
//! Invariant: the measured phase records no history. A recorded phase has no warm-up, so that its
//! history begins with the phase. Every compute node joins again as a new incarnation for each
//! phase, so that owner tags never repeat.

use super::Config;
use super::inboxes::{Inboxes, Routed};
use super::worker;
use crate::harness::error::RunError;
use crate::harness::phase::{Length, Phase};
use crate::harness::rest;
use crate::harness::worker::Signals;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tarn::cluster::{Cluster, OpenError};
use tarn_engine::admin::inspect::Audit;
use tarn_engine::admin::load::Part;
use tarn_engine::requests::serve;
use tarn_engine::site::{ComputeNode, Context};
use tarn_fabric::address::NodeId;
use tarn_workloads::{Invariant, Workload};

/// A workload that several threads can run.
pub trait Threaded: Workload<Tally: Send + Sync, Input: Send> + Sync {}

impl<W: Workload<Tally: Send + Sync, Input: Send> + Sync> Threaded for W {}

/// A loaded embedded cluster and the workload that runs on it.
pub struct Driver<W: Workload> {
    /// The workload.
    pub workload: W,
    /// The cluster.
    pub cluster: Cluster,
    config: Config,
    /// The workload's counts of its transactions, summed over all phases.
    pub tally: W::Tally,
}

/// The counters of one thread in a phase, and the tallies of the thread's coroutines.
type ThreadResult<W> = Result<(Phase, Vec<<W as Workload>::Tally>), OpenError>;

impl<W: Threaded> Driver<W> {
    /// Makes the cluster, with a log area for each coroutine.
    ///
    /// # Errors
    /// Fails if a value cannot be used; the error names this value.
    pub fn new(workload: W, config: &Config) -> Result<Driver<W>, OpenError> {
        let mut config = config.clone();
        config.cluster.options = workload.sized(&config.cluster.options);
        config.cluster.options.coordinators_max = (config.threads * config.coroutines) as u32;
        config.cluster.compute_nodes = config.threads.div_ceil(config.threads_per_node);
        let cluster = Cluster::for_threads(&workload.schemas(), &config.cluster, config.threads)?;
        let tally = W::Tally::default();
        Ok(Driver { workload, cluster, config, tally })
    }

    fn nodes(&self) -> Result<Vec<Arc<ComputeNode>>, OpenError> {
        (0..self.config.cluster.compute_nodes).map(|slot| self.cluster.join(slot as u16)).collect()
    }

    /// Loads the tables with every thread; calls `progress(done, all)` repeatedly while it loads.
    ///
    /// # Errors
    /// Fails if the pool has too little memory, or if the fabric fails.
    pub fn load(&self, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<u64, RunError> {
        let nodes = self.nodes()?;
        let of = self.config.threads as u32;
        let (done, all) = (AtomicU64::new(0), self.workload.records());
        let load = |thread| -> Result<u64, RunError> {
            let cx = self.context(&nodes, thread)?;
            let part = Part { index: thread as u32, of };
            let tell = |count| progress(done.fetch_add(count, Ordering::Relaxed) + count, all);
            let loaded = rest::load(&self.workload, &cx, part, &tell);
            loaded.map_err(|failure| RunError::explained(&cx, failure))
        };
        std::thread::scope(|scope| {
            let load = &load;
            let thread = |thread| scope.spawn(move || load(thread));
            let threads: Vec<_> = (0..self.config.threads).map(thread).collect();
            threads.into_iter().map(|thread| thread.join().expect("a loader panicked")).sum()
        })
    }

    fn context(&self, nodes: &[Arc<ComputeNode>], thread: usize) -> Result<Context, OpenError> {
        let node = &nodes[thread / self.config.threads_per_node];
        let number = (thread % self.config.threads_per_node) as u16;
        Ok(self.cluster.context(node, number)?)
    }

    /// Runs one phase.
    ///
    /// # Errors
    /// Fails if a compute node cannot join the cluster.
    #[expect(clippy::disallowed_methods, reason = "the program's clock")]
    pub fn phase(&mut self, length: Length) -> Result<Phase, OpenError> {
        let nodes = self.nodes()?;
        let owners: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        serve::share_out(self.cluster.database(), &owners);
        let signals = Signals::default();
        let inboxes = Inboxes::new(self.config.threads, self.config.threads_per_node);
        let (this, told) = (&*self, (&signals, &inboxes));
        let [warm_up, measured] =
            [length.warm_up, length.measured].map(|length| Duration::from_nanos(length.0));
        let results: Vec<ThreadResult<W>> = std::thread::scope(|scope| {
            if length.record {
                signals.measure();
            }
            let nodes = &nodes;
            let thread = |thread| scope.spawn(move || this.run_thread(nodes, thread, length, told));
            let threads: Vec<_> = (0..this.config.threads).map(thread).collect();
            if !length.record {
                std::thread::sleep(warm_up);
                signals.measure();
            }
            let start = Instant::now();
            loop {
                let left = measured.saturating_sub(start.elapsed());
                let enough = length.record && signals.recorded() >= length.transactions_max;
                if left.is_zero() || enough || threads.iter().all(|thread| thread.is_finished()) {
                    break;
                }
                let turn = if length.record { 1 } else { 50 };
                std::thread::sleep(left.min(Duration::from_millis(turn)));
            }
            signals.stop();
            threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect()
        });
        let mut phase = Phase::empty(W::TRANSACTIONS.len());
        for result in results {
            let (part, tallies) = result?;
            phase.add(part);
            tallies.into_iter().for_each(|tally| W::merge(&mut self.tally, tally));
        }
        Ok(phase)
    }

    fn run_thread(
        &self,
        nodes: &[Arc<ComputeNode>],
        thread: usize,
        length: Length,
        (signals, inboxes): (&Signals, &Inboxes<W::Input>),
    ) -> ThreadResult<W> {
        if self.config.pin {
            crate::machine::pin_to_core(thread);
        }
        let cx = Rc::new(self.context(nodes, thread)?);
        let coroutines = self.config.coroutines;
        let numbers = (thread * coroutines) as u32..((thread + 1) * coroutines) as u32;
        let routed = Routed::new(inboxes, signals, (&self.workload, &cx, thread));
        let routed = self.config.routed.then_some(&routed);
        Ok(worker::run(&self.workload, &cx, numbers, length, (signals, routed)))
    }

    /// Checks the memory while no transaction runs: the workload's invariants must hold, and the engine's audit must
    /// find no error.
    ///
    /// # Errors
    /// Returns the errors that the fabric reports.
    pub fn check(&self) -> Result<(Vec<Invariant>, Audit), RunError> {
        let nodes = self.nodes()?;
        let cx = self.context(&nodes, 0)?;
        let judged = rest::look(&self.workload, &cx, &self.tally);
        judged.map_err(|failure| RunError::explained(&cx, failure))
    }
}
