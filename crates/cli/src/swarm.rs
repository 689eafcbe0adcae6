//! The command `tarn swarm` runs random scenarios, for a number of seeds, for some time, or without end.
//!
//! Invariant: a scenario is the run of `tarn sim random` for the same seed, with the same trace. So the command that
//! the swarm prints replays a failure. The swarm counts coverage for each cell of its matrix, and names each empty
//! cell.

use super::scenario::{number, whole};
use super::{Stop, Verdict, interrupt, print_object, say};
use crate::bench::within;
use crate::progress::Progress;
use serde::Serialize;
use std::cell::Cell;
use std::time::Duration;
use tarn_lab::machine;
use tarn_lab::schedules::Subject;
use tarn_lab::schedules::coverage::Coverage;
use tarn_lab::schedules::many::{Order, run_until};
use tarn_lab::schedules::report::{Failed, Faults, Sum, Wall};
use tarn_store::ids::UsageError;

const JOBS_MAX: u64 = 1_024;
const MINUTES: std::ops::RangeInclusive<f64> = 0.001..=1e6;
/// The number of failures after which the swarm stops.
const FAILURES_MAX: usize = 20;

/// Runs random scenarios: each seed draws a cluster, a workload, disturbances, and up to three faults. Compute nodes
/// crash after any of their verbs has taken effect, and join again. Some nodes are expelled while they run, by an
/// operator or because a clock beyond its assumed limit let a lease lapse. Memory nodes die, backups are promoted,
/// and spare nodes are filled. A recovery dies with its node, and callers drop transactions before their end. Then
/// the command checks the history, the memory, every lock and every replica.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Number of seeds [default: no limit]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    seeds: Option<u64>,
    /// Start no seed after this time [default: run until a signal]
    #[arg(long, value_name = "MINUTES", value_parser = number, allow_negative_numbers = true)]
    minutes: Option<f64>,
    /// The first seed [default: 0]
    #[arg(long, value_name = "SEED", value_parser = whole, allow_negative_numbers = true)]
    first_seed: Option<u64>,
    /// Number of seeds that run in parallel; the result does not depend on this number [default: one for each
    /// processor]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    jobs: Option<u64>,
    /// Name of the protocol
    #[arg(long, value_name = "NAME", default_value = "ford")]
    protocol: String,
    /// Variant: corrected, literal or measured, then ,-SWITCH, ,+SWITCH or ,unsafe-no-SWITCH of the switches that
    /// `tarn rules` lists
    #[arg(long, value_name = "VARIANT", default_value = "corrected", allow_hyphen_values = true)]
    variant: String,
    /// Fail if a cell of the coverage matrix is empty
    #[arg(long)]
    require_coverage: bool,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  tarn swarm --seeds 1000
  tarn swarm --minutes 10 --first-seed 1000000 --json
  tarn swarm --seeds 2000 --require-coverage
  tarn swarm --minutes 1 --variant corrected,-validate-reads

After Ctrl-C (or SIGTERM) the running seeds end, and the report of all seeds so far is printed.

Exit code 0: every seed passed. 1: a seed failed, and the command that runs it again is printed; or a required
cell is empty. 2: bad input. 130: a signal ended the run, and no seed had failed.";

/// The JSON object that `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    protocol: &'a str,
    variant: &'a str,
    first_seed: u64,
    seeds: u64,
    seeds_passed: u64,
    failures: &'a [Failed],
    coverage: &'a Coverage,
    /// The share of seeds in which at least a fifth of all tries was aborted.
    conflicting_seeds: f64,
    faults: &'a Faults,
    transactions: u64,
    events: u64,
    digest: &'a str,
    wall: &'a Wall,
}

