//! From the flags of `tarn sim` to what is run.
//!
//! Invariant: every number that is not allowed is refused by its flag's name, with its value and what
//! is allowed.

use super::Arguments;
use crate::cli::bench::{cluster, within};
use crate::cli::scenario::Settings;
use tarn::simulate::run::Plan;
use tarn::simulate::{COORDINATORS_MAX, COROUTINES_MAX, Config};
use tarn_engine::outcome::UsageError;
use tarn_engine::owner::{SLOTS_MAX, THREADS_MAX};
use tarn_sim::profile::Profile;

const VIRTUAL_MS_MAX: f64 = 60_000.0;
const VERIFY_MS_MAX: f64 = 1_000.0;
const VERIFY_MS_DEFAULT_MAX: f64 = 5.0;
const VERIFIED_MAX: u64 = 100_000;
/// Coordinators of a thread and threads of a node, unless somebody says otherwise.
const COROUTINES: u64 = 4;
const THREADS: u64 = 4;

/// What to run.
pub fn plan(arguments: &Arguments, profile: Profile) -> Result<Plan, UsageError> {
    let virtual_ms = ms("virtual-ms", arguments.virtual_ms.unwrap_or(10.0), VIRTUAL_MS_MAX)?;
    let verify_ms = match (arguments.no_verify, arguments.verify_ms) {
        (true, _) => None,
        (false, Some(asked)) => Some(ms("verify-ms", asked, VERIFY_MS_MAX)?),
        (false, None) => Some((virtual_ms / 5.0).min(VERIFY_MS_DEFAULT_MAX)),
    };
    Ok(Plan {
        config: config(arguments, profile)?,
        virtual_ms,
        verify_ms,
        verify_transactions_max: VERIFIED_MAX,
        history: arguments.history.clone(),
    })
}

fn config(arguments: &Arguments, profile: Profile) -> Result<Config, UsageError> {
    let mut cluster = cluster(&Settings {
        protocol: arguments.protocol.clone(),
        variant: arguments.variant.clone(),
        memory_nodes: arguments.memory_nodes,
        replicas: arguments.replicas,
        placement: arguments.placement,
        address_cache: arguments.address_cache,
        seed: arguments.seed,
        ..Settings::default()
    })?;
    arguments.layout.shape(&mut cluster.options)?;
    let nodes = within("compute-nodes", arguments.compute_nodes, 1..=SLOTS_MAX as u64)?;
    let nodes = nodes.unwrap_or(1);
    let threads = within("threads", arguments.threads, 1..=THREADS_MAX as u64)?;
    let coordinators = coordinators(arguments.coordinators, nodes, threads)?;
    let threads = threads.unwrap_or_else(|| match coordinators {
        None => THREADS,
        Some(all) => all.div_ceil(nodes).div_ceil(COROUTINES).clamp(1, THREADS_MAX as u64),
    });
    let coordinators = match coordinators {
        Some(coordinators) => coordinators,
        None => (nodes * threads * COROUTINES).min(COORDINATORS_MAX),
    };
    cluster.compute_nodes = nodes as usize;
    Ok(Config { cluster, profile, threads: threads as usize, coordinators: coordinators as usize })
}

/// Every thread has a coordinator, and none more than it can keep in mind.
fn coordinators(
    asked: Option<u64>,
    nodes: u64,
    threads: Option<u64>,
) -> Result<Option<u64>, UsageError> {
    let Some(coordinators) = asked else { return Ok(None) };
    let least = nodes * threads.unwrap_or(1);
    let most = nodes * threads.unwrap_or(THREADS_MAX as u64) * COROUTINES_MAX;
    let most = most.min(COORDINATORS_MAX);
    if (least..=most).contains(&coordinators) {
        return Ok(asked);
    }
    let threads = match threads {
        Some(threads) => format!("{threads} threads"),
        None => format!("at most {THREADS_MAX} threads"),
    };
    Err(UsageError {
        field: "coordinators".into(),
        value: coordinators.to_string(),
        allowed: format!(
            "{least} to {most} ({nodes} compute nodes of {threads}, with 1 to {COROUTINES_MAX} \
             coordinators each)"
        ),
    })
}

fn ms(field: &str, value: f64, most: f64) -> Result<f64, UsageError> {
    // Shorter than a microsecond is nothing.
    match (0.001..=most).contains(&value) {
        true => Ok(value),
        false => Err(UsageError {
            field: field.into(),
            value: value.to_string(),
            allowed: format!("0.001 to {most}"),
        }),
    }
}
