//! Many seeds side by side.
//!
//! Invariant: the sum has the seeds from the first to the last, or to the one with which enough have failed, in their
//! order: it does not depend on the number of jobs. A budget of time ends the handing out of seeds, and nothing else.

use super::Subject;
use super::report::Sum;
use super::run::{Ran, run_seed};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tarn_engine::protocol::AnyProtocol;
use tarn_store::ids::UsageError;

/// The seeds to run.
#[derive(Clone, Debug)]
pub struct Order {
    /// The subject.
    pub subject: Subject,
    /// The first seed.
    pub first_seed: u64,
    /// Most seeds.
    pub schedules: u64,
    /// Threads of this machine.
    pub jobs: usize,
    /// No seed is begun later than this.
    pub budget: Option<Duration>,
    /// So many seeds fail before no more is begun: 1 at the least.
    pub failures_max: usize,
}

/// Runs the seeds until enough of them have failed; `watch` is told the sum after each.
///
/// # Errors
/// Names the unknown protocol, variant or workload.
pub fn run_all(order: &Order, watch: &dyn Fn(&Sum)) -> Result<Sum, UsageError> {
    run_until(order, &AtomicBool::new(false), watch)
}

/// As [`run_all`], until the caller sets `stop`: no seed is begun after that, and the sum has all that were begun.
///
/// # Errors
/// As [`run_all`].
#[expect(clippy::disallowed_methods, reason = "the program's clock: a budget of real time")]
pub fn run_until(
    order: &Order,
    stop: &AtomicBool,
    watch: &dyn Fn(&Sum),
) -> Result<Sum, UsageError> {
    AnyProtocol::by_name(&order.subject.protocol, &order.subject.variant)?;
    let start = Instant::now();
    let mut sum = Sum::new(&order.subject, order.first_seed, order.jobs.max(1));
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, receiver) = channel();
    let summed = std::thread::scope(|scope| {
        for _ in 0..order.jobs.max(1) {
            let (sender, next, is_over) = (sender.clone(), &next, &is_over);
            scope.spawn(move || work(order, start, (next, [stop, is_over]), &sender));
        }
        drop(sender);
        let summed = add_up(&receiver, order, &mut sum, watch);
        is_over.store(true, Ordering::Relaxed);
        summed
    });
    sum.wall.seconds = start.elapsed().as_secs_f64();
    summed.map(|()| sum)
}

type Numbered = (u64, Result<Ran, UsageError>);

/// One job: takes the next seed, again and again.
fn work(
    order: &Order,
    start: Instant,
    (next, ends): (&AtomicU64, [&AtomicBool; 2]),
    sender: &Sender<Numbered>,
) {
    while !ends.iter().any(|end| end.load(Ordering::Relaxed)) {
        if order.budget.is_some_and(|budget| start.elapsed() >= budget) {
            return;
        }
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= order.schedules {
            return;
        }
        let ran = run_seed(&order.subject, order.first_seed.wrapping_add(index));
        if sender.send((index, ran)).is_err() {
            return;
        }
    }
}

/// Takes results in the order of their seeds, until enough have failed.
fn add_up(
    receiver: &Receiver<Numbered>,
    order: &Order,
    sum: &mut Sum,
    watch: &dyn Fn(&Sum),
) -> Result<(), UsageError> {
    let mut early = BTreeMap::new();
    for (index, ran) in receiver {
        early.insert(index, ran?);
        while let Some(ran) = early.remove(&sum.seeds_run) {
            sum.add(&order.subject, &ran);
            watch(sum);
            if sum.failures.len() >= order.failures_max {
                return Ok(());
            }
        }
    }
    Ok(())
}
