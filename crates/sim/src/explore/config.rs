//! The configuration of an exploration: the cluster's shape, the faults that may happen, and the
//! bounds.
//!
//! Invariant: an impossible configuration is refused. The error names the field, its value and the
//! allowed values. No field is a probability: every fault that a budget allows is tried at every step.

use crate::config::ConfigError;
use tarn_fabric::address::LINE_BYTES;

/// Largest memory of a group at one node, in bytes. The explorer holds each of them in full.
pub const GROUP_BYTES_MAX: u64 = 64 << 20;

/// The shape of an explored cluster, and how far it is explored.
#[derive(Clone, Debug)]
pub struct ExploreConfig {
    /// Number of memory nodes. There is one replica group for each.
    pub memory_nodes: usize,
    /// Copies of each group: replica `i` of group `g` is at node `(g + i) mod memory_nodes`.
    pub replicas: usize,
    /// Number of empty memory nodes behind them, each with room for every group.
    pub spares: usize,
    /// Number of compute nodes.
    pub compute_nodes: usize,
    /// Size of one replica group's memory at one node, in bytes: a multiple of a line.
    pub group_bytes: u64,
    /// The faults that may happen.
    pub faults: FaultBudget,
    /// The bounds at which the exploration gives up.
    pub bounds: Bounds,
    /// Which orders are omitted because they would show nothing new.
    pub reduction: Reduction,
    /// Number of executions in some order that run first, to find out which lines are shared.
    pub scouts: u64,
    /// How often a coroutine that waits for nothing in particular is polled again without news.
    pub idle_polls: u32,
    /// As `idle_polls`, for a coroutine that slept: it may have learned something from its clock.
    pub idle_sleeps: u32,
}

impl ExploreConfig {
    /// One replica group at each of `memory_nodes`, no faults, no bounds, all reductions.
    pub fn new(memory_nodes: usize, compute_nodes: usize, group_bytes: u64) -> ExploreConfig {
        ExploreConfig {
            memory_nodes,
            replicas: 1,
            spares: 0,
            compute_nodes,
            group_bytes,
            faults: FaultBudget::NONE,
            bounds: Bounds::NONE,
            reduction: Reduction::Full,
            scouts: 64,
            idle_polls: 2,
            idle_sleeps: 64,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let nodes = self.memory_nodes;
        let refuse = |field, value: u64, allowed: String| {
            Err(ConfigError { field, value: value.to_string(), allowed })
        };
        let within = |field: &'static str, value: usize, most: usize| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            refuse(field, value as u64, format!("1 to {most}"))
        };
        within("memory_nodes", nodes, NODES_MAX)?;
        within("replicas", self.replicas, nodes)?;
        if self.spares > NODES_MAX {
            return refuse("spares", self.spares as u64, format!("0 to {NODES_MAX}"));
        }
        within("compute_nodes", self.compute_nodes, NODES_MAX)?;
        let bytes = self.group_bytes;
        if bytes == 0 || bytes > GROUP_BYTES_MAX || !bytes.is_multiple_of(LINE_BYTES as u64) {
            let allowed = format!("multiples of {LINE_BYTES} up to {GROUP_BYTES_MAX}");
            return refuse("group_bytes", bytes, allowed);
        }
        Ok(())
    }
}

/// Largest number of memory nodes, and of compute nodes.
const NODES_MAX: usize = 64;

/// How many faults one execution may have. Each may happen at any step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultBudget {
    /// Compute nodes that die. A dead node is never polled again. Its posted verbs may land until its
    /// access is revoked, or may never land.
    pub compute: u32,
    /// Compute nodes that are declared dead and go on.
    pub zombie: u32,
    /// Memory nodes that die, with their memory.
    pub memory: u32,
    /// Datagrams that are lost.
    pub messages_lost: u32,
    /// Datagrams that arrive once more.
    pub messages_doubled: u32,
}

impl FaultBudget {
    /// No faults.
    pub const NONE: FaultBudget =
        FaultBudget { compute: 0, zombie: 0, memory: 0, messages_lost: 0, messages_doubled: 0 };
}

/// The bounds at which the exploration gives up. A bound in wall-clock time is the caller's task: the
/// caller is told of progress and may end the exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Number of executions.
    pub executions: u64,
    /// Number of different states.
    pub states: u64,
    /// Number of choices of one execution; a longer one is cut there.
    pub depth: u32,
    /// Number of violations; the exploration ends with the last of them.
    pub violations: u32,
}

impl Bounds {
    /// No bounds on executions and states; ends at the first violation.
    pub const NONE: Bounds =
        Bounds { executions: u64::MAX, states: u64::MAX, depth: 100_000, violations: 1 };
}

/// Which orders are omitted because they would show nothing new. The arguments are in
/// `docs/design/0011-explorer.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// Private lines land at once, starts go together with the first landing, sleep sets are used, and
    /// each state is explored once.
    Full,
    /// Each state is explored once. Otherwise every transition is a choice everywhere.
    States,
    /// Every transition is a choice everywhere, and no state is remembered: for tests of the reductions
    /// above.
    None,
    /// As `Full`, but with a planted mistake: it tests the tests.
    Planted(Planted),
}

impl Reduction {
    /// Whether more is omitted than states that were already seen.
    pub(crate) fn reduces(self) -> bool {
        matches!(self, Reduction::Full | Reduction::Planted(_))
    }

    pub(crate) fn has(self, planted: Planted) -> bool {
        self == Reduction::Planted(planted)
    }
}

/// Mistakes that a comparison with plain enumeration must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// Pieces that meet in a line count as independent.
    LinesForgotten,
    /// The state omits data that a READ has brought and its coroutine has not looked at yet.
    SeenForgotten,
    /// The state omits whether a transaction began after another's end, and that order is no choice.
    OrderForgotten,
    /// Writes of a node that may die land at once if, apart from it, only the judge looks at them.
    DeathsForgotten,
    /// Pieces on private lines land at once although their round may yet be refused.
    RefusalsForgotten,
    /// After a start a piece of the actor's rounds lands next, although the start has ended a
    /// transaction.
    EndsForgotten,
    /// An actor's own WRITE that overtakes on a private line lands as soon as it is its turn.
    OvertakingForgotten,
    /// A detached round that its actor may ask about lands at once on private lines.
    AskingForgotten,
    /// Lines count as private to the end, whichever actors touch them.
    SharingForgotten,
    /// An actor that has ended counts as one that touches nothing any more, even with a round in
    /// flight.
    LeftoversForgotten,
    /// A coroutine that shares its local memory with no other is polled at once, even if others change
    /// the registered objects that it sees.
    ObjectsForgotten,
    /// The state omits the rounds in flight of actors that have ended.
    RemainsForgotten,
    /// Polls that meet in a part of a compute node's local memory count as independent.
    PartsForgotten,
    /// The state omits the contents of a part that a coroutine has seen.
    ToldForgotten,
    /// Windows and waits count as independent.
    TimeForgotten,
    /// Windows open at once, whichever actors begin waits.
    WaitersForgotten,
    /// After a start a piece of the actor's rounds lands next, although the start has begun a wait.
    BeginningsMoved,
    /// The state omits which chain of waits a window has seen.
    ChainsForgotten,
    /// The state omits which windows were open when a wait began.
    OpenForgotten,
    /// A window may be found shorter than its lease, whichever waits it has seen.
    WaitsForgotten,
    /// A wait counts in a window that opened after the wait began.
    BeginningsForgotten,
    /// The lengths of parallel waits add up.
    OverlapsForgotten,
    /// A READ that is taken because nothing else can happen counts as independent of the steps of
    /// others.
    StallsForgotten,
}
