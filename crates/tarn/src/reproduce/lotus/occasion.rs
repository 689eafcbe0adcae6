//! Crashes under load that a page shows.
//!
//! Invariant: a machine that crashed is there again when its memory is registered and its queue pairs are
//! connected, after what the profile says of that; both constants are assumed, and no other time is waited.

use super::case::{Bench, Missing};
use super::entrant::must_be_sound;
use super::runs::Ground;
use crate::outage::report::Outage;
use crate::outage::run::run;
use crate::outage::{Plan, Shape};
use crate::reproduce::stage::System;
use serde::Serialize;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::recovery::Pace;
use tarn_workloads::smallbank::SmallBank;

/// What crashes, and when.
#[derive(Clone, PartialEq, Debug)]
pub struct Crash {
    /// What runs.
    pub bench: Bench,
    /// Who.
    pub system: System,
    /// Threads of each compute node.
    pub threads: usize,
    /// Coordinators of each thread.
    pub coroutines: usize,
    /// Compute nodes that crash.
    pub nodes: usize,
    /// When, in virtual milliseconds.
    pub at_ms: f64,
    /// Watched for so long after the machines are back.
    pub after_ms: f64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Crashed {
    /// Whose.
    pub system: &'static str,
    /// Whether a memory that is not sound is a failure.
    pub must_be_sound: bool,
    /// What it cost.
    pub outage: Outage,
}

impl Crash {
    /// Lets it happen.
    ///
    /// # Errors
    /// Why it cannot.
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
        Ok(Crashed { system: system.name, must_be_sound: must_be_sound(&system), outage })
    }
}

/// The paper counts by the millisecond.
const INTERVAL_MS: f64 = 1.0;
