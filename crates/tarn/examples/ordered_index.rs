//! How fast one core looks up and scans an ordered index of an embedded cluster.
//!
//! Invariant: every lookup finds its record, every scan of 100 records brings 100, in order.
//!
//! `cargo run --release -p tarn --example ordered_index`; `TARN_RECORDS` sets how many records, a million
//! unless it says otherwise.

#![allow(clippy::disallowed_methods, reason = "measures real time")]

use rand::RngExt;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tarn::cluster::{Cluster, ClusterConfig};
use tarn_engine::coordinator::{Coordinator, Retry};
use tarn_engine::load::{Loader, Part};
use tarn_engine::outcome::Failure;
use tarn_engine::schema::{ColumnId, ColumnType, IndexId, Key, TableId, TableSchema};
use tarn_engine::transaction::{IndexKey, Scan, ScanEntry};
use tarn_fabric::executor::{Executor, block_on};

const SCANNED: u32 = 100;
const MEASURED: Duration = Duration::from_secs(3);
const COROUTINES: u32 = 12;

/// What one transaction does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// One lookup.
    Lookup,
    /// Eight lookups.
    Lookups,
    /// One scan of [`SCANNED`] records.
    Scan,
}

fn main() {
    let records = std::env::var("TARN_RECORDS").map_or(1_000_000, |text| {
        text.parse().unwrap_or_else(|_| {
            eprintln!("TARN_RECORDS = {text}; allowed: a number");
            std::process::exit(2)
        })
    });
    let schema = TableSchema::new("t", records).column("a", ColumnType::U64).ordered("by_key");
    let config = ClusterConfig::default();
    let cluster = Cluster::new(&[schema], &config).expect("a cluster");
    load(&cluster, records);
    for kind in [Kind::Lookup, Kind::Lookups, Kind::Scan] {
        measure(&cluster, records, kind);
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

fn measure(cluster: &Cluster, records: u64, kind: Kind) {
    let cx = Rc::new(cluster.context(&cluster.join(0).expect("a life"), 0).expect("a thread"));
    let index = cluster.database().catalog.index_id("t", "by_key").expect("declared");
    let (start, found, transactions) = (Instant::now(), Cell::new(0u64), Cell::new(0u64));
    let mut executor = Executor::new();
    for number in 0..COROUTINES {
        let mut by = Coordinator::new(Rc::clone(&cx), number, Retry::default());
        let (found, transactions) = (&found, &transactions);
        executor.spawn(async move {
            while start.elapsed() < MEASURED {
                for _ in 0..64 {
                    let seen = run(&mut by, (index, kind), records).await.expect("committed");
                    found.set(found.get() + seen);
                    transactions.set(transactions.get() + 1);
                }
            }
        });
    }
    executor.run();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{kind:?}: {:.2} M transactions/s, {:.2} M entries/s, one core, {COROUTINES} coroutines",
        transactions.get() as f64 / seconds / 1e6,
        found.get() as f64 / seconds / 1e6
    );
}

/// Runs one transaction; how many entries it saw.
async fn run(
    by: &mut Coordinator,
    (index, kind): (IndexId, Kind),
    records: u64,
) -> Result<u64, Failure> {
    let first = by.rng().random_range(0..records - 800);
    by.transact(async |tx| {
        if kind == Kind::Scan {
            let from = IndexKey::new().u64(first);
            let scan =
                tx.scan(index, Scan::range(from, IndexKey::new().u64(records)).limit(SCANNED));
            tx.fetch().await?;
            let in_order = tx.scanned(scan).zip(first..).all(|(entry, key)| is(entry, key));
            assert!(in_order && tx.scanned(scan).count() == SCANNED as usize);
            return Ok(u64::from(SCANNED));
        }
        let keys = if kind == Kind::Lookup { 1 } else { 8 };
        let seeks: [_; 8] = std::array::from_fn(|at| {
            let key = first + at as u64 % keys * 97;
            (at < keys as usize).then(|| (tx.seek(index, IndexKey::new().u64(key)), key))
        });
        tx.fetch().await?;
        for (seek, key) in seeks.into_iter().flatten() {
            assert!(tx.scanned(seek).next().is_some_and(|entry| is(entry, key)));
        }
        Ok(keys)
    })
    .await
}

fn is(entry: ScanEntry<'_>, key: u64) -> bool {
    entry.record == Key::Word(key)
}
