//! Explores several items of an order at the same time, within one budget of time.
//!
//! Invariant: the remaining time is shared among the items that have not begun. So if an item ends early, the other
//! items share its time. When all items have run, the items that stopped because their time was over share the time
//! that remains. An item whose time was over restarts if it gets more time than before. The explorer shrinks the
//! schedule of a violation, and the report names one command that replays it. The rows of the report are in the order
//! of the items, whichever item ended first.

use super::cluster::Cluster;
use super::model::{Care, LitmusModel};
use super::order::{FaultKind, Item, Order};
use super::report::{Found, GAVE_UP, Row, Sum};
use crate::harness::panics;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tarn_sim::config::ConfigError;
use tarn_sim::explore::{
    ExploreConfig, Explored, Outcome, Progress, Replayed, Schedule, Step, What, explore,
    has_moments, replay, shrink,
};
use tarn_store::ids::UsageError;

/// The progress of an order.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// The number of items that are done.
    pub done: usize,
    /// The number of all items.
    pub all: usize,
    /// The item that reports its progress.
    pub item: &'a Item,
    /// The progress of the item that reports.
    pub progress: &'a Progress,
}

/// Explores all items of an order. Any item may call `watch` from time to time to report its progress.
///
/// # Errors
/// The error names the unknown value, and the allowed values.
#[expect(clippy::disallowed_methods, reason = "the program's clock: a budget of real time")]
pub fn run(order: &Order, watch: &(dyn Fn(&Now<'_>) + Sync)) -> Result<Sum, UsageError> {
    let items = order.items()?;
    let start = Instant::now();
    let budget = Budget { end: order.budget.map(|budget| start + budget), jobs: order.jobs.max(1) };
    let mut rows: Vec<Option<Row>> = vec![None; items.len()];
    let mut round: Vec<usize> = (0..items.len()).collect();
    while !round.is_empty() {
        for (at, row) in run_round(order, &items, &round, &budget, watch)? {
            rows[at] = Some(row);
        }
        round = budget.again(Instant::now(), &rows);
    }
    Ok(Sum::new(order, rows.into_iter().flatten().collect(), start.elapsed()))
}

/// Explores several items of `round` at the same time. The exploration of each item starts from its beginning.
#[expect(clippy::disallowed_methods, reason = "the program's clock: a budget of real time")]
fn run_round(
    order: &Order,
    items: &[Item],
    round: &[usize],
    budget: &Budget,
    watch: &(dyn Fn(&Now<'_>) + Sync),
) -> Result<Vec<(usize, Row)>, UsageError> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(items.len() - round.len()));
    let rows: Mutex<Vec<(usize, Row)>> = Mutex::default();
    let work = || -> Result<(), UsageError> {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let Some(&at) = round.get(turn) else { return Ok(()) };
            let item = &items[at];
            let until = budget.until(Instant::now(), round.len() - turn);
            let tell = |progress: &Progress| {
                let done = done.load(Ordering::Relaxed);
                watch(&Now { done, all: items.len(), item, progress });
            };
            let row = or_panicked(order, item, || explore_item(order, item, until, &tell))?;
            done.fetch_add(1, Ordering::Relaxed);
            rows.lock().expect("nobody panics with it").push((at, row));
        }
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..budget.jobs).map(|_| scope.spawn(work)).collect();
        jobs.into_iter().try_for_each(|job| job.join().expect("a job ends"))
    })?;
    Ok(rows.into_inner().expect("nobody panics with it"))
}

/// Explores an item. A panic becomes a violation of the item, and the exploration of the other items
/// continues.
fn or_panicked(
    order: &Order,
    item: &Item,
    explore: impl FnOnce() -> Result<Row, UsageError>,
) -> Result<Row, UsageError> {
    panics::catch(explore).unwrap_or_else(|text| {
        Ok(Row::panicked(item, format!("panic: {text}"), order.command(item)))
    })
}

/// The time at which the whole order must stop, and the number of items that run at the same time.
struct Budget {
    end: Option<Instant>,
    jobs: usize,
}

impl Budget {
    /// Returns the time at which the next of `waiting` items must stop. The number `waiting` includes this next item.
    fn until(&self, now: Instant, waiting: usize) -> Option<Instant> {
        let end = self.end?;
        let left = end.saturating_duration_since(now);
        let share = left.mul_f64(self.jobs as f64 / waiting.max(self.jobs) as f64);
        Some(now + share.min(left))
    }

