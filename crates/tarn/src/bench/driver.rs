//! Runs a workload on an embedded cluster: load, a recorded verification, the measured phase.
//!
//! Invariant: the measured phase records no history; the verification phase runs the same
//! configuration, is recorded, and is said to be so. Every phase is a new life of every compute
//! node, so that owner tags never repeat. Counters are read by the thread that owns them.

use super::Config;
use crate::cluster::{Cluster, OpenError};
use hdrhistogram::Histogram;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tarn_engine::context::{ComputeNode, Context};
use tarn_engine::coordinator::{Coordinator, Retry};
use tarn_engine::history::RecordedTxn;
use tarn_engine::inspect::{Audit, audit};
use tarn_engine::load::{Loader, Part};
use tarn_engine::metrics::Tally;
use tarn_engine::outcome::Failure;
use tarn_fabric::counters::Counts;
use tarn_fabric::executor::{Executor, block_on};
use tarn_workloads::{Invariant, Workload};

/// One transaction in so many is timed.
const LATENCY_SAMPLE: u64 = 64;
/// What a phase's threads look at between turns.
const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

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
    /// Failures that no retry could overcome.
    pub failures: Vec<Failure>,
}

/// How long a phase runs.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub measured: Duration,
    /// Ends earlier when so many transactions have been recorded.
    pub transactions_max: u64,
    /// Whether to record history.
    pub record: bool,
}

struct ThreadResult<T> {
    seconds: f64,
    tally: Tally,
    counts: Counts,
    mix: Vec<u64>,
    latency_ns: Histogram<u64>,
    history: Vec<RecordedTxn>,
    failures: Vec<Failure>,
    workload_tally: T,
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
{
    /// Makes the cluster.
    ///
    /// # Errors
    /// Names what cannot be.
    pub fn new(workload: W, config: &Config) -> Result<Driver<W>, OpenError> {
        let cluster = Cluster::new(&workload.schemas(), &config.cluster)?;
        let tally = W::Tally::default();
        Ok(Driver { workload, cluster, config: config.clone(), tally })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The workload.
    pub fn workload(&self) -> &W {
        &self.workload
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
        let loaded = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.config.threads)
                .map(|thread| {
                    let (nodes, done) = (&nodes, &done);
                    scope.spawn(move || -> Result<u64, LoadError> {
                        let cx = self.context(nodes, thread)?;
                        let part = Part { index: thread as u32, of };
                        let tell = |count| {
                            progress(done.fetch_add(count, Ordering::Relaxed) + count, all);
                        };
                        let mut loader = Loader::new(&cx, part).telling(&tell);
                        Ok(block_on(async {
                            self.workload.load(&mut loader).await?;
                            loader.finish().await
                        })?)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a loader panicked")).sum()
        });
        loaded
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
        let (stage, recorded) = (AtomicU8::new(WARM_UP), AtomicU64::new(0));
        let this = &*self;
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..this.config.threads)
                .map(|thread| {
                    let (nodes, stage, recorded) = (&nodes, &stage, &recorded);
                    scope.spawn(move || this.run_thread(nodes, thread, length, stage, recorded))
                })
                .collect();
            std::thread::sleep(length.warm_up);
            stage.store(MEASURE, Ordering::Release);
            let start = Instant::now();
            while start.elapsed() < length.measured
                && recorded.load(Ordering::Relaxed) < length.transactions_max
            {
                let left = length.measured.saturating_sub(start.elapsed());
                std::thread::sleep(left.min(Duration::from_millis(5)));
            }
            stage.store(STOP, Ordering::Release);
            threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect()
        });
        self.add_up(results)
    }

    fn add_up(
        &mut self,
        results: Vec<Result<ThreadResult<W::Tally>, OpenError>>,
    ) -> Result<Phase, OpenError> {
        let mut phase = Phase {
            seconds: 0.0,
            tally: Tally::default(),
            counts: Counts::default(),
            mix: vec![0; W::TRANSACTIONS.len()],
            latency_ns: histogram(),
            history: Vec::new(),
            failures: Vec::new(),
        };
        for result in results {
            let result = result?;
            phase.seconds = phase.seconds.max(result.seconds);
            phase.tally.add(&result.tally);
            phase.counts += result.counts;
            for (mine, theirs) in phase.mix.iter_mut().zip(result.mix) {
                *mine += theirs;
            }
            phase.latency_ns.add(result.latency_ns).expect("the same range");
            phase.history.extend(result.history);
            phase.failures.extend(result.failures);
            W::merge(&mut self.tally, result.workload_tally);
        }
        Ok(phase)
    }

    fn run_thread(
        &self,
        nodes: &[Arc<ComputeNode>],
        thread: usize,
        length: Length,
        stage: &AtomicU8,
        recorded: &AtomicU64,
    ) -> Result<ThreadResult<W::Tally>, OpenError> {
        if self.config.pin {
            pin_to_core(thread);
        }
        let cx = Rc::new(self.context(nodes, thread)?);
        let slots: Vec<Slot<W::Tally>> =
            (0..self.config.coroutines).map(|_| Slot::new::<W>()).collect();
        let mut executor = Executor::new();
        for (index, slot) in slots.iter().enumerate() {
            let number = (thread * self.config.coroutines + index) as u32;
            let coordinator = Coordinator::new(Rc::clone(&cx), number, Retry::default());
            executor.spawn(self.run_coroutine(coordinator, slot, length, stage, recorded));
        }
        let mut readings: Vec<Reading> = Vec::with_capacity(3);
        let mut seen = WARM_UP;
        executor.run_with(|| {
            let now = stage.load(Ordering::Relaxed);
            if now != seen {
                seen = now;
                readings.push(Reading::take(&cx, &slots));
            }
        });
        drop(executor);
        while readings.len() < 2 {
            readings.push(Reading::take(&cx, &slots));
        }
        Ok(thread_result(&readings, slots, W::TRANSACTIONS.len(), W::merge))
    }

