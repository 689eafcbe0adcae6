//! Tests of transactions of any size. Scans show all records, and a transaction is refused only if it is too large.
//!
//! Invariant checked: under every protocol a scan shows all records as of one moment, in both directions. An
//! impossible key causes an error that states which keys are possible. A transaction may add any number of records to
//! one bucket and to one leaf. If a transaction is too large, the error names the option that limits its size.

use crate::common::*;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use tarn_engine::cluster::info::ProtocolInfo;
use tarn_engine::protocol::{ALL, AnyProtocol};
use tarn_engine::services::ServiceOptions;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::{IndexKey, Scan, ScanEntry, ScanHandle, Transaction};
use tarn_engine::site::ComputeNode;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_store::index::hash_of;
use tarn_store::schema::{
    Cells, ColumnId, ColumnType, IndexId, IndexPart, Key, KeyWidth, TableId, TableSchema,
};

const T: TableId = TableId(0);
const COUNT: TableId = TableId(1);
const ROWS: u64 = 10_000;
const GROUPS: u64 = 3;

/// Returns a shape with two tables. The first table has rows with one index by their key and one index by their
/// group. The second table has one counter.
fn grouped(protocol: &'static str) -> Shape {
    let rows =
        narrow("rows", ROWS).ordered("by_key").index("by_group", &[IndexPart::Column(B)], false);
    let mut shape = Shape::of(&[rows, narrow("count", 8)]).protocol(protocol);
    shape.options.spare_bytes = 64 << 20;
    shape
}

/// Creates a coordinator on a node whose lock table is large enough for large transactions, if the protocol keeps
/// locks in compute nodes.
fn roomy(world: &World, slot: u16, retry: Retry) -> Coordinator {
    let id = world.database.membership.join(NodeSlot(slot)).unwrap();
    let services = ServiceOptions { lock_table_bytes: 4 << 20, ..ServiceOptions::direct(1) };
    let node = ComputeNode::serving(Arc::clone(&world.database), id, &services).unwrap();
    if node.services().is_some() {
        world.database.membership.open_shards(&[id]);
    }
    Coordinator::new(world.thread(&Arc::new(node), 0, 0), u32::from(slot), retry)
}

fn ids(world: &World) -> (IndexId, IndexId) {
    let id = |name| world.database.catalog.index_id("rows", name).unwrap();
    (id("by_key"), id("by_group"))
}

/// Returns the protocols that guarantee ranges without phantoms. Prints the names of the other protocols.
fn with_ranges() -> impl Iterator<Item = &'static str> {
    ALL.iter().filter_map(|it| {
        if !it.caps.ranges {
            println!("{} does not promise ranges", it.name);
        }
        it.caps.ranges.then_some(it.name)
    })
}

/// Inserts rows, with `at_once` rows in each transaction.
fn insert(by: &mut Coordinator, keys: Range<u64>, at_once: usize) {
    let keys: Vec<u64> = keys.collect();
    for keys in keys.chunks(at_once) {
        block_on(by.transact(async |tx| {
            let rows: Vec<_> = keys.iter().map(|&key| tx.insert(T, key)).collect();
            tx.fetch().await?;
            for (&key, row) in keys.iter().zip(rows) {
                tx.set(row, A, key);
                tx.set(row, B, key % GROUPS);
            }
            Ok(())
        }))
        .unwrap_or_else(|failure| {
            let cx = by.context();
            panic!("{}: {:?}", cx.database().protocol.info().name, cx.explanation(failure))
        });
    }
}

fn words(tx: &Transaction<'_>, handle: ScanHandle) -> Vec<u64> {
    let word = |entry: ScanEntry<'_>| match entry.record {
        Key::Word(word) => word,
        Key::Bytes(_) => panic!("keys are words"),
    };
    tx.scanned(handle).map(word).collect()
}

async fn scanned(
    tx: &mut Transaction<'_>,
    index: IndexId,
    scan: Scan,
) -> Result<Vec<u64>, Failure> {
    let handle = tx.scan(index, scan);
    tx.fetch().await?;
    Ok(words(tx, handle))
}