    /// Returns the items that are explored again because enough time remains. Only items that stopped because their
    /// time was over can be chosen. The function chooses as many items as possible, if each of them gets more time
    /// than it had before.
    fn again(&self, now: Instant, rows: &[Option<Row>]) -> Vec<usize> {
        let gave_up = |row: &Row| row.bounded_by == Some(GAVE_UP) && row.violations.is_empty();
        let rows = rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.as_ref()?)));
        let mut those: Vec<(usize, f64)> =
            rows.filter(|(_, row)| gave_up(row)).map(|(at, row)| (at, row.seconds)).collect();
        those.sort_by(|one, other| one.1.total_cmp(&other.1));
        while let Some((_, had)) = those.last() {
            match self.until(now, those.len()) {
                Some(until) if (until - now).as_secs_f64() > *had => break,
                _ => those.pop(),
            };
        }
        let mut again: Vec<usize> = those.into_iter().map(|(at, _)| at).collect();
        again.sort_unstable();
        again
    }
}

/// Returns the model of an item, and the configuration of its exploration.
///
/// # Errors
/// The error names the value that cannot be used.
pub fn prepare(order: &Order, item: &Item) -> Result<(LitmusModel, ExploreConfig), UsageError> {
    let litmus = Rc::new(item.litmus.clone());
    let cluster = Cluster::new(&litmus, item.shape, (&order.protocol, &order.variant))?;
    let group_bytes = cluster.catalog.group_bytes();
    let nodes = (item.shape.memory_nodes, cluster.compute_nodes());
    let config = ExploreConfig {
        replicas: item.shape.replicas,
        spares: item.shape.spares,
        faults: item.fault.budget(order.crashes, item.shape, order.recovers()?),
        bounds: order.bounds,
        // The explorer ends a coroutine's sleep when the state has changed, or once without a change. No coroutine of
        // the model has a deadline or a limit of patience.
        idle_sleeps: 1,
        ..ExploreConfig::new(nodes.0, nodes.1, group_bytes)
    };
    let care = Care::of(&config.faults, item.shape, order.crashes);
    Ok((LitmusModel::new(cluster, care), config))
}

#[expect(clippy::disallowed_methods, reason = "the program's clock: a budget of real time")]
fn explore_item(
    order: &Order,
    item: &Item,
    until: Option<Instant>,
    tell: &dyn Fn(&Progress),
) -> Result<Row, UsageError> {
    let (model, config) = prepare(order, item)?;
    let start = Instant::now();
    let mut progress = |progress: &Progress| {
        tell(progress);
        match until {
            Some(until) if Instant::now() >= until => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let explored = explore(&model, &config, &mut progress).map_err(usage)?;
    let seconds = start.elapsed();
    let broken = model.broken();
    // A result is reported as missing only if the exploration is exhausted, because other executions may still give
    // the result.
    let has_all = item.fault == FaultKind::None && explored.outcome == Outcome::Exhausted;
    let not_reached = if has_all { model.not_reached() } else { Vec::new() };
    let found = found(order, item, (&model, &config), &explored)?;
    Ok(Row { broken, not_reached, ..Row::new(item, &explored, seconds, found) })
}

fn found(
    order: &Order,
    item: &Item,
    (model, config): (&LitmusModel, &ExploreConfig),
    explored: &Explored,
) -> Result<Vec<Found>, UsageError> {
    let mut all = Vec::new();
    for violation in &explored.violations {
        let small = shrink(model, config, violation).map_err(usage)?;
        let schedule = small.schedule.to_string();
        let untimed =
            if has_moments(&small.trace) { "" } else { " (in an execution that no clock shows)" };
        all.push(Found {
            text: format!("{}{untimed}", small.text),
            steps: steps(&small.trace),
            transitions: small.trace.last().map_or(0, |step| step.number),
            replay: order.replay(item, &schedule),
            schedule,
        });
    }
    Ok(all)
}

/// Returns the length of a trace: the number of its verbs plus the number of its other events at nodes. A verb counts
/// once, even if it has several lines.
pub fn steps(trace: &[Step]) -> usize {
    let mut verbs: Vec<(Option<usize>, u32, u32)> = Vec::new();
    let mut events = 0;
    for step in trace {
        match &step.what {
            What::Landed { round, verb, .. } => verbs.push((step.actor, *round, *verb)),
            What::Broke(_) | What::Revoked { .. } | What::MessageDelivered { .. } => events += 1,
            _ => {}
        }
    }
    verbs.sort_unstable();
    verbs.dedup();
    verbs.len() + events
}

/// Runs one schedule of an item again, and records the phases of its rounds. The returned model holds the results.
///
/// # Errors
/// Fails if the schedule names a choice that does not exist.
pub fn replay_item(
    order: &Order,
    item: &Item,
    schedule: &Schedule,
) -> Result<(LitmusModel, Replayed), UsageError> {
    let (model, config) = prepare(order, item)?;
    model.watch();
    let replayed = replay(&model, &config, schedule).map_err(usage)?;
    Ok((model, replayed))
}

fn usage(error: ConfigError) -> UsageError {
    let ConfigError { field, value, allowed } = error;
    // The user gives a schedule with the option `--replay`, so the error names this option.
    let field = if field == "schedule" { "replay".to_owned() } else { field.replace('_', "-") };
    UsageError { field, value, allowed }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
