//! What an exploration tells: how much it saw, and what it found.
//!
//! Invariant: "exhausted" is said only if nothing was cut: no bound was met, and no execution was left
//! before its end but for a state that was seen before.

use super::actor::Fault;
use super::schedule::Schedule;
use super::trace::Step;
use tarn_fabric::address::NodeId;

/// What was done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Executions, each from the start.
    pub executions: u64,
    /// Different states.
    pub states: u64,
    /// Different final states, each of which was judged.
    pub judged: u64,
    /// Transitions that were taken for the first time on their path.
    pub steps_new: u64,
    /// Transitions that were taken again, to come back to where something was left to choose.
    pub steps_again: u64,
    /// Most choices of one execution.
    pub depth_max: u32,
    /// Times that the exploration began anew because a line turned out to be shared.
    pub restarts: u64,
    /// Lines that are shared, as known by now.
    pub shared_lines: u64,
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Explored {
    /// How much was done, restarts included.
    pub progress: Progress,
    /// Whether that was all.
    pub outcome: Outcome,
    /// What the judge objected to, in the order found.
    pub violations: Vec<Violation>,
    /// Executions cut at the bound of depth.
    pub cut: u64,
    /// Final states in which some coroutine waits for ever.
    pub stuck: u64,
}

/// Whether an exploration saw all there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All of it.
    Exhausted,
    /// Not all, because of this bound.
    Bounded(Bound),
}

/// What ended an exploration early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// [`super::Bounds::executions`].
    Executions,
    /// [`super::Bounds::states`].
    States,
    /// [`super::Bounds::depth`] cut some execution.
    Depth,
    /// [`super::Bounds::violations`].
    Violations,
    /// Whoever was told of progress said so.
    Caller,
}

/// An execution that the judge objected to.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What the judge said, or what panicked.
    pub text: String,
    /// How to get there again.
    pub schedule: Schedule,
    /// What happened.
    pub trace: Vec<Step>,
}

/// A schedule that was run again.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// What happened.
    pub trace: Vec<Step>,
    /// The judge's word.
    pub verdict: Result<(), String>,
    /// The schedule as it was run: the given one, and the first enabled transition wherever that one
    /// ended before the execution did.
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
    /// What it waited for never happened.
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
    /// Whose.
    pub actor: usize,
    /// Which.
    pub mark: Mark,
}

/// A final state's summary, without the cluster.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// The actors, in the model's order.
    pub actors: Vec<ActorEnd>,
    /// What broke, in the order in which it did.
    pub faults: Vec<Fault>,
    /// Beginnings and ends of transactions, in the order in which they happened.
    pub marks: Vec<Marked>,
}
