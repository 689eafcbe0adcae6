//! Measures how fast one core looks up and scans an ordered index of an embedded cluster.
//!
//! A lookup goes from an index key to the primary key of its record. The program draws keys uniformly. A transaction
//! makes a given number of lookups and commits. A transaction with two or more lookups validates every leaf that it
//! has read. At any time several coroutines have lookups in flight. Invariant: every lookup finds its record. Every
//! scan of 100 records returns 100 records, in order.
//!
//! Invariant: every lookup finds its record, every scan of 100 records brings 100, in order.
//!
//! `cargo run --release -p tarn --example ordered_index`
//!
//! The program reads these environment variables: `TARN_RECORDS` sets the number of records (a million by default).
//! `TARN_COROUTINES` sets the number of transactions in flight (12 by default). `TARN_MEASURE` sets the kinds of
//! transaction (`1 8 16 32 scan`: a number of lookups, or a scan). `TARN_TRANSACTIONS` sets the number of
//! transactions of each kind. Without this variable, the program runs each kind for three seconds.

#![allow(clippy::disallowed_methods, reason = "measures real time")]

use rand::RngExt;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tarn::cluster::{Cluster, ClusterConfig};
use tarn_engine::admin::load::{Loader, Part};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::{IndexKey, Scan, ScanEntry, ScanHandle};
use tarn_fabric::executor::{Executor, block_on};
use tarn_store::ids::Failure;
use tarn_store::schema::{ColumnId, ColumnType, IndexId, Key, TableId, TableSchema};

const SCANNED: u32 = 100;
const MEASURED: Duration = Duration::from_secs(3);
/// The number of transactions between two readings of the clock.
const BATCH: u64 = 64;
const LOOKUPS_MAX: usize = 64;

/// The work of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The transaction makes this many lookups.
    Lookups(usize),
    /// The transaction scans [`SCANNED`] records once.
    Scan,
}

/// The settings of a measurement.
#[derive(Clone, Copy)]
struct Course {
    records: u64,
    coroutines: u32,
    /// The number of transactions of each kind. `None`: as many transactions as can run in the time [`MEASURED`].
    transactions: Option<u64>,
}

/// Reads a number from an environment variable.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| refuse(name, &text, "a number")))
}

fn refuse(name: &str, value: &str, allowed: &str) -> ! {
    eprintln!("{name} = {value}; allowed: {allowed}");
    std::process::exit(2)
}

fn kinds() -> Vec<Kind> {
    let name = "TARN_MEASURE";
    let text = std::env::var(name).unwrap_or_else(|_| "1 8 16 32 scan".to_owned());
    let kind = |word: &str| match (word, word.parse()) {
        ("scan", _) => Kind::Scan,
        (_, Ok(lookups @ 1..=LOOKUPS_MAX)) => Kind::Lookups(lookups),
        _ => refuse(name, word, "scan, or 1 to 64 lookups"),
    };
    text.split_whitespace().map(kind).collect()
}

fn main() {
    let course = Course {
        records: number("TARN_RECORDS").unwrap_or(1_000_000),
        coroutines: number("TARN_COROUTINES").unwrap_or(12) as u32,
        transactions: number("TARN_TRANSACTIONS"),
    };
    let kinds = kinds();
    let records = course.records;
    let schema = TableSchema::new("t", records).column("a", ColumnType::U64).ordered("by_key");
    let config = ClusterConfig::default();
    let cluster = Cluster::new(&[schema], &config).expect("a cluster");
    load(&cluster, records);
    for kind in kinds {
        measure(&cluster, course, kind);
    }
}

fn load(cluster: &Cluster, records: u64) {
    let start = Instant::now();
    let cx = cluster.context(&cluster.join(0).expect("a life"), 0).expect("a thread");
    block_on(async {
        let mut loader = Loader::new(&cx, Part { index: 0, of: 1 });
        for key in 0..records {
            loader.insert(TableId(0), key, |row| row.set(ColumnId(0), key)).await?;
        }
        loader.finish().await
    })
    .expect("loaded");
    println!("{records} records loaded in {:.1} s", start.elapsed().as_secs_f64());
}

