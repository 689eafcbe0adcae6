//! The parts of the benchmark program: its configuration, its run, its report.
//!
//! Map: [`driver`] loads a cluster and runs phases on it, `worker` is one thread of a phase, `inboxes` hold transactions
//! that one thread draws for another; [`run`] is the whole benchmark in its order; [`bare`] measures the machine's own
//! loads; [`report`] shows all figures. [`crate::harness`] has the steps that every fabric shares.
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

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Coordinator threads in all.
    pub threads: usize,
    /// Coordinator threads of one compute node.
    pub threads_per_node: usize,
    /// Coroutines of a thread: transactions in progress at once.
    pub coroutines: usize,
    /// Whether a transaction runs at the owner of its first record's shard, whichever thread draws it.
    pub routed: bool,
    /// Whether threads keep to one core each.
    pub pin: bool,
}

/// How many coroutines are worth while for transactions of so many cachelines: enough that one transaction's lines arrive
/// while the others run, few enough that they still are in the cache when their turn comes. Long ones run alone: conflicts
/// with each other would cost more than overlapping loads would gain (docs/tpcc.md).
pub fn coroutines_for(lines_per_transaction: usize) -> usize {
    match lines_per_transaction {
        0..=4 => 16,
        5..=16 => 8,
        17..=64 => 4,
        _ => 1,
    }
}
