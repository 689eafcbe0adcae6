//! The transactions' inputs: SmallBank's six procedures, and transactions of several YCSB operations.
//!
//! Invariant: inputs depend only on the seed and on the settings, so every store gets the same ones. Each thread, and
//! each coroutine of a thread, has a stream of its own.
//!
//! SmallBank: Alomari, Cahill, Fekete, Röhm, ICDE 2008, with SendPayment, the amounts and the mix of H-Store. YCSB:
//! Cooper, Silberstein, Tam, Ramakrishnan, Sears, SoCC 2010; an update writes the next value of the record instead of
//! a random value, so that a lost update is noticed.

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tarn_zipf::Zipf;

/// The balance of each account after loading.
pub const START_CENTS: i64 = 1_000_000;
pub const SEND_CENTS: i64 = 500;
pub const DEPOSIT_CENTS: i64 = 130;
pub const SAVINGS_CENTS: i64 = 2_020;
pub const CHECK_CENTS: i64 = 500;
pub const PENALTY_CENTS: i64 = 100;

/// The greatest number of operations of a YCSB transaction.
pub const OPERATIONS_MAX: usize = 16;

/// A workload: the rows to load, and the transactions to run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Workload {
    /// SmallBank with this number of customers.
    SmallBank { customers: u64 },
    /// YCSB over this number of records. `writes_percent` of the operations of a transaction update a record.
    Ycsb { records: u64, operations: usize, writes_percent: u32, zipf: f64 },
}

/// The input of one transaction.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// Moves all money of the first customer to the checking account of the second customer.
    Amalgamate(u64, u64),
    /// Reads both balances of a customer.
    Balance(u64),
    /// Pays into a customer's checking account.
    DepositChecking(u64),
    /// Moves an amount from the first customer's checking account to that of the second.
    SendPayment(u64, u64),
    /// Pays into a customer's savings account.
    TransactSavings(u64),
    /// Cashes a check against the sum of both balances.
    WriteCheck(u64),
    /// Reads or updates several records.
    Ycsb(Operations),
}

/// The operations of a YCSB transaction.
#[derive(Clone, Copy, Debug)]
pub struct Operations {
    operations: [(u64, bool); OPERATIONS_MAX],
    count: usize,
}

impl Operations {
    /// Each operation's key, and whether the operation updates the record.
    pub fn each(&self) -> &[(u64, bool)] {
        &self.operations[..self.count]
    }
}

impl Input {
    /// Whether the transaction may change a row.
    pub fn writes(&self) -> bool {
        match self {
            Input::Balance(_) => false,
            Input::Ycsb(operations) => operations.each().iter().any(|(_, writes)| *writes),
            _ => true,
        }
    }
}

/// A stream of inputs.
pub struct Inputs {
    workload: Workload,
    rng: Xoshiro256PlusPlus,
    zipf: Zipf,
}

/// Scatters the ranks of Zipf's law over the keys. The factor is a prime above every allowed number of records, so
/// two ranks never have the same key.
const SCATTER: u64 = 2_654_435_761;

/// The greatest number of rows of a table.
pub const ROWS_MAX: u64 = 1 << 31;

impl Inputs {
    pub fn new(workload: Workload, seed: u64) -> Inputs {
        let zipf = match workload {
            Workload::SmallBank { .. } => Zipf::new(1, 0.0),
            Workload::Ycsb { records, zipf, .. } => Zipf::new(records, zipf),
        };
        Inputs { workload, rng: Xoshiro256PlusPlus::seed_from_u64(seed), zipf }
    }

    /// Draws the input of the next transaction.
    pub fn next(&mut self) -> Input {
        let rng = &mut self.rng;
        match self.workload {
            Workload::SmallBank { customers } => {
                let a = rng.random_range(0..customers);
                let another = |rng: &mut Xoshiro256PlusPlus| {
                    let step = rng.random_range(1..customers);
                    (a + step) % customers
                };
                match rng.random_range(0..100) {
                    0..15 => Input::Amalgamate(a, another(rng)),
                    15..30 => Input::Balance(a),
                    30..45 => Input::DepositChecking(a),
                    45..70 => Input::SendPayment(a, another(rng)),
                    70..85 => Input::TransactSavings(a),
                    _ => Input::WriteCheck(a),
                }
            }
            Workload::Ycsb { records, operations: count, writes_percent, .. } => {
                let mut operations = [(0, false); OPERATIONS_MAX];
                for operation in &mut operations[..count] {
                    let rank = self.zipf.draw(|| rng.random());
                    let key = (rank - 1) * SCATTER % records;
                    *operation = (key, rng.random_range(0..100) < writes_percent);
                }
                Input::Ycsb(Operations { operations, count })
            }
        }
    }
}

impl Workload {
    /// The number of rows of each table.
    pub fn rows(self) -> u64 {
        match self {
            Workload::SmallBank { customers } => customers,
            Workload::Ycsb { records, .. } => records,
        }
    }

    /// The sum over all rows after loading.
    pub fn start(self) -> i64 {
        match self {
            Workload::SmallBank { customers } => 2 * customers as i64 * START_CENTS,
            Workload::Ycsb { .. } => 0,
        }
    }
}
