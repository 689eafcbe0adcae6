//! The engine, unchanged, on the simulated cluster: FORD and SmallBank in random mode.
//!
//! Invariant checked: under any order that the contract allows, with stalls, slow nodes and pauses,
//! money is conserved, memory is clean, and the history is strictly serializable; the same seed gives
//! the same run, event for event; a rule that is switched off is missed.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tarn::bench::history::history_of;
use tarn_check::{Isolation, check};
use tarn_engine::catalog::{Catalog, Options};
use tarn_engine::context::{ComputeNode, Context, Database};
use tarn_engine::coordinator::{Coordinator, Retry};
use tarn_engine::history::RecordedTxn;
use tarn_engine::inspect::audit;
use tarn_engine::load::{Loader, Part};
use tarn_engine::membership::EmbeddedMembership;
use tarn_engine::metrics::Tally;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::replica_groups::ReplicaGroups;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_sim::config::{Chaos, Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::profile::Profile;
use tarn_sim::scheduler::{Ended, Scheduler};
use tarn_workloads::smallbank::SmallBank;
use tarn_workloads::{Settings, Workload};

const COMPUTE_NODES: u16 = 3;
const THREADS: u16 = 2;
const COROUTINES: u32 = 2;
const TRANSACTIONS: u64 = 8;

struct Run {
    digest: u64,
    tally: Tally,
    /// What is wrong, if anything.
    finding: Option<String>,
    events: u64,
}

struct Cluster {
    fabric: SimFabric,
    database: Arc<Database>,
    workload: SmallBank,
}

impl Cluster {
    fn new(variant: &str, mode: Mode, seed: u64) -> Cluster {
        let settings = Settings { records: Some(12), ..Settings::default() };
        let workload = SmallBank::new(&settings).unwrap();
        let options = Options {
            coordinators_max: u32::from(COMPUTE_NODES * THREADS) * COROUTINES,
            log_bytes: 8 << 10,
            chunk_bytes: 16 << 10,
            spare_bytes: 1 << 20,
            ..Options::default()
        };
        let catalog = Catalog::plan(&workload.schemas(), &options, 3).unwrap();
        let fabric = SimFabric::new(&SimConfig {
            memory_nodes: 3,
            replicas: 3,
            compute_nodes: COMPUTE_NODES.into(),
            group_bytes: catalog.group_bytes(),
            profile: Profile::load("cx3-56g").unwrap(),
            mode,
            seed,
        })
        .unwrap();
        let groups = ReplicaGroups::new(fabric.groups());
        let protocol = AnyProtocol::by_name("ford", variant).unwrap();
        let membership = Arc::new(EmbeddedMembership::new(COMPUTE_NODES.into()));
        let database = Arc::new(Database { catalog, groups, protocol, membership });
        Cluster { fabric, database, workload }
    }

    fn join(&self, slot: u16) -> Arc<ComputeNode> {
        let id = self.database.membership.join(NodeSlot(slot)).unwrap();
        Arc::new(ComputeNode::new(Arc::clone(&self.database), id))
    }

    fn context(&self, node: &Arc<ComputeNode>, thread: u16, seed: u64) -> Rc<Context> {
        let port = self.fabric.port(node.id, thread, seed);
        Rc::new(Context::new(Arc::clone(node), port, thread, 16).unwrap())
    }

    fn load(&self) {
        let cx = self.context(&self.join(0), 0, 1);
        let mut loader = Loader::new(&cx, Part { index: 0, of: 1 });
        block_on(async {
            self.workload.load(&mut loader).await.unwrap();
            loader.finish().await.unwrap();
        });
    }
}

/// One coordinator's transactions.
async fn coordinate(
    workload: &SmallBank,
    cx: Rc<Context>,
    number: u32,
    left: &RefCell<(Vec<RecordedTxn>, <SmallBank as Workload>::Tally)>,
) {
    let mut coordinator = Coordinator::new(cx, number, Retry::default());
    coordinator.record_history();
    let mut rng = coordinator.context().port.rng();
    let mut tally = Default::default();
    for _ in 0..TRANSACTIONS {
        let input = workload.draw(&mut rng);
        workload.run(&mut coordinator, &input, &mut tally).await.unwrap();
    }
    let (history, tallies) = &mut *left.borrow_mut();
    history.extend(coordinator.take_history());
    SmallBank::merge(tallies, tally);
}

fn run(variant: &str, mode: Mode, seed: u64) -> Run {
    let cluster = Cluster::new(variant, mode, seed);
    cluster.load();
    let left = RefCell::default();
    let mut contexts = Vec::new();
    let mut scheduler = Scheduler::new(&cluster.fabric);
    for slot in 0..COMPUTE_NODES {
        let node = cluster.join(slot);
        for thread in 0..THREADS {
            let cx = cluster.context(&node, thread, seed);
            for _ in 0..COROUTINES {
                let number = scheduler.live() as u32;
                let coordinator = coordinate(&cluster.workload, Rc::clone(&cx), number, &left);
                scheduler.spawn(&cx.port, coordinator);
            }
            contexts.push(cx);
        }
    }
    let ended = scheduler.run_until(Nanos(1_000_000_000));
    if ended == Ended::Finished {
        scheduler.drain();
    }
    drop(scheduler);
    let mut tally = Tally::default();
    contexts.iter().for_each(|cx| tally.add(&cx.metrics.snapshot()));
    let (history, tallies) = left.take();
    let finding = match ended {
        Ended::Finished => judge(&cluster, &history, &tallies),
        Ended::TimeOver => Some("transactions had not ended after a second".into()),
    };
    let events = cluster.fabric.usage().events();
    Run { digest: cluster.fabric.digest(), tally, finding, events }
}

/// Money, memory, and history.
fn judge(
    cluster: &Cluster,
    history: &[RecordedTxn],
    tallies: &<SmallBank as Workload>::Tally,
) -> Option<String> {
    let report = check(
        &history_of(Default::default(), &cluster.workload.schemas(), history),
        Isolation::StrictSerializable,
    );
    if !report.is_accepted() {
        return Some(report.to_string());
    }
    let cx = cluster.context(&cluster.join(0), 0, 1);
    let audit = block_on(audit(&cx)).unwrap();
    if !audit.is_clean() {
        return Some(audit.to_string());
    }
    let invariants = block_on(cluster.workload.check(&cx, tallies)).unwrap();
    invariants
        .into_iter()
        .find(|each| !each.ok)
        .map(|each| format!("{}: {}", each.name, each.detail))
}

/// All seeds below this one, `TARN_SEEDS`; or `TARN_SEED` alone, to replay a failure.
fn seeds(otherwise: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("TARN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TARN_SEEDS").unwrap_or(otherwise),
    }
}

