//! The results of an order: a row an item, and the sum.
//!
//! Invariant: "exhausted" is the explorer's word, and of the sum only if it is every row's. A state, an execution, a step
//! is counted once, where it was. Rates are of real time.

use super::order::{FaultKind, Item, Order};
use crate::harness::layout::Layout;
use crate::harness::lines::{put, put_part};
use crate::machine;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use tarn_sim::explore::{Bound, Explored, Outcome};

/// The bound of an item whose time was up.
pub(super) const GAVE_UP: &str = "budget";

/// One violation, made small.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Found {
    /// A description of the violation.
    pub text: String,
    /// Verbs that landed, and other events.
    pub steps: usize,
    /// Choices of the execution: lines, starts, faults.
    pub transitions: u32,
    /// The choices.
    pub schedule: String,
    /// The command that runs it again.
    pub replay: String,
}

/// The results of one item.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Row {
    /// The litmus.
    pub litmus: String,
    /// Memory nodes and replicas.
    pub shape: String,
    /// The kind of fault that may happen.
    pub fault: &'static str,
    /// Runs from the start.
    pub executions: u64,
    /// Different states.
    pub states: u64,
    /// Different final states, each of which was judged.
    pub judged: u64,
    /// Steps that were executed, those again that lead back to a choice included.
    pub steps: u64,
    /// Steps that were executed for the first time on their path.
    pub steps_new: u64,
    /// Steps by seconds.
    pub steps_per_s: f64,
    /// Real time.
    pub seconds: f64,
    /// Most choices of one execution.
    pub depth_max: u32,
    /// Lines that more than one actor touches.
    pub shared_lines: u64,
    /// Final states in which a coroutine waits for ever.
    pub stuck: u64,
    /// Final states in which something had broken.
    pub broken: u64,
    /// Results that some order of the transactions gives, and that no execution had: of items that are
    /// exhausted and in which nothing may break.
    pub not_reached: Vec<String>,
    /// `exhausted` or `bounded`.
    pub outcome: &'static str,
    /// The bound, if it was bounded.
    pub bounded_by: Option<&'static str>,
    /// The violations.
    pub violations: Vec<Found>,
}

impl Row {
    /// Makes the row of an item whose exploration broke an invariant of ours; `command` runs it again.
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

    /// Makes the row of an item that was explored.
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
    /// Runs from the start.
    pub executions: u64,
    /// Different states, item by item.
    pub states: u64,
    /// Steps.
    pub steps: u64,
    /// Steps by the sum of the items' seconds: of one processor.
    pub steps_per_s: f64,
    /// `exhausted` if every item is.
    pub outcome: &'static str,
    /// Items that are.
    pub exhausted: usize,
    /// Items.
    pub items: usize,
    /// How many are wrong.
    pub violations: usize,
    /// Real time of all.
    pub seconds: f64,
}

/// The results of an order.
#[derive(Clone, Debug, Serialize)]
pub struct Sum {
    /// The protocol.
    pub protocol: String,
    /// Its variant.
    pub variant: String,
    /// The isolation that histories and values were held against.
    pub isolation: Option<&'static str>,
    /// How records lie, where litmuses name no layout and another was asked for.
    pub layout: Option<&'static str>,
    /// Crashes of one execution.
    pub crashes: u32,
    /// Item by item.
    pub litmus: Vec<Row>,
    /// All of it.
    pub total: Total,
    /// Items at a time.
    pub jobs: usize,
    /// The machine that it ran on.
    pub machine: String,
}

impl Sum {
    /// Adds up these rows.
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

    /// Whether nothing is wrong, and nothing that is right was missed.
    pub fn is_good(&self) -> bool {
        self.total.violations == 0 && self.litmus.iter().all(|row| row.not_reached.is_empty())
    }

    /// Everything that is wrong.
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
