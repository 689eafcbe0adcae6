//! Tests of FORD as in its public code. The tests check the verbs of one transaction in the variant `measured`. The
//! tests also check lookups that read buckets with other shapes than our own.
//!
//! Invariant checked: a commit posts {WRITE LOCK, WRITE item} and then a WRITE that clears LOCK, for each record and
//! replica. The commit writes a log at every replica of one group, and posts a READ at each backup of the last
//! record. A lookup has one READ of the bucket and one READ of each block of its chain. With each shape of bucket the
//! database has the same content.

use crate::common::*;
use std::collections::BTreeMap;
use tarn_engine::admin::load::{Loader, Part};
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::session::coordinator::Coordinator;
use tarn_fabric::counters::Counts;
use tarn_fabric::executor::block_on;
use tarn_store::layout::BucketShape;
use tarn_store::placement::catalog::{Options, Placement};
use tarn_store::schema::{Cells, TableId};

const FIRST: TableId = TableId(0);
const SECOND: TableId = TableId(1);
const BUCKET_BYTES: u64 = 64 + 22 * 64;

/// Creates a cluster with two tables on two of three nodes, in buckets of 22 slots of 64 bytes.
fn world(variant: &str, slots_per_100_records: u32) -> World {
    let mut shape = Shape::of(&[half("first", 2_000), half("second", 2_000)]);
    shape = shape.nodes(3, 3).variant(variant);
    let bucket = BucketShape { slots: 22, slot_bytes_min: 64, read_whole: true };
    let placement = Placement::Table;
    shape.options = Options { bucket, placement, slots_per_100_records, ..shape.options };
    World::new(&shape)
}

fn load(world: &World, keys: std::ops::Range<u64>) {
    let cx = world.context(6, 0);
    block_on(async {
        let mut loader = Loader::new(&cx, Part { index: 0, of: 1 });
        for key in keys {
            for table in [FIRST, SECOND] {
                loader.insert(table, key, |row| row.set(A, key)).await?;
            }
        }
        loader.finish().await
    })
    .expect("loaded");
}

/// Reads some records and adds one to other records, in one transaction. Returns the counts of its verbs.
fn spend(by: &mut Coordinator, reads: &[(TableId, u64)], writes: &[(TableId, u64)]) -> Counts {
    let before = by.context().port.counts();
    block_on(by.transact(async |tx| {
        let seen: Vec<_> =
            reads.iter().map(|&(table, key)| tx.read(table, key, Cells::ALL)).collect();
        let rows: Vec<_> =
            writes.iter().map(|&(table, key)| tx.update(table, key, Cells::ALL)).collect();
        tx.fetch().await?;
        assert!(seen.into_iter().all(|row| tx.existed(row)));
        for row in rows {
            let value = tx.get(row).expect("there").u64(A);
            tx.set(row, A, value + 1);
        }
        Ok(())
    }))
    .expect("committed");
    by.context().port.counts() - before
}

fn verbs(counts: Counts) -> (u64, u64, u64) {
    (counts.verbs[0], counts.verbs[1], counts.verbs[2])
}

#[test]
fn a_measured_transaction_sends_the_verbs_of_the_public_code() {
    let world = world("measured", 200);
    load(&world, 1..1_000);
    let mut by = world.coordinator(0, 0);
    // A read-only transaction reads the bucket. If it reads several records, it also reads each version a second
    // time.
    let one = spend(&mut by, &[(FIRST, 1)], &[]);
    assert_eq!((verbs(one), one.rounds, one.bytes_in), ((1, 0, 0), 1, BUCKET_BYTES));
    let two = spend(&mut by, &[(FIRST, 1), (SECOND, 1)], &[]);
    assert_eq!((verbs(two), two.rounds), ((2 + 2, 0, 0), 2));
    // For one record, the first verbs are: the READ of the bucket; {CAS, READ}; WRITEs of the log to three replicas.
    // The other verbs are: WRITEs of {LOCK, item} to three replicas with a flush READ at two; WRITEs that clear LOCK
    // at three replicas.
    let one = spend(&mut by, &[], &[(FIRST, 1)]);
    assert_eq!((verbs(one), one.rounds), ((1 + 1 + 2, 3 + 6 + 3, 1), 5));
    // A transaction on three records in two tables still needs only one log and one flush.
    let three = spend(&mut by, &[], &[(FIRST, 1), (SECOND, 1), (SECOND, 2)]);
    assert_eq!((verbs(three), three.rounds), ((3 + 3 + 2, 3 + 18 + 9, 3), 5));
    // A transaction validates a record that it only reads.
    let mixed = spend(&mut by, &[(FIRST, 3)], &[(SECOND, 3)]);
    // The READ of the validation travels with the log.
    assert_eq!((verbs(mixed), mixed.rounds), ((2 + 1 + 1 + 2, 12, 1), 5));
    world.assert_clean();
}

/// The verbs and rounds of a transaction that looks for a key which no record has.
fn look_for_nothing(variant: &str) -> ((u64, u64, u64), u64) {
    let world = world(variant, 200);
    load(&world, 1..100);
    let mut by = world.coordinator(0, 0);
    let before = by.context().port.counts();
    assert_eq!(value_of(&mut by, FIRST, 5_000), None);
    let counts = by.context().port.counts() - before;
    (verbs(counts), counts.rounds)
}

