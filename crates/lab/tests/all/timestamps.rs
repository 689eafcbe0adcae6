//! Tests the timestamp service in virtual time. One service gives timestamps, and other services wait to replace it.
//! The active service crashes, or it is expelled and continues to answer.
//!
//! Invariant checked: any two requests keep the promise at the top of the engine's `timestamp/mod.rs`, if the first
//! was answered before the second was made. The promise does not depend on the services that answered these requests.
//! The test must find two planted errors: a service that restarts its count, and clients that accept the answers of
//! any service.

use rand::RngExt as _;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tarn_engine::cluster::membership::EmbeddedMembership;
use tarn_engine::protocol::{ALL, AnyProtocol};
use tarn_engine::requests::timestamp::{ServiceConfig, StampService};
use tarn_engine::services::timestamp::STAMP;
use tarn_engine::services::timestamp::{ClientConfig, ClockStamps, StampClient, Timestamps};
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::seeded;
use tarn_fabric::rpc::{Rpc, RpcConfig};
use tarn_sim::config::{Chaos, Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::profile::Profile;
use tarn_sim::scheduler::Scheduler;
use tarn_sim::service::{NodeKind, ServiceConfig as Cores, ServiceNode};
use tarn_store::ids::Timestamp;
use tarn_store::placement::catalog::Options;
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_store::schema::{ColumnType, TableSchema};

const COMPUTE_NODES: usize = 3;
const SERVICES: usize = 3;
const THREADS: u16 = 2;
const COROUTINES: usize = 3;
const REQUESTS: usize = 40;
/// The number of cores of a service.
const CORES: u16 = 2;
/// The interval at which the test's driver decides whether the active service dies.
const STEP: Nanos = Nanos(20_000);
/// The virtual time after which the test reports that a run never ends.
const PATIENCE: Nanos = Nanos(200_000_000);

/// The errors that a test plants in the services and in the clients.
#[derive(Clone, Copy, Default)]
struct Planted {
    service: bool,
    clients: bool,
}

/// One request for a timestamp, and the answer to this request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Nanos,
    answered: Nanos,
    commits: bool,
    /// The greatest timestamp that the node knew before its request.
    known: Timestamp,
    given: Timestamp,
}

/// A service, and a flag that lets the test end the service's own coroutine.
struct Service {
    id: NodeId,
    node: ServiceNode,
    service: StampService,
    /// While this flag is true, the service extends its range of timestamps, and stops when it is expelled. The
    /// service's cores answer requests even if the flag is false.
    minds: Rc<Cell<bool>>,
}

fn schema() -> TableSchema {
    TableSchema::new("t", 8).column("a", ColumnType::U64)
}

fn cluster(seed: u64) -> (SimFabric, Arc<Database>) {
    let options =
        Options { coordinators_max: 4, log_bytes: 4096, spare_bytes: 0, ..Options::default() };
    let protocol = AnyProtocol::by_name(ALL[0].name, "corrected").expect("a protocol");
    let catalog = protocol.catalog(&[schema()], &options, 3).expect("a plan");
    let config = SimConfig {
        memory_nodes: 3,
        replicas: 2,
        compute_nodes: COMPUTE_NODES,
        group_bytes: catalog.group_bytes(),
        profile: Profile::load("cx5-100g").expect("a profile"),
        mode: Mode::Random(Chaos::of(seed)),
        seed,
    };
    let fabric = SimFabric::new(&config).expect("a cluster");
    let groups = ReplicaGroups::new(fabric.groups());
    let membership = Arc::new(EmbeddedMembership::new(COMPUTE_NODES + SERVICES));
    (fabric, Arc::new(Database::new(catalog, groups, protocol, membership)))
}

fn join(database: &Arc<Database>, slot: usize) -> Arc<ComputeNode> {
    let id = database.membership.join(NodeSlot(slot as u16)).expect("a life");
    Arc::new(ComputeNode::new(Arc::clone(database), id))
}

/// Starts a timestamp service, which becomes active as soon as no other service is active.
fn begin_service(
    (fabric, database): (&SimFabric, &Arc<Database>),
    scheduler: &mut Scheduler<'_>,
    (slot, planted): (usize, Planted),
) -> Service {
    let cores = Cores { datagrams_a_poll: 4, ..Cores::new(NodeKind::Timestamp, CORES) };
    let node = ServiceNode::new(fabric, cores).expect("a node");
    // The service's window of timestamps is small, so that the service extends the window many times.
    let config = ServiceConfig { window: 64, planted_unfenced: planted.service };
    let service = StampService::new(config);
    node.register(STAMP, |port| service.handler(port));
    node.start(scheduler);
    let compute = join(database, COMPUTE_NODES + slot);
    assert_eq!(compute.id, node.node());
    let (id, minds) = (compute.id, Rc::new(Cell::new(true)));
    let cx = Context::new(compute, node.port(0).clone(), 0, 0).expect("a thread");
    let (service_runs, minds_too) = (service.clone(), Rc::clone(&minds));
    scheduler.spawn(node.port(0), async move {
        let mut run = pin!(service_runs.run(&cx, || true));
        poll_fn(|waiting| match minds_too.get() {
            true => run.as_mut().poll(waiting),
            false => Poll::Ready(()),
        })
        .await;
    });
    Service { id, node, service, minds }
}

