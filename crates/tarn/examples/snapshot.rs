//! Measures snapshots: the pause of the transactions, the time of the save, the transactions beside it, and the load.
//!
//! Threads move money between random accounts, without pause. The program saves the accounts beside these transfers,
//! and loads them again. The program reports the rates before, during and after the save.
//!
//! Invariant: the money of all accounts is in each snapshot. A database that was loaded from the last snapshot has the
//! same rows as the saved one, and its memory passes the audit.
//!
//! `cargo run --release -p tarn --example snapshot -- ROWS THREADS FILE PROTOCOL SAVES`
//!
//! Each argument may be left out from the right: 100,000 rows, 1 thread, a file in the folder for temporary files, the
//! protocol `ford`, one save.

#![allow(clippy::disallowed_methods, reason = "measures real time, of real threads")]

use rand::RngExt as _;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use tarn::{Error, Row, Table, Tarn, block_on};
use tarn_engine::admin::inspect::{audit, scan};
use tarn_engine::admin::load::{Loader, Part};
use tarn_fabric::rng::{mix, seeded};
use tarn_store::schema::{ColumnId, TableId};

/// An account of the bank.
#[derive(Row)]
#[row(table = "accounts", key(number))]
struct Account {
    number: u64,
    cents: i64,
}

const START_CENTS: i64 = 1_000;
/// The time for which the rate of transfers is measured before and after a save.
const MEASURED: Duration = Duration::from_secs(2);

/// The arguments.
struct Course {
    rows: u64,
    threads: u64,
    file: PathBuf,
    protocol: String,
    saves: u64,
}

fn course() -> Course {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, name: &str, otherwise: u64| match given.get(at).map(|it| it.parse()) {
        None => otherwise,
        Some(Ok(number)) if number > 0 => number,
        Some(_) => {
            eprintln!("{name} = {}; allowed: a number from 1 on", given[at]);
            exit(2)
        }
    };
    let usual = std::env::temp_dir().join(format!("tarn-example-{}.tarn", std::process::id()));
    Course {
        rows: number(0, "ROWS", 100_000),
        threads: number(1, "THREADS", 1),
        file: given.get(2).map_or(usual, PathBuf::from),
        protocol: given.get(3).map_or("ford", String::as_str).to_owned(),
        saves: number(4, "SAVES", 1),
    }
}

fn main() -> Result<(), Error> {
    let course = course();
    let bank =
        Tarn::embedded().table::<Account>(course.rows).protocol(&course.protocol, "corrected");
    let bank = bank.open()?;
    open_accounts(&bank, course.rows);
    let fabric = bank.cluster().fabric();
    let memory = fabric.node(tarn_fabric::address::NodeSlot(0)).pages().name();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "{} rows, {} threads, protocol {}, {cores} processors, memory: {memory}",
        course.rows, course.threads, course.protocol
    );
    save_beside_transfers(&bank, &course)?;
    let (saved, took) = timed(|| bank.save(&course.file));
    println!("saved without transactions in {:.2} s", took.as_secs_f64());
    let (loaded, took) = timed(|| load(&course));
    let loaded = loaded?;
    println!("loaded {} rows in {:.2} s", saved?.rows, took.as_secs_f64());
    assert_eq!(sums(&loaded), sums(&bank), "the loaded rows are the saved ones");
    let found = block_on(audit(loaded.session()?.context())).expect("an audit");
    assert!(found.is_clean(), "{found}");
    println!("audit: {found}");
    std::fs::remove_file(&course.file).expect("the file");
    Ok(())
}

fn timed<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

fn load(course: &Course) -> Result<Tarn, Error> {
    Tarn::embedded().protocol(&course.protocol, "corrected").load(&course.file)
}

fn open_accounts(bank: &Tarn, rows: u64) {
    let session = bank.session().expect("a session");
    block_on(async {
        let mut loader = Loader::new(session.context(), Part { index: 0, of: 1 });
        for key in 0..rows {
            loader.insert(TableId(0), key, |row| row.set(ColumnId(0), START_CENTS)).await?;
        }
        loader.finish().await
    })
    .expect("loaded");
}

/// The transfers of all threads, and the longest time between two transfers of one thread.
#[derive(Default)]
struct Meter {
    transfers: AtomicU64,
    longest_ns: AtomicU64,
    is_over: AtomicBool,
}

