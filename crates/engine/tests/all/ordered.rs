//! Tests that compare ordered indexes with a map, one transaction after another.
//!
//! Invariant checked: scans in both directions, with and without limits, return the same as a `BTreeMap`, including
//! the transaction's own changes. Index entries follow inserts, deletes and updates. Nodes split and merge during the
//! test, and the audit at the end finds no error.

use crate::common::*;
use rand::RngExt;
use std::collections::BTreeMap;
use tarn_engine::admin::load::{Loader, Part};
use tarn_engine::protocol::ALL;
use tarn_engine::session::transaction::{IndexKey, Scan, ScanEntry, ScanHandle, Transaction};
use tarn_fabric::executor::block_on;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::schema::{Cells, ColumnId, IndexId, IndexPart, Key, TableId, TableSchema};

const T: TableId = TableId(0);

#[test]
fn scans_show_inserted_records() {
    let schema = narrow("t", 1000).ordered("by_key").index("by_a", &[IndexPart::Column(A)], false);
    let world = World::new(&Shape::of(&[schema]));
    let by_key = world.database.catalog.index_id("t", "by_key").unwrap();
    let by_a = world.database.catalog.index_id("t", "by_a").unwrap();
    let mut by = world.coordinator(0, 0);
    fill(&mut by, T, [5, 3, 9, 1]);
    let seen = block_on(by.transact(async |tx| {
        let all = tx.scan(by_key, Scan::prefix(IndexKey::new()));
        let back =
            tx.scan(by_a, Scan::range(IndexKey::new().u64(2), IndexKey::new().u64(5)).backward());
        tx.fetch().await?;
        let keys =
            |handle| tx.scanned(handle).map(|it| format!("{:?}", it.record)).collect::<Vec<_>>();
        Ok((keys(all), keys(back)))
    }))
    .unwrap();
    assert_eq!(seen.0, ["Word(1)", "Word(3)", "Word(5)", "Word(9)"]);
    assert_eq!(seen.1, ["Word(5)", "Word(3)"]);
}

/// Returns the keys of the records that a scan returns, for both kinds of index.
async fn scanned(
    tx: &mut Transaction<'_>,
    index: IndexId,
    scan: Scan,
) -> Result<Vec<u64>, Failure> {
    let handle = tx.scan(index, scan);
    tx.fetch().await?;
    Ok(words(tx, handle))
}

fn words(tx: &Transaction<'_>, handle: ScanHandle) -> Vec<u64> {
    let word = |entry: ScanEntry<'_>| match entry.record {
        Key::Word(word) => word,
        Key::Bytes(_) => panic!("keys are words"),
    };
    tx.scanned(handle).map(word).collect()
}

