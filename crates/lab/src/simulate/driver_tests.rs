//! Tests of several phases on one memory: transactions that committed in an earlier phase stay committed.
//!
//! Invariants checked, for every protocol: if the variant changes between two phases, the new variant works correctly
//! on the memory of the old variant. New timestamps are greater than old timestamps, independently of the sources of
//! timestamps.

use super::*;
use tarn::cluster::ClusterConfig;
use tarn_engine::protocol::ALL;
use tarn_sim::profile::Profile;
use tarn_workloads::Settings;
use tarn_workloads::kvs::Kvs;

const LENGTH: Length = Length {
    warm_up: Nanos(0),
    measured: Nanos(300_000),
    transactions_max: u64::MAX,
    record: false,
};

/// Makes a driver for updates of a few records on `compute_nodes` nodes.
fn updates(protocol: &str, compute_nodes: usize, coordinators: usize) -> Driver<Kvs> {
    warm_updates(protocol, compute_nodes, (coordinators, None))
}

fn warm_updates(
    protocol: &str,
    compute_nodes: usize,
    (coordinators, warmth): (usize, Option<Warmth>),
) -> Driver<Kvs> {
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
    let mut driver = Driver::new(kvs, &config).expect("a cluster");
    driver.set_warmth(warmth).expect("there is room");
    driver.load(&|_, _| {}).expect("it fits");
    driver
}

/// Runs a phase, and checks that it ends without failures. Returns the number of transactions that
/// the phase committed.
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

/// If the timestamp counter restarted for each variant, new versions would get smaller timestamps than existing
/// versions, and the new versions would be lost.
#[test]
fn another_variant_goes_on_where_the_one_before_it_ended() {
    for info in ALL {
        let mut driver = updates(info.name, 2, 8);
        let first = run(&mut driver, info.name);
        driver.cluster_mut().set_variant(info.name, "corrected").expect("of the same layout");
        let second = run(&mut driver, info.name);
        assert!(first > 50 && second > 50, "{}: {first}, then {second}", info.name);
        assert_sound(&driver, info.name);
    }
}

/// If a source begins below the timestamps in memory, then snapshots find no version, and new commits are lost. This
/// test runs each source after each other source.
#[test]
fn another_source_goes_on_above_what_the_one_before_gave() {
    use Source::{Clock, Counter, Pool, Service};
    for protocol in ["lotus", "motor"] {
        let mut driver = updates(protocol, 2, 8);
        let mut last = driver.cluster().database().counter.last();
        for source in [Service, Pool, Service, Counter, Pool, Clock, Service, Clock, Pool, Counter]
        {
            driver.cluster_mut().set_source(source);
            let committed = run(&mut driver, protocol);
            assert!(committed > 20, "{protocol}, {}: {committed}", source.name());
            let next = driver.cluster().database().counter.last();
            assert!(next.0 >= last.0 + committed, "{protocol}, {}: {last:?}", source.name());
            assert_sound(&driver, protocol);
            last = next;
        }
    }
}

/// Each timestamp from the timestamp service costs a thread one message, and the time that this message takes.
#[test]
fn the_service_is_paid_for() {
    let ran = |source| {
        let mut driver = updates("motor", 2, 2);
        driver.cluster_mut().set_source(source);
        let phase = driver.phase(LENGTH, &|_| {}).expect("it runs").phase;
        assert_eq!(phase.failures, [""; 0]);
        let each = phase.counts.messages as f64 / phase.tally.committed as f64;
        (each, phase.latency_ns.value_at_quantile(0.5), driver.cluster().fabric().digest())
    };
    let (free, asked) = (ran(Source::Counter), ran(Source::Service));
    assert!(free.0 == 0.0 && (0.9..1.3).contains(&asked.0), "{} messages a commit", asked.0);
    // A call to the timestamp service and its reply each travel over two links and one switch. In addition, the
    // caller and the service spend processor time.
    let more = asked.1 - free.1;
    assert!((1_000..5_000).contains(&more), "{more} ns");
    assert_eq!(ran(Source::Service).2, asked.2, "the same run again");
}

/// When the phase begins, a thread knows exactly the addresses that it would know after a run before the phase.
#[test]
fn addresses_are_known_to_whoever_ran_there() {
    let known = |by_node: bool, transactions_per_record: f64| {
        let warmth = Some(Warmth { by_node, transactions_per_record });
        let driver = warm_updates("lotus", 2, (8, warmth));
        let contexts = driver.contexts().expect("threads");
        let knows = |cx: &Context| {
            let table = tarn_store::schema::TableId(0);
            (0..50).filter(|key| cx.cache.borrow().get(table, *key).is_some()).count()
        };
        contexts.iter().map(|(cx, _)| knows(cx)).collect::<Vec<usize>>()
    };
    assert_eq!(known(true, 0.0), [0, 0]);
    let few = known(false, 0.2);
    assert!(few.iter().sum::<usize>() <= 10 && few.iter().any(|it| *it > 0), "{few:?}");
    let most = known(true, 20.0);
    assert!(most.iter().all(|it| *it > 30), "{most:?}");
    for by_node in [true, false] {
        let all = known(by_node, f64::INFINITY);
        assert!(all.iter().all(|it| *it > 40), "{all:?}");
    }
}
