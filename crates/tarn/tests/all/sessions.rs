//! Tests the library: sessions, typed rows, and errors that name their cause. Guarantees of all protocols are tested
//! under each protocol.
//!
//! Invariant: each test creates a new database for each protocol.

#![allow(clippy::disallowed_methods, reason = "drives real threads")]

use crate::common::each_that;
use tarn::{
    Backing, Builder, Error, Executor, Failure, Nanos, Retry, Row, Session, Tarn, block_on,
};
use tarn_engine::protocol::ALL;

/// A row with one column of each type, under a key of bytes.
#[derive(Row, Clone, PartialEq, Debug)]
#[row(table = "everything", key(id))]
struct Everything {
    id: [u8; 20],
    a: u8,
    b: u16,
    c: u32,
    d: u64,
    e: i64,
    f: [u8; 3],
}

#[derive(Row)]
#[row(table = "counters", key(id))]
struct Counter {
    id: u64,
    seen: u64,
}

#[derive(Row)]
#[row(table = "counters", key(id))]
struct OtherCounter {
    id: u64,
    seen: u32,
}

fn small() -> Builder {
    Tarn::embedded().table::<Everything>(10).table::<Counter>(10).spare_bytes(1 << 20)
}

/// A transaction that takes longer than this deadline would never end.
const RETRY: Retry = Retry { deadline: Some(Nanos(30_000_000_000)), ..Retry::PATIENT };

/// Runs `test` on a small database of each protocol.
fn each(test: impl Fn(Builder) -> Result<(), Error>) {
    for info in ALL {
        let ended = test(small().protocol(info.name, "corrected").retry(RETRY).deadline(None));
        assert!(ended.is_ok(), "{}: {ended:?}", info.name);
    }
}

/// Adds one to a counter.
async fn count(
    session: &mut Session,
    counters: tarn::Table<Counter>,
    key: u64,
) -> Result<u64, Error> {
    let body = async |tx: &mut tarn::Transaction<'_>| {
        let record = counters.update(tx, key);
        tx.fetch().await?;
        let Some(mut counter) = counters.get(tx, record) else { return tx.abort() };
        counter.seen += 1;
        counters.set(tx, record, &counter);
        Ok(counter.seen)
    };
    session.transact(body).await
}

#[test]
fn rows_come_back_as_they_were_stored() {
    each(|small| stored(&small.memory(Backing::Private).open()?));
    each(|small| stored(&small.memory(Backing::Private).memory_nodes(3).replicas(3).open()?));
}

fn stored(tarn: &Tarn) -> Result<(), Error> {
    let table = tarn.table::<Everything>()?;
    let mut session = tarn.session()?;
    let key = *b"a key of 20 bytes...";
    let row = Everything { a: 1, b: 2, c: 3, d: u64::MAX, e: -5, f: *b"abc", id: key };
    let was_there = session.run(async |tx| table.put(tx, &row).await)?;
    assert!(!was_there);
    assert_eq!(session.run(async |tx| table.find(tx, key).await)?, Some(row.clone()));
    let changed = Everything { e: i64::MIN, ..row };
    assert!(session.run(async |tx| table.put(tx, &changed).await)?);
    assert_eq!(session.run(async |tx| table.find(tx, key).await)?, Some(changed));
    let deleted = session.run(async |tx| {
        let record = table.delete(tx, key);
        tx.fetch().await?;
        tarn::Ok(table.existed(tx, record))
    })?;
    assert!(deleted);
    assert_eq!(session.run(async |tx| table.find(tx, key).await)?, None);
    Ok(())
}

#[test]
fn a_caller_s_abort_rolls_back_and_is_recognised() {
    each(|small| aborted(&small.open()?));
}

