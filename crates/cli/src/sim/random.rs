//! The command `tarn sim random` runs random schedules, one for each seed.
//!
//! Invariant: if a seed fails, the command ends with exit code 1. The command prints another command that runs the
//! seed again, with the same trace.

use super::super::scenario::{number, whole};
use crate::bench::within;
use crate::progress::Progress;
use crate::swarm::seed_range;
use crate::whole_file::WholeFile;
use crate::{Stop, Verdict, interrupt, print_object, say};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tarn_engine::services::Planted;
use tarn_lab::machine;
use tarn_lab::schedules::judge::FindingKind;
use tarn_lab::schedules::many::{Order, run_until};
use tarn_lab::schedules::run::run_seed;
use tarn_lab::schedules::{Subject, mixture};
use tarn_store::ids::UsageError;

const SCHEDULES: u64 = 1_000;
const JOBS_MAX: u64 = 1_024;
const SECONDS: std::ops::RangeInclusive<f64> = 0.001..=1e6;

/// Runs the engine under random schedules. Each seed draws a small contended cluster: nodes, replicas, layouts,
/// workload, keys, skew, growth. Each seed draws disturbances: delays, stalls and storms of stalls, slow nodes,
/// pauses of threads and NICs, a thread that is set back, clocks that are wrong and drift. Each seed draws the order
/// of everything that the contract leaves open. In some seeds a memory node or a compute node dies. Then the command
/// checks the history for strict serializability, the memory against the history, and the workload's invariants.
/// Seeds run until one of them fails.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Number of seeds [default: 1000; with --seconds no limit]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    schedules: Option<u64>,
    /// The first seed [default: 0]
    #[arg(long, value_name = "SEED", value_parser = whole, allow_negative_numbers = true)]
    first_seed: Option<u64>,
    /// Run only this seed, for example the seed in a failure's replay command
    #[arg(long, value_name = "SEED", value_parser = whole, allow_negative_numbers = true,
          conflicts_with_all = ["schedules", "first_seed", "seconds"])]
    seed: Option<u64>,
    /// Start no seed after this time
    #[arg(long, value_name = "SECONDS", value_parser = number, allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// Number of seeds that run in parallel; the result does not depend on this number [default: one for each
    /// processor]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    jobs: Option<u64>,
    /// Workload of every seed: mixture, kvs, smallbank, taobench, tatp, tpcc or ycsb [default: each seed draws one]
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Name of the protocol
    #[arg(long, value_name = "NAME", default_value = "ford")]
    protocol: String,
    /// Variant: corrected, literal or measured, then ,-SWITCH, ,+SWITCH or ,unsafe-no-SWITCH of the switches that
    /// `tarn rules` lists
    #[arg(long, value_name = "VARIANT", default_value = "corrected", allow_hyphen_values = true)]
    variant: String,
    /// Plant a bug of the fabric, of clocks, or of moves of shards, which the checks must detect
    #[arg(long, value_name = "BUG")]
    plant: Option<Plant>,
    /// Write the history of the seed to this file, whether the seed passes or not
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
}

/// The bugs of the fabric, of clocks, and of moves of shards that the command can plant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Plant {
    /// Lines are read and written word by word.
    TornLines,
    /// A message tells a node that it gets a shard. The node then serves the shard, whatever the map states, and the
    /// message comes twice.
    TransferDecides,
    /// If a shard moves, transactions that hold its locks are aborted by force.
    ForcedDrain,
    /// Clocks run fast or slow by far more than their assumed limit.
    Drift,
}

const EXAMPLES: &str = "Examples:
  tarn sim random
  tarn sim random --schedules 10000 --jobs 2
  tarn sim random --seconds 60 --first-seed 1000000 --json
  tarn sim random --variant corrected,-validate-reads
  tarn sim random --seed 4711
  tarn sim random --seed 4711 --history seed.jsonl

After Ctrl-C (or SIGTERM) the running seeds end, and the report of all seeds so far is printed.

Exit code 0: every seed passed. 1: one failed; `replay` is the command that runs it again. 2: bad input. 130: a
signal ended the run, and no seed had failed.";