#[test]
fn a_scan_shows_all_records() {
    for protocol in with_ranges() {
        let world = World::new(&grouped(protocol));
        let (by_key, by_group) = ids(&world);
        let mut by = world.coordinator(0, 0);
        insert(&mut by, 0..ROWS, 100);
        let all = Scan::prefix(IndexKey::new());
        let group = Scan::prefix(IndexKey::new().u64(1));
        let model: Vec<u64> = (0..ROWS).collect();
        let body = async |tx: &mut Transaction<'_>| {
            let handles = [
                tx.scan(by_key, all),
                tx.scan(by_key, all.backward()),
                tx.scan(by_key, all.limit(5_000)),
                tx.scan(by_group, group),
                tx.scan(by_group, Scan::prefix(IndexKey::new())),
            ];
            tx.fetch().await?;
            Ok(handles.map(|handle| words(tx, handle)))
        };
        let locked = block_on(by.transact(body)).unwrap();
        let snapshot = block_on(by.transact_read_only(body)).unwrap();
        for [forward, backward, limited, one_group, by_groups] in [locked, snapshot] {
            assert_eq!(forward, model, "{protocol}");
            assert!(backward.iter().eq(model.iter().rev()), "{protocol}");
            assert_eq!(limited, model[..5_000], "{protocol}");
            assert!(one_group.into_iter().eq((1..ROWS).step_by(GROUPS as usize)), "{protocol}");
            assert_eq!(by_groups.len(), model.len(), "{protocol}");
        }
        world.assert_clean();
    }
}

/// Tests a transaction that counts rows. When it has counted the first 4,096 rows, another transaction inserts a row
/// among these rows. Suppose that the first transaction writes its count after the other transaction has read the old
/// count. Then the first transaction must not have missed the new row.
#[test]
fn a_long_scan_shows_one_moment() {
    for protocol in with_ranges() {
        let world = World::new(&grouped(protocol));
        let (by_key, _) = ids(&world);
        let mut by = world.coordinator(0, 0);
        let retry = Retry { tries_max: 3, ..Retry::default() };
        let mut other = Coordinator::new(world.context(1, 0), 1, retry);
        insert(&mut by, 0..ROWS, 100);
        fill(&mut by, COUNT, [0]);
        let (mut tries, mut came) = (0, false);
        let counted = block_on(by.transact(async |tx| {
            tries += 1;
            let rows = scanned(tx, by_key, Scan::prefix(IndexKey::new())).await?.len() as u64;
            if tries == 1 {
                came = other
                    .transact(async |tx| {
                        let count = tx.read(COUNT, 0u64, Cells::ALL);
                        let row = tx.insert(T, ROWS + 7);
                        tx.fetch().await?;
                        tx.set(row, A, 7u64);
                        Ok(tx.get(count).map(|row| row.u64(A)))
                    })
                    .await
                    == Ok(Some(0));
            }
            let count = tx.update(COUNT, 0u64, Cells::ALL);
            tx.fetch().await?;
            tx.set(count, A, rows);
            Ok(rows)
        }))
        .unwrap();
        assert_eq!(counted, ROWS + u64::from(came), "{protocol} after {tries} tries");
        println!("{protocol}: {tries} tries, the other came: {came}");
        world.assert_clean();
    }
}

#[test]
fn a_scan_shows_all_changes_of_its_own_transaction() {
    for protocol in with_ranges() {
        let world = World::new(&grouped(protocol));
        let (by_key, _) = ids(&world);
        let mut by = roomy(&world, 0, Retry::default());
        insert(&mut by, 0..6_000, 100);
        let seen = block_on(by.transact(async |tx| {
            let rows: Vec<_> = (6_000..6_500).map(|key| tx.insert(T, key)).collect();
            (0..500).for_each(|key| _ = tx.delete(T, key * 2));
            tx.fetch().await?;
            for row in rows {
                tx.set(row, A, 1u64);
            }
            scanned(tx, by_key, Scan::prefix(IndexKey::new())).await
        }))
        .unwrap();
        let is_there = |key: &u64| *key >= 1_000 || key % 2 == 1;
        assert!(seen.into_iter().eq((0..6_500).filter(is_there)), "{protocol}");
        world.assert_clean();
    }
}