    async fn run_coroutine(
        &self,
        mut coordinator: Coordinator,
        slot: &Slot<W::Tally>,
        length: Length,
        stage: &AtomicU8,
        recorded: &AtomicU64,
    ) {
        if length.record {
            coordinator.record_history();
        }
        let mut rng = coordinator.context().port.rng();
        let mut tally = W::Tally::default();
        let mut count = 0u64;
        let mut failures = Vec::new();
        while stage.load(Ordering::Relaxed) != STOP {
            let input = self.workload.draw(&mut rng);
            count += 1;
            let timed = count.is_multiple_of(LATENCY_SAMPLE)
                && stage.load(Ordering::Relaxed) == MEASURE;
            let start = timed.then(|| coordinator.context().port.now());
            if let Err(failure) = self.workload.run(&mut coordinator, &input, &mut tally).await {
                failures.push(failure);
                break;
            }
            if let Some(start) = start {
                slot.time((coordinator.context().port.now() - start).0);
            }
            slot.finished(W::kind(&input));
            if length.record {
                recorded.fetch_add(1, Ordering::Relaxed);
            }
        }
        slot.end(tally, coordinator.take_history(), failures);
    }

    /// Judges the memory while nothing runs: the workload's invariants and the engine's audit.
    ///
    /// # Errors
    /// The fabric's.
    pub fn check(&self) -> Result<(Vec<Invariant>, Audit), LoadError> {
        let nodes = self.nodes()?;
        let cx = self.context(&nodes, 0)?;
        Ok(block_on(async {
            let invariants = self.workload.check(&cx, &self.tally).await?;
            Ok::<_, Failure>((invariants, audit(&cx).await?))
        })?)
    }
}

/// Why the tables could not be loaded or checked.
#[derive(Debug)]
pub enum LoadError {
    /// A compute node could not join.
    Open(OpenError),
    /// A record could not be stored or read.
    Failure(Failure),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Open(error) => error.fmt(f),
            LoadError::Failure(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<OpenError> for LoadError {
    fn from(error: OpenError) -> LoadError {
        LoadError::Open(error)
    }
}

impl From<Failure> for LoadError {
    fn from(failure: Failure) -> LoadError {
        LoadError::Failure(failure)
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

/// What one coroutine leaves behind, and the counts its thread reads while it runs.
struct Slot<T> {
    mix: Vec<std::cell::Cell<u64>>,
    latency_ns: std::cell::RefCell<Histogram<u64>>,
    left: std::cell::RefCell<Option<(T, Vec<RecordedTxn>, Vec<Failure>)>>,
}

impl<T> Slot<T> {
    fn new<W: Workload>() -> Slot<T> {
        Slot {
            mix: vec![std::cell::Cell::new(0); W::TRANSACTIONS.len()],
            latency_ns: std::cell::RefCell::new(histogram()),
            left: std::cell::RefCell::new(None),
        }
    }

    #[inline]
    fn finished(&self, kind: usize) {
        self.mix[kind].set(self.mix[kind].get() + 1);
    }

    fn time(&self, ns: u64) {
        self.latency_ns.borrow_mut().saturating_record(ns);
    }

    fn end(&self, tally: T, history: Vec<RecordedTxn>, failures: Vec<Failure>) {
        *self.left.borrow_mut() = Some((tally, history, failures));
    }
}

/// A thread's counters at one moment.
struct Reading {
    at: tarn_fabric::clock::Nanos,
    tally: Tally,
    counts: Counts,
    mix: Vec<u64>,
}

impl Reading {
    fn take<T>(cx: &Context, slots: &[Slot<T>]) -> Reading {
        let kinds = slots.first().map_or(0, |slot| slot.mix.len());
        let mix = (0..kinds).map(|kind| slots.iter().map(|slot| slot.mix[kind].get()).sum());
        Reading {
            at: cx.port.now(),
            tally: cx.metrics.snapshot(),
            counts: cx.port.counts(),
            mix: mix.collect(),
        }
    }
}

fn thread_result<T: Default>(
    readings: &[Reading],
    slots: Vec<Slot<T>>,
    kinds: usize,
    merge: impl Fn(&mut T, T),
) -> ThreadResult<T> {
    let (start, end) = (&readings[0], &readings[1]);
    let mut result = ThreadResult {
        seconds: (end.at - start.at).0 as f64 / 1e9,
        tally: end.tally.since(&start.tally),
        counts: end.counts - start.counts,
        mix: (0..kinds).map(|kind| end.mix[kind] - start.mix[kind]).collect(),
        latency_ns: histogram(),
        history: Vec::new(),
        failures: Vec::new(),
        workload_tally: T::default(),
    };
    for slot in slots {
        result.latency_ns.add(&*slot.latency_ns.borrow()).expect("the same range");
        if let Some((tally, history, failures)) = slot.left.into_inner() {
            merge(&mut result.workload_tally, tally);
            result.history.extend(history);
            result.failures.extend(failures);
        }
    }
    result
}

/// Keeps the thread on one core, if the operating system lets us.
fn pin_to_core(thread: usize) {
    crate::machine::pin_to_core(thread);
}
