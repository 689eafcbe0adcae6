//! Tarn, by its public interface: typed rows, and several coroutines a thread, or one session a thread.
//!
//! Invariant: a transaction requests all its rows and fetches them together, as Tarn's documentation advises. The
//! bodies do the same to the rows as the bodies of the other stores.

use crate::inputs::{
    CHECK_CENTS, DEPOSIT_CENTS, Input, Inputs, OPERATIONS_MAX, Operations, PENALTY_CENTS,
    SAVINGS_CENTS, SEND_CENTS, START_CENTS, Workload,
};
use crate::run::{Contender, Counts, Phase};
use crate::store::{Failure, RECORD_BYTES, parts};
use std::cell::{Cell, RefCell};
use tarn::{Error, Executor, RecordHandle, Row, Session, Table, Tarn, Transaction};

/// A savings account.
#[derive(Row)]
#[row(table = "savings", key(customer))]
struct Savings {
    customer: u64,
    cents: i64,
}

/// A checking account.
#[derive(Row)]
#[row(table = "checking", key(customer))]
struct Checking {
    customer: u64,
    cents: i64,
}

/// A record: the number of its updates, and bytes that all have the last byte of this number.
#[derive(Row)]
#[row(table = "records", key(key))]
struct Record {
    key: u64,
    updates: u64,
    rest: [u8; RECORD_BYTES - 8],
}

impl Record {
    fn new(key: u64, updates: u64) -> Record {
        Record { key, updates, rest: [updates as u8; RECORD_BYTES - 8] }
    }

    /// Whether the record is that of one update.
    fn is_whole(&self) -> bool {
        self.rest[RECORD_BYTES - 9] == self.updates as u8
    }
}

/// A Tarn database with the rows of a workload.
pub struct OnTarn {
    tarn: Tarn,
    tables: Tables,
    workload: Workload,
    coroutines: usize,
}

#[derive(Clone, Copy)]
struct Tables {
    savings: Table<Savings>,
    checking: Table<Checking>,
    records: Table<Record>,
}

impl OnTarn {
    pub fn load(workload: Workload, coroutines: usize) -> Result<OnTarn, Failure> {
        let (accounts, records) = match workload {
            Workload::SmallBank { customers } => (customers, 1),
            Workload::Ycsb { records, .. } => (1, records),
        };
        let tarn = Tarn::embedded()
            .table::<Savings>(accounts)
            .table::<Checking>(accounts)
            .table::<Record>(records)
            .open()?;
        let (savings, checking) = (tarn.table()?, tarn.table()?);
        let tables = Tables { savings, checking, records: tarn.table()? };
        let mut session = tarn.session()?;
        for part in parts(workload) {
            session.run(async |tx| tables.insert(tx, workload, part.clone()).await)?;
        }
        drop(session);
        Ok(OnTarn { tarn, tables, workload, coroutines })
    }
}

impl Contender for OnTarn {
    fn work(&self, seed: u64, phase: &Phase) -> Result<Counts, Failure> {
        let mut session = self.tarn.session()?;
        let inputs = |coroutine: usize| Inputs::new(self.workload, seed + coroutine as u64);
        if self.coroutines == 1 {
            return Ok(tarn::block_on(self.tables.work(&mut session, inputs(0), phase))?);
        }
        let (counts, failure) = (RefCell::new(Counts::default()), Cell::new(None));
        let mut executor = Executor::new();
        for coroutine in 0..self.coroutines {
            let (mut session, inputs) = (session.sibling()?, inputs(coroutine));
            let (counts, failure, tables) = (&counts, &failure, self.tables);
            executor.spawn(async move {
                match tables.work(&mut session, inputs, phase).await {
                    Ok(its) => counts.borrow_mut().add(its),
                    Err(error) => failure.set(Some(error)),
                }
            });
        }
        executor.run();
        drop(executor);
        match failure.into_inner() {
            None => Ok(counts.into_inner()),
            Some(error) => Err(error.into()),
        }
    }

