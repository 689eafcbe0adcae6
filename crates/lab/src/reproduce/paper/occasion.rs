//! Runs the events under load that a page shows: crashes of compute nodes, and hotspots whose shards move to other
//! nodes.
//!
//! Invariant: a crashed machine is available again when its memory is registered and its queue pairs are connected.
//! The profile has the times for these two steps. The times for registering and connecting are assumed constants, and
//! the run adds no other waiting time.

use super::case::{Bench, Kind, Missing};
use super::runs::Ground;
use crate::bench::run::RunError;
use crate::outage::report::Outage;
use crate::outage::run::run;
use crate::outage::{Plan, Shape};
use crate::reproduce::stage::System;
use crate::simulate::hotspot::Hotspot;
use crate::simulate::hotspot::report::HotspotReport;
use crate::simulate::hotspot::run::{HotspotPlan, run as run_hotspot};
use crate::simulate::run::Plan as SimPlan;
use crate::simulate::stamps::Source;
use crate::simulate::{Config, virtual_ms};
use serde::Serialize;
use tarn::cluster::ClusterConfig;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::recovery::Pace;
use tarn_engine::services::shard_rule::Terms;
use tarn_engine::session::coordinator::Retry;
use tarn_workloads::Workload;
use tarn_workloads::smallbank::SmallBank;
use tarn_workloads::tatp::Tatp;

/// The plan of a run in which compute nodes crash.
#[derive(Clone, PartialEq, Debug)]
pub struct Crash {
    /// The benchmark that runs during the crash.
    pub bench: Bench,
    /// The system that runs the benchmark.
    pub system: System,
    /// The number of threads of each compute node.
    pub threads: usize,
    /// The number of coordinators of each thread.
    pub coroutines: usize,
    /// The number of compute nodes that crash.
    pub nodes: usize,
    /// The time of the crash, in virtual milliseconds.
    pub at_ms: f64,
    /// The length of the run after the crashed machines have joined again, in virtual milliseconds.
    pub after_ms: f64,
}

/// The result of a run in which compute nodes crash.
#[derive(Clone, Debug, Serialize)]
pub struct Crashed {
    /// The name of the system that ran.
    pub system: &'static str,
    /// Whether an incorrect memory counts as a failure.
    pub must_be_sound: bool,
    /// The measured cost of the crash.
    pub outage: Outage,
}

impl Crash {
    /// Runs the benchmark with the crash.
    ///
    /// # Errors
    /// The error states the reason for which the crash cannot run.
    pub fn run(&self, ground: &Ground<'_>) -> Result<Crashed, Missing> {
        let Crash { bench, system, threads, coroutines, nodes, at_ms, after_ms } = self.clone();
        let protocol = AnyProtocol::by_name(system.protocol, system.variant)?;
        let info = protocol.info();
        if !info.caps.crash_recovery {
            return Err(Missing(format!("{} does not recover from crashes yet", info.name)));
        }
        let profile = ground.testbed.profile.clone();
        let restart_ms = profile.cluster.reregister_ms.value + profile.cluster.reconnect_ms.value;
        let share = Pace::default();
        let shape = Shape {
            compute_nodes: ground.testbed.compute_nodes,
            memory_nodes: ground.testbed.memory_nodes,
            spare_nodes: 0,
            replicas: ground.testbed.replicas,
            threads,
            coroutines,
            virtual_ms: (at_ms + restart_ms + after_ms).ceil(),
            crash_at_ms: at_ms,
            crash_compute: nodes,
            crash_memory: 0,
            restart_ms,
            lease_ms: 0.0,
            sweep_share_percent: share.sweep_share.as_percent(),
            copy_share_percent: share.copy_share.as_percent(),
            interval_ms: INTERVAL_MS,
        };
        let protocol = (system.protocol.to_owned(), system.variant.to_owned());
        let plan = Plan { profile, protocol, shape, seed: ground.seed };
        let outage = run(bench.make::<SmallBank>()?, &plan, &|_| {})?;
        Ok(Crashed { system: system.name, must_be_sound: (ground.must_be_sound)(&system), outage })
    }
}

/// The length of the intervals in which transactions are counted, in milliseconds. The paper also counts transactions
/// per millisecond.
const INTERVAL_MS: f64 = 1.0;

