//! LMDB, by the crate heed: B-trees with copy on write in a mapped file. One transaction writes at a time.
//!
//! Invariant: transactions write the mapped file directly, and no commit waits for the disk (`WRITE_MAP`,
//! `MAP_ASYNC`, `NO_SYNC`). The file lies in a folder of its own, which only this process opens.

use crate::store::{Account, Body, Failure, Record, Rows, Session, Stop, Store, count};
use heed::types::{Bytes, I64, U64};
use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, IntegerComparator, RoTxn, RwTxn,
    WithoutTls, byteorder::NativeEndian,
};
use std::path::Path;

type Balances = Database<'static, U64<NativeEndian>, I64<NativeEndian>, IntegerComparator>;
type Records = Database<'static, U64<NativeEndian>, Bytes, IntegerComparator>;

/// The size of the map: address space, not memory.
const MAP_BYTES: usize = 64 << 30;

pub struct Lmdb {
    env: Env<WithoutTls>,
    tables: Tables,
}

#[derive(Clone, Copy)]
struct Tables {
    savings: Balances,
    checking: Balances,
    records: Records,
}

impl Lmdb {
    pub fn open(folder: &Path) -> Result<Lmdb, Failure> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_BYTES).max_dbs(3);
        // SAFETY: a power failure may destroy the file, which nothing reads afterwards.
        unsafe { options.flags(EnvFlags::WRITE_MAP | EnvFlags::MAP_ASYNC | EnvFlags::NO_SYNC) };
        // SAFETY: the folder is new, and only this process has it. So nothing changes the file behind the map.
        let env = unsafe { options.open(folder)? };
        let tx = env.write_txn()?;
        let opened = env.create_databases_and_commit(tx, |opener, tx| {
            let balances = opener
                .database_options()
                .types::<U64<NativeEndian>, I64<NativeEndian>>()
                .key_comparator::<IntegerComparator>();
            let records = balances.types::<U64<NativeEndian>, Bytes>();
            let (mut savings, mut checking, mut by_key) = (balances, balances, records);
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((
                savings.name("savings").create(tx)?,
                checking.name("checking").create(tx)?,
                by_key.name("records").create(tx)?,
            )))
        })?;
        let (savings, checking, records) = opened.unwrap_commit();
        let tables = Tables { savings, checking, records };
        Ok(Lmdb { env, tables })
    }
}

impl Store for Lmdb {
    type Session<'s> = &'s Lmdb;

    fn session(&self) -> Result<&Lmdb, Failure> {
        Ok(self)
    }
}

impl Session for &Lmdb {
    fn run<B: Body>(&mut self, body: &B) -> Result<i64, Failure> {
        let result = if body.writes() {
            let mut rows = Written { tables: self.tables, tx: self.env.write_txn()? };
            let result = body.run(&mut rows);
            if result.is_ok() {
                rows.tx.commit()?;
            }
            result
        } else {
            body.run(&mut Read { tables: self.tables, tx: self.env.read_txn()? })
        };
        match result {
            Ok(change) => Ok(change),
            Err(Stop::Failed(failure)) => Err(failure),
            Err(Stop::Conflict) => Err("LMDB has no conflicts".into()),
        }
    }
}

struct Written<'s> {
    tables: Tables,
    tx: RwTxn<'s>,
}

struct Read<'s> {
    tables: Tables,
    tx: RoTxn<'s, WithoutTls>,
}

impl Tables {
    fn account(&self, account: Account) -> &Balances {
        match account {
            Account::Savings => &self.savings,
            Account::Checking => &self.checking,
        }
    }

    fn balance(&self, tx: &RoTxn<'_>, account: Account, customer: u64) -> Result<i64, Stop> {
        self.account(account).get(tx, &customer)?.ok_or_else(|| Stop::missing(customer))
    }

    fn updates(&self, tx: &RoTxn<'_>, key: u64) -> Result<u64, Stop> {
        count(self.records.get(tx, &key)?.ok_or_else(|| Stop::missing(key))?)
    }
}

impl Rows for Written<'_> {
    fn balance(&mut self, account: Account, customer: u64) -> Result<i64, Stop> {
        self.tables.balance(&self.tx, account, customer)
    }

    fn set_balance(&mut self, account: Account, customer: u64, cents: i64) -> Result<(), Stop> {
        self.tables.account(account).put(&mut self.tx, &customer, &cents)?;
        Ok(())
    }

    fn updates(&mut self, key: u64) -> Result<u64, Stop> {
        self.tables.updates(&self.tx, key)
    }

    fn set_record(&mut self, key: u64, record: &Record) -> Result<(), Stop> {
        self.tables.records.put(&mut self.tx, &key, record)?;
        Ok(())
    }
}

impl Rows for Read<'_> {
    fn balance(&mut self, account: Account, customer: u64) -> Result<i64, Stop> {
        self.tables.balance(&self.tx, account, customer)
    }

    fn set_balance(&mut self, _: Account, _: u64, _: i64) -> Result<(), Stop> {
        unreachable!("the body said that it writes nothing")
    }

    fn updates(&mut self, key: u64) -> Result<u64, Stop> {
        self.tables.updates(&self.tx, key)
    }

    fn set_record(&mut self, _: u64, _: &Record) -> Result<(), Stop> {
        unreachable!("the body said that it writes nothing")
    }
}
