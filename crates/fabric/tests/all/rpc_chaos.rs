//! Tests calls over a network that loses, duplicates, delays and reorders datagrams, with thousands of seeds.
//!
//! Invariant checked: the handler of every request runs at most once, and every call that completes gets exactly the
//! bytes of its own reply. Ordered sessions keep their order, and requests of one incarnation never reach another
//! incarnation. To replay one seed, narrow the range of seeds in the test whose message names the seed.

use crate::common::{Chaos, Net, id_of, node, text};
use rand::RngExt as _;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::Executor;
use tarn_fabric::rng::seeded;
use tarn_fabric::rpc::{Answer, HandlerId, Peer, ReplyToken, Rpc, RpcConfig};

const ECHO: HandlerId = HandlerId(3);
const LATER: HandlerId = HandlerId(4);
const NODES: u16 = 3;
const TURN_NS: u64 = 2_000;

/// Computes the reply from the request's id, so that a test detects a reply to another request.
fn reply_to(id: u64) -> Vec<u8> {
    text(id ^ 0x5555_0000_0000, (id * 31 % 700) as usize)
}

/// The number of times that each request ran, and the order in which the requests ran.
type Journal = Rc<RefCell<(BTreeMap<u64, u32>, Vec<u64>)>>;

fn note(journal: &Journal, id: u64) {
    let (counts, order) = &mut *journal.borrow_mut();
    *counts.entry(id).or_default() += 1;
    order.push(id);
}

fn config() -> RpcConfig {
    RpcConfig {
        credits: 4,
        fragments_in_flight: 3,
        retransmit_after: Nanos(50_000),
        backoff_doublings: 3,
        deadline: Nanos(1_000_000_000),
        ..RpcConfig::default()
    }
}

/// The replies that handlers postponed. Each element is the time of the reply, the reply's token and the request's
/// id.
type Postponed = Rc<RefCell<Vec<(u64, ReplyToken, u64)>>>;

fn serve(rpc: &Rpc, journal: &Journal, postponed: &Postponed) {
    let at_once = Rc::clone(journal);
    rpc.register(ECHO, move |request, reply| {
        let id = id_of(request.bytes);
        note(&at_once, id);
        reply.extend(reply_to(id));
        Answer::Now
    });
    let (later, postponed, port) = (Rc::clone(journal), Rc::clone(postponed), rpc.port().clone());
    rpc.register(LATER, move |request, _| {
        let id = id_of(request.bytes);
        note(&later, id);
        postponed.borrow_mut().push((port.now().0 + id * 997 % 300_000, request.token, id));
        Answer::Later
    });
}

fn reply_when_due(rpc: &Rpc, postponed: &Postponed) {
    let now = rpc.port().now().0;
    let due: Vec<_> = postponed.borrow_mut().extract_if(.., |(at, ..)| *at <= now).collect();
    for (_, token, id) in due {
        rpc.reply(token, |reply| reply.extend(reply_to(id)));
    }
}

/// Runs three nodes that call each other. Returns the number of times that each request ran, for all requests that
/// had to run.
fn swarm(seed: u64, config: RpcConfig) -> BTreeMap<u64, u32> {
    let net = Net::new(seed, Chaos::of(seed));
    let journal = Journal::default();
    let nodes: Vec<(Rpc, Postponed)> = (0..NODES)
        .map(|slot| (Rpc::new(net.port(node(slot, 1)), config), Postponed::default()))
        .collect();
    let given_up = RefCell::new(Vec::new());
    let mut executor = Executor::new();
    for (slot, (rpc, postponed)) in nodes.iter().enumerate() {
        serve(rpc, &journal, postponed);
        for task in 0..4 {
            let mut rng = seeded(seed, 100 + slot as u64 * 10 + task);
            let given_up = &given_up;
            executor.spawn(async move {
                for call in 0..4 {
                    let id = slot as u64 * 1000 + task * 100 + call;
                    let len = rng.random_range(8..1200) >> rng.random_range(0..5);
                    let thread = 0;
                    let to = Peer { node: node(rng.random_range(0..NODES), 1), thread };
                    let handler = if rng.random_range(0..4) == 0 { LATER } else { ECHO };
                    let request = |bytes: &mut Vec<u8>| bytes.extend(text(id, len));
                    match rng.random_range(0..8) {
                        0 => rpc.notify(to, handler, request).unwrap(),
                        1 => {
                            drop(rpc.call(to, handler, request));
                            given_up.borrow_mut().push(id);
                        }
                        _ => {
                            let reply = rpc.call(to, handler, request).await.unwrap();
                            assert_eq!(*reply, reply_to(id), "seed {seed}, call {id}");
                        }
                    }
                }
            });
        }
    }
    let mut turns = 0;
    let mut turn = || {
        turns += 1;
        assert!(turns < 100_000, "seed {seed}: no end");
        for (rpc, postponed) in &nodes {
            reply_when_due(rpc, postponed);
            rpc.poll(16);
        }
        net.advance(TURN_NS);
    };
    executor.run_with(&mut turn);
    (0..2_000).for_each(|_| turn()); // lets notifications and other datagrams in flight arrive
    drop(executor);
    for id in given_up.take() {
        journal.borrow_mut().0.entry(id).or_insert(1); // the request may have run or not
    }
    journal.take().0
}

