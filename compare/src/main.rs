//! Runs the same transactions on Tarn and on other embedded stores, and prints a table.
//!
//! Invariant: all stores run in turn in one process and in every repetition, with the same inputs. No store syncs. A
//! store whose sum is wrong after a run ends the program with code 1.

#![allow(clippy::disallowed_methods, reason = "measures real threads in real time")]

mod inputs;
mod report;
mod run;
mod store;
mod stores;

use clap::Parser;
use inputs::{OPERATIONS_MAX, ROWS_MAX, Workload};
use report::{Line, Report};
use run::{Times, run};
use std::path::PathBuf;
use std::time::Duration;
use store::Failure;
use stores::{ENTRIES, Entry};

/// Runs the same transactions on Tarn and on other embedded stores.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// The number of customers of SmallBank.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..=ROWS_MAX))]
    customers: u64,
    /// The number of records of YCSB.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=ROWS_MAX))]
    records: u64,
    /// The number of operations of a YCSB transaction.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=OPERATIONS_MAX as u64))]
    operations: u64,
    /// The exponent of Zipf's law for the keys of YCSB, in hundredths.
    #[arg(long, default_value_t = 99, value_parser = clap::value_parser!(u32).range(0..=200))]
    zipf_percent: u32,
    /// The workloads to run.
    #[arg(long, value_delimiter = ',', default_value = "smallbank,a,b,c", value_parser = ["smallbank", "a", "b", "c"])]
    workloads: Vec<String>,
    /// The numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: Vec<u64>,
    /// Runs only the stores whose names contain one of these words.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The number of repetitions. The table has the medians.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    repetitions: u32,
    /// The measured time of each run, in milliseconds.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    run_ms: u64,
    /// The time before the measurement, in milliseconds.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(0..=600_000))]
    warm_up_ms: u64,
    /// The seed of all inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder for the stores' files. The default is the shared memory of Linux, so that no disk takes part.
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,
    /// Also writes the results into this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Options {
    fn workload(&self, name: &str) -> Workload {
        let ycsb = |writes_percent| Workload::Ycsb {
            records: self.records,
            operations: self.operations as usize,
            writes_percent,
            zipf: f64::from(self.zipf_percent) / 100.0,
        };
        match name {
            "a" => ycsb(50),
            "b" => ycsb(5),
            "c" => ycsb(0),
            _ => Workload::SmallBank { customers: self.customers },
        }
    }

    fn entries(&self) -> Vec<&'static Entry> {
        let is_chosen = |entry: &&Entry| {
            self.only.is_empty() || self.only.iter().any(|word| entry.name.contains(word.as_str()))
        };
        ENTRIES.iter().filter(is_chosen).collect()
    }
}

fn main() {
    let options = Options::parse();
    let entries = options.entries();
    if entries.is_empty() {
        let names: Vec<_> = ENTRIES.iter().map(|entry| entry.name).collect();
        let (value, allowed) = (options.only.join(","), names.join("; "));
        eprintln!("--only = {value}; allowed: a part of one of the names {allowed}");
        std::process::exit(2);
    }
    if let Err(failure) = compare(&options, &entries) {
        eprintln!("{failure}");
        std::process::exit(1);
    }
}

fn compare(options: &Options, entries: &[&'static Entry]) -> Result<(), Failure> {
    let mut report = Report::new(options);
    report.print_settings();
    for name in &options.workloads {
        let workload = options.workload(name);
        let mut lines: Vec<Line> = Vec::new();
        for threads in &options.threads {
            lines.extend(entries.iter().map(|entry| Line::new(name, *threads, entry)));
        }
        for repetition in 0..options.repetitions {
            for entry in entries {
                measure(options, workload, repetition, entry, &mut lines)
                    .map_err(|failure| format!("{name} on {}: {failure}", entry.name))?;
            }
        }
        report.add(lines);
    }
    report.print_promises(entries);
    report.write_json()
}

/// Loads a store, and runs a workload on it with each number of threads.
fn measure(
    options: &Options,
    workload: Workload,
    repetition: u32,
    entry: &Entry,
    lines: &mut [Line],
) -> Result<(), Failure> {
    let folder = tempfile::tempdir_in(&options.folder)
        .map_err(|error| format!("--folder = {}: {error}", options.folder.display()))?;
    let contender = (entry.load)(workload, folder.path())?;
    let (loaded, expected) = (contender.sum()?, workload.start());
    if loaded != expected {
        return Err(format!("the sum after loading is {loaded}, not {expected}").into());
    }
    let times = Times {
        warm_up: Duration::from_millis(options.warm_up_ms),
        measure: Duration::from_millis(options.run_ms),
    };
    // Another repetition has other inputs.
    let seed = options.seed + 1_000_000 * u64::from(repetition);
    for line in lines.iter_mut().filter(|line| line.entry.name == entry.name) {
        line.figures.push(run(contender.as_ref(), line.threads, seed, times)?);
    }
    Ok(())
}
