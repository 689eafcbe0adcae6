//! The RTT budget of Motor: the table in `protocol/motor/mod.rs`, asserted by counting.
//!
//! Every assertion below gives the rounds until the reply, the detached rounds (posted before the reply, not
//! awaited), and the verbs of both. One coroutine runs, except where a comment says otherwise.

use crate::common::budget::{Cost, add_one, measure, read, reading};
use crate::common::*;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::{IndexKey, Scan, Transaction};
use tarn_fabric::executor::block_on;
use tarn_store::ids::AbortReason;
use tarn_store::schema::{Cells, TableId};

const NARROW: TableId = TableId(0);
const DOUBLE: TableId = TableId(1);
const REPLICAS: [usize; 2] = [1, 3];

/// The cost of updating `records` records: log, and {delta, value, head} of each, to every replica. With one
/// copy the release is a WRITE in the data's batch. With several it is a round of CAS that is not awaited.
fn writing(replicas: usize, rounds: u64, reads: u64, records: u64) -> Cost {
    let data = (1 + 3 * records) * replicas as u64;
    match replicas {
        1 => Cost { rounds, detached: 0, reads, writes: data + records, cas: records },
        _ => Cost { rounds, detached: 1, reads, writes: data, cas: 2 * records },
    }
}

struct Bench {
    world: World,
    /// Without an address cache.
    cold: Coordinator,
    /// Remembers addresses.
    warm: Coordinator,
    other: Coordinator,
}

fn bench(replicas: usize, variant: &str) -> Bench {
    let schemas = [narrow("narrow", 4000), double("double", 4000)];
    let mut shape =
        Shape::of(&schemas).protocol("motor").nodes(replicas, replicas).variant(variant);
    shape.options.placement = tarn_store::placement::catalog::Placement::Table;
    let world = World::new(&shape);
    let mut cold = world.coordinator(0, 0);
    for table in [NARROW, DOUBLE] {
        fill(&mut cold, table, 1..10);
    }
    let (mut warm, other) = (world.coordinator(1, 1024), world.coordinator(2, 0));
    for table in [NARROW, DOUBLE] {
        measure(&mut warm, false, async |tx| read(tx, table, &[1, 2, 3]).await);
    }
    Bench { world, cold, warm, other }
}

#[test]
fn a_declared_reader_takes_two_rounds_and_one_with_remembered_addresses() {
    for replicas in REPLICAS {
        let Bench { mut cold, mut warm, .. } = bench(replicas, "corrected");
        for keys in [&[1][..], &[1, 2, 3]] {
            let count = keys.len() as u64;
            let cost = measure(&mut cold, true, async |tx| read(tx, NARROW, keys).await);
            assert_eq!(cost, reading(2, 2 * count));
            let cost = measure(&mut warm, true, async |tx| read(tx, NARROW, keys).await);
            assert_eq!(cost, reading(1, 2 * count));
            // A value of two lines: its head is read once more.
            let cost = measure(&mut cold, true, async |tx| read(tx, DOUBLE, keys).await);
            assert_eq!(cost, reading(2, 3 * count));
            let cost = measure(&mut warm, true, async |tx| read(tx, DOUBLE, keys).await);
            assert_eq!(cost, reading(1, 3 * count));
        }
        // A missing record: its bin, then its bucket in three READs.
        let absent = async |tx: &mut Transaction<'_>| {
            assert!(tx.get_row(NARROW, 77u64).await?.is_none());
            Ok(())
        };
        assert_eq!(measure(&mut cold, true, absent), reading(2, 4));
    }
}

#[test]
fn an_undeclared_reader_of_several_records_validates_them() {
    let Bench { mut cold, mut warm, .. } = bench(3, "corrected");
    let cost = measure(&mut cold, false, async |tx| read(tx, NARROW, &[1]).await);
    assert_eq!(cost, reading(2, 2));
    let cost = measure(&mut cold, false, async |tx| read(tx, NARROW, &[1, 2]).await);
    assert_eq!(cost, reading(3, 6));
    let cost = measure(&mut warm, false, async |tx| read(tx, NARROW, &[1, 2]).await);
    assert_eq!(cost, reading(2, 6));
}

