//! `tarn lock check`: exhaustive searches of the lock protocol.
//!
//! Invariant: this file has only the command line and the clock. `tarn-locks` has the searches (`model::plan`).

use super::scenario::whole_in;
use super::{Stop, Verdict, print_object, say};
use serde::Serialize;
use std::time::{Duration, Instant};
use tarn_locks::model::plan::{self, Case};
use tarn_locks::model::{Limits, search};

/// The longest time of a search: as many minutes as the clock can count.
const MINUTES_MAX: u64 = u64::MAX / 60;

#[derive(clap::Args)]
pub struct Arguments {
    /// Only searches of a few seconds
    #[arg(long, conflicts_with = "all")]
    quick: bool,
    /// Also the largest searches of the third policy, and of a decider that answers the sender alone
    #[arg(long)]
    all: bool,
    /// Only the searches whose names contain this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "COUNT", value_parser = whole_in::<u16>(1..=256))]
    threads: Option<u16>,
    /// The longest time of one search; a search that takes longer is no proof
    #[arg(long, value_name = "COUNT", default_value_t = 60, value_parser = whole_in::<u64>(1..=MINUTES_MAX))]
    minutes: u64,
    /// One JSON object on standard output instead of text
    #[arg(long)]
    json: bool,
}

/// The result of one search.
#[derive(Serialize)]
struct Row {
    name: String,
    states: usize,
    steps: usize,
    seconds: f64,
    /// As a word: passed, violated, blind or unfinished.
    verdict: &'static str,
    /// The violation that was found, and the events that lead to it.
    violation: Option<String>,
    events: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    threads: usize,
    searches: Vec<Row>,
}

fn word(verdict: plan::Verdict) -> &'static str {
    match verdict {
        plan::Verdict::Passed => "passed",
        plan::Verdict::Violated => "violated",
        plan::Verdict::Blind => "blind",
        plan::Verdict::Unfinished => "unfinished",
    }
}

#[expect(clippy::disallowed_methods, reason = "the program's clock")]
fn run_case(case: &Case, threads: usize, time: Duration) -> Row {
    let began = Instant::now();
    let is_over = |_: usize| began.elapsed() > time;
    let outcome = search(&case.bounds, Limits { threads, is_over: &is_over });
    let found = outcome.found.as_ref();
    Row {
        name: case.name.clone(),
        states: outcome.states,
        steps: outcome.steps,
        seconds: began.elapsed().as_secs_f64(),
        verdict: word(case.verdict(&outcome)),
        violation: found.map(|found| found.violation.to_string()),
        events: found.map_or(Vec::new(), |found| {
            found.path.iter().map(|action| format!("{action:?}")).collect()
        }),
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let mut cases = match (arguments.quick, arguments.all) {
        (true, _) => plan::quick(),
        (false, true) => plan::all(),
        (false, false) => plan::full(),
    };
    if let Some(text) = &arguments.only {
        let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        cases.retain(|case| case.name.contains(text.as_str()));
        if cases.is_empty() {
            let names = names.join("\n  ");
            let error =
                format!("--only = {text}; allowed: a part of one of these names:\n  {names}");
            return Err(Stop::Input(error));
        }
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or(processors, usize::from);
    let mut report = Report { threads, searches: Vec::new() };
    if !arguments.json {
        say(&format!(
            "{:>12} {:>13} {:>8}  verdict on {threads} threads\n",
            "states", "steps", "seconds"
        ))?;
    }
    for case in &cases {
        let row = run_case(case, threads, Duration::from_secs(arguments.minutes * 60));
        if !arguments.json {
            let Row { states, steps, seconds, verdict, name, .. } = &row;
            let found = match (&row.violation, case.finds) {
                (Some(violation), true) => format!("; found as it has to be: {violation}"),
                (Some(violation), false) => format!(": {violation}\n  {}", row.events.join("\n  ")),
                (None, true) => "; a violation has to be found without this rule".to_owned(),
                (None, false) => String::new(),
            };
            say(&format!("{states:>12} {steps:>13} {seconds:>8.1}  {verdict}: {name}{found}\n"))?;
        }
        report.searches.push(row);
    }
    let passes = report.searches.iter().all(|row| row.verdict == word(plan::Verdict::Passed));
    if arguments.json {
        print_object(&report)?;
    }
    Ok(if passes { Verdict::Good } else { Verdict::Bad })
}
