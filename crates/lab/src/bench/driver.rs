//! Runs a workload on an embedded cluster: load, then phases, then the judgement of the memory.
//!
//! Invariant: the measured phase records no history; a recorded phase has no warm-up, so that its
//! history begins with the phase. Every phase is a new life of every compute node, so that owner
//! tags never repeat.

use super::Config;
use super::desk::{Signals, histogram};
use super::inboxes::{Inboxes, Routed};
use super::worker::{self, ThreadResult};
use crate::harness::{explained, rest};
use hdrhistogram::Histogram;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tarn::cluster::{Cluster, OpenError};
use tarn_engine::admin::inspect::Audit;
use tarn_engine::admin::load::Part;
use tarn_engine::requests::serve;
use tarn_engine::site::metrics::Tally;
use tarn_engine::site::{ComputeNode, Context};
use tarn_fabric::address::NodeId;
use tarn_fabric::counters::Counts;
use tarn_store::history::RecordedTxn;
use tarn_store::ids::Failure;
use tarn_workloads::{Invariant, Workload};

/// What one phase's threads did, added up.
pub struct Phase {
    /// Between the two readings of every thread's counters.
    pub seconds: f64,
    /// Transactions and aborts in that time.
    pub tally: Tally,
    /// Verbs and messages in that time.
    pub counts: Counts,
    /// Transactions by kind in that time, as drawn and finished.
    pub mix: Vec<u64>,
    /// Sampled latencies in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// What was recorded.
    pub history: Vec<RecordedTxn>,
    /// Failures that no retry could overcome, and transactions that never ended.
    pub failures: Vec<String>,
}

impl Phase {
    /// Nothing done yet, by so many kinds of transactions.
    pub(crate) fn empty(kinds: usize) -> Phase {
        Phase {
            seconds: 0.0,
            tally: Tally::default(),
            counts: Counts::default(),
            mix: vec![0; kinds],
            latency_ns: histogram(),
            history: Vec::new(),
            failures: Vec::new(),
        }
    }
}

/// How long a phase runs.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Not counted. A recorded phase has none.
    pub warm_up: Duration,
    /// Counted.
    pub measured: Duration,
    /// Ends earlier when so many transactions have been recorded.
    pub transactions_max: u64,
    /// Whether to record history.
    pub record: bool,
}

/// A loaded cluster and its workload.
pub struct Driver<W: Workload> {
    workload: W,
    cluster: Cluster,
    config: Config,
    tally: W::Tally,
}