#[test]
fn every_request_runs_at_most_once_and_every_reply_is_its_own() {
    for seed in 0..2000 {
        let counts = swarm(seed, config());
        assert_eq!(counts.len(), 48, "seed {seed}: a request was lost");
        for (id, count) in counts {
            assert_eq!(count, 1, "seed {seed}: request {id} ran {count} times");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(swarm(77, config()), swarm(77, config()));
}

#[test]
fn a_layer_without_recorded_replies_is_caught() {
    let config = RpcConfig { planted_no_reply_cache: true, ..config() };
    let caught = (0..20).filter(|&seed| swarm(seed, config).values().any(|&count| count > 1));
    assert!(caught.count() >= 10, "requests ran twice and nobody saw it");
}

#[test]
fn ordered_sessions_run_requests_in_the_order_of_the_calls() {
    for seed in 0..600 {
        // In half of the runs some calls have an early deadline. All calls without an early deadline must still run
        // in order.
        let impatient = seed % 2 == 1;
        let net = Net::new(seed, Chaos::of(seed));
        let journal = Journal::default();
        let (client, server) =
            (Rpc::new(net.port(node(0, 1)), config()), Rpc::new(net.port(node(1, 1)), config()));
        let postponed = Postponed::default();
        serve(&server, &journal, &postponed);
        let to = Peer { node: node(1, 1), thread: 0 };
        client.order(to).unwrap();
        let mut rng = seeded(seed, 9);
        let mut executor = Executor::new();
        for id in 0..40 {
            let len = rng.random_range(8..900) >> rng.random_range(0..5);
            let short = impatient && rng.random_range(0..3) == 0;
            let within =
                if short { Nanos(rng.random_range(10_000..200_000)) } else { config().deadline };
            let handler = if rng.random_range(0..4) == 0 { LATER } else { ECHO };
            let call = client.call_within(to, handler, within, |bytes| bytes.extend(text(id, len)));
            executor.spawn(async move {
                match call.await {
                    Ok(reply) => assert_eq!(*reply, reply_to(id)),
                    Err(error) => assert!(short, "seed {seed}, call {id}: {error}"),
                }
            });
        }
        executor.run_with(|| {
            client.poll(16);
            reply_when_due(&server, &postponed);
            server.poll(16);
            net.advance(TURN_NS);
        });
        let order = journal.take().1;
        assert!(order.is_sorted_by(|a, b| a < b), "seed {seed}: {order:?}");
        assert!(impatient || order.len() == 40, "seed {seed}: {order:?}");
    }
}

#[test]
fn a_hundred_kilobytes_cross_a_network_that_loses_a_fifth() {
    for seed in 0..5 {
        let chaos = Chaos {
            loss_percent: 20,
            duplicate_percent: 5,
            delay_ns: (1_000, 20_000),
            datagram_bytes: 1500,
        };
        let net = Net::new(seed, chaos);
        let (client, server) =
            (Rpc::new(net.port(node(0, 1)), config()), Rpc::new(net.port(node(1, 1)), config()));
        server.register(ECHO, |request, reply| {
            reply.extend(request.bytes.iter().rev());
            Answer::Now
        });
        let request = text(seed, 100_000);
        let mut executor = Executor::new();
        executor.spawn(async {
            let to = Peer { node: node(1, 1), thread: 0 };
            for _ in 0..3 {
                let reply = client.call(to, ECHO, |bytes| bytes.extend(&request)).await.unwrap();
                assert!(reply.iter().rev().eq(&request));
            }
        });
        executor.run_with(|| {
            client.poll(16);
            server.poll(16);
            net.advance(TURN_NS);
        });
        assert_eq!(server.stats().executed, 3);
    }
}

/// Runs calls to a server that dies in the middle and restarts. Returns the number of times that each request ran,
/// and the result of each call.
fn with_a_restart(seed: u64) -> (BTreeMap<u64, u32>, BTreeMap<u64, Result<(), FabricError>>) {
    let net = Net::new(seed, Chaos::of(seed));
    let journal = Journal::default();
    let ends = RefCell::new(BTreeMap::new());
    let client = Rpc::new(net.port(node(0, 1)), config());
    let live = |incarnation| {
        let rpc = Rpc::new(net.port(node(1, incarnation)), config());
        serve(&rpc, &journal, &Postponed::default());
        rpc
    };
    let mut server = live(1);
    let restart_turn = seeded(seed, 5).random_range(1..60);
    let mut executor = Executor::new();
    for id in 0..24 {
        let (client, ends) = (&client, &ends);
        executor.spawn(async move {
            let to = Peer { node: node(1, 1), thread: 0 };
            let within = Nanos(20_000_000);
            let handler = if id % 5 == 4 { LATER } else { ECHO };
            let call = client.call_within(to, handler, within, |bytes| bytes.extend(text(id, 150)));
            let end = call.await.map(|reply| assert_eq!(*reply, reply_to(id)));
            ends.borrow_mut().insert(id, end);
        });
    }
    let mut turn = 0;
    executor.run_with(|| {
        turn += 1;
        if turn == restart_turn {
            server = live(2);
        }
        client.poll(16);
        server.poll(16);
        net.advance(TURN_NS);
    });
    let mut executor = Executor::new();
    executor.spawn(async {
        let call = |incarnation, id| {
            let to = Peer { node: node(1, incarnation), thread: 0 };
            client.call(to, ECHO, move |bytes| bytes.extend(text(id, 9)))
        };
        assert_eq!(*call(2, 99).await.unwrap(), reply_to(99), "the new life serves");
        let old = call(1, 98).await.map(|_| ());
        assert_eq!(old, Err(FabricError::NodeDown(node(1, 1).slot)), "the old is over");
    });
    executor.run_with(|| {
        client.poll(16);
        server.poll(16);
        net.advance(TURN_NS);
    });
    drop(executor);
    (journal.take().0, ends.take())
}

#[test]
fn a_restart_ends_calls_and_runs_nothing_twice() {
    let mut broken = 0;
    for seed in 0..500 {
        let (counts, ends) = with_a_restart(seed);
        assert!(counts.values().all(|&count| count == 1), "seed {seed}: {counts:?}");
        for (id, end) in ends {
            match end {
                Ok(()) => assert_eq!(counts.get(&id), Some(&1)),
                Err(FabricError::NodeDown(_)) => broken += 1,
                Err(error) => panic!("seed {seed}, call {id}: {error}"),
            }
        }
    }
    assert!(broken > 500, "calls were hardly disturbed: {broken}");
}

#[test]
fn packets_of_a_dead_client_do_not_mix_with_its_next_life() {
    for seed in 0..500 {
        let net = Net::new(seed, Chaos::of(seed));
        let (journal, postponed) = (Journal::default(), Postponed::default());
        let server = Rpc::new(net.port(node(1, 1)), config());
        serve(&server, &journal, &postponed);
        let turns_of_first_life = seeded(seed, 5).random_range(1..60);
        for life in 1..3 {
            let client = Rpc::new(net.port(node(0, life)), config());
            let mut executor = Executor::new();
            for id in 0..24 {
                let (id, client) = (id + u64::from(life) * 100, &client);
                let handler = if id % 5 == 4 { LATER } else { ECHO };
                executor.spawn(async move {
                    let to = Peer { node: node(1, 1), thread: 0 };
                    let request = |bytes: &mut Vec<u8>| bytes.extend(text(id, 300));
                    assert_eq!(*client.call(to, handler, request).await.unwrap(), reply_to(id));
                });
            }
            let mut turn = 0;
            while executor.live() > 0 && (life > 1 || turn < turns_of_first_life) {
                turn += 1;
                executor.turn();
                client.poll(16);
                reply_when_due(&server, &postponed);
                server.poll(16);
                net.advance(TURN_NS);
            }
        }
        let counts = journal.take().0;
        assert!(counts.values().all(|&count| count == 1), "seed {seed}: {counts:?}");
        assert_eq!(counts.range(200..).count(), 24);
    }
}
