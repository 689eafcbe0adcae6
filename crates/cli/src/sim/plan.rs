//! Turns the flags of `tarn sim` into a plan.
//!
//! Invariant: the plan refuses every number that is not allowed. The error contains the name of the flag, its value
//! and the allowed range.

use super::Settings;
use super::settings::{Caches, OnAbort};
use crate::bench::{cluster, within};
use crate::scenario;
use crate::scenario::Routing;
use std::path::PathBuf;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::session::coordinator::Retry;
use tarn_lab::simulate::run::Plan;
use tarn_lab::simulate::stamps::Source;
use tarn_lab::simulate::warmth::Warmth;
use tarn_lab::simulate::{COORDINATORS_MAX, COROUTINES_MAX, Config};
use tarn_sim::profile::Profile;
use tarn_store::ids::{SLOTS_MAX, THREADS_MAX, UsageError};

const VIRTUAL_MS_MAX: f64 = 60_000.0;
const VERIFY_MS_MAX: f64 = 1_000.0;
const VERIFY_MS_DEFAULT_MAX: f64 = 5.0;
const VERIFIED_MAX: u64 = 100_000;
/// The default number of coordinators of a thread, and the default number of threads of a node.
const COROUTINES: u64 = 4;
const THREADS: u64 = 4;

/// The verification phase that the user requests.
#[derive(Clone, Debug, Default)]
pub struct Verify {
    /// The length of the verification phase, in virtual milliseconds.
    pub ms: Option<f64>,
    /// Whether the run has no verification phase.
    pub is_left_out: bool,
    /// The file for the history of the verification phase.
    pub history: Option<PathBuf>,
}

impl Verify {
    /// Creates the request for no verification phase.
    pub fn none() -> Verify {
        Verify { is_left_out: true, ..Verify::default() }
    }
}

/// Creates the plan of a run.
pub fn plan(settings: &Settings, verify: &Verify, profile: Profile) -> Result<Plan, UsageError> {
    let virtual_ms = ms("virtual-ms", settings.virtual_ms.unwrap_or(10.0), VIRTUAL_MS_MAX)?;
    let verify_ms = match (verify.is_left_out, verify.ms) {
        (true, _) => None,
        (false, Some(asked)) => Some(ms("verify-ms", asked, VERIFY_MS_MAX)?),
        (false, None) => Some((virtual_ms / 5.0).min(VERIFY_MS_DEFAULT_MAX)),
    };
    let config = config(settings, profile)?;
    let routed = settings.routing == Some(Routing::ByShard);
    let cluster = &config.cluster;
    if routed && !AnyProtocol::by_name(&cluster.protocol, &cluster.variant)?.needs().locks {
        return Err(UsageError {
            field: "routing".into(),
            value: "by-shard".into(),
            allowed: format!("none, because the locks of {} have no shards", cluster.protocol),
        });
    }
    Ok(Plan {
        config,
        routed,
        warmth: (settings.caches == Some(Caches::Warm)).then_some(Warmth::ALL),
        retry: retry(settings.on_abort),
        virtual_ms,
        verify_ms,
        verify_transactions_max: VERIFIED_MAX,
        history: verify.history.clone(),
    })
}

/// Returns the rule by which transactions are retried.
fn retry(on_abort: Option<OnAbort>) -> Retry {
    match on_abort {
        Some(OnAbort::Drop) => Retry { tries_max: 1, ..Retry::PATIENT },
        Some(OnAbort::Retry) | None => Retry::PATIENT,
    }
}

fn config(settings: &Settings, profile: Profile) -> Result<Config, UsageError> {
    let mut cluster = cluster(&scenario::Settings {
        protocol: settings.protocol.clone(),
        variant: settings.variant.clone(),
        memory_nodes: settings.memory_nodes,
        replicas: settings.replicas,
        placement: settings.placement,
        address_cache: settings.address_cache,
        version_cache: settings.version_cache,
        read_lease_ns: settings.read_lease_ns,
        read_lease_adjust_ns: settings.read_lease_adjust_ns,
        read_lease_least_ns: settings.read_lease_least_ns,
        read_lease_most_ns: settings.read_lease_most_ns,
        seed: settings.seed,
        ..scenario::Settings::default()
    })?;
    settings.layout.shape(&mut cluster.options)?;
    let nodes = within("compute-nodes", settings.compute_nodes, 1..=SLOTS_MAX as u64)?;
    let nodes = nodes.unwrap_or(1);
    let threads = within("threads", settings.threads, 1..=THREADS_MAX as u64)?;
    let coordinators = coordinators(settings.coordinators, nodes, threads)?;
    let threads = threads.unwrap_or_else(|| match coordinators {
        None => THREADS,
        Some(all) => all.div_ceil(nodes).div_ceil(COROUTINES).clamp(1, THREADS_MAX as u64),
    });
    let coordinators = match coordinators {
        Some(coordinators) => coordinators,
        None => (nodes * threads * COROUTINES).min(COORDINATORS_MAX),
    };
    cluster.compute_nodes = nodes as usize;
    let protocol = AnyProtocol::by_name(&cluster.protocol, &cluster.variant)?;
    let timestamps = match settings.timestamps {
        Some(asked) if !protocol.needs().timestamps => {
            return Err(UsageError {
                field: "timestamps".into(),
                value: format!(
                    "{}, with the protocol {}",
                    Source::from(asked).name(),
                    cluster.protocol
                ),
                allowed: "only with a protocol that takes timestamps".into(),
            });
        }
        Some(asked) => asked.into(),
        None => Source::of(&protocol, cluster.compute_nodes),
    };
    let (threads, coordinators) = (threads as usize, coordinators as usize);
    Ok(Config { cluster, profile, threads, coordinators, timestamps })
}

/// Checks the number of coordinators. Every thread must have at least one coordinator, and no thread may have more
/// coordinators than it can keep.
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
    // A time of less than a microsecond is too short.
    match (0.001..=most).contains(&value) {
        true => Ok(value),
        false => Err(UsageError {
            field: field.into(),
            value: value.to_string(),
            allowed: format!("0.001 to {most}"),
        }),
    }
}