/// Runs the command `tarn swarm`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let order = order(arguments)?;
    let progress = Progress::new();
    let told = Cell::new(0);
    let stop = interrupt::flag()?;
    let mut sum = run_until(&order, &stop, &|sum| {
        // The command prints each failure immediately. So if a swarm is killed, its findings are not lost.
        for failed in &sum.failures[told.replace(sum.failures.len())..] {
            remark!("seed {} failed; replay: {}", failed.seed, failed.replay);
        }
        progress.seeds(sum.seeds_run, arguments.seeds);
    })?;
    progress.end();
    let is_cut = interrupt::has_cut(&stop, (sum.seeds_run, order.schedules));
    sum.finish(&order.subject);
    match arguments.json {
        true => print_object(&report(&sum))?,
        false => say(&format!("{sum}{}", text_of(&sum.coverage)))?,
    }
    let empty = &sum.coverage.empty;
    let is_too_little = arguments.require_coverage && !empty.is_empty();
    if is_too_little {
        remark!("empty cells: {}", empty.join(", "));
    }
    Ok(match sum.failures.is_empty() && !is_too_little {
        false => Verdict::Bad,
        true if is_cut => Verdict::Interrupted,
        true => Verdict::Good,
    })
}

fn report(sum: &Sum) -> Report<'_> {
    Report {
        protocol: &sum.protocol,
        variant: &sum.variant,
        first_seed: sum.first_seed,
        seeds: sum.seeds_run,
        seeds_passed: sum.seeds_passed,
        failures: &sum.failures,
        coverage: &sum.coverage,
        conflicting_seeds: sum.conflicts.share,
        faults: &sum.faults,
        transactions: sum.transactions,
        events: sum.events,
        digest: &sum.digest,
        wall: &sum.wall,
    }
}

/// Returns the coverage as a matrix that people can read.
fn text_of(coverage: &Coverage) -> String {
    let (reached, all) = coverage.reached();
    let mut text = format!("coverage: {reached} of {all} cells\n");
    let kinds: Vec<&str> = coverage.phase_by_death.keys().copied().collect();
    let head: String = kinds.iter().map(|kind| format!("{kind:>12}")).collect();
    text += &format!("  {:<20}{head}\n", "died in phase");
    let phases = coverage.phase_by_death.values().next().into_iter().flat_map(|row| row.keys());
    for phase in phases {
        let counts = kinds.iter().map(|kind| coverage.phase_by_death[kind][phase]);
        let counts: String = counts.map(|count| format!("{count:>12}")).collect();
        text += &format!("  {phase:<20}{counts}\n");
    }
    for (name, map) in [("recovery", &coverage.recovery), ("events", &coverage.events)] {
        let cells: Vec<String> =
            map.iter().map(|(cell, count)| format!("{cell} {count}")).collect();
        text += &format!("  {name}: {}\n", cells.join(", "));
    }
    for (cell, why) in &coverage.cannot {
        text += &format!("  {cell}: not possible: {why}\n");
    }
    if !coverage.empty.is_empty() {
        text += &format!("  EMPTY: {}\n", coverage.empty.join(", "));
    }
    text
}

/// Returns the first seed and the number of seeds. If the number is not given, all following seeds belong to the
/// range.
pub(crate) fn seed_range(
    field: &str,
    first: Option<u64>,
    count: Option<u64>,
) -> Result<(u64, u64), UsageError> {
    let first = first.unwrap_or(0);
    let most = (u64::MAX - first).saturating_add(1);
    match count {
        Some(count) if count > most => Err(UsageError {
            field: field.to_owned(),
            value: count.to_string(),
            allowed: format!(
                "1 to {most} from --first-seed {first} on, because the last seed is {}",
                u64::MAX
            ),
        }),
        count => Ok((first, count.unwrap_or(most))),
    }
}

fn order(arguments: &Arguments) -> Result<Order, Stop> {
    let seeds = within("seeds", arguments.seeds, 1..=u64::MAX)?;
    let jobs = within("jobs", arguments.jobs, 1..=JOBS_MAX)?;
    if let Some(minutes) = arguments.minutes
        && !MINUTES.contains(&minutes)
    {
        let allowed = format!("{} to {}", MINUTES.start(), MINUTES.end());
        let (field, value) = ("minutes".to_owned(), minutes.to_string());
        return Err(UsageError { field, value, allowed }.into());
    }
    let (first_seed, schedules) = seed_range("seeds", arguments.first_seed, seeds)?;
    Ok(Order {
        subject: Subject::of(&arguments.protocol, &arguments.variant),
        first_seed,
        schedules,
        jobs: jobs.unwrap_or(machine::processors() as u64) as usize,
        budget: arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
        failures_max: FAILURES_MAX,
    })
}
