//! The configuration of a simulated cluster.
//!
//! Invariant: creating a cluster with an impossible shape ends in an error. The error names the field,
//! its value and the allowed values.

use crate::profile::Profile;
use rand::RngExt as _;
use std::fmt;
use tarn_fabric::address::{GROUP_BYTES_MAX, GROUPS_MAX, NodeSlot};
use tarn_fabric::rng::seeded;

/// The shape and behaviour of a cluster.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The number of memory nodes. The cluster has one replica group for each memory node.
    pub memory_nodes: usize,
    /// The number of copies of each replica group.
    pub replicas: usize,
    /// The number of compute nodes.
    pub compute_nodes: usize,
    /// The size of one replica group's memory at one node, in bytes.
    pub group_bytes: u64,
    /// The costs of the simulated hardware.
    pub profile: Profile,
    /// Whether the simulation is timed or random.
    pub mode: Mode,
    /// The seed of all random choices.
    pub seed: u64,
}

/// The two modes of a simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mode {
    /// The costs of the profile alone decide when an event happens. Use timed mode to measure
    /// performance.
    Timed,
    /// The simulation draws orders, delays and faults from the seed. The drawn behaviour is as weak as
    /// the contract allows. Use random mode to check correctness.
    Random(Chaos),
}

/// The faults that may happen in random mode, and how often each fault happens. If a field whose name
/// ends in `one_in` is 0, its fault never happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chaos {
    /// The largest extra time for which a batch is in flight.
    pub delay_max_ns: u64,
    /// The average number of pieces of work (lines, atomics, batches) of which one is delayed.
    pub stall_one_in: u32,
    /// The longest time for which a piece of work is delayed.
    pub stall_max_ns: u64,
    /// The percentage of messages that are lost.
    pub loss_percent: u32,
    /// The percentage of messages that arrive twice.
    pub duplicate_percent: u32,
    /// The largest extra time for which a message is in flight. Messages that were sent later may
    /// overtake a delayed message.
    pub message_delay_max_ns: u64,
    /// The average number of compute nodes of which one is slow.
    pub slow_one_in: u32,
    /// The factor by which a slow node's processors take longer than the processors of other nodes.
    pub slow_factor: u32,
    /// The average number of turns of coroutines after which the thread of the coroutine pauses once.
    pub pause_one_in: u32,
    /// The longest pause of a thread.
    pub pause_max_ns: u64,
    /// The average number of pieces of work or batches of which one makes the NIC that it reaches
    /// pause. Until the pause ends, no work at this NIC continues.
    pub nic_pause_one_in: u32,
    /// The longest pause of a NIC.
    pub nic_pause_max_ns: u64,
    /// The length of a storm. Delays, stalls and pauses of NICs happen only in storms. Each storm is
    /// followed by a calm time of the same length. If the length is 0, the storm never ends.
    pub storm_ns: u64,
    /// The largest extra time that the batches of the delayed thread, and the answers to them, take.
    /// Random mode delays one thread at a time.
    pub set_back_ns: u64,
    /// The average time between two change points. At each change point random mode chooses another
    /// thread to delay.
    pub change_every_ns: u64,
    /// The largest difference between a clock and the true time when a run starts.
    pub clock_offset_max_ns: u64,
    /// The largest drift of a clock, too fast or too slow, in millionths.
    pub clock_drift_max_ppm: u32,
    /// A planted bug, unless the value is 0: clocks drift by up to this many times the bound on drift
    /// that the nodes assume.
    pub planted_drift_times: u32,
    /// A planted bug: the simulation reads and writes a line word by word. Other accesses may happen
    /// between two words of the line.
    pub planted_torn_lines: bool,
}

impl Chaos {
    /// The setting in which no fault happens. Only the order of events is as weak as the contract
    /// allows.
    pub const CALM: Chaos = Chaos {
        delay_max_ns: 0,
        stall_one_in: 0,
        stall_max_ns: 0,
        loss_percent: 0,
        duplicate_percent: 0,
        message_delay_max_ns: 0,
        slow_one_in: 0,
        slow_factor: 1,
        pause_one_in: 0,
        pause_max_ns: 0,
        nic_pause_one_in: 0,
        nic_pause_max_ns: 0,
        storm_ns: 0,
        set_back_ns: 0,
        change_every_ns: 0,
        clock_offset_max_ns: 0,
        clock_drift_max_ppm: 0,
        planted_drift_times: 0,
        planted_torn_lines: false,
    };