#[test]
fn a_write_is_three_rounds_two_with_a_remembered_address_and_one_more_to_validate() {
    for replicas in REPLICAS {
        let Bench { world, mut cold, mut warm, .. } = bench(replicas, "corrected");
        for keys in [&[1][..], &[1, 2, 3]] {
            let count = keys.len() as u64;
            let cost = measure(&mut cold, false, async |tx| add_one(tx, NARROW, keys).await);
            assert_eq!(cost, writing(replicas, 3, 3 * count, count));
            let cost = measure(&mut warm, false, async |tx| add_one(tx, NARROW, keys).await);
            assert_eq!(cost, writing(replicas, 2, 2 * count, count));
        }
        let cost = measure(&mut warm, false, async |tx| {
            tx.read(NARROW, 2u64, Cells::ALL);
            add_one(tx, NARROW, &[1]).await
        });
        assert_eq!(cost, writing(replicas, 3, 2 + 2 + 1, 1));
        // Requested for update and not changed: nothing to write.
        let cost = measure(&mut warm, false, async |tx| {
            tx.update(NARROW, 1u64, Cells::ALL);
            Ok(())
        });
        assert_eq!(cost, Cost { rounds: 1, detached: 1, reads: 2, writes: 0, cas: 2 });
        world.assert_clean();
    }
}

#[test]
fn inserts_and_deletes_lock_their_bucket_as_well() {
    for replicas in REPLICAS {
        let Bench { world, mut cold, .. } = bench(replicas, "corrected");
        let inserted = measure(&mut cold, false, async |tx| {
            tx.insert_zeros(NARROW, 50u64);
            tx.fetch().await
        });
        assert_eq!((inserted.rounds, inserted.detached), (3, u64::from(replicas > 1)));
        let deleted = measure(&mut cold, false, async |tx| {
            tx.delete(NARROW, 50u64);
            tx.fetch().await
        });
        assert_eq!((deleted.rounds, deleted.detached), (3, u64::from(replicas > 1)));
        world.assert_clean();
    }
}

#[test]
fn a_refused_lock_costs_its_round_and_the_release_of_granted_locks() {
    let Bench { world, mut warm, mut other, .. } = bench(3, "corrected");
    let held = block_on(other.transact(async |tx| {
        tx.update(NARROW, 2u64, Cells::ALL);
        tx.fetch().await?;
        let cost = measure(&mut warm, false, async |tx| add_one(tx, NARROW, &[1, 2]).await);
        assert_eq!(cost, Cost { rounds: 1, detached: 1, reads: 4, writes: 0, cas: 3 });
        // A snapshot looks again, three times, and gives up.
        let again = measure(&mut warm, true, async |tx| read(tx, NARROW, &[2]).await);
        assert_eq!(again, reading(4, 8));
        Ok(())
    }));
    held.expect("nobody else wants it");
    let refused = warm.context().metrics.snapshot().aborts[AbortReason::LockRefused as usize];
    assert_eq!(refused, 1);
    world.assert_clean();
}

#[test]
fn the_published_system_sends_four_writes_a_record_and_replica_and_awaits_none() {
    for replicas in REPLICAS {
        let Bench { mut cold, mut warm, .. } = bench(replicas, "literal");
        for keys in [&[1][..], &[1, 2, 3]] {
            let count = keys.len() as u64;
            let writes = 4 * count * replicas as u64;
            let cost = measure(&mut cold, false, async |tx| add_one(tx, NARROW, keys).await);
            assert_eq!(cost, Cost { rounds: 3, detached: 1, reads: 3 * count, writes, cas: count });
            let cost = measure(&mut warm, false, async |tx| add_one(tx, NARROW, keys).await);
            assert_eq!(cost, Cost { rounds: 2, detached: 1, reads: 2 * count, writes, cas: count });
            let cost = measure(&mut warm, true, async |tx| read(tx, DOUBLE, keys).await);
            assert_eq!(cost, reading(2, 2 * count));
        }
    }
}

