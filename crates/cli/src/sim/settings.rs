//! The common settings of `tarn sim` and `tarn trace`: the workload, the protocol, the cluster.
//!
//! Invariant: one structure contains both sets of flags, so a trace shows the same run that `tarn sim` measures.

use super::layout;
use crate::scenario::{Placement, Routing, number, whole};
use tarn_lab::simulate::stamps::Source;

/// The values of `--timestamps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Timestamps {
    /// Timestamps come from a counter that all nodes share.
    Counter,
    /// Timestamps come from a service that nodes call by messages.
    Service,
    /// Timestamps come from a word of the memory pool, which nodes access by verbs.
    Pool,
    /// Timestamps come from clocks, and transactions wait until the uncertainty of the clocks has passed.
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

/// The values of `--caches`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Caches {
    /// No thread knows an address when the run begins.
    Cold,
    /// The threads of each node know the addresses of all records when the run begins, and share them.
    Warm,
}

/// The values of `--on-abort`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum OnAbort {
    /// The coordinator tries the transaction again until it commits.
    Retry,
    /// The coordinator drops the transaction and draws another one.
    Drop,
}

/// The flags; `None` means the default.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Settings {
    /// The workload to run: kvs, smallbank, taobench, tatp, tpcc, ycsb
    #[arg(value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// Hardware: a name that `tarn profiles` lists, or a TOML file [default: cx5-100g]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Set one constant of the hardware for this run, for example nic.read_mops=20; repeat the flag for several
    /// constants
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Length of the measured phase in virtual milliseconds [default: 10]
    #[arg(long, value_name = "MS", value_parser = number, allow_negative_numbers = true)]
    pub virtual_ms: Option<f64>,
    /// Number of compute nodes [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub compute_nodes: Option<u64>,
    /// Number of memory nodes [default: as many as replicas]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub memory_nodes: Option<u64>,
    /// Number of copies of every record [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub replicas: Option<u64>,
    /// Number of coordinators of all nodes together: transactions in progress at the same time [default: four a
    /// thread]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub coordinators: Option<u64>,
    /// Number of threads of each compute node [default: one for every four of its coordinators, or 4]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub threads: Option<u64>,
    /// Number of records, accounts, subscribers or warehouses [default: the number in the mix profile]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub records: Option<u64>,
    /// Zipf exponent of the keys, 0 for uniform [default: the exponent in the mix profile]
    #[arg(long, value_name = "THETA", value_parser = number, allow_negative_numbers = true)]
    pub zipf: Option<f64>,
    /// The profile of the workload: its own definition or a paper's variant [default: its first profile]
    #[arg(long, value_name = "NAME")]
    pub mix_profile: Option<String>,
    /// Protocol [default: ford]
    #[arg(long, value_name = "NAME")]
    pub protocol: Option<String>,
    /// Variant: corrected, literal or measured, then ,-SWITCH or ,+SWITCH of the switches that `tarn rules` lists
    /// [default: corrected]
    #[arg(long, value_name = "VARIANT", allow_hyphen_values = true)]
    pub variant: Option<String>,
    /// Source of timestamps: a service of the compute pool, a word of the memory pool, clocks, or a counter that all
    /// nodes share and that costs nothing [default: the service, if the protocol takes timestamps and there are
    /// several compute nodes]
    #[arg(long, value_name = "SOURCE")]
    pub timestamps: Option<Timestamps>,
    /// Compute node that runs a transaction, under a protocol whose locks have shards: by-shard selects the owner of
    /// its first record's shard, with as many clients as coordinators; none selects the node that draws the
    /// transaction [default: none]
    #[arg(long, value_name = "HOW")]
    pub routing: Option<Routing>,
    /// Selection of a record's memory node: by its key's hash, or by its table [default: hash]
    #[arg(long, value_name = "HOW")]
    pub placement: Option<Placement>,
    /// Number of addresses that each thread caches, so that an update can lock in its first round [default: 0]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    pub address_cache: Option<u64>,
    /// Addresses that threads know when the run begins: none, or those of all records, which the threads of a node
    /// then share in place of `--address-cache` [default: cold]
    #[arg(long, value_name = "STATE")]
    pub caches: Option<Caches>,
    /// Action of a coordinator when a transaction is aborted: try it again, or drop it and draw another one [default:
    /// retry]
    #[arg(long, value_name = "ACTION")]
    pub on_abort: Option<OnAbort>,
    /// Number of version tables that each compute node caches, of records whose locks it grants; 0 for none [default:
    /// 65536]
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
    /// Seed of every random generator [default: 1]
    #[arg(long, value_name = "SEED", value_parser = whole, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub(super) layout: layout::LayoutFlags,
}
