//! Readers' leases that are adjusted while transactions run: throughput before, while, and after.
//!
//! Invariant: three phases of one database, whose only difference is the lease. The manager looks first when a phase is so old as it looks
//! often, which is only a beginning, and changes the length at its second look: so the first phase ends before either, the second
//! is counted around the second, and the last has the length that was chosen.

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

/// A lease that is adjusted.
#[derive(Clone, PartialEq, Debug)]
pub struct Adjusting {
    /// The system on YCSB, with the lease that it begins with; its first number of coordinators counts.
    pub case: Case,
    /// The shortest lease and the longest that may be chosen.
    pub bounds_ns: (u32, u32),
}

/// The outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Adjusted {
    /// The system's name.
    pub system: &'static str,
    /// The benchmark.
    pub bench: Bench,
    /// Committed transactions a second with the lease that it began with.
    pub before_per_s: f64,
    /// While the length changes, in a window of 0.1 virtual milliseconds.
    pub during_per_s: f64,
    /// With the length that was chosen.
    pub after_per_s: f64,
    /// The leases: lengths, times to adjust.
    pub leases: LeaseReport,
    /// Whether a memory that is not sound is a failure.
    pub must_be_sound: bool,
    /// Faults of the memory afterwards, or of transactions.
    pub wrong: Vec<String>,
}

/// Shorter than published, which is once a second: it decides when a length changes, and neither which is chosen nor how long that takes.
const LOOKED_EVERY_MS: f64 = 1.0;
/// Looks that it takes until the length changes.
const LOOKS: f64 = 2.0;
/// Virtual milliseconds of transactions that are counted while the length changes: some times the time of a change.
const CHANGING_MS: f64 = 0.1;
/// Of a phase that ends before the manager has looked, the part that is not counted.
const WARM_UP_MS: f64 = 0.2;

impl Adjusted {
    /// The chosen length, and the throughput before, while, and after; nothing, if no length was chosen.
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
    /// Lets it happen.
    ///
    /// # Errors
    /// Why it cannot.
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
