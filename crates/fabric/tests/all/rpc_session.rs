//! Tests guarantees of the RPC layer other than correctness: credits, batching, bounds, time-outs, and no allocations
//! after the first calls.
//!
//! Invariant checked: on a network that disturbs no datagram, the counts of datagrams, calls and allocations are
//! those that each guarantee allows.

use crate::common::{Chaos, Net, node, text};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::Executor;
use tarn_fabric::local::probe::allocations_of_this_thread;
use tarn_fabric::local::{Backing, LocalConfig, LocalFabric};
use tarn_fabric::rpc::{Answer, CallFuture, HandlerId, Peer, ReplyToken, Rpc, RpcConfig};

const ECHO: HandlerId = HandlerId(0);
const HOLD: HandlerId = HandlerId(1);

struct Pair {
    net: Net,
    client: Rpc,
    server: Rpc,
    held: Rc<RefCell<Vec<ReplyToken>>>,
}

const SERVER: Peer = Peer { node: node(1, 1), thread: 0 };

impl Pair {
    fn new(config: RpcConfig) -> Pair {
        let net = Net::new(1, Chaos::CALM);
        let client = Rpc::new(net.port(node(0, 1)), config);
        let server = Rpc::new(net.port(node(1, 1)), config);
        let held = Rc::new(RefCell::new(Vec::new()));
        server.register(ECHO, |request, reply| {
            reply.extend_from_slice(request.bytes);
            Answer::Now
        });
        let hold = Rc::clone(&held);
        server.register(HOLD, move |request, _| {
            hold.borrow_mut().push(request.token);
            Answer::Later
        });
        Pair { net, client, server, held }
    }

    fn turn(&self) {
        self.client.poll(64);
        self.server.poll(64);
        self.net.advance(2_000);
    }

    fn wait(&self, call: CallFuture) -> Result<Vec<u8>, FabricError> {
        let result = RefCell::new(None);
        let mut executor = Executor::new();
        executor
            .spawn(async { *result.borrow_mut() = Some(call.await.map(|reply| reply.to_vec())) });
        executor.run_with(|| self.turn());
        drop(executor);
        result.into_inner().unwrap()
    }
}

#[test]
fn requests_in_flight_never_exceed_the_credits() {
    let pair = Pair::new(RpcConfig { credits: 5, queue_max: 20, ..RpcConfig::default() });
    let mut calls: Vec<CallFuture> =
        (0..25).map(|n| pair.client.call(SERVER, HOLD, |bytes| bytes.push(n))).collect();
    let refused = pair.client.call(SERVER, HOLD, |_| ());
    assert_eq!(pair.wait(refused), Err(FabricError::Overloaded(SERVER.node.slot)));
    let mut replied = 0;
    while replied < 25 {
        (0..10).for_each(|_| pair.turn());
        let held = pair.held.take();
        assert_eq!(held.len(), 5, "all credits are used, and no more");
        for token in held {
            assert!(pair.server.reply(token, |reply| reply.push(7)));
            replied += 1;
        }
    }
    for call in calls.drain(..) {
        assert_eq!(pair.wait(call), Ok(vec![7]));
    }
}

#[test]
fn packets_of_one_turn_share_datagrams() {
    let pair = Pair::new(RpcConfig::default());
    let calls: Vec<CallFuture> =
        (0..20).map(|n| pair.client.call(SERVER, ECHO, |bytes| bytes.push(n))).collect();
    assert_eq!(pair.net.sent(), 0, "nothing leaves before the poll");
    pair.client.poll(64);
    assert_eq!(pair.net.sent(), 1, "twenty requests, one datagram");
    pair.net.advance(2_000);
    pair.server.poll(64);
    assert_eq!(pair.net.sent(), 2, "twenty replies, one datagram");
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(pair.wait(call), Ok(vec![n as u8]));
    }
    assert_eq!(pair.net.sent(), 2);
}

