//! The command `tarn sim outage` lets nodes crash under load.
//!
//! Invariant: the command fails only if the memory contains an error afterwards, whatever the measured figures are.

use super::load_profile;
use crate::bench::within;
use crate::own_input::refuse_own_input;
use crate::scenario::{number, whole};
use crate::whole_file::WholeFile;
use crate::{Stop, Verdict, verdict};
use std::path::{Path, PathBuf};
use tarn_engine::recovery::Pace;
use tarn_lab::chosen::Chosen;
use tarn_lab::outage::{Plan, Shape};
use tarn_store::ids::UsageError;
use tarn_workloads::Settings;

/// Lets compute nodes and memory nodes crash under load, all at the same time, and shows throughput in intervals of
/// virtual time. While transactions run, compute nodes are recovered and join again, backups are promoted, and spare
/// nodes are filled. The default cluster is that of the published measurement of LOTUS.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The workload: kvs, smallbank, taobench, tatp, tpcc or ycsb
    #[arg(value_name = "WORKLOAD", default_value = "smallbank")]
    workload: String,
    /// The profile of the workload's mix
    #[arg(long, value_name = "NAME")]
    mix_profile: Option<String>,
    /// Number of records, as the workload counts them [default: for tpcc the warehouses of its profile; for other
    /// workloads 100000]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    records: Option<u64>,
    /// Name of the protocol
    #[arg(long, value_name = "NAME", default_value = "ford")]
    protocol: String,
    /// Variant: corrected, literal or measured, then ,-SWITCH or ,+SWITCH of the switches that `tarn rules` lists
    #[arg(long, value_name = "VARIANT", default_value = "corrected", allow_hyphen_values = true)]
    variant: String,
    /// Hardware: a name that `tarn profiles` lists, or a TOML file
    #[arg(long, value_name = "NAME", default_value = "cx3-56g")]
    profile: String,
    /// Number of compute nodes
    #[arg(long, value_name = "COUNT", default_value_t = 9, value_parser = whole,
          allow_negative_numbers = true)]
    compute_nodes: u64,
    /// Number of memory nodes
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = whole,
          allow_negative_numbers = true)]
    memory_nodes: u64,
    /// Number of empty memory nodes in addition
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole,
          allow_negative_numbers = true)]
    spare_nodes: u64,
    /// Number of copies of every record
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = whole,
          allow_negative_numbers = true)]
    replicas: u64,
    /// Number of threads of each compute node that run transactions
    #[arg(long, value_name = "COUNT", default_value_t = 9, value_parser = whole,
          allow_negative_numbers = true)]
    threads: u64,
    /// Number of coordinators of each thread
    #[arg(long, value_name = "COUNT", default_value_t = 6, value_parser = whole,
          allow_negative_numbers = true)]
    coroutines: u64,
    /// Length of the whole run in virtual milliseconds
    #[arg(long, value_name = "MS", default_value_t = 60.0, value_parser = number,
          allow_negative_numbers = true)]
    virtual_ms: f64,
    /// Time at which the nodes crash
    #[arg(long, value_name = "MS", default_value_t = 20.0, value_parser = number,
          allow_negative_numbers = true)]
    crash_at_ms: f64,
    /// Number of compute nodes that crash
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = whole,
          allow_negative_numbers = true)]
    crash_compute: u64,
    /// Number of memory nodes that crash
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = whole,
          allow_negative_numbers = true)]
    crash_memory: u64,
    /// Time from the crash until the machines of compute nodes run again
    #[arg(long, value_name = "MS", default_value_t = 20.0, value_parser = number,
          allow_negative_numbers = true)]
    restart_ms: f64,
    /// Length of the lease by which other nodes notice the crash of a compute node; 0: nodes notice a crash
    /// immediately
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = number,
          allow_negative_numbers = true)]
    lease_ms: f64,
    /// Greatest percentage of a memory node's time that the sweep for locks of dead nodes may take; no transaction
    /// waits for the sweep
    #[arg(long, value_name = "PERCENT", value_parser = whole,
          default_value_t = Pace::default().sweep_share.as_percent().into(),
          allow_negative_numbers = true)]
    sweep_share: u64,
    /// Greatest percentage of a memory node's time that filling a spare node may take; until the spare node is full,
    /// a copy is missing
    #[arg(long, value_name = "PERCENT", value_parser = whole,
          default_value_t = Pace::default().copy_share.as_percent().into(),
          allow_negative_numbers = true)]
    copy_share: u64,
    /// Length of an interval of the report
    #[arg(long, value_name = "MS", default_value_t = INTERVAL_MS, value_parser = number,
          allow_negative_numbers = true)]
    interval_ms: f64,
    /// Seed of every random generator
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = whole,
          allow_negative_numbers = true)]
    seed: u64,
    /// Draw throughput over time into this file, as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
}

const RECORDS: u64 = 100_000;
const RECORDS_MAX: u64 = 10_000_000;
const VIRTUAL_MS_MAX: f64 = 10_000.0;
const INTERVAL_MS: f64 = 1.0;
const INTERVAL_MS_MIN: f64 = 0.01;
const INTERVAL_MS_MAX: f64 = 1_000.0;
const INTERVALS_BEFORE: f64 = 5.0;

