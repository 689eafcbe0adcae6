//! SmallBank for an async server: tasks of tokio run the six procedures of the benchmark by [`tarn::Workers`].
//!
//! Prints transactions per second and latencies, and checks at the end that no money was made or lost. Run it with
//! `cargo run --release -p tarn --example async_smallbank -- [SECONDS [TASKS [RUNTIME_THREADS [WORKERS]]]]`.

#![allow(clippy::disallowed_methods, reason = "measures real threads")]

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::{Duration, Instant};
use tarn::{Error, Row, Table, Tarn, Transaction, Workers};

const CUSTOMERS: u64 = 100_000;
const START_CENTS: i64 = 1_000_000;

/// A savings account of a customer.
#[derive(Row)]
#[row(table = "savings", key(customer))]
struct Savings {
    customer: u64,
    cents: i64,
}

/// A checking account of a customer.
#[derive(Row)]
#[row(table = "checking", key(customer))]
struct Checking {
    customer: u64,
    cents: i64,
}

#[derive(Clone, Copy)]
struct Bank {
    savings: Table<Savings>,
    checking: Table<Checking>,
}

/// A customer's two balances, after they were locked for an update.
type Both = (i64, i64);

/// Changes both accounts of `a` and the checking account of `b` by the amounts that `change` returns. Returns the money
/// that came into the bank. If `change` returns nothing, nothing changes.
async fn change(
    bank: Bank,
    tx: &mut Transaction<'_>,
    (a, b): (u64, u64),
    change: impl Fn(Both, i64) -> Option<(i64, i64, i64)>,
) -> Result<i64, Error> {
    let (savings, checking) = (bank.savings.update(tx, a), bank.checking.update(tx, a));
    let other = bank.checking.update(tx, b);
    tx.fetch().await?;
    let (Some(has), Some(pays), Some(gets)) = (
        bank.savings.get(tx, savings),
        bank.checking.get(tx, checking),
        bank.checking.get(tx, other),
    ) else {
        return tx.abort();
    };
    let Some((saved, paid, got)) = change((has.cents, pays.cents), gets.cents) else {
        return Ok(0);
    };
    bank.savings.set(tx, savings, &Savings { cents: has.cents + saved, ..has });
    bank.checking.set(tx, checking, &Checking { cents: pays.cents + paid, ..pays });
    if got != 0 {
        bank.checking.set(tx, other, &Checking { cents: gets.cents + got, ..gets });
    }
    Ok(saved + paid + got)
}

/// Changes one account of a customer by `cents`, unless it would be overdrawn.
macro_rules! deposit {
    ($bank:ident.$table:ident as $row:ident, $tx:ident, $customer:expr, $cents:expr) => {{
        let record = $bank.$table.update($tx, $customer);
        $tx.fetch().await?;
        let Some(account) = $bank.$table.get($tx, record) else { return $tx.abort() };
        let cents = account.cents + $cents;
        if cents < 0 {
            return Ok(0);
        }
        $bank.$table.set($tx, record, &$row { cents, ..account });
        Ok($cents)
    }};
}

/// Runs one transaction of the mix. Returns the money that came into the bank.
async fn one(bank: Bank, workers: &Workers, rng: &mut Xoshiro256PlusPlus) -> Result<i64, Error> {
    let a = rng.random_range(0..CUSTOMERS);
    let b = (a + rng.random_range(1..CUSTOMERS)) % CUSTOMERS;
    let cents = rng.random_range(1..1_000);
    match rng.random_range(0..100) {
        0..15 => {
            workers
                .run(async move |tx| {
                    change(bank, tx, (a, b), |(saved, has), _| Some((-saved, -has, saved + has)))
                        .await
                })
                .await
        }
        15..30 => {
            workers
                .run_read_only(async move |tx| {
                    let (savings, checking) = (bank.savings.read(tx, a), bank.checking.read(tx, a));
                    tx.fetch().await?;
                    let found = (bank.savings.get(tx, savings), bank.checking.get(tx, checking));
                    if found.0.is_none() || found.1.is_none() { tx.abort() } else { Ok(0) }
                })
                .await
        }
        30..45 => {
            workers.run(async move |tx| deposit!(bank.checking as Checking, tx, a, cents)).await
        }
        45..70 => {
            workers
                .run(async move |tx| {
                    let (from, to) = (bank.checking.update(tx, a), bank.checking.update(tx, b));
                    tx.fetch().await?;
                    let found = (bank.checking.get(tx, from), bank.checking.get(tx, to));
                    let (Some(payer), Some(payee)) = found else { return tx.abort() };
                    if payer.cents >= cents {
                        bank.checking.set(
                            tx,
                            from,
                            &Checking { cents: payer.cents - cents, ..payer },
                        );
                        bank.checking.set(
                            tx,
                            to,
                            &Checking { cents: payee.cents + cents, ..payee },
                        );
                    }
                    Ok(0)
                })
                .await
        }
        70..85 => {
            workers.run(async move |tx| deposit!(bank.savings as Savings, tx, a, cents)).await
        }
        _ => {
            workers
                .run(async move |tx| {
                    let (savings, checking) =
                        (bank.savings.read(tx, a), bank.checking.update(tx, a));
                    tx.fetch().await?;
                    let found = (bank.savings.get(tx, savings), bank.checking.get(tx, checking));
                    let (Some(saved), Some(has)) = found else { return tx.abort() };
                    // A cheque beyond both balances costs a fee of one cent.
                    let paid = cents + i64::from(saved.cents + has.cents < cents);
                    bank.checking.set(tx, checking, &Checking { cents: has.cents - paid, ..has });
                    Ok(-paid)
                })
                .await
        }
    }
}

