//! The common settings of `tarn sim` and `tarn trace`: the workload, the protocol, the cluster.
//!
//! Invariant: one structure for both, so that the run of a trace is the run that is measured.

use super::layout;
use crate::scenario::{Placement, Routing, number, whole};
use tarn_lab::simulate::stamps::Source;

/// `--timestamps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Timestamps {
    /// A counter that all nodes share.
    Counter,
    /// A service, asked by messages.
    Service,
    /// A word of the pool, read by verbs.
    Pool,
    /// Clocks: transactions wait out their uncertainty.
    Clock,
}

impl From<Timestamps> for Source {
    fn from(asked: Timestamps) -> Source {
        match asked {
            Timestamps::Counter => Source::Counter,
            Timestamps::Service => Source::Service,
            Timestamps::Pool => Source::Pool,
            Timestamps::Clock => Source::Clock,
        }
    }
}

/// Flags; `None` is the default.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Settings {
    /// The workload to run: kvs, smallbank, taobench, tatp, tpcc, ycsb
    #[arg(value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// Hardware: a name that `tarn profiles` lists, or a TOML file [default: cx5-100g]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// One constant of the hardware for this run, for example nic.read_mops=20; several times for
    /// several
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Length of the measured phase in virtual milliseconds [default: 10]
    #[arg(long, value_name = "MS", value_parser = number, allow_negative_numbers = true)]
    pub virtual_ms: Option<f64>,
    /// Compute nodes [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub compute_nodes: Option<u64>,
    /// Memory nodes [default: as many as replicas]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub memory_nodes: Option<u64>,
    /// Copies of every record [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub replicas: Option<u64>,
    /// Coordinators in all: transactions in progress at once [default: four a thread]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub coordinators: Option<u64>,
    /// Threads of each compute node [default: one for every four of its coordinators, or 4]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub threads: Option<u64>,
    /// Records, accounts, subscribers, warehouses [default: the mix profile's]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub records: Option<u64>,
    /// Zipf exponent of the keys, 0 for uniform [default: the mix profile's]
    #[arg(long, value_name = "THETA", value_parser = number, allow_negative_numbers = true)]
    pub zipf: Option<f64>,
    /// The workload's profile: its own definition or a paper's variant [default: its first]
    #[arg(long, value_name = "NAME")]
    pub mix_profile: Option<String>,
    /// Protocol [default: ford]
    #[arg(long, value_name = "NAME")]
    pub protocol: Option<String>,
    /// corrected, literal or measured, then ,-SWITCH or ,+SWITCH of those that `tarn rules` lists
    /// [default: corrected]
    #[arg(long, value_name = "VARIANT", allow_hyphen_values = true)]
    pub variant: Option<String>,
    /// Source of timestamps: a service of the compute pool, a word of the pool, clocks, or a counter that
    /// all nodes share and that costs nothing [default: the service, if the protocol takes timestamps and there
    /// are several compute nodes]
    #[arg(long, value_name = "SOURCE")]
    pub timestamps: Option<Timestamps>,
    /// Compute node that runs a transaction, under a protocol whose locks have shards: by-shard, the owner of its first
    /// record's shard, with as many clients as coordinators; none, the node that draws it [default: none]
    #[arg(long, value_name = "HOW")]
    pub routing: Option<Routing>,
    /// Choice of a record's memory node: by its key's hash, or by its table [default: hash]
    #[arg(long, value_name = "HOW")]
    pub placement: Option<Placement>,
    /// Addresses that each thread remembers, so that an update can lock at once [default: 0]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub address_cache: Option<u64>,
    /// Version tables that each compute node remembers of records whose locks it grants; 0 for none [default: 65536]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub version_cache: Option<u64>,
    /// Length of a lease, for which readers trust their reads and writers wait, under a protocol with
    /// such leases [default: 0, none]
    #[arg(long, value_name = "NS", value_parser = whole, allow_negative_numbers = true)]
    pub read_lease_ns: Option<u64>,
    /// Interval in which a manager checks whether the lease is right for 80 of 100 read-only
    /// transactions, and changes it if not [default: never]
    #[arg(long, value_name = "NS", value_parser = whole, allow_negative_numbers = true)]
    pub read_lease_adjust_ns: Option<u64>,
    /// The shortest lease that the manager asks for [default: 1]
    #[arg(long, value_name = "NS", value_parser = whole, allow_negative_numbers = true)]
    pub read_lease_least_ns: Option<u64>,
    /// The longest lease that the manager asks for [default: 16777215]
    #[arg(long, value_name = "NS", value_parser = whole, allow_negative_numbers = true)]
    pub read_lease_most_ns: Option<u64>,
    /// Seed of every generator [default: 1]
    #[arg(long, value_name = "SEED", value_parser = whole, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub(super) layout: layout::LayoutFlags,
}
