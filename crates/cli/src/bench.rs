//! The command `tarn bench` turns settings into a plan, runs the plan, and turns its report into an exit code.
//!
//! Invariant: the command refuses wrong settings before it lays out memory.

use super::own_input::refuse_own_input;
use super::scenario::{
    Coroutines, Expect, Lines, LockTransport, Memory, Placement, Routing, Settings,
};
use super::verdict::{self, Expected};
use super::{Stop, Verdict, progress::Progress};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use tarn::cluster::{ClusterConfig, VERSION_CACHE_MAX};
use tarn_engine::cluster::lease::{LEASE_NS_MAX, LeasePolicy};
use tarn_engine::protocol::AnyProtocol;
use tarn_fabric::address::GROUPS_MAX;
use tarn_fabric::local::{Backing, LineAtomicity};
use tarn_lab::bench::report::Report;
use tarn_lab::bench::run::Plan;
use tarn_lab::bench::{Config, coroutines_for};
use tarn_lab::chosen::Chosen;
use tarn_store::ids::{SLOTS_MAX, THREADS_MAX, UsageError};
use tarn_store::placement::catalog;

const RECORDS_MAX: u64 = 1 << 36;
const COROUTINES_MAX: u64 = 1024;
const VERSION_CACHE: RangeInclusive<u64> = 0..=VERSION_CACHE_MAX as u64;
const SECONDS_MAX: f64 = 86_400.0;
const VERIFY_SECONDS_MAX: f64 = 60.0;
const VERIFIED_PER_SECOND: f64 = 200_000.0;

/// Runs a workload on an embedded cluster. The command loads the database and runs a verification phase. The command
/// checks the history of this phase for strict serializability or the isolation level of the variant. Then the
/// command runs the measured phase and checks the memory.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// TOML file with settings for flags that are not given; the keys of the file are the names of these flags
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  tarn bench smallbank
  tarn bench smallbank --mix-profile crest --threads 2 --seconds 10
  tarn bench kvs --mix-profile wo --memory-nodes 3 --replicas 3
  tarn bench ycsb --mix-profile f --variant corrected,-validate-reads
  tarn bench --scenario scenarios/smallbank-zipf.toml --seed 7 --json";

/// Runs the command `tarn bench`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let mut settings = arguments.settings.clone();
    if let Some(path) = &arguments.scenario {
        settings = settings.over(Settings::read(path)?);
    }
    let scenario = ("--scenario", arguments.scenario.as_deref());
    refuse_own_input(("--history", settings.history.as_deref()), &[scenario])?;
    let Some(workload) = settings.workload.clone() else {
        let allowed = tarn_workloads::NAMES.join(", ");
        return Err(Stop::Input(format!("WORKLOAD = nothing; allowed: {allowed}")));
    };
    let kinds = settings.expected_kinds()?;
    let report = measure(&workload, &settings)?;
    verdict::print(&report, arguments.json)?;
    Ok(verdict::judge(
        &report.checks,
        match settings.expect {
            None | Some(Expect::Clean) => Expected::Clean,
            Some(Expect::Violation) => Expected::Violation(&kinds),
        },
    ))
}

fn measure(workload: &str, settings: &Settings) -> Result<Report, Stop> {
    let Settings { mix_profile, records, zipf, .. } = settings;
    let workload = chosen(workload, (mix_profile.as_ref(), *records, *zipf))?;
    let plan = plan(settings, workload.lines_per_transaction())?;
    Ok(workload.bench(&plan, &Progress::new())?)
}

/// Returns the workload of this name with its settings: the profile of the mix, the number of records, the skew.
pub(super) fn chosen(
    name: &str,
    (profile, records, zipf): (Option<&String>, Option<u64>, Option<f64>),
) -> Result<Chosen, UsageError> {
    if !tarn_workloads::NAMES.contains(&name) {
        return Err(tarn_workloads::unknown_workload(name));
    }
    within("records", records, 1..=RECORDS_MAX)?;
    Chosen::new(name, tarn_workloads::Settings { profile: profile.cloned(), records, zipf })
}

