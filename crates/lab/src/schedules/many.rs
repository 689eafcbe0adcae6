//! Runs the schedules of many seeds at the same time.
//!
//! Invariant: the sum contains all seeds from the first seed to the last, in their order. The last seed is the seed
//! with which the allowed number of failures is reached. So the sum does not depend on the number of jobs. If the
//! time is limited, its end only prevents the start of further seeds.

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
    /// The subject of the runs: a protocol, and the bugs that are planted.
    pub subject: Subject,
    /// The first seed.
    pub first_seed: u64,
    /// The largest number of seeds.
    pub schedules: u64,
    /// The number of threads of this machine that run seeds.
    pub jobs: usize,
    /// The time after which no seed is begun.
    pub budget: Option<Duration>,
    /// The number of seeds that must fail before no further seed is begun. The number is at least 1.
    pub failures_max: usize,
}

/// Runs the seeds until the allowed number of them have failed. After each seed, the function calls `watch` with the
/// sum so far.
///
/// # Errors
/// The error names the unknown protocol, variant or workload.
pub fn run_all(order: &Order, watch: &dyn Fn(&Sum)) -> Result<Sum, UsageError> {
    run_until(order, &AtomicBool::new(false), watch)
}

/// Like [`run_all`], but stops when the caller sets `stop`. After `stop` is set, no further seed begins, and the sum
/// contains all seeds that began before.
///
/// # Errors
/// Returns the same errors as [`run_all`].
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

/// Runs one job, which repeatedly takes the next seed and runs it.
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

/// Adds the results of seeds to the sum, in the order of the seeds, until the allowed number of seeds have failed.
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