#[test]
fn a_call_without_an_answer_times_out_and_its_slot_serves_again() {
    let pair = Pair::new(RpcConfig { credits: 1, ..RpcConfig::default() });
    let late = pair.client.call_within(SERVER, HOLD, Nanos(3_000_000), |_| ());
    assert_eq!(pair.wait(late), Err(FabricError::TimedOut(SERVER.node.slot)));
    assert!(pair.client.stats().retransmissions >= 2);
    let echo = pair.client.call(SERVER, ECHO, |bytes| bytes.push(1));
    assert_eq!(pair.wait(echo), Ok(vec![1]));
    let token = pair.held.borrow_mut().pop().unwrap();
    assert!(!pair.server.reply(token, |reply| reply.push(9)), "nobody waits for it any more");
    let unknown = pair.client.call_within(SERVER, HandlerId(77), Nanos(3_000_000), |_| ());
    assert_eq!(pair.wait(unknown), Err(FabricError::TimedOut(SERVER.node.slot)));
    assert!(pair.server.stats().refused > 0);
}

#[test]
fn dropped_calls_give_their_slots_back() {
    let pair = Pair::new(RpcConfig { credits: 2, ..RpcConfig::default() });
    for _ in 0..500 {
        drop(pair.client.call(SERVER, ECHO, |bytes| bytes.push(1)));
        drop(pair.client.call_within(SERVER, HOLD, Nanos(100_000), |_| ()));
        (0..60).for_each(|_| pair.turn());
        let echo = pair.client.call(SERVER, ECHO, |bytes| bytes.push(2));
        assert_eq!(pair.wait(echo), Ok(vec![2]));
    }
}

#[test]
fn messages_above_the_limit_are_refused_and_those_at_it_pass() {
    let pair = Pair::new(RpcConfig { message_bytes_max: 50_000, ..RpcConfig::default() });
    let message = text(1, 50_000);
    let largest = pair.client.call(SERVER, ECHO, |bytes| bytes.extend(&message));
    assert_eq!(pair.wait(largest), Ok(message));
    let error = FabricError::MessageTooLarge { bytes: 50_001, limit_bytes: 50_000 };
    let larger = pair.client.call(SERVER, ECHO, |bytes| bytes.resize(50_001, 0));
    assert_eq!(pair.wait(larger), Err(error));
    let empty = pair.client.call(SERVER, ECHO, |_| ());
    assert_eq!(pair.wait(empty), Ok(vec![]));
}

#[test]
fn a_handler_may_call_and_notify() {
    let pair = Pair::new(RpcConfig::default());
    let heard = Rc::new(Cell::new(0));
    let count = Rc::clone(&heard);
    pair.client.register(ECHO, move |request, _| {
        count.set(count.get() + request.bytes[0]);
        Answer::Now
    });
    let server = pair.server.clone();
    pair.server.register(HandlerId(5), move |request, _| {
        server.notify(request.from, ECHO, |bytes| bytes.push(42)).unwrap();
        assert_eq!(server.poll(9), 0, "a handler does not drive");
        Answer::Now
    });
    let call = pair.client.call(SERVER, HandlerId(5), |_| ());
    assert_eq!(pair.wait(call), Ok(vec![]));
    (0..5).for_each(|_| pair.turn());
    assert_eq!(heard.get(), 42);
}

#[test]
fn a_warm_layer_allocates_nothing() {
    let config = LocalConfig { backing: Backing::Private, ..LocalConfig::default() };
    let fabric = LocalFabric::new(&config).unwrap();
    let client = Rpc::new(fabric.port(node(0, 1), 0, 1), RpcConfig::default());
    let server = Rpc::new(fabric.port(node(1, 1), 0, 1), RpcConfig::default());
    server.register(ECHO, |request, reply| {
        reply.extend_from_slice(request.bytes);
        Answer::Now
    });
    let warm = Cell::new(0);
    let rounds = 2_000;
    let mut executor = Executor::new();
    for task in 0..8 {
        let (client, warm) = (&client, &warm);
        executor.spawn(async move {
            for round in 0..rounds {
                if task == 0 && round == rounds / 2 {
                    warm.set(allocations_of_this_thread());
                }
                // The sizes of messages repeat, and some messages need four fragments.
                let len = if (round + task) % 10 == 0 { 12_000 } else { 100 };
                let fill = |bytes: &mut Vec<u8>| bytes.resize(len, task as u8);
                let reply = client.call(SERVER, ECHO, fill).await.unwrap();
                assert_eq!((reply.len(), reply[0]), (len, task as u8));
            }
        });
    }
    executor.run_with(|| {
        client.poll(64);
        server.poll(64);
    });
    let since = allocations_of_this_thread() - warm.get();
    assert!(since <= 8, "{since} allocations in {} calls", 4 * rounds);
    assert_eq!(server.stats().executed, 8 * rounds as u64);
}

