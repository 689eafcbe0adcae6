//! Tests of leases whose length is adjusted to the length of transactions, while transactions run on two nodes.
//!
//! Invariant: no test result depends on the speed of this machine. A lease of a nanosecond is too short for any
//! transaction, and the longest lease is too long. So the manager lengthens the short lease and shortens the long
//! lease, however long a transaction takes.

use crate::common::budget::{add_one, read};
use crate::common::*;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tarn_engine::cluster::lease::{Delays, LEASE_NS_MAX, LeasePolicy, SAMPLE, Stage};
use tarn_engine::cluster::membership::EmbeddedMembership;
use tarn_engine::requests::read_lease::manager::LeaseKeeper;
use tarn_engine::services::lease_desk::Adjustments;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::Executor;
use tarn_store::schema::TableId;

const TABLE: TableId = TableId(0);
/// The interval between the manager's checks of the delays, in nanoseconds.
const EVERY_NS: u64 = 200_000;
/// The time limit of a run. No run of these tests takes as long as this limit.
const PATIENCE: Nanos = Nanos(20_000_000_000);

/// The nodes that run a lease keeper and so may adjust leases.
#[derive(Clone, Copy, PartialEq)]
enum Keepers {
    Both,
    Nobody,
}

/// Runs readers and a writer on two nodes until the manager has adjusted a lease or `transactions` transactions have
/// run. Returns the managers' adjustments, the counted delays, and the lease length at the end.
fn run(length_ns: u32, keepers: Keepers, transactions: u64) -> (Adjustments, Delays, u32) {
    let policy = LeasePolicy::new(EVERY_NS, (1, LEASE_NS_MAX)).unwrap();
    let shape = Shape::of(&[narrow("narrow", 4000)]).protocol("oocc");
    let world = World::new(&shape);
    let service = EmbeddedMembership::new(shape.compute_nodes).leasing_reads(length_ns).unwrap();
    let database = world.with_membership(Arc::new(service.adjusting_reads(Some(policy))));
    let world = World { database, ..world };
    let contexts: Vec<Rc<Context>> = (0..2).map(|slot| world.context(slot, 1024)).collect();
    fill(&mut coordinator(&contexts[0], 0), TABLE, 1..10);
    let (done, is_over) = (Cell::new(0), Cell::new(false));
    let begun = contexts[0].port.now();
    let mut executor = Executor::new();
    for (at, cx) in contexts.iter().enumerate() {
        let mut by: Coordinator = coordinator(cx, at as u32);
        let (done, is_over, world) = (&done, &is_over, &world);
        executor.spawn(async move {
            while !is_over.get() {
                let has_come = world.database.lease_desk.adjustments().count > 0;
                let is_late = by.context().port.now() > begun + PATIENCE;
                if has_come || is_late || done.get() >= transactions {
                    is_over.set(true);
                }
                by.transact(async |tx| match at {
                    0 => add_one(tx, TABLE, &[1, 2]).await,
                    _ => read(tx, TABLE, &[1, 2, 3]).await,
                })
                .await
                .unwrap();
                done.set(done.get() + 1);
            }
        });
        if keepers == Keepers::Both {
            let keeper = LeaseKeeper::near(Rc::clone(cx)).expect("it is asked for");
            executor.spawn(async move { keeper.run(|| !is_over.get()).await });
        }
    }
    executor.run();
    drop(executor);
    drop(contexts);
    let desk = &world.database.lease_desk;
    let length_ns = world.database.membership.read_lease().read_ns();
    (desk.adjustments(), desk.gone(), length_ns)
}

#[test]
fn a_lease_that_is_too_short_is_raised_and_one_that_is_too_long_lowered() {
    let (told, counted, length_ns) = run(1, Keepers::Both, u64::MAX);
    let raised = told.first[0];
    assert_eq!((raised.from_ns, raised.to_ns), (1, length_ns), "{told:?}");
    assert!(length_ns > 1 && raised.reads > 0 && raised.in_lease == 0, "{told:?}");
    assert!(raised.took > Nanos(0) && told.longest_ns >= raised.took.0, "{told:?}");
    assert!(counted.percentile(80).is_some_and(|passed| passed.0 <= u64::from(LEASE_NS_MAX)));
    let (told, _, length_ns) = run(LEASE_NS_MAX / 8, Keepers::Both, u64::MAX);
    assert!(length_ns < LEASE_NS_MAX / 8 && told.count > 0, "{told:?}");
}

#[test]
fn a_lease_without_a_manager_stays_and_counts_match_the_reads() {
    let (told, counted, length_ns) = run(1, Keepers::Nobody, 40 * SAMPLE);
    assert_eq!((told, length_ns), (Adjustments::default(), 1));
    assert!(counted.reads() >= SAMPLE && counted.in_lease() == 0);
    for stage in Stage::ALL {
        let spent = counted.spent(stage);
        assert!(spent.count > 0 && spent.sum_ns > 0, "{stage:?}: {spent:?}");
    }
    let (_, counted, _) = run(5_000_000, Keepers::Nobody, 2 * SAMPLE);
    assert!(counted.in_lease() > 0, "5 ms are enough for three READs of this machine's memory");
}

#[test]
fn without_a_policy_no_manager_runs() {
    let shape = Shape::of(&[narrow("narrow", 4000)]).protocol("oocc").leasing_reads(1_000);
    let world = World::new(&shape);
    assert!(LeaseKeeper::near(world.context(0, 0)).is_none());
}
