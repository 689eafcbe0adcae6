//! Tests the ends of calls: errors of the body's own, deadlines, and the number of rounds of each shorthand.
//!
//! Invariant: each test creates a new database for each protocol.

#![allow(clippy::disallowed_methods, reason = "measures real time")]

use crate::common::each_that;
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use tarn::{Builder, Error, Failure, Row, Session, Table, Tarn, block_on};
use tarn_engine::protocol::ALL;

#[derive(Row, Clone, PartialEq, Debug)]
#[row(table = "stock", key(item), index(by_place(place)))]
struct Stock {
    item: u32,
    place: u16,
    pieces: i64,
}

/// The errors of the program, one of which is not the library's.
#[derive(Debug)]
enum ShopError {
    Only(i64),
    Store(Error),
}

impl From<Error> for ShopError {
    fn from(error: Error) -> ShopError {
        ShopError::Store(error)
    }
}

/// The memory of each database: little more than the expected rows need.
const MEMORY_BYTES: u64 = 4 << 20;

fn builder(protocol: &str) -> Builder {
    let tarn = Tarn::embedded().table::<Stock>(100).spare_bytes(1 << 20).sessions_max(8);
    tarn.memory_max(MEMORY_BYTES).protocol(protocol, "corrected")
}

fn open(protocol: &str) -> (Tarn, Table<Stock>, Session) {
    let tarn = builder(protocol).open().expect("a database");
    let (table, mut session) = (tarn.table().expect("it is there"), tarn.session().expect("one"));
    let rows: Vec<_> =
        (1..=20).map(|item| Stock { item, place: item as u16 % 3, pieces: 5 }).collect();
    session.run(async |tx| table.put_many(tx, &rows).await).expect("nothing is broken");
    (tarn, table, session)
}

fn pieces(session: &mut Session, table: Table<Stock>, item: u32) -> Option<i64> {
    let found = session.run(async |tx| table.find(tx, item).await).expect("nothing is in its way");
    found.map(|row| row.pieces)
}

#[test]
fn an_error_of_the_body_comes_back_as_it_was_and_rolls_back() {
    for info in ALL {
        let (_, table, mut session) = open(info.name);
        let mut runs = 0;
        let ended = session.run(async |tx| {
            runs += 1;
            table.remove(tx, 2).await?;
            let take = |row: &mut Stock| match row.pieces - 9 {
                left @ 0.. => Ok(left),
                _ => Err(ShopError::Only(row.pieces)),
            };
            table.modify(tx, 1, take).await?.expect("it is there")
        });
        assert!(matches!(ended, Err(ShopError::Only(5))), "{}: {ended:?}", info.name);
        assert_eq!(runs, 1, "{}", info.name);
        assert_eq!(pieces(&mut session, table, 2), Some(5), "{}", info.name);
    }
}

#[test]
fn a_mistake_and_no_memory_come_as_the_library_s_error() {
    for info in ALL {
        let (_, table, mut session) = open(info.name);
        let ended = session.run(async |tx| {
            let record = table.update(tx, 1);
            tx.fetch().await?;
            table.set(tx, record, &Stock { item: 2, place: 0, pieces: 0 });
            Ok::<_, ShopError>(())
        });
        let Err(ShopError::Store(error)) = ended else { panic!("{}: {ended:?}", info.name) };
        let text = error.to_string();
        assert!(text.contains("set of a row of stock = a row with another key"), "{text}");
        let full = (100..).find_map(|item| {
            let row = Stock { item, place: 0, pieces: 0 };
            session.run(async |tx| table.put(tx, &row).await).err()
        });
        let full = full.expect("memory ends");
        assert_eq!(full.failure(), Some(Failure::OutOfMemory), "{}: {full}", info.name);
        let text = full.to_string();
        assert!(text.starts_with("memory_max = "), "{}: {text}", info.name);
        let Error::OutOfMemory(usage) = full else { panic!("{}: {full:?}", info.name) };
        assert!(usage.allowed.starts_with("more bytes ("), "{}: {usage}", info.name);
    }
}

