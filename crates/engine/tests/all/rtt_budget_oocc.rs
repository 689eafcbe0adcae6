//! The RTT budget of OOCC: the table in `protocol/oocc/mod.rs`, asserted by counting.
//!
//! Every assertion below gives the rounds until the reply, the detached rounds (posted before the reply, not
//! awaited), and the verbs of both. One coroutine runs, except where a comment says otherwise. Memory is not
//! near: near memory needs no rounds, and one more look for a record outside of its bucket.

use crate::common::budget::{Cost, add_one, measure, phase, read, reading};
use crate::common::*;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::schema::range::{IndexKey, Scan};
use tarn_store::schema::{Cells, TableId};

const NARROW: TableId = TableId(0);
const DOUBLE: TableId = TableId(1);
const REPLICAS: [usize; 2] = [1, 3];
/// Longer than any test takes to read.
const LONG_NS: u32 = 10_000_000;
/// Shorter than any read takes.
const SHORT_NS: u32 = 1;

struct Bench {
    world: World,
    /// Without an address cache.
    cold: Coordinator,
    /// Remembers addresses.
    warm: Coordinator,
}

fn bench(replicas: usize, variant: &str, lease_ns: u32) -> Bench {
    let schemas = [narrow("narrow", 4000), double("double", 4000)];
    let shape = Shape::of(&schemas).protocol("oocc").nodes(replicas, replicas).variant(variant);
    let mut shape = shape.leasing_reads(lease_ns);
    shape.options.placement = tarn_store::placement::catalog::Placement::Table;
    shape.near = false;
    let world = World::new(&shape);
    let mut cold = world.coordinator(0, 0);
    for table in [NARROW, DOUBLE] {
        fill(&mut cold, table, 1..10);
    }
    let mut warm = world.coordinator(1, 1024);
    for table in [NARROW, DOUBLE] {
        measure(&mut warm, false, async |tx| read(tx, table, &[1, 2, 3]).await);
    }
    Bench { world, cold, warm }
}

/// The cost of updating `records` records of `lines` lines: the log once, {first line, other lines} of each,
/// to every replica. With one copy the release is in the data's batch, behind a mark. With several it is a
/// round of CAS that is not awaited.
fn writing(replicas: usize, rounds: u64, reads: u64, (records, lines): (u64, u64)) -> Cost {
    let data = (1 + records * lines) * replicas as u64;
    // Each lock word is locked and raised.
    let cas = 2 * records;
    match replicas {
        1 => Cost { rounds, detached: 0, reads, writes: data + 1 + records, cas },
        _ => Cost { rounds, detached: 1, reads, writes: data, cas: cas + records },
    }
}

#[test]
fn a_reader_in_lease_takes_one_round_without_an_atomic() {
    for replicas in REPLICAS {
        let Bench { mut cold, mut warm, .. } = bench(replicas, "corrected", LONG_NS);
        for (table, by) in [(NARROW, &mut cold), (DOUBLE, &mut warm)] {
            for keys in [&[1][..], &[1, 2], &[1, 2, 3]] {
                let cost = measure(by, false, async |tx| read(tx, table, keys).await);
                assert_eq!(cost, reading(1, keys.len() as u64));
            }
        }
        // Each batch of records that a reader requests later costs one more round, and no further look.
        let later = async |tx: &mut Transaction<'_>| {
            read(tx, NARROW, &[1, 2]).await?;
            read(tx, NARROW, &[3, 4]).await
        };
        assert_eq!(measure(&mut cold, false, later), reading(2, 4));
        // A missing record: its bin, then its bucket in three READs.
        let absent = async |tx: &mut Transaction<'_>| {
            assert!(tx.get_row(NARROW, 77u64).await?.is_none());
            Ok(())
        };
        assert_eq!(measure(&mut cold, false, absent), reading(2, 4));
        assert!(phase(cold.context(), "in_lease") > 0);
    }
}