fn plan(settings: &Settings, lines_per_transaction: usize) -> Result<Plan, UsageError> {
    let threads = within("threads", settings.threads, 1..=SLOTS_MAX as u64)?.unwrap_or(1);
    let per_node_max = threads.min(THREADS_MAX as u64);
    let threads_per_node =
        within("threads-per-node", settings.threads_per_node, 1..=per_node_max)?.unwrap_or(1);
    let coroutines = match settings.coroutines.unwrap_or(Coroutines::Auto) {
        Coroutines::Auto => coroutines_for(lines_per_transaction) as u64,
        Coroutines::Count(count) => {
            within("coroutines", Some(count), 1..=COROUTINES_MAX)?.unwrap_or(count)
        }
    };
    let seconds = seconds("seconds", settings.seconds.unwrap_or(5.0), SECONDS_MAX)?;
    let verify = match settings.no_verify {
        true => None,
        false => {
            let asked = settings.verify_seconds.unwrap_or(1.0);
            Some(self::seconds("verify-seconds", asked, VERIFY_SECONDS_MAX)?)
        }
    };
    let cluster = cluster(settings)?;
    let routed = settings.routing == Some(Routing::ByShard);
    check_shards(&cluster, routed, (threads, threads_per_node))?;
    let config = Config {
        cluster,
        routed,
        threads: threads as usize,
        threads_per_node: threads_per_node as usize,
        coroutines: coroutines as usize,
        pin: !settings.no_pin && threads as usize <= tarn_lab::machine::processors(),
    };
    let verified = verify.unwrap_or_default().as_secs_f64() * VERIFIED_PER_SECOND;
    Ok(Plan {
        config,
        measured: seconds,
        verify,
        verify_transactions_max: verified.ceil() as u64,
        history: settings.history.clone(),
    })
}

/// Refuses routing without shards, and shards on nodes with different numbers of threads. A thread requests a lock
/// from the thread of the other node that has the same number. So all nodes must have the same number of threads.
fn check_shards(
    cluster: &ClusterConfig,
    routed: bool,
    (threads, threads_per_node): (u64, u64),
) -> Result<(), UsageError> {
    let has_shards = AnyProtocol::by_name(&cluster.protocol, &cluster.variant)?.needs().locks;
    let refuse = |field: &str, value: String, allowed: String| {
        Err(UsageError { field: field.into(), value, allowed })
    };
    if routed && !has_shards {
        let allowed = format!("none, because the locks of {} have no shards", cluster.protocol);
        return refuse("routing", "by-shard".into(), allowed);
    }
    if has_shards && !threads.is_multiple_of(threads_per_node) {
        let allowed = format!(
            "a multiple of --threads-per-node {threads_per_node} with {}, because a thread asks \
             the thread with its own number on another node",
            cluster.protocol
        );
        return refuse("threads", threads.to_string(), allowed);
    }
    Ok(())
}