/// A scan whose path is remembered reads its leaves in one round, three READs each. A scan of a snapshot
/// needs no more. In a transaction that may write, several leaves are validated. A new entry costs a round:
/// lock and leaf.
#[test]
fn a_scan_of_a_snapshot_is_not_validated_and_an_index_costs_a_round() {
    for replicas in REPLICAS {
        let schema = narrow("t", 4000).ordered("by_key");
        let world = World::new(&Shape::of(&[schema]).protocol("motor").nodes(replicas, replicas));
        let mut by = world.coordinator(0, 0);
        fill(&mut by, NARROW, (0..400).map(|key| key * 2));
        let by_key = world.database.catalog.index_id("t", "by_key").unwrap();
        let mut scan = |declared: bool, from: u64, to: u64| {
            measure(&mut by, declared, async |tx| {
                let range = Scan::range(IndexKey::new().u64(from), IndexKey::new().u64(to));
                let seen = tx.scan(by_key, range.limit(100));
                tx.fetch().await?;
                assert_eq!(tx.scanned(seen).count() as u64, (to - from) / 2 + 1);
                Ok(())
            })
        };
        for (from, to) in [(0, 10), (0, 160)] {
            let _ = scan(true, from, to); // learns the path
            let (snapshot, checked) = (scan(true, from, to), scan(false, from, to));
            let leaves = snapshot.reads / 3;
            assert_eq!((snapshot, leaves > 1), (reading(1, 3 * leaves), to > 10));
            let validated = if leaves > 1 { leaves } else { 0 };
            assert_eq!(checked, reading(1 + validated.min(1), 3 * leaves + validated));
        }
        let inserted = measure(&mut by, false, async |tx| {
            tx.insert_zeros(NARROW, 5u64);
            tx.fetch().await
        });
        assert_eq!((inserted.rounds, inserted.detached), (4, u64::from(replicas > 1)));
        world.assert_clean();
    }
}

/// With whole versions no delta is written, and a value waits for its head. If heads have a round of their
/// own, there is one more round and no other change.
#[test]
fn a_whole_version_is_one_write_less_and_a_round_of_heads_one_round_more() {
    for replicas in REPLICAS {
        for (extra, log, round) in [("", 0, 0), (",-at-once", 1, 1)] {
            let corrected = format!("corrected,-deltas{extra}");
            let Bench { world, mut cold, mut warm, .. } = bench(replicas, &corrected);
            for keys in [&[1][..], &[1, 2, 3]] {
                let count = keys.len() as u64;
                let whole = |rounds, reads| {
                    let cost = writing(replicas, rounds + round, reads, count);
                    let writes = cost.writes - count * replicas as u64;
                    Cost { writes, ..cost }
                };
                let cost = measure(&mut cold, false, async |tx| add_one(tx, NARROW, keys).await);
                assert_eq!(cost, whole(4, 3 * count), "{corrected}");
                let cost = measure(&mut warm, false, async |tx| add_one(tx, NARROW, keys).await);
                assert_eq!(cost, whole(3, 2 * count), "{corrected}");
                let cost = measure(&mut warm, true, async |tx| read(tx, NARROW, keys).await);
                assert_eq!(cost, reading(2, 2 * count), "{corrected}");
            }
            world.assert_clean();
            // As published: values, heads, unlocks. There is also a log, which the steps towards LOTUS add.
            let with_log = if log > 0 { ",+undo-log" } else { "" };
            let measured = format!("measured,-deltas{extra}{with_log}");
            let Bench { mut warm, .. } = bench(replicas, &measured);
            for keys in [&[1][..], &[1, 2, 3]] {
                let count = keys.len() as u64;
                let writes = (3 * count + log) * replicas as u64;
                let cost = measure(&mut warm, false, async |tx| add_one(tx, NARROW, keys).await);
                let rounds = 2 + round;
                let (reads, cas) = (2 * count, count);
                assert_eq!(cost, Cost { rounds, detached: 1, reads, writes, cas }, "{measured}");
            }
        }
    }
}