#[test]
fn a_key_of_wrong_parts_is_an_error_that_names_the_right_ones() {
    let schema = TableSchema::new("t", 64)
        .column("group", ColumnType::U32)
        .column("name", ColumnType::Bytes(8))
        .column("balance", ColumnType::I64);
    let column = |at| IndexPart::Column(ColumnId(at));
    let schema = schema
        .index("by_name", &[column(0), column(1)], true)
        .index("by_balance", &[column(2)], false)
        .index("by_bits", &[IndexPart::KeyBits { shift: 0, bits: 24 }, IndexPart::Key], true);
    let mut keyed = schema.clone();
    (keyed.name, keyed.key) = ("keyed".to_owned(), KeyWidth::Bytes(12));
    keyed.indexes.truncate(1);
    let keyed = keyed.ordered("by_key");
    let world = World::new(&Shape::of(&[schema, keyed]));
    let id = |table, name| world.database.catalog.index_id(table, name).unwrap();
    let mut by = world.coordinator(0, 0);
    let mut told = |index: IndexId, key: IndexKey| {
        let scanned = block_on(by.transact(async |tx| {
            let scan = tx.scan(index, Scan::prefix(key));
            tx.fetch().await?;
            Ok(tx.scanned(scan).count())
        }));
        let sought = block_on(by.transact(async |tx| {
            let seek = tx.seek(index, key);
            tx.fetch().await?;
            Ok(tx.scanned(seek).count())
        }));
        assert_eq!(scanned, sought);
        scanned.err().map(|failure| by.context().explanation(failure).unwrap().to_string())
    };
    let new = IndexKey::new;
    let (by_name, by_balance) = (id("t", "by_name"), id("t", "by_balance"));
    let (by_bits, by_long) = (id("t", "by_bits"), id("keyed", "by_key"));
    let right = [
        (by_name, new()),
        (by_name, new().u32(1)),
        (by_name, new().u32(1).bytes(b"ab", 8)),
        (by_name, new().u32(1).bytes(b"ab", 2)),
        (by_name, new().u32(1).u16(7).bytes(b"abc", 6)),
        (by_balance, new().i64(-3)),
        (by_balance, new().i64(-3).u64(9)),
        (by_bits, new().bytes(&[1, 2, 3], 3).u64(4)),
        (by_long, new().bytes(b"twelve bytes", 12)),
        (by_long, new().u32(1).u64(2)),
        (by_long, new().u64(1)),
    ];
    for (index, key) in right {
        assert_eq!(told(index, key), None, "{key:?}");
    }
    let wrong = [
        (by_name, new().u64(1), "key of index by_name = parts of 8 bytes"),
        (by_name, new().u16(1), "parts of 2 bytes"),
        (by_name, new().i64(1), "parts of 8 (signed) bytes"),
        (by_name, new().bytes(b"abc", 4), "parts of 4 bytes"),
        (by_name, new().u32(1).bytes(b"ab", 4), "parts of 4 + 4 bytes"),
        (by_name, new().u32(1).i64(4), "parts of 4 + 8 (signed) bytes"),
        (by_name, new().u16(1).u16(1), "parts of 2 + 2 bytes"),
        (by_balance, new().u64(3), "allowed: parts of 8 (signed) + 8 bytes"),
        (by_bits, new().u32(3), "allowed: parts of 3 + 8 bytes"),
        (by_long, new().u64(1).u64(2), "16 bytes"),
    ];
    for (index, key, says) in wrong {
        let message = told(index, key).unwrap_or_default();
        assert!(message.contains(says), "{key:?}: {message}");
    }
}

/// Creates a table with rows of 16 bytes, without an index, in few buckets.
fn crowded(protocol: &'static str) -> (World, Coordinator) {
    let mut shape = Shape::of(&[narrow("rows", 8)]).protocol(protocol);
    shape.options.spare_bytes = 64 << 20;
    let world = World::new(&shape);
    let by = world.coordinator(0, 0);
    (world, by)
}

