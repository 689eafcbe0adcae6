//! A loaded simulated cluster on which series of points are run, one after the other.
//!
//! Invariant: a layout is loaded once; between points the cluster is at rest, and every point runs in a
//! new life of all compute nodes. Memory is judged after the safe series and before any unsafe one.

use super::Scale;
use super::charge::{Charge, charged, of_clocks};
use super::curve::{Axis, Point, Series};
use super::text::{self, Kept};
use crate::bench::checks::{AuditReport, HistoryReport, Invariants, guaranteed};
use crate::bench::history::history_of;
use crate::bench::measured::Measured;
use crate::bench::run::RunError;
use crate::harness::watch::Watch;
use crate::simulate::cluster::SimCluster;
use crate::simulate::driver::{Driver, Length, SimPhase};
use crate::simulate::report::{bottleneck, busiest};
use crate::simulate::stamps::Source;
use crate::simulate::warmth::Warmth;
use crate::simulate::{Config, virtual_ms};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;
use tarn::cluster::ClusterConfig;
use tarn_check::Isolation;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::services::lock::versions::VERSION_CACHE_ENTRIES_DEFAULT;
use tarn_engine::session::coordinator::Retry;
use tarn_fabric::clock::Nanos;
use tarn_sim::profile::Profile;
use tarn_store::ids::UsageError;
use tarn_store::layout::BucketShape;
use tarn_store::layout::{LayoutKind, Records};
use tarn_store::placement::catalog::{Options, Placement};
use tarn_workloads::Workload;

/// Longest recorded phase, in virtual milliseconds, and most transactions of it.
const RECORDED_MS_MAX: f64 = 1.0;
const RECORDED_MAX: u64 = 20_000;

/// The machines of a paper's evaluation.
#[derive(Clone, Debug)]
pub struct Testbed {
    /// The hardware.
    pub profile: Profile,
    /// Machines that run transactions.
    pub compute_nodes: usize,
    /// Machines that hold data.
    pub memory_nodes: usize,
    /// Copies of every record.
    pub replicas: usize,
    /// Most threads of a compute node: more coordinators than these share them.
    pub threads_max: usize,
    /// Coordinators that a thread has before there is another one.
    pub coroutines_min: usize,
}

/// The same of a data file, without the hardware.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machines {
    compute_nodes: usize,
    memory_nodes: usize,
    replicas: usize,
    threads_max: usize,
    coroutines_min: usize,
}

impl Machines {
    /// These machines with this hardware.
    pub(super) fn with(&self, profile: Profile) -> Testbed {
        let &Machines { compute_nodes, memory_nodes, replicas, threads_max, coroutines_min } = self;
        Testbed { profile, compute_nodes, memory_nodes, replicas, threads_max, coroutines_min }
    }
}

impl Testbed {
    /// Threads of each compute node for so many coordinators.
    pub fn threads(&self, coordinators: usize) -> usize {
        (coordinators / self.compute_nodes / self.coroutines_min).clamp(1, self.threads_max)
    }
}

/// How a system lays its database out.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Its name in checks.
    #[serde(deserialize_with = "text::kept_from")]
    pub name: Kept,
    /// Where records go.
    pub placement: Placement,
    /// The shape of an index bucket.
    pub bucket: BucketShape,
    /// Slots for every 100 records.
    pub slots_per_100_records: u32,
    /// Addresses that each thread remembers.
    #[serde(default)]
    pub address_cache_entries: usize,
    /// The addresses that are remembered when a point begins, in place of that.
    #[serde(skip)]
    pub warmth: Option<Warmth>,
    /// Versions of a record, for protocols that keep several.
    #[serde(default = "two")]
    pub versions: u8,
}

impl Layout {
    /// The layout that a protocol with several versions is asked for. Versions lie apart from their slots, as in the
    /// papers, however small they are.
    pub fn asked(&self) -> LayoutKind {
        LayoutKind::MultiVersion { cells: self.versions, records: Records::Apart }
    }
}

fn two() -> u8 {
    2
}

