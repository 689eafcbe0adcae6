//! Tests of keys and values: keys longer than a word, partial changes of rows, and every column type.
//!
//! Invariant checked: one coordinator runs at a time, and a key is identified by its bytes, never by its hash.

use crate::common::*;
use tarn_engine::session::coordinator::Coordinator;
use tarn_fabric::executor::block_on;
use tarn_fabric::round::Round;
use tarn_store::layout::DIRECTORY_STAMP_AT;
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};

const T: TableId = TableId(0);
const C: ColumnId = ColumnId(2);

fn world(schema: TableSchema) -> World {
    World::new(&Shape::of(&[schema]))
}

/// Tests fingerprints that are invalid at the primary, and valid at a backup. If the backup were promoted, threads
/// would regard a used slot as free.
#[test]
fn the_audit_checks_fingerprints_of_every_replica() {
    let world = World::new(&Shape::of(&[half("half", 8)]).nodes(3, 2));
    let mut by = world.coordinator(0, 0);
    fill(&mut by, TableId(0), 0..4);
    world.assert_clean();
    let cx = world.context(1, 0);
    let table = cx.table(TableId(0));
    let hash = tarn_store::index::hash_of(table, 2);
    let place = cx.node.index_view.place(&cx.database().catalog, table, hash);
    let [at_primary, at_backup] =
        [0, 1].map(|at| cx.groups.whole().replica(place.bucket.plus(DIRECTORY_STAMP_AT), at));
    let mut round = Round::new();
    let seen = round.read(at_primary, 16);
    block_on(cx.port.execute(&mut round)).unwrap();
    let (stamp, prints) = (round.word(seen), round.word(seen.plus(8)));
    assert_ne!(prints, 0);
    let put = |target, stamp: u64, prints: u64| {
        let mut round = Round::new();
        let words = round.reserve(16);
        round.set_word(words, stamp);
        round.set_word(words.plus(8), prints);
        round.write(target, words, 16);
        block_on(cx.port.execute(&mut round)).unwrap();
    };
    put(at_primary, stamp + 1, 0);
    put(at_backup, stamp + 2, 7);
    world.assert_clean(); // the fingerprints are invalid at both replicas, so no thread uses them
    put(at_backup, stamp, prints);
    let one = world.audit();
    assert_eq!((one.replicas_differ, one.misplaced), (1, 0), "{one}");
    put(at_backup, stamp, 0);
    let wrong = world.audit();
    assert_eq!((wrong.replicas_differ, wrong.misplaced), (1, 1), "{wrong}");
}

#[test]
fn long_keys_are_compared_in_full() {
    for (width, columns) in [(9u8, 4u16), (16, 20), (64, 40), (64, 300)] {
        let schema = TableSchema::new("keyed", 4)
            .key_bytes(width)
            .column("a", ColumnType::U64)
            .column("b", ColumnType::Bytes(columns));
        let world = world(schema);
        let mut by = world.coordinator(0, 16);
        let key = |n: u64| {
            let mut key = vec![3; usize::from(width)];
            key[usize::from(width) - 8..].copy_from_slice(&n.to_be_bytes());
            key
        };
        for n in 0..200 {
            let key = key(n);
            block_on(by.transact(async |tx| {
                let row = tx.insert(T, &key[..]);
                tx.fetch().await?;
                assert!(!tx.existed(row));
                tx.set(row, A, n);
                Ok(())
            }))
            .unwrap();
        }
        for n in 0..250 {
            let key = key(n);
            let found = block_on(
                by.transact(async |tx| Ok(tx.get_row(T, &key[..]).await?.map(|row| row.u64(A)))),
            );
            assert_eq!(found, Ok((n < 200).then_some(n)));
        }
        world.assert_clean();
    }
}

/// Returns sixteen bytes with the same key word as `like`. The function can compute them, because the mixer is a
/// bijection.
fn twin(like: [u8; 16], first: u64) -> [u8; 16] {
    let mix = tarn_fabric::rng::mix;
    let after = |word: u64| mix(16u64.rotate_left(5) ^ word).rotate_left(5);
    let word = |from: usize| u64::from_le_bytes(like[from..from + 8].try_into().unwrap());
    let second = after(first) ^ after(word(0)) ^ word(8);
    let mut twin = [0; 16];
    twin[..8].copy_from_slice(&first.to_le_bytes());
    twin[8..].copy_from_slice(&second.to_le_bytes());
    twin
}

