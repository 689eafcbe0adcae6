//! The benchmark on a cluster that does not exist: the same engine, workloads and checks, in virtual time.
//!
//! Map: [`cluster`] is the simulated hardware with a database on it; [`driver`] loads it and runs phases, `dispatch` routes
//! the transactions of clients to nodes, [`stamps`] gives out timestamps, [`warmth`] has threads remember addresses at the
//! start; [`hotspot`] has some shards asked for more than others; [`run`] is the whole benchmark in its order; [`report`]
//! shows all figures. [`nic`] measures the simulated hardware alone, [`nic::published`] has figures of real hardware.
//!
//! Invariant: but for the part under `wall`, a report is a function of its configuration and seed, the same on every
//! machine.

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

/// Most coordinators that a cluster has log areas for.
pub const COORDINATORS_MAX: u64 = 1 << 16;
/// Most coordinators of one thread.
pub const COROUTINES_MAX: u64 = 1 << 10;

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The database, and how many nodes of each kind there are.
    pub cluster: ClusterConfig,
    /// The hardware.
    pub profile: Profile,
    /// Threads of each compute node.
    pub threads: usize,
    /// Coordinators in all, dealt to compute nodes and then to their threads in turn.
    pub coordinators: usize,
    /// Where timestamps come from.
    pub timestamps: Source,
}

/// Which coordinators a thread runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seats {
    /// Compute node.
    pub slot: u16,
    /// Its thread.
    pub thread: u16,
    /// Numbers of its coordinators.
    pub coordinators: Vec<u32>,
}

impl Config {
    /// Every thread that has a coordinator, with its coordinators.
    pub fn seats(&self) -> Vec<Seats> {
        self.places().filter(|seats| !seats.coordinators.is_empty()).collect()
    }

    /// Every thread, with its coordinators if it has any.
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

/// Virtual milliseconds as virtual time.
pub fn virtual_ms(ms: f64) -> Nanos {
    Nanos((ms * 1e6).round() as u64)
}

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