/// A forged request of one fragment, which a test encodes into the bytes of a datagram.
struct Forged {
    seq: u64,
    slot: u16,
    handler: HandlerId,
    payload: Vec<u8>,
}

impl Forged {
    fn datagram(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let payload_bytes = self.payload.len() as u16;
        // The header of the datagram: the magic number, the incarnations of both ends, and the number of packets
        // (one).
        [0x7a01u16, 1, 1, 1].iter().for_each(|half| bytes.extend(half.to_le_bytes()));
        bytes.extend([1, 0]);
        bytes.extend(self.slot.to_le_bytes());
        bytes.extend(u32::from(payload_bytes).to_le_bytes());
        bytes.extend(self.seq.to_le_bytes());
        bytes.extend(self.handler.0.to_le_bytes());
        bytes.extend(payload_bytes.to_le_bytes());
        bytes.extend([0; 12]);
        bytes.extend(&self.payload);
        bytes
    }
}

#[test]
fn bad_requests_are_refused_and_counted_and_nothing_runs() {
    let config = LocalConfig { backing: Backing::Private, ..LocalConfig::default() };
    let fabric = LocalFabric::new(&config).unwrap();
    let client = fabric.port(node(0, 1), 0, 1);
    let server = Rpc::new(fabric.port(node(1, 1), 0, 1), RpcConfig::default());
    const NONE: HandlerId = HandlerId(1);
    server.register(ECHO, |request, reply| {
        reply.extend_from_slice(request.bytes);
        Answer::Now
    });
    server.register(NONE, |_, reply| {
        reply.push(7);
        Answer::Refused
    });
    let send = |datagram: &[u8]| {
        client.send(SERVER.endpoint(), datagram).unwrap();
        server.poll(64);
        let mut replies = 0;
        client.receive(64, &mut |_, _| replies += 1);
        (server.stats().refused, server.stats().executed, replies)
    };
    let forged = |seq, slot, handler| Forged { seq, slot, handler, payload: vec![1, 2] }.datagram();
    // The greatest number is refused, because no number follows it.
    assert_eq!(send(&forged(u64::MAX, 0, ECHO)), (1, 0, 0));
    assert_eq!(send(&forged(0, 0, ECHO)), (2, 0, 0));
    assert_eq!(send(&forged(u64::MAX - 1, 0, ECHO)), (2, 1, 1));
    assert_eq!(send(&forged(1, u16::MAX, ECHO)), (3, 1, 0));
    // A request that its handler refuses gets no reply, even if the request arrives again.
    assert_eq!(send(&forged(1, 1, NONE)), (4, 2, 0));
    assert_eq!(send(&forged(1, 1, NONE)), (4, 2, 0));
    assert_eq!(send(&forged(2, 1, ECHO)), (4, 3, 1));
    // Whatever bytes a datagram contains, the server does not fail. A later incarnation of the server starts with new
    // sessions.
    let mut state = 7u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    for _ in 0..50_000 {
        let mut datagram = forged(draw(4), draw(3) as u16, HandlerId(draw(3) as u16));
        for _ in 0..draw(4) {
            // The test does not change the incarnations in the datagram, because a later incarnation correctly ends
            // the session.
            let at = 8 + draw(datagram.len() as u64 - 8) as usize;
            datagram[at] = [0, 1, 0x7f, 0xff, draw(256) as u8][draw(5) as usize];
        }
        datagram.truncate(datagram.len() - draw(2) as usize * draw(40) as usize);
        if !datagram.is_empty() {
            send(&datagram);
        }
    }
    let (_, executed, _) = send(&forged(u64::MAX - 1, 9, ECHO));
    assert!(executed > 3, "{:?}", server.stats());
}
