//! Makes calls on the same network as the transactions. The network loses, duplicates, delays and reorders the
//! datagrams of these calls.
//!
//! Invariant: each call is executed once, and its caller gets the reply to this call. Code of the engine that sends
//! messages relies on this promise.

use super::cluster::Cluster;
use super::desk::{Calls, Desk};
use super::drawn::Drawn;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rpc::{Answer, HandlerId, Peer, Rpc, RpcConfig};
use tarn_sim::scheduler::Scheduler;

const CALLS: u64 = 4;
const SQUARE: HandlerId = HandlerId(0);
/// How often each side checks for messages.
const LOOK_AGAIN: Nanos = Nanos(5_000);

/// The two threads of the calls. The coroutines of the transactions do not use these two threads.
struct Ends {
    client: Rpc,
    server: Rpc,
    to: Peer,
    executed: Rc<RefCell<BTreeMap<u64, u32>>>,
    is_over: Cell<bool>,
}

/// Returns the configuration of calls on a network that loses many messages.
pub(super) fn config() -> RpcConfig {
    RpcConfig {
        retransmit_after: Nanos(30_000),
        deadline: Nanos(60_000_000),
        ..RpcConfig::default()
    }
}

/// Adds a caller on the first compute node and a server on the last.
pub(super) fn spawn<'a, T>(
    scheduler: &mut Scheduler<'a>,
    cluster: &Cluster,
    (first, last): (NodeId, NodeId),
    drawn: &Drawn,
    desk: &'a Desk<T>,
) {
    let threads = drawn.threads as u16;
    let port = |node, thread| cluster.fabric.port(node, thread, cluster.seed());
    let (caller, callee) = (port(first, threads), port(last, threads + 1));
    let config = config();
    let ends = Rc::new(Ends {
        client: Rpc::new(caller.clone(), config),
        server: Rpc::new(callee.clone(), config),
        to: Peer { node: last, thread: threads + 1 },
        executed: Rc::default(),
        is_over: Cell::new(false),
    });
    let executed = Rc::clone(&ends.executed);
    ends.server.register(SQUARE, move |request, reply| {
        let number = u64::from_le_bytes(request.bytes.try_into().expect("eight bytes"));
        *executed.borrow_mut().entry(number).or_default() += 1;
        reply.extend((number * number).to_le_bytes());
        Answer::Now
    });
    for port in [&caller, &callee] {
        let (ends, by, is_caller) =
            (Rc::clone(&ends), port.clone(), port.endpoint() == caller.endpoint());
        scheduler.spawn(port, async move {
            while !ends.is_over.get() {
                let end = if is_caller { &ends.client } else { &ends.server };
                end.poll(16);
                by.sleep(LOOK_AGAIN).await;
            }
        });
    }
    scheduler.spawn(&caller, call(ends, desk));
}

async fn call<T>(ends: Rc<Ends>, desk: &Desk<T>) {
    let mut calls = Calls::default();
    let mut wrong = None;
    for number in 1..=CALLS {
        let fill = |bytes: &mut Vec<u8>| bytes.extend(number.to_le_bytes());
        match ends.client.call(ends.to, SQUARE, fill).await {
            Ok(reply) if *reply == (number * number).to_le_bytes() => calls.replied += 1,
            Ok(reply) => wrong = Some(format!("call {number}: the reply was {:?}", &*reply)),
            Err(error) => wrong = Some(format!("call {number}: {error}")),
        }
    }
    ends.is_over.set(true);
    calls.retransmissions = ends.client.stats().retransmissions;
    calls.duplicates = ends.server.stats().duplicates;
    if ends.executed.borrow().values().any(|times| *times != 1) {
        wrong = Some(format!("calls were executed {:?} times", ends.executed.borrow()));
    }
    let mut left = desk.left.borrow_mut();
    left.failures.extend(wrong);
    left.incidents.calls = calls;
}
