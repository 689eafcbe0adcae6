//! Measures the cost of a message between two threads of this machine, first for the mailbox alone and then for a
//! call.
//!
//! Invariant: there is one client thread, and one server thread that only answers. Each printed figure is the median
//! of five repetitions of a fixed length. So a busy machine makes the figures worse, but does not make the run
//! longer.
//!
//! `cargo run --release -p tarn-fabric --example messages`

#![allow(clippy::disallowed_methods, reason = "measures the machine")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::executor::Executor;
use tarn_fabric::local::{LocalConfig, LocalFabric};
use tarn_fabric::rpc::{Answer, HandlerId, Peer, Rpc, RpcConfig};

/// The length of a repetition.
const REPETITION: Duration = Duration::from_millis(300);
const ECHO: HandlerId = HandlerId(0);
const SERVER: NodeId = NodeId { slot: NodeSlot(1), incarnation: Incarnation(1) };
const CLIENT: NodeId = NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) };
const PEER: Peer = Peer { node: SERVER, thread: 0 };

fn main() {
    // Each repetition creates its own fabric, because within one fabric an endpoint may have only one `Rpc` per
    // incarnation.
    let fabric = || LocalFabric::new(&LocalConfig::default()).expect("64 MiB of memory");
    println!("datagram of 64 bytes, there and back: {:.0} ns", median(|| datagrams(&fabric())));
    for (coroutines, bytes) in [(1, 32), (16, 32), (32, 32), (1, 65_536)] {
        let time = median(|| calls(&fabric(), coroutines, bytes));
        println!(
            "call, {bytes} bytes there and back, {coroutines} at once: {time:.0} ns a call, \
             {:.2} M/s",
            1e3 / time
        );
    }
}

fn median(mut measure: impl FnMut() -> f64) -> f64 {
    let mut results: Vec<f64> = (0..5).map(|_| measure()).collect();
    results.sort_by(f64::total_cmp);
    results[2]
}

/// Runs `serve` until `work` has returned.
fn beside<T>(serve: impl FnOnce(&dyn Fn() -> bool) + Send, work: impl FnOnce() -> T) -> T {
    let (ready, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            serve(&|| {
                ready.store(true, Ordering::Release);
                !stop.load(Ordering::Acquire)
            });
        });
        while !ready.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let result = work();
        stop.store(true, Ordering::Release);
        result
    })
}

fn datagrams(fabric: &Arc<LocalFabric>) -> f64 {
    let serve = |go_on: &dyn Fn() -> bool| {
        let port = fabric.port(SERVER, 0, 1);
        while go_on() {
            let mut heard = false;
            port.receive(1, &mut |_, _| heard = true);
            if heard {
                port.send(CLIENT_ENDPOINT, &[0; 64]).expect("it fits");
            }
        }
    };
    beside(serve, || {
        let port = fabric.port(CLIENT, 0, 1);
        let start = Instant::now();
        let mut trips = 0u32;
        while start.elapsed() < REPETITION {
            for _ in 0..100 {
                port.send(PEER.endpoint(), &[0; 64]).expect("it fits");
                while port.receive(1, &mut |_, _| ()) == 0 {}
            }
            trips += 100;
        }
        start.elapsed().as_nanos() as f64 / f64::from(trips)
    })
}

const CLIENT_ENDPOINT: tarn_fabric::backend::Endpoint =
    tarn_fabric::backend::Endpoint { node: CLIENT.slot, thread: 0 };

fn calls(fabric: &Arc<LocalFabric>, coroutines: u32, bytes: usize) -> f64 {
    let serve = |go_on: &dyn Fn() -> bool| {
        let rpc = Rpc::new(fabric.port(SERVER, 0, 1), RpcConfig::default());
        rpc.register(ECHO, |request, reply| {
            reply.extend_from_slice(request.bytes);
            Answer::Now
        });
        while go_on() {
            rpc.poll(64);
        }
    };
    beside(serve, || {
        let rpc = Rpc::new(fabric.port(CLIENT, 0, 1), RpcConfig::default());
        let start = Instant::now();
        let done = Cell::new(0u32);
        let mut executor = Executor::new();
        for _ in 0..coroutines {
            executor.spawn(async {
                while start.elapsed() < REPETITION {
                    let call = rpc.call(PEER, ECHO, |request| request.resize(bytes, 1));
                    assert_eq!(call.await.expect("the server lives").len(), bytes);
                    done.set(done.get() + 1);
                }
            });
        }
        executor.run_with(|| _ = rpc.poll(64));
        drop(executor);
        start.elapsed().as_nanos() as f64 / f64::from(done.get())
    })
}