async fn money(bank: Bank, workers: &Workers) -> Result<i64, Error> {
    let mut sum = 0;
    for first in (0..CUSTOMERS).step_by(1_000) {
        sum += workers
            .run_read_only(async move |tx| {
                let keys = first..(first + 1_000).min(CUSTOMERS);
                let records: Vec<_> = keys
                    .map(|key| (bank.savings.read(tx, key), bank.checking.read(tx, key)))
                    .collect();
                tx.fetch().await?;
                let mut sum = 0;
                for (savings, checking) in records {
                    sum += bank.savings.get(tx, savings).map_or(0, |it| it.cents);
                    sum += bank.checking.get(tx, checking).map_or(0, |it| it.cents);
                }
                tarn::Ok(sum)
            })
            .await?;
    }
    Ok(sum)
}

async fn load(bank: Bank, workers: &Workers) -> Result<(), Error> {
    for first in (0..CUSTOMERS).step_by(1_000) {
        workers
            .run(async move |tx| {
                let keys = first..(first + 1_000).min(CUSTOMERS);
                let (savings, checking): (Vec<_>, Vec<_>) = keys
                    .map(|customer| {
                        let cents = START_CENTS;
                        (Savings { customer, cents }, Checking { customer, cents })
                    })
                    .unzip();
                bank.savings.put_many(tx, &savings).await?;
                bank.checking.put_many(tx, &checking).await?;
                tarn::Ok(())
            })
            .await?;
    }
    Ok(())
}

/// A task's work until `end`. Returns the money that came into the bank, and the latency of each transaction.
async fn task(
    bank: Bank,
    workers: Workers,
    seed: u64,
    end: Instant,
) -> Result<(i64, Vec<u32>), Error> {
    let (mut rng, mut came, mut took_ns) = (Xoshiro256PlusPlus::seed_from_u64(seed), 0, Vec::new());
    let mut now = Instant::now();
    while now < end {
        came += one(bank, &workers, &mut rng).await?;
        let after = Instant::now();
        took_ns.push((after - now).as_nanos().min(u128::from(u32::MAX)) as u32);
        now = after;
    }
    Ok((came, took_ns))
}

fn main() -> Result<(), Error> {
    let mut given = std::env::args().skip(1).map(|text| {
        text.parse::<u64>().unwrap_or_else(|_| {
            eprintln!("{text}: a whole number is allowed");
            std::process::exit(2)
        })
    });
    let mut next = |default: u64| given.next().unwrap_or(default);
    let (seconds, tasks, threads, count) = (next(2), next(64), next(1), next(1));
    let tarn = Tarn::embedded().table::<Savings>(CUSTOMERS).table::<Checking>(CUSTOMERS).open()?;
    let bank = Bank { savings: tarn.table()?, checking: tarn.table()? };
    let workers = tarn.workers(count as usize)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(threads as usize).build().expect("a runtime");
    runtime.block_on(load(bank, &workers))?;
    let since = Instant::now();
    let end = since + Duration::from_secs(seconds);
    let spawn = |seed| runtime.spawn(task(bank, workers.clone(), seed, end));
    let spawned: Vec<_> = (0..tasks).map(spawn).collect();
    let (mut came, mut took_ns) = (0, Vec::new());
    for each in spawned {
        let (cents, latencies) = runtime.block_on(each).expect("a task ends without a panic")?;
        came += cents;
        took_ns.extend(latencies);
    }
    let elapsed = since.elapsed().as_secs_f64();
    took_ns.sort_unstable();
    let at = |part: f64| f64::from(took_ns[((took_ns.len() - 1) as f64 * part) as usize]) / 1e3;
    println!("{tasks} tasks, {threads} threads of tokio, {count} workers, {CUSTOMERS} customers");
    println!("{:.0} transactions/s in {elapsed:.2} s", took_ns.len() as f64 / elapsed);
    println!("p50 {:.1} µs, p99 {:.1} µs, p99.9 {:.1} µs", at(0.5), at(0.99), at(0.999));
    let expected = CUSTOMERS as i64 * 2 * START_CENTS + came;
    assert_eq!(runtime.block_on(money(bank, &workers))?, expected, "money was made or lost");
    println!("money: {expected} cents, as expected");
    Ok(())
}
