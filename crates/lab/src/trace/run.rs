//! Makes a trace in four steps: it opens the database, loads it, runs it with a recorder, and names the places that
//! verbs accessed.
//!
//! Invariant: the run has the same phases and the same random draws as the run of `tarn sim --no-verify`.

use super::recorder::Recorder;
use super::{Shape, Trace, Wanted, places};
use crate::harness::error::RunError;
use crate::harness::watch::Watch;
use crate::simulate::driver::Length;
use crate::simulate::run::{Plan, measured_length};
use std::time::Instant;
use tarn_store::ids::UsageError;
use tarn_workloads::Workload;

/// Runs the measured phase of `plan` without a verification phase, and keeps the wanted transactions.
///
/// # Errors
/// Fails if the configuration cannot be used, if a step of the run fails, or if a transaction fails.
#[expect(clippy::disallowed_methods, reason = "says how long loading took")]
pub fn run<W: Workload>(
    workload: W,
    plan: &Plan,
    wanted: &Wanted,
    watch: &dyn Watch,
) -> Result<Trace, RunError> {
    if let Some(name) = &wanted.procedure
        && !W::TRANSACTIONS.contains(&name.as_str())
    {
        let allowed = W::TRANSACTIONS.join(", ");
        return Err(UsageError { field: "procedure".into(), value: name.clone(), allowed }.into());
    }
    let mut driver = plan.driver(workload)?;
    let start = Instant::now();
    let records = driver.load(&|done, all| watch.loading(done, all))?;
    watch.loaded(records, start.elapsed().as_secs_f64());

    let phases = driver.cluster().database().protocol.info().phases;
    let recorder = Recorder::new(wanted, W::TRANSACTIONS, phases);
    let length: Length = measured_length(plan);
    let told = |now| watch.running("measured phase", now);
    let ended = driver.phase_seen(length, &told, Some(&recorder))?;
    if let Some(failure) = ended.phase.failures.first() {
        return Err(RunError::Failed(failure.clone()));
    }
    let digest = format!("{:016x}", driver.cluster().fabric().digest());
    let (of, mut transactions) = recorder.take();
    places::name_all(&*driver.context_at_rest()?, &mut transactions);
    let shape = &plan.config.cluster;
    Ok(Trace {
        workload: W::NAME.to_owned(),
        protocol: shape.protocol.clone(),
        variant: shape.variant.clone(),
        profile: match plan.config.profile.changes.is_empty() {
            true => plan.config.profile.name.clone(),
            false => format!("{} (modified)", plan.config.profile.name),
        },
        seed: shape.seed,
        cluster: Shape {
            compute_nodes: shape.compute_nodes,
            coordinators: plan.config.coordinators,
            memory_nodes: shape.memory_nodes,
            replicas: shape.replicas,
        },
        pick: wanted.pick.name(),
        of,
        digest,
        transactions,
    })
}
