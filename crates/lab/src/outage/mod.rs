//! Nodes that crash under load on a simulated cluster: the cost in throughput, and how long it lasts.
//!
//! Map: [`Plan`] is the course of an outage; `stage` is the cluster with its keepers; [`run`] plays the course; `books`
//! keep the acknowledged transactions, and `judge` holds them against memory; [`report`] is the result, in words, as an
//! object and as a picture.
//!
//! Invariant: a function of plan and seed: all times are virtual. A crashed compute node stops between two turns of its
//! coroutines; the verbs that it had posted go on until its access is revoked. The plan says when a restarted machine is
//! there again; a profile's times for registering and connecting (`cluster`) are for the author of a plan.

mod books;
mod judge;
pub mod report;
pub mod run;
mod stage;
#[cfg(test)]
mod tests;

use serde::Serialize;
use tarn_sim::profile::Profile;
use tarn_store::ids::UsageError;

/// The configuration of a run, and the nodes that die.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hardware.
    pub profile: Profile,
    /// The protocol's name, and its variant.
    pub protocol: (String, String),
    /// Machines, and the deaths.
    pub shape: Shape,
    /// Seed of every generator.
    pub seed: u64,
}

/// The cluster's shape, and its fate.
#[derive(Clone, Debug, Serialize)]
pub struct Shape {
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Empty memory nodes beside them.
    pub spare_nodes: usize,
    /// Copies of every record.
    pub replicas: usize,
    /// Threads of each compute node that run transactions; one more keeps its lease, recovers and mends.
    pub threads: usize,
    /// Coordinators of each thread.
    pub coroutines: usize,
    /// Virtual milliseconds in all.
    pub virtual_ms: f64,
    /// When it happens.
    pub crash_at_ms: f64,
    /// So many compute nodes crash, the last ones.
    pub crash_compute: usize,
    /// So many memory nodes crash, the first ones.
    pub crash_memory: usize,
    /// So long after the crash the compute nodes' machines are there again; they join when their logs are recovered.
    pub restart_ms: f64,
    /// A crash of a compute node is known after so long; 0: at once, as the published measurement has it.
    pub lease_ms: f64,
    /// Most of a memory node's time that the sweep for locks of the dead may take.
    pub sweep_share_percent: u16,
    /// Most of a memory node's time that filling a spare may take.
    pub copy_share_percent: u16,
    /// Throughput is counted in intervals of this length.
    pub interval_ms: f64,
}

impl Shape {
    /// Refuses a shape that cannot be.
    ///
    /// # Errors
    /// Names the field, its value, and the allowed ones.
    pub fn validate(&self) -> Result<(), UsageError> {
        let refuse = |field: &str, value: String, allowed: String| {
            Err(UsageError { field: field.into(), value, allowed })
        };
        if self.crash_compute >= self.compute_nodes {
            let allowed = format!("0 to {}: one node must live", self.compute_nodes - 1);
            return refuse("crash-compute", self.crash_compute.to_string(), allowed);
        }
        if self.crash_memory >= self.replicas {
            let allowed = format!("0 to {}: one copy must live", self.replicas - 1);
            return refuse("crash-memory", self.crash_memory.to_string(), allowed);
        }
        let shares =
            [("sweep-share", self.sweep_share_percent), ("copy-share", self.copy_share_percent)];
        for (field, value) in shares {
            if !(1..=100).contains(&value) {
                return refuse(field, value.to_string(), "1 to 100, in percent".into());
            }
        }
        let times = [
            ("interval-ms", self.interval_ms, 0.01, 1_000.0),
            ("crash-at-ms", self.crash_at_ms, 5.0 * self.interval_ms, 10_000.0),
            ("virtual-ms", self.virtual_ms, self.crash_at_ms + self.interval_ms, 10_000.0),
            ("restart-ms", self.restart_ms, 0.0, 10_000.0),
            ("lease-ms", self.lease_ms, 0.0, 10_000.0),
        ];
        for (field, value, least, most) in times {
            if !(least..=most).contains(&value) {
                return refuse(field, value.to_string(), format!("{least} to {most}"));
            }
        }
        Ok(())
    }
}