/// Runs random transactions. Each changes some records, and scans before and after the changes. The function compares
/// all results with a map.
fn against_a_model(
    (protocol, variant): (&'static str, &str),
    turns: u64,
    replicas: usize,
    seed: u64,
) {
    let keys = 3_000;
    let schema = narrow("t", 64)
        .ordered("by_key")
        .index("by_a", &[IndexPart::Column(A)], false)
        .index("by_low", &[IndexPart::KeyBits { shift: 0, bits: 4 }, IndexPart::Key], true);
    let shape = Shape::of(&[schema]).nodes(replicas, replicas).variant(variant);
    let world = World::new(&shape.protocol(protocol));
    let id = |name| world.database.catalog.index_id("t", name).unwrap();
    let (by_key, by_a, by_low) = (id("by_key"), id("by_a"), id("by_low"));
    let mut by = world.coordinator(0, 0);
    let mut other = world.coordinator(1, 0);
    let mut rng = tarn_fabric::rng::seeded(seed, 0);
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    for turn in 0..turns {
        // The map first fills, then empties, then fills again.
        let fills = (turn * 5 / turns).is_multiple_of(2);
        let wishes: Vec<(u64, u64, bool)> = (0..rng.random_range(1..8))
            .map(|_| {
                let inserts = rng.random_range(0..10) < if fills { 8 } else { 2 };
                let drawn = rng.random_range(0..keys);
                // The deleted key usually exists, so most deletes find a record.
                let there = model.range(drawn..).next().map_or(drawn, |(key, _)| *key);
                (if inserts { drawn } else { there }, rng.random_range(0..40), inserts)
            })
            .collect();
        let (from, to) = (rng.random_range(0..keys), rng.random_range(0..keys));
        let (a, limit, low) = (rng.random_range(0..40), rng.random_range(1..200), turn % 16);
        let mut after = model.clone();
        let result = block_on(by.transact(async |tx| {
            after.clone_from(&model);
            for &(key, value, inserts) in &wishes {
                if inserts {
                    let row = tx.insert(T, key);
                    tx.fetch().await?;
                    let row = match tx.existed(row) {
                        true => tx.update(T, key, Cells::ALL),
                        false => row,
                    };
                    tx.fetch().await?;
                    tx.set(row, A, value);
                    after.insert(key, value);
                } else if !after.contains_key(&key) || model.contains_key(&key) {
                    tx.delete(T, key);
                    tx.fetch().await?;
                    after.remove(&key);
                }
            }
            let range =
                Scan::range(IndexKey::new().u64(from), IndexKey::new().u64(to)).limit(limit);
            let seen = scanned(tx, by_key, range).await?;
            let expected = |map: &BTreeMap<u64, u64>| -> Vec<u64> {
                map.keys().copied().filter(|key| (from..=to).contains(key)).collect()
            };
            let all = expected(&after);
            assert_eq!(seen, all[..all.len().min(limit as usize)], "seed {seed}, turn {turn}");
            let seen = scanned(tx, by_key, range.backward()).await?;
            let back: Vec<u64> = all.into_iter().rev().take(limit as usize).collect();
            assert_eq!(seen, back, "seed {seed}, turn {turn}, backward");
            let seen = scanned(tx, by_a, Scan::prefix(IndexKey::new().u64(a))).await?;
            let of_a: Vec<u64> =
                after.iter().filter(|it| *it.1 == a).map(|(key, _)| *key).collect();
            assert_eq!(seen, of_a, "seed {seed}, turn {turn}, by a");
            let seen = scanned(tx, by_low, Scan::prefix(IndexKey::new().u8(low as u8))).await?;
            let of_low: Vec<u64> = after.keys().copied().filter(|key| key % 16 == low).collect();
            assert_eq!(seen, of_low, "seed {seed}, turn {turn}, by low bits");
            if turn % 7 == 0 { tx.abort() } else { Ok(()) }
        }));
        if turn % 7 != 0 {
            result.unwrap();
            model = after;
        }
        if turn % 16 == 0 {
            let all = Scan::prefix(IndexKey::new());
            let seen = block_on(other.transact(async |tx| scanned(tx, by_key, all).await)).unwrap();
            assert_eq!(seen, model.keys().copied().collect::<Vec<_>>(), "another's cache");
        }
    }
    world.assert_clean();
    let tally = by.context().metrics.snapshot();
    assert!(tally.node_splits > 8 && tally.node_merges > 4, "{tally:?}");
}

#[test]
fn scans_agree_with_a_map() {
    for (replicas, seed) in [(1, 1), (3, 2)] {
        for info in ALL.iter().filter(|info| info.caps.ranges) {
            against_a_model((info.name, "corrected"), 1_500, replicas, seed);
        }
    }
}

#[test]
fn a_trusted_stale_path_is_noticed() {
    let believing = || against_a_model(("ford", "corrected,-check-fences"), 3_000, 1, 1);
    let panic = std::panic::catch_unwind(believing).expect_err("nothing was missed");
    let text = panic.downcast_ref::<String>().expect("a text");
    // The text of the panic must report a difference in a scan, not another failure.
    let missed = ["turn ", "another's cache"];
    assert!(missed.iter().any(|words| text.contains(words)), "another panic: {text}");
}

/// Loads `keys` records by `loaders`, in two halves. The second half is loaded after the index of the first half has
/// been built.
fn load(world: &World, keys: u64, loaders: u32) {
    for half in 0..2 {
        for index in 0..loaders {
            let cx = world.context(index as u16, 0);
            block_on(async {
                let mut loader = Loader::new(&cx, Part { index, of: loaders });
                for key in (0..keys).filter(|key| key % 2 == half) {
                    loader.insert(T, key * 3, |row| row.set(A, key % 100)).await?;
                }
                loader.finish().await
            })
            .unwrap();
        }
    }
}

#[test]
fn scans_show_loaded_records() {
    let schema = apart("t", 5_000).ordered("by_key").index("by_a", &[IndexPart::Column(A)], false);
    for (keys, replicas) in [(40, 1), (5_000, 2)] {
        let world = World::new(&Shape::of(std::slice::from_ref(&schema)).nodes(replicas, replicas));
        load(&world, keys, 2);
        let id = |name| world.database.catalog.index_id("t", name).unwrap();
        let audit = world.assert_clean();
        assert_eq!((audit.records, audit.index_entries), (keys, 2 * keys));
        let mut by = world.coordinator(2, 0);
        let seen = block_on(by.transact(async |tx| {
            let all = scanned(tx, id("by_key"), Scan::prefix(IndexKey::new())).await?;
            let some = scanned(tx, id("by_a"), Scan::prefix(IndexKey::new().u64(7))).await?;
            let one = tx.seek(id("by_key"), IndexKey::new().u64(33));
            let none = tx.seek(id("by_key"), IndexKey::new().u64(34));
            tx.fetch().await?;
            Ok((all, some, words(tx, one), words(tx, none)))
        }))
        .unwrap();
        let all: Vec<u64> = (0..keys).map(|key| key * 3).collect();
        assert_eq!(seen.0, all);
        let some: Vec<u64> = (0..keys).filter(|key| key % 100 == 7).map(|key| key * 3).collect();
        assert_eq!((seen.1, seen.2, seen.3), (some, vec![33], vec![]));
        // The columns of this row are in different lines. An update and a delete request only column A.
        block_on(by.transact(async |tx| {
            let row = tx.update(T, 21, Cells::one(ColumnId(2)));
            let moved = tx.update(T, 24, Cells::one(A));
            tx.delete(T, 27);
            tx.fetch().await?;
            tx.set(row, ColumnId(2), 5u64);
            tx.set(moved, A, 7u64);
            Ok(())
        }))
        .unwrap();
        let some = block_on(by.transact(async |tx| {
            scanned(tx, id("by_a"), Scan::prefix(IndexKey::new().u64(7)).limit(2)).await
        }));
        assert_eq!(some.unwrap(), [21, 24]);
        world.assert_clean();
    }
}

/// Tests that a lookup finds every even key and no odd key, both at home and away from home. A lookup shows the
/// transaction's own changes.
#[test]
fn a_look_up_finds_exactly_the_existing_records() {
    let world = World::new(&Shape::of(&[narrow("t", 4096).ordered("by_key")]));
    let by_key = world.database.catalog.index_id("t", "by_key").unwrap();
    let mut by = world.coordinator(0, 0);
    fill(&mut by, T, (0..800).map(|key| key * 2));
    for from in (0..1600).step_by(16) {
        let found = block_on(by.transact(async |tx| {
            let key = |key| IndexKey::new().u64(key);
            let seeks: Vec<_> =
                (from..from + 16).map(|it| (it, tx.seek(by_key, key(it)))).collect();
            tx.fetch().await?;
            let is_right = |&(key, seek): &(u64, ScanHandle)| {
                words(tx, seek) == if key % 2 == 0 { vec![key] } else { vec![] }
            };
            Ok(seeks.iter().all(is_right))
        }));
        assert_eq!(found, Ok(true), "from {from}");
    }
    let own = block_on(by.transact(async |tx| {
        let row = tx.insert(T, 33);
        tx.delete(T, 34);
        tx.fetch().await?;
        tx.set(row, A, 1u64);
        let seeks = [33, 34].map(|key| tx.seek(by_key, IndexKey::new().u64(key)));
        tx.fetch().await?;
        Ok(seeks.map(|seek| words(tx, seek)))
    }));
    assert_eq!(own, Ok([vec![33], vec![]]));
    world.assert_clean();
}

#[test]
fn a_leaf_is_split_before_it_is_full() {
    let world = World::new(&Shape::of(&[narrow("t", 4096).ordered("by_key")]));
    let mut by = world.coordinator(0, 0);
    for key in 0..1_000 {
        fill(&mut by, T, [key]);
    }
    let tally = by.context().metrics.snapshot();
    assert!(tally.node_splits > 10, "{tally:?}");
    assert_eq!(tally.aborts[AbortReason::LeafFull as usize], 0, "{tally:?}");
    world.assert_clean();
}

#[test]
fn a_key_of_a_unique_index_belongs_to_one_record() {
    let schema = narrow("t", 64).index("by_a", &[IndexPart::Column(A)], true);
    let world = World::new(&Shape::of(&[schema]));
    let mut by = world.coordinator(0, 0);
    fill(&mut by, T, [1, 2, 3]);
    let mut put = |key: u64, value: u64| {
        block_on(by.transact(async |tx| {
            let row = tx.insert(T, key);
            tx.fetch().await?;
            let row = if tx.existed(row) { tx.update(T, key, Cells::ALL) } else { row };
            tx.fetch().await?;
            tx.set(row, A, value);
            Ok(())
        }))
    };
    let refused = Err(Failure::Abort(AbortReason::UniqueViolation));
    assert_eq!((put(9, 2), put(1, 3), put(1, 1)), (refused, refused, Ok(())));
    assert_eq!((put(1, 4), put(9, 1)), (Ok(()), Ok(())));
    // Two records exchange their keys in one transaction.
    block_on(by.transact(async |tx| {
        let (one, two) = (tx.update(T, 2, Cells::ALL), tx.update(T, 3, Cells::ALL));
        tx.fetch().await?;
        tx.set(one, A, 3u64);
        tx.set(two, A, 2u64);
        Ok(())
    }))
    .unwrap();
    world.assert_clean();
}

#[test]
fn mistakes_are_named() {
    let schema = narrow("t", 64).ordered("by_key");
    let mut shape = Shape::of(&[schema]);
    shape.options.records_max = 64;
    let world = World::new(&shape);
    let by_key = world.database.catalog.index_id("t", "by_key").unwrap();
    let mut by = world.coordinator(0, 0);
    let mut error = |scan: Scan, times: usize| {
        let result = block_on(by.transact(async |tx| {
            let handles: Vec<_> = (0..times).map(|_| tx.scan(by_key, scan)).collect();
            tx.fetch().await?;
            Ok(handles.len())
        }));
        let failure = result.expect_err("refused");
        by.context().explanation(failure).expect("an explanation").to_string()
    };
    let all = Scan::prefix(IndexKey::new());
    assert!(error(Scan::prefix(IndexKey::new().u64(1).u8(2)), 1).contains("9 bytes"));
    assert!(error(Scan::prefix(IndexKey::new().bytes(b"ab", 1)), 1).contains("too long"));
    assert!(error(all.limit(1), 65).contains("at most 64 (records_max)"));
    let bad = |schema: TableSchema| schema.validate().expect_err("refused").to_string();
    assert!(bad(narrow("t", 1).ordered("x").ordered("x")).contains("index name"));
    assert!(bad(narrow("t", 1).index("x", &[], true)).contains("parts"));
    let bits = IndexPart::KeyBits { shift: 60, bits: 5 };
    assert!(bad(narrow("t", 1).index("x", &[bits], true)).contains("5 bits"));
    let wide = double("t", 1).index("x", &[IndexPart::Column(B)], true);
    assert!(bad(wide).contains("80 bytes"));
}