impl<W> Driver<W>
where
    W: Workload + Sync,
    W::Tally: Send + Sync,
    W::Input: Send,
{
    /// Makes the cluster, with a log area for each coroutine.
    ///
    /// # Errors
    /// Names what cannot be.
    pub fn new(workload: W, config: &Config) -> Result<Driver<W>, OpenError> {
        let mut config = config.clone();
        config.cluster.options = workload.sized(&config.cluster.options);
        config.cluster.options.coordinators_max = (config.threads * config.coroutines) as u32;
        config.cluster.compute_nodes = config.threads.div_ceil(config.threads_per_node);
        let cluster = Cluster::for_threads(&workload.schemas(), &config.cluster, config.threads)?;
        let tally = W::Tally::default();
        Ok(Driver { workload, cluster, config, tally })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The workload.
    pub fn workload(&self) -> &W {
        &self.workload
    }

    /// What the transactions of all phases add up to.
    pub fn tally(&self) -> &W::Tally {
        &self.tally
    }

    fn nodes(&self) -> Result<Vec<Arc<ComputeNode>>, OpenError> {
        (0..self.config.cluster.compute_nodes).map(|slot| self.cluster.join(slot as u16)).collect()
    }

    /// Loads the tables with every thread; calls `progress(done, all)` now and then.
    ///
    /// # Errors
    /// The pool's memory, or the fabric's.
    pub fn load(&self, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<u64, LoadError> {
        let nodes = self.nodes()?;
        let of = self.config.threads as u32;
        let (done, all) = (AtomicU64::new(0), self.workload.records());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.config.threads)
                .map(|thread| {
                    let (nodes, done) = (&nodes, &done);
                    scope.spawn(move || -> Result<u64, LoadError> {
                        let cx = self.context(nodes, thread)?;
                        let part = Part { index: thread as u32, of };
                        let tell = |count| {
                            progress(done.fetch_add(count, Ordering::Relaxed) + count, all);
                        };
                        let loaded = rest::load(&self.workload, &cx, part, &tell);
                        loaded.map_err(|failure| LoadError::explained(&cx, failure))
                    })
                })
                .collect();
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
    /// When a compute node cannot join.
    #[expect(clippy::disallowed_methods, reason = "the program's clock")]
    pub fn phase(&mut self, length: Length) -> Result<Phase, OpenError> {
        let nodes = self.nodes()?;
        let owners: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        serve::share_out(self.cluster.database(), &owners);
        let signals = Signals::default();
        let this = &*self;
        let inboxes = Inboxes::new(this.config.threads, this.config.threads_per_node);
        let results: Vec<_> = std::thread::scope(|scope| {
            if length.record {
                signals.measure();
            }
            let threads: Vec<_> = (0..this.config.threads)
                .map(|thread| {
                    let (nodes, told) = (&nodes, (&signals, &inboxes));
                    scope.spawn(move || this.run_thread(nodes, thread, length, told))
                })
                .collect();
            if !length.record {
                std::thread::sleep(length.warm_up);
                signals.measure();
            }
            let start = Instant::now();
            loop {
                let left = length.measured.saturating_sub(start.elapsed());
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
        self.add_up(results)
    }

    fn run_thread(
        &self,
        nodes: &[Arc<ComputeNode>],
        thread: usize,
        length: Length,
        (signals, inboxes): (&Signals, &Inboxes<W::Input>),
    ) -> Result<ThreadResult<W::Tally>, OpenError> {
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

    fn add_up(
        &mut self,
        results: Vec<Result<ThreadResult<W::Tally>, OpenError>>,
    ) -> Result<Phase, OpenError> {
        let mut phase = Phase::empty(W::TRANSACTIONS.len());
        for result in results {
            let result = result?;
            phase.seconds = phase.seconds.max(result.seconds);
            phase.tally.add(&result.tally);
            phase.counts += result.counts;
            for (mine, theirs) in phase.mix.iter_mut().zip(result.mix) {
                *mine += theirs;
            }
            phase.latency_ns.add(result.latency_ns).expect("the same range");
            phase.history.extend(result.left.history);
            phase.failures.extend(result.left.failures);
            for tally in result.left.tallies {
                W::merge(&mut self.tally, tally);
            }
        }
        Ok(phase)
    }

    /// Judges the memory while nothing runs: the workload's invariants and the engine's audit.
    ///
    /// # Errors
    /// The fabric's.
    pub fn check(&self) -> Result<(Vec<Invariant>, Audit), LoadError> {
        let nodes = self.nodes()?;
        let cx = self.context(&nodes, 0)?;
        let judged = rest::look(&self.workload, &cx, &self.tally);
        judged.map_err(|failure| LoadError::explained(&cx, failure))
    }
}

/// Why the tables could not be loaded or checked.
#[derive(Debug)]
pub enum LoadError {
    /// A compute node could not join.
    Open(OpenError),
    /// A record could not be stored or read; what there is to say about it.
    Failure(Failure, String),
}

impl LoadError {
    pub(crate) fn explained(cx: &Context, failure: Failure) -> LoadError {
        LoadError::Failure(failure, explained(cx, failure))
    }
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Open(error) => error.fmt(f),
            LoadError::Failure(_, text) => f.write_str(text),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<OpenError> for LoadError {
    fn from(error: OpenError) -> LoadError {
        LoadError::Open(error)
    }
}
