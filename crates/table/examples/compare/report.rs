//! The results, as a text table, as JSON, and as a chart.
//!
//! Invariant: each output names the configuration, the machine, the repetitions and the seed.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::json;

use crate::work::{Plan, Rate};

/// A kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    Fill,
    Insert,
    Get,
    Batch4,
    Batch16,
    Batch24,
    Rolling,
    Bare,
    BareLocked,
    BareLockedTwice,
    InsertBatch16,
    ChurnBatch16,
    Zipf,
    Mixed95,
    Mixed50,
    Churn,
}

impl Row {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fill => "first fill, new pages",
            Self::Insert => "insert",
            Self::Get => "get",
            Self::Batch4 => "get, batches of 4",
            Self::Batch16 => "get, batches of 16",
            Self::Batch24 => "get, batches of 24",
            Self::Rolling => "get, rolling window",
            Self::Bare => "bare loop of loads",
            Self::BareLocked => "bare loop, 1 locked step",
            Self::BareLockedTwice => "bare loop, 2 locked steps",
            Self::InsertBatch16 => "insert, batches of 16",
            Self::ChurnBatch16 => "delete + insert, by 16",
            Self::Zipf => "get, zipf 0.99",
            Self::Mixed95 => "95 % get, 5 % replace",
            Self::Mixed50 => "50 % get, 50 % replace",
            Self::Churn => "delete + insert",
        }
    }
}

/// One measured rate.
#[derive(Debug, Clone)]
struct Result {
    table: &'static str,
    row: Row,
    threads: u64,
    rate: Rate,
}

/// Gets beside a growth.
#[derive(Debug, Clone)]
pub struct Growth {
    pub table: &'static str,
    pub still: Rate,
    pub beside: Rate,
    pub p9999_us: f64,
    pub p9999_still_us: f64,
}

/// All results of a run.
pub struct Report {
    plan: Plan,
    results: Vec<Result>,
    growths: Vec<Growth>,
    round_trip_ns: f64,
}

const MILLION: f64 = 1e6;

impl Report {
    /// Begins a report.
    pub fn new(plan: Plan) -> Self {
        let round_trip_ns = round_trip_ns();
        Self { plan, results: Vec::new(), growths: Vec::new(), round_trip_ns }
    }

    /// Returns the lines above the table.
    pub fn heading(&self) -> String {
        let Plan { entries, operations, repetitions, seed } = self.plan;
        format!(
            "{entries} entries of 8 + 8 bytes, {operations} operations, best of {repetitions}, seed {seed}\n\
             machine: {}; round trip of a cache line between two threads {:.0} ns\n\
             rates: by {}\n\
             all tables are pre-sized and use foldhash\n\n\
             {:<16} {:<25} {:>7} {:>9}\n",
            machine(),
            self.round_trip_ns,
            measured_time(),
            "table",
            "work",
            "threads",
            "M/s"
        )
    }

    /// Adds a rate, and prints it.
    pub fn add(&mut self, table: &'static str, row: Row, threads: u64, rate: Rate) {
        println!("{table:<16} {:<25} {threads:>7} {:>9.2}", row.name(), rate / MILLION);
        self.results.push(Result { table, row, threads, rate });
    }

    /// Adds the result of a growth, and prints it.
    pub fn add_growth(&mut self, growth: Growth) {
        println!(
            "{:<16} gets beside growth: {:.2} M/s, without {:.2}; p99.99 {:.1} us, without {:.1}",
            growth.table,
            growth.beside / MILLION,
            growth.still / MILLION,
            growth.p9999_us,
            growth.p9999_still_us
        );
        self.growths.push(growth);
    }

    fn rate(&self, table: &str, row: Row, threads: u64) -> Option<Rate> {
        let found = self
            .results
            .iter()
            .find(|it| it.table == table && it.row == row && it.threads == threads)?;
        Some(found.rate)
    }

    fn ours(&self, row: Row, threads: u64) -> Option<Rate> {
        self.rate("tarn-table", row, threads)
    }

    /// Returns the best rate of papaya, dashmap and scc.
    fn best_peer(&self, row: Row) -> Option<Rate> {
        ["papaya", "dashmap", "scc"]
            .into_iter()
            .filter_map(|it| self.rate(it, row, 1))
            .max_by(f64::total_cmp)
    }

    fn growth(&self, of: impl Fn(&Growth) -> f64) -> Option<f64> {
        self.growths.iter().find(|it| it.table == "tarn-table").map(of)
    }