/// Requests timestamps repeatedly. If `waits` is true, the client takes an answer only after the answer's timestamp
/// is in the past.
async fn client(
    (cx, waits): (Rc<Context>, bool),
    seed: u64,
    all: Rc<RefCell<Vec<Asked>>>,
    left: Rc<Cell<usize>>,
) {
    let mut rng = seeded(seed, 77);
    for _ in 0..REQUESTS {
        cx.port.sleep(Nanos(rng.random_range(0..20_000))).await;
        let commits = rng.random_bool(0.6);
        let (at, known) = (cx.port.observed(), cx.timestamps.known(&cx));
        let given = match commits {
            true => cx.timestamps.commit(&cx).await,
            false => cx.timestamps.start(&cx).await,
        };
        let given = given.expect("its node lives");
        if commits && waits {
            cx.timestamps.wait_out(&cx, given).await;
        }
        let answered = cx.port.observed();
        all.borrow_mut().push(Asked { at, answered, commits, known, given });
    }
    left.set(left.get() - 1);
}

/// Describes the first two requests that break the promise, if any requests break it.
fn judge(all: &[Asked]) -> Result<(), String> {
    for (index, later) in all.iter().enumerate() {
        if later.commits && later.given <= later.known {
            return Err(format!("not above what its node knew: {later:?}"));
        }
        for (other, earlier) in all.iter().enumerate() {
            let is_twice = index != other && earlier.commits && later.given == earlier.given;
            if later.commits && is_twice {
                return Err(format!("given twice: {earlier:?}, {later:?}"));
            }
            let is_below = later.given < earlier.given;
            let is_not_above = later.commits && later.given == earlier.given;
            if earlier.answered < later.at && (is_below || is_not_above) {
                return Err(format!("not ascending: {earlier:?}, then {later:?}"));
            }
        }
    }
    Ok(())
}

/// Runs the test with one seed. Returns the number of services that gave timestamps, and the error, if the test found
/// one.
fn play(seed: u64, planted: Planted, clocks: bool) -> (usize, Result<(), String>) {
    let (fabric, database) = cluster(seed);
    let mut scheduler = Scheduler::new(&fabric);
    let of = (&fabric, &database);
    let services: Vec<Service> =
        (0..SERVICES).map(|slot| begin_service(of, &mut scheduler, (slot, planted))).collect();
    let (all, left) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
    for slot in 0..COMPUTE_NODES {
        let node = join(&database, slot);
        for thread in 0..THREADS {
            let port = fabric.port(node.id, thread, seed);
            let mut cx = Context::new(Arc::clone(&node), port.clone(), thread, 0).expect("one");
            let planted_unfenced = planted.clients;
            let config = ClientConfig { cores: CORES, planted_unfenced, ..ClientConfig::default() };
            let rpc = Rpc::new(port.clone(), RpcConfig::default());
            cx.timestamps = match clocks {
                true => Timestamps::Clock(ClockStamps::default()),
                false => Timestamps::Service(Box::new(StampClient::new(rpc, config))),
            };
            let cx = Rc::new(cx);
            for coroutine in 0..COROUTINES {
                let number = (slot * 8 + usize::from(thread)) * 8 + coroutine;
                let seed = seed << 16 | number as u64;
                left.set(left.get() + 1);
                let (cx, all, left) = (Rc::clone(&cx), Rc::clone(&all), Rc::clone(&left));
                let cx = (cx, !planted.clients);
                scheduler.spawn(&port, client(cx, seed, all, left));
            }
        }
    }
    let (mut rng, mut served, mut until) = (seeded(seed, 78), 1, STEP);
    while left.get() > 0 {
        scheduler.run_until(until);
        until = until + STEP;
        if until > PATIENCE {
            return (served, Err("it does not end".into()));
        }
        let now = database.membership.timestamper().map(|it| it.node);
        let serving = services.iter().find(|it| now == Some(it.id) && it.service.serves());
        if let Some(service) = serving.filter(|_| served < SERVICES && rng.random_range(0..8) == 0)
        {
            // The service crashes, or its node is cut off from all other nodes except the nodes that send it
            // requests.
            service.minds.set(false);
            if rng.random_bool(0.5) {
                service.node.stop();
            }
            database.membership.expel(service.id);
            served += 1;
        }
    }
    (served, judge(&all.borrow()))
}

#[test]
fn timestamps_ascend_whichever_service_gives_them() {
    let mut served = 0;
    for seed in 0..30 {
        let (services, found) = play(seed, Planted::default(), false);
        assert_eq!(found, Ok(()), "seed {seed}");
        served += services;
    }
    assert!(served > 75, "{served} services in 30 runs: too few have died");
}

#[test]
fn timestamps_of_clocks_ascend_though_no_two_agree() {
    let hasty = Planted { clients: true, ..Planted::default() };
    let mut found = 0;
    for seed in 0..12 {
        assert_eq!(play(seed, Planted::default(), true).1, Ok(()), "seed {seed}");
        found += u32::from(play(seed, hasty, true).1.is_err());
    }
    assert!(found > 0, "who does not wait is found");
}

#[test]
fn services_that_are_not_fenced_are_found() {
    for planted in [
        Planted { service: true, ..Planted::default() },
        Planted { clients: true, ..Planted::default() },
    ] {
        let found = (0..12).filter(|&seed| play(seed, planted, false).1.is_err()).count();
        assert!(found > 0, "services anew: {}, any service: {}", planted.service, planted.clients);
    }
}