impl Meter {
    /// The transfers since the function was called last, and the longest time between two of them.
    fn take(&self) -> (u64, Duration) {
        let longest = Duration::from_nanos(self.longest_ns.swap(0, Ordering::Relaxed));
        (self.transfers.swap(0, Ordering::Relaxed), longest)
    }
}

fn save_beside_transfers(bank: &Tarn, course: &Course) -> Result<(), Error> {
    let accounts = bank.table::<Account>()?;
    let meter = Meter::default();
    scope(|scope| {
        for thread in 0..course.threads {
            let meter = &meter;
            scope.spawn(move || transfer_until_over(bank, accounts, (course.rows, thread), meter));
        }
        let measured = (0..course.saves).try_for_each(|_| measure(bank, &course.file, &meter));
        meter.is_over.store(true, Ordering::Relaxed);
        measured
    })?;
    check_money(&course.file, course)
}

/// Saves once, and prints the rates of transfers before, during and after the save.
fn measure(bank: &Tarn, file: &Path, meter: &Meter) -> Result<(), Error> {
    let rate = |what: &str, lasted: Duration| {
        let (transfers, longest) = meter.take();
        let rate = transfers as f64 / lasted.as_secs_f64();
        let longest = longest.as_secs_f64() * 1e3;
        println!("{what}: {rate:.0} transfers/s, longest gap of a thread {longest:.2} ms");
        rate
    };
    sleep(MEASURED / 4);
    meter.take();
    sleep(MEASURED);
    let before = rate("before", MEASURED);
    let (saved, took) = timed(|| bank.save(file));
    let saved = saved?;
    let beside = rate("beside", took);
    for part in ["after", "later"] {
        sleep(MEASURED);
        rate(part, MEASURED);
    }
    println!(
        "saved {} rows, {} bytes, in {:.2} s: pause {:.2} ms, throughput {:.0} %",
        saved.rows,
        saved.bytes,
        took.as_secs_f64(),
        saved.pause.as_secs_f64() * 1e3,
        100.0 * beside / before
    );
    Ok(())
}

fn transfer_until_over(
    bank: &Tarn,
    accounts: Table<Account>,
    (rows, seed): (u64, u64),
    meter: &Meter,
) {
    let mut session = bank.session().expect("a session");
    let mut random = seeded(1, seed);
    let mut last = Instant::now();
    while !meter.is_over.load(Ordering::Relaxed) {
        let [from, to] = [0; 2].map(|_: u8| random.random_range(0..rows));
        if from == to {
            continue;
        }
        let done = session.run(async |tx| {
            let (from, to) = (accounts.update(tx, from), accounts.update(tx, to));
            tx.fetch().await?;
            let (Some(mut payer), Some(mut payee)) = (accounts.get(tx, from), accounts.get(tx, to))
            else {
                return tx.abort();
            };
            payer.cents -= 1;
            payee.cents += 1;
            accounts.set(tx, from, &payer);
            accounts.set(tx, to, &payee);
            Ok(())
        });
        done.expect("transferred");
        let now = Instant::now();
        meter.longest_ns.fetch_max((now - last).as_nanos() as u64, Ordering::Relaxed);
        meter.transfers.fetch_add(1, Ordering::Relaxed);
        last = now;
    }
}

/// Checks that the snapshot of one moment has all the money.
fn check_money(file: &Path, course: &Course) -> Result<(), Error> {
    let loaded = load(course)?;
    let (rows, cents, _) = sums(&loaded);
    assert_eq!(rows, course.rows, "{}", file.display());
    assert_eq!(cents, START_CENTS * course.rows as i64, "{}", file.display());
    println!("the snapshot beside transfers has {rows} rows and {cents} cents");
    Ok(())
}

/// The number of rows, the sum of their balances, and a sum of hashes of keys and balances.
fn sums(bank: &Tarn) -> (u64, i64, u64) {
    let session = bank.session().expect("a session");
    let mut sums = (0, 0, 0u64);
    let scanned = scan(session.context(), TableId(0), |stored| {
        let cents = stored.row.i64(ColumnId(0));
        sums.0 += 1;
        sums.1 += cents;
        sums.2 = sums.2.wrapping_add(mix(mix(stored.key) ^ cents as u64));
    });
    block_on(scanned).expect("a scan");
    sums
}
