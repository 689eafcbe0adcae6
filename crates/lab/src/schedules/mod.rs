//! Random schedules: the engine under every order that the contract allows, by seed.
//!
//! Map: [`drawn`] is the meaning of a seed: cluster, workload, trouble and fault. [`mixture`] is a workload of everything
//! that a transaction can ask for. [`cluster`] builds the drawn cluster, [`run`] runs one seed: `play` is its course,
//! `work` a coordinator's transactions, `faults` the deaths and the keepers of the dead, `life` a life of a compute node,
//! `slots` the later lives of its slot, [`moves`] the moves of shards, `probe` whether transactions still work at the end,
//! [`desk`] where all of them leave their counts, [`messages`] calls beside the transactions. [`judge`] decides. [`many`]
//! runs seeds side by side, [`report`] sums them up, [`coverage`] names the cells that they reached.
//!
//! Invariant: a run is a function of the seed and the [`Subject`] alone, event for event: the digest of its trace is the
//! same on every machine, beside any other work. A sum over seeds does not depend on how many were run at a time.

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
use tarn_engine::protocol::{ALL, AnyProtocol};
use tarn_engine::services::Planted;
use tarn_store::ids::UsageError;

/// The subject of a test.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Subject {
    /// The protocol's name.
    pub protocol: String,
    /// Its variant.
    pub variant: String,
    /// The only workload, instead of the one that each seed draws.
    pub workload: Option<String>,
    /// A planted bug of the fabric: lines are torn.
    pub torn_lines: bool,
    /// A planted bug of clocks: they run off much further than is believed.
    pub clocks_run_off: bool,
    /// A planted bug of moves of shards.
    pub planted_move: Option<Planted>,
}

impl Subject {
    /// This protocol in this variant.
    pub fn of(protocol: &str, variant: &str) -> Subject {
        let (protocol, variant) = (protocol.to_owned(), variant.to_owned());
        Subject { protocol, variant, ..Subject::default() }
    }

    /// The command that runs one seed again.
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

    /// Returns the meaning of a seed for it: its protocol is asked to survive nothing beyond its promises.
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

    /// Whether its locks are in compute nodes, by shards.
    pub fn has_shards(&self) -> bool {
        self.needs().locks
    }

    /// Whether anything of it rests on clocks' rates.
    pub fn has_read_leases(&self) -> bool {
        self.needs().read_leases
    }

    /// The needs of its protocol; none, if there is no such protocol.
    fn needs(&self) -> Needs {
        let protocol = AnyProtocol::by_name(&self.protocol, &self.variant);
        protocol.map_or(Needs::NONE, |protocol| protocol.needs())
    }

    /// Refuses a workload that needs more than the protocol promises.
    ///
    /// # Errors
    /// Names the workload, and which are allowed.
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

    /// The isolation that histories are held against, in words; `None` if there is no such protocol or variant.
    pub fn isolation(&self) -> Option<&'static str> {
        let protocol = AnyProtocol::by_name(&self.protocol, &self.variant).ok()?;
        Some(guaranteed(&protocol).name())
    }

    /// The description of the protocol.
    pub fn info(&self) -> Option<&'static ProtocolInfo> {
        ALL.iter().find(|info| info.name == self.protocol)
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
