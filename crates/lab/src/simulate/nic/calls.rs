//! Measures calls to one service node. Threads make these calls in a closed loop, through the message layer that
//! every fabric uses.
//!
//! Invariant: one coroutine makes all of a thread's calls; it polls the message layer and then checks its calls. So
//! the caller's cost of a call depends only on the profile. The cost does not depend on how often the coroutine
//! checks its calls. The calls of one thread go to different cores, because the layer packs calls to the same core
//! into one datagram.

use super::{Calls, Found, Watch, count, fabric, port};
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use tarn_engine::requests::timestamp::StampService;
use tarn_engine::services::timestamp::STAMP;
use tarn_fabric::backend::Cost;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rpc::{Answer, CallFuture, HandlerId, Peer, Rpc, RpcConfig};
use tarn_sim::config::ConfigError;
use tarn_sim::profile::Profile;
use tarn_sim::scheduler::Scheduler;
use tarn_sim::service::{NodeKind, ServiceConfig, ServiceNode};

const ECHO: HandlerId = HandlerId(0);
/// The number of datagrams that a caller receives in one poll.
const BUDGET: usize = 16;

/// Returns a configuration in which no request is sent again, so a request that is still in the
/// queue simply waits.
fn config(calls: Calls) -> RpcConfig {
    let credits = calls.depth.max(32);
    RpcConfig { credits, retransmit_after: Nanos(1_000_000_000), ..RpcConfig::default() }
}

/// A call in progress, and the time at which it began.
type UnderWay = (Pin<Box<CallFuture>>, Nanos);

fn begin(rpc: &Rpc, to: Peer, calls: Calls) -> UnderWay {
    let call = match calls.stamps {
        true => rpc.call(to, STAMP, |bytes| bytes.extend(u32::from(calls.together).to_le_bytes())),
        false => rpc.call(to, ECHO, |bytes| bytes.resize(calls.request_bytes.into(), 7)),
    };
    (Box::pin(call), rpc.port().now())
}

async fn caller(rpc: Rpc, to: Vec<Peer>, calls: Calls, watch: &Watch) {
    let mut all: Vec<UnderWay> = to.iter().map(|to| begin(&rpc, *to, calls)).collect();
    loop {
        std::future::poll_fn(|cx| {
            while rpc.poll(BUDGET) > 0 {}
            for (each, to) in all.iter_mut().zip(&to) {
                let Poll::Ready(reply) = each.0.as_mut().poll(cx) else { continue };
                let reply = reply.expect("the node answers");
                assert_eq!(reply.len(), usize::from(calls.reply_bytes));
                watch.note(rpc.port().now() - each.1, calls.together.into());
                *each = begin(&rpc, *to, calls);
            }
            rpc.poll(BUDGET);
            Poll::Ready(())
        })
        .await;
        rpc.port().yield_now().await;
    }
}

/// Makes the calls and returns the measured rate and latency.
pub(super) fn run(profile: &Profile, calls: Calls) -> Result<Found, ConfigError> {
    let fabric = fabric(profile, calls.clients)?;
    let kind = if calls.stamps { NodeKind::Timestamp } else { NodeKind::Control };
    let shape = ServiceConfig::new(kind, calls.cores);
    let datagrams_a_poll = calls.datagrams_a_poll.into();
    let node =
        ServiceNode::new(&fabric, ServiceConfig { datagrams_a_poll, rpc: config(calls), ..shape })?;
    node.register(ECHO, |port| {
        move |_, reply| {
            port.charge(Cost::WorkNanos(calls.handler_ns.into()));
            reply.resize(calls.reply_bytes.into(), 7);
            Answer::Now
        }
    });
    let service = StampService::of_no_database();
    node.register(STAMP, |port| service.handler(port));
    let watch = Watch::new();
    let mut scheduler = Scheduler::new(&fabric);
    node.start(&mut scheduler);
    for number in 0..calls.clients * calls.threads {
        let port = port(&fabric, number % calls.clients, number / calls.clients);
        let core = |call| (number * calls.depth + call) % calls.cores;
        let to = (0..calls.depth).map(|call| Peer { node: node.node(), thread: core(call) });
        let rpc = Rpc::new(port.clone(), config(calls));
        scheduler.spawn(&port, caller(rpc, to.collect(), calls, &watch));
    }
    Ok(count(&fabric, &mut scheduler, &watch))
}
