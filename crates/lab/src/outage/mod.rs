//! Crashes nodes under load on a simulated cluster, and measures the loss of throughput and the time until throughput
//! recovers.
//!
//! Map:
//! - [`Plan`]: the course of an outage.
//! - `stage`: the cluster and its compute nodes. [`run`]: executes the plan.
//! - `books`: records the acknowledged transactions. `judge`: compares these transactions with the memory.
//! - [`report`]: the result as text, as an object and as a picture.
//!
//! Invariant: the result depends only on the plan and the seed, because all times are virtual. A crashed compute node
//! stops between two polls of its coroutines. The verbs that the node had posted continue until its access is
//! revoked. The plan states when a restarted machine is available again. A profile's times for registering and
//! connecting (`cluster`) help the author of a plan to choose this time.

mod books;
mod judge;
pub mod report;
pub mod run;
mod stage;
#[cfg(test)]
mod tests;

use serde::Serialize;
use tarn_engine::protocol::AnyProtocol;
use tarn_sim::profile::Profile;
use tarn_store::ids::UsageError;

/// The configuration of a run, and the nodes that crash.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hardware profile.
    pub profile: Profile,
    /// The names of the protocol and of its variant.
    pub protocol: (String, String),
    /// The numbers of machines, and the times and numbers of crashes.
    pub shape: Shape,
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
}

/// The shape of the cluster, and the crashes in it.
#[derive(Clone, Debug, Serialize)]
pub struct Shape {
    /// The number of compute nodes.
    pub compute_nodes: usize,
    /// The number of memory nodes.
    pub memory_nodes: usize,
    /// The number of empty spare memory nodes in addition.
    pub spare_nodes: usize,
    /// The number of copies of every record.
    pub replicas: usize,
    /// The number of threads of each compute node that run transactions. One more thread renews the
    /// node's lease, recovers dead nodes, and restores lost copies.
    pub threads: usize,
    /// The number of coordinators of each thread.
    pub coroutines: usize,
    /// The length of the whole run, in virtual milliseconds.
    pub virtual_ms: f64,
    /// The virtual time of the crash.
    pub crash_at_ms: f64,
    /// The number of compute nodes that crash: the nodes with the highest numbers.
    pub crash_compute: usize,
    /// The number of memory nodes that crash: the nodes with the lowest numbers.
    pub crash_memory: usize,
    /// The time from the crash until the machines of the crashed compute nodes are available again. The restarted
    /// machines join the cluster when the logs of their crashed incarnations are recovered.
    pub restart_ms: f64,
    /// The time until the crash of a compute node is noticed; 0 means that the cluster notices the crash immediately,
    /// as in the published measurement.
    pub lease_ms: f64,
    /// The largest percentage of a memory node's time that the sweep may take. The sweep removes the locks of dead
    /// nodes.
    pub sweep_share_percent: u16,
    /// The largest percentage of a memory node's time that the copying of data to a spare may take.
    pub copy_share_percent: u16,
    /// The length of the intervals in which throughput is counted.
    pub interval_ms: f64,
}

impl Plan {
    /// Returns an error if no cluster can have the plan's shape, or if the protocol does not promise to survive the
    /// plan's deaths. After a death that a protocol does not survive, the memory's errors mean nothing.
    ///
    /// # Errors
    /// The error names the field, its value, and the allowed values.
    pub fn validate(&self) -> Result<(), UsageError> {
        self.shape.validate()?;
        let info = AnyProtocol::by_name(&self.protocol.0, &self.protocol.1)?.info();
        let Shape { crash_compute, crash_memory, .. } = self.shape;
        let deaths = [
            ("crash-compute", crash_compute, "compute", info.caps.crash_recovery),
            ("crash-memory", crash_memory, "memory", info.caps.memory_recovery),
        ];
        for (field, count, nodes, is_survived) in deaths {
            if count > 0 && !is_survived {
                let allowed = format!(
                    "0 with {}, which does not promise to survive deaths of {nodes} nodes",
                    info.name
                );
                return Err(UsageError { field: field.into(), value: count.to_string(), allowed });
            }
        }
        Ok(())
    }
}

impl Shape {
    /// Returns an error if no cluster can have this shape.
    ///
    /// # Errors
    /// The error names the field, its value, and the allowed values.
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
