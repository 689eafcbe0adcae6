//! The parts of the benchmark program: its configuration, its run, and its report.
//!
//! Map:
//! - [`driver`]: loads a cluster and runs phases on it. `worker`: one thread of a phase.
//! - `inboxes`: transactions that one thread draws for another.
//! - [`run`]: the whole benchmark in its order. [`bare`]: measures the machine's own loads.
//! - [`report`]: shows all figures.
//! - [`crate::harness`]: the steps that every fabric shares.
//!
//! Invariant: a figure is reported only with its configuration, its machine and the verdicts of the same run.

pub mod bare;
pub mod driver;
mod inboxes;
pub mod report;
pub mod run;
mod worker;

pub(crate) use crate::harness::lines;
pub use crate::harness::{checks, history, leases, measured};
use tarn::cluster::ClusterConfig;

/// The configuration of a benchmark run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration of the cluster.
    pub cluster: ClusterConfig,
    /// The number of all coordinator threads.
    pub threads: usize,
    /// The number of coordinator threads of one compute node.
    pub threads_per_node: usize,
    /// The number of coroutines of a thread, and so the number of transactions that the thread runs
    /// at the same time.
    pub coroutines: usize,
    /// Whether a transaction runs at the owner of its first record's shard, independently of the
    /// thread that draws it.
    pub routed: bool,
    /// Whether each thread is pinned to one core.
    pub pin: bool,
}

/// Returns the useful number of coroutines for transactions of `lines_per_transaction` cachelines. While one
/// transaction waits for its lines, the other transactions run. The lines should still be in the cache when the first
/// transaction continues. Long transactions run alone, because conflicts between them would cost more than
/// overlapping loads would gain (docs/tpcc.md).
pub fn coroutines_for(lines_per_transaction: usize) -> usize {
    match lines_per_transaction {
        0..=4 => 16,
        5..=16 => 8,
        17..=64 => 4,
        _ => 1,
    }
}
