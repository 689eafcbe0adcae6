//! Laws that hold in any queueing model, checked on whole transactions: Little's law, and half of a cost is no loss.
//!
//! Invariants checked: the transactions under way are the transactions per second times their mean latency, dropped
//! ones included. If no transactions conflict and no threads share a doorbell register, a cheaper part of the hardware
//! never costs throughput.

use super::driver::{Driver, Length, SimPhase};
use super::stamps::Source;
use super::warmth::Warmth;
use super::*;
use tarn_engine::session::coordinator::Retry;
use tarn_workloads::smallbank::SmallBank;
use tarn_workloads::{Settings, Workload};

/// A cluster with two memory nodes, and its load.
#[derive(Clone, Copy, Debug)]
struct Point {
    profile: &'static str,
    protocol: &'static str,
    compute_nodes: usize,
    threads: usize,
    /// The number of coordinators of each thread.
    coroutines: usize,
    records: u64,
    /// The Zipf exponent of the keys.
    zipf: f64,
    /// Whether an aborted transaction is dropped.
    drops: bool,
}

impl Point {
    fn coordinators(&self) -> usize {
        self.compute_nodes * self.threads * self.coroutines
    }

    /// Loads the point's cluster with warm caches.
    fn driver(&self, profile: Profile) -> Driver<SmallBank> {
        let cluster = ClusterConfig {
            compute_nodes: self.compute_nodes,
            protocol: self.protocol.into(),
            memory_nodes: 2,
            replicas: 2,
            ..ClusterConfig::default()
        };
        let (threads, coordinators) = (self.threads, self.coordinators());
        let config =
            Config { cluster, profile, threads, coordinators, timestamps: Source::Counter };
        let settings =
            Settings { records: Some(self.records), zipf: Some(self.zipf), ..Settings::default() };
        let bank = SmallBank::new(&settings).expect("a workload");
        let mut driver = Driver::new(bank, &config).expect("a cluster");
        let tries_max = u32::from(self.drops);
        driver.set_retry(Retry { tries_max, ..Retry::PATIENT });
        driver.set_warmth(Some(Warmth::ALL)).expect("there is room");
        driver.load(&|_, _| {}).expect("it fits");
        driver
    }
}

fn run(driver: &mut Driver<SmallBank>, measured_ns: u64) -> SimPhase {
    let length = Length::measured(Nanos(200_000), Nanos(measured_ns));
    let phase = driver.phase(length, &|_| {}).expect("it runs");
    assert_eq!(phase.phase.failures, [""; 0]);
    phase
}

fn profile(name: &str) -> Profile {
    Profile::load(name).expect("embedded")
}

#[test]
fn transactions_under_way_are_their_rate_times_their_mean_latency() {
    let (mut points, mut dropped) = (0, 0);
    for (profile_name, protocol) in
        [("cx3-56g", "ford"), ("cx5-100g", "motor"), ("cx6-200g", "oocc"), ("cx6-200g", "ford")]
    {
        for (compute_nodes, threads, coroutines, records, drops) in [
            (1, 1, 1, 1_000, false),
            (1, 4, 8, 1_000, false),
            (2, 3, 4, 100, true),
            (1, 16, 2, 100, true),
            (2, 40, 1, 1_000, true),
        ] {
            let zipf = 0.5;
            let profile_of = profile(profile_name);
            let point = Point {
                profile: profile_name,
                protocol,
                compute_nodes,
                threads,
                coroutines,
                records,
                zipf,
                drops,
            };
            // A transaction that tries again may take many times as long as others. The window must be so long that the
            // transactions at its ends are few.
            let measured_ns = if drops { 2_000_000 } else { 8_000_000 };
            let SimPhase { phase, .. } = run(&mut point.driver(profile_of), measured_ns);
            let ended = phase.mix.iter().sum::<u64>() as f64;
            let time_ns =
                ended * phase.latency_ns.mean() + phase.given_up as f64 * phase.dropped_ns.mean();
            let share = time_ns / (phase.seconds * 1e9) / point.coordinators() as f64;
            assert!((0.98..=1.02).contains(&share), "{point:?}: {share}");
            assert!(drops || phase.given_up == 0, "{point:?}: {}", phase.given_up);
            points += 1;
            dropped += phase.given_up;
        }
    }
    assert!(points == 20 && dropped > 1_000, "{points} points, {dropped} dropped");
}

/// A transaction that rings a doorbell for each list of verbs sends the same verbs and takes longer.
#[test]
fn more_doorbells_cost_time_and_no_verbs() {
    for protocol in ["ford", "motor"] {
        let mut driver = Point { protocol, ..ALONE }.driver(profile(ALONE.profile));
        let mut spent = |variant| {
            driver.cluster_mut().set_variant(protocol, variant).expect("the same layout");
            let phase = run(&mut driver, 400_000).phase;
            let each = |count: u64| count as f64 / phase.tally.committed as f64;
            (each(phase.counts.verbs.iter().sum()), phase.latency_ns.mean())
        };
        let (few, many) = (spent("corrected"), spent("corrected,-share-doorbells"));
        assert!((many.0 / few.0 - 1.0).abs() < 0.05, "{protocol}: {many:?} verbs, {few:?}");
        assert!(many.1 > few.1 + 50.0, "{protocol}: {many:?} ns, {few:?}");
    }
}

/// One coordinator without conflicts.
const ALONE: Point = Point {
    profile: "cx6-200g",
    protocol: "ford",
    compute_nodes: 1,
    threads: 1,
    coroutines: 1,
    records: 1_000,
    zipf: 0.0,
    drops: false,
};

#[test]
fn half_of_any_cost_loses_no_transactions() {
    let point = Point { threads: 12, coroutines: 4, records: 40_000, ..ALONE };
    let whole = profile(point.profile).set("form.doorbells", "one-a-thread").expect("a choice");
    let mut driver = point.driver(whole.clone());
    let mut rate = |profile: Profile| {
        driver.cluster_mut().set_profile(profile).expect("the same parts");
        let phase = run(&mut driver, 400_000).phase;
        let aborted = phase.tally.aborted() as f64 / phase.tally.committed as f64;
        assert!(aborted < 0.01, "{aborted} conflicts for each transaction");
        phase.tally.committed as f64
    };
    let before = rate(whole.clone());
    let mut halved = 0;
    for listed in whole.constants() {
        let value = match listed.name.rsplit_once('_') {
            Some((_, "ns")) => listed.constant.value / 2.0,
            Some((_, "mops" | "gbps")) => listed.constant.value * 2.0,
            _ => continue,
        };
        if !["cpu", "nic", "link"].contains(&listed.section) {
            continue;
        }
        let key = format!("{}.{}", listed.section, listed.name);
        let after = rate(whole.clone().with(&key, value).expect("a value"));
        assert!(after >= 0.98 * before, "half the cost of {key}: {after} instead of {before}");
        halved += 1;
    }
    assert!(halved > 30, "{halved} costs");
}
