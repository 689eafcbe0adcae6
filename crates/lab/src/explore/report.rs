//! The results of an exploration: one row for each item, and the sum of all rows.
//!
//! Invariant: a row is "exhausted" only if the explorer reports that it tried all executions of the item. The sum is
//! "exhausted" only if every row is exhausted. Each state, execution or step is counted once, in the exploration in
//! which it happened. Rates are per second of real time.

use super::order::{FaultKind, Item, Order};
use crate::harness::layout::Layout;
use crate::harness::lines::{put, put_part};
use crate::machine;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use tarn_sim::explore::{Bound, Explored, Outcome};

/// The name of the bound that stopped an item whose time was over.
pub(super) const GAVE_UP: &str = "budget";

/// One violation, with the smallest schedule to which the explorer could shrink it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Found {
    /// A description of the violation.
    pub text: String,
    /// The number of verbs that landed and of other events.
    pub steps: usize,
    /// The number of choices in the execution: which line lands next, which coroutine starts, and which fault
    /// happens.
    pub transitions: u32,
    /// The schedule, which is the list of choices.
    pub schedule: String,
    /// The command that runs the violation again.
    pub replay: String,
}

/// The results of one item.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Row {
    /// The name of the litmus.
    pub litmus: String,
    /// The shape: the numbers of memory nodes and replicas.
    pub shape: String,
    /// The kind of fault that may happen.
    pub fault: &'static str,
    /// The number of executions, which all run from the start.
    pub executions: u64,
    /// The number of different states.
    pub states: u64,
    /// The number of different final states. The judges checked each of these final states.
    pub judged: u64,
    /// The number of steps that were executed. The number of steps includes the steps that the explorer repeated to
    /// return to an earlier choice.
    pub steps: u64,
    /// The number of steps that extended an execution. Steps that the explorer only repeated are not counted.
    pub steps_new: u64,
    /// The number of steps per second.
    pub steps_per_s: f64,
    /// The real time of the exploration, in seconds.
    pub seconds: f64,
    /// The largest number of choices of one execution.
    pub depth_max: u32,
    /// The number of lines that more than one actor touches.
    pub shared_lines: u64,
    /// The number of final states in which a coroutine waits for ever.
    pub stuck: u64,
    /// The number of final states in which a fault had happened.
    pub broken: u64,
    /// Results that some order of the transactions gives, and that no execution had. The report lists missing results
    /// only for exhausted items in which no fault may happen.
    pub not_reached: Vec<String>,
    /// The outcome: `exhausted` or `bounded`.
    pub outcome: &'static str,
    /// The bound that ended the exploration, if the outcome is `bounded`.
    pub bounded_by: Option<&'static str>,
    /// The violations.
    pub violations: Vec<Found>,
}

impl Row {
    /// Creates the row of an item whose exploration panicked. `command` runs the item again.
    pub fn panicked(item: &Item, text: String, command: String) -> Row {
        let found =
            Found { text, steps: 0, transitions: 0, schedule: String::new(), replay: command };
        Row {
            litmus: item.litmus.name.clone(),
            shape: item.shape.to_string(),
            fault: item.fault.name(),
            outcome: outcome_name(false),
            bounded_by: Some("panic"),
            violations: vec![found],
            ..Row::default()
        }
    }

    /// Creates the row of an item that was explored.
    pub fn new(item: &Item, explored: &Explored, took: Duration, violations: Vec<Found>) -> Row {
        let progress = &explored.progress;
        let steps = progress.steps_new + progress.steps_again;
        let bounded_by = match explored.outcome {
            Outcome::Exhausted => None,
            Outcome::Bounded(bound) => Some(bound_name(bound)),
        };
        Row {
            litmus: item.litmus.name.clone(),
            shape: item.shape.to_string(),
            fault: item.fault.name(),
            executions: progress.executions,
            states: progress.states,
            judged: progress.judged,
            steps,
            steps_new: progress.steps_new,
            steps_per_s: rate(steps, took.as_secs_f64()),
            seconds: took.as_secs_f64(),
            depth_max: progress.depth_max,
            shared_lines: progress.shared_lines,
            stuck: explored.stuck,
            outcome: outcome_name(bounded_by.is_none()),
            bounded_by,
            violations,
            ..Row::default()
        }
    }
}

fn rate(steps: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { steps as f64 / seconds } else { 0.0 }
}

fn outcome_name(exhausted: bool) -> &'static str {
    if exhausted { "exhausted" } else { "bounded" }
}

fn bound_name(bound: Bound) -> &'static str {
    match bound {
        Bound::Executions => "executions",
        Bound::States => "states",
        Bound::Depth => "depth",
        Bound::Violations => "violations",
        Bound::Caller => GAVE_UP,
    }
}