/// Which system runs on a layout.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Its name in rows.
    #[serde(deserialize_with = "text::kept_from")]
    pub name: Kept,
    /// Its description.
    #[serde(deserialize_with = "text::kept_from")]
    pub about: Kept,
    /// The protocol's name.
    #[serde(deserialize_with = "text::kept_from")]
    pub protocol: Kept,
    /// The protocol's variant.
    #[serde(deserialize_with = "text::kept_from")]
    pub variant: Kept,
    /// Times of its software that differ from the testbed's profile; mostly none.
    #[serde(default, deserialize_with = "text::charges")]
    pub charges: &'static [Charge],
    /// How it tries an aborted transaction again: `tries` in data, 0: until it commits.
    #[serde(rename = "tries", default, deserialize_with = "text::retry")]
    pub retry: Retry,
    /// The source of its timestamps, if it takes any.
    #[serde(default = "counter", deserialize_with = "text::source")]
    pub timestamps: Source,
    /// Whether its transactions run where the router says, and not where they are drawn.
    #[serde(default)]
    pub is_routed: bool,
    /// Version tables that each of its nodes remembers, if it remembers any.
    #[serde(default = "version_cache")]
    pub version_cache_entries: usize,
    /// The time for which its readers trust a value that they have read, and its writers wait, in nanoseconds; 0: none.
    #[serde(default)]
    pub read_lease_ns: u32,
}

fn counter() -> Source {
    Source::Counter
}

fn version_cache() -> usize {
    VERSION_CACHE_ENTRIES_DEFAULT
}

/// Coordinators for each client whose transactions are routed: a node that is asked for twice as much as the
/// mean has enough of them, and a node that is asked for more has a queue.
const SEATS_A_CLIENT: usize = 2;
/// Heap of a group where versions are written to new memory: each point is a new life of every thread, which
/// takes a chunk of its own, 23 MiB of 90 threads, and chunks of former lives are not given back.
const SPARE_OF_LIVES_BYTES: u64 = 2 << 30;
/// Of the version tables that were asked for, the part that a node had in its memory.
fn remembered(names: &[&str], entered: &[u64]) -> Option<f64> {
    let of = |name| names.iter().position(|&phase| phase == name).map(|at| entered[at] as f64);
    let (had, read) = (of("cached")?, of("locate")? + of("read_direct")?);
    (had + read > 0.0).then(|| had / (had + read))
}

/// A cluster whose readers have leases of this length: the one place where a run's length reaches its cluster.
///
/// # Errors
/// A length, of a protocol without leases.
fn leasing(
    cluster: ClusterConfig,
    (protocol, read_lease_ns): (&AnyProtocol, u32),
) -> Result<ClusterConfig, UsageError> {
    if read_lease_ns == 0 || protocol.needs().read_leases {
        return Ok(ClusterConfig { read_lease_ns, ..cluster });
    }
    let (field, value) = ("read-lease-ns".to_owned(), read_lease_ns.to_string());
    let allowed = format!("0, since {} has no read leases", protocol.info().name);
    Err(UsageError { field, value, allowed })
}

/// The verdicts on a layout's memory after its safe series.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Which layout.
    pub layout: String,
    /// The workload's rules.
    pub invariants: Invariants,
    /// The engine's.
    pub audit: AuditReport,
}

impl Judged {
    /// Whether nothing is wrong.
    pub fn ok(&self) -> bool {
        self.invariants.ok && self.audit.ok
    }
}

/// See the module's text.
pub struct Stage<W: Workload> {
    driver: Driver<W>,
    testbed: Testbed,
    layout: &'static str,
    size: u64,
    over: Axis,
    load_seconds: f64,
}

