//! The benchmark program's parts: what to run, how, and what to say about it.
//!
//! Map: [`driver`] loads a cluster and runs phases on it, `worker` is one thread of a phase, `inboxes` hold
//! transactions that one thread draws for another; [`run`] is the whole benchmark in its order; [`bare`] measures
//! the machine's own loads; [`report`] says all of it. [`crate::harness`] has the steps that every fabric shares.
//!
//! Invariant: a figure is reported only with what it was measured on and whether the checks of the
//! same run passed.

pub mod bare;
pub mod driver;
mod inboxes;
pub mod report;
pub mod run;
mod worker;

pub(crate) use crate::harness::lines;
pub use crate::harness::{checks, history, leases, measured};
use tarn::cluster::ClusterConfig;

/// What to run.
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
    /// Whether a transaction runs at the owner of its first record's shard, whoever draws it.
    pub routed: bool,
    /// Whether threads keep to one core each.
    pub pin: bool,
}

/// How many coroutines are worth while for transactions of so many cachelines: enough that one
/// transaction's lines arrive while the others run, few enough that they still are in the cache
/// when their turn comes. Long ones run alone: what their lines' arrival would gain they lose by
/// conflicts with each other (docs/tpcc.md).
pub fn coroutines_for(lines_per_transaction: usize) -> usize {
    match lines_per_transaction {
        0..=4 => 16,
        5..=16 => 8,
        17..=64 => 4,
        _ => 1,
    }
}