/// Runs the command `tarn sim random`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    if let (Some(path), None) = (&arguments.history, arguments.seed) {
        // clap allows this flag together with flags that exclude --seed.
        let path = path.display();
        return Err(Stop::Input(format!(
            "--history = {path}; allowed: only with --seed, for the history of that seed"
        )));
    }
    let order = order(arguments)?;
    if let Some(path) = &arguments.history {
        record(&order, path)?;
    }
    let progress = Progress::new();
    // If only the time is limited, the run may continue to the last possible seed.
    let is_counted = arguments.schedules.is_some() || arguments.seconds.is_none();
    let all = is_counted.then_some(order.schedules);
    let stop = interrupt::flag()?;
    let mut sum = run_until(&order, &stop, &|sum| progress.seeds(sum.seeds_run, all))?;
    progress.end();
    let is_cut = interrupt::has_cut(&stop, (sum.seeds_run, order.schedules));
    sum.finish(&order.subject);
    match arguments.json {
        false => say(&sum.to_string())?,
        true => print_object(&sum)?,
    }
    let Some(failed) = &sum.failed else {
        return Ok(if is_cut { Verdict::Interrupted } else { Verdict::Good });
    };
    remark!("seed {} failed; replay: {}", failed.seed, failed.replay);
    Ok(Verdict::Bad)
}

/// Writes the history of one seed. The function runs the seed again, because the sum of many seeds contains no
/// history.
fn record(order: &Order, path: &Path) -> Result<(), Stop> {
    // The file stays open during the run. So if the path cannot be written, the error comes before the run.
    let place = WholeFile::create("--history", path)?;
    let ran = run_seed(&order.subject, order.first_seed)?;
    drop(place);
    if let Some(finding) = ran.finding.as_ref().filter(|it| it.kind == FindingKind::Panic) {
        return Err(Stop::Failed(format!("seed {} has no history: {}", ran.seed, finding.text)));
    }
    ran.history.write_to(path).map_err(|error| Stop::Failed(error.to_string()))
}

fn order(arguments: &Arguments) -> Result<Order, Stop> {
    let schedules = within("schedules", arguments.schedules, 1..=u64::MAX)?;
    let jobs = within("jobs", arguments.jobs, 1..=JOBS_MAX)?;
    if let Some(seconds) = arguments.seconds
        && !SECONDS.contains(&seconds)
    {
        let allowed = format!("{} to {}", SECONDS.start(), SECONDS.end());
        let (field, value) = ("seconds".to_owned(), seconds.to_string());
        return Err(UsageError { field, value, allowed }.into());
    }
    if let Some(name) = &arguments.workload
        && name != mixture::NAME
        && !tarn_workloads::NAMES.contains(&name.as_str())
    {
        let allowed = format!("{}, {}", mixture::NAME, tarn_workloads::NAMES.join(", "));
        return Err(Stop::Input(format!("--workload = {name}; allowed: {allowed}")));
    }
    let (first_seed, schedules) = match arguments.seed {
        Some(seed) => (seed, 1),
        None if schedules.is_none() && arguments.seconds.is_some() => {
            seed_range("schedules", arguments.first_seed, None)?
        }
        None => seed_range("schedules", arguments.first_seed, schedules.or(Some(SCHEDULES)))?,
    };
    let subject = Subject {
        protocol: arguments.protocol.clone(),
        variant: arguments.variant.clone(),
        workload: arguments.workload.clone(),
        torn_lines: arguments.plant == Some(Plant::TornLines),
        clocks_run_off: arguments.plant == Some(Plant::Drift),
        planted_move: match arguments.plant {
            Some(Plant::TransferDecides) => Some(Planted::TransferDecides),
            Some(Plant::ForcedDrain) => Some(Planted::Forced),
            Some(Plant::TornLines | Plant::Drift) | None => None,
        },
    };
    if subject.planted_move.is_some() && !subject.has_shards() {
        let (field, value) =
            ("plant".to_owned(), format!("a bug of moves, with the protocol {}", subject.protocol));
        let allowed = "torn-lines, because this protocol's locks have no shards".to_owned();
        return Err(UsageError { field, value, allowed }.into());
    }
    if subject.clocks_run_off && !subject.has_read_leases() {
        let (field, value) =
            ("plant".to_owned(), format!("drift, with the protocol {}", subject.protocol));
        let allowed = "torn-lines, because no rule of this protocol rests on clocks".to_owned();
        return Err(UsageError { field, value, allowed }.into());
    }
    Ok(Order {
        subject,
        first_seed,
        schedules,
        jobs: jobs.unwrap_or(machine::processors() as u64) as usize,
        budget: arguments.seconds.map(Duration::from_secs_f64),
        failures_max: 1,
    })
}