/// The plan of a run with a hotspot whose shards all belong to one node at first. The number of hot shards equals the
/// number of nodes, so that each node can take one hot shard.
#[derive(Clone, PartialEq, Debug)]
pub struct Heating {
    /// The benchmark that runs with the hotspot: SmallBank or TATP.
    pub bench: Bench,
    /// The system that runs the benchmark.
    pub system: System,
    /// The number of threads of each compute node.
    pub threads: usize,
    /// The number of coordinators of each thread.
    pub coroutines: usize,
}

/// The result of a run with a hotspot.
#[derive(Clone, Debug, Serialize)]
pub struct Heated {
    /// The name of the system that ran.
    pub system: &'static str,
    /// Whether an incorrect memory or history counts as a failure.
    pub must_be_sound: bool,
    /// The measured cost of the hotspot.
    pub hotspot: HotspotReport,
}

/// The interval at which nodes decide about moves of shards, in milliseconds. The interval between decisions is
/// shorter than the published interval, so that shards move within a few milliseconds. The interval only determines
/// when shards move, and not how long a move interrupts a shard.
const LOOKED_EVERY_MS: f64 = 0.5;
const HOT_MS: f64 = 15.0;
const HOT_SHARE_PERCENT: u32 = 60;
const RECORDED_MS: f64 = 2.0;
/// The number of clients for each coordinator: with this number, transactions wait in a queue at an overloaded node.
const CLIENTS: usize = 4;

impl Heating {
    /// Runs the benchmark with the hotspot.
    ///
    /// # Errors
    /// The error states the reason for which the hotspot cannot run.
    pub fn run(&self, ground: &Ground<'_>) -> Result<Heated, Missing> {
        let protocol = AnyProtocol::by_name(self.system.protocol, self.system.variant)?;
        if !protocol.needs().locks {
            return Err(Missing(format!("locks of {} have no shards", protocol.info().name)));
        }
        let plan = self.plan(ground, &protocol);
        let hotspot = match self.bench.kind {
            Kind::Tatp => self.on::<Tatp>(&plan)?,
            Kind::SmallBank => self.on::<SmallBank>(&plan)?,
            Kind::Kvs | Kind::Tpcc | Kind::Ycsb | Kind::TaoBench => {
                return Err(Missing("its shards are too few, or have no field".into()));
            }
        };
        let must_be_sound = (ground.must_be_sound)(&self.system);
        Ok(Heated { system: self.system.name, must_be_sound, hotspot })
    }

    fn on<W: Workload>(&self, plan: &HotspotPlan) -> Result<HotspotReport, Missing> {
        let make = || self.bench.make::<W>().map_err(RunError::from);
        Ok(run_hotspot(make, plan, &|_| {})?)
    }

    fn plan(&self, ground: &Ground<'_>, protocol: &AnyProtocol) -> HotspotPlan {
        let (testbed, system) = (ground.testbed, &self.system);
        let nodes = testbed.compute_nodes;
        let cluster = ClusterConfig {
            protocol: system.protocol.into(),
            variant: system.variant.into(),
            memory_nodes: testbed.memory_nodes,
            replicas: testbed.replicas,
            compute_nodes: nodes,
            seed: ground.seed,
            ..ClusterConfig::default()
        };
        let coordinators = nodes * self.threads * self.coroutines;
        let config = Config {
            cluster,
            profile: testbed.profile.clone(),
            threads: self.threads,
            coordinators,
            timestamps: Source::of(protocol, nodes),
        };
        let plan = SimPlan {
            config,
            virtual_ms: HOT_MS,
            verify_ms: None,
            verify_transactions_max: 0,
            history: None,
            routed: true,
            warmth: None,
            retry: Retry::PATIENT,
        };
        let hotspot = Hotspot {
            share_percent: HOT_SHARE_PERCENT,
            shards: nodes as u32,
            stride: nodes as u32,
            nodes: nodes as u32,
            every: virtual_ms(HOT_MS),
        };
        let terms = Terms { interval: virtual_ms(LOOKED_EVERY_MS), ..Terms::default() };
        let recorded = virtual_ms(RECORDED_MS);
        HotspotPlan { plan, hotspot, terms, clients: CLIENTS * coordinators, recorded }
    }
}
