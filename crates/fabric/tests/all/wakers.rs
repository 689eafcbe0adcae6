//! Tests that every future of the fabric completes on an executor that polls only woken futures.
//!
//! Invariant checked: no poll returns "not ready" without a call of the waker. If a poll does, the test fails
//! immediately instead of waiting for ever.

use crate::common::{Chaos, Net, node};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot, Target};
use tarn_fabric::clock::Nanos;
use tarn_fabric::local::{Backing, LocalConfig, LocalFabric};
use tarn_fabric::port::Port;
use tarn_fabric::round::Round;
use tarn_fabric::rpc::{Answer, HandlerId, Peer, Rpc, RpcConfig};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls `future` only when it was woken, with `duty` between polls. Returns the future's output, and the number of
/// polls that returned "not ready".
fn run_woken<T>(name: &str, future: impl Future<Output = T>, duty: impl Fn()) -> (T, usize) {
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    for pending in 0.. {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return (value, pending);
        }
        let wakes = count.0.swap(0, Ordering::Relaxed);
        assert!(wakes > 0, "{name}: not ready, and its waker was not called");
        duty();
    }
    unreachable!("a loop without an end")
}

fn compute(slot: u16) -> NodeId {
    NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }
}

fn word() -> Target {
    Address::new(GroupId(0), 4096).at(NodeSlot(0))
}

fn port() -> Port {
    let config = LocalConfig { backing: Backing::Private, ..LocalConfig::default() };
    LocalFabric::new(&config).expect("a small one").port(compute(0), 0, 1)
}

/// Runs the future, and asserts that at least one poll returned "not ready". Otherwise the test would prove nothing
/// about wakers.
fn waits<T>(name: &str, future: impl Future<Output = T>) -> T {
    let (value, pending) = run_woken(name, future, || ());
    assert!(pending > 0, "{name}: it was never not ready");
    value
}

#[test]
fn a_port_s_futures_call_their_wakers() {
    let port = port();
    waits("yield_now", port.yield_now());
    let before = port.now();
    waits("sleep", port.sleep(Nanos(200_000)));
    assert!(port.now() >= before + Nanos(200_000));

    let mut round = Round::new();
    let found = round.faa(word(), 5);
    waits("execute", port.execute(&mut round)).expect("nothing breaks");
    assert_eq!(round.found(found), 0);

    let mut later = Round::new();
    later.faa(word(), 1);
    let sent = port.post_detached(&mut later).expect("nothing breaks");
    run_woken("settle", port.settle(sent), || ()).0.expect("nothing breaks");

    let mut warmed = Round::new();
    warmed.read(word(), 8);
    run_woken("warm", port.warm(&warmed), || ());
    waits("travel", port.near().expect("memory of this process").travel());
}

#[test]
fn windows_and_waits_call_their_wakers() {
    let port = port();
    run_woken("open_window", port.open_window(), || ());
    let (wait, _) = run_woken("begin_wait", port.begin_wait(), || ());
    waits("end_wait", port.end_wait(wait, Nanos(200_000)));
}

#[test]
fn a_call_calls_its_waker_until_the_reply_is_there() {
    const ECHO: HandlerId = HandlerId(0);
    let net = Net::new(1, Chaos::CALM);
    let client = Rpc::new(net.port(node(0, 1)), RpcConfig::default());
    let server = Rpc::new(net.port(node(1, 1)), RpcConfig::default());
    server.register(ECHO, |request, reply| {
        reply.extend_from_slice(request.bytes);
        Answer::Now
    });
    let to = Peer { node: node(1, 1), thread: 0 };
    let call = client.call(to, ECHO, |bytes| bytes.extend_from_slice(b"hello"));
    let turn = || {
        client.poll(64);
        server.poll(64);
        net.advance(2_000);
    };
    let (reply, pending) = run_woken("call", call, turn);
    assert!(pending > 0);
    assert_eq!(&*reply.expect("an answer"), b"hello");
}