fn aborted(tarn: &Tarn) -> Result<(), Error> {
    let counters = tarn.table::<Counter>()?;
    let mut session = tarn.session()?;
    let ended: Result<(), Error> = session.run(async |tx| {
        counters.put(tx, &Counter { id: 1, seen: 7 }).await?;
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
    let ended = session.run(async |tx| {
        let got = tx.engine().get_row(table.id(), 5u64).await.map(|_| ());
        got.map_err(|failure| tx.explain(failure))
    });
    let error = ended.expect_err("a word is no key of this table");
    assert_eq!(error.failure(), Some(Failure::Usage));
    assert!(error.to_string().contains("key of table everything"), "{error}");
    let error = tarn.table::<OtherCounter>().err().expect("other columns");
    let said = "table counters: column seen = u32; allowed: u64, as the database has it";
    assert_eq!(error.to_string(), said);
    let error = Tarn::embedded().open().err().expect("no tables");
    assert!(error.to_string().contains("tables = 0"), "{error}");
    let error = small().protocol("none", "corrected").open().err().expect("no such protocol");
    assert!(error.to_string().starts_with("protocol = none; allowed: "), "{error}");
    let error = small().replicas(2).open().err().expect("one memory node");
    assert!(error.to_string().starts_with("replicas = 2; allowed: "), "{error}");
    Ok(())
}

/// Gives each argument of the builder a value out of its range. The error must name the builder's own method, and the
/// allowed values.
#[test]
fn the_builder_s_errors_name_its_own_methods() {
    let of = |records: u64| Tarn::embedded().table::<Counter>(records);
    let cases: [(&str, Builder); 15] = [
        ("sessions_max = 0; allowed: 1 or more", small().sessions_max(0)),
        ("sessions_max = ", small().sessions_max(u32::MAX)),
        ("memory_nodes = 0; allowed: 1 to ", small().memory_nodes(0)),
        ("memory_nodes = 4097; allowed: 1 to ", small().memory_nodes(4097)),
        ("memory_nodes = ", small().memory_nodes(usize::MAX)),
        ("replicas = 0; allowed: 1 to ", small().replicas(0)),
        ("replicas = 4; allowed: 1 to memory_nodes (3)", small().memory_nodes(3).replicas(4)),
        ("spare_bytes = ", small().spare_bytes(u64::MAX)),
        ("spare_bytes = ", small().spare_bytes(1 << 36)),
        ("records of table counters = ", of(u64::MAX)),
        ("records of table counters = ", of(1 << 39)),
        ("address_cache = ", small().address_cache(usize::MAX)),
        ("version_cache = ", small().version_cache(usize::MAX)),
        ("protocol = frod; allowed: ford, ", small().protocol("frod", "corrected")),
        ("variant = corect; allowed: corrected, ", small().protocol("occ", "corect")),
    ];
    for (start, builder) in cases {
        let error =
            builder.open().err().unwrap_or_else(|| panic!("{start} is refused")).to_string();
        assert!(error.starts_with(start) && error.contains("; allowed: "), "{start}: {error}");
    }
    for info in tarn_engine::protocol::ALL {
        // The numbers range from no session to more sessions than owner tags have numbers.
        for count in [0, 1 << 20, u32::MAX] {
            let named = small().protocol(info.name, "corrected").sessions_max(count).open();
            let error = named.err().expect("too many, or none").to_string();
            assert!(error.starts_with("sessions_max = "), "{}: {error}", info.name);
        }
    }
}

/// Tests more sessions than one compute node has thread numbers. An incarnation has 128 thread numbers, which are used
/// again. The first node grants the locks, even after its sessions have ended.
#[test]
fn sessions_beyond_one_life_of_a_compute_node_lose_no_update() {
    each(|small| {
        let tarn = small.open()?;
        let counters = tarn.table::<Counter>()?;
        tarn.session()?.run(async |tx| counters.put(tx, &Counter { id: 1, seen: 0 }).await)?;
        let work = |times: u64| -> Result<(), Error> {
            (0..times)
                .try_for_each(|_| block_on(count(&mut tarn.session()?, counters, 1)).map(|_| ()))
        };
        std::thread::scope(|scope| {
            let threads = [scope.spawn(|| work(200)), scope.spawn(|| work(200))];
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        let found = tarn.session()?.run(async |tx| counters.find(tx, 1).await)?;
        assert_eq!(found.map(|counter| counter.seen), Some(400));
        Ok(())
    });
}

/// Tests idle sessions of several incarnations, each of which has run one transaction. No other session needs an idle
/// session to be awake.
#[test]
fn idle_sessions_block_no_other_session() {
    each(|small| {
        let tarn = small.memory_nodes(2).replicas(2).open()?;
        let counters = tarn.table::<Counter>()?;
        let mut resting = vec![tarn.session()?];
        resting[0].run(async |tx| counters.put(tx, &Counter { id: 1, seen: 0 }).await)?;
        for number in 1..150 {
            resting.push(tarn.session()?);
            let seen = block_on(count(&mut resting[number], counters, 1))?;
            assert_eq!(seen, number as u64);
            if number % 3 == 0 {
                let seen = block_on(count(&mut resting[number / 2], counters, 2));
                assert!(seen.is_err_and(|error| error.is_own_abort()), "no such counter");
            }
        }
        drop(resting.split_off(75));
        drop(resting.drain(..10));
        assert_eq!(block_on(count(&mut resting[0], counters, 1))?, 150);
        Ok(())
    });
}

#[test]
fn sibling_sessions_run_side_by_side_on_one_thread() {
    each(|small| {
        let tarn = small.open()?;
        let counters = tarn.table::<Counter>()?;
        let mut session = tarn.session()?;
        session.run(async |tx| counters.put(tx, &Counter { id: 1, seen: 0 }).await)?;
        let mut siblings = (0..4).map(|_| session.sibling()).collect::<Result<Vec<_>, _>>()?;
        let mut executor = Executor::new();
        for sibling in &mut siblings {
            executor.spawn(async move {
                for _ in 0..50 {
                    count(sibling, counters, 1).await.expect("it counts");
                }
            });
        }
        executor.run();
        drop(executor);
        let found = session.run(async |tx| counters.find(tx, 1).await)?;
        assert_eq!(found.map(|counter| counter.seen), Some(200));
        Ok(())
    });
}

#[test]
fn readers_see_all_records_as_of_one_moment() {
    each(|small| {
        let tarn = small.open()?;
        let counters = tarn.table::<Counter>()?;
        let mut session = tarn.session()?;
        session.run(async |tx| {
            for key in 0..4 {
                counters.put(tx, &Counter { id: key, seen: 0 }).await?;
            }
            tarn::Ok(())
        })?;
        let write = || -> Result<(), Error> {
            let mut session = tarn.session()?;
            for _ in 0..200 {
                session.run(async |tx| {
                    let all = [0, 1, 2, 3].map(|key| counters.update(tx, key));
                    tx.fetch().await?;
                    for record in all {
                        let seen = counters.get(tx, record).map_or(0, |counter| counter.seen);
                        counters.set(tx, record, &Counter { id: record.key(), seen: seen + 1 });
                    }
                    tarn::Ok(())
                })?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let writer = scope.spawn(write);
            while !writer.is_finished() {
                let read = block_on(session.multi_get(counters, &[0, 1, 2, 3, 9]))?;
                let seen = |row: &Option<Counter>| row.as_ref().map(|counter| counter.seen);
                assert!(
                    read[..4].iter().all(|row| seen(row) == seen(&read[0])) && read[4].is_none()
                );
                let pair = block_on(session.transact_read_only(async |tx| {
                    tarn::Ok([counters.find(tx, 3).await?, counters.find(tx, 0).await?])
                }))?;
                assert_eq!(seen(&pair[0]), seen(&pair[1]));
            }
            writer.join().expect("no panic")
        })?;
        let read = block_on(session.multi_get(counters, &[2]))?;
        assert_eq!(read[0].as_ref().map(|counter| counter.seen), Some(200));
        Ok(())
    });
}

/// Tests only protocols under which a dropped transaction leaves no lock.
#[test]
fn a_transaction_dropped_half_way_blocks_no_other_one() -> Result<(), Error> {
    for info in
        each_that("nothing stays locked of a dropped transaction", |caps| caps.survives_drops)
    {
        let tarn = small().protocol(info.name, "corrected").retry(RETRY).open()?;
        let counters = tarn.table::<Counter>()?;
        // The sessions belong to more than one incarnation. The node of the first incarnation grants the locks.
        let mut sessions = (0..130).map(|_| tarn.session()).collect::<Result<Vec<_>, _>>()?;
        sessions[0].run(async |tx| counters.put(tx, &Counter { id: 1, seen: 0 }).await)?;
        for at in [0, 129] {
            let mut dropped = Box::pin(sessions[at].transact(async |tx| {
                counters.update(tx, 1);
                tx.fetch().await?;
                std::future::pending::<Result<(), Error>>().await
            }));
            let mut waiting = std::task::Context::from_waker(std::task::Waker::noop());
            (0..100).for_each(|_| assert!(dropped.as_mut().poll(&mut waiting).is_pending()));
            drop(dropped);
            let (before, mut other) = (at as u64 / 129 * 2, tarn.session()?);
            assert_eq!(block_on(count(&mut other, counters, 1))?, before + 1, "{}", info.name);
            assert_eq!(block_on(count(&mut sessions[at], counters, 1))?, before + 2);
        }
    }
    Ok(())
}

#[test]
fn the_number_of_open_sessions_is_bounded_and_restored() {
    each(|small| {
        let tarn = small.sessions_max(2).open()?;
        let first = tarn.session()?;
        let second = first.sibling()?;
        let error = tarn.session().err().expect("a third");
        assert!(error.to_string().contains("at most 2"), "{error}");
        drop(second);
        tarn.session().map(|_| ())
    });
}

#[test]
fn tables_of_impossible_sizes_are_refused_by_field() {
    for info in ALL {
        for records in [u64::MAX, 1 << 62, 1 << 58, 1 << 40] {
            let opened =
                Tarn::embedded().table::<Counter>(records).protocol(info.name, "corrected");
            let error = opened.open().err().expect("no machine has so much").to_string();
            let start = format!("records of table counters = {records}; allowed: at most ");
            assert!(error.starts_with(&start), "{}: {error}", info.name);
        }
    }
    let copies = small().replicas(usize::MAX).open().err().expect("no machine has so many");
    assert!(copies.to_string().contains("; allowed: "), "{copies}");
}

#[test]
fn a_table_of_another_database_is_refused() -> Result<(), Error> {
    let (one, other) = (small().open()?, small().open()?);
    let table = one.table::<Counter>()?;
    let mut session = other.session()?;
    session.run(async |tx| {
        other.table::<Counter>().unwrap().put(tx, &Counter { id: 7, seen: 7 }).await
    })?;
    for operation in 0..6 {
        let refused = session
            .run(async |tx| {
                match operation {
                    0 => _ = table.find(tx, 7).await?,
                    1 => _ = table.put(tx, &Counter { id: 7, seen: 8 }).await?,
                    2 => _ = table.read(tx, 7),
                    3 => {
                        let record = table.update(tx, 7);
                        assert!(!table.existed(tx, record) && table.get(tx, record).is_none());
                    }
                    4 => _ = table.insert(tx, 8),
                    _ => _ = table.delete(tx, 7),
                }
                tarn::Ok(())
            })
            .expect_err("another database's");
        assert_eq!(refused.failure(), Some(Failure::Usage));
        let text = refused.to_string();
        assert!(text.contains("table = counters of another database"), "{operation}: {text}");
    }
    let refused = tarn::block_on(session.multi_get(table, &[7])).err().expect("likewise");
    assert!(refused.to_string().contains("counters of another database"), "{refused}");
    let own = other.clone().table::<Counter>()?; // a clone of the value is the same database
    let stored =
        session.run(async |tx| tarn::Ok((own.find(tx, 7).await?, own.find(tx, 8).await?)))?;
    assert_eq!((stored.0.map(|row| row.seen), stored.1.is_none()), (Some(7), true));
    Ok(())
}

#[test]
fn writes_of_one_record_come_one_after_the_other() -> Result<(), Error> {
    let tarn = small().open()?;
    let table = tarn.table::<Counter>()?;
    let mut session = tarn.session()?;
    session.run(async |tx| table.put(tx, &Counter { id: 1, seen: 10 }).await)?;
    let found = session.run(async |tx| {
        table.delete(tx, 1);
        tx.fetch().await?;
        let first = table.put(tx, &Counter { id: 1, seen: 20 }).await?;
        tarn::Ok((first, table.put(tx, &Counter { id: 1, seen: 21 }).await?))
    })?;
    assert_eq!(found, (false, true));
    let seen = session.run(async |tx| table.find(tx, 1).await)?.map(|row| row.seen);
    assert_eq!(seen, Some(21));
    let refused = session
        .run(async |tx| {
            let record = table.update(tx, 2);
            tx.fetch().await?;
            table.set(tx, record, &Counter { id: 2, seen: 1 });
            tarn::Ok(())
        })
        .expect_err("there is none");
    assert!(refused.to_string().contains("key 2 that the update did not find"), "{refused}");
    Ok(())
}

/// Tests that the builder sets the limits of a transaction, and that an error about an exceeded limit names it.
#[test]
fn a_transaction_that_is_too_large_names_the_option() -> Result<(), Error> {
    let open = || small().deadline(None).spare_bytes(16 << 20).log_bytes(1024);
    let fill = |tarn: &Tarn, count: u64| -> Result<(), Error> {
        let counters = tarn.table::<Counter>()?;
        tarn.session()?.run(async |tx| {
            let rows: Vec<_> = (0..count).map(|key| counters.insert(tx, key)).collect();
            tx.fetch().await?;
            rows.into_iter()
                .for_each(|row| counters.set(tx, row, &Counter { id: row.key(), seen: 1 }));
            Ok(())
        })
    };
    let told = |tarn: Tarn, count: u64| fill(&tarn, count).unwrap_err().to_string();
    fill(&open().open()?, 5_000)?;
    assert!(told(open().records_max(100).open()?, 101).contains("at most 100 (records_max)"));
    let message = told(open().log_bytes_max(4096).open()?, 1_000);
    assert!(message.contains("at most 4096 bytes (log_bytes_max)"), "{message}");
    let refused = open().log_bytes_max(100).open().err().map(|error| error.to_string());
    assert!(refused.unwrap_or_default().contains("log_bytes_max = 100"));
    Ok(())
}

/// Tests that the README states the limits of the code. Each limit must be in the README as a number with its unit.
#[test]
fn the_readme_states_the_limits_of_the_code() {
    use tarn_fabric::address::{GROUP_BYTES_MAX, GROUPS_MAX};
    use tarn_store::placement::catalog::Options;
    use tarn_store::schema::{COLUMNS_MAX, KEY_BYTES_MAX, PAYLOAD_BYTES_MAX};
    let readme = include_str!("../../../../README.md");
    let start = readme.find("- **Limits**").expect("a list of limits");
    let said = readme[start..].split("\n- ").next().expect("the limits");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let thousands = |count: usize| format!("{},{:03}", count / 1000, count % 1000);
    for limit in [
        format!("{} KiB", PAYLOAD_BYTES_MAX >> 10),
        format!("{COLUMNS_MAX} columns"),
        format!("{KEY_BYTES_MAX} bytes"),
        format!("{} tables", thousands(usize::from(u16::MAX))),
        format!("{} sessions", Options::default().coordinators_max),
        format!("{} GiB", GROUP_BYTES_MAX >> 30),
        format!("{} memory nodes", thousands(GROUPS_MAX)),
    ] {
        assert!(said.contains(&limit), "{limit}: {said}");
    }
}
