//! The coverage of runs: counts of the transaction phases in which nodes died, of every reason to abort, and of every
//! recovery event.
//!
//! Invariant: every cell (one counted event) is listed with its count, even if the count is 0. So the report names
//! each event that no run reached.

use super::{Subject, mixture};
use serde::Serialize;
use std::collections::BTreeMap;
use tarn_engine::site::metrics::{PHASES_MAX, RecoveryEvent, Tally};
use tarn_store::ids::AbortReason;

/// The way in which a node died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A compute node stopped.
    Crash,
    /// A compute node was expelled while it ran.
    Zombie,
    /// A memory node died while the compute node ran.
    MemoryNode,
}

pub(super) const KINDS: [&str; 3] = ["crash", "zombie", "memory node"];
/// The workloads whose tables have ordered indexes. The tables of the mixture have ordered indexes only in some
/// seeds.
pub(super) const WITH_ORDERED_INDEXES: [&str; 2] = [mixture::NAME, "tpcc"];

/// If the cell `name` needs an ordered index and no table of this subject's seeds has one, returns a description of
/// this reason. Tables have no ordered index if the subject's only workload uses no ordered index, or if the protocol
/// offers no ordered index.
pub(super) fn lacks_ordered_indexes(subject: &Subject, name: &str) -> Option<&'static str> {
    let is_offered = subject.info().is_none_or(|info| info.caps.ranges);
    let asked = subject.workload.as_deref();
    let (lacks, why) = match asked {
        _ if !is_offered => (true, "the protocol offers no ordered indexes"),
        Some(asked) if !WITH_ORDERED_INDEXES.contains(&asked) => {
            (true, "the workload that was asked for has no ordered index")
        }
        _ => (false, ""),
    };
    let is_event = !is_offered && OF_TREES.contains(&name);
    let is_abort = |why: &AbortReason| why.name() == name && why.needs_ordered_indexes();
    let needs = AbortReason::ALL.iter().any(is_abort)
        || subject.info().is_some_and(|info| info.needs_ordered_indexes(name));
    (lacks && (needs || is_event)).then_some(why)
}

/// The events of ordered indexes.
const OF_TREES: [&str; 2] = ["node_merge", "node_split"];
/// The events, including events of recovery, that only the death of a compute node causes.
const OF_COMPUTE_DEATHS: [&str; 9] = [
    "lease_lapsed",
    "number_taken_over",
    "restarted",
    "recovered",
    "took_over",
    "stray_met",
    "stray_swept",
    "area_awaited",
    "barred",
];

/// If the protocol does not survive the death of a compute node, no compute node dies. If no compute node dies and
/// the cell counts deaths of compute nodes, the function returns the reason why the cell must be 0.
pub(super) fn lacks_compute_deaths(subject: &Subject, cell: &str) -> Option<&'static str> {
    let recovers = subject.info().is_none_or(|info| info.caps.crash_recovery);
    let (row, name) = cell.split_once('/').unwrap_or_default();
    let dies = |kind: Kind| row == KINDS[kind as usize];
    let needs = dies(Kind::Crash) || dies(Kind::Zombie) || OF_COMPUTE_DEATHS.contains(&name);
    (needs && !recovers).then_some("the protocol does not promise to survive it")
}

/// The events, including events of recovery, that only the death of a memory node causes.
const OF_MEMORY_DEATHS: [&str; 4] =
    ["memory_node_died", "promoted", "rereplicated", "found_followed"];
/// The events that any death causes.
const OF_DEATHS: [&str; 5] =
    ["finished", "found_released", "undone", "resolved_aborted", "resolved_committed"];

/// No seed draws an event that the protocol does not promise to survive. If the cell counts such an event, the
/// function returns the reason why the cell must be 0. A protocol may not survive the death of a memory node, or any
/// death. It may also lack support for callers that drop transactions, or for the growth of hash indexes.
pub(super) fn lacks_promises(subject: &Subject, cell: &str) -> Option<&'static str> {
    let caps = subject.info()?.caps;
    let (row, name) = cell.split_once('/').unwrap_or_default();
    let of_memory = row == KINDS[Kind::MemoryNode as usize] || OF_MEMORY_DEATHS.contains(&name);
    let of_any = OF_DEATHS.contains(&name) && !caps.crash_recovery;
    let of_drops = name.starts_with("dropped") && !caps.survives_drops;
    if (of_memory || of_any) && !caps.memory_recovery || of_drops {
        return Some("the protocol does not promise to survive it");
    }
    (name == "split" && !caps.growth).then_some("the protocol's hash indexes do not grow")
}

/// If the protocol has no shards and the cell counts moves of shards, returns the reason why the cell must be 0.
pub(super) fn lacks_shards(subject: &Subject, name: &str) -> Option<&'static str> {
    let is_of_shards = name.starts_with("shard_") && !subject.has_shards();
    is_of_shards.then_some("the protocol's locks have no shards")
}

