//! Scratch driver.
use std::time::Duration;
use tarn::bench::{Config, driver::{Driver, Length}};
use tarn::cluster::ClusterConfig;
use tarn_workloads::{Settings, Workload, kvs::Kvs};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let arg = |i: usize, d: &str| a.get(i).cloned().unwrap_or(d.into());
    let coroutines: usize = arg(3, "16").parse().unwrap();
    let threads: usize = arg(4, "1").parse().unwrap();
    let w = Kvs::new(&Settings { profile: Some(arg(1, "ro")), records: Some(arg(2, "10000000").parse().unwrap()), zipf: arg(6,"0").parse().ok() }).unwrap();
    let config = Config { cluster: ClusterConfig { compute_nodes: threads, replicas: arg(5,"1").parse().unwrap(), memory_nodes: arg(5,"1").parse().unwrap(), ..Default::default() }, threads, threads_per_node: 1, coroutines, pin: true };
    let mut d = Driver::new(w, &config).unwrap();
    let t = std::time::Instant::now();
    println!("loaded {:?} in {:?} {}", d.load(&|_, _| {}), t.elapsed(), d.cluster().fabric().node(tarn_fabric::address::NodeSlot(0)).pages().name());
    for record in [true, false] {
        let p = d.phase(Length { warm_up: Duration::from_millis(300), measured: Duration::from_secs(2), transactions_max: if record {200000} else {u64::MAX}, record }).unwrap();
        println!("{:.3} M/s aborts {:?} verbs/txn {:?} rounds {:.3} phases {:?} p50 {} history {} fail {:?}", p.tally.committed as f64 / p.seconds / 1e6, p.tally.aborts, p.counts.verbs.map(|v| (v as f64 / p.tally.committed as f64 * 1000.0).round()/1000.0), p.counts.rounds as f64 / p.tally.committed as f64, p.tally.phases, p.latency_ns.value_at_quantile(0.5), p.history.len(), p.failures);
    }
    let (i, audit) = d.check().unwrap();
    println!("{i:?}\n{audit}");
}