/// Returns the configuration of the cluster that these settings request, without its compute nodes.
pub(super) fn cluster(settings: &Settings) -> Result<ClusterConfig, UsageError> {
    let (protocol, variant) = (settings.protocol.as_deref(), settings.variant.as_deref());
    let (protocol, variant) = (protocol.unwrap_or("ford"), variant.unwrap_or("corrected"));
    AnyProtocol::by_name(protocol, variant)?;
    let memory_nodes = within("memory-nodes", settings.memory_nodes, 1..=GROUPS_MAX as u64)?;
    let copies_max = memory_nodes.unwrap_or(GROUPS_MAX as u64);
    let replicas = within("replicas", settings.replicas, 1..=copies_max)?.unwrap_or(1);
    // Each copy needs a memory node of its own, so `replicas` is the default.
    let memory_nodes = memory_nodes.unwrap_or(replicas);
    let mut config = ClusterConfig {
        prefetch: !settings.no_prefetch,
        protocol: protocol.to_owned(),
        variant: variant.to_owned(),
        memory_nodes: memory_nodes as usize,
        replicas: replicas as usize,
        seed: settings.seed.unwrap_or(1),
        // Once the layout is known, the available memory limits the number of cached addresses.
        address_cache_entries: settings.address_cache.unwrap_or(0) as usize,
        ..ClusterConfig::default()
    };
    if let Some(entries) = within("version-cache", settings.version_cache, VERSION_CACHE)? {
        if !AnyProtocol::by_name(protocol, variant)?.needs().locks {
            return Err(UsageError {
                field: "version-cache".into(),
                value: format!("{entries}, with the protocol {protocol}"),
                allowed: "only with a protocol whose locks are in compute nodes".into(),
            });
        }
        config.version_cache_entries = entries as usize;
    }
    if let Some(ns) = within("read-lease-ns", settings.read_lease_ns, 0..=u64::from(LEASE_NS_MAX))?
    {
        if !AnyProtocol::by_name(protocol, variant)?.needs().read_leases {
            return Err(UsageError {
                field: "read-lease-ns".into(),
                value: format!("{ns}, with the protocol {protocol} ({variant})"),
                allowed: "only with a protocol whose readers have leases".into(),
            });
        }
        config.read_lease_ns = ns as u32;
    }
    config.read_lease_policy =
        read_lease_policy(settings, &AnyProtocol::by_name(protocol, variant)?)?;
    if let Some(asks) = settings.lock_transport {
        if !AnyProtocol::by_name(protocol, variant)?.needs().locks {
            return Err(UsageError {
                field: "lock-transport".into(),
                value: format!("{asks:?}, with the protocol {protocol}").to_lowercase(),
                allowed: "only with a protocol whose locks are in compute nodes".into(),
            });
        }
        config.lock_messages = asks == LockTransport::Messages;
    }
    config.options.placement = match settings.placement.unwrap_or(Placement::Hash) {
        Placement::Hash => catalog::Placement::Hash,
        Placement::Table => catalog::Placement::Table,
    };
    config.backing = match settings.memory.unwrap_or(Memory::Auto) {
        Memory::Auto => Backing::Auto,
        Memory::Shared => Backing::Shared,
        Memory::Private => Backing::Private,
    };
    if settings.line_atomicity == Some(Lines::PlantedTorn) {
        config.atomicity = LineAtomicity::PlantedTorn;
    }
    Ok(config)
}

/// Returns the policy that adjusts the lease length, if the settings request adjustment.
fn read_lease_policy(
    settings: &Settings,
    protocol: &AnyProtocol,
) -> Result<Option<LeasePolicy>, UsageError> {
    let (least, most) = (settings.read_lease_least_ns, settings.read_lease_most_ns);
    let Some(every_ns) = settings.read_lease_adjust_ns else {
        let bounds = [("read-lease-least-ns", least), ("read-lease-most-ns", most)];
        let given = bounds.into_iter().find_map(|(field, ns)| ns.map(|ns| (field, ns)));
        return given.map_or(Ok(None), |(field, ns)| {
            let allowed = "only with --read-lease-adjust-ns, because no manager adjusts leases \
                           without it"
                .into();
            Err(UsageError { field: field.into(), value: ns.to_string(), allowed })
        });
    };
    if !protocol.needs().read_leases {
        return Err(UsageError {
            field: "read-lease-adjust-ns".into(),
            value: format!("{every_ns}, with the protocol {}", protocol.info().name),
            allowed: "only with a protocol whose readers have leases".into(),
        });
    }
    let lengths = 1..=u64::from(LEASE_NS_MAX);
    let least = within("read-lease-least-ns", least, lengths.clone())?.unwrap_or(1);
    let most = within("read-lease-most-ns", most, lengths)?.unwrap_or(LEASE_NS_MAX.into());
    LeasePolicy::new(every_ns, (least as u32, most as u32)).map(Some)
}

/// Returns `value`, if the value is in the allowed range.
pub(super) fn within(
    field: &str,
    value: Option<u64>,
    allowed: RangeInclusive<u64>,
) -> Result<Option<u64>, UsageError> {
    match value {
        Some(value) if !allowed.contains(&value) => {
            let limit = match field {
                "replicas" => " (the number of memory nodes)",
                "threads-per-node" => " (the number of threads, at most 128)",
                _ => "",
            };
            let allowed = format!("{} to {}{limit}", allowed.start(), allowed.end());
            Err(UsageError { field: field.into(), value: value.to_string(), allowed })
        }
        value => Ok(value),
    }
}

fn seconds(field: &str, value: f64, most: f64) -> Result<Duration, UsageError> {
    let allowed = || format!("more than 0, up to {most}");
    let refuse =
        || UsageError { field: field.into(), value: value.to_string(), allowed: allowed() };
    match value > 0.0 && value <= most {
        true => Duration::try_from_secs_f64(value).map_err(|_| refuse()),
        false => Err(refuse()),
    }
}
