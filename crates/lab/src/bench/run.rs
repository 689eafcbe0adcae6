//! The whole benchmark in its order: open, load, verify, measure, judge, measure the machine.
//!
//! Invariant: the verification phase runs the same configuration as the measured one, on the same
//! memory, before it; the invariants are judged on what both left behind. A history file appears
//! only when it is whole.

use super::checks::{Checks, HistoryReport, guaranteed};
use super::driver::{Driver, Length, LoadError, Phase};
use super::leases::LeaseReport;
use super::lines::placement_name;
use super::measured::Measured;
use super::recording::Recording;
use super::report::{Chosen, Report};
use super::{Config, bare};
use crate::harness::watch::Watch;
use crate::machine;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tarn::cluster::{Cluster, OpenError};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::local::{Backing, LineAtomicity};
use tarn_store::ids::UsageError;
use tarn_workloads::Workload;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// On what.
    pub config: Config,
    /// Length of the measured phase.
    pub measured: Duration,
    /// Length of the verification phase; `None` for none.
    pub verify: Option<Duration>,
    /// The verification phase ends earlier when it has recorded so many transactions.
    pub verify_transactions_max: u64,
    /// Where the history goes.
    pub history: Option<PathBuf>,
}

/// Why there is no report.
#[derive(Debug)]
pub enum RunError {
    /// A value that cannot be used.
    Usage(UsageError),
    /// The work failed.
    Failed(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Usage(error) => error.fmt(f),
            RunError::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for RunError {}

impl From<UsageError> for RunError {
    fn from(error: UsageError) -> RunError {
        RunError::Usage(error)
    }
}

impl From<OpenError> for RunError {
    fn from(error: OpenError) -> RunError {
        match error {
            OpenError::Usage(error) => RunError::Usage(error),
            error => RunError::Failed(error.to_string()),
        }
    }
}

impl From<LoadError> for RunError {
    fn from(error: LoadError) -> RunError {
        match error {
            LoadError::Open(error) => error.into(),
            error => RunError::Failed(error.to_string()),
        }
    }
}

/// Runs the benchmark.
///
/// # Errors
/// What cannot be, or could not be done. A check that fails is no error: the report says so.
#[expect(clippy::disallowed_methods, reason = "the program's clock")]
pub fn run<W>(workload: W, plan: &Plan, watch: &dyn Watch) -> Result<Report, RunError>
where
    W: Workload + Sync,
    W::Tally: Send + Sync,
    W::Input: Send,
{
    let recording = Recording::open(
        &workload,
        &plan.config.cluster,
        own_meta(&plan.config),
        (plan.history.as_deref(), plan.verify.is_some()),
    )?;
    let mut driver = Driver::new(workload, &plan.config)?;
    let pages = driver.cluster().fabric().node(NodeSlot(0)).pages();
    if let Some(notice) = pages.notice() {
        watch.notice(notice);
    }
    let start = Instant::now();
    let records = driver.load(&|done, all| watch.loading(done, all))?;
    let load_seconds = start.elapsed().as_secs_f64();
    watch.loaded(records, load_seconds);
    let mut failures = Vec::new();
    let history = match plan.verify {
        Some(length) => verify(&mut driver, plan, length, recording, &mut failures, watch)?,
        None => HistoryReport::not_recorded(guaranteed(&*driver.cluster().database().protocol)),
    };
    watch.phase("measured phase", plan.measured);
    let mut phase = driver.phase(Length {
        warm_up: warm_up(plan),
        measured: plan.measured,
        transactions_max: u64::MAX,
        record: false,
    })?;
    failures.append(&mut phase.failures);
    watch.judging(load_seconds);
    let checks = Checks::of(driver.workload(), driver.tally(), driver.check()?, history, failures);
    let mut report = report_of(&driver, plan, &phase, checks);
    report.records = records;
    report.load_seconds = load_seconds;
    drop(driver);
    report.line_round_trip_ns = match plan.config.threads {
        0 | 1 => None,
        _ => machine::line_round_trip_ns(),
    };
    // Transactions read primaries: one copy of everything.
    let one_copy_bytes = report.memory_bytes / plan.config.cluster.replicas as u64;
    report.baseline_loops = bare::loops(one_copy_bytes, plan.config.cluster.backing)
        .map_err(|error| RunError::Failed(format!("memory for the bare loops: {error}")))?;
    Ok(report)
}

/// A tenth of the measured phase, at most 300 ms.
fn warm_up(plan: &Plan) -> Duration {
    (plan.measured / 10).min(Duration::from_millis(300))
}

/// What stands at the head of a history beside what every run says.
fn own_meta(config: &Config) -> [(String, String); 3] {
    [
        ("fabric", "local".to_owned()),
        ("threads", config.threads.to_string()),
        ("coroutines", config.coroutines.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

fn verify<W>(
    driver: &mut Driver<W>,
    plan: &Plan,
    length: Duration,
    recording: Recording,
    failures: &mut Vec<String>,
    watch: &dyn Watch,
) -> Result<HistoryReport, RunError>
where
    W: Workload + Sync,
    W::Tally: Send + Sync,
    W::Input: Send,
{
    watch.phase("verification phase", length);
    let mut phase = driver.phase(Length {
        warm_up: Duration::ZERO,
        measured: length,
        transactions_max: plan.verify_transactions_max,
        record: true,
    })?;
    failures.append(&mut phase.failures);
    recording.judge(&phase, guaranteed(&*driver.cluster().database().protocol))
}

/// What was run and what came of it; the rest is filled in by the caller.
fn report_of<W>(driver: &Driver<W>, plan: &Plan, phase: &Phase, checks: Checks) -> Report
where
    W: Workload + Sync,
    W::Tally: Send + Sync,
    W::Input: Send,
{
    let cluster = &plan.config.cluster;
    let protocol = driver.cluster().database().protocol.info();
    Report {
        workload: W::NAME.to_owned(),
        protocol: cluster.protocol.clone(),
        variant: cluster.variant.clone(),
        fabric: "local",
        seed: cluster.seed,
        config: chosen(driver, plan),
        machine: machine::describe(),
        pages: driver.cluster().fabric().node(NodeSlot(0)).pages().name(),
        memory_bytes: driver.cluster().memory_bytes(),
        records: 0,
        load_seconds: 0.0,
        measured: Measured::of::<W>(phase, &protocol),
        read_leases: LeaseReport::of(driver.cluster().database(), cluster),
        checks,
        line_round_trip_ns: None,
        baseline_loops: Vec::new(),
    }
}

fn chosen<W>(driver: &Driver<W>, plan: &Plan) -> Chosen
where
    W: Workload + Sync,
    W::Tally: Send + Sync,
    W::Input: Send,
{
    let (config, cluster): (&Config, &Cluster) = (&plan.config, driver.cluster());
    let as_made = cluster.config();
    let protocol = &cluster.database().protocol;
    Chosen {
        threads: config.threads,
        threads_per_node: config.threads_per_node,
        compute_nodes: as_made.compute_nodes,
        coroutines: config.coroutines,
        routing: protocol.needs().locks.then_some(if config.routed { "by-shard" } else { "none" }),
        lock_asks: (protocol.needs().locks && as_made.compute_nodes > 1)
            .then_some(if as_made.lock_messages { "messages" } else { "calls" }),
        pinned: config.pin,
        memory_nodes: as_made.memory_nodes,
        replicas: as_made.replicas,
        placement: placement_name(as_made.options.placement),
        address_cache: as_made.address_cache_entries,
        memory: match as_made.backing {
            Backing::Auto => "auto",
            Backing::Shared => "shared",
            Backing::Private => "private",
        },
        line_atomicity: match as_made.atomicity {
            LineAtomicity::Striped { .. } => "striped",
            LineAtomicity::PlantedTorn => "planted-torn",
        },
        mix_profile: driver.workload().profile().name,
        mix_profile_note: driver.workload().profile().note,
        workload: driver.workload().describe().into_iter().collect(),
        warm_up_seconds: warm_up(plan).as_secs_f64(),
        seconds: plan.measured.as_secs_f64(),
        verify_seconds: plan.verify.unwrap_or_default().as_secs_f64(),
    }
}