fn measure(cluster: &Cluster, course: Course, kind: Kind) {
    let cx = Rc::new(cluster.context(&cluster.join(0).expect("a life"), 0).expect("a thread"));
    let index = cluster.database().catalog.index_id("t", "by_key").expect("declared");
    let counts = (Cell::new(0u64), Cell::new(0u64));
    let mut executor = Executor::new();
    let start = Instant::now();
    for number in 0..course.coroutines {
        let mut by = Coordinator::new(Rc::clone(&cx), number, Retry::default());
        let (found, transactions) = (&counts.0, &counts.1);
        executor.spawn(async move {
            while course
                .transactions
                .map_or_else(|| start.elapsed() < MEASURED, |most| transactions.get() < most)
            {
                for _ in 0..BATCH {
                    let seen = run(&mut by, (index, kind), course.records).await;
                    found.set(found.get() + seen.expect("committed"));
                    transactions.set(transactions.get() + 1);
                }
            }
        });
    }
    run_all(&mut executor);
    let seconds = start.elapsed().as_secs_f64();
    let (found, transactions) = (counts.0.get() as f64, counts.1.get() as f64);
    let (rounds, reads) = (cx.port.counts().rounds as f64, cx.port.counts().verbs[0] as f64);
    println!(
        "{kind:?}: {:.3} M transactions/s, {:.2} M entries/s; {transactions} transactions, of each \
         {:.2} rounds, {:.2} READs; one core, {} coroutines",
        transactions / seconds / 1e6,
        found / seconds / 1e6,
        rounds / transactions,
        reads / transactions,
        course.coroutines
    );
}

/// The code whose instructions are counted: it runs all coroutines, from their first transaction to their last
/// transaction.
#[inline(never)]
fn run_all(executor: &mut Executor<'_>) {
    executor.run();
}

/// Runs one transaction. Returns the number of index entries that the transaction saw.
async fn run(
    by: &mut Coordinator,
    (index, kind): (IndexId, Kind),
    records: u64,
) -> Result<u64, Failure> {
    match kind {
        Kind::Scan => scan(by, index, records).await,
        Kind::Lookups(lookups) => look_up(by, index, (records, lookups)).await,
    }
}

async fn look_up(
    by: &mut Coordinator,
    index: IndexId,
    (records, lookups): (u64, usize),
) -> Result<u64, Failure> {
    let mut keys = [0; LOOKUPS_MAX];
    let keys = &mut keys[..lookups];
    keys.iter_mut().for_each(|key| *key = by.rng().random_range(0..records));
    by.transact(async |tx| {
        let mut seeks: [Option<ScanHandle>; LOOKUPS_MAX] = [None; LOOKUPS_MAX];
        for (seek, &key) in seeks.iter_mut().zip(&*keys) {
            *seek = Some(tx.seek(index, IndexKey::new().u64(key)));
        }
        tx.fetch().await?;
        for (seek, &key) in seeks.iter().flatten().zip(&*keys) {
            assert!(tx.scanned(*seek).next().is_some_and(|entry| is(entry, key)));
        }
        Ok(keys.len() as u64)
    })
    .await
}

async fn scan(by: &mut Coordinator, index: IndexId, records: u64) -> Result<u64, Failure> {
    let first = by.rng().random_range(0..records - u64::from(SCANNED));
    by.transact(async |tx| {
        let from = IndexKey::new().u64(first);
        let scan = tx.scan(index, Scan::range(from, IndexKey::new().u64(records)).limit(SCANNED));
        tx.fetch().await?;
        let mut next = first;
        for entry in tx.scanned(scan) {
            assert!(is(entry, next), "out of order");
            next += 1;
        }
        assert!(next == first + u64::from(SCANNED), "not all");
        Ok(u64::from(SCANNED))
    })
    .await
}

fn is(entry: ScanEntry<'_>, key: u64) -> bool {
    entry.record == Key::Word(key)
}
