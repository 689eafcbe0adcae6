//! Runs a workload on a store with several threads, measures it, and checks the sum over all rows.
//!
//! Invariant: a figure counts only committed transactions that ended between the end of the warm-up and the end of the
//! measurement. A run whose sum is wrong gives no figure.

use crate::inputs::{Inputs, Workload};
use crate::store::{Audit, Failure, Load, Session as _, Store, parts};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const END: u8 = 2;

/// The phase of a run, which all threads follow.
pub struct Phase(AtomicU8);

impl Phase {
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed) == END
    }

    pub fn is_measured(&self) -> bool {
        self.0.load(Ordering::Relaxed) == MEASURE
    }
}

/// The counts of a thread.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// The committed transactions of the whole run, and of the measured time.
    pub commits: u64,
    pub measured: u64,
    /// The tries of the whole run that ended by a conflict.
    pub retries: u64,
    /// The change of the sum over all rows.
    pub change: i64,
}

impl Counts {
    pub fn commit(&mut self, phase: &Phase, change: i64) {
        self.commits += 1;
        self.measured += u64::from(phase.is_measured());
        self.change += change;
    }

    pub fn add(&mut self, other: Counts) {
        self.commits += other.commits;
        self.measured += other.measured;
        self.retries += other.retries;
        self.change += other.change;
    }
}

/// A loaded store.
pub trait Contender: Sync {
    /// Runs transactions on the calling thread until the phase ends.
    fn work(&self, seed: u64, phase: &Phase) -> Result<Counts, Failure>;

    /// Sums up all rows.
    fn sum(&self) -> Result<i64, Failure>;
}

/// A loaded store whose calls block.
pub struct Blocking<S> {
    store: S,
    workload: Workload,
}

impl<S: Store> Blocking<S> {
    pub fn load(store: S, workload: Workload) -> Result<Self, Failure> {
        let mut session = store.session()?;
        for part in parts(workload) {
            session.run(&Load(workload, part))?;
        }
        drop(session);
        Ok(Blocking { store, workload })
    }
}

impl<S: Store> Contender for Blocking<S> {
    fn work(&self, seed: u64, phase: &Phase) -> Result<Counts, Failure> {
        let mut session = self.store.session()?;
        let (mut inputs, mut counts) = (Inputs::new(self.workload, seed), Counts::default());
        while !phase.has_ended() {
            let change = session.run(&inputs.next())?;
            counts.commit(phase, change);
        }
        counts.retries = session.retries();
        Ok(counts)
    }

    fn sum(&self) -> Result<i64, Failure> {
        let (mut session, mut sum) = (self.store.session()?, 0);
        for part in parts(self.workload) {
            sum += session.run(&Audit(self.workload, part))?;
        }
        Ok(sum)
    }
}

/// The times of a run.
#[derive(Clone, Copy)]
pub struct Times {
    pub warm_up: Duration,
    pub measure: Duration,
}

/// The result of a run.
#[derive(Clone, Copy)]
pub struct Figure {
    pub per_second: f64,
    /// The share of all tries that ended by a conflict.
    pub abort_share: f64,
}

/// Runs the workload with `threads` threads.
///
/// # Errors
/// A failure of the store, or a wrong sum.
pub fn run(
    contender: &dyn Contender,
    threads: u64,
    seed: u64,
    times: Times,
) -> Result<Figure, Failure> {
    let before = contender.sum()?;
    let phase = Phase(AtomicU8::new(WARM_UP));
    let (counts, elapsed) = std::thread::scope(|scope| {
        let phase = &phase;
        // Each coroutine of a thread has a seed of its own.
        let start = |thread: u64| scope.spawn(move || contender.work(seed + 1_000 * thread, phase));
        let started: Vec<_> = (0..threads).map(start).collect();
        std::thread::sleep(times.warm_up);
        phase.0.store(MEASURE, Ordering::Relaxed);
        let since = Instant::now();
        std::thread::sleep(times.measure);
        phase.0.store(END, Ordering::Relaxed);
        let elapsed = since.elapsed();
        let mut counts = Counts::default();
        for thread in started {
            counts.add(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok::<_, Failure>((counts, elapsed))
    })?;
    let (expected, found) = (before + counts.change, contender.sum()?);
    if found != expected {
        return Err(format!("the sum over all rows is {found}, not {expected}").into());
    }
    let tries = counts.commits + counts.retries;
    Ok(Figure {
        per_second: counts.measured as f64 / elapsed.as_secs_f64(),
        abort_share: counts.retries as f64 / tries.max(1) as f64,
    })
}
