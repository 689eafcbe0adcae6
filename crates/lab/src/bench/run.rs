//! Runs the whole benchmark in this order: open, load, verify, measure, judge the memory, and measure the machine.
//!
//! Invariant: the verification phase runs before the measured phase, with the same configuration
//! and on the same memory. The invariants are judged on the memory after both phases. A history
//! file appears only when it is whole.

use super::driver::{Driver, Threaded};
use super::report::{Chosen, Report};
use super::{Config, bare};
use crate::harness::checks::{Checks, HistoryReport, guaranteed};
pub use crate::harness::error::RunError;
use crate::harness::leases::LeaseReport;
use crate::harness::lines::placement_name;
use crate::harness::measured::Measured;
use crate::harness::phase::{Length, Phase};
use crate::harness::recording::Recording;
use crate::harness::watch::Watch;
use crate::machine;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::local::{Backing, LineAtomicity};

/// The plan of a benchmark run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The configuration of the benchmark run.
    pub config: Config,
    /// The length of the measured phase.
    pub measured: Duration,
    /// The length of the verification phase; `None` if the run has no verification phase.
    pub verify: Option<Duration>,
    /// The verification phase ends earlier when it has recorded this number of transactions.
    pub verify_transactions_max: u64,
    /// The path to which the history is written.
    pub history: Option<PathBuf>,
}

/// Runs the benchmark.
///
/// # Errors
/// Fails if the configuration cannot be used, or if a step of the run fails. A failed check is not an error, because
/// the report states the failed check.
#[expect(clippy::disallowed_methods, reason = "the program's clock")]
pub fn run<W: Threaded>(workload: W, plan: &Plan, watch: &dyn Watch) -> Result<Report, RunError> {
    let config = &plan.config;
    let own = [
        ("fabric", "local".to_owned()),
        ("threads", config.threads.to_string()),
        ("coroutines", config.coroutines.to_string()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let file = (plan.history.as_deref(), plan.verify.is_some());
    let recording = Recording::open(&workload, &config.cluster, own, file)?;
    let mut driver = Driver::new(workload, config)?;
    let pages = driver.cluster.fabric().node(NodeSlot(0)).pages();
    if let Some(notice) = pages.notice() {
        watch.notice(notice);
    }
    let start = Instant::now();
    let records = driver.load(&|done, all| watch.loading(done, all))?;
    let load_seconds = start.elapsed().as_secs_f64();
    watch.loaded(records, load_seconds);
    let isolation = guaranteed(&*driver.cluster.database().protocol);
    let (mut failures, mut history) = (Vec::new(), HistoryReport::not_recorded(isolation));
    if let Some(length) = plan.verify {
        watch.phase("verification phase", length);
        let length = Length::recorded(nanos(length), plan.verify_transactions_max);
        let mut phase = driver.phase(length)?;
        failures.append(&mut phase.failures);
        history = recording.judge(&phase, isolation)?;
    }
    watch.phase("measured phase", plan.measured);
    let length = Length::measured(nanos(warm_up(plan)), nanos(plan.measured));
    let mut phase = driver.phase(length)?;
    failures.append(&mut phase.failures);
    watch.judging(load_seconds);
    let checks = Checks::of(&driver.workload, &driver.tally, driver.check()?, history, failures);
    let mut report = report_of(&driver, plan, &phase, checks);
    (report.records, report.load_seconds) = (records, load_seconds);
    drop(driver);
    report.line_round_trip_ns = match config.threads {
        0 | 1 => None,
        _ => machine::line_round_trip_ns(),
    };
    // Transactions read only primaries, so the loops cover as much memory as one copy of all data.
    let one_copy_bytes = report.memory_bytes / config.cluster.replicas as u64;
    report.baseline_loops = bare::loops(one_copy_bytes, config.cluster.backing)
        .map_err(|error| RunError::Failed(format!("memory for the bare loops: {error}")))?;
    Ok(report)
}

fn nanos(length: Duration) -> Nanos {
    Nanos(length.as_nanos() as u64)
}

/// Returns the length of the warm-up: a tenth of the measured phase, at most 300 ms.
fn warm_up(plan: &Plan) -> Duration {
    (plan.measured / 10).min(Duration::from_millis(300))
}

/// Reports the configuration and the measured phase; the caller adds the figures that are measured
/// separately.
fn report_of<W: Threaded>(
    driver: &Driver<W>,
    plan: &Plan,
    phase: &Phase,
    checks: Checks,
) -> Report {
    let (cluster, made) = (&plan.config.cluster, &driver.cluster);
    let protocol = &made.database().protocol;
    Report {
        workload: W::NAME.to_owned(),
        protocol: cluster.protocol.clone(),
        variant: cluster.variant.clone(),
        fabric: "local",
        seed: cluster.seed,
        config: chosen(driver, plan),
        machine: machine::describe(),
        pages: made.fabric().node(NodeSlot(0)).pages().name(),
        memory_bytes: made.memory_bytes(),
        records: 0,
        load_seconds: 0.0,
        measured: Measured::of::<W>(phase, &protocol.info()),
        read_leases: LeaseReport::of(made.database(), cluster),
        checks,
        line_round_trip_ns: None,
        baseline_loops: Vec::new(),
    }
}

fn chosen<W: Threaded>(driver: &Driver<W>, plan: &Plan) -> Chosen {
    let (config, workload, as_made) = (&plan.config, &driver.workload, driver.cluster.config());
    let has_shards = driver.cluster.database().protocol.needs().locks;
    Chosen {
        threads: config.threads,
        threads_per_node: config.threads_per_node,
        compute_nodes: as_made.compute_nodes,
        coroutines: config.coroutines,
        routing: has_shards.then_some(if config.routed { "by-shard" } else { "none" }),
        lock_transport: (has_shards && as_made.compute_nodes > 1)
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
        mix_profile: workload.profile().name,
        mix_profile_note: workload.profile().note,
        workload: workload.describe().into_iter().collect(),
        warm_up_seconds: warm_up(plan).as_secs_f64(),
        seconds: plan.measured.as_secs_f64(),
        verify_seconds: plan.verify.unwrap_or_default().as_secs_f64(),
    }
}