/// Tests a body that turns every error into its own. After a conflict it still runs again.
#[test]
fn a_conflict_is_tried_again_even_if_the_body_renames_it() {
    for info in ALL {
        let (tarn, table, _) = open(info.name);
        let (threads, times) = (2, 200);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut session = tarn.session().expect("one");
                    for _ in 0..times {
                        let ended = session.run(async |tx| {
                            let added = table.modify(tx, 1, |row| row.pieces += 1).await;
                            added.map_err(|_| ShopError::Only(-1))?;
                            Ok(())
                        });
                        ended.unwrap_or_else(|error: ShopError| panic!("{}: {error:?}", info.name));
                    }
                });
            }
        });
        let mut session = tarn.session().expect("one");
        assert_eq!(pieces(&mut session, table, 1), Some(5 + threads * times), "{}", info.name);
    }
}

#[test]
fn a_deadline_ends_a_body_that_waits_for_something_else() {
    for info in
        each_that("nothing stays locked of a dropped transaction", |caps| caps.survives_drops)
    {
        let (tarn, table, mut session) = open(info.name);
        let start = Instant::now();
        let ended = session.deadline(Duration::from_millis(30)).run(async |tx| {
            table.modify(tx, 1, |row| row.pieces = 0).await?;
            std::future::pending::<()>().await;
            tarn::Ok(())
        });
        let error = ended.expect_err("it never ends");
        assert!(start.elapsed() < Duration::from_secs(5), "{}", info.name);
        let text = error.to_string();
        assert!(error.is_deadline(), "{}: {text}", info.name);
        assert!(text.contains("after 1 tries, in the body, outside of Tarn"), "{text}");
        // The locks are free, and the session goes on.
        let mut other = tarn.session().expect("one");
        for session in [&mut other, session.deadline(None)] {
            session
                .run(async |tx| table.modify(tx, 1, |row| row.pieces += 1).await)
                .expect(info.name);
        }
        assert_eq!(pieces(&mut other, table, 1), Some(7), "{}", info.name);
    }
}

/// Tests a call that waits for a lock of another session: the error names the table and the reason.
#[test]
fn a_deadline_names_the_table_and_the_reason() {
    let mut named = 0;
    for info in
        each_that("nothing stays locked of a dropped transaction", |caps| caps.survives_drops)
    {
        let (tarn, table, mut session) = open(info.name);
        let mut other = tarn.session().expect("one");
        let ended = session.run(async |tx| {
            table.modify(tx, 1, |row| row.pieces += 1).await?;
            let blocked = other.deadline(Duration::from_millis(30));
            let blocked =
                blocked.transact(async |tx| table.modify(tx, 1, |row| row.pieces += 1).await);
            tarn::Ok(blocked.await)
        });
        let Ok(blocked) = ended else { continue };
        let Err(error) = blocked else { continue };
        let text = error.to_string();
        assert!(error.is_deadline() && text.contains("of stock"), "{}: {text}", info.name);
        println!("{}: {text}", info.name);
        named += 1;
    }
    assert!(named >= 4, "only {named} protocols block");
}

#[test]
fn every_session_has_a_deadline_by_default_and_the_builder_sets_it() -> Result<(), Error> {
    let tarn = builder("ford").deadline(Duration::from_millis(20)).open()?;
    let ended = tarn.session()?.run(async |_| {
        std::future::pending::<()>().await;
        tarn::Ok(())
    });
    assert!(ended.expect_err("it never ends").is_deadline());
    Ok(())
}

