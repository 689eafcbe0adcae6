//! Tests of service nodes, which answer calls: the highest rate of calls, and how long a caller
//! waits.
//!
//! Invariant checked: the highest rate of calls is the number of cores divided by the cost of a call.
//! Callers wait as long as queueing theory predicts. The cost of a call is measured and not taken
//! from the profile.

use crate::common::{config, fabric, port};
use rand::RngExt as _;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_fabric::backend::Cost;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_fabric::rpc::{Answer, HandlerId, Peer, Rpc, RpcConfig};
use tarn_sim::config::{Chaos, Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::scheduler::{Ended, Scheduler};
use tarn_sim::service::{NodeKind, ServiceConfig, ServiceNode};
use tarn_sim::usage::{Part, Usage};

const ADD: HandlerId = HandlerId(3);

/// A configuration of calls under which a caller never sends a call again, however long the call
/// waits.
fn patient() -> RpcConfig {
    RpcConfig { retransmit_after: Nanos(1_000_000_000), ..RpcConfig::default() }
}

/// Creates a node whose handler counts the calls and works for `work_ns`.
fn node(fabric: &SimFabric, kind: NodeKind, cores: u16, work_ns: u64) -> ServiceNode {
    let config =
        ServiceConfig { datagrams_a_poll: 1, rpc: patient(), ..ServiceConfig::new(kind, cores) };
    let node = ServiceNode::new(fabric, config).unwrap();
    node.register(ADD, |port| {
        let mut sum = 0u64;
        move |request, reply| {
            sum += u64::from_le_bytes(request.bytes.try_into().unwrap());
            port.charge(Cost::WorkNanos(work_ns));
            reply.extend(sum.to_le_bytes());
            Answer::Now
        }
    });
    node
}

async fn call(rpc: &Rpc, to: Peer, number: u64) -> u64 {
    let mut reply = std::pin::pin!(rpc.call(to, ADD, |bytes| bytes.extend(number.to_le_bytes())));
    std::future::poll_fn(|cx| {
        rpc.poll(16);
        reply.as_mut().poll(cx)
    })
    .await
    .map(|reply| u64::from_le_bytes(reply[..].try_into().unwrap()))
    .unwrap()
}

/// One user: sends a call, thinks for a random time with the mean `think_ns`, and calls again. The user
/// records how long each call took.
async fn user(port: Port, to: Peer, think_ns: f64, took: Rc<RefCell<Vec<u64>>>) {
    let (rpc, mut rng) = (Rpc::new(port.clone(), patient()), port.rng());
    loop {
        let uniform: f64 = rng.random();
        port.sleep(Nanos((-uniform.max(1e-9).ln() * think_ns) as u64)).await;
        let start = port.now();
        call(&rpc, to, 1).await;
        took.borrow_mut().push((port.now() - start).0);
    }
}

struct Found {
    calls_a_core_us: f64,
    mean_ns: f64,
    used: Usage,
}

/// Runs `users` users that think for `think_ns` on average. The service node has `cores` cores, and its
/// handler works for `work_ns`.
fn run(users: u16, think_ns: f64, cores: u16, work_ns: u64) -> Found {
    // The doorbells of callers must not matter in this test, because many threads represent many nodes.
    let config = config("cx5-100g", Mode::Timed, 1);
    let profile = config.profile.set("form.doorbells", "one-a-thread").unwrap();
    let profile = profile.with("cpu.hyperthread_slowdown", 1.0).unwrap();
    let fabric = SimFabric::new(&SimConfig { profile, ..config }).unwrap();
    let node = node(&fabric, NodeKind::Timestamp, cores, work_ns);
    let took = Rc::new(RefCell::new(Vec::new()));
    let mut scheduler = Scheduler::new(&fabric);
    node.start(&mut scheduler);
    for number in 0..users {
        let port = port(&fabric, number % 4, number / 4);
        let peer = Peer { thread: number % cores, ..node.peer_of(port.endpoint()) };
        scheduler.spawn(&port, user(port.clone(), peer, think_ns, Rc::clone(&took)));
    }
    scheduler.run_until(Nanos(1_000_000));
    let (before, start) = (fabric.usage(), node.executed());
    took.borrow_mut().clear();
    assert_eq!(scheduler.run_until(Nanos(11_000_000)), Ended::TimeOver);
    let used = fabric.usage().since(&before);
    let calls = (node.executed() - start) as f64;
    let took = took.borrow();
    Found {
        calls_a_core_us: calls / used.at.0 as f64 * 1e3 / f64::from(cores),
        mean_ns: took.iter().sum::<u64>() as f64 / took.len() as f64,
        used,
    }
}

#[test]
fn a_node_answers_as_many_calls_as_its_cores_have_time_for() {
    let cost_ns = |work_ns| {
        let found = run(64, 0.0, 1, work_ns);
        let (share, of) = found.used.busiest(Part::TimestampCore).unwrap();
        assert!((0.999..=1.0).contains(&share), "{share} {of}");
        1e3 / found.calls_a_core_us
    };
    let (light, heavy) = (cost_ns(0), cost_ns(1_500));
    println!("a call costs {light:.0} ns, with 1.5 µs of work {heavy:.0} ns");
    assert!((heavy - light - 1_500.0).abs() < 5.0, "{light} and {heavy} ns");
    for cores in [2, 4, 8] {
        let found = run(64 * cores, 0.0, cores, 1_500);
        let off = found.calls_a_core_us * heavy / 1e3;
        println!("{cores} cores: {:.3} M/s each", found.calls_a_core_us);
        assert!((off - 1.0).abs() < 0.01, "{cores} cores over cost: {off}");
    }
}

/// The arrivals are Poisson, service times are equal, and each core has one queue. Then the mean wait
/// is ρs / 2(1 − ρ), by the formula of Pollaczek and Khinchine. Users that think cause slightly
/// shorter waits than Poisson arrivals, because waiting users do not call. With 500 users for each
/// core the difference is 4 % of the wait at the highest load of this test. The tolerance is 12 % of
/// the wait, plus 30 ns for the time that the callers' own processors add.
#[test]
fn calls_to_a_busy_core_wait_as_queueing_theory_says() {
    const USERS: u16 = 1_000;
    let (cores, work_ns) = (2, 2_000);
    let service_ns = 1e3 / run(128, 0.0, cores, work_ns).calls_a_core_us;
    let theory_ns = |load: f64| load * service_ns / (2.0 * (1.0 - load));
    let at_load = |load: f64| {
        let a_user_ns = f64::from(USERS) / f64::from(cores) * service_ns / load;
        let found = run(USERS, a_user_ns - 6_000.0, cores, work_ns);
        let load = found.calls_a_core_us * service_ns / 1e3;
        (load, found)
    };
    let (idle_load, idle) = at_load(0.05);
    let unloaded_ns = idle.mean_ns - theory_ns(idle_load);
    let mut last_ns = 0.0;
    for load in [0.3, 0.5, 0.7, 0.8] {
        let (load, found) = at_load(load);
        let (waited_ns, theory_ns) = (found.mean_ns - unloaded_ns, theory_ns(load));
        println!("load {load:.3}: waits {waited_ns:.0} ns, in theory {theory_ns:.0} ns");
        let off_ns = (waited_ns - theory_ns).abs();
        assert!(off_ns < 0.12 * theory_ns + 30.0, "load {load}: {waited_ns}, {theory_ns} ns");
        assert!(waited_ns > last_ns);
        last_ns = waited_ns;
        let (share, _) = found.used.busiest(Part::TimestampCore).unwrap();
        assert!((share - load).abs() < 0.08, "busy for {share} at a load of {load}");
    }
}

#[test]
fn each_kind_of_node_is_reported_apart_and_impossible_shapes_are_refused() {
    let fabric = fabric("cx3-56g", Mode::Timed, 1);
    let nodes = [NodeKind::Timestamp, NodeKind::Control].map(|kind| node(&fabric, kind, 2, 100));
    let caller = port(&fabric, 0, 0);
    let mut scheduler = Scheduler::new(&fabric);
    nodes.iter().for_each(|node| node.start(&mut scheduler));
    let rpc = Rpc::new(caller.clone(), patient());
    let peers = nodes.each_ref().map(|node| node.peer_of(caller.endpoint()));
    let sums = scheduler.block_on(&caller, async move {
        for number in 1..10 {
            call(&rpc, peers[0], number).await;
        }
        (call(&rpc, peers[0], 10).await, call(&rpc, peers[1], 7).await)
    });
    assert_eq!(sums, (55, 7));
    nodes.iter().for_each(ServiceNode::stop);
    assert_eq!(scheduler.run_until(Nanos(1_000_000)), Ended::Finished);
    let usage = fabric.usage();
    let busy = |part| usage.parts.iter().filter(|used| used.part == part).collect::<Vec<_>>();
    assert_eq!(busy(Part::TimestampCore).len(), 2);
    assert_eq!(busy(Part::ControlCore).len(), 2);
    assert!(usage.parts.iter().any(|used| used.of == "timestamp node 4"));
    for (config, text) in [
        (ServiceConfig::new(NodeKind::Control, 0), "cores = 0; allowed: 1 to 1024"),
        (ServiceConfig::new(NodeKind::Compute, 1), "kind = 0; allowed: 1 to 2"),
    ] {
        let error = ServiceNode::new(&fabric, config).err().expect("refused");
        assert_eq!(error.to_string(), text);
    }
}

/// Messages may be lost, doubled and late, but every call still runs exactly once.
#[test]
fn a_node_answers_a_call_once_despite_lost_and_doubled_messages() {
    for seed in 0..20 {
        let fabric = fabric("cx5-100g", Mode::Random(Chaos::of(seed)), seed);
        let config = ServiceConfig::new(NodeKind::Control, 2);
        let node = ServiceNode::new(&fabric, config).unwrap();
        node.register(ADD, |_| {
            let mut sum = 0u64;
            move |request, reply| {
                sum += u64::from_le_bytes(request.bytes.try_into().unwrap());
                reply.extend(sum.to_le_bytes());
                Answer::Now
            }
        });
        let mut scheduler = Scheduler::new(&fabric);
        node.start(&mut scheduler);
        let caller = port(&fabric, 0, 0);
        let (rpc, to) =
            (Rpc::new(caller.clone(), RpcConfig::default()), node.peer_of(caller.endpoint()));
        let sum = scheduler.block_on(&caller, async move {
            let mut last = 0;
            for _ in 0..50 {
                last = call(&rpc, to, 1).await;
            }
            last
        });
        assert_eq!((sum, node.executed()), (50, 50), "seed {seed}");
        node.stop();
        assert_eq!(scheduler.run_until(fabric.now() + Nanos(10_000_000)), Ended::Finished);
    }
}