/// The sum of rows.
#[derive(Clone, Debug, Serialize)]
pub struct Total {
    /// The number of executions of all items.
    pub executions: u64,
    /// The number of different states, counted separately for each item and added.
    pub states: u64,
    /// The number of steps of all items.
    pub steps: u64,
    /// The number of steps divided by the sum of the items' times, which is the rate of one processor.
    pub steps_per_s: f64,
    /// The outcome: `exhausted` if every item is exhausted.
    pub outcome: &'static str,
    /// The number of exhausted items.
    pub exhausted: usize,
    /// The number of items.
    pub items: usize,
    /// The number of violations.
    pub violations: usize,
    /// The real time of the whole order, in seconds.
    pub seconds: f64,
}

/// The results of an order.
#[derive(Clone, Debug, Serialize)]
pub struct Sum {
    /// The name of the protocol.
    pub protocol: String,
    /// The variant of the protocol.
    pub variant: String,
    /// The isolation level that histories and values must satisfy.
    pub isolation: Option<&'static str>,
    /// The requested layout of records, for litmuses that name no layout.
    pub layout: Option<&'static str>,
    /// The number of crashes of one execution.
    pub crashes: u32,
    /// The rows of the items.
    pub litmus: Vec<Row>,
    /// The sum of all rows.
    pub total: Total,
    /// The number of items that were explored at the same time.
    pub jobs: usize,
    /// The machine on which the exploration ran.
    pub machine: String,
}

impl Sum {
    /// Creates the sum of the rows `litmus`.
    pub fn new(order: &Order, litmus: Vec<Row>, took: Duration) -> Sum {
        let sum = |of: fn(&Row) -> u64| litmus.iter().map(of).sum::<u64>();
        let exhausted = litmus.iter().filter(|row| row.bounded_by.is_none()).count();
        let steps = sum(|row| row.steps);
        let total = Total {
            executions: sum(|row| row.executions),
            states: sum(|row| row.states),
            steps,
            steps_per_s: rate(steps, litmus.iter().map(|row| row.seconds).sum()),
            outcome: outcome_name(exhausted == litmus.len()),
            exhausted,
            items: litmus.len(),
            violations: litmus.iter().map(|row| row.violations.len()).sum(),
            seconds: took.as_secs_f64(),
        };
        Sum {
            protocol: order.protocol.clone(),
            variant: order.variant.clone(),
            isolation: order.isolation(),
            layout: order.layout.map(Layout::name),
            crashes: order.crashes,
            litmus,
            total,
            jobs: order.jobs,
            machine: machine::describe(),
        }
    }

    /// Returns whether the exploration found no violation, and found every right result.
    pub fn is_good(&self) -> bool {
        self.total.violations == 0 && self.litmus.iter().all(|row| row.not_reached.is_empty())
    }

    /// Returns all violations, each with its row.
    pub fn violations(&self) -> impl Iterator<Item = (&Row, &Found)> {
        self.litmus.iter().flat_map(|row| row.violations.iter().map(move |found| (row, found)))
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sum { protocol, variant, crashes, total, .. } = self;
        let isolation = self.isolation.unwrap_or("nothing");
        let layout = self.layout.map_or(String::new(), |name| format!(", records {name}"));
        put!(f =>
            "every order of {protocol} ({variant}{layout}), {crashes} crashes, held against: \
             {isolation}")?;
        put!(f =>
            "{:<18} {:<6} {:<8} {:>10} {:>10} {:>12} {:>9} {:>8}  outcome",
            "litmus", "shape", "fault", "executions", "states", "steps", "steps/s", "seconds")?;
        self.litmus.iter().try_for_each(|row| row.fmt(f))?;
        let Total { executions, states, steps, steps_per_s, seconds, .. } = total;
        put!(f =>
            "{:<34} {executions:>10} {states:>10} {steps:>12} {steps_per_s:>9.0} {seconds:>8.1}  \
             {} of {} exhausted, {} violations",
            "total", total.exhausted, total.items, total.violations)?;
        writeln!(f, "{}; {} at a time", self.machine, self.jobs)?;
        for (row, found) in self.violations() {
            writeln!(f, "\n{} {} {}: {} steps", row.litmus, row.shape, row.fault, found.steps)?;
            found.text.lines().try_for_each(|line| writeln!(f, "    {line}"))?;
            writeln!(f, "{}", found.replay)?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { litmus, shape, fault, executions, states, steps, steps_per_s, seconds, .. } =
            self;
        put_part!(f =>
            "{litmus:<18} {shape:<6} {fault:<8} {executions:>10} {states:>10} {steps:>12} \
             {steps_per_s:>9.0} {seconds:>8.1}  {}", self.outcome)?;
        if !self.violations.is_empty() {
            write!(f, ", VIOLATED")?;
        } else if let Some(bound) = self.bounded_by {
            write!(f, " by {bound}")?;
        }
        if self.stuck > 0 {
            write!(f, ", {} stuck", self.stuck)?;
        }
        if *fault != FaultKind::None.name() {
            write!(f, ", {} ends after a fault", self.broken)?;
        }
        if !self.not_reached.is_empty() {
            write!(f, ", NOT REACHED: {}", self.not_reached.join("; "))?;
        }
        writeln!(f)
    }
}
