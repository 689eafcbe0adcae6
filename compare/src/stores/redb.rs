//! redb: B-trees with copy on write, in a file. One transaction writes at a time.
//!
//! Invariant: no commit waits for the disk (`Durability::None`). The page cache holds all rows.

use crate::store::{Account, Body, Failure, Record, Rows, Session, Stop, Store, count};
use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase as _, ReadableTable,
    Table, TableDefinition, WriteTransaction,
};
use std::path::Path;

type Balances = TableDefinition<'static, u64, i64>;

const SAVINGS: Balances = TableDefinition::new("savings");
const CHECKING: Balances = TableDefinition::new("checking");
const RECORDS: TableDefinition<u64, &Record> = TableDefinition::new("records");

const CACHE_BYTES: usize = 4 << 30;

pub struct Redb(Database);

impl Redb {
    pub fn open(folder: &Path) -> Result<Redb, Failure> {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = builder.create(folder.join("store.redb"))?;
        // A transaction that only reads cannot create the tables.
        let mut tx = database.begin_write()?;
        tx.set_durability(Durability::None)?;
        tx.open_table(SAVINGS)?;
        tx.open_table(CHECKING)?;
        tx.open_table(RECORDS)?;
        tx.commit()?;
        Ok(Redb(database))
    }
}

impl Store for Redb {
    type Session<'s> = &'s Database;

    fn session(&self) -> Result<&Database, Failure> {
        Ok(&self.0)
    }
}

impl Session for &Database {
    fn run<B: Body>(&mut self, body: &B) -> Result<i64, Failure> {
        let result = if body.writes() {
            let mut tx = self.begin_write()?;
            tx.set_durability(Durability::None)?;
            let mut rows = Written { tx: &tx, savings: None, checking: None, records: None };
            let result = body.run(&mut rows);
            drop(rows);
            if result.is_ok() {
                tx.commit()?;
            }
            result
        } else {
            let tx = self.begin_read()?;
            body.run(&mut Read { tx: &tx, savings: None, checking: None, records: None })
        };
        match result {
            Ok(change) => Ok(change),
            Err(Stop::Failed(failure)) => Err(failure),
            Err(Stop::Conflict) => Err("redb has no conflicts".into()),
        }
    }
}

/// The tables that a transaction has opened, each at its first use.
struct Opened<'t, T, B, R> {
    tx: &'t T,
    savings: Option<B>,
    checking: Option<B>,
    records: Option<R>,
}

type Written<'t> =
    Opened<'t, WriteTransaction, Table<'t, u64, i64>, Table<'t, u64, &'static Record>>;
type Read<'t> =
    Opened<'t, ReadTransaction, ReadOnlyTable<u64, i64>, ReadOnlyTable<u64, &'static Record>>;

fn balance(table: &impl ReadableTable<u64, i64>, customer: u64) -> Result<i64, Stop> {
    Ok(table.get(customer)?.ok_or_else(|| Stop::missing(customer))?.value())
}

fn updates(table: &impl ReadableTable<u64, &'static Record>, key: u64) -> Result<u64, Stop> {
    count(table.get(key)?.ok_or_else(|| Stop::missing(key))?.value())
}

impl<'t> Written<'t> {
    fn account(&mut self, account: Account) -> Result<&mut Table<'t, u64, i64>, Stop> {
        let (table, definition) = match account {
            Account::Savings => (&mut self.savings, SAVINGS),
            Account::Checking => (&mut self.checking, CHECKING),
        };
        if table.is_none() {
            *table = Some(self.tx.open_table(definition)?);
        }
        Ok(table.as_mut().expect("just opened"))
    }

    fn records(&mut self) -> Result<&mut Table<'t, u64, &'static Record>, Stop> {
        if self.records.is_none() {
            self.records = Some(self.tx.open_table(RECORDS)?);
        }
        Ok(self.records.as_mut().expect("just opened"))
    }
}

impl Rows for Written<'_> {
    fn balance(&mut self, account: Account, customer: u64) -> Result<i64, Stop> {
        balance(self.account(account)?, customer)
    }

    fn set_balance(&mut self, account: Account, customer: u64, cents: i64) -> Result<(), Stop> {
        self.account(account)?.insert(customer, cents)?;
        Ok(())
    }

    fn updates(&mut self, key: u64) -> Result<u64, Stop> {
        updates(self.records()?, key)
    }

    fn set_record(&mut self, key: u64, record: &Record) -> Result<(), Stop> {
        self.records()?.insert(key, record)?;
        Ok(())
    }
}

impl Rows for Read<'_> {
    fn balance(&mut self, account: Account, customer: u64) -> Result<i64, Stop> {
        let (table, definition) = match account {
            Account::Savings => (&mut self.savings, SAVINGS),
            Account::Checking => (&mut self.checking, CHECKING),
        };
        if table.is_none() {
            *table = Some(self.tx.open_table(definition)?);
        }
        balance(table.as_ref().expect("just opened"), customer)
    }

    fn set_balance(&mut self, _: Account, _: u64, _: i64) -> Result<(), Stop> {
        unreachable!("the body said that it writes nothing")
    }

    fn updates(&mut self, key: u64) -> Result<u64, Stop> {
        if self.records.is_none() {
            self.records = Some(self.tx.open_table(RECORDS)?);
        }
        updates(self.records.as_ref().expect("just opened"), key)
    }

    fn set_record(&mut self, _: u64, _: &Record) -> Result<(), Stop> {
        unreachable!("the body said that it writes nothing")
    }
}
