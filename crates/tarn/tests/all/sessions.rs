//! The library: sessions, typed rows, errors that say what is wrong.
//!
//! Invariant: each test has a database of its own.

#![allow(clippy::disallowed_methods, reason = "drives real threads")]

use tarn::{Backing, Builder, Error, Failure, Tarn, row};

row! {
    /// One of every kind of column, under a key of bytes.
    #[derive(Clone, PartialEq, Debug)]
    struct Everything in "everything" by [u8; 20] {
        a: u8,
        b: u16,
        c: u32,
        d: u64,
        e: i64,
        f: [u8; 3],
    }
}

row! {
    struct Counter in "counters" by u64 {
        seen: u64,
    }
}

row! {
    struct OtherCounter in "counters" by u64 {
        seen: u32,
    }
}

fn small() -> Builder {
    Tarn::embedded().table::<Everything>(10).table::<Counter>(10).spare_bytes(1 << 20)
}

#[test]
fn rows_come_back_as_they_were_stored() -> Result<(), Error> {
    let tarn = small().memory(Backing::Private).open()?;
    let table = tarn.table::<Everything>()?;
    let mut session = tarn.session()?;
    let row = Everything { a: 1, b: 2, c: 3, d: u64::MAX, e: -5, f: *b"abc" };
    let key = *b"a key of 20 bytes...";
    let was_there = session.run(async |tx| table.put(tx, key, &row).await)?;
    assert!(!was_there);
    assert_eq!(session.run(async |tx| table.find(tx, key).await)?, Some(row.clone()));
    let changed = Everything { e: i64::MIN, ..row };
    assert!(session.run(async |tx| table.put(tx, key, &changed).await)?);
    assert_eq!(session.run(async |tx| table.find(tx, key).await)?, Some(changed));
    let deleted = session.run(async |tx| {
        let record = table.delete(tx, key);
        tx.fetch().await?;
        Ok(table.existed(tx, record))
    })?;
    assert!(deleted);
    assert_eq!(session.run(async |tx| table.find(tx, key).await)?, None);
    Ok(())
}

#[test]
fn an_own_abort_rolls_back_and_is_told_apart() -> Result<(), Error> {
    let tarn = small().open()?;
    let counters = tarn.table::<Counter>()?;
    let mut session = tarn.session()?;
    let ended: Result<(), Error> = session.run(async |tx| {
        counters.put(tx, 1, &Counter { seen: 7 }).await?;
        tx.abort()
    });
    let error = ended.expect_err("aborted");
    assert!(error.is_own_abort() && error.unknown().is_none());
    assert!(session.run(async |tx| counters.find(tx, 1).await)?.is_none());
    Ok(())
}

#[test]
fn mistakes_are_explained() -> Result<(), Error> {
    let tarn = small().open()?;
    let mut session = tarn.session()?;
    let table = tarn.table::<Everything>()?;
    let ended = session.run(async |tx| tx.get_row(table.id(), 5u64).await.map(|_| ()));
    let error = ended.expect_err("a word is no key of this table");
    assert_eq!(error.failure(), Some(Failure::Usage));
    assert!(error.to_string().contains("key of table everything"), "{error}");
    let error = tarn.table::<OtherCounter>().err().expect("other columns");
    assert!(error.to_string().contains("counters"), "{error}");
    let error = Tarn::embedded().open().err().expect("no tables");
    assert!(error.to_string().contains("tables = 0"), "{error}");
    let error = small().protocol("none", "corrected").open().err().expect("no such protocol");
    assert!(error.to_string().starts_with("protocol = none; allowed: "), "{error}");
    let error = small().replicas(2).open().err().expect("one memory node");
    assert!(error.to_string().starts_with("replicas = 2; allowed: "), "{error}");
    Ok(())
}

#[test]
fn sessions_beyond_one_life_of_a_compute_node_lose_no_update() -> Result<(), Error> {
    let tarn = small().open()?;
    let counters = tarn.table::<Counter>()?;
    tarn.session()?.run(async |tx| counters.put(tx, 1, &Counter { seen: 0 }).await)?;
    let count = |times: u64| -> Result<(), Error> {
        for _ in 0..times {
            tarn.session()?.run(async |tx| {
                let record = counters.update(tx, 1);
                tx.fetch().await?;
                let Some(mut counter) = counters.get(tx, record) else { return tx.abort() };
                counter.seen += 1;
                counters.set(tx, record, &counter);
                Ok(())
            })?;
        }
        Ok(())
    };
    // 64 thread numbers a life: 400 sessions need several lives.
    std::thread::scope(|scope| {
        let threads = [scope.spawn(|| count(200)), scope.spawn(|| count(200))];
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let found = tarn.session()?.run(async |tx| counters.find(tx, 1).await)?;
    assert_eq!(found.map(|counter| counter.seen), Some(400));
    Ok(())
}

#[test]
fn sessions_at_once_are_bounded_and_given_back() -> Result<(), Error> {
    let tarn = small().sessions_max(2).open()?;
    let first = tarn.session()?;
    let second = first.sibling()?;
    let error = tarn.session().err().expect("a third");
    assert!(error.to_string().contains("at most 2"), "{error}");
    drop(second);
    tarn.session().map(|_| ())
}
