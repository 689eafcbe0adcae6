//! Loads a simulated cluster, and runs several series of points on it, one after the other.
//!
//! Invariant: the database of a layout is loaded only once. No coordinator runs between two points, and all compute
//! nodes join as new incarnations for every point. The memory is checked after the series that isolate transactions,
//! and before any other series.

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

/// The largest length of a phase whose history is recorded, in virtual milliseconds, and the largest number of
/// transactions in such a phase.
const RECORDED_MS_MAX: f64 = 1.0;
const RECORDED_MAX: u64 = 20_000;

/// The machines on which a paper's authors ran their evaluation.
#[derive(Clone, Debug)]
pub struct Testbed {
    /// The hardware profile.
    pub profile: Profile,
    /// The number of machines that run transactions.
    pub compute_nodes: usize,
    /// The number of machines that hold data.
    pub memory_nodes: usize,
    /// The number of copies of every record.
    pub replicas: usize,
    /// The largest number of threads of a compute node; if there are more coordinators, the threads run several
    /// coordinators each.
    pub threads_max: usize,
    /// The number of coordinators that a thread gets before a further thread is used.
    pub coroutines_min: usize,
}

/// The testbed's machines as a data file describes them, without the hardware profile.
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
    /// Returns a testbed of these machines with this hardware.
    pub(super) fn with(&self, profile: Profile) -> Testbed {
        let &Machines { compute_nodes, memory_nodes, replicas, threads_max, coroutines_min } = self;
        Testbed { profile, compute_nodes, memory_nodes, replicas, threads_max, coroutines_min }
    }
}

impl Testbed {
    /// Returns the number of threads of each compute node for this number of coordinators.
    pub fn threads(&self, coordinators: usize) -> usize {
        (coordinators / self.compute_nodes / self.coroutines_min).clamp(1, self.threads_max)
    }
}

/// The layout of a system's database.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The layout's name in reports of checks.
    #[serde(deserialize_with = "text::kept_from")]
    pub name: Kept,
    /// The rule that places records on memory nodes.
    pub placement: Placement,
    /// The shape of an index bucket.
    pub bucket: BucketShape,
    /// The number of slots for every 100 records.
    pub slots_per_100_records: u32,
    /// The number of addresses that each thread caches.
    #[serde(default)]
    pub address_cache_entries: usize,
    /// The rule for the addresses that threads already know when a point begins. This rule replaces the setting
    /// `address_cache_entries`.
    #[serde(skip)]
    pub warmth: Option<Warmth>,
    /// The number of versions of a record, for protocols that keep several versions.
    #[serde(default = "two")]
    pub versions: u8,
}

impl Layout {
    /// Returns the memory layout of records that a protocol with several versions of a record uses. Versions are
    /// stored apart from their slots, as in the papers, even if the versions are small.
    pub fn asked(&self) -> LayoutKind {
        LayoutKind::MultiVersion { cells: self.versions, records: Records::Apart }
    }
}

fn two() -> u8 {
    2
}

/// A system that runs on a layout.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// The system's name in rows.
    #[serde(deserialize_with = "text::kept_from")]
    pub name: Kept,
    /// The system's description.
    #[serde(deserialize_with = "text::kept_from")]
    pub about: Kept,
    /// The protocol's name.
    #[serde(deserialize_with = "text::kept_from")]
    pub protocol: Kept,
    /// The protocol's variant.
    #[serde(deserialize_with = "text::kept_from")]
    pub variant: Kept,
    /// The times of the system's software that differ from the testbed's profile; the list is empty for most systems.
    #[serde(default, deserialize_with = "text::charges")]
    pub charges: &'static [Charge],
    /// The rule for retries of an aborted transaction: `tries` in data files gives the number of tries, and 0 means
    /// that the system tries until the transaction commits.
    #[serde(rename = "tries", default, deserialize_with = "text::retry")]
    pub retry: Retry,
    /// The source from which the system takes timestamps, if the system uses timestamps.
    #[serde(default = "counter", deserialize_with = "text::source")]
    pub timestamps: Source,
    /// Whether the system's transactions run at the nodes that the router chooses, instead of the
    /// nodes that draw them.
    #[serde(default)]
    pub is_routed: bool,
    /// The number of version tables that each of the system's nodes caches, if the system caches
    /// version tables.
    #[serde(default = "version_cache")]
    pub version_cache_entries: usize,
    /// The length of the read leases in nanoseconds. Readers trust a value for this time after they read it, and
    /// writers wait for this time. The length 0 means that readers have no leases.
    #[serde(default)]
    pub read_lease_ns: u32,
}