/// Tests a body that gives up one of its own fetches, at any poll, and then returns an error of its own.
#[test]
fn a_body_that_drops_its_fetch_leaves_no_lock() {
    for info in
        each_that("nothing stays locked of a dropped transaction", |caps| caps.survives_drops)
    {
        let (tarn, table, mut session) = open(info.name);
        let (mut polls, ended) = (0, Cell::new(false));
        while !ended.get() {
            polls += 1;
            let dropped = session.run(async |tx| {
                for item in 1..=3 {
                    table.update(tx, item);
                }
                {
                    let mut fetch = pin!(tx.fetch());
                    let mut left = polls;
                    std::future::poll_fn(|task| {
                        left -= 1;
                        ended.set(fetch.as_mut().poll(task).is_ready());
                        if ended.get() || left == 0 { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                }
                Err::<(), _>(ShopError::Only(0))
            });
            assert!(matches!(dropped, Err(ShopError::Only(0))), "{}: {dropped:?}", info.name);
            let mut other = tarn.session().expect("one");
            let other = other.deadline(Duration::from_secs(5));
            for item in 1..=3 {
                let changed = other.run(async |tx| table.modify(tx, item, |_| ()).await);
                changed.unwrap_or_else(|error| panic!("{}, {polls} polls: {error}", info.name));
            }
        }
    }
}

/// Counts the rounds of a body that has run once before.
fn rounds(
    session: &mut Session,
    mut body: impl AsyncFnMut(&mut tarn::Transaction<'_>) -> Result<(), Error>,
) -> u64 {
    for _ in 0..2 {
        let ended: Result<(), Error> = session.run(async |tx| {
            body(tx).await?;
            tx.abort()
        });
        assert!(ended.expect_err("its own").is_own_abort());
    }
    let before = session.context().port.counts().rounds;
    let ended: Result<(), Error> = session.run(async |tx| {
        body(tx).await?;
        tx.abort()
    });
    assert!(ended.expect_err("its own").is_own_abort());
    session.context().port.counts().rounds - before
}

/// Tests that a form for many rows takes as many rounds as the form for one row, and a selection as many as a scan
/// and a fetch.
#[test]
fn a_batch_costs_the_rounds_of_one_row() {
    for info in ALL {
        let (_, table, mut session) = open(info.name);
        let of = |name: &str, one: u64, many: u64| {
            println!("{}: {name}: {one} rounds for one row, {many} for many", info.name);
            assert!(
                many <= one + 1,
                "{}: {name}: {one} rounds for one, {many} for many",
                info.name
            );
        };
        let row = |item| Stock { item, place: 1, pieces: 1 };
        let one = rounds(&mut session, async |tx| table.find(tx, 1).await.map(|_| ()));
        let many = rounds(&mut session, async |tx| table.find_many(tx, 1..9).await.map(|_| ()));
        of("find", one, many);
        let one = rounds(&mut session, async |tx| table.modify(tx, 1, |_| ()).await.map(|_| ()));
        let many =
            rounds(&mut session, async |tx| table.modify_many(tx, 1..9, |_| ()).await.map(|_| ()));
        of("modify", one, many);
        let one = rounds(&mut session, async |tx| table.put(tx, &row(1)).await.map(|_| ()));
        let many = rounds(&mut session, async |tx| {
            table.put_many(tx, &[1, 2, 3, 4].map(row)).await.map(|_| ())
        });
        of("put", one, many);
        let one = rounds(&mut session, async |tx| table.remove(tx, 1).await.map(|_| ()));
        let many = rounds(&mut session, async |tx| table.remove_many(tx, 1..5).await.map(|_| ()));
        of("remove", one, many);
        let select = table.by_place().prefix(1);
        let one = rounds(&mut session, async |tx| select.limit(1).rows(tx).await.map(|_| ()));
        let many = rounds(&mut session, async |tx| select.rows(tx).await.map(|_| ()));
        of("rows of a selection", one, many);
    }
}

/// Tests that the rows of an enum that another program wrote and a body that panics are the caller's affair: the
/// session goes on after a panic of the body.
#[test]
fn a_panic_of_a_body_leaves_no_lock() {
    for info in
        each_that("nothing stays locked of a dropped transaction", |caps| caps.survives_drops)
    {
        let (_, table, mut session) = open(info.name);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            session.run(async |tx| {
                table.modify(tx, 1, |_| panic!("in the body")).await?;
                tarn::Ok(())
            })
        }));
        assert!(ended.is_err());
        let again = block_on(session.transact(async |tx| table.modify(tx, 1, |_| ()).await));
        assert_eq!(again.expect(info.name), Some(()));
        let failure = session.run(async |tx| tx.abort::<()>()).expect_err("aborted").failure();
        assert_eq!(failure, Some(Failure::user_abort()));
    }
}
