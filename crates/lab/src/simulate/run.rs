//! Runs the whole simulated benchmark in this order: open, load, verify, measure, and judge the memory.
//!
//! Invariant: the verification phase runs before the measured phase, with the same configuration
//! and on the same memory. The invariants are judged on the memory after both phases. The program
//! reads the wall clock only between phases, and no decision depends on it.

use super::driver::{Driver, SimPhase};
use super::report::{Chosen, SimReport, Utilisation, Wall, bottleneck, busiest};
use super::warmth::Warmth;
use super::{Config, virtual_ms};
use crate::harness::checks::{Checks, HistoryReport, guaranteed};
use crate::harness::error::RunError;
use crate::harness::leases::LeaseReport;
use crate::harness::lines::placement_name;
use crate::harness::measured::Measured;
use crate::harness::phase::Length;
use crate::harness::recording::Recording;
use crate::harness::watch::Watch;
use crate::machine;
use std::path::PathBuf;
use std::time::Instant;
use tarn_engine::session::coordinator::Retry;
use tarn_store::ids::UsageError;
use tarn_workloads::Workload;

/// The plan of a simulated run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The configuration.
    pub config: Config,
    /// The length of the measured phase, in virtual milliseconds.
    pub virtual_ms: f64,
    /// The length of the verification phase, in virtual milliseconds; `None` if the run has no verification phase.
    pub verify_ms: Option<f64>,
    /// The verification phase ends earlier when it has recorded this number of transactions.
    pub verify_transactions_max: u64,
    /// The path to which the history is written.
    pub history: Option<PathBuf>,
    /// If true, clients draw the transactions, and the router sends each transaction to the owner of its first
    /// record's shard. The number of clients equals the number of coordinators.
    pub routed: bool,
    /// The addresses that threads know when a phase begins; `None`: none.
    pub warmth: Option<Warmth>,
    /// The rule by which transactions are retried.
    pub retry: Retry,
}

impl Plan {
    /// Makes the cluster of this plan, without records.
    ///
    /// # Errors
    /// The error names a value that cannot be used.
    pub(crate) fn driver<W: Workload>(&self, workload: W) -> Result<Driver<W>, RunError> {
        let mut driver = Driver::new(workload, &self.config)?;
        driver.set_warmth(self.warmth)?;
        driver.set_retry(self.retry);
        Ok(driver)
    }
}

/// Returns the length of the warm-up: a tenth of the measured phase, at least half a millisecond
/// and at most five milliseconds.
fn warm_up(plan: &Plan) -> f64 {
    (plan.virtual_ms / 10.0).clamp(0.5, 5.0)
}

/// Returns the length of the measured phase.
pub(crate) fn measured_length(plan: &Plan) -> Length {
    Length::measured(virtual_ms(warm_up(plan)), virtual_ms(plan.virtual_ms))
}

/// Runs the benchmark.
///
/// # Errors
/// Fails if the configuration cannot be used, or if a step of the run fails. A failed check is not an error, because
/// the report states the failed check.
#[expect(clippy::disallowed_methods, reason = "the program's clock")]
pub fn run<W>(workload: W, plan: &Plan, watch: &dyn Watch) -> Result<SimReport, RunError>
where
    W: Workload,
{
    let mut wall = Wall { machine: machine::describe(), ..Wall::default() };
    let mut driver = plan.driver(workload)?;
    let is_unsafe = driver.cluster().database().protocol.unsafe_without().is_some();
    if let (true, Some(path)) = (is_unsafe, &plan.history) {
        let value = path.display().to_string();
        let allowed = "none: an unsafe variant's history is not recorded".to_owned();
        return Err(UsageError { field: "history".into(), value, allowed }.into());
    }
    driver.set_clients(plan.routed.then_some(plan.config.coordinators));
    let file = (plan.history.as_deref(), plan.verify_ms.is_some());
    let own = own_meta(&plan.config);
    let recording = Recording::open(driver.workload(), &plan.config.cluster, own, file)?;

    let start = Instant::now();
    let records = driver.load(&|done, all| watch.loading(done, all))?;
    wall.load_seconds = start.elapsed().as_secs_f64();
    watch.loaded(records, wall.load_seconds);

    let start = Instant::now();
    let isolation = guaranteed(&*driver.cluster().database().protocol);
    let mut failures = Vec::new();
    let history = match plan.verify_ms {
        _ if is_unsafe => HistoryReport::of_unsafe_variant(isolation),
        None => HistoryReport::not_recorded(isolation),
        Some(ms) => {
            let length = Length::recorded(virtual_ms(ms), plan.verify_transactions_max);
            let tell = |now| watch.running("verification phase", now);
            let mut phase = driver.phase(length, &tell)?.phase;
            failures.append(&mut phase.failures);
            recording.judge(&phase, isolation)?
        }
    };
    wall.verify_seconds = start.elapsed().as_secs_f64();

    let (start, before) = (Instant::now(), driver.cluster().fabric().usage().events());
    let mut measured =
        driver.phase(measured_length(plan), &|now| watch.running("measured phase", now))?;
    failures.append(&mut measured.phase.failures);
    wall.measure_seconds = start.elapsed().as_secs_f64();
    let events = driver.cluster().fabric().usage().events() - before;
    wall.events_per_s = events as f64 / wall.measure_seconds.max(1e-9);

    watch.judging(wall.load_seconds);
    let start = Instant::now();
    let judged = driver.check()?;
    wall.check_seconds = start.elapsed().as_secs_f64();
    let checks = Checks::of(driver.workload(), driver.tally(), judged, history, failures);
    let memory = driver.cluster().fabric().memory_use();
    wall.simulated_bytes = memory.table_bytes + memory.page_bytes;
    Ok(report_of(&driver, plan, &measured, records, checks, wall))
}