    /// Draws the faults from the seed, so different seeds have different faults. In some seeds the draw
    /// switches a source of faults off (swarm testing: Groce et al., ISSTA 2012).
    pub fn of(seed: u64) -> Chaos {
        let mut rng = seeded(seed, CHAOS_STREAM);
        let mut pick = |choices: &[u64]| choices[rng.random_range(0..choices.len())];
        Chaos {
            delay_max_ns: pick(&[0, 1_000, 10_000, 40_000]),
            stall_one_in: pick(&[0, 4, 16, 64]) as u32,
            stall_max_ns: pick(&[500, 5_000, 20_000]),
            loss_percent: pick(&[0, 1, 10, 30]) as u32,
            duplicate_percent: pick(&[0, 1, 10, 30]) as u32,
            message_delay_max_ns: pick(&[0, 2_000, 50_000]),
            slow_one_in: pick(&[0, 2, 4]) as u32,
            slow_factor: pick(&[3, 10]) as u32,
            pause_one_in: pick(&[0, 10, 100]) as u32,
            pause_max_ns: pick(&[2_000, 20_000]),
            nic_pause_one_in: pick(&[0, 0, 100, 1_000]) as u32,
            nic_pause_max_ns: pick(&[5_000, 50_000]),
            storm_ns: pick(&[0, 0, 20_000, 100_000]),
            set_back_ns: pick(&[0, 10_000, 60_000]),
            change_every_ns: pick(&[10_000, 50_000, 200_000]),
            clock_offset_max_ns: pick(&[0, 100, 50_000]),
            clock_drift_max_ppm: pick(&[0, 100, 1_000]) as u32,
            planted_drift_times: 0,
            planted_torn_lines: false,
        }
    }
}

/// The numbers that distinguish the streams of random numbers. Each use of random numbers has its own
/// stream.
pub(crate) const CHAOS_STREAM: u64 = 0x6368_616f;
pub(crate) const SCHEDULE_STREAM: u64 = 0x7363_6865;
pub(crate) const CLOCK_STREAM: u64 = 0x636c_6f63;

/// The error for an impossible shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// The field's value.
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}; allowed: {}", self.field, self.value, self.allowed)
    }
}

impl std::error::Error for ConfigError {}

impl SimConfig {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let nodes = self.memory_nodes;
        check("memory_nodes", nodes as u64, GROUPS_MAX as u64, "")?;
        check("replicas", self.replicas as u64, nodes as u64, " (memory_nodes)")?;
        check("compute_nodes", self.compute_nodes as u64, u64::from(u16::MAX), "")?;
        check("group_bytes", self.group_bytes, GROUP_BYTES_MAX, "")
    }

    /// Returns the nodes of each replica group, primary first. Groups are placed as in the local
    /// backend: replica `i` of group `g` is on node `(g + i) mod memory_nodes`.
    pub(crate) fn groups(&self) -> Vec<Vec<NodeSlot>> {
        let slot = |index: usize| NodeSlot((index % self.memory_nodes) as u16);
        (0..self.memory_nodes)
            .map(|group| (group..group + self.replicas).map(slot).collect())
            .collect()
    }
}

pub(crate) fn check(
    field: &'static str,
    value: u64,
    most: u64,
    why: &str,
) -> Result<(), ConfigError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(ConfigError { field, value: value.to_string(), allowed: format!("1 to {most}{why}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_shapes_are_refused_by_name() {
        let fine = SimConfig {
            memory_nodes: 2,
            replicas: 2,
            compute_nodes: 1,
            group_bytes: 4096,
            profile: Profile::load("cx3-56g").unwrap(),
            mode: Mode::Timed,
            seed: 1,
        };
        assert_eq!(fine.validate(), Ok(()));
        let text = |config: &SimConfig| config.validate().expect_err("refused").to_string();
        let none = SimConfig { memory_nodes: 0, ..fine.clone() };
        assert_eq!(text(&none), "memory_nodes = 0; allowed: 1 to 4096");
        let many = SimConfig { replicas: 3, ..fine.clone() };
        assert_eq!(text(&many), "replicas = 3; allowed: 1 to 2 (memory_nodes)");
        assert!(
            text(&SimConfig { compute_nodes: 0, ..fine.clone() }).contains("compute_nodes = 0")
        );
        assert!(text(&SimConfig { group_bytes: 1 << 40, ..fine }).contains("group_bytes = 10995"));
    }
}
