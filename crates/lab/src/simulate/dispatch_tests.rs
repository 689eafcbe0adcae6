//! Tests of the routing of clients' transactions to compute nodes.
//!
//! Invariant checked: transactions wait at the owner of their first record's shard, and at first the number of
//! waiting transactions equals the number of clients.

use super::*;
use crate::simulate::driver::{Driver, Length};
use crate::simulate::{Config, stamps};
use tarn::cluster::ClusterConfig;
use tarn_engine::cluster::membership::{EmbeddedMembership, Membership as _};
use tarn_fabric::address::NodeSlot;
use tarn_sim::config::{Mode, SimConfig};
use tarn_sim::profile::Profile;
use tarn_store::placement::catalog::{Catalog, Options};
use tarn_store::placement::shard_map::ShardMap;
use tarn_workloads::Settings;
use tarn_workloads::smallbank::SmallBank;

const NODES: usize = 3;

/// Lets 600 clients draw their first transactions, and returns the number of transactions that wait at each node. The
/// nodes `owners` own the shards.
fn waiting(owners: &[u16]) -> Vec<usize> {
    let fabric = SimFabric::new(&SimConfig {
        memory_nodes: 1,
        replicas: 1,
        compute_nodes: NODES,
        group_bytes: 1 << 20,
        profile: Profile::load("cx3-56g").expect("embedded"),
        mode: Mode::Timed,
        seed: 1,
    })
    .expect("a cluster");
    let settings = Settings { records: Some(10_000), ..Settings::default() };
    let bank = SmallBank::new(&settings).expect("a workload");
    let catalog = Catalog::plan(&bank.schemas(), &Options::default(), 1).expect("a plan");
    let service = EmbeddedMembership::new(NODES);
    let all = [0, 1, 2].map(|slot| service.join(NodeSlot(slot)).expect("a life"));
    let map = ShardMap::default();
    if !owners.is_empty() {
        let owners: Vec<_> = owners.iter().map(|slot| all[usize::from(*slot)]).collect();
        service.open_shards(&owners);
        map.refresh(&service);
    }
    let slots = (0..NODES as u16).map(NodeSlot).collect();
    let router = Router::new(&catalog, &map, slots);
    Dispatch::new(&bank, (&fabric, NODES), router, (600, 1), None).waiting()
}

#[test]
fn without_owners_transactions_go_anywhere_and_with_one_the_writing_ones_go_there() {
    let anywhere = waiting(&[]);
    assert_eq!(anywhere.iter().sum::<usize>(), 600);
    assert!(anywhere.iter().all(|count| (140..260).contains(count)), "{anywhere:?}");
    let even = waiting(&[0, 1, 2]);
    assert!(even.iter().all(|count| (140..260).contains(count)), "{even:?}");
    // 85 % of SmallBank's transactions write and go to the owner; the other transactions go to all
    // three nodes.
    let uneven = waiting(&[1]);
    assert!(uneven[1] > 500 && uneven[0] > 5 && uneven[2] > 5, "{uneven:?}");
    assert_eq!(uneven.iter().sum::<usize>(), 600);
}

/// In a closed loop, the number of clients equals the throughput times the duration of a transaction (Little's law).
/// This duration includes the transaction's time in queues.
#[test]
fn as_many_transactions_are_under_way_as_there_are_clients() {
    const CLIENTS: usize = 12;
    let cluster = ClusterConfig { compute_nodes: NODES, ..ClusterConfig::default() };
    let profile = Profile::load("cx3-56g").expect("embedded");
    let (coordinators, timestamps) = (2 * CLIENTS, stamps::Source::Counter);
    let config = Config { cluster, profile, threads: 2, coordinators, timestamps };
    let settings = Settings { records: Some(5_000), ..Settings::default() };
    let bank = SmallBank::new(&settings).expect("a workload");
    let mut driver = Driver::new(bank, &config).expect("a cluster");
    driver.load(&|_, _| {}).expect("it fits");
    driver.set_clients(Some(CLIENTS));
    let (warm_up, measured) = (Nanos(200_000), Nanos(1_000_000));
    let length = Length { warm_up, measured, transactions_max: u64::MAX, record: false };
    let phase = driver.phase(length, &|_| {}).expect("it runs").phase;
    assert_eq!(phase.failures, [""; 0]);
    // A transaction that its own body rolls back has ended and was not committed.
    let ended = phase.mix.iter().sum::<u64>() as f64;
    let under_way = ended / phase.seconds * phase.latency_ns.mean() / 1e9;
    assert!((under_way / CLIENTS as f64 - 1.0).abs() < 0.02, "{under_way} under way");
    let (invariants, audit) = driver.check().expect("it can be judged");
    assert!(invariants.iter().all(|it| it.ok) && audit.is_clean(), "{invariants:?}");
}
