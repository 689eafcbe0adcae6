//! Changes the length of readers' leases while transactions run, and measures the throughput before, during, and
//! after the change.
//!
//! Invariant: three phases run on one database and differ only in the lease length. In each phase, the manager of
//! leases reads the measurements after one interval only to prepare itself. After the second interval, the manager
//! changes the lease length. So the first phase ends before the first reading, and the second phase counts
//! transactions around the second reading. The last phase uses the lease length that the manager chose.

use super::case::{Bench, Case, Missing};
use super::runs::Ground;
use crate::bench::leases::LeaseReport;
use crate::bench::run::RunError;
use crate::simulate::driver::{Driver, Length};
use crate::simulate::stamps::Source;
use crate::simulate::{Config, virtual_ms};
use serde::Serialize;
use tarn::cluster::ClusterConfig;
use tarn_engine::cluster::lease::LeasePolicy;
use tarn_engine::protocol::AnyProtocol;
use tarn_store::placement::catalog::Options;

/// A system whose lease length the manager adjusts, and the bounds for this length.
#[derive(Clone, PartialEq, Debug)]
pub struct Adjusting {
    /// The system on YCSB, with its initial lease; only the case's first number of coordinators is
    /// used.
    pub case: Case,
    /// The shortest and the longest lease that the manager may choose.
    pub bounds_ns: (u32, u32),
}

/// The result of a run in which the manager adjusted the lease length.
#[derive(Clone, Debug, Serialize)]
pub struct Adjusted {
    /// The name of the system that ran.
    pub system: &'static str,
    /// The benchmark that the system ran.
    pub bench: Bench,
    /// The number of committed transactions per second with the initial lease.
    pub before_per_s: f64,
    /// The number of committed transactions per second while the lease length changes, in a window of 0.1 virtual
    /// milliseconds.
    pub during_per_s: f64,
    /// The number of committed transactions per second with the lease length that the manager
    /// chose.
    pub after_per_s: f64,
    /// The lengths of the leases, and the times that the manager needed to change these lengths.
    pub leases: LeaseReport,
    /// Whether an error in the memory counts as a failure of this program.
    pub must_be_sound: bool,
    /// The errors in the memory after the run, and the failures of transactions.
    pub wrong: Vec<String>,
}

/// The interval at which the manager reads its measurements. The manager's interval is shorter than the published
/// interval of one second. The interval only determines the time at which a lease length changes. The interval
/// determines neither the chosen length nor the duration of the change.
const LOOKED_EVERY_MS: f64 = 1.0;
/// The number of times that the manager reads its measurements until it changes the length.
const LOOKS: f64 = 2.0;
/// The number of virtual milliseconds for which transactions are counted while the lease length changes. The counted
/// time is several times as long as the change of the lease length.
const CHANGING_MS: f64 = 0.1;
/// The length of the first part of a phase, whose transactions are not counted. The phase ends before the manager's
/// first reading.
const WARM_UP_MS: f64 = 0.2;

impl Adjusted {
    /// Describes the chosen length, and the throughput before, during, and after the change; `None` if the manager
    /// chose no lease length.
    pub(super) fn told(&self) -> Option<String> {
        let change = self.leases.manager.as_ref()?.first.first()?;
        let millions = |per_s: f64| format!("{:.2}", per_s / 1e6);
        Some(format!(
            "{} % writes: {} → {} ns in {:.1} µs; {}, {}, {} M transactions/s before, while, after",
            self.bench.updates.unwrap_or(0),
            change.from_ns,
            change.to_ns,
            change.took_us,
            millions(self.before_per_s),
            millions(self.during_per_s),
            millions(self.after_per_s)
        ))
    }
}

impl Adjusting {
    /// Runs the three phases: before, during and after the change of the lease length.
    ///
    /// # Errors
    /// The error states the reason for which the case cannot run.
    pub fn run(&self, ground: &Ground<'_>) -> Result<Adjusted, Missing> {
        let case = ground.supposed(&self.case);
        let Case { bench, system, layout, .. } = &case;
        let protocol = AnyProtocol::by_name(system.protocol, system.variant)?;
        if !protocol.needs().read_leases {
            return Err(Missing(format!("readers of {} have no leases", protocol.info().name)));
        }
        let config = self.config(&case, ground, &protocol)?;
        let mut driver = Driver::new(bench.make_ycsb()?, &config).map_err(RunError::from)?;
        driver.set_warmth(layout.warmth)?;
        driver.set_retry(system.retry);
        driver.load(&|_, _| {})?;
        let mut wrong = Vec::new();
        let still = (WARM_UP_MS, LOOKED_EVERY_MS * 0.9 - WARM_UP_MS);
        let changing = (LOOKED_EVERY_MS * LOOKS, CHANGING_MS);
        let mut per_s = Vec::new();
        for (warm_up_ms, ms) in [still, changing, still] {
            let length = Length {
                warm_up: virtual_ms(warm_up_ms),
                measured: virtual_ms(ms),
                transactions_max: u64::MAX,
                record: false,
            };
            let mut ran = driver
                .phase(length, &|now| ground.watch.running(system.name, now))
                .map_err(RunError::from)?;
            wrong.append(&mut ran.phase.failures);
            per_s.push(ran.phase.tally.committed as f64 / ran.phase.seconds);
        }
        let (invariants, audit) = driver.check()?;
        wrong.extend(invariants.iter().filter(|it| !it.ok).map(|it| it.detail.clone()));
        wrong.extend((!audit.is_clean()).then(|| audit.to_string()));
        let leases = LeaseReport::of(driver.cluster().database(), &config.cluster)
            .ok_or_else(|| Missing("nothing was adjusted".into()))?;
        let [before_per_s, during_per_s, after_per_s] = per_s[..] else {
            unreachable!("three phases");
        };
        let (must_be_sound, system) = ((ground.must_be_sound)(system), system.name);
        let bench = *bench;
        Ok(Adjusted {
            system,
            bench,
            before_per_s,
            during_per_s,
            after_per_s,
            leases,
            must_be_sound,
            wrong,
        })
    }

    fn config(
        &self,
        case: &Case,
        ground: &Ground<'_>,
        protocol: &AnyProtocol,
    ) -> Result<Config, Missing> {
        let Case { system, layout, coordinators, .. } = case;
        let testbed = ground.testbed;
        let coordinators = coordinators.first().copied().unwrap_or(1);
        let every_ns = virtual_ms(LOOKED_EVERY_MS).0;
        let cluster = ClusterConfig {
            protocol: system.protocol.into(),
            variant: system.variant.into(),
            memory_nodes: testbed.memory_nodes,
            replicas: testbed.replicas,
            compute_nodes: testbed.compute_nodes,
            seed: ground.seed,
            options: Options {
                placement: layout.placement,
                bucket: layout.bucket,
                slots_per_100_records: layout.slots_per_100_records,
                layout: layout.asked(),
                ..Options::default()
            },
            address_cache_entries: layout.address_cache_entries,
            read_lease_ns: system.read_lease_ns,
            read_lease_policy: Some(LeasePolicy::new(every_ns, self.bounds_ns)?),
            ..ClusterConfig::default()
        };
        Ok(Config {
            cluster,
            profile: testbed.profile.clone(),
            threads: testbed.threads(coordinators),
            coordinators,
            timestamps: Source::of(protocol, testbed.compute_nodes),
        })
    }
}
