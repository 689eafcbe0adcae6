//! The settings of a run. Each setting is a flag of `tarn bench` and also a key of a scenario file.
//!
//! Invariant: one structure defines the flags and the keys, so they cannot differ. A flag on the command line
//! overrides the scenario's value. An unknown key is an error.

use super::Stop;
use clap::ValueEnum;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tarn_lab::bench::checks::CheckKind;
use tarn_net::config::place_in;
use tarn_store::ids::UsageError;

/// The flags and keys; `None` means the default.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Settings {
    /// The workload to run: kvs, smallbank, taobench, tatp, tpcc, ycsb
    #[arg(value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// Protocol [default: ford]
    #[arg(long, value_name = "NAME")]
    pub protocol: Option<String>,
    /// Variant: corrected, literal or measured, then ,-SWITCH or ,+SWITCH of the switches that `tarn rules` lists
    /// [default: corrected]
    #[arg(long, value_name = "VARIANT", allow_hyphen_values = true)]
    pub variant: Option<String>,
    /// Number of coordinator threads of all nodes together [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub threads: Option<u64>,
    /// Number of coordinator threads of one compute node [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub threads_per_node: Option<u64>,
    /// Number of transactions that one thread runs concurrently, or auto [default: auto]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub coroutines: Option<Coroutines>,
    /// Let the operating system move threads between cores; by default each thread keeps to one core while there are
    /// enough cores
    #[arg(long)]
    pub no_pin: bool,
    /// Do not prefetch a round's cache lines; shows the gain of prefetching
    #[arg(long)]
    pub no_prefetch: bool,
    /// Compute node that runs a transaction, under a protocol whose locks have shards: by-shard selects the owner of
    /// its first record's shard; none selects the node that draws the transaction [default: none]
    #[arg(long, value_name = "HOW")]
    pub routing: Option<Routing>,
    /// Length of the measured phase in seconds [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = number, allow_negative_numbers = true)]
    pub seconds: Option<f64>,
    /// Number of memory nodes [default: as many as replicas]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub memory_nodes: Option<u64>,
    /// Number of copies of every record [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub replicas: Option<u64>,
    /// Selection of a record's memory node: by its key's hash, or by its table [default: hash]
    #[arg(long, value_name = "HOW")]
    pub placement: Option<Placement>,
    /// The profile of the workload: its own definition or a paper's variant [default: its first profile]
    #[arg(long, value_name = "NAME")]
    pub mix_profile: Option<String>,
    /// Number of records, accounts, subscribers or warehouses [default: the number in the profile]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub records: Option<u64>,
    /// Zipf exponent of the keys, 0 for uniform [default: the exponent in the profile]
    #[arg(long, value_name = "THETA", value_parser = number, allow_negative_numbers = true)]
    pub zipf: Option<f64>,
    /// Seed of every random generator [default: 1]
    #[arg(long, value_name = "SEED", value_parser = whole, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Write the verification phase's history to this file
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Length in seconds of the verification phase, whose history is recorded and checked; the phase ends earlier
    /// after 200,000 transactions for each second [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = number, allow_negative_numbers = true)]
    pub verify_seconds: Option<f64>,
    /// Run no verification phase
    #[arg(long, conflicts_with = "verify_seconds")]
    pub no_verify: bool,
    /// Number of addresses that each thread caches, so that an update can lock in its first round [default: 0]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub address_cache: Option<u64>,
    /// Number of version tables that each compute node caches, of records whose locks it grants [default: 0, since
    /// memory is near]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub version_cache: Option<u64>,
    /// Length of a lease in nanoseconds: readers trust their reads for this time and writers wait for it, under a
    /// protocol with such leases [default: 0, none]
    #[arg(long, value_name = "NS", value_parser = whole, allow_negative_numbers = true)]
    pub read_lease_ns: Option<u64>,
    /// Interval in nanoseconds at which a manager checks whether the lease is long enough for 80 of 100 read-only
    /// transactions, and otherwise changes the length [default: never]
    #[arg(long, value_name = "NS", value_parser = whole, allow_negative_numbers = true)]
    pub read_lease_adjust_ns: Option<u64>,
    /// The shortest lease that the manager requests [default: 1]
    #[arg(long, value_name = "NS", value_parser = whole, allow_negative_numbers = true)]
    pub read_lease_least_ns: Option<u64>,
    /// The longest lease that the manager requests [default: 16777215]
    #[arg(long, value_name = "NS", value_parser = whole, allow_negative_numbers = true)]
    pub read_lease_most_ns: Option<u64>,
    /// How compute nodes request locks from each other, under a protocol whose locks have shards: by calls within the
    /// process, or by messages as between processes [default: calls]
    #[arg(long, value_name = "HOW")]
    pub lock_transport: Option<LockTransport>,
    /// Kind of memory: another process can map shared memory, but not private memory [default: auto]
    #[arg(long, value_name = "KIND")]
    pub memory: Option<Memory>,
    /// How lines are kept atomic; planted-torn breaks the atomicity, to prove that the checks detect it
    #[arg(long, value_name = "HOW", hide = true)]
    pub line_atomicity: Option<Lines>,
    /// Expected outcome: all checks pass, or one of them fails [default: clean]
    #[arg(long, value_name = "WHAT", hide = true)]
    pub expect: Option<Expect>,
    /// Kinds of checks of which at least one must fail: history, invariant, audit, failure
    #[arg(skip)]
    #[serde(alias = "expect_kind")]
    pub expect_kind: Option<Vec<String>>,
    /// The purpose of the scenario
    #[arg(skip)]
    pub description: Option<String>,
}

/// The values of `--coroutines`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "toml::Value")]
pub enum Coroutines {
    /// The program derives the number from the width of the workload's transactions.
    Auto,
    /// Each thread runs this many coroutines.
    Count(u64),
}