#[test]
fn a_transaction_fills_a_bucket_many_times_over() {
    for info in ALL {
        let (world, mut by) = crowded(info.name);
        let table = world.database.catalog.table(T);
        let bucket = |key: u64| hash_of(table, key) % table.geometry.buckets;
        let keys: Vec<u64> = (0..).filter(|&key| bucket(key) == 1).take(120).collect();
        by.context().growth.enable(false);
        block_on(by.transact(async |tx| {
            // The inserts need two fetches. The second fetch finds the chain that the first fetch has made longer.
            for keys in keys.chunks(70) {
                let rows: Vec<_> = keys.iter().map(|&key| tx.insert(T, key)).collect();
                tx.fetch().await?;
                keys.iter().zip(rows).for_each(|(&key, row)| tx.set(row, A, key));
            }
            Ok(())
        }))
        .unwrap();
        assert_eq!(world.assert_clean().records, 120, "{}", info.name);
        by.context().growth.enable(true);
        for &key in &keys {
            assert_eq!(value_of(&mut by, T, key), Some(key), "{}", info.name);
        }
        // If the transaction is abandoned, the chain must contain none of its blocks.
        let gives_up = block_on(by.transact(async |tx| {
            let rows: Vec<_> = keys.iter().map(|&key| tx.insert(T, key + (1 << 40))).collect();
            tx.fetch().await?;
            rows.into_iter().for_each(|row| tx.set(row, A, 1u64));
            tx.abort::<()>()
        }));
        assert_eq!(gives_up, Err(Failure::user_abort()));
        assert_eq!(world.assert_clean().records, 120, "{}", info.name);
    }
}

#[test]
fn a_transaction_inserts_more_than_a_leaf_holds() {
    for protocol in with_ranges() {
        let world = World::new(&grouped(protocol));
        let (by_key, _) = ids(&world);
        let retry = Retry { tries_max: 3, ..Retry::default() };
        let mut by = roomy(&world, 0, retry);
        insert(&mut by, 0..1, 1);
        insert(&mut by, 5_000..5_001, 1);
        let mut all: BTreeSet<u64> = BTreeSet::from([0, 5_000]);
        // The inserted keys are between two existing keys, at the end, and between existing keys in the middle.
        for keys in [100..700, 5_001..5_100, 4_000..5_000] {
            all.extend(keys.clone());
            insert(&mut by, keys.clone(), keys.count());
        }
        let seen = block_on(
            by.transact(async |tx| scanned(tx, by_key, Scan::prefix(IndexKey::new())).await),
        )
        .unwrap();
        assert!(seen.into_iter().eq(all), "{protocol}");
        world.assert_clean();
    }
}

#[test]
fn a_transaction_of_ten_thousand_records() {
    for info in ALL {
        let mut shape = grouped(info.name);
        if !info.caps.ranges {
            shape.schemas.iter_mut().for_each(|schema| schema.indexes.clear());
        }
        let world = World::new(&shape);
        let index = info.caps.ranges.then(|| ids(&world).0);
        let mut by = roomy(&world, 0, Retry::default());
        insert(&mut by, 0..ROWS, ROWS as usize);
        block_on(by.transact(async |tx| {
            let rows: Vec<_> = (0..ROWS).map(|key| tx.update(T, key, Cells::ALL)).collect();
            tx.fetch().await?;
            rows.into_iter().for_each(|row| tx.set(row, A, 5u64));
            Ok(())
        }))
        .unwrap();
        let sum = block_on(by.transact(async |tx| {
            let keys = match index {
                Some(index) => scanned(tx, index, Scan::prefix(IndexKey::new())).await?,
                None => (0..ROWS).collect(),
            };
            let rows: Vec<_> = keys.iter().map(|&key| tx.read(T, key, Cells::ALL)).collect();
            tx.fetch().await?;
            Ok(rows.into_iter().filter_map(|row| tx.get(row)).map(|row| row.u64(A)).sum::<u64>())
        }))
        .unwrap();
        assert_eq!(sum, 5 * ROWS, "{}", info.name);
        block_on(by.transact(async |tx| {
            (0..ROWS).for_each(|key| _ = tx.delete(T, key));
            tx.fetch().await
        }))
        .unwrap();
        assert_eq!(world.assert_clean().records, 0, "{}", info.name);
    }
}