#[test]
fn every_seed_conserves_money_and_is_strictly_serializable() {
    let (mut tally, mut events) = (Tally::default(), 0);
    for seed in seeds(300) {
        let run = run("corrected", Mode::Random(Chaos::of(seed)), seed);
        if let Some(finding) = run.finding {
            panic!(
                "seed {seed}: {finding}\nreplay: TARN_SEED={seed} cargo test -p tarn --test simulated every_seed"
            );
        }
        tally.add(&run.tally);
        events += run.events;
    }
    println!("{events} events, {tally:?}");
    assert!(tally.aborted() * 5 > tally.committed, "they hardly meet: {tally:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let digest = |seed| run("corrected", Mode::Random(Chaos::of(seed)), seed).digest;
        assert_eq!(digest(seed), digest(seed));
        assert_ne!(digest(seed), digest(seed + 1_000));
    }
    let timed = |seed| run("corrected", Mode::Timed, seed);
    assert_eq!(timed(1).digest, timed(1).digest);
    assert_eq!(timed(1).finding, None);
}

/// How many seeds it takes to find what the variant breaks.
#[track_caller]
fn found_after(variant: &str, seeds: u64) {
    for seed in 0..seeds {
        if run(variant, Mode::Random(Chaos::of(seed)), seed).finding.is_some() {
            println!("{variant}: seed {seed}");
            return;
        }
    }
    panic!("{variant}: not found by {seeds} seeds");
}

#[test]
fn every_rule_that_is_switched_off_is_missed() {
    for rule in [
        "validate-reads",
        "refuse-locked",
        "unlock-late",
        "release-granted",
        "write-after-validation",
        "release-on-abort",
    ] {
        found_after(&format!("corrected,-{rule}"), 3_000);
    }
    found_after("literal", 3_000);
}