    fn sum(&self) -> Result<i64, Failure> {
        let (mut session, mut sum) = (self.tarn.session()?, 0);
        for part in parts(self.workload) {
            let rows = async |tx: &mut Transaction<'_>| {
                self.tables.sum(tx, self.workload, part.clone()).await
            };
            sum += session.run_read_only(rows)?;
        }
        Ok(sum)
    }
}

/// Returns fetched rows, or ends the transaction if one is missing.
macro_rules! rows {
    ($tx:ident, $($table:expr, $handle:expr);+) => {{
        $tx.fetch().await?;
        ($(match $table.get($tx, $handle) { Some(row) => row, None => return $tx.abort() }),+)
    }};
}

impl Tables {
    /// Runs transactions until the phase ends.
    async fn work(
        self,
        session: &mut Session,
        mut inputs: Inputs,
        phase: &Phase,
    ) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        while !phase.has_ended() {
            let mut tries = 0;
            let change = self.transact(session, inputs.next(), &mut tries).await?;
            counts.retries += tries - 1;
            counts.commit(phase, change);
        }
        Ok(counts)
    }

    /// Runs one transaction. Returns the change of the sum over all rows.
    #[inline]
    async fn transact(
        self,
        session: &mut Session,
        input: Input,
        tries: &mut u64,
    ) -> Result<i64, Error> {
        match input {
            Input::Ycsb(operations) if !input.writes() => {
                *tries += 1;
                self.read_records(session, &operations).await
            }
            Input::Ycsb(operations) => {
                let body = async |tx: &mut Transaction<'_>| {
                    *tries += 1;
                    self.update_records(tx, &operations).await
                };
                session.transact(body).await
            }
            Input::Balance(customer) => {
                let body = async |tx: &mut Transaction<'_>| {
                    *tries += 1;
                    let savings = self.savings.read(tx, customer);
                    let checking = self.checking.read(tx, customer);
                    let (saved, has) = rows!(tx, self.savings, savings; self.checking, checking);
                    std::hint::black_box(saved.cents + has.cents);
                    Ok(0)
                };
                session.transact_read_only(body).await
            }
            _ => {
                let body = async |tx: &mut Transaction<'_>| {
                    *tries += 1;
                    self.procedure(tx, input).await
                };
                session.transact(body).await
            }
        }
    }

    /// A procedure of SmallBank that writes.
    #[inline]
    async fn procedure(self, tx: &mut Transaction<'_>, input: Input) -> Result<i64, Error> {
        let Tables { savings, checking, .. } = self;
        match input {
            Input::Amalgamate(from, to) => {
                let (saved, held) = (savings.update(tx, from), checking.update(tx, from));
                let other = checking.update(tx, to);
                let (from, has, gets) = rows!(tx, savings, saved; checking, held; checking, other);
                let all = from.cents + has.cents;
                savings.set(tx, saved, &Savings { cents: 0, ..from });
                checking.set(tx, held, &Checking { cents: 0, ..has });
                checking.set(tx, other, &Checking { cents: gets.cents + all, ..gets });
                Ok(0)
            }
            Input::SendPayment(from, to) => {
                let (from, to) = (checking.update(tx, from), checking.update(tx, to));
                let (payer, payee) = rows!(tx, checking, from; checking, to);
                if payer.cents >= SEND_CENTS {
                    let (pays, gets) = (payer.cents - SEND_CENTS, payee.cents + SEND_CENTS);
                    checking.set(tx, from, &Checking { cents: pays, ..payer });
                    checking.set(tx, to, &Checking { cents: gets, ..payee });
                }
                Ok(0)
            }
            Input::DepositChecking(customer) => {
                let record = checking.update(tx, customer);
                let has = rows!(tx, checking, record);
                let cents = has.cents + DEPOSIT_CENTS;
                checking.set(tx, record, &Checking { cents, ..has });
                Ok(DEPOSIT_CENTS)
            }
            Input::TransactSavings(customer) => {
                let record = savings.update(tx, customer);
                let has = rows!(tx, savings, record);
                let cents = has.cents + SAVINGS_CENTS;
                savings.set(tx, record, &Savings { cents, ..has });
                Ok(SAVINGS_CENTS)
            }
            Input::WriteCheck(customer) => {
                let (saved, held) = (savings.read(tx, customer), checking.update(tx, customer));
                let (saved, has) = rows!(tx, savings, saved; checking, held);
                let is_overdrawn = saved.cents + has.cents < CHECK_CENTS;
                let paid = CHECK_CENTS + if is_overdrawn { PENALTY_CENTS } else { 0 };
                checking.set(tx, held, &Checking { cents: has.cents - paid, ..has });
                Ok(-paid)
            }
            Input::Balance(_) | Input::Ycsb(_) => unreachable!("these have bodies of their own"),
        }
    }

    async fn read_records(
        self,
        session: &mut Session,
        operations: &Operations,
    ) -> Result<i64, Error> {
        let mut keys = [0; OPERATIONS_MAX];
        let count = operations.each().len();
        keys.iter_mut().zip(operations.each()).for_each(|(key, (its, _))| *key = *its);
        let found = session.multi_get(self.records, &keys[..count]).await?;
        let are_whole = found.iter().all(|it| it.as_ref().is_some_and(Record::is_whole));
        assert!(are_whole, "a record is torn or missing");
        Ok(0)
    }

    async fn update_records(
        self,
        tx: &mut Transaction<'_>,
        operations: &Operations,
    ) -> Result<i64, Error> {
        let records = self.records;
        let mut handles: [Option<RecordHandle<Record>>; OPERATIONS_MAX] = [None; OPERATIONS_MAX];
        for ((key, writes), handle) in operations.each().iter().zip(&mut handles) {
            *handle = Some(match writes {
                true => records.update(tx, *key),
                false => records.read(tx, *key),
            });
        }
        tx.fetch().await?;
        let mut written = 0;
        for ((key, writes), handle) in operations.each().iter().zip(handles) {
            let Some(handle) = handle else { return tx.abort() };
            let Some(record) = records.get(tx, handle) else { return tx.abort() };
            if *writes {
                records.set(tx, handle, &Record::new(*key, record.updates + 1));
                written += 1;
            }
            // A record that is torn is one that was read before its transaction was validated.
            std::hint::black_box(record.is_whole());
        }
        Ok(written)
    }

    async fn insert(
        self,
        tx: &mut Transaction<'_>,
        workload: Workload,
        part: std::ops::Range<u64>,
    ) -> Result<(), Error> {
        let cents = START_CENTS;
        match workload {
            Workload::SmallBank { .. } => {
                let of = |customer| (Savings { customer, cents }, Checking { customer, cents });
                let (savings, checking): (Vec<_>, Vec<_>) = part.map(of).unzip();
                self.savings.put_many(tx, &savings).await?;
                self.checking.put_many(tx, &checking).await?;
            }
            Workload::Ycsb { .. } => {
                let records: Vec<_> = part.map(|key| Record::new(key, 0)).collect();
                self.records.put_many(tx, &records).await?;
            }
        }
        Ok(())
    }

    async fn sum(
        self,
        tx: &mut Transaction<'_>,
        workload: Workload,
        part: std::ops::Range<u64>,
    ) -> Result<i64, Error> {
        match workload {
            Workload::SmallBank { .. } => {
                let savings = self.savings.find_many(tx, part.clone()).await?;
                let checking = self.checking.find_many(tx, part).await?;
                let saved: i64 = savings.iter().flatten().map(|it| it.cents).sum();
                Ok(saved + checking.iter().flatten().map(|it| it.cents).sum::<i64>())
            }
            Workload::Ycsb { .. } => {
                let records = self.records.find_many(tx, part).await?;
                Ok(records.iter().flatten().map(|it| it.updates as i64).sum())
            }
        }
    }
}
