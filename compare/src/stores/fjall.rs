//! fjall: trees of sorted runs (LSM) with optimistic transactions that several threads commit.
//!
//! Invariant: transactions are serializable, because fjall validates their reads at commit. The journal stays in the
//! process until it fills (`manual_journal_persist`), so no commit calls the operating system.

use crate::store::{Account, Body, Failure, Record, Rows, Session, Stop, Store, count};
use fjall::{
    KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx,
    Readable as _, Snapshot,
};
use std::path::Path;

const CACHE_BYTES: u64 = 1 << 30;

pub struct Fjall {
    database: OptimisticTxDatabase,
    savings: OptimisticTxKeyspace,
    checking: OptimisticTxKeyspace,
    records: OptimisticTxKeyspace,
}

impl Fjall {
    pub fn open(folder: &Path) -> Result<Fjall, Failure> {
        let database = OptimisticTxDatabase::builder(folder)
            .manual_journal_persist(true)
            .cache_size(CACHE_BYTES)
            .open()?;
        let keyspace = |name| database.keyspace(name, KeyspaceCreateOptions::default);
        let (savings, checking) = (keyspace("savings")?, keyspace("checking")?);
        let records = keyspace("records")?;
        Ok(Fjall { database, savings, checking, records })
    }

    fn account(&self, account: Account) -> &OptimisticTxKeyspace {
        match account {
            Account::Savings => &self.savings,
            Account::Checking => &self.checking,
        }
    }
}

/// A thread's session.
pub struct Thread<'s> {
    store: &'s Fjall,
    retries: u64,
}

impl Store for Fjall {
    type Session<'s> = Thread<'s>;

    fn session(&self) -> Result<Thread<'_>, Failure> {
        Ok(Thread { store: self, retries: 0 })
    }
}

impl Session for Thread<'_> {
    fn run<B: Body>(&mut self, body: &B) -> Result<i64, Failure> {
        let store = self.store;
        loop {
            let result = if body.writes() {
                let tx = store.database.write_tx()?.durability(None);
                let mut rows = Written { store, tx };
                body.run(&mut rows).and_then(|change| match rows.tx.commit()? {
                    Ok(()) => Ok(change),
                    Err(_) => Err(Stop::Conflict),
                })
            } else {
                body.run(&mut Read { store, tx: store.database.read_tx() })
            };
            match result {
                Ok(change) => return Ok(change),
                Err(Stop::Failed(failure)) => return Err(failure),
                Err(Stop::Conflict) => self.retries += 1,
            }
        }
    }

    fn retries(&self) -> u64 {
        self.retries
    }
}

struct Written<'s> {
    store: &'s Fjall,
    tx: OptimisticWriteTx,
}

struct Read<'s> {
    store: &'s Fjall,
    tx: Snapshot,
}

fn cents(found: Option<fjall::Slice>, customer: u64) -> Result<i64, Stop> {
    let found = found.as_deref().and_then(|bytes| bytes.first_chunk());
    Ok(i64::from_le_bytes(*found.ok_or_else(|| Stop::missing(customer))?))
}

fn updates(found: Option<fjall::Slice>, key: u64) -> Result<u64, Stop> {
    count(&found.ok_or_else(|| Stop::missing(key))?)
}

impl Rows for Written<'_> {
    fn balance(&mut self, account: Account, customer: u64) -> Result<i64, Stop> {
        let keyspace = self.store.account(account);
        cents(self.tx.get(keyspace, customer.to_be_bytes())?, customer)
    }

    fn set_balance(&mut self, account: Account, customer: u64, cents: i64) -> Result<(), Stop> {
        let keyspace = self.store.account(account);
        self.tx.insert(keyspace, customer.to_be_bytes(), cents.to_le_bytes());
        Ok(())
    }

    fn updates(&mut self, key: u64) -> Result<u64, Stop> {
        updates(self.tx.get(&self.store.records, key.to_be_bytes())?, key)
    }

    fn set_record(&mut self, key: u64, record: &Record) -> Result<(), Stop> {
        self.tx.insert(&self.store.records, key.to_be_bytes(), *record);
        Ok(())
    }
}

impl Rows for Read<'_> {
    fn balance(&mut self, account: Account, customer: u64) -> Result<i64, Stop> {
        let keyspace = self.store.account(account);
        cents(self.tx.get(keyspace, customer.to_be_bytes())?, customer)
    }

    fn set_balance(&mut self, _: Account, _: u64, _: i64) -> Result<(), Stop> {
        unreachable!("the body said that it writes nothing")
    }

    fn updates(&mut self, key: u64) -> Result<u64, Stop> {
        updates(self.tx.get(&self.store.records, key.to_be_bytes())?, key)
    }

    fn set_record(&mut self, _: u64, _: &Record) -> Result<(), Stop> {
        unreachable!("the body said that it writes nothing")
    }
}
