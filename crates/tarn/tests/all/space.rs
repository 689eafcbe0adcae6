//! Tests the library's memory use: sessions start and end, rows are inserted and deleted, and the database's free
//! memory does not shrink.
//!
//! Invariant: each test creates a database of its own.

use tarn::{Builder, Error, Failure, Row, Session, Tarn};
use tarn_engine::cluster::info::ProtocolInfo;
use tarn_engine::protocol::ALL;
use tarn_fabric::address::GroupId;
use tarn_fabric::round::Round;

#[derive(Row)]
#[row(table = "small", key(id))]
struct Small {
    id: u64,
    value: u64,
}

#[derive(Row)]
#[row(table = "large", key(id))]
struct Large {
    id: u64,
    value: u64,
    rest: [u8; 2000],
}

const fn large(value: u64) -> Large {
    Large { id: value, value, rest: [1; 2000] }
}

/// The number of rows for which each table is laid out.
const ROWS: u64 = 100;

/// The memory of each database: little more than the expected rows and the logs of all sessions need.
const MEMORY_BYTES: u64 = 24 << 20;

/// Opens a database for few rows, with little memory beyond these rows.
fn open(info: &ProtocolInfo) -> Result<Tarn, Error> {
    let builder = Tarn::embedded().table::<Small>(ROWS).table::<Large>(ROWS).spare_bytes(1 << 20);
    builder.memory_max(MEMORY_BYTES).protocol(info.name, "corrected").open()
}

/// Returns the number of heap chunks that have an owner.
fn chunks_taken(session: &Session) -> usize {
    let cx = session.context();
    let (catalog, groups) = (&cx.database().catalog, cx.database().groups());
    let taken = |chunk: u64| {
        let mut round = Round::new();
        let word = round.read(groups.primary(catalog.chunk_word(GroupId(0), chunk)), 8);
        tarn::block_on(cx.port.execute(&mut round)).expect("memory that is there");
        round.word(word) != 0
    };
    (0..catalog.chunks()).filter(|&chunk| taken(chunk)).count()
}

/// Inserts a row into each table and deletes it, under new keys.
fn come_and_go(tarn: &Tarn, key: u64) -> Result<(), Error> {
    let (small, large_rows) = (tarn.table::<Small>()?, tarn.table::<Large>()?);
    let mut session = tarn.session()?;
    session.run(async |tx| {
        small.put(tx, &Small { id: key, value: key }).await?;
        large_rows.put(tx, &large(key)).await?;
        tarn::Ok(())
    })?;
    let existed = session.run(async |tx| {
        let records = (small.delete(tx, key), large_rows.delete(tx, key));
        tx.fetch().await?;
        tarn::Ok((small.existed(tx, records.0), large_rows.existed(tx, records.1)))
    })?;
    assert_eq!(existed, (true, true));
    Ok(())
}

fn sessions(count: u64) -> Result<(), Error> {
    for info in ALL {
        let tarn = open(info)?;
        (0..count / 4).try_for_each(|key| come_and_go(&tarn, key))?;
        let before = chunks_taken(&tarn.session()?);
        (count / 4..count).try_for_each(|key| come_and_go(&tarn, key))?;
        assert_eq!(chunks_taken(&tarn.session()?), before, "{}", info.name);
    }
    Ok(())
}

#[test]
fn sessions_with_a_row_each_take_no_memory() -> Result<(), Error> {
    sessions(20_000)
}

#[test]
#[ignore = "minutes"]
fn a_million_sessions_with_a_row_each_take_no_memory() -> Result<(), Error> {
    sessions(1_000_000)
}