/// Returns the entries of a history's header that only simulated runs have.
fn own_meta(config: &Config) -> impl Iterator<Item = (String, String)> {
    let own = [
        ("fabric", "sim".to_owned()),
        ("profile", config.profile.name.clone()),
        ("compute_nodes", config.cluster.compute_nodes.to_string()),
        ("threads", config.threads.to_string()),
        ("coordinators", config.coordinators.to_string()),
    ];
    let changes = config.profile.changes.iter();
    let changes = changes.map(|change| (format!("set.{}", change.key), change.value.clone()));
    own.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(changes)
}

fn report_of<W: Workload>(
    driver: &Driver<W>,
    plan: &Plan,
    measured: &SimPhase,
    records: u64,
    checks: Checks,
    wall: Wall,
) -> SimReport {
    let SimPhase { phase, used, .. } = measured;
    let (cluster, config) = (driver.cluster(), &plan.config);
    let shape = &config.cluster;
    let protocol = cluster.database().protocol.info();
    SimReport {
        workload: W::NAME.to_owned(),
        protocol: shape.protocol.clone(),
        variant: shape.variant.clone(),
        fabric: "sim",
        profile: config.profile.name.clone(),
        profile_modified: !config.profile.changes.is_empty(),
        overrides: config.profile.changes.clone(),
        hardware: config.profile.hardware.clone(),
        seed: shape.seed,
        virtual_ms: plan.virtual_ms,
        config: chosen(driver, plan),
        memory_bytes: cluster.memory_bytes(),
        records,
        measured: Measured::of::<W>(phase, &protocol),
        read_leases: LeaseReport::of(cluster.database(), shape),
        events: used.events(),
        bottleneck: bottleneck(used),
        utilisation: Utilisation::of(used),
        busiest: busiest(used),
        digest: format!("{:016x}", cluster.fabric().digest()),
        checks,
        wall,
    }
}

fn chosen<W: Workload>(driver: &Driver<W>, plan: &Plan) -> Chosen {
    let (workload, protocol) = (driver.workload(), &driver.cluster().database().protocol);
    let (config, shape) = (&plan.config, &plan.config.cluster);
    Chosen {
        compute_nodes: shape.compute_nodes,
        threads: config.threads,
        coordinators: config.coordinators,
        memory_nodes: shape.memory_nodes,
        replicas: shape.replicas,
        placement: placement_name(shape.options.placement),
        bucket: shape.options.bucket,
        slots_per_100_records: shape.options.slots_per_100_records,
        address_cache: shape.address_cache_entries,
        caches: if plan.warmth.is_some() { "warm" } else { "cold" },
        on_abort: if plan.retry.tries_max == 1 { "drop" } else { "retry" },
        timestamps: protocol.needs().timestamps.then_some(config.timestamps.name()),
        routing: protocol.needs().locks.then_some(if plan.routed { "by-shard" } else { "none" }),
        mix_profile: workload.profile().name,
        mix_profile_note: workload.profile().note,
        workload: workload.describe().into_iter().collect(),
        warm_up_ms: warm_up(plan),
        verify_ms: plan.verify_ms.unwrap_or_default(),
    }
}