#[test]
fn a_measured_transaction_finds_by_one_read_that_a_key_is_absent() {
    assert_eq!(look_for_nothing("measured"), ((1, 0, 0), 1));
    // The proof reads the directory record, the slots, and the directory record's head again.
    assert_eq!(look_for_nothing("corrected"), ((1 + 3, 0, 0), 2));
}

#[test]
fn without_the_lock_cas_all_other_verbs_stay() {
    let world = world("measured,unsafe-no-lock-cas", 200);
    load(&world, 1..100);
    let mut by = world.coordinator(0, 0);
    let one = spend(&mut by, &[], &[(FIRST, 1)]);
    assert_eq!((verbs(one), one.rounds), ((4, 12, 0), 5));
    world.assert_clean();
}

#[test]
fn a_chain_is_read_block_by_block() {
    // With 22 slots per 100 records, each bucket has four or five blocks.
    let world = world("measured", 22);
    load(&world, 0..2_000);
    let audit = world.assert_clean();
    // The limits apply to 20 buckets in each of two tables. About 100 records belong to each bucket.
    assert!((120..=180).contains(&audit.overflow_blocks), "{}", audit.overflow_blocks);
    let mut by = world.coordinator(0, 0);
    let mut reads = 0;
    for key in 0..2_000 {
        reads += spend(&mut by, &[(FIRST, key)], &[]).verbs[0];
    }
    let mean = reads as f64 / 2_000.0;
    assert!((2.3..3.3).contains(&mean), "{mean} READs a lookup");
}

/// Inserts, updates, deletes and looks up keys in buckets of this shape, and compares the results with a map.
fn agrees_with_a_map(variant: &str, bucket: BucketShape, slots_per_100_records: u32) {
    let mut shape = Shape::of(&[half("half", 40), double("double", 40)]).variant(variant);
    shape.options = Options { bucket, slots_per_100_records, ..shape.options };
    let world = World::new(&shape);
    let mut by = world.coordinator(0, 64);
    let mut model = [BTreeMap::new(), BTreeMap::new()];
    let mut rng = tarn_fabric::rng::seeded(11, 5);
    for step in 0..1_500u64 {
        use rand::RngExt as _;
        let (table, key) = (rng.random_range(0..2u16), rng.random_range(0..120u64));
        let known = &mut model[usize::from(table)];
        let table = TableId(table);
        match rng.random_range(0..4) {
            0 => {
                let found = value_of(&mut by, table, key);
                assert_eq!(found, known.get(&key).copied(), "step {step}");
            }
            1 => {
                let deleted = block_on(by.transact(async |tx| {
                    let row = tx.delete(table, key);
                    tx.fetch().await?;
                    Ok(tx.existed(row))
                }));
                assert_eq!(deleted, Ok(known.remove(&key).is_some()), "step {step}");
            }
            2 if known.contains_key(&key) => {
                spend(&mut by, &[], &[(table, key)]);
                known.entry(key).and_modify(|value| *value += 1);
            }
            _ => {
                if known.insert(key, key).is_some() {
                    known.insert(key, value_of(&mut by, table, key).expect("there"));
                } else {
                    fill(&mut by, table, [key]);
                }
            }
        }
    }
    let audit = world.assert_clean();
    assert_eq!(audit.records, model.iter().map(|known| known.len() as u64).sum::<u64>());
}

#[test]
fn a_database_is_the_same_in_buckets_of_any_shape() {
    for slots in [8, 13, 22] {
        for slot_bytes_min in [0, 64, 192] {
            for read_whole in [false, true] {
                let shape = BucketShape { slots, slot_bytes_min, read_whole };
                agrees_with_a_map("corrected", shape, 200);
                agrees_with_a_map("corrected", shape, 10);
            }
            let shape = BucketShape { slots, slot_bytes_min, read_whole: true };
            for slots_per_100_records in [200, 10] {
                agrees_with_a_map("corrected,-prove-absent", shape, slots_per_100_records);
            }
        }
    }
}

#[test]
fn a_variant_has_one_name() {
    let complaint = |variant| match AnyProtocol::by_name("ford", variant) {
        Ok(_) => panic!("{variant} was taken"),
        Err(error) => error.to_string(),
    };
    for variant in ["measured,-lock-cas", "corrected,unsafe-no-fuse-log", "unsafe-no-lock-cas"] {
        assert!(complaint(variant).contains("unsafe-no-NAME (lock-cas)"), "{variant}");
    }
    let measured = AnyProtocol::by_name("ford", "measured").expect("a variant");
    assert_eq!(measured.unsafe_without(), None);
    assert!(measured.refuse_unsafe("measured").is_ok());
    let unsafe_one = "literal,unsafe-no-lock-cas";
    let without = AnyProtocol::by_name("ford", unsafe_one).expect("for simulations");
    assert_eq!(without.unsafe_without(), Some("lock-cas"));
    let refused = without.refuse_unsafe(unsafe_one).expect_err("refused").to_string();
    assert!(refused.contains("variant = literal,unsafe-no-lock-cas"), "{refused}");
    assert!(refused.contains("in simulations only"), "{refused}");
}