    /// Returns each ratio that the table is judged by, with its aim, and shares of the bare loops without an aim.
    fn ratios(&self) -> Vec<(&'static str, f64, Option<f64>)> {
        let over_peer = |row, of| Some(self.ours(row, 1)? / self.best_peer(of)?);
        let over = |row, of| Some(self.ours(row, 1)? / self.ours(of, 1)?);
        let scaling = |row| Some(self.ours(row, 2)? / self.ours(row, 1)?);
        let relative = |row| Some(scaling(row)? / scaling(Row::Bare)?);
        [
            ("get / best peer", over_peer(Row::Get, Row::Get), Some(1.3)),
            ("batch of 16 / best peer", over_peer(Row::Batch16, Row::Get), Some(2.2)),
            ("batch of 24 / best peer", over_peer(Row::Batch24, Row::Get), Some(2.2)),
            ("rolling / best peer", over_peer(Row::Rolling, Row::Get), Some(2.8)),
            ("rolling / bare loop", over(Row::Rolling, Row::Bare), Some(0.5)),
            ("batch of 4 / one by one", over(Row::Batch4, Row::Get), Some(1.3)),
            ("insert / best peer", over_peer(Row::Insert, Row::Insert), Some(1.5)),
            ("insert / bare loop, 2 locked steps", over(Row::Insert, Row::BareLockedTwice), None),
            ("insert by 16 / best peer", over_peer(Row::InsertBatch16, Row::Insert), Some(1.5)),
            ("delete + insert / best peer", over_peer(Row::Churn, Row::Churn), Some(1.5)),
            ("delete + insert / bare loop, 1 locked step", over(Row::Churn, Row::BareLocked), None),
            (
                "delete + insert by 16 / best peer",
                over_peer(Row::ChurnBatch16, Row::Churn),
                Some(1.5),
            ),
            ("first fill / best peer", over_peer(Row::Fill, Row::Fill), Some(1.0)),
            ("2 threads: get, of the bare loop's scaling", relative(Row::Get), Some(0.9)),
            ("2 threads: 50/50, of the bare loop's scaling", relative(Row::Mixed50), Some(0.8)),
            ("gets beside growth / without", self.growth(|it| it.beside / it.still), Some(0.5)),
            (
                "1 ms / p99.99 of gets beside growth",
                self.growth(|it| 1000.0 / it.p9999_us),
                Some(1.0),
            ),
        ]
        .into_iter()
        .filter_map(|(name, ratio, aim)| Some((name, ratio?, aim)))
        .collect()
    }

    /// Returns the ratios as text.
    pub fn judgement(&self) -> String {
        let mut text = String::from("\n");
        for (name, ratio, aim) in self.ratios() {
            let verdict = aim.map_or(String::from("no aim"), |aim| {
                let verdict = if ratio >= aim { "reached" } else { "missed" };
                format!("aim {aim:.1}  {verdict}")
            });
            let _ = writeln!(text, "{name:<46} {ratio:>5.2}  {verdict}");
        }
        text
    }

    /// Returns all results as JSON.
    pub fn json(&self) -> String {
        let rates: Vec<_> = self
            .results
            .iter()
            .map(|it| json!({"table": it.table, "work": it.row.name(), "threads": it.threads, "per_second": it.rate}))
            .collect();
        let growths: Vec<_> = self
            .growths
            .iter()
            .map(|it| {
                json!({
                    "table": it.table, "gets_per_second": it.beside, "gets_per_second_without": it.still,
                    "p9999_us": it.p9999_us, "p9999_us_without": it.p9999_still_us,
                })
            })
            .collect();
        let ratios: Vec<_> = self
            .ratios()
            .iter()
            .map(|(name, ratio, aim)| json!({"name": name, "ratio": ratio, "aim": aim}))
            .collect();
        let Plan { entries, operations, repetitions, seed } = self.plan;
        let all = json!({
            "entries": entries, "operations": operations, "repetitions": repetitions, "seed": seed,
            "machine": machine(), "rates_by": measured_time(), "round_trip_ns": self.round_trip_ns,
            "rates": rates, "growth": growths, "ratios": ratios,
        });
        format!("{all:#}\n")
    }

    /// Returns a bar chart of the rates of one thread.
    pub fn svg(&self) -> String {
        crate::chart::svg(&self.bars(), &self.caption())
    }

    fn caption(&self) -> String {
        let Plan { entries, repetitions, seed, .. } = self.plan;
        format!(
            "{entries} entries of 8 + 8 bytes, 1 thread, best of {repetitions}, seed {seed}, {}; {}",
            measured_time(),
            machine()
        )
    }

    fn bars(&self) -> Vec<crate::chart::Bar> {
        let one = self.results.iter().filter(|it| it.threads == 1);
        one.map(|it| crate::chart::Bar {
            group: it.row.name(),
            series: it.table,
            value: it.rate / MILLION,
        })
        .collect()
    }
}

/// Returns the name of the time by which rates are computed.
fn measured_time() -> &'static str {
    if crate::work::BY_PROCESSOR_TIME.load(Ordering::Relaxed) {
        "processor time (--cpu-time)"
    } else {
        "elapsed time"
    }
}

/// Returns the processor's name and the number of processors.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(": ")))
        .map_or("unknown processor", |(_, name)| name.trim());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{name}, {count} processors")
}

/// The exchanges by which the round trip is measured.
const ROUND_TRIPS: u64 = 20_000;

/// Returns the time in which a word travels to another thread and back.
fn round_trip_ns() -> f64 {
    let word = AtomicU64::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for side in 0..2 {
            let word = &word;
            scope.spawn(move || {
                for turn in (0..2 * ROUND_TRIPS).filter(|turn| turn % 2 == side) {
                    while word.load(Ordering::Acquire) != turn {
                        std::hint::spin_loop();
                    }
                    word.store(turn + 1, Ordering::Release);
                }
            });
        }
    });
    begin.elapsed().as_nanos() as f64 / ROUND_TRIPS as f64
}