impl<W: Workload> Stage<W> {
    /// Lays the workload out for a system, and for those whose records lie as its own do; loads it.
    ///
    /// # Errors
    /// A layout or a system that cannot be; the pool's memory.
    #[expect(clippy::disallowed_methods, reason = "the program's clock")]
    pub fn load(
        workload: W,
        testbed: &Testbed,
        (layout, system): (&Layout, &System),
        (scale, seed): (&Scale, u64),
        watch: &dyn Watch,
    ) -> Result<Stage<W>, RunError> {
        // A routed system needs more than there are clients.
        let coordinators = scale.coordinators.iter().copied().max().unwrap_or(1);
        let threads = testbed.threads(coordinators);
        let coordinators = match system.is_routed {
            true => coordinators * SEATS_A_CLIENT,
            false => coordinators,
        };
        let mut options = Options {
            placement: layout.placement,
            bucket: layout.bucket,
            slots_per_100_records: layout.slots_per_100_records,
            layout: layout.asked(),
            ..Options::default()
        };
        let protocol = AnyProtocol::by_name(system.protocol, system.variant)?;
        let planned = protocol.catalog(&workload.schemas(), &options, testbed.memory_nodes)?;
        if planned.options().layout != LayoutKind::SingleVersion {
            options.spare_bytes = SPARE_OF_LIVES_BYTES;
        }
        let cluster = ClusterConfig {
            protocol: system.protocol.into(),
            variant: system.variant.into(),
            memory_nodes: testbed.memory_nodes,
            replicas: testbed.replicas,
            compute_nodes: testbed.compute_nodes,
            seed,
            options,
            address_cache_entries: layout.address_cache_entries,
            ..ClusterConfig::default()
        };
        let cluster = leasing(cluster, (&protocol, system.read_lease_ns))?;
        let profile = charged(testbed.profile.clone(), &of_clocks(system.charges));
        let timestamps = system.timestamps;
        let config = Config { cluster, profile, threads, coordinators, timestamps };
        let mut driver = Driver::new(workload, &config)?;
        driver.set_warmth(layout.warmth)?;
        let start = Instant::now();
        let records = driver.load(&|done, all| watch.loading(done, all))?;
        let load_seconds = start.elapsed().as_secs_f64();
        watch.loaded(records, load_seconds);
        Ok(Stage {
            size: scale.largest(),
            over: Axis::Coordinators,
            testbed: testbed.clone(),
            layout: layout.name,
            driver,
            load_seconds,
        })
    }

    /// The points of the following series are points of one over sizes.
    pub fn over_size(mut self, size: u64, name: &'static str) -> Stage<W> {
        (self.size, self.over) = (size, Axis::Size(name));
        self
    }

    /// From the next series on, other transactions on the same records.
    ///
    /// # Panics
    /// If the workload's tables are others.
    pub fn set_workload(&mut self, workload: W) {
        self.driver.set_workload(workload);
    }

    /// The simulated cluster.
    pub fn cluster(&self) -> &SimCluster {
        self.driver.cluster()
    }

    /// Runs a system over all points of the scale.
    ///
    /// # Errors
    /// A system that cannot run here: one of another protocol than the stage was loaded for, for one.
    pub fn series(
        &mut self,
        system: &System,
        scale: &Scale,
        watch: &dyn Watch,
    ) -> Result<Series, RunError> {
        let cluster = self.driver.cluster_mut();
        cluster.set_variant(system.protocol, system.variant)?;
        cluster.set_source(system.timestamps);
        cluster.set_version_cache(system.version_cache_entries);
        cluster.set_profile(charged(self.testbed.profile.clone(), system.charges))?;
        self.driver.set_retry(system.retry);
        let is_safe = self.driver.cluster().database().protocol.unsafe_without().is_none();
        let mut failures = Vec::new();
        let mut points = Vec::with_capacity(scale.coordinators.len());
        if let (true, Some(&most)) = (scale.soak_ms > 0.0, scale.coordinators.iter().max()) {
            let mut soaked = self.run(system, most, (0.0, scale.soak_ms), watch)?;
            failures.append(&mut soaked.phase.failures);
        }
        for &coordinators in &scale.coordinators {
            let ms = (scale.warm_up_ms, scale.virtual_ms);
            let mut ran = self.run(system, coordinators, ms, watch)?;
            failures.append(&mut ran.phase.failures);
            points.push(self.point(coordinators, self.testbed.threads(coordinators), &ran));
        }
        let history = match is_safe {
            true => self.recorded(scale, &mut failures, watch)?,
            false => HistoryReport::of_unsafe_variant(self.isolation()),
        };
        let System { name, about, variant, charges, is_routed, .. } = *system;
        let needs = self.driver.cluster().database().protocol.needs();
        let timestamps = needs.timestamps.then_some(system.timestamps.name());
        Ok(Series {
            timestamps,
            is_routed,
            name,
            about,
            variant,
            charges,
            over: self.over,
            is_safe,
            history: history.verdict,
            history_transactions: history.transactions,
            failures,
            points,
        })
    }