/// Tests a protocol that keeps locks in compute nodes. A transaction that fills its node's lock table alone would be
/// refused at every try.
#[test]
fn a_full_lock_table_is_an_error_that_names_its_size() {
    let locked =
        |info: &&ProtocolInfo| AnyProtocol::by_name(info.name, "corrected").unwrap().needs().locks;
    for info in ALL.iter().filter(locked) {
        let world = World::new(&grouped(info.name));
        let mut by = world.coordinator(0, 0);
        insert(&mut by, 0..200, 100);
        let result = block_on(by.transact(async |tx| {
            (0..4_000u64).for_each(|key| _ = tx.update(T, key, Cells::ALL));
            tx.fetch().await
        }));
        let message = by.context().explanation(result.unwrap_err()).unwrap().to_string();
        assert!(message.contains("lock_table_bytes"), "{message}");
        world.assert_clean();
    }
}

#[test]
fn too_many_records_name_the_option() {
    let mut shape = grouped(ALL[0].name);
    shape.options.records_max = 2_000;
    let world = World::new(&shape);
    let (by_key, _) = ids(&world);
    let mut by = world.coordinator(0, 0);
    let read = block_on(by.transact(async |tx| {
        (0..2_001u64).for_each(|key| _ = tx.read(T, key, Cells::ALL));
        tx.fetch().await
    }));
    let message = by.context().explanation(read.unwrap_err()).unwrap().to_string();
    assert!(message.contains("records of one transaction = 2001"), "{message}");
    assert!(message.contains("at most 2000 (records_max)"), "{message}");
    let scans = block_on(by.transact(async |tx| {
        (0..2_001).for_each(|_| _ = tx.scan(by_key, Scan::prefix(IndexKey::new()).limit(1)));
        tx.fetch().await
    }));
    let message = by.context().explanation(scans.unwrap_err()).unwrap().to_string();
    assert!(message.contains("scans of one transaction = 2001"), "{message}");
    block_on(by.transact(async |tx| {
        (0..2_000u64).for_each(|key| _ = tx.read(T, key, Cells::ALL));
        tx.fetch().await?;
        // If the transaction already accesses a record, the record is not counted again.
        tx.delete(T, 7u64);
        tx.fetch().await
    }))
    .unwrap();
}

/// Tests a log of several MiB, in an area of 64 KiB. Recovery undoes or redoes the log as a whole.
#[test]
fn a_long_log_continues_behind_its_area() {
    for info in ALL {
        let wide = TableSchema::new("wide", 3_000).column("a", ColumnType::U64);
        let wide = wide.column("b", ColumnType::Bytes(1_000));
        let mut shape = Shape::of(&[wide]).protocol(info.name).nodes(2, 2);
        (shape.options.spare_bytes, shape.options.log_bytes) = (96 << 20, 4 << 10);
        let world = World::new(&shape);
        let mut by = roomy(&world, 0, Retry::default());
        fill(&mut by, T, 0..3_000);
        for turn in 1..3u64 {
            block_on(by.transact(async |tx| {
                let rows: Vec<_> = (0..3_000).map(|key| tx.update(T, key, Cells::ALL)).collect();
                tx.fetch().await?;
                for row in rows {
                    tx.set(row, A, turn);
                    tx.set(row, B, &[turn as u8; 1_000]);
                }
                Ok(())
            }))
            .unwrap();
            world.assert_clean();
        }
        assert_eq!(value_of(&mut by, T, 2_999), Some(2), "{}", info.name);
    }
}

#[test]
fn a_log_that_is_too_long_names_the_option() {
    for info in ALL {
        let mut shape = Shape::of(&[double("double", 400)]).protocol(info.name);
        (shape.options.log_bytes, shape.options.log_bytes_max) = (1 << 10, 8 << 10);
        let world = World::new(&shape);
        let mut by = world.coordinator(0, 0);
        fill(&mut by, T, 0..400);
        let mut change = |keys: u64| {
            let result = block_on(by.transact(async |tx| {
                let rows: Vec<_> = (0..keys).map(|key| tx.update(T, key, Cells::ALL)).collect();
                tx.fetch().await?;
                rows.into_iter().for_each(|row| tx.set(row, B, &[1; 80]));
                Ok(())
            }));
            result.map_err(|failure| by.context().explanation(failure).unwrap().to_string())
        };
        assert_eq!(change(15), Ok(()), "{}", info.name);
        let message = change(400).unwrap_err();
        assert!(message.contains("at most 8192 bytes (log_bytes_max)"), "{message}");
        world.assert_clean();
    }
}
