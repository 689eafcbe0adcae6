//! Tests of the lock service over the port's datagrams: the messages that each kind of request costs, refusals, and
//! threads that end.
//!
//! Invariant checked: acknowledgements and resent mail are counted apart from messages. A request that is
//! dropped leaves no lock.

use crate::common::*;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tarn_engine::services::{ServiceOptions, Transport};
use tarn_engine::site::{ComputeNode, Context};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_fabric::rpc::RpcConfig;
use tarn_locks::service::{Grant, LockService as _, Patience, Refusal};
use tarn_locks::station::Counts;
use tarn_locks::value::{LockId, Mode};

/// One protocol for each service, and LOTUS, whose threads also call each other.
const SERVED: [&str; 5] =
    ["2pl/fisslock", "2pl/srvlock", "2pl/parlock", "2pl/netlock", "lotus/fisslock"];
const LOCK: LockId = LockId(7);
/// Nothing is lost here, so nothing is sent again.
const NEVER: Nanos = Nanos(1 << 60);

/// Compute nodes with one thread each. The first has the decider.
struct Nodes {
    all: Vec<Rc<Context>>,
    world: World,
}

impl Nodes {
    fn new(protocol: &'static str, count: u16) -> Nodes {
        let world = World::new(&Shape::of(&[narrow("narrow", 4)]).protocol(protocol));
        let context = |slot| {
            let id = world.database.membership.join(NodeSlot(slot)).expect("a first life");
            let rpc = RpcConfig { retransmit_after: NEVER, ..RpcConfig::DEFAULT };
            let new = ServiceOptions::new(1, usize::from(count));
            let options = ServiceOptions { rpc, transport: Transport::Rpc, ..new };
            let node = ComputeNode::serving(Arc::clone(&world.database), id, &options);
            world.thread(&Arc::new(node.expect("one thread")), 0, 0)
        };
        let all: Vec<Rc<Context>> = (0..count).map(context).collect();
        let nodes = Nodes { all, world };
        nodes.all.iter().for_each(|cx| _ = cx.lock_machine());
        nodes.settle();
        nodes
    }

    fn settle(&self) {
        (0..40).for_each(|_| self.all.iter().for_each(|cx| cx.serve()));
    }

    fn counts(&self) -> Counts {
        self.world.database.lock_stations.as_ref().expect("a lock service").counts()
    }

    /// Polls a request while all threads serve.
    fn poll<T>(&self, mut request: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        block_on(poll_fn(|waiting| {
            for _ in 0..40 {
                self.all.iter().for_each(|cx| cx.serve());
                if let Poll::Ready(done) = request.as_mut().poll(waiting) {
                    return Poll::Ready(Poll::Ready(done));
                }
            }
            Poll::Ready(Poll::Pending)
        }))
    }

    fn acquire(&self, at: usize, mode: Mode) -> Result<Grant, Refusal> {
        let service = self.all[at].lock_service().expect("a lock service");
        match self.poll(pin!(service.acquire(LOCK, mode, Patience::Try))) {
            Poll::Ready(done) => done,
            Poll::Pending => panic!("no answer"),
        }
    }

    fn release(&self, at: usize, grant: Grant) {
        self.all[at].lock_service().expect("a lock service").release(grant);
    }

    /// The cost of `act`: messages, acknowledgements, and resends.
    fn cost(&self, act: impl FnOnce()) -> (u64, u64, u64) {
        let before = self.counts();
        act();
        self.settle();
        let after = self.counts();
        (
            after.messages - before.messages,
            after.acknowledgements - before.acknowledgements,
            after.resends - before.resends,
        )
    }
}