#[test]
fn keys_with_the_same_hash_are_different_records() {
    for (cache, width) in [(0, 8u16), (16, 8), (0, 200), (16, 200)] {
        let schema = TableSchema::new("keyed", 64)
            .key_bytes(16)
            .column("a", ColumnType::U64)
            .column("b", ColumnType::Bytes(width));
        let world = world(schema);
        let mut by = world.coordinator(0, cache);
        let one = *b"sixteen bytes ok";
        let keys = [one, twin(one, 1), twin(one, 2), twin(one, 3)];
        let get = |by: &mut Coordinator, key: &[u8; 16]| {
            block_on(by.transact(async |tx| Ok(tx.get_row(T, key).await?.map(|row| row.u64(A)))))
                .unwrap()
        };
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(get(&mut by, key), None, "{n} is another key");
            block_on(by.transact(async |tx| {
                let row = tx.insert(T, key);
                tx.fetch().await?;
                assert!(!tx.existed(row), "{n} is another key");
                tx.set(row, A, n as u64);
                Ok(())
            }))
            .unwrap();
            for (m, key) in keys.iter().enumerate() {
                assert_eq!(get(&mut by, key), (m <= n).then_some(m as u64));
            }
        }
        // One transaction updates all records.
        block_on(by.transact(async |tx| {
            let rows = keys.map(|key| tx.update(T, &key, Cells::ALL));
            tx.fetch().await?;
            for (n, row) in rows.into_iter().enumerate() {
                assert_eq!(tx.get(row).unwrap().u64(A), n as u64);
                tx.set(row, A, 10 + n as u64);
            }
            tx.delete(T, &twin(one, 4));
            Ok(())
        }))
        .unwrap();
        assert_eq!(keys.map(|key| get(&mut by, &key)), [10, 11, 12, 13].map(Some));
        world.assert_clean();
    }
}

#[test]
fn parts_of_a_row_are_changed_and_the_rest_stays() {
    let world = world(apart("apart", 64));
    let mut by = world.coordinator(0, 16);
    fill(&mut by, T, [1]);
    let text = [b'x'; 248];
    block_on(by.transact(async |tx| {
        let row = tx.update(T, 1u64, Cells::one(B));
        tx.fetch().await?;
        tx.set(row, B, &text);
        Ok(())
    }))
    .unwrap();
    block_on(by.transact(async |tx| {
        let row = tx.update(T, 1u64, Cells::one(C));
        tx.fetch().await?;
        tx.set(row, C, 3u64);
        Ok(())
    }))
    .unwrap();
    block_on(by.transact(async |tx| {
        let row = tx.get_row(T, 1u64).await?.unwrap();
        assert_eq!((row.u64(A), row.bytes(B), row.u64(C)), (1, &text[..], 3));
        Ok(())
    }))
    .unwrap();
    // The transaction now requests more cells of the updated record than at first, in addition to the cells that were
    // set.
    let seen = block_on(by.transact(async |tx| {
        let row = tx.update(T, 1u64, Cells::one(A));
        tx.fetch().await?;
        tx.set(row, A, 4u64);
        let row = tx.read(T, 1u64, Cells::one(C));
        tx.fetch().await?;
        Ok(tx.get(row).map(|row| (row.u64(A), row.u64(C))))
    }));
    assert_eq!(seen, Ok(Some((4, 3))));
    world.assert_clean();
}

#[test]
fn every_column_type_keeps_its_value() {
    let schema = TableSchema::new("types", 4)
        .column("u8", ColumnType::U8)
        .column("u16", ColumnType::U16)
        .column("u32", ColumnType::U32)
        .column("i64", ColumnType::I64)
        .column("u64", ColumnType::U64)
        .column("text", ColumnType::Bytes(11));
    let world = world(schema);
    let mut by = world.coordinator(0, 0);
    let column = ColumnId;
    block_on(by.transact(async |tx| {
        let row = tx.insert(T, u64::MAX);
        tx.fetch().await?;
        for (index, value) in [0xffu64, 0xfffe, 0xffff_fffd].into_iter().enumerate() {
            tx.set(row, column(index as u8), value);
        }
        tx.set(row, column(3), -5i64);
        tx.set(row, column(4), u64::MAX);
        tx.set(row, column(5), b"hello");
        Ok(())
    }))
    .unwrap();
    block_on(by.transact(async |tx| {
        let row = tx.get_row(T, u64::MAX).await?.unwrap();
        let words = [0, 1, 2, 4].map(|index| row.u64(column(index)));
        assert_eq!(words, [0xff, 0xfffe, 0xffff_fffd, u64::MAX]);
        assert_eq!((row.i64(column(3)), row.text(column(5))), (-5, &b"hello"[..]));
        Ok(())
    }))
    .unwrap();
}