impl FromStr for Coroutines {
    type Err = String;

    fn from_str(text: &str) -> Result<Coroutines, String> {
        let allowed = "a whole number from 1 on, or auto";
        match text {
            "auto" => Ok(Coroutines::Auto),
            text => text.parse().map(Coroutines::Count).map_err(|_| allowed.to_owned()),
        }
    }
}

impl TryFrom<toml::Value> for Coroutines {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Coroutines, String> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.parse().map_err(|allowed| format!("coroutines = {text}; allowed: {allowed}"))
    }
}

/// The values of `--placement`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The hash of a record's key selects the record's memory node.
    Hash,
    /// The table of a record selects the record's memory node.
    Table,
}

/// The values of `--routing`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// The owner of the first record's shard runs transactions that write.
    ByShard,
    /// The node that draws a transaction runs it.
    None,
}

/// The values of `--lock-transport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockTransport {
    /// Compute nodes request locks by calls.
    Calls,
    /// Compute nodes request locks by messages.
    Messages,
}

/// The values of `--memory`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// Memory is shared if shared memory can have huge pages.
    Auto,
    /// Another process can map the memory.
    Shared,
    /// Only this process can use the memory.
    Private,
}

/// The values of `--line-atomicity`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lines {
    /// Lines are atomic, as the contract requires.
    Striped,
    /// Lines are not atomic: a planted bug.
    PlantedTorn,
}

/// The values of `--expect`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// Every check must pass.
    Clean,
    /// At least one of the named checks must fail.
    Violation,
}

/// Parses a whole number on the command line.
pub(super) fn whole(text: &str) -> Result<u64, String> {
    let is_whole = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().map_err(|_| match is_whole {
        true => format!("a whole number up to {}", u64::MAX),
        false => "a whole number without a sign".to_owned(),
    })
}

/// Returns a parser of a whole number in a range. Its errors state the range as all errors of this program do; clap's
/// own ranges do not.
pub(super) fn whole_in<T: TryFrom<u64> + Clone + Send + Sync + 'static>(
    range: std::ops::RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = whole(text).ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| number.try_into().ok());
        number.ok_or_else(|| format!("{} to {}", range.start(), range.end()))
    }
}

/// Parses a number on the command line.
pub(super) fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "a number".to_owned())
}

impl Settings {
    /// Reads a scenario file.
    pub fn read(path: &Path) -> Result<Settings, Stop> {
        let complain = |allowed: String| {
            Stop::Input(format!("--scenario = {}; allowed: {allowed}", path.display()))
        };
        let text = std::fs::read_to_string(path)
            .map_err(|error| complain(format!("a TOML file that can be read ({error})")))?;
        toml::from_str(&text).map_err(|error: toml::de::Error| {
            let at = place_in(&text, error.span());
            complain(format!("a scenario in TOML; {at}: {}", error.message()))
        })
    }

    /// Returns these settings. If a setting is not given, its value comes from the scenario.
    pub fn over(self, scenario: Settings) -> Settings {
        let verifies = self.verify_seconds.is_some();
        Settings {
            workload: self.workload.or(scenario.workload),
            protocol: self.protocol.or(scenario.protocol),
            variant: self.variant.or(scenario.variant),
            threads: self.threads.or(scenario.threads),
            threads_per_node: self.threads_per_node.or(scenario.threads_per_node),
            routing: self.routing.or(scenario.routing),
            coroutines: self.coroutines.or(scenario.coroutines),
            no_pin: self.no_pin || scenario.no_pin,
            no_prefetch: self.no_prefetch || scenario.no_prefetch,
            seconds: self.seconds.or(scenario.seconds),
            memory_nodes: self.memory_nodes.or(scenario.memory_nodes),
            replicas: self.replicas.or(scenario.replicas),
            placement: self.placement.or(scenario.placement),
            mix_profile: self.mix_profile.or(scenario.mix_profile),
            records: self.records.or(scenario.records),
            zipf: self.zipf.or(scenario.zipf),
            seed: self.seed.or(scenario.seed),
            history: self.history.or(scenario.history),
            verify_seconds: self.verify_seconds.or(scenario.verify_seconds),
            no_verify: self.no_verify || (scenario.no_verify && !verifies),
            address_cache: self.address_cache.or(scenario.address_cache),
            version_cache: self.version_cache.or(scenario.version_cache),
            read_lease_ns: self.read_lease_ns.or(scenario.read_lease_ns),
            read_lease_adjust_ns: self.read_lease_adjust_ns.or(scenario.read_lease_adjust_ns),
            read_lease_least_ns: self.read_lease_least_ns.or(scenario.read_lease_least_ns),
            read_lease_most_ns: self.read_lease_most_ns.or(scenario.read_lease_most_ns),
            lock_transport: self.lock_transport.or(scenario.lock_transport),
            memory: self.memory.or(scenario.memory),
            line_atomicity: self.line_atomicity.or(scenario.line_atomicity),
            expect: self.expect.or(scenario.expect),
            expect_kind: self.expect_kind.or(scenario.expect_kind),
            description: self.description.or(scenario.description),
        }
    }

    /// Returns the kinds of checks of which one is expected to fail. If the settings name no kind, returns all kinds.
    ///
    /// # Errors
    /// If the settings name a kind that does not exist.
    pub fn expected_kinds(&self) -> Result<Vec<CheckKind>, UsageError> {
        let Some(names) = &self.expect_kind else { return Ok(CheckKind::ALL.into()) };
        let kind = |name: &String| {
            CheckKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UsageError {
                field: "expect-kind".into(),
                value: name.clone(),
                allowed: CheckKind::ALL.map(CheckKind::name).join(", "),
            })
        };
        names.iter().map(kind).collect()
    }
}
