//! A bank: several threads move money between accounts while auditors add up the balances of all accounts.
//!
//! Invariant: every auditor sees the same sum of balances, even while transfers run.
//!
//! `cargo run --release -p tarn --example bank_transfer`

#![allow(clippy::disallowed_methods, reason = "drives real threads")]

use rand::RngExt as _;
use tarn::{Error, Row, Session, Table, Tarn};

/// An account of the bank.
#[derive(Row)]
#[row(table = "accounts", key(number))]
pub struct Account {
    /// The number of the account.
    pub number: u64,
    /// The balance of the account, in cents.
    pub cents: i64,
}

const ACCOUNTS: u64 = 100;
const START_CENTS: i64 = 10_000;
const TELLERS: u64 = 2;
const TRANSFERS: u64 = 2_000;

fn main() -> Result<(), Error> {
    // The cluster has three memory nodes, and each of them has a copy of every record.
    let bank = Tarn::embedded().table::<Account>(ACCOUNTS).memory_nodes(3).replicas(3).open()?;
    let accounts = bank.table::<Account>()?;
    open_accounts(&mut bank.session()?, accounts)?;
    std::thread::scope(|scope| {
        let tellers: Vec<_> =
            (0..TELLERS).map(|_| scope.spawn(|| work(&mut bank.session()?, accounts))).collect();
        let mut auditor = bank.session()?;
        while !tellers.iter().all(|teller| teller.is_finished()) {
            assert_eq!(sum(&mut auditor, accounts)?, ACCOUNTS as i64 * START_CENTS);
        }
        let mut refused = 0;
        for teller in tellers {
            refused += teller.join().expect("a teller panicked")?;
        }
        println!("{} transfers, {refused} refused", TELLERS * TRANSFERS);
        Ok::<(), Error>(())
    })?;
    println!("in all accounts: {} cents", sum(&mut bank.session()?, accounts)?);
    Ok(())
}

fn open_accounts(session: &mut Session, accounts: Table<Account>) -> Result<(), Error> {
    for number in 0..ACCOUNTS {
        let fresh = Account { number, cents: START_CENTS };
        session.run(async |tx| accounts.put(tx, &fresh).await)?;
    }
    Ok(())
}

/// Makes transfers between random accounts. Returns the number of refused transfers.
fn work(session: &mut Session, accounts: Table<Account>) -> Result<u64, Error> {
    let mut rng = session.context().port.rng();
    let mut refused = 0;
    for _ in 0..TRANSFERS {
        let from = rng.random_range(0..ACCOUNTS);
        let to = (from + rng.random_range(1..ACCOUNTS)) % ACCOUNTS;
        match transfer(session, accounts, (from, to), rng.random_range(1..5_000)) {
            Err(error) if error.is_own_abort() => refused += 1,
            other => other?,
        }
    }
    Ok(refused)
}

fn transfer(
    session: &mut Session,
    accounts: Table<Account>,
    (from, to): (u64, u64),
    cents: i64,
) -> Result<(), Error> {
    session.run(async |tx| {
        let (from, to) = (accounts.update(tx, from), accounts.update(tx, to));
        tx.fetch().await?; // one round trip locks and reads both accounts
        let (Some(mut payer), Some(mut payee)) = (accounts.get(tx, from), accounts.get(tx, to))
        else {
            return tx.abort();
        };
        if payer.cents < cents {
            return tx.abort();
        }
        payer.cents -= cents;
        payee.cents += cents;
        accounts.set(tx, from, &payer);
        accounts.set(tx, to, &payee);
        Ok(())
    })
}

/// Adds up the balances of all accounts in one transaction.
fn sum(session: &mut Session, accounts: Table<Account>) -> Result<i64, Error> {
    session.run(async |tx| {
        let all: Vec<_> = (0..ACCOUNTS).map(|number| accounts.read(tx, number)).collect();
        tx.fetch().await?;
        let found = all.into_iter().filter_map(|account| accounts.get(tx, account));
        Ok(found.map(|account| account.cents).sum())
    })
}
