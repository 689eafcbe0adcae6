//! The interface between the transactions and the stores whose calls block.
//!
//! Invariant: a transaction's body is written once, and compiled for each store. A body returns the number by which it
//! changes the sum over all rows, so one check serves every store: the sum at the end is the sum after loading plus
//! the numbers of all committed transactions. The sum is money in SmallBank, and the number of updates in YCSB.

use crate::inputs::{
    CHECK_CENTS, DEPOSIT_CENTS, Input, PENALTY_CENTS, SAVINGS_CENTS, SEND_CENTS, START_CENTS,
    Workload,
};

/// A failure that ends the run.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a try of a transaction ended.
pub enum Stop {
    /// Another transaction was in the way. The session tries again.
    Conflict,
    Failed(Failure),
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Failed(error.into())
    }
}

impl Stop {
    /// A row that was loaded is missing.
    pub fn missing(key: u64) -> Stop {
        Stop::Failed(format!("the row {key} is missing").into())
    }
}

/// A table of accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Account {
    Savings,
    Checking,
}

/// The length of a YCSB record.
pub const RECORD_BYTES: usize = 100;

/// A record: the number of its updates, and bytes that all have the last byte of this number.
pub type Record = [u8; RECORD_BYTES];

/// Returns the record after this number of updates.
pub fn record(count: u64) -> Record {
    let mut record = [count as u8; RECORD_BYTES];
    record[..8].copy_from_slice(&count.to_le_bytes());
    record
}

/// Returns the number of a record's updates.
///
/// # Errors
/// If the record is a mixture of several updates.
pub fn count(record: &[u8]) -> Result<u64, Stop> {
    let first = record.first_chunk::<8>().filter(|_| record.len() == RECORD_BYTES);
    let count = first.map(|first| u64::from_le_bytes(*first));
    match count {
        Some(count) if record[RECORD_BYTES - 1] == count as u8 => Ok(count),
        _ => Err(Stop::Failed("a record is torn".into())),
    }
}

/// The rows as one transaction sees them.
pub trait Rows {
    fn balance(&mut self, account: Account, customer: u64) -> Result<i64, Stop>;

    /// Replaces a balance that exists.
    fn set_balance(&mut self, account: Account, customer: u64, cents: i64) -> Result<(), Stop>;

    fn insert_balance(&mut self, account: Account, customer: u64, cents: i64) -> Result<(), Stop> {
        self.set_balance(account, customer, cents)
    }

    /// Adds to a balance that exists. Stores with a statement for this need no read.
    fn add(&mut self, account: Account, customer: u64, cents: i64) -> Result<(), Stop> {
        let balance = self.balance(account, customer)?;
        self.set_balance(account, customer, balance + cents)
    }

    /// Returns the number of updates of a record.
    fn updates(&mut self, key: u64) -> Result<u64, Stop>;

    /// Replaces a record that exists.
    fn set_record(&mut self, key: u64, record: &Record) -> Result<(), Stop>;

    fn insert_record(&mut self, key: u64, record: &Record) -> Result<(), Stop> {
        self.set_record(key, record)
    }
}

/// The body of a transaction.
pub trait Body {
    fn writes(&self) -> bool;

    /// Returns the change of the sum over all rows.
    fn run<R: Rows>(&self, rows: &mut R) -> Result<i64, Stop>;
}

/// A thread's access to a store.
pub trait Session {
    /// Runs a transaction until it commits.
    fn run<B: Body>(&mut self, body: &B) -> Result<i64, Failure>;

    /// The number of tries that ended by a conflict.
    fn retries(&self) -> u64 {
        0
    }
}

/// A store whose calls block.
pub trait Store: Sync {
    type Session<'s>: Session
    where
        Self: 's;

    fn session(&self) -> Result<Self::Session<'_>, Failure>;
}

impl Body for Input {
    fn writes(&self) -> bool {
        Input::writes(self)
    }

    fn run<R: Rows>(&self, rows: &mut R) -> Result<i64, Stop> {
        use Account::{Checking, Savings};
        match *self {
            Input::Amalgamate(from, to) => {
                let all = rows.balance(Savings, from)? + rows.balance(Checking, from)?;
                rows.set_balance(Savings, from, 0)?;
                rows.set_balance(Checking, from, 0)?;
                rows.add(Checking, to, all)?;
                Ok(0)
            }
            Input::Balance(customer) => {
                std::hint::black_box(
                    rows.balance(Savings, customer)? + rows.balance(Checking, customer)?,
                );
                Ok(0)
            }
            Input::DepositChecking(customer) => {
                rows.add(Checking, customer, DEPOSIT_CENTS)?;
                Ok(DEPOSIT_CENTS)
            }
            Input::SendPayment(from, to) => {
                let balance = rows.balance(Checking, from)?;
                if balance >= SEND_CENTS {
                    rows.set_balance(Checking, from, balance - SEND_CENTS)?;
                    rows.add(Checking, to, SEND_CENTS)?;
                }
                Ok(0)
            }
            Input::TransactSavings(customer) => {
                rows.add(Savings, customer, SAVINGS_CENTS)?;
                Ok(SAVINGS_CENTS)
            }
            Input::WriteCheck(customer) => {
                let balance = rows.balance(Checking, customer)?;
                let is_overdrawn = rows.balance(Savings, customer)? + balance < CHECK_CENTS;
                let paid = CHECK_CENTS + if is_overdrawn { PENALTY_CENTS } else { 0 };
                rows.set_balance(Checking, customer, balance - paid)?;
                Ok(-paid)
            }
            Input::Ycsb(ref operations) => {
                let mut written = 0;
                for (key, writes) in operations.each() {
                    let updates = rows.updates(*key)?;
                    if *writes {
                        rows.set_record(*key, &record(updates + 1))?;
                        written += 1;
                    }
                }
                Ok(written)
            }
        }
    }
}

/// Inserts some of the rows of a workload.
pub struct Load(pub Workload, pub std::ops::Range<u64>);

impl Body for Load {
    fn writes(&self) -> bool {
        true
    }

    fn run<R: Rows>(&self, rows: &mut R) -> Result<i64, Stop> {
        for key in self.1.clone() {
            match self.0 {
                Workload::SmallBank { .. } => {
                    rows.insert_balance(Account::Savings, key, START_CENTS)?;
                    rows.insert_balance(Account::Checking, key, START_CENTS)?;
                }
                Workload::Ycsb { .. } => rows.insert_record(key, &record(0))?,
            }
        }
        Ok(0)
    }
}

/// Sums up some of the rows of a workload. The sum is the result of the body.
pub struct Audit(pub Workload, pub std::ops::Range<u64>);

impl Body for Audit {
    fn writes(&self) -> bool {
        false
    }

    fn run<R: Rows>(&self, rows: &mut R) -> Result<i64, Stop> {
        let mut sum = 0;
        for key in self.1.clone() {
            sum += match self.0 {
                Workload::SmallBank { .. } => {
                    rows.balance(Account::Savings, key)? + rows.balance(Account::Checking, key)?
                }
                Workload::Ycsb { .. } => rows.updates(key)? as i64,
            };
        }
        Ok(sum)
    }
}

/// Splits the rows of a workload into parts for one transaction each.
pub fn parts(workload: Workload) -> impl Iterator<Item = std::ops::Range<u64>> {
    const PART: u64 = 1_000;
    let rows = workload.rows();
    (0..rows).step_by(PART as usize).map(move |first| first..(first + PART).min(rows))
}