fn counter() -> Source {
    Source::Counter
}

fn version_cache() -> usize {
    VERSION_CACHE_ENTRIES_DEFAULT
}

/// The number of coordinators for each client whose transactions are routed. With this number, a node with twice the
/// mean number of requests still has enough coordinators. Only at a node with even more requests do transactions wait
/// in a queue.
const SEATS_A_CLIENT: usize = 2;
/// The size of the heap of a replica group whose versions are written to newly allocated memory. At each point every
/// thread has a new incarnation, which takes its own chunk of memory from this heap (23 MiB for 90 threads). The
/// chunks of former incarnations are not freed.
const SPARE_OF_LIVES_BYTES: u64 = 2 << 30;
/// Returns the fraction of the requested version tables that nodes found in their caches.
fn remembered(names: &[&str], entered: &[u64]) -> Option<f64> {
    let of = |name| names.iter().position(|&phase| phase == name).map(|at| entered[at] as f64);
    let (had, read) = (of("cached")?, of("locate")? + of("read_direct")?);
    (had + read > 0.0).then(|| had / (had + read))
}

/// Returns a cluster whose readers have leases of this length; only this function passes the lease length of a run to
/// the run's cluster.
///
/// # Errors
/// Fails if the caller gives a lease length for a protocol that has no leases.
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

/// The verdicts on the memory of a layout after the layout's series that isolate transactions.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// The name of the layout.
    pub layout: String,
    /// The verdicts on the workload's rules.
    pub invariants: Invariants,
    /// The verdict on the engine's rules.
    pub audit: AuditReport,
}

impl Judged {
    /// Returns whether the checks found no error.
    pub fn ok(&self) -> bool {
        self.invariants.ok && self.audit.ok
    }
}

/// A loaded simulated cluster, on which systems with the same layout of records can run.
pub struct Stage<W: Workload> {
    driver: Driver<W>,
    testbed: Testbed,
    layout: &'static str,
    size: u64,
    over: Axis,
    load_seconds: f64,
}

impl<W: Workload> Stage<W> {
    /// Makes a database with the layout that `system` needs, and loads it. Other systems can use
    /// the same database if their records have the same layout.
    ///
    /// # Errors
    /// Fails if the layout or the system is not possible, or if the pool has too little memory.
    #[expect(clippy::disallowed_methods, reason = "the program's clock")]
    pub fn load(
        workload: W,
        testbed: &Testbed,
        (layout, system): (&Layout, &System),
        (scale, seed): (&Scale, u64),
        watch: &dyn Watch,
    ) -> Result<Stage<W>, RunError> {
        // If the transactions of a system are routed, the system needs more coordinators than clients.
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

    /// Makes the size of the database the axis of all later series on this cluster.
    pub fn over_size(mut self, size: u64, name: &'static str) -> Stage<W> {
        (self.size, self.over) = (size, Axis::Size(name));
        self
    }

    /// Replaces the workload. From the next series on, coordinators run the transactions of the new workload on the
    /// same records.
    ///
    /// # Panics
    /// Panics if the workload has other tables.
    pub fn set_workload(&mut self, workload: W) {
        self.driver.set_workload(workload);
    }

    /// Returns the simulated cluster.
    pub fn cluster(&self) -> &SimCluster {
        self.driver.cluster()
    }

    /// Runs a system at all points of the scale.
    ///
    /// # Errors
    /// Fails if the system cannot run on this stage, for example because its protocol is not the loaded protocol.
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

    /// Runs one point with this number of coordinators: first a warm-up that is not counted, and
    /// then the counted time.
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

    /// Runs a recorded phase of the system that ran last, and returns the checker's verdict on this
    /// phase.
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

    /// Checks the memory after all series that have run so far.
    ///
    /// # Errors
    /// Returns the errors that the fabric reports.
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
