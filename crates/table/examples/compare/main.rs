//! Compares concurrent maps: tarn-table, papaya, dashmap, scc, and the standard library's map in shards.
//!
//! ```sh
//! cargo run --release -p tarn-table --example compare -- 100000000
//! ```
//!
//! The first argument is the number of entries; without it the run is short. `--json PATH` and `--svg PATH` write the
//! results. `--only NAME` measures one table, `--work TEXT` the rows whose names contain the text, `--seed N` changes the keys, `--repeat N` the repetitions.
//! `--cpu-time` measures the processor time of the threads, for a machine that other programs use.
//!
//! Invariant: all tables of a run do the same operations with the same keys, one table after another.

#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod chart;
mod growth;
mod keys;
mod report;
mod rivals;
mod work;

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use report::{Report, Row};
use rivals::{Dash, Papaya, Rival, Scc, Shards};
use tarn_table::Table;
use work::{Plan, Rate};

/// The size of a run without arguments: a check of the program, not a measurement.
const ENTRIES_DEFAULT: u64 = 100_000;
/// The operations of one repetition, at most.
const OPERATIONS_MAX: u64 = 20_000_000;
const REPETITIONS_DEFAULT: u32 = 3;
const SEED_DEFAULT: u64 = 35;

/// The arguments.
#[derive(Debug)]
struct Arguments {
    plan: Plan,
    only: Option<String>,
    work: Option<String>,
    json: Option<String>,
    svg: Option<String>,
    has_growth: bool,
}

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write the results: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let plan = Plan {
            entries: ENTRIES_DEFAULT,
            operations: 0,
            repetitions: REPETITIONS_DEFAULT,
            seed: SEED_DEFAULT,
        };
        let mut arguments =
            Self { plan, only: None, work: None, json: None, svg: None, has_growth: true };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word}: a value is missing"));
            let number =
                |text: String| text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"));
            match word.as_str() {
                "--cpu-time" => work::BY_PROCESSOR_TIME.store(true, Ordering::Relaxed),
                "--no-growth" => arguments.has_growth = false,
                "--only" => arguments.only = Some(value()?),
                "--work" => arguments.work = Some(value()?),
                "--json" => arguments.json = Some(value()?),
                "--svg" => arguments.svg = Some(value()?),
                "--seed" => arguments.plan.seed = number(value()?)?,
                "--repeat" => arguments.plan.repetitions = number(value()?)?.clamp(1, 1000) as u32,
                _ => arguments.plan.entries = number(word)?.max(1000),
            }
        }
        arguments.plan.operations = (arguments.plan.entries * 4).min(OPERATIONS_MAX);
        Ok(arguments)
    }

    fn wants_work(&self, row: Row) -> bool {
        self.work.as_ref().is_none_or(|text| row.name().contains(text))
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == name)
    }
}

fn run(arguments: &Arguments) -> std::io::Result<()> {
    let mut report = Report::new(arguments.plan);
    print!("{}", report.heading());
    if arguments.wants(<Table<u64, u64> as Rival>::NAME) {
        let table = measure::<Table<u64, u64>>(arguments, &mut report);
        measure_ours(arguments, &table, &mut report);
    }
    if arguments.wants(Papaya::NAME) {
        measure::<Papaya>(arguments, &mut report);
    }
    if arguments.wants(Dash::NAME) {
        measure::<Dash>(arguments, &mut report);
    }
    if arguments.wants(Scc::NAME) {
        measure::<Scc>(arguments, &mut report);
    }
    if arguments.wants(Shards::NAME) {
        measure::<Shards>(arguments, &mut report);
    }
    if arguments.has_growth {
        growth::measure(arguments.plan, &mut report, |name| arguments.wants(name));
    }
    print!("{}", report.judgement());
    if let Some(path) = &arguments.json {
        std::fs::write(path, report.json())?;
    }
    if let Some(path) = &arguments.svg {
        std::fs::write(path, report.svg())?;
    }
    Ok(())
}

/// Measures the operations that all tables have.
fn measure<R: Rival>(arguments: &Arguments, report: &mut Report) -> R {
    let plan = arguments.plan;
    let (table, rate) = plan.fill::<R>(1);
    let mut add = |row: Row, threads, rate: &dyn Fn() -> Rate| {
        if arguments.wants_work(row) {
            report.add(R::NAME, row, threads, rate());
        }
    };
    add(Row::Fill, 1, &|| rate);
    for threads in [1, 2] {
        add(Row::Get, threads, &|| plan.gets(&table, threads));
        add(Row::Zipf, threads, &|| plan.zipf(&table, threads));
        add(Row::Insert, threads, &|| plan.inserts(&table, threads));
        add(Row::Churn, threads, &|| plan.churn(&table, threads));
        add(Row::Mixed95, threads, &|| plan.mixed(&table, threads, 95));
        add(Row::Mixed50, threads, &|| plan.mixed(&table, threads, 50));
    }
    table
}

/// Measures the batches of our table, and the bare loop over its memory.
fn measure_ours(arguments: &Arguments, table: &Table<u64, u64>, report: &mut Report) {
    let plan = arguments.plan;
    let mut add = |row: Row, threads, rate: &dyn Fn() -> Rate| {
        if arguments.wants_work(row) {
            report.add(<Table<u64, u64> as Rival>::NAME, row, threads, rate());
        }
    };
    add(Row::Batch4, 1, &|| plan.batches::<4>(table));
    add(Row::Batch16, 1, &|| plan.batches::<16>(table));
    add(Row::Batch24, 1, &|| plan.batches::<24>(table));
    add(Row::Rolling, 1, &|| plan.rolling(table));
    add(Row::InsertBatch16, 1, &|| plan.inserts_in_batches(table));
    add(Row::ChurnBatch16, 1, &|| plan.churn_in_batches(table));
    add(Row::Bare, 1, &|| plan.bare(table, 1));
    add(Row::Bare, 2, &|| plan.bare(table, 2));
    add(Row::BareLocked, 1, &|| plan.bare_locked(table, 1));
    add(Row::BareLockedTwice, 1, &|| plan.bare_locked(table, 2));
}
