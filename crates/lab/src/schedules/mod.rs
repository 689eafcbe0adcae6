//! Runs random schedules of the engine, which may contain every order of events that the fabric's contract allows. A
//! seed determines each run.
//!
//! Map: [`drawn`] is the meaning of a seed: the cluster, the workload, the disturbances and the faults. [`mixture`]
//! is a workload with every kind of request that a transaction can make. [`cluster`] builds the drawn cluster, and
//! [`run`] runs one seed. `play` is the course of a run, and `work` runs a coordinator's transactions. `faults` has
//! the deaths and the keepers, which recover dead nodes. `life` is one incarnation of a compute node, and `slots`
//! starts later incarnations of the same slot. [`moves`] moves shards between nodes. `probe` checks whether
//! transactions still work at the end. All these coroutines put their counts on the [`desk`]. [`messages`] sends
//! calls at the same time as the transactions. [`judge`] finds errors. [`many`] runs several seeds at the same time,
//! [`report`] sums the results up, and [`coverage`] counts the events that the runs reached.
//!
//! Invariant: the seed and the [`Subject`] determine every event of a run. The digest of the run's trace is the same
//! on every machine, independently of the other work of the machine. A sum over seeds does not depend on how many
//! seeds ran at the same time.

pub mod cluster;
pub mod coverage;
pub mod desk;
pub mod drawn;
mod faults;
pub mod judge;
mod life;
pub mod many;
pub mod messages;
pub mod mixture;
pub mod moves;
pub mod ordered;
mod play;
mod probe;
pub mod read_leases;
pub mod report;
pub mod run;
mod slots;
mod work;

use crate::harness::checks::guaranteed;
use drawn::Drawn;
use tarn_engine::cluster::info::{Needs, ProtocolInfo};
use tarn_engine::protocol::{AnyProtocol, described};
use tarn_engine::services::Planted;
use tarn_store::ids::UsageError;

/// The subject of the test runs: a protocol, and the bugs that the test plants on purpose.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Subject {
    /// The name of the protocol.
    pub protocol: String,
    /// The variant of the protocol.
    pub variant: String,
    /// The only workload. If none is given, each seed draws a workload.
    pub workload: Option<String>,
    /// Whether the test plants a bug of the fabric: a read may see a line of which only a part is written.
    pub torn_lines: bool,
    /// Whether the test plants a bug of clocks: clocks drift much more than the nodes assume.
    pub clocks_run_off: bool,
    /// The planted bug of moves of shards, if one is planted.
    pub planted_move: Option<Planted>,
}

impl Subject {
    /// Creates a subject of this protocol in this variant, without planted bugs.
    pub fn of(protocol: &str, variant: &str) -> Subject {
        let (protocol, variant) = (protocol.to_owned(), variant.to_owned());
        Subject { protocol, variant, ..Subject::default() }
    }

    /// Returns the command that runs one seed again.
    pub fn replay(&self, seed: u64) -> String {
        let mut command = format!("tarn sim random --seed {seed}");
        if self.protocol != "ford" {
            command += &format!(" --protocol {}", self.protocol);
        }
        if self.variant != "corrected" {
            command += &format!(" --variant {}", self.variant);
        }
        if let Some(workload) = &self.workload {
            command += &format!(" --workload {workload}");
        }
        if self.torn_lines {
            command += " --plant torn-lines";
        }
        if self.clocks_run_off {
            command += " --plant drift";
        }
        match self.planted_move {
            Some(Planted::TransferDecides) => command += " --plant transfer-decides",
            Some(Planted::Forced) => command += " --plant forced-drain",
            None => {}
        }
        command
    }

    /// Returns the meaning of a seed for this subject. The protocol must survive only the faults that
    /// it promises to survive.
    pub fn drawn(&self, seed: u64) -> Drawn {
        let caps = self.info().map(|info| info.caps);
        let ranges = caps.is_none_or(|caps| caps.ranges);
        let mut drawn = Drawn::within(seed, self.workload.as_deref(), ranges);
        if self.has_shards() {
            drawn = drawn.with_shards(seed);
        }
        if self.needs().read_leases {
            drawn = drawn.with_read_leases(seed);
        }
        if self.needs().lock_service.is_some() {
            drawn = drawn.with_lock_service(seed);
        }
        if caps.is_some_and(|caps| !caps.crash_recovery) {
            drawn = drawn.without_compute_deaths();
        }
        if caps.is_some_and(|caps| !caps.memory_recovery) {
            drawn = drawn.without_memory_deaths();
        }
        if caps.is_some_and(|caps| !caps.survives_drops) {
            drawn = drawn.without_drops();
        }
        drawn
    }

    /// Returns whether the protocol keeps its locks in compute nodes, by shards.
    pub fn has_shards(&self) -> bool {
        self.needs().locks
    }

    /// Returns whether the protocol has read leases, which rely on the rates of clocks.
    pub fn has_read_leases(&self) -> bool {
        self.needs().read_leases
    }

    /// Returns the features that the subject's protocol needs. If no such protocol exists, the result contains no
    /// feature.
    fn needs(&self) -> Needs {
        let protocol = AnyProtocol::by_name(&self.protocol, &self.variant);
        protocol.map_or(Needs::NONE, |protocol| protocol.needs())
    }

    /// Returns an error if the workload needs a feature that the protocol does not promise.
    ///
    /// # Errors
    /// The error names the workload and the allowed workloads.
    pub(crate) fn refuse_workload(&self) -> Result<(), UsageError> {
        let asked = self.workload.as_deref().filter(|asked| *asked != mixture::NAME);
        let needs_ranges = asked.filter(|asked| coverage::WITH_ORDERED_INDEXES.contains(asked));
        match (needs_ranges, self.info()) {
            (Some(workload), Some(info)) if !info.caps.ranges => {
                Err(without_ranges(workload, info))
            }
            _ => Ok(()),
        }
    }

    /// Returns the name of the isolation level that histories must satisfy. The result is `None` if no
    /// such protocol or variant exists.
    pub fn isolation(&self) -> Option<&'static str> {
        let protocol = AnyProtocol::by_name(&self.protocol, &self.variant).ok()?;
        Some(guaranteed(&protocol).name())
    }

    /// Returns the description of the protocol.
    pub fn info(&self) -> Option<&'static ProtocolInfo> {
        described(&self.protocol)
    }
}

fn without_ranges(workload: &str, info: &ProtocolInfo) -> UsageError {
    let without = drawn::names().filter(|name| !coverage::WITH_ORDERED_INDEXES[1..].contains(name));
    UsageError {
        field: "workload".into(),
        value: workload.to_owned(),
        allowed: format!(
            "{} with {}: it offers no ordered indexes",
            without.collect::<Vec<_>>().join(", "),
            info.name
        ),
    }
}

#[cfg(test)]
mod tests;