#[test]
fn each_kind_of_request_costs_its_messages() {
    let nodes = Nodes::new("2pl/fisslock", 4);
    let grants = RefCell::new(Vec::new());
    let take = |at: usize, mode: Mode| {
        nodes.cost(|| grants.borrow_mut().push(nodes.acquire(at, mode).expect("granted")))
    };
    assert_eq!(take(1, Mode::Shared), (2, 0, 0), "a free lock");
    assert_eq!(take(2, Mode::Shared), (3, 1, 0), "shared beside shared");
    assert_eq!(take(1, Mode::Shared), (0, 0, 0), "beside the agent");
    let service = nodes.all[3].lock_service().expect("a lock service");
    let mut waits = pin!(service.acquire(LOCK, Mode::Exclusive, Patience::Forever));
    let queued = nodes.cost(|| assert!(nodes.poll(waits.as_mut()).is_pending()));
    assert_eq!(queued, (2, 1, 0), "a request that waits");
    let [free, beside, local] = grants.borrow()[..] else { panic!("three grants") };
    assert_eq!(nodes.cost(|| nodes.release(1, local)), (0, 0, 0), "beside the agent");
    assert_eq!(nodes.cost(|| nodes.release(2, beside)), (1, 1, 0), "of another machine");
    let transfer = nodes.cost(|| nodes.release(1, free));
    assert_eq!(transfer, (2, 1, 0), "the lock goes to the request that waits");
    let Poll::Ready(Ok(last)) = nodes.poll(waits) else { panic!("not granted") };
    assert!(last.token > beside.token, "a later holder has a greater token");
    assert_eq!(nodes.cost(|| nodes.release(3, last)), (2, 0, 0), "the last release");
}

#[test]
fn a_request_that_does_not_wait_is_refused_and_leaves_no_lock() {
    for protocol in ["2pl/fisslock", "2pl/fisslock-local"] {
        let nodes = Nodes::new(protocol, 3);
        let held = nodes.acquire(1, Mode::Exclusive).expect("free");
        assert_eq!(nodes.acquire(2, Mode::Shared), Err(Refusal::Busy));
        nodes.release(1, held);
        nodes.settle();
        let again = nodes.acquire(2, Mode::Exclusive).expect("free again");
        nodes.release(2, again);
        let service = nodes.all[0].lock_service().expect("a lock service");
        let outside = LockId(u32::MAX);
        let refused = nodes.poll(pin!(service.acquire(outside, Mode::Shared, Patience::Try)));
        assert!(matches!(refused, Poll::Ready(Err(Refusal::OutOfRange { .. }))), "{refused:?}");
    }
}

#[test]
fn every_service_grants_to_the_request_that_waits() {
    for protocol in SERVED {
        let nodes = Nodes::new(protocol, 3);
        let held = nodes.acquire(1, Mode::Exclusive).expect("free");
        let service = nodes.all[2].lock_service().expect("a lock service");
        let mut waits = pin!(service.acquire(LOCK, Mode::Shared, Patience::Forever));
        assert!(nodes.poll(waits.as_mut()).is_pending(), "{protocol}");
        nodes.release(1, held);
        assert!(matches!(nodes.poll(waits), Poll::Ready(Ok(_))), "{protocol}");
    }
}

/// The thread with the decider ends: another machine has it from then on, and held locks stay held.
#[test]
fn a_thread_that_ends_hands_the_decider_on() {
    for protocol in SERVED {
        let mut nodes = Nodes::new(protocol, 3);
        let held = nodes.acquire(1, Mode::Exclusive).expect("free");
        let view = |nodes: &Nodes| nodes.world.database.lock_stations.as_ref().unwrap().view();
        let before = view(&nodes);
        drop(nodes.all.remove(0));
        nodes.settle();
        assert!(view(&nodes) > before, "{protocol}");
        let service = nodes.all[1].lock_service().expect("a lock service");
        let mut waits = pin!(service.acquire(LOCK, Mode::Exclusive, Patience::Forever));
        assert!(nodes.poll(waits.as_mut()).is_pending(), "{protocol}");
        nodes.release(0, held);
        assert!(matches!(nodes.poll(waits), Poll::Ready(Ok(_))), "{protocol}");
    }
}
