//! The benchmark program's parts: what to run, how, and what to say about it.

pub mod driver;

use crate::cluster::ClusterConfig;

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
    /// Whether threads keep to one core each.
    pub pin: bool,
}