/// The index of the cell that follows the cells of phases. This cell counts transactions that were executing, and
/// coordinators that were between two transactions.
const BETWEEN: usize = PHASES_MAX;

/// The phases of transactions at the moment when nodes died.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Deaths {
    /// The number of transactions for each [`Kind`] of death and each phase.
    cells: [[u64; PHASES_MAX + 1]; 3],
    /// The number of nodes that died, for each [`Kind`] of death. For memory nodes, the entry counts the compute
    /// nodes that saw the death of a memory node.
    nodes: [u64; 3],
    /// The number of leases that lapsed while their holder ran.
    pub lapsed: u64,
    /// The number of slots that got a new incarnation.
    pub restarts: u64,
    /// The number of dead coordinators whose coordinator number another coordinator took.
    pub successions: u64,
}

impl Deaths {
    /// Records that a node died while the transactions of its coordinators were in these phases.
    pub fn count(&mut self, kind: Kind, phases: Vec<Option<usize>>) {
        self.nodes[kind as usize] += 1;
        for phase in phases {
            self.cells[kind as usize][phase.unwrap_or(BETWEEN)] += 1;
        }
    }

    /// Adds the deaths that another run counted.
    pub fn add(&mut self, other: &Deaths) {
        let cells = self.cells.iter_mut().flatten().zip(other.cells.iter().flatten());
        cells.for_each(|(mine, theirs)| *mine += theirs);
        self.nodes.iter_mut().zip(other.nodes).for_each(|(mine, theirs)| *mine += theirs);
        self.lapsed += other.lapsed;
        self.restarts += other.restarts;
        self.successions += other.successions;
    }

    /// Returns the number of nodes that died in this way.
    pub fn nodes(&self, kind: Kind) -> u64 {
        self.nodes[kind as usize]
    }
}

/// The counts of all cells, summed over many runs.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Coverage {
    /// The number of transactions, by the way in which a node died and then by phase.
    pub phase_by_death: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// The number of aborts, by reason.
    pub aborts: BTreeMap<&'static str, u64>,
    /// The number of each event of recovery.
    pub recovery: BTreeMap<&'static str, u64>,
    /// The number of each other event of a run.
    pub events: BTreeMap<&'static str, u64>,
    /// The names of cells that are 0.
    pub empty: Vec<String>,
    /// The names of cells that must be 0, with the reason.
    pub cannot: BTreeMap<String, &'static str>,
}

impl Coverage {
    /// Creates the coverage from these counts. The function `cannot` returns the reason why a cell must be 0, if
    /// there is such a reason.
    pub fn of(
        deaths: &Deaths,
        tally: &Tally,
        (phases, reasons): (&[&'static str], &[AbortReason]),
        events: BTreeMap<&'static str, u64>,
        cannot: &dyn Fn(&str) -> Option<&'static str>,
    ) -> Coverage {
        let mut coverage = Coverage { events, ..Coverage::default() };
        for (kind, counts) in KINDS.iter().zip(&deaths.cells) {
            let mut row: BTreeMap<&'static str, u64> =
                phases.iter().copied().zip(counts.iter().copied()).collect();
            row.insert("between", counts[BETWEEN]);
            coverage.phase_by_death.insert(kind, row);
        }
        let aborts = reasons.iter().map(|&why| (why.name(), tally.aborts[why as usize]));
        coverage.aborts = aborts.collect();
        let recovery = RecoveryEvent::ALL.iter().zip(tally.recovery);
        coverage.recovery = recovery.map(|(event, count)| (event.name(), count)).collect();
        coverage.look_for_empty(cannot);
        coverage
    }

    fn look_for_empty(&mut self, cannot: &dyn Fn(&str) -> Option<&'static str>) {
        let mut zeros: Vec<String> = Vec::new();
        for (kind, row) in &self.phase_by_death {
            let empty = row.iter().filter(|(_, count)| **count == 0);
            zeros.extend(empty.map(|(phase, _)| format!("{kind}/{phase}")));
        }
        let maps = [("abort", &self.aborts), ("recovery", &self.recovery), ("event", &self.events)];
        for (name, map) in maps {
            let empty = map.iter().filter(|(_, count)| **count == 0);
            zeros.extend(empty.map(|(cell, _)| format!("{name}/{cell}")));
        }
        for cell in zeros {
            match cannot(&cell) {
                Some(why) => drop(self.cannot.insert(cell, why)),
                None => self.empty.push(cell),
            }
        }
    }

    /// Returns the number of cells that are not 0, and the number of all cells.
    pub fn reached(&self) -> (usize, usize) {
        let rows = self.phase_by_death.values().map(BTreeMap::len).sum::<usize>();
        let all = rows + self.aborts.len() + self.recovery.len() + self.events.len();
        (all - self.empty.len() - self.cannot.len(), all)
    }
}

#[cfg(test)]
#[path = "coverage_tests.rs"]
mod tests;
