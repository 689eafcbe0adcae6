//! The table of the results, and the same as JSON.
//!
//! Invariant: each figure is the median over the repetitions. Every repetition's figure is in the JSON file.

use crate::Options;
use crate::run::Figure;
use crate::store::Failure;
use crate::stores::Entry;
use serde::Serialize;
use std::fmt::Write as _;

/// A line of the table: one workload with one number of threads on one store.
pub struct Line {
    pub workload: String,
    pub threads: u64,
    pub entry: &'static Entry,
    pub figures: Vec<Figure>,
}

impl Line {
    pub fn new(workload: &str, threads: u64, entry: &'static Entry) -> Line {
        Line { workload: workload.to_owned(), threads, entry, figures: Vec::new() }
    }

    fn per_second(&self) -> f64 {
        median(self.figures.iter().map(|figure| figure.per_second))
    }

    fn abort_share(&self) -> f64 {
        median(self.figures.iter().map(|figure| figure.abort_share))
    }
}

/// The median of at least one value: of an even number the lower of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[derive(Serialize)]
struct Row {
    workload: String,
    threads: u64,
    store: &'static str,
    version: String,
    transactions_per_second: f64,
    of_each_repetition: Vec<f64>,
    abort_share: f64,
    tarn_to_this: Option<f64>,
    isolation: &'static str,
    writers: &'static str,
    durability: &'static str,
}

/// The results so far.
pub struct Report<'o> {
    options: &'o Options,
    settings: Vec<(&'static str, String)>,
    rows: Vec<Row>,
}

impl<'o> Report<'o> {
    pub fn new(options: &'o Options) -> Report<'o> {
        let settings = vec![
            ("machine", machine()),
            ("kernel", file("/proc/sys/kernel/osrelease")),
            ("load before", file("/proc/loadavg")),
            ("seed", options.seed.to_string()),
            ("repetitions", format!("{}, the median is shown", options.repetitions)),
            ("time", format!("{} ms, after {} ms", options.run_ms, options.warm_up_ms)),
            ("customers", options.customers.to_string()),
            ("records", format!("{} of 100 bytes", options.records)),
            ("operations", format!("{} a YCSB transaction", options.operations)),
            ("zipf", format!("{:.2}", f64::from(options.zipf_percent) / 100.0)),
            ("folder", options.folder.display().to_string()),
        ];
        Report { options, settings, rows: Vec::new() }
    }

    pub fn print_settings(&self) {
        for (name, value) in &self.settings {
            println!("{name:<12} {value}");
        }
    }

    /// Prints the lines of a workload, and keeps them.
    pub fn add(&mut self, lines: Vec<Line>) {
        println!();
        println!(
            "{:<10} {:>7}  {:<18} {:>14}  {:>12}  {:>7}",
            "workload", "threads", "store", "transactions/s", "tarn / this", "aborts"
        );
        for line in &lines {
            let tarn = lines
                .iter()
                .find(|other| other.threads == line.threads && other.entry.name == "tarn");
            let ratio = tarn.map(|tarn| tarn.per_second() / line.per_second());
            let shown = match ratio {
                Some(ratio) if line.entry.name != "tarn" => format!("{ratio:.1}"),
                _ => String::new(),
            };
            println!(
                "{:<10} {:>7}  {:<18} {:>14.0}  {:>12}  {:>6.2}%",
                line.workload,
                line.threads,
                line.entry.name,
                line.per_second(),
                shown,
                100.0 * line.abort_share(),
            );
            self.rows.push(row(line, ratio));
        }
        print!("{}", best(&lines));
    }

    /// Prints the guarantees of each store in this configuration.
    pub fn print_promises(&self, entries: &[&'static Entry]) {
        println!();
        for entry in entries {
            println!(
                "{:<18} {:<9} {}; writers: {}; durability: {}",
                entry.name,
                version(entry.package),
                entry.isolation,
                entry.writers,
                entry.durability
            );
        }
    }

    /// Writes the JSON file that the options name.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_json(&self) -> Result<(), Failure> {
        let Some(path) = &self.options.json else { return Ok(()) };
        let settings: std::collections::BTreeMap<_, _> = self.settings.iter().cloned().collect();
        let whole = serde_json::json!({ "settings": settings, "results": self.rows });
        let text = serde_json::to_string_pretty(&whole)?;
        std::fs::write(path, text + "\n")
            .map_err(|error| format!("--json = {}: {error}", path.display()).into())
    }
}

fn row(line: &Line, tarn_to_this: Option<f64>) -> Row {
    let Entry { name, package, isolation, writers, durability, .. } = line.entry;
    Row {
        workload: line.workload.clone(),
        threads: line.threads,
        store: name,
        version: version(package),
        transactions_per_second: line.per_second(),
        of_each_repetition: line.figures.iter().map(|figure| figure.per_second).collect(),
        abort_share: line.abort_share(),
        tarn_to_this,
        isolation,
        writers,
        durability,
    }
}

/// Says for each number of threads by how much Tarn is faster than the fastest other store.
fn best(lines: &[Line]) -> String {
    let mut text = String::new();
    for tarn in lines.iter().filter(|line| line.entry.name == "tarn") {
        let others = lines.iter().filter(|it| it.threads == tarn.threads && !it.entry.is_tarn());
        let best = others.max_by(|a, b| a.per_second().total_cmp(&b.per_second()));
        if let Some(best) = best {
            let (ratio, name) = (tarn.per_second() / best.per_second(), best.entry.name);
            let threads = tarn.threads;
            _ = writeln!(text, "  threads: {threads}. Tarn is {ratio:.1} times as fast as {name}");
        }
    }
    text
}

/// The version of a package in the lock file.
fn version(package: &str) -> String {
    let name = format!("name = \"{package}\"");
    let mut lines = include_str!("../Cargo.lock").lines().skip_while(|line| *line != name);
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \""));
    version.map_or("unknown".into(), |version| version.trim_end_matches('"').to_owned())
}

fn machine() -> String {
    let text = file("/proc/cpuinfo");
    let name = text.lines().find_map(|line| line.strip_prefix("model name\t: "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} processors, {}", name.unwrap_or("unknown"))
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).map_or("unknown".into(), |text| text.trim().to_owned())
}
