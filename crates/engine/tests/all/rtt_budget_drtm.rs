//! The RTT budget of DrTM: the table in `protocol/drtm/mod.rs`, asserted by counting.
//!
//! Every assertion below gives the rounds until the reply, the detached rounds (posted before the reply, not
//! awaited), and the verbs of both. One coroutine runs at a time. Leases that must hold last four
//! milliseconds, longer than any two transactions of a test take. Leases that must have ended are slept
//! through.

use crate::common::budget::{Cost, add_one, measure, phase, read};
use crate::common::*;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_store::schema::TableId;

const NARROW: TableId = TableId(0);
const LONG_NS: u32 = 4_000_000;

fn world(lease_ns: u32, replicas: usize) -> World {
    let schemas = [narrow("narrow", 4000)];
    let mut shape = Shape::of(&schemas).protocol("drtm").nodes(replicas, replicas);
    shape.options.placement = tarn_store::placement::catalog::Placement::Table;
    shape.read_lease_ns = lease_ns;
    World::new(&shape)
}

fn reading(rounds: u64, reads: u64, cas: u64) -> Cost {
    Cost { rounds, detached: 0, reads, writes: 0, cas }
}

#[test]
fn a_read_costs_one_atomic_or_two_after_the_end_of_a_lease() {
    let world = world(LONG_NS, 1);
    let (mut cold, mut warm) = (world.coordinator(0, 0), world.coordinator(1, 1024));
    fill(&mut cold, NARROW, 1..10);
    let keys = [1, 2, 3];
    let cost = measure(&mut cold, false, async |tx| read(tx, NARROW, &keys).await);
    assert_eq!(cost, reading(2, 6, 3), "the bin, then lease and record");
    let cost = measure(&mut warm, false, async |tx| read(tx, NARROW, &keys).await);
    assert_eq!(cost, reading(2, 6, 3), "leases of another that still hold are as good");
    let cost = measure(&mut warm, false, async |tx| read(tx, NARROW, &keys).await);
    assert_eq!(cost, reading(1, 3, 3), "at remembered addresses");
    block_on(warm.context().port.sleep(Nanos(u64::from(LONG_NS) + 1_000_000)));
    let cost = measure(&mut warm, false, async |tx| read(tx, NARROW, &keys).await);
    assert_eq!(cost, reading(2, 6, 6), "leases have run out: refused, then replaced");
    assert_eq!(phase(warm.context(), "in_lease"), 3);
    assert_eq!(phase(warm.context(), "validate"), 0);
    world.assert_clean();
}

#[test]
fn a_writer_logs_behind_its_lock_and_waits_out_a_lease() {
    for replicas in [1, 3] {
        let world = world(LONG_NS, replicas);
        let (mut cold, mut warm) = (world.coordinator(0, 0), world.coordinator(1, 1024));
        fill(&mut cold, NARROW, 1..10);
        let writes = 2 * replicas as u64;
        let cost = measure(&mut cold, false, async |tx| add_one(tx, NARROW, &[1]).await);
        assert_eq!(cost, Cost { rounds: 4, detached: 1, reads: 2, writes, cas: 2 });
        measure(&mut warm, false, async |tx| read(tx, NARROW, &[1]).await);
        let before = warm.context().port.now();
        let cost = measure(&mut warm, false, async |tx| add_one(tx, NARROW, &[1]).await);
        assert_eq!(cost, Cost { rounds: 4, detached: 1, reads: 2, writes, cas: 3 }, "once more");
        let passed = warm.context().port.now() - before;
        assert!(passed > Nanos(u64::from(LONG_NS) / 2), "{passed:?} of the lease waited out");
        assert_eq!(phase(warm.context(), "wait_out"), 1);
        let cost = measure(&mut warm, false, async |tx| add_one(tx, NARROW, &[1]).await);
        assert_eq!(cost, Cost { rounds: 3, detached: 1, reads: 1, writes, cas: 2 });
        world.assert_clean();
    }
}

#[test]
fn without_leases_it_validates() {
    let world = world(0, 1);
    let mut cold = world.coordinator(0, 0);
    fill(&mut cold, NARROW, 1..10);
    let cost = measure(&mut cold, false, async |tx| read(tx, NARROW, &[1, 2, 3]).await);
    assert_eq!(cost, reading(2, 6, 0));
    assert_eq!(phase(cold.context(), "validate"), 1);
}

/// As in the public code: each record's lock is awaited before the next is requested.
#[test]
fn without_locking_together_each_record_takes_a_round() {
    let schemas = [narrow("narrow", 4000)];
    let mut shape = Shape::of(&schemas).protocol("drtm").variant("corrected,-lock-together");
    shape = shape.nodes(1, 1);
    shape.read_lease_ns = LONG_NS;
    let world = World::new(&shape);
    let (mut cold, mut warm) = (world.coordinator(0, 0), world.coordinator(1, 1024));
    fill(&mut cold, NARROW, 1..10);
    let keys = [1, 2, 3];
    let cost = measure(&mut cold, false, async |tx| read(tx, NARROW, &keys).await);
    assert_eq!(cost, reading(4, 6, 3), "all bins, then one record after the other");
    measure(&mut warm, false, async |tx| read(tx, NARROW, &keys).await);
    let cost = measure(&mut warm, false, async |tx| read(tx, NARROW, &keys).await);
    assert_eq!(cost, reading(3, 3, 3), "at remembered addresses");
    block_on(warm.context().port.sleep(Nanos(u64::from(LONG_NS) + 1_000_000)));
    let cost = measure(&mut warm, false, async |tx| add_one(tx, NARROW, &keys).await);
    assert_eq!(cost.rounds, 3 * 2 + 2, "a lease that has ended stands at each; then log and data");
    world.assert_clean();
}
