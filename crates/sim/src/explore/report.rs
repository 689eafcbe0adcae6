//! The report of an exploration: how much it saw, and the violations it found.
//!
//! Invariant: "exhausted" is reported only if nothing was cut. That is: no bound was met, and each
//! execution ran to its end or to a state that was seen before.

use super::actor::Fault;
use super::schedule::Schedule;
use super::trace::Step;
use tarn_fabric::address::NodeId;

/// The work done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Executions, each run from the start.
    pub executions: u64,
    /// Different states.
    pub states: u64,
    /// Different final states, each of which was judged.
    pub judged: u64,
    /// Transitions that were taken for the first time on their path.
    pub steps_new: u64,
    /// Transitions that were taken again, to return to a state with choices left.
    pub steps_again: u64,
    /// Largest number of choices in one execution.
    pub depth_max: u32,
    /// How often the exploration began anew because a line turned out to be shared.
    pub restarts: u64,
    /// Number of lines that are known to be shared.
    pub shared_lines: u64,
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Explored {
    /// The work done, restarts included.
    pub progress: Progress,
    /// Whether all executions were covered.
    pub outcome: Outcome,
    /// The executions to which the judge objected, in the order found.
    pub violations: Vec<Violation>,
    /// Executions cut at the bound of depth.
    pub cut: u64,
    /// Final states in which a coroutine waits for ever.
    pub stuck: u64,
}

/// Whether an exploration covered all executions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It covered all of them.
    Exhausted,
    /// It did not, because of this bound.
    Bounded(Bound),
}

/// The bound that ended an exploration early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// [`super::Bounds::executions`].
    Executions,
    /// [`super::Bounds::states`].
    States,
    /// [`super::Bounds::depth`] cut an execution.
    Depth,
    /// [`super::Bounds::violations`].
    Violations,
    /// The caller ended the exploration when it was told of progress.
    Caller,
}

/// An execution to which the judge objected.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The judge's objection, or the text of the panic.
    pub text: String,
    /// The schedule that leads there again.
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
    /// The schedule as it was run: the given one, then the first enabled transition at each further
    /// step until the execution ended.
    pub schedule: Schedule,
}

/// How an actor ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// Its coroutine has returned.
    Finished,
    /// It waits for something that will never happen.
    Stuck,
    /// Its node died before it returned.
    Dead,
    /// The event that it waited for never happened.
    NeverStarted,
}

/// One actor at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActorEnd {
    /// Its name.
    pub name: String,
    /// Its compute node.
    pub node: NodeId,
    /// How it ended.
    pub fate: Fate,
}

/// A transaction's beginning or end, as the harness marked it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// It began.
    Began,
    /// Its caller was told how it ended.
    Ended,
}

/// A mark in the order of true time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marked {
    /// The actor, as a position in the model's actors.
    pub actor: usize,
    /// Beginning or end.
    pub mark: Mark,
}

/// A final state's summary, without the cluster.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// The actors, in the model's order.
    pub actors: Vec<ActorEnd>,
    /// The faults that happened, in that order.
    pub faults: Vec<Fault>,
    /// Beginnings and ends of transactions, in the order in which they happened.
    pub marks: Vec<Marked>,
}
