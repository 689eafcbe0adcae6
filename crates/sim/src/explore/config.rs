//! The configuration of an exploration: the cluster's shape, the faults that may happen, and the
//! bounds.
//!
//! Invariant: the explorer refuses an impossible configuration. The error for an impossible
//! configuration names the field, its value and the allowed values. No field of the configuration is
//! a probability. The explorer tries every fault that a budget allows at every step.

use crate::config::ConfigError;
use tarn_fabric::address::LINE_BYTES;

/// The largest memory of a group at one node, in bytes. The explorer keeps the whole memory of each
/// group in the memory of the machine that runs it.
pub const GROUP_BYTES_MAX: u64 = 64 << 20;

/// The shape of an explored cluster, and the limits of its exploration.
#[derive(Clone, Debug)]
pub struct ExploreConfig {
    /// The number of memory nodes. The cluster has one replica group for each memory node.
    pub memory_nodes: usize,
    /// The number of copies of each group. Replica `i` of group `g` is at node
    /// `(g + i) mod memory_nodes`.
    pub replicas: usize,
    /// The number of spare memory nodes, whose slots follow the slots of the other memory nodes. Each
    /// spare node is empty and has room for every group.
    pub spares: usize,
    /// The number of compute nodes.
    pub compute_nodes: usize,
    /// The size of one replica group's memory at one node, in bytes. The size is a multiple of the size
    /// of a line.
    pub group_bytes: u64,
    /// The faults that may happen.
    pub faults: FaultBudget,
    /// The bounds at which the exploration stops early.
    pub bounds: Bounds,
    /// The orders that are omitted because they would show nothing new.
    pub reduction: Reduction,
    /// The number of executions in arbitrary order that run first. From these executions the explorer
    /// learns which lines several actors share.
    pub scouts: u64,
    /// How often a coroutine that waits for no event is polled again although nothing new has
    /// happened.
    pub idle_polls: u32,
    /// Like `idle_polls`, for a coroutine that slept. A coroutine that slept may have learned something
    /// from its clock.
    pub idle_sleeps: u32,
}

impl ExploreConfig {
    /// Creates a configuration with one replica group per memory node, without faults, without bounds,
    /// and with all reductions.
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

/// The largest number of memory nodes, and of compute nodes.
const NODES_MAX: usize = 64;

/// The number of faults that one execution may have. Each fault may happen at any step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultBudget {
    /// The number of compute nodes that die. A dead node is never polled again. The verbs that the
    /// dead node posted may still land until its access is revoked, or may never land.
    pub compute: u32,
    /// The number of compute nodes that are declared dead and continue to run.
    pub zombie: u32,
    /// The number of memory nodes that die. The memory of dead memory nodes is lost.
    pub memory: u32,
    /// The number of datagrams that are lost.
    pub messages_lost: u32,
    /// The number of datagrams that arrive a second time.
    pub messages_doubled: u32,
}

impl FaultBudget {
    /// A budget without faults.
    pub const NONE: FaultBudget =
        FaultBudget { compute: 0, zombie: 0, memory: 0, messages_lost: 0, messages_doubled: 0 };
}

/// The bounds at which the exploration stops early. The exploration itself has no bound on wall-clock
/// time, so the caller must enforce such a bound. The explorer tells the caller of its progress, and
/// the caller may end the exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The largest number of executions.
    pub executions: u64,
    /// The largest number of different states.
    pub states: u64,
    /// The largest number of choices in one execution. A longer execution is cut at this number.
    pub depth: u32,
    /// The largest number of violations. The exploration ends when it has found this number of
    /// violations.
    pub violations: u32,
}

impl Bounds {
    /// No bounds on executions and states. The exploration ends at the first violation.
    pub const NONE: Bounds =
        Bounds { executions: u64::MAX, states: u64::MAX, depth: 100_000, violations: 1 };
}