#[test]
fn a_reader_that_is_too_slow_validates() {
    for (variant, lease_ns) in [("corrected", 0), ("corrected", SHORT_NS), ("corrected,-lease", 0)]
    {
        let Bench { mut cold, .. } = bench(3, variant, lease_ns);
        // One READ is of one moment.
        let cost = measure(&mut cold, false, async |tx| read(tx, DOUBLE, &[1]).await);
        assert_eq!(cost, reading(1, 1));
        for keys in [&[1, 2][..], &[1, 2, 3]] {
            let cost = measure(&mut cold, false, async |tx| read(tx, NARROW, keys).await);
            assert_eq!(cost, reading(2, 2 * keys.len() as u64));
        }
        assert_eq!(phase(cold.context(), "in_lease"), 0);
    }
}

#[test]
fn a_writer_takes_three_rounds_and_one_more_for_an_unknown_address() {
    for replicas in REPLICAS {
        let Bench { world, mut cold, mut warm } = bench(replicas, "corrected", 0);
        for (table, lines) in [(NARROW, 1), (DOUBLE, 2)] {
            for keys in [&[1][..], &[1, 2]] {
                let count = keys.len() as u64;
                let cost = measure(&mut warm, false, async |tx| add_one(tx, table, keys).await);
                assert_eq!(cost, writing(replicas, 3, count, (count, lines)));
                let cost = measure(&mut cold, false, async |tx| add_one(tx, table, keys).await);
                assert_eq!(cost, writing(replicas, 4, 2 * count, (count, lines)));
            }
        }
        // Another record is read as well: the lock is not raised, and that record is validated beside the log.
        let other = async |tx: &mut Transaction<'_>| {
            let row = tx.read(NARROW, 3u64, Cells::ALL);
            add_one(tx, NARROW, &[1]).await?;
            assert!(tx.get(row).is_some());
            Ok(())
        };
        let cost = measure(&mut warm, false, other);
        let expected = writing(replicas, 3, 3, (1, 1));
        assert_eq!(cost, Cost { cas: expected.cas - 1, ..expected });
        // A record is read after the lock is taken: the lock is raised in the READ's round.
        let later = async |tx: &mut Transaction<'_>| {
            add_one(tx, NARROW, &[1]).await?;
            read(tx, NARROW, &[3]).await
        };
        assert_eq!(measure(&mut warm, false, later), writing(replicas, 4, 3, (1, 1)));
        world.assert_clean();
    }
}

/// The wait is over before the data are sent, and the reply comes after them.
#[test]
fn a_writer_waits_its_lease() {
    let lease_ns = 2_000_000;
    let Bench { mut warm, .. } = bench(1, "corrected", lease_ns);
    let before = warm.context().port.now();
    let cost = measure(&mut warm, false, async |tx| add_one(tx, NARROW, &[1]).await);
    let took = warm.context().port.now() - before;
    assert_eq!(cost, writing(1, 3, 1, (1, 1)));
    assert!(took > Nanos(u64::from(lease_ns)), "{took:?}");
    assert_eq!(phase(warm.context(), "wait_out"), 1);
}

#[test]
fn a_refused_transaction_ends_at_once() {
    let Bench { world, mut warm, .. } = bench(3, "corrected", 0);
    let mut other = world.coordinator(2, 1024);
    measure(&mut other, false, async |tx| read(tx, NARROW, &[1, 2]).await);
    let cost = block_on(other.transact(async |tx| {
        add_one(tx, NARROW, &[1]).await?;
        let refused = async |tx: &mut Transaction<'_>| add_one(tx, NARROW, &[1]).await;
        let cost = measure(&mut warm, false, refused);
        Ok(cost)
    }));
    // Its own CAS was refused, so there is no lock to release.
    assert_eq!(cost, Ok(Cost { rounds: 1, detached: 0, reads: 1, writes: 0, cas: 1 }));
    let aborted = block_on(other.transact(async |tx| {
        add_one(tx, NARROW, &[1]).await?;
        Err::<(), Failure>(AbortReason::User.into())
    }));
    assert_eq!(aborted, Err(AbortReason::User.into()));
    world.assert_clean();
}

