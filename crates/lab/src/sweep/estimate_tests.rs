//! Tests of estimates of memory.
//!
//! Invariant checked: an estimate is at least the amount of memory that a run takes, and not much more than this
//! amount.

use super::*;
use crate::harness::watch::Silent;
use crate::simulate::Config;
use crate::simulate::run::run;
use crate::simulate::stamps::Source;
use tarn::cluster::ClusterConfig;
use tarn_engine::session::coordinator::Retry;
use tarn_sim::profile::Profile;
use tarn_workloads::{Settings, Workload, kvs::Kvs, smallbank::SmallBank, ycsb::Ycsb};

/// Returns the estimate, and the memory that the simulation took.
fn both<W: Workload>(records: u64, replicas: usize) -> (u64, u64) {
    let workload = W::new(&Settings { profile: None, records: Some(records), zipf: None });
    let workload = workload.expect("a workload");
    let cluster = ClusterConfig { memory_nodes: replicas, replicas, ..ClusterConfig::default() };
    let profile = Profile::load("cx5-100g").expect("embedded");
    let plan = Plan {
        config: Config {
            cluster,
            profile,
            threads: 4,
            coordinators: 64,
            timestamps: Source::Counter,
        },
        virtual_ms: 2.0,
        verify_ms: None,
        verify_transactions_max: 0,
        history: None,
        routed: false,
        warmth: None,
        retry: Retry::PATIENT,
    };
    let bytes = memory_bytes(&workload, &plan);
    let report = run(workload, &plan, &Silent).expect("a report");
    (bytes.expect("a plan"), report.wall.simulated_bytes)
}

#[test]
fn an_estimate_is_not_below_what_simulated_memory_takes_nor_far_above() {
    for (estimate, taken) in [
        both::<Kvs>(200_000, 1),
        both::<SmallBank>(100_000, 3),
        both::<Ycsb>(30_000, 1),
        both::<Ycsb>(10_000, 3),
    ] {
        assert!(estimate >= taken, "{estimate} below {taken}");
        let most = PROGRAM_BYTES + 64 * COORDINATOR_BYTES + 8 * taken;
        assert!(estimate <= most, "{estimate} is far above {taken}");
    }
}
