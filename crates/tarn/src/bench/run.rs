//! The whole benchmark in its order: open, load, verify, measure, judge, measure the machine.
//!
//! Invariant: the verification phase runs the same configuration as the measured one, on the same
//! memory, before it; the invariants are judged on what both left behind. A history file appears
//! only when it is whole.

use super::driver::{Driver, Length, LoadError, Phase};
use super::history::{history_of, table_names, transaction};
use super::report::{
    AuditReport, Chosen, HistoryReport, Invariants, Latency, OneInvariant, PerTxn, Report,
};
use super::{Config, bare};
use crate::cluster::{Cluster, OpenError};
use crate::machine;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tarn_check::{History, HistoryWriter, Isolation, check};
use tarn_engine::catalog::Placement;
use tarn_engine::inspect::Audit;
use tarn_engine::outcome::{AbortReason, UsageError};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::counters::VERB_NAMES;
use tarn_fabric::local::{Backing, LineAtomicity};
use tarn_workloads::{Invariant, Workload};

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

/// Who is told how far a run is.
pub trait Watch: Sync {
    /// So many of so many records are loaded.
    fn loading(&self, done: u64, all: u64);
    /// Loading is over.
    fn loaded(&self, records: u64, seconds: f64);
    /// A phase that takes this long begins.
    fn phase(&self, name: &str, length: Duration);
    /// The memory is judged, which takes about as long as loading did.
    fn judging(&self, about_seconds: f64);
    /// Something that a person may want to change.
    fn notice(&self, text: &str);
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
{
    let writer = open_history(&workload, plan)?;
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
        Some(length) => verify(&mut driver, plan, length, writer, &mut failures, watch)?,
        None => not_recorded(),
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
    let (invariants, audit) = driver.check()?;
    let outcomes = driver.workload().outcomes(driver.tally()).into_iter().collect();
    let mut report = report_of(&driver, plan, &phase, history);
    report.records = records;
    report.load_seconds = load_seconds;
    report.outcomes = outcomes;
    report.invariants = invariants_of(invariants);
    report.audit = audit_of(&audit);
    report.failures = failures;
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

fn meta<W: Workload>(workload: &W, plan: &Plan) -> BTreeMap<String, String> {
    let cluster = &plan.config.cluster;
    let mut meta: BTreeMap<String, String> = workload
        .describe()
        .into_iter()
        .map(|(name, value)| (format!("workload.{name}"), value))
        .collect();
    let own = [
        ("workload", W::NAME.to_owned()),
        ("mix_profile", workload.profile().name.to_owned()),
        ("protocol", cluster.protocol.clone()),
        ("variant", cluster.variant.clone()),
        ("fabric", "local".to_owned()),
        ("seed", cluster.seed.to_string()),
        ("threads", plan.config.threads.to_string()),
        ("coroutines", plan.config.coroutines.to_string()),
        ("memory_nodes", cluster.memory_nodes.to_string()),
        ("replicas", cluster.replicas.to_string()),
    ];
    meta.extend(own.map(|(name, value)| (name.to_owned(), value)));
    meta
}

/// Opened before anything runs, so that a path that cannot be written costs nothing.
fn open_history<W: Workload>(
    workload: &W,
    plan: &Plan,
) -> Result<Option<HistoryWriter>, UsageError> {
    let Some(path) = &plan.history else { return Ok(None) };
    let refuse = |allowed: String| UsageError {
        field: "history".into(),
        value: path.display().to_string(),
        allowed,
    };
    if plan.verify.is_none() {
        return Err(refuse("only with a verification phase, which records it".into()));
    }
    if path.is_dir() {
        return Err(refuse("a file, not a folder".into()));
    }
    let tables = table_names(&workload.schemas());
    let writer = HistoryWriter::create(path, &meta(workload, plan), &tables);
    writer.map(Some).map_err(|error| refuse(format!("a file that can be written ({error})")))
}

fn verify<W>(
    driver: &mut Driver<W>,
    plan: &Plan,
    length: Duration,
    writer: Option<HistoryWriter>,
    failures: &mut Vec<String>,
    watch: &dyn Watch,
) -> Result<HistoryReport, RunError>
where
    W: Workload + Sync,
    W::Tally: Send + Sync,
{
    watch.phase("verification phase", length);
    let mut phase = driver.phase(Length {
        warm_up: Duration::ZERO,
        measured: length,
        transactions_max: plan.verify_transactions_max,
        record: true,
    })?;
    failures.append(&mut phase.failures);
    if let Some(mut writer) = writer {
        let failed = |error: tarn_check::HistoryError| RunError::Failed(error.to_string());
        phase.history.iter().try_for_each(|txn| writer.write(&transaction(txn))).map_err(failed)?;
        writer.finish().map_err(failed)?;
    }
    let workload = driver.workload();
    let history = history_of(meta(workload, plan), &workload.schemas(), &phase.history);
    Ok(judge(&history, phase.seconds, plan))
}

fn judge(history: &History, seconds: f64, plan: &Plan) -> HistoryReport {
    let isolation = Isolation::StrictSerializable;
    let report = check(history, isolation);
    let accepted = report.is_accepted();
    HistoryReport {
        verdict: if accepted { "accepted" } else { "violated" },
        transactions: history.transactions.len() as u64,
        isolation: isolation.name(),
        recorded_in: "verification phase",
        seconds,
        anomalies: report.totals.iter().map(|(kind, total)| (kind.name(), *total)).collect(),
        counterexample: (!accepted).then(|| report.to_string()),
        file: plan.history.as_ref().map(|path| path.display().to_string()),
    }
}

fn not_recorded() -> HistoryReport {
    HistoryReport {
        verdict: "not recorded",
        transactions: 0,
        isolation: Isolation::StrictSerializable.name(),
        recorded_in: "no phase",
        seconds: 0.0,
        anomalies: BTreeMap::new(),
        counterexample: None,
        file: None,
    }
}

fn invariants_of(invariants: Vec<Invariant>) -> Invariants {
    let each: Vec<OneInvariant> = invariants
        .into_iter()
        .map(|Invariant { name, ok, detail }| OneInvariant { name, ok, detail })
        .collect();
    let details: Vec<String> =
        each.iter().map(|one| format!("{}: {}", one.name, one.detail)).collect();
    Invariants { ok: each.iter().all(|one| one.ok), detail: details.join("; "), each }
}

fn audit_of(audit: &Audit) -> AuditReport {
    AuditReport {
        ok: audit.is_clean(),
        detail: audit.to_string(),
        locks_left: audit.locks_left,
        replicas_differ: audit.replicas_differ,
        misplaced: audit.misplaced,
    }
}

/// Everything that the measured phase tells; the rest is filled in by the caller.
fn report_of<W>(driver: &Driver<W>, plan: &Plan, phase: &Phase, history: HistoryReport) -> Report
where
    W: Workload + Sync,
    W::Tally: Send + Sync,
{
    let (cluster, tally) = (&plan.config.cluster, &phase.tally);
    let user = tally.aborts[AbortReason::User as usize];
    let tries = (tally.committed + tally.aborted()).max(1) as f64;
    let reasons = AbortReason::ALL.map(AbortReason::name);
    let protocol = driver.cluster().database().protocol.info();
    let quantile = |at| phase.latency_ns.value_at_quantile(at) as f64 / 1e3;
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
        mix_run: W::TRANSACTIONS.iter().copied().zip(phase.mix.iter().copied()).collect(),
        committed: tally.committed,
        seconds: phase.seconds,
        throughput_per_s: tally.committed as f64 / phase.seconds.max(1e-9),
        latency_us: Latency {
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            samples: phase.latency_ns.len(),
        },
        aborts: reasons.into_iter().zip(tally.aborts).collect(),
        conflict_rate: (tally.aborted() - user) as f64 / tries,
        phases: protocol.phases.iter().copied().zip(tally.phases).collect(),
        per_txn: per_txn(phase),
        outcomes: BTreeMap::new(),
        invariants: invariants_of(Vec::new()),
        audit: audit_of(&Audit::default()),
        history,
        failures: Vec::new(),
        line_round_trip_ns: None,
        baseline_loops: Vec::new(),
    }
}

fn per_txn(phase: &Phase) -> PerTxn {
    let committed = phase.tally.committed.max(1) as f64;
    let each = |count: u64| count as f64 / committed;
    let counts = &phase.counts;
    PerTxn {
        rounds: each(counts.rounds),
        verbs: VERB_NAMES.into_iter().zip(counts.verbs.map(each)).collect(),
        messages: each(counts.messages),
        bytes: each(counts.bytes_in + counts.bytes_out),
    }
}

fn chosen<W>(driver: &Driver<W>, plan: &Plan) -> Chosen
where
    W: Workload + Sync,
    W::Tally: Send + Sync,
{
    let (config, cluster): (&Config, &Cluster) = (&plan.config, driver.cluster());
    let as_made = cluster.config();
    Chosen {
        threads: config.threads,
        threads_per_node: config.threads_per_node,
        compute_nodes: as_made.compute_nodes,
        coroutines: config.coroutines,
        pinned: config.pin,
        memory_nodes: as_made.memory_nodes,
        replicas: as_made.replicas,
        placement: match as_made.options.placement {
            Placement::Hash => "hash",
            Placement::Table => "table",
        },
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