/// Tests 130 sessions at the same time, of two compute nodes. Some sessions insert rows, and other sessions delete
/// these rows.
#[test]
fn sessions_of_several_compute_nodes_share_freed_memory() -> Result<(), Error> {
    for info in ALL {
        let tarn = open(info)?;
        let rows = tarn.table::<Large>()?;
        let mut sessions = (0..130).map(|_| tarn.session()).collect::<Result<Vec<_>, _>>()?;
        assert_ne!(sessions[0].context().node.id, sessions[129].context().node.id);
        for turn in 0..200u64 {
            for (at, session) in sessions.iter_mut().enumerate().take(4) {
                let key = turn * 100 + at as u64;
                let stored = session.run(async |tx| rows.put(tx, &large(key)).await);
                stored.inspect_err(|_| println!("{}: turn {turn}", info.name))?;
            }
            for (at, session) in sessions.iter_mut().rev().enumerate().take(4) {
                let key = turn * 100 + at as u64;
                session.run(async |tx| {
                    let record = rows.delete(tx, key);
                    tx.fetch().await?;
                    tarn::Ok(rows.existed(tx, record))
                })?;
            }
        }
    }
    Ok(())
}

/// The least `memory_max` of a builder, which the error of a smaller one names.
fn least_memory_bytes(builder: &Builder) -> u64 {
    let refused = builder.clone().memory_max(0).open().err().expect("no memory at all");
    let Error::Usage(usage) = refused else { panic!("{refused}") };
    assert_eq!(usage.field, "memory_max");
    let number = usage.allowed.split(' ').next().and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("{usage}"))
}

/// Tests that a table takes ten times the rows that it expects, and finds all of them. With only the memory that the
/// expected rows need, it does not take them.
#[test]
fn a_table_grows_far_beyond_its_hint() -> Result<(), Error> {
    const EXPECTED: u64 = 2_000;
    for info in ALL {
        let builder = Tarn::embedded().table::<Large>(EXPECTED).spare_bytes(1 << 20);
        let builder = builder.sessions_max(4).protocol(info.name, "corrected");
        let least = least_memory_bytes(&builder);
        let fits = fill_up(&builder.clone().memory_max(least).open()?, 0)?;
        assert!(fits < 10 * EXPECTED, "{}: {fits} rows fit without growth", info.name);
        let tarn = builder.open()?;
        let (table, mut session) = (tarn.table::<Large>()?, tarn.session()?);
        for key in 0..10 * EXPECTED {
            session.run(async |tx| table.add(tx, &large(key)).await)?;
        }
        for key in 0..10 * EXPECTED {
            let found = session.run(async |tx| table.find(tx, key).await)?;
            assert_eq!(found.map(|row| row.value), Some(key), "{}", info.name);
        }
    }
    Ok(())
}

/// Inserts rows until the memory is full. Returns the number of rows that fit.
fn fill_up(tarn: &Tarn, from: u64) -> Result<u64, Error> {
    let rows = tarn.table::<Large>()?;
    let mut session = tarn.session()?;
    for key in from.. {
        match session.run(async |tx| rows.put(tx, &large(key)).await) {
            Ok(_) => {}
            Err(error) if error.failure() == Some(Failure::OutOfMemory) => return Ok(key - from),
            Err(error) => return Err(error),
        }
    }
    unreachable!("there is not memory for all keys")
}

/// Tests that a database that was filled and emptied has memory for as many rows. The same keys need more memory only
/// for buckets that were split meanwhile. Other keys need blocks in chains that did not exist before. Emptied blocks
/// stay with their buckets. Where rows lie apart from their slots, these blocks take at most a tenth of the memory.
/// Where rows lie in the blocks, these blocks may take most of the memory. Even then, the rows for which the table
/// was laid out must fit.
#[test]
fn a_full_database_that_is_emptied_has_room_for_as_many_rows() -> Result<(), Error> {
    for info in ALL {
        let tarn = open(info)?;
        let rows = tarn.table::<Large>()?;
        let first = fill_up(&tarn, 0)?;
        let mut stored = first;
        for from in [0, 0, 1 << 40] {
            let mut session = tarn.session()?;
            let lies_apart = session.context().table(rows.id()).slot.is_out_of_line();
            for key in 0..stored {
                session.run(async |tx| {
                    rows.delete(tx, key);
                    tx.fetch().await
                })?;
            }
            drop(session);
            let again = fill_up(&tarn, from)?;
            println!("{}: {again} of {first}", info.name);
            let least = match (from, lies_apart) {
                (0, _) => first - first / 100,
                (_, true) => first - first / 10,
                (_, false) => ROWS,
            };
            assert!(again >= least, "{}: {again} of {first}", info.name);
            stored = again;
        }
    }
    Ok(())
}