    /// So many at once, for so long: not counted, counted.
    fn run(
        &mut self,
        system: &System,
        coordinators: usize,
        (warm_up_ms, counted_ms): (f64, f64),
        watch: &dyn Watch,
    ) -> Result<SimPhase, RunError> {
        let threads = self.testbed.threads(coordinators);
        let is_routed = system.is_routed;
        self.driver.set_clients(is_routed.then_some(coordinators));
        let seats = if is_routed { coordinators * SEATS_A_CLIENT } else { coordinators };
        self.driver.cluster_mut().reseat(threads, seats)?;
        let length = Length {
            warm_up: virtual_ms(warm_up_ms),
            measured: virtual_ms(counted_ms),
            transactions_max: u64::MAX,
            record: false,
        };
        Ok(self.driver.phase(length, &|now| watch.running(system.name, now))?)
    }

    fn point(&self, coordinators: usize, threads: usize, ran: &SimPhase) -> Point {
        let protocol = self.driver.cluster().database().protocol.info();
        let measured = Measured::of::<W>(&ran.phase, &protocol);
        let each = |bytes: u64| bytes as f64 / measured.committed.max(1) as f64;
        Point {
            coordinators,
            threads,
            size: self.size,
            given_up: ran.given_up,
            committed: measured.committed,
            throughput_per_s: measured.throughput_per_s,
            latency_us: measured.latency_us,
            conflict_rate: measured.conflict_rate,
            read_bytes: each(ran.phase.counts.bytes_in),
            written_bytes: each(ran.phase.counts.bytes_out),
            remembered: remembered(protocol.phases, &ran.phase.tally.phases),
            messages: measured.per_txn.messages,
            rounds: measured.per_txn.rounds,
            phases: measured.phases.iter().map(|(name, count)| (*name, each(*count))).collect(),
            verbs: measured.per_txn.verbs,
            busiest: busiest(&ran.used),
            bottleneck: bottleneck(&ran.used),
        }
    }

    /// The verdict on a recorded phase of the system that ran last.
    fn recorded(
        &mut self,
        scale: &Scale,
        failures: &mut Vec<String>,
        watch: &dyn Watch,
    ) -> Result<HistoryReport, RunError> {
        let length = Length {
            warm_up: Nanos(0),
            measured: virtual_ms(scale.virtual_ms.min(RECORDED_MS_MAX)),
            transactions_max: RECORDED_MAX,
            record: true,
        };
        let mut phase =
            self.driver.phase(length, &|now| watch.running("recorded phase", now))?.phase;
        failures.append(&mut phase.failures);
        let schemas = self.driver.workload().schemas();
        let history = history_of(BTreeMap::new(), &schemas, &phase.history);
        Ok(HistoryReport::judge((&history, self.isolation()), phase.seconds, None))
    }

    fn isolation(&self) -> Isolation {
        guaranteed(&*self.driver.cluster().database().protocol)
    }

    /// Judges the memory that the series so far left.
    ///
    /// # Errors
    /// The fabric's.
    pub fn judge(&self, watch: &dyn Watch) -> Result<Judged, RunError> {
        watch.judging(self.load_seconds);
        let (invariants, audit) = self.driver.check()?;
        Ok(Judged {
            layout: self.layout.to_owned(),
            invariants: invariants.into(),
            audit: (&audit).into(),
        })
    }
}
