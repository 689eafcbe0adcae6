//! Ordered indexes against a map, one transaction after the other.
//!
//! What is asked: scans in both directions, with and without limits, show what a `BTreeMap` would, with
//! what the transaction itself has changed; entries follow inserts, deletes and updates; nodes split and
//! merge on the way, and the audit is clean at the end.

mod common;

use common::*;
use rand::RngExt;
use std::collections::BTreeMap;
use tarn_engine::outcome::Failure;
use tarn_engine::schema::{Cells, IndexId, IndexPart, Key, TableId};
use tarn_engine::transaction::{IndexKey, Scan, ScanEntry, ScanHandle, Transaction};
use tarn_fabric::executor::block_on;

const T: TableId = TableId(0);

#[test]
fn what_was_inserted_is_scanned() {
    let schema = narrow("t", 1000).ordered("by_key").index("by_a", &[IndexPart::Column(A)], false);
    let world = World::new(&Shape::of(&[schema]));
    let by_key = world.database.catalog.index_id("t", "by_key").unwrap();
    let by_a = world.database.catalog.index_id("t", "by_a").unwrap();
    let mut by = world.coordinator(0, 0);
    fill(&mut by, T, [5, 3, 9, 1]);
    let seen = block_on(by.transact(async |tx| {
        let all = tx.scan(by_key, Scan::prefix(IndexKey::new()));
        let back = tx.scan(by_a, Scan::range(IndexKey::new().u64(2), IndexKey::new().u64(5)).backward());
        tx.fetch().await?;
        let keys = |handle| tx.scanned(handle).map(|it| format!("{:?}", it.record)).collect::<Vec<_>>();
        Ok((keys(all), keys(back)))
    }))
    .unwrap();
    assert_eq!(seen.0, ["Word(1)", "Word(3)", "Word(5)", "Word(9)"]);
    assert_eq!(seen.1, ["Word(5)", "Word(3)"]);
}

/// What scans of both kinds of index show, as keys of records.
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

/// Random transactions: each changes some records and scans before and after; all is held against a map.
fn against_a_model(turns: u64, keys: u64, replicas: usize, seed: u64) -> u64 {
    let schema = narrow("t", 64)
        .ordered("by_key")
        .index("by_a", &[IndexPart::Column(A)], false)
        .index("by_low", &[IndexPart::KeyBits { shift: 0, bits: 4 }, IndexPart::Key], true);
    let world = World::new(&Shape::of(&[schema]).nodes(replicas, replicas));
    let id = |name| world.database.catalog.index_id("t", name).unwrap();
    let (by_key, by_a, by_low) = (id("by_key"), id("by_a"), id("by_low"));
    let mut by = world.coordinator(0, 0);
    let mut other = world.coordinator(1, 0);
    let mut rng = tarn_fabric::rng::seeded(seed, 0);
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    for turn in 0..turns {
        // The map fills, then empties, then fills again.
        let fills = turn * 5 / turns % 2 == 0;
        let wishes: Vec<(u64, u64, bool)> = (0..rng.random_range(1..8))
            .map(|_| {
                let inserts = rng.random_range(0..10) < if fills { 8 } else { 2 };
                let drawn = rng.random_range(0..keys);
                // Deletes mostly meet a record.
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
            let range = Scan::range(IndexKey::new().u64(from), IndexKey::new().u64(to)).limit(limit);
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
    tally.node_splits
}

#[test]
fn scans_show_what_a_map_would() {
    for (replicas, seed) in [(1, 1), (3, 2), (2, 3)] {
        against_a_model(3_000, 3_000, replicas, seed);
    }
}