/// The orders that are omitted because they would show nothing new. The file
/// `docs/design/0011-explorer.md` has the arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// Accesses to private lines land immediately. The explorer takes a start together with the first
    /// landing. The explorer uses sleep sets, and explores each state once.
    Full,
    /// The explorer explores each state once. No other reduction is used, so every transition is a
    /// choice in every state.
    States,
    /// Every transition is a choice in every state, and the explorer remembers no state. Tests of the
    /// other reductions use this value.
    None,
    /// Like `Full`, but with a planted mistake, which the tests must notice.
    Planted(Planted),
}

impl Reduction {
    /// Returns whether the reduction omits transitions, in addition to states that were already seen.
    pub(crate) fn reduces(self) -> bool {
        matches!(self, Reduction::Full | Reduction::Planted(_))
    }

    pub(crate) fn has(self, planted: Planted) -> bool {
        self == Reduction::Planted(planted)
    }
}

/// Planted mistakes in the reductions. A comparison with plain enumeration must notice each of these
/// mistakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// Planted mistake: two accesses to the same line count as independent.
    LinesForgotten,
    /// Planted mistake: the digest of a state omits data that a READ has fetched and that its
    /// coroutine has not read yet.
    SeenForgotten,
    /// Planted mistake: the digest of a state omits whether a transaction began after another
    /// transaction's end. The explorer also does not choose the order of these two events.
    OrderForgotten,
    /// Planted mistake: writes of a node that may die land immediately if only the judge and the node
    /// itself read them.
    DeathsForgotten,
    /// Planted mistake: accesses to private lines land immediately, even if a memory node may still
    /// refuse their round.
    RefusalsForgotten,
    /// Planted mistake: after a start, an access of the actor's rounds lands next, although the start
    /// has ended a transaction.
    EndsForgotten,
    /// Planted mistake: an actor's WRITE that overtakes the actor's own accesses on a private line
    /// lands as soon as the contract allows it.
    OvertakingForgotten,
    /// Planted mistake: a detached round lands immediately on private lines although its actor may ask
    /// whether the round is done.
    AskingForgotten,
    /// Planted mistake: lines count as private during the whole exploration, whichever actors touch
    /// them.
    SharingForgotten,
    /// Planted mistake: an actor that has ended counts as an actor that touches no line any more,
    /// even if it has a round in flight.
    LeftoversForgotten,
    /// Planted mistake: a coroutine that shares its local memory with no other coroutine is polled
    /// immediately, even if other coroutines change the registered objects that it sees.
    ObjectsForgotten,
    /// Planted mistake: the digest of a state omits the rounds in flight of actors that have ended.
    RemainsForgotten,
    /// Planted mistake: two polls that access the same part of a compute node's local memory count as
    /// independent.
    PartsForgotten,
    /// Planted mistake: the digest of a state omits the contents of the part of local memory that a
    /// coroutine has seen.
    ToldForgotten,
    /// Planted mistake: the explorer treats all steps of windows and waits as independent.
    TimeForgotten,
    /// Planted mistake: windows open immediately, even if other actors may begin waits.
    WaitersForgotten,
    /// Planted mistake: after a start, an access of the actor's rounds lands next, although the start
    /// has begun a wait.
    BeginningsMoved,
    /// Planted mistake: the digest of a state omits the chain of waits that a window has seen.
    ChainsForgotten,
    /// Planted mistake: the digest of a state omits the windows that were open when a wait began.
    OpenForgotten,
    /// Planted mistake: an actor may find a window shorter than its lease, whichever waits happened
    /// within the window.
    WaitsForgotten,
    /// Planted mistake: the explorer counts a wait in a window that opened after the wait began.
    BeginningsForgotten,
    /// Planted mistake: the explorer adds up the lengths of waits that overlap.
    OverlapsForgotten,
    /// Planted mistake: a READ that is executed because nothing else can happen counts as independent
    /// of the steps of other actors.
    StallsForgotten,
}
