//! Runs the benchmark on a simulated cluster in virtual time, with the same engine, workloads and checks as on an
//! embedded cluster.
//!
//! Map:
//! - [`cluster`]: the simulated hardware with a database on it. [`driver`]: loads the cluster and runs phases.
//! - `dispatch`: routes the transactions of clients to nodes. [`stamps`]: serves timestamps.
//! - [`warmth`]: determines the record addresses that threads know when a phase begins. [`hotspot`]: gives some
//!   shards more requests than others.
//! - [`run`]: the whole benchmark in its order. [`report`]: shows all figures.
//! - [`nic`]: measures the simulated hardware alone. [`nic::published`]: figures of real hardware.
//!
//! Invariant: except for the part under `wall`, a report depends only on the run's configuration and seed, and is the
//! same on every machine.

pub mod cluster;
pub(crate) mod dispatch;
pub mod driver;
pub mod hotspot;
pub mod nic;
pub mod report;
pub mod run;
pub mod stamps;
pub mod warmth;

use stamps::Source;
use tarn::cluster::ClusterConfig;
use tarn_fabric::clock::Nanos;
use tarn_sim::profile::Profile;

/// The largest number of coordinators for which a cluster has log areas.
pub const COORDINATORS_MAX: u64 = 1 << 16;
/// The largest number of coordinators of one thread.
pub const COROUTINES_MAX: u64 = 1 << 10;

/// The configuration of a simulated run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The database, and the number of nodes of each kind.
    pub cluster: ClusterConfig,
    /// The hardware profile.
    pub profile: Profile,
    /// The number of threads of each compute node.
    pub threads: usize,
    /// The number of all coordinators. The coordinators are distributed evenly over the compute nodes, and then over
    /// the threads of each node.
    pub coordinators: usize,
    /// The source of timestamps.
    pub timestamps: Source,
}

/// One thread, and the coordinators that this thread runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seats {
    /// The number of the compute node.
    pub slot: u16,
    /// The number of the thread on this compute node.
    pub thread: u16,
    /// The numbers of the thread's coordinators.
    pub coordinators: Vec<u32>,
}

impl Config {
    /// Returns every thread that has a coordinator, with its coordinators.
    pub fn seats(&self) -> Vec<Seats> {
        self.places().filter(|seats| !seats.coordinators.is_empty()).collect()
    }

    /// Returns every thread with the list of its coordinators, which may be empty.
    pub fn places(&self) -> impl Iterator<Item = Seats> {
        let (nodes, threads) = (self.cluster.compute_nodes, self.threads);
        let places =
            (0..nodes).flat_map(move |slot| (0..threads).map(move |thread| (slot, thread)));
        let all = self.coordinators;
        places.map(move |(slot, thread)| {
            let first = thread * nodes + slot;
            let coordinators = (first..all).step_by(nodes * threads);
            let coordinators = coordinators.map(|number| number as u32).collect();
            Seats { slot: slot as u16, thread: thread as u16, coordinators }
        })
    }
}

/// Converts virtual milliseconds to virtual time.
pub fn virtual_ms(ms: f64) -> Nanos {
    Nanos((ms * 1e6).round() as u64)
}

#[cfg(test)]
mod laws_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_coordinator_has_one_seat_and_threads_differ_by_one_at_most() {
        let cluster = ClusterConfig { compute_nodes: 3, ..ClusterConfig::default() };
        let profile = Profile::load("cx3-56g").expect("embedded");
        let config =
            Config { cluster, profile, threads: 2, coordinators: 20, timestamps: Source::Counter };
        let seats = config.seats();
        assert_eq!(seats.len(), 6);
        let mut all: Vec<u32> = seats.iter().flat_map(|seats| seats.coordinators.clone()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<u32>>());
        assert!(seats.iter().all(|seats| (3..=4).contains(&seats.coordinators.len())));
        assert_eq!(Config { coordinators: 2, ..config }.seats().len(), 2);
    }
}