/// A transaction has logged a record of half a line and is refused. It first takes the entry back at every
/// copy. With one copy the entry could not be mistaken.
#[test]
fn a_log_is_taken_back_in_one_round() {
    for replicas in REPLICAS {
        let shape = Shape::of(&[half("half", 4000), narrow("narrow", 4000)]).protocol("oocc");
        let mut shape = shape.nodes(replicas, replicas);
        shape.options.placement = tarn_store::placement::catalog::Placement::Table;
        shape.near = false;
        let world = World::new(&shape);
        let [mut by, mut other] = [0, 1].map(|slot| world.coordinator(slot, 1024));
        let (half, narrow) = (TableId(0), TableId(1));
        for table in [half, narrow] {
            fill(&mut other, table, 1..10);
            measure(&mut by, false, async |tx| read(tx, table, &[1, 2]).await);
        }
        for table in [half, narrow] {
            let refused = async |tx: &mut Transaction<'_>| {
                read(tx, half, &[1]).await?;
                add_one(tx, table, &[2]).await?;
                block_on(other.transact(async |tx| add_one(tx, half, &[1]).await))
            };
            let cost = measure(&mut by, false, refused);
            // Read; lock and read; validate and log; and the log once more.
            let takes_back = u64::from(table == half && replicas > 1);
            let writes = replicas as u64 * (1 + takes_back);
            let rounds = 3 + takes_back;
            assert_eq!(cost, Cost { rounds, detached: 1, reads: 3, writes, cas: 2 });
            assert_eq!(phase(by.context(), "take_back"), u64::from(replicas > 1));
        }
        world.assert_clean();
    }
}

/// A scan whose path is remembered reads its leaves in one round, three READs each. In lease it looks at none
/// again. A new entry costs a round, lock and leaf, and a mark for each copy of a group that is written.
#[test]
fn a_range_in_lease_takes_one_round_and_a_change_of_an_index_one_more() {
    const LEASE_NS: u32 = 5_000_000;
    for (replicas, lease_ns) in [(1, LEASE_NS), (3, LEASE_NS), (3, 0)] {
        let schema = narrow("t", 4000).ordered("by_key");
        let shape = Shape::of(&[schema]).protocol("oocc").nodes(replicas, replicas);
        let mut shape = shape.leasing_reads(lease_ns);
        shape.near = false;
        let world = World::new(&shape);
        let mut by = world.coordinator(0, 0);
        fill(&mut by, NARROW, (0..100).map(|key| key * 2));
        let by_key = world.database.catalog.index_id("t", "by_key").unwrap();
        let mut scan = || {
            measure(&mut by, false, async |tx| {
                let range = Scan::range(IndexKey::new().u64(0), IndexKey::new().u64(198));
                let seen = tx.scan(by_key, range.limit(100));
                tx.fetch().await?;
                assert_eq!(tx.scanned(seen).count(), 100);
                Ok(())
            })
        };
        let _ = scan(); // learns the path
        let Cost { rounds, reads, .. } = scan();
        let validated = u64::from(lease_ns == 0);
        let leaves = reads / (3 + validated);
        assert!(leaves > 1);
        assert_eq!((rounds, reads), (1 + validated, (3 + validated) * leaves), "{lease_ns} ns");
        let insert = |key: u64| {
            async move |tx: &mut Transaction<'_>| {
                tx.insert_zeros(NARROW, key);
                tx.fetch().await
            }
        };
        let before = phase(by.context(), "mark");
        let cost = measure(&mut by, false, insert(5));
        // Bin and bucket; lock; leaf; raise, validate and log; write.
        assert_eq!((cost.rounds, phase(by.context(), "mark") - before), (5, 1), "{cost:?}");
        world.assert_clean();
    }
}
