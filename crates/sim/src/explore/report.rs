//! The report of an exploration: how much the exploration covered, and the violations that it found.
//!
//! Invariant: the report says "exhausted" only if the explorer cut no execution. In other words: the
//! exploration reached no bound, and each execution ran to its end or to a state that was seen
//! before.

use super::actor::Fault;
use super::schedule::Schedule;
use super::trace::Step;
use tarn_fabric::address::NodeId;

/// The work done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// The number of executions. Each execution ran from the start.
    pub executions: u64,
    /// The number of different states.
    pub states: u64,
    /// The number of different final states. Each different final state was judged.
    pub judged: u64,
    /// The number of transitions that were taken for the first time on their path.
    pub steps_new: u64,
    /// The number of transitions that the explorer took again to return to a state with unexplored
    /// choices.
    pub steps_again: u64,
    /// The largest number of choices in one execution.
    pub depth_max: u32,
    /// How often the exploration restarted because the explorer learned that a line is shared.
    pub restarts: u64,
    /// The number of lines that are known to be shared.
    pub shared_lines: u64,
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Explored {
    /// The work done, including the work of restarts.
    pub progress: Progress,
    /// Whether all executions were covered.
    pub outcome: Outcome,
    /// The executions to which the judge objected, in the order found.
    pub violations: Vec<Violation>,
    /// The number of executions that were cut at the bound of depth.
    pub cut: u64,
    /// The number of final states in which a coroutine waits forever.
    pub stuck: u64,
}

/// Whether an exploration covered all executions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The exploration covered all executions.
    Exhausted,
    /// The exploration did not cover all executions, because it reached this bound.
    Bounded(Bound),
}

/// The bound that ended an exploration early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The bound [`super::Bounds::executions`].
    Executions,
    /// The bound [`super::Bounds::states`].
    States,
    /// The bound [`super::Bounds::depth`], which cut an execution.
    Depth,
    /// The bound [`super::Bounds::violations`].
    Violations,
    /// The exploration ended because its caller ended it, when the explorer reported progress.
    Caller,
}

/// An execution to which the judge objected.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The judge's objection, or the text of the panic.
    pub text: String,
    /// The schedule that leads to the violation again.
    pub schedule: Schedule,
    /// The events of the execution.
    pub trace: Vec<Step>,
}

/// A schedule that was run again.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The events of the execution.
    pub trace: Vec<Step>,
    /// The judge's verdict.
    pub verdict: Result<(), String>,
    /// The schedule of the whole execution, which begins with the given schedule. After the given
    /// schedule each step took the first enabled transition until the execution ended.
    pub schedule: Schedule,
}

/// How an actor ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// The actor's coroutine has returned.
    Finished,
    /// The actor waits for an event that will never happen.
    Stuck,
    /// The actor's node died before the coroutine returned.
    Dead,
    /// The event after which the actor may start never happened.
    NeverStarted,
}

/// The end of one actor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActorEnd {
    /// The actor's name.
    pub name: String,
    /// The actor's compute node.
    pub node: NodeId,
    /// How the actor ended.
    pub fate: Fate,
}

/// The beginning or the end of a transaction, as the harness reported it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// The transaction began.
    Began,
    /// The transaction's caller learned how the transaction ended.
    Ended,
}

/// The beginning or end of one actor's transaction. A summary lists these marks in the order of true
/// time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marked {
    /// The actor, as a position in the model's actors.
    pub actor: usize,
    /// Whether the transaction began or ended.
    pub mark: Mark,
}

/// A final state's summary, without the cluster.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// The actors, in the model's order.
    pub actors: Vec<ActorEnd>,
    /// The faults that happened, in the order in which they happened.
    pub faults: Vec<Fault>,
    /// The beginnings and ends of transactions, in the order in which they happened.
    pub marks: Vec<Marked>,
}
