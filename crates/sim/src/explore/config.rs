//! What is explored: the cluster's shape, what may break, and when to give up.
//!
//! Invariant: a configuration that cannot be is refused by the name of its field, with its value and
//! what is allowed. Nothing in it is a probability: whatever a budget allows is tried everywhere.

use crate::config::ConfigError;
use tarn_fabric::address::LINE_BYTES;

/// Largest memory of a group at one node, in bytes: each of them is held in full.
pub const GROUP_BYTES_MAX: u64 = 64 << 20;

/// The shape of an explored cluster, and how far it is explored.
#[derive(Clone, Debug)]
pub struct ExploreConfig {
    /// Memory nodes; there is one replica group for each.
    pub memory_nodes: usize,
    /// Copies of every group: replica `i` of group `g` is at node `(g + i) mod memory_nodes`.
    pub replicas: usize,
    /// Empty memory nodes behind them, each with room for every group.
    pub spares: usize,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Size of one replica group's memory at one node, in bytes: a multiple of a line.
    pub group_bytes: u64,
    /// What may break.
    pub faults: FaultBudget,
    /// When to give up.
    pub bounds: Bounds,
    /// How much is left out because it would show nothing new.
    pub reduction: Reduction,
    /// Executions in some order that go ahead, to find out which lines are shared.
    pub scouts: u64,
    /// So often a coroutine that waits for nothing in particular is polled again without news.
    pub idle_polls: u32,
    /// As `idle_polls`, of a coroutine that slept: its clock may have told it something.
    pub idle_sleeps: u32,
}

impl ExploreConfig {
    /// One replica group at each of `memory_nodes`, nothing breaks, no bounds, all reductions.
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

/// Most memory nodes, and most compute nodes.
const NODES_MAX: usize = 64;

/// How many faults one execution may have. Each may happen at any step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultBudget {
    /// Compute nodes that die: never polled again; what they have posted may still land until they
    /// are revoked, or never.
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
    /// Nothing breaks.
    pub const NONE: FaultBudget =
        FaultBudget { compute: 0, zombie: 0, memory: 0, messages_lost: 0, messages_doubled: 0 };
}

/// When to give up. The caller's clock is the caller's: what it is told of progress it may end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Executions.
    pub executions: u64,
    /// Different states.
    pub states: u64,
    /// Choices of one execution; a longer one is cut there.
    pub depth: u32,
    /// Violations; the exploration ends with the last of them.
    pub violations: u32,
}

impl Bounds {
    /// All of it, up to the first violation.
    pub const NONE: Bounds =
        Bounds { executions: u64::MAX, states: u64::MAX, depth: 100_000, violations: 1 };
}

/// How much is left out because it would show nothing new. The arguments are in
/// `docs/design/0011-explorer.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// Private lines at once, starts together with the first landing, sleep sets, states once.
    Full,
    /// States once; else every transition is a choice everywhere.
    States,
    /// Every transition is a choice everywhere, and nothing is remembered: for tests of the above.
    None,
    /// As `Full`, with a mistake: for tests of the tests.
    Planted(Planted),
}

impl Reduction {
    /// Whether anything is left out but states that were seen.
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
    /// Pieces that meet in a line are held to be independent.
    LinesForgotten,
    /// What a READ has brought and nobody has looked at yet is no part of the state.
    SeenForgotten,
    /// Whether a transaction began after another's end is no part of the state and makes no choice.
    OrderForgotten,
    /// What a node that may die has written, and only the judge looks at, lands at once.
    DeathsForgotten,
    /// Pieces on private lines land at once although their round may yet be refused.
    RefusalsForgotten,
    /// After a start a piece of its rounds lands next although it has ended a transaction.
    EndsForgotten,
    /// An actor's own WRITE that overtakes on a private line lands when it comes to it.
    OvertakingForgotten,
    /// A detached round that is asked for lands at once on private lines.
    AskingForgotten,
    /// Lines are taken to be private to the end, whoever touches them.
    SharingForgotten,
    /// Whoever has ended is held to touch nothing any more, also with a round in flight.
    LeftoversForgotten,
    /// A coroutine that nobody's local memory is shared with is polled at once, whoever changes what it
    /// sees of registered objects.
    ObjectsForgotten,
    /// What those who have ended have in flight is no part of the state.
    RemainsForgotten,
    /// Polls that meet in a part of a compute node's local memory are held to be independent.
    PartsForgotten,
    /// What a coroutine was told of a part is no part of the state.
    ToldForgotten,
    /// Windows and waits are held to be independent.
    TimeForgotten,
    /// Windows open at once, whoever begins waits.
    WaitersForgotten,
    /// After a start a piece of its rounds lands next although it has begun a wait.
    BeginningsMoved,
    /// Which chain of waits a window has seen is no part of the state.
    ChainsForgotten,
    /// Which windows were open when a wait began is no part of the state.
    OpenForgotten,
    /// A window is found shorter than its lease whatever waits it has seen.
    WaitsForgotten,
    /// A wait counts in a window that opened after it began.
    BeginningsForgotten,
    /// Waits beside one another add up.
    OverlapsForgotten,
    /// Being told that nothing else can happen is held to be independent of what others do.
    StallsForgotten,
}
