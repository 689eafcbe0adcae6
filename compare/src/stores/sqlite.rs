//! SQLite, by the crate rusqlite: SQL over B-trees. One transaction writes at a time.
//!
//! Two forms: a database in memory with one connection that all threads share, and a file with a write-ahead log and
//! a connection for each thread.
//!
//! Invariant: every statement is prepared once. Threads that write wait for each other by a mutex of ours: SQLite's
//! own waiting sleeps for milliseconds.

use crate::store::{Account, Body, Failure, Record, Rows, Session, Stop, Store, count};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const TABLES: &str = "
    CREATE TABLE savings (customer INTEGER PRIMARY KEY, cents INTEGER NOT NULL);
    CREATE TABLE checking (customer INTEGER PRIMARY KEY, cents INTEGER NOT NULL);
    CREATE TABLE records (key INTEGER PRIMARY KEY, record BLOB NOT NULL);
";

/// The page cache of a connection holds all rows; the size is in KiB, as the minus sign says.
const CACHE: &str = "PRAGMA cache_size = -4194304; PRAGMA temp_store = MEMORY;";

/// The number of prepared statements that a connection keeps.
const STATEMENTS: usize = 32;

fn prepared(connection: Connection) -> Result<Connection, Failure> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch(CACHE)?;
    Ok(connection)
}

/// A database in memory with one connection.
pub struct InMemory(Mutex<Connection>);

impl InMemory {
    pub fn open() -> Result<InMemory, Failure> {
        let connection = prepared(Connection::open_in_memory()?)?;
        connection.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;")?;
        connection.execute_batch(TABLES)?;
        Ok(InMemory(Mutex::new(connection)))
    }
}

impl Store for InMemory {
    type Session<'s> = &'s InMemory;

    fn session(&self) -> Result<&InMemory, Failure> {
        Ok(self)
    }
}

impl Session for &InMemory {
    fn run<B: Body>(&mut self, body: &B) -> Result<i64, Failure> {
        run(&locked(&self.0), body)
    }
}

/// A file with a write-ahead log.
pub struct WalFile {
    path: PathBuf,
    /// The right to write.
    writing: Mutex<()>,
}

impl WalFile {
    pub fn open(folder: &Path) -> Result<WalFile, Failure> {
        let store = WalFile { path: folder.join("store.sqlite"), writing: Mutex::default() };
        let connection = Connection::open(&store.path)?;
        connection.execute_batch(TABLES)?;
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        Ok(store)
    }
}

pub struct Thread<'s> {
    store: &'s WalFile,
    connection: Connection,
}

impl Store for WalFile {
    type Session<'s> = Thread<'s>;

    fn session(&self) -> Result<Thread<'_>, Failure> {
        let connection = prepared(Connection::open(&self.path)?)?;
        connection.execute_batch("PRAGMA synchronous = OFF;")?;
        connection.query_row("PRAGMA mmap_size = 4294967296", [], |_| Ok(()))?;
        Ok(Thread { store: self, connection })
    }
}

impl Session for Thread<'_> {
    fn run<B: Body>(&mut self, body: &B) -> Result<i64, Failure> {
        let _writing = body.writes().then(|| locked(&self.store.writing));
        run(&self.connection, body)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run<B: Body>(connection: &Connection, body: &B) -> Result<i64, Failure> {
    let execute = |sql| connection.prepare_cached(sql).and_then(|mut it| it.execute([]));
    execute(if body.writes() { "BEGIN IMMEDIATE" } else { "BEGIN" })?;
    match body.run(&mut InTransaction(connection)) {
        Ok(change) => {
            execute("COMMIT")?;
            Ok(change)
        }
        Err(stop) => {
            execute("ROLLBACK")?;
            match stop {
                Stop::Failed(failure) => Err(failure),
                Stop::Conflict => Err("SQLite has no conflicts here".into()),
            }
        }
    }
}

struct InTransaction<'c>(&'c Connection);

impl InTransaction<'_> {
    /// Changes one row.
    fn change(&self, sql: &str, key: u64, values: impl rusqlite::Params) -> Result<(), Stop> {
        match self.0.prepare_cached(sql)?.execute(values)? {
            1 => Ok(()),
            _ => Err(Stop::missing(key)),
        }
    }
}

impl Rows for InTransaction<'_> {
    fn balance(&mut self, account: Account, customer: u64) -> Result<i64, Stop> {
        let mut statement = self.0.prepare_cached(match account {
            Account::Savings => "SELECT cents FROM savings WHERE customer = ?1",
            Account::Checking => "SELECT cents FROM checking WHERE customer = ?1",
        })?;
        let found = statement.query_row([customer as i64], |row| row.get(0)).optional()?;
        found.ok_or_else(|| Stop::missing(customer))
    }

    fn set_balance(&mut self, account: Account, customer: u64, cents: i64) -> Result<(), Stop> {
        let sql = match account {
            Account::Savings => "UPDATE savings SET cents = ?2 WHERE customer = ?1",
            Account::Checking => "UPDATE checking SET cents = ?2 WHERE customer = ?1",
        };
        self.change(sql, customer, params![customer as i64, cents])
    }

    fn insert_balance(&mut self, account: Account, customer: u64, cents: i64) -> Result<(), Stop> {
        let sql = match account {
            Account::Savings => "INSERT INTO savings (customer, cents) VALUES (?1, ?2)",
            Account::Checking => "INSERT INTO checking (customer, cents) VALUES (?1, ?2)",
        };
        self.change(sql, customer, params![customer as i64, cents])
    }

    fn add(&mut self, account: Account, customer: u64, cents: i64) -> Result<(), Stop> {
        let sql = match account {
            Account::Savings => "UPDATE savings SET cents = cents + ?2 WHERE customer = ?1",
            Account::Checking => "UPDATE checking SET cents = cents + ?2 WHERE customer = ?1",
        };
        self.change(sql, customer, params![customer as i64, cents])
    }

    fn updates(&mut self, key: u64) -> Result<u64, Stop> {
        let mut statement = self.0.prepare_cached("SELECT record FROM records WHERE key = ?1")?;
        let mut rows = statement.query([key as i64])?;
        let row = rows.next()?.ok_or_else(|| Stop::missing(key))?;
        count(row.get_ref(0)?.as_blob()?)
    }

    fn set_record(&mut self, key: u64, record: &Record) -> Result<(), Stop> {
        let sql = "UPDATE records SET record = ?2 WHERE key = ?1";
        self.change(sql, key, params![key as i64, record.as_slice()])
    }

    fn insert_record(&mut self, key: u64, record: &Record) -> Result<(), Stop> {
        let sql = "INSERT INTO records (key, record) VALUES (?1, ?2)";
        self.change(sql, key, params![key as i64, record.as_slice()])
    }
}
