//! Phases on one memory: what an earlier one committed stays committed.
//!
//! Invariants checked: under every protocol that can be asked for, another variant of it goes on where the one
//! before it ended, timestamps among it.

use super::*;
use crate::cluster::ClusterConfig;
use tarn_engine::protocol::KNOWN;
use tarn_sim::profile::Profile;
use tarn_workloads::Settings;
use tarn_workloads::kvs::Kvs;

const LENGTH: Length = Length {
    warm_up: Nanos(0),
    measured: Nanos(300_000),
    transactions_max: u64::MAX,
    record: false,
};

/// Updates of a few records on so many nodes.
fn updates(protocol: &str, compute_nodes: usize, coordinators: usize) -> Driver<Kvs> {
    let cluster = ClusterConfig {
        compute_nodes,
        protocol: protocol.into(),
        memory_nodes: 1,
        replicas: 1,
        ..ClusterConfig::default()
    };
    let profile = Profile::load("cx3-56g").expect("embedded");
    let timestamps = Source::Counter;
    let config = Config { cluster, profile, threads: 1, coordinators, timestamps };
    let settings =
        Settings { profile: Some("wo".into()), records: Some(50), ..Settings::default() };
    let kvs = Kvs::new(&settings).expect("a workload");
    let driver = Driver::new(kvs, &config).expect("a cluster");
    driver.load(&|_, _| {}).expect("it fits");
    driver
}

/// Runs a phase: it ends, and nothing fails. How many transactions it committed.
fn run(driver: &mut Driver<Kvs>, what: &str) -> u64 {
    let phase = driver.phase(LENGTH, &|_| {}).expect("it runs").phase;
    assert_eq!(phase.failures, [""; 0], "{what}");
    phase.tally.committed
}

fn assert_sound(driver: &Driver<Kvs>, what: &str) {
    let (rules, audit) = driver.check().expect("it can be judged");
    let broken: Vec<_> = rules.iter().filter(|rule| !rule.ok).collect();
    assert!(broken.is_empty() && audit.is_clean(), "{what}: {broken:?}, {audit}");
}

/// With a counter that began anew, new versions were older than those that were there, and were lost.
#[test]
fn another_variant_goes_on_where_the_one_before_it_ended() {
    for info in KNOWN {
        let mut driver = updates(info.name, 2, 8);
        let first = run(&mut driver, info.name);
        driver.cluster_mut().set_variant(info.name, "corrected").expect("of the same layout");
        let second = run(&mut driver, info.name);
        assert!(first > 50 && second > 50, "{}: {first}, then {second}", info.name);
        assert_sound(&driver, info.name);
    }
}
