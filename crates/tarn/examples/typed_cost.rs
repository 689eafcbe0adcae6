//! The cost of typed rows: the same transactions by the library's tables and by the engine's numbers of columns.
//!
//! Invariant: both forms read and write the same rows.
//!
//! `cargo run --release -p tarn --example typed_cost` prints nanoseconds. Under
//! `valgrind --tool=callgrind --toggle-collect='*puts_by_table*'` and the like, callgrind counts the instructions of
//! one form; `TARN_TRANSACTIONS` sets their number.

#![allow(clippy::disallowed_methods, reason = "measures real time")]

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;
use tarn::{ColumnId, Error, Retry, Row, Session, Table, Tarn, Text, block_on};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, TableId};

const ROWS: u64 = 1_000;
const KIND: ColumnId = ColumnId(0);
const CENTS: ColumnId = ColumnId(1);
const NAME: ColumnId = ColumnId(2);

/// A row of two numbers and a text.
#[derive(Row, Clone, Copy)]
#[row(table = "accounts", key(number))]
struct Account {
    number: u64,
    kind: u32,
    cents: i64,
    name: Text<16>,
}

fn account(number: u64) -> Account {
    Account { number, kind: 7, cents: number as i64, name: Text::literal("a name") }
}

#[inline(never)]
fn finds_by_table(session: &mut Session, table: Table<Account>, count: u64) -> Result<i64, Error> {
    let mut sum = 0;
    for turn in 0..count {
        let found = session.run(async |tx| table.find(tx, turn % ROWS).await)?;
        sum += found.map_or(0, |row| black_box(row).cents);
    }
    Ok(sum)
}

#[inline(never)]
fn finds_by_engine(by: &mut Coordinator, table: TableId, count: u64) -> Result<i64, Failure> {
    let mut sum = 0;
    for turn in 0..count {
        let found = block_on(by.transact(async |tx| {
            let record = tx.read(table, turn % ROWS, Cells::ALL);
            tx.fetch().await?;
            Ok(tx.get(record).map(|row| {
                let name: [u8; 16] = row.bytes(NAME).try_into().expect("its width");
                (turn % ROWS, row.u64(KIND) as u32, row.i64(CENTS), name)
            }))
        }))?;
        sum += found.map_or(0, |row| black_box(row).2);
    }
    Ok(sum)
}

#[inline(never)]
fn puts_by_table(session: &mut Session, table: Table<Account>, count: u64) -> Result<(), Error> {
    for turn in 0..count {
        let row = black_box(account(turn % ROWS));
        session.run(async |tx| table.put(tx, &row).await)?;
    }
    Ok(())
}

#[inline(never)]
fn puts_by_engine(by: &mut Coordinator, table: TableId, count: u64) -> Result<(), Failure> {
    let name = *b"a name\0\0\0\0\0\0\0\0\0\0";
    for turn in 0..count {
        let (kind, cents, name) = black_box((7u64, (turn % ROWS) as i64, name));
        block_on(by.transact(async |tx| {
            let record = tx.update(table, turn % ROWS, Cells::ALL);
            tx.fetch().await?;
            if tx.existed(record) {
                tx.set(record, KIND, kind);
                tx.set(record, CENTS, cents);
                tx.set(record, NAME, &name);
            }
            Ok(())
        }))?;
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let count =
        std::env::var("TARN_TRANSACTIONS").map_or(200_000, |it| it.parse().expect("a number"));
    let tarn = Tarn::embedded().table::<Account>(ROWS).open()?;
    let (table, mut session) = (tarn.table::<Account>()?, tarn.session()?);
    for number in 0..ROWS {
        session.run(async |tx| table.add(tx, &account(number)).await)?;
    }
    let last = tarn.cluster().config().options.coordinators_max - 1;
    let mut engine = Coordinator::new(Rc::clone(session.context()), last, Retry::default());
    // The first transactions find the caches cold.
    let expected = finds_by_table(&mut session, table, count)?;
    assert_eq!(finds_by_engine(&mut engine, table.id(), count), Ok(expected));
    for _ in 0..3 {
        let start = Instant::now();
        let mut last = start;
        let mut lap = |name: &str| {
            let now = Instant::now();
            let ns = (now - std::mem::replace(&mut last, now)).as_nanos() as f64;
            println!("{name}: {:.0} ns each", ns / count as f64);
        };
        assert_eq!(finds_by_table(&mut session, table, count)?, expected);
        lap("find by table");
        assert_eq!(finds_by_engine(&mut engine, table.id(), count), Ok(expected));
        lap("find by engine");
        puts_by_table(&mut session, table, count)?;
        lap("put by table");
        assert_eq!(puts_by_engine(&mut engine, table.id(), count), Ok(()));
        lap("put by engine");
    }
    assert_eq!(finds_by_table(&mut session, table, count)?, expected);
    Ok(())
}