const EXAMPLES: &str = "Examples:
  tarn sim outage
  tarn sim outage --sweep-share 20 --svg outage.svg
  tarn sim outage --crash-memory 1 --records 5000 --threads 3 --coroutines 2 --virtual-ms 40 \\
      --crash-at-ms 8 --restart-ms 8
  tarn sim outage tatp --compute-nodes 4 --threads 2 --virtual-ms 30 --crash-at-ms 10 --json

Exit code 0: the memory is sound afterwards, and every group has its copies again, as far as there are
spares. 1: otherwise. 2: bad input.";

/// Runs the command `tarn sim outage`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let svg = arguments.svg.as_deref();
    refuse_own_input(("--svg", svg), &[("--profile", Some(Path::new(&arguments.profile)))])?;
    let plan = plan(arguments)?;
    let svg = svg.map(|path| WholeFile::create("--svg", path)).transpose()?;
    let outage = Chosen::new(&arguments.workload, arguments.workload_settings())?.outage(&plan)?;
    if let Some(file) = svg {
        file.finish(&outage.picture())?;
    }
    verdict::print(&outage, arguments.json)?;
    let failed = outage.failed();
    if failed.is_empty() {
        return Ok(Verdict::Good);
    }
    remark!("checks failed: {}", failed.join("; "));
    Ok(Verdict::Bad)
}

impl Arguments {
    /// Returns the workload's settings. A workload that counts warehouses has a default size of its own.
    fn workload_settings(&self) -> Settings {
        let has_own = self.workload == "tpcc";
        let records = self.records.or((!has_own).then_some(RECORDS));
        Settings { profile: self.mix_profile.clone(), records, zipf: None }
    }
}

/// Checks times that depend on one another. An error names one time and the times that limit it.
fn check_times(shape: &Shape) -> Result<(), UsageError> {
    let refuse = |field: &str, value: f64, allowed: String| {
        Err(UsageError { field: field.to_owned(), value: value.to_string(), allowed })
    };
    let Shape { virtual_ms, crash_at_ms, interval_ms, .. } = *shape;
    // The five intervals before the crash show the throughput without a crash. If the user did not set the interval,
    // the error is about the time of the crash.
    let is_given = interval_ms != INTERVAL_MS && crash_at_ms >= INTERVALS_BEFORE * INTERVAL_MS_MIN;
    let longest_ms = (crash_at_ms / INTERVALS_BEFORE).min(INTERVAL_MS_MAX);
    let longest_ms = if is_given { longest_ms } else { INTERVAL_MS_MAX };
    if !(INTERVAL_MS_MIN..=longest_ms).contains(&interval_ms) {
        let allowed = format!(
            "{INTERVAL_MS_MIN} to {longest_ms}: a fifth of --crash-at-ms {crash_at_ms}, and at \
             most {INTERVAL_MS_MAX}"
        );
        return refuse("interval-ms", interval_ms, allowed);
    }
    // At least one interval must be after the crash.
    let first_ms = INTERVALS_BEFORE * interval_ms;
    if !(first_ms + interval_ms..=VIRTUAL_MS_MAX).contains(&virtual_ms) {
        let least_ms = (crash_at_ms + interval_ms).max(first_ms + interval_ms);
        let allowed = format!(
            "{least_ms} to {VIRTUAL_MS_MAX}: at least one --interval-ms after --crash-at-ms \
             {crash_at_ms}"
        );
        return refuse("virtual-ms", virtual_ms, allowed);
    }
    let last_ms = virtual_ms - interval_ms;
    if !(first_ms..=last_ms).contains(&crash_at_ms) {
        let allowed = format!(
            "{first_ms} (five times --interval-ms) to {last_ms} (one --interval-ms before \
                     --virtual-ms)"
        );
        return refuse("crash-at-ms", crash_at_ms, allowed);
    }
    Ok(())
}

fn plan(arguments: &Arguments) -> Result<Plan, Stop> {
    let count = |field: &str, value: u64, least: u64, most: u64| -> Result<usize, Stop> {
        Ok(within(field, Some(value), least..=most)?.unwrap_or(value) as usize)
    };
    let it = arguments;
    within("records", it.records, 1..=RECORDS_MAX)?;
    let memory_nodes = count("memory-nodes", it.memory_nodes, 1, 64)?;
    let shape = Shape {
        compute_nodes: count("compute-nodes", it.compute_nodes, 1, 64)?,
        memory_nodes,
        spare_nodes: count("spare-nodes", it.spare_nodes, 0, 64)?,
        replicas: count("replicas", it.replicas, 1, memory_nodes as u64)?,
        threads: count("threads", it.threads, 1, 63)?,
        coroutines: count("coroutines", it.coroutines, 1, 64)?,
        virtual_ms: it.virtual_ms,
        crash_at_ms: it.crash_at_ms,
        crash_compute: count("crash-compute", it.crash_compute, 0, 64)?,
        crash_memory: count("crash-memory", it.crash_memory, 0, 64)?,
        restart_ms: it.restart_ms,
        lease_ms: it.lease_ms,
        sweep_share_percent: count("sweep-share", it.sweep_share, 1, 100)? as u16,
        copy_share_percent: count("copy-share", it.copy_share, 1, 100)? as u16,
        interval_ms: it.interval_ms,
    };
    check_times(&shape)?;
    let profile = load_profile("--profile", &it.profile)?;
    let protocol = (it.protocol.clone(), it.variant.clone());
    let plan = Plan { profile, protocol, shape, seed: it.seed };
    plan.validate()?;
    Ok(plan)
}
