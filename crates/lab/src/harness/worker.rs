//! The coroutines of a phase, and the shared state in which these coroutines put their results.
//!
//! Invariant: a coroutine hands over its tally and its history when its future is dropped. So if a transaction never
//! ends, only the outcome of this transaction is lost. The code of this file works with real time and with virtual
//! time.

use crate::harness::explained;
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tarn_engine::session::coordinator::Coordinator;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::Rng;
use tarn_store::history::RecordedTxn;
use tarn_workloads::Workload;

/// The stages of a phase, which the phase's threads read between transactions.
pub(crate) const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
pub(crate) const STOP: u8 = 2;

/// The signals between the driver and its threads during a phase.
#[derive(Default)]
pub(crate) struct Signals {
    stage: AtomicU8,
    recorded: AtomicU64,
}

impl Signals {
    pub(crate) fn measure(&self) {
        self.stage.store(MEASURE, Ordering::Release);
    }

    pub(crate) fn stop(&self) {
        self.stage.store(STOP, Ordering::Release);
    }

    /// The number of transactions that finished while the phase recorded a history.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.stage() == STOP
    }

    pub(crate) fn stage(&self) -> u8 {
        self.stage.load(Ordering::Relaxed)
    }
}

/// The results that coroutines have handed over.
#[derive(Default)]
pub(crate) struct Left<T> {
    pub(crate) tallies: Vec<T>,
    pub(crate) history: Vec<RecordedTxn>,
    pub(crate) failures: Vec<String>,
}

/// An empty histogram of nanoseconds, up to one minute, with three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

/// A witness is an observer: a coroutine tells it when each transaction begins and ends.
pub(crate) trait Witness {
    /// Tells the witness that a transaction of this kind begins.
    fn begins(&self, kind: usize);
    /// Tells the witness that the transaction that began last has ended.
    fn ends(&self);
}

/// The empty witness, which ignores all transactions.
impl Witness for () {
    #[inline(always)]
    fn begins(&self, _: usize) {}
    #[inline(always)]
    fn ends(&self) {}
}

/// The source from which a coroutine takes its transactions.
pub(crate) trait Source<W: Workload> {
    /// Returns the next transaction, and the time at which it began to wait (`None` if it is drawn only now). The
    /// whole result is `None` if no further transaction will follow.
    async fn next(&self, workload: &W, rng: &mut Rng) -> Option<(W::Input, Option<Nanos>)>;
    /// Tells the source that the transaction has ended; `is_done` is true if the transaction succeeded.
    fn ended(&self, is_done: bool);
}

/// With this source the coroutine draws its transactions itself.
impl<W: Workload> Source<W> for () {
    #[inline(always)]
    async fn next(&self, workload: &W, rng: &mut Rng) -> Option<(W::Input, Option<Nanos>)> {
        Some((workload.draw(rng), None))
    }

    #[inline(always)]
    fn ended(&self, _: bool) {}
}

/// Runs transactions until the phase stops.
pub(crate) async fn coroutine<W: Workload>(
    workload: &W,
    mut seat: Worker<'_, W>,
    signals: &Signals,
    record: bool,
    (witness, source): (impl Witness, impl Source<W>),
) {
    let mut rng = seat.coordinator.context().port.rng();
    let mut count = 0u64;
    while signals.stage() != STOP {
        let Some((input, since)) = source.next(workload, &mut rng).await else { break };
        if let Some(pause) = workload.pause(&input, &mut rng)
            && !wait(&seat, pause, signals).await
        {
            break;
        }
        count += 1;
        let timed = count.is_multiple_of(seat.desk.timed_one_in) && signals.stage() == MEASURE;
        let start =
            timed.then(|| since.unwrap_or_else(|| seat.coordinator.context().port.observed()));
        witness.begins(W::kind(&input));
        let ended = workload.run(&mut seat.coordinator, &input, &mut seat.tally).await;
        witness.ends();
        source.ended(ended.is_ok());
        if let Err(failure) = ended {
            if failure.is_retryable() {
                // The coordinator has used all its tries for this transaction, so the next
                // transaction is drawn.
                seat.desk.given_up.set(seat.desk.given_up.get() + 1);
                if let Some(start) = start {
                    let taken = seat.coordinator.context().port.observed() - start;
                    seat.desk.dropped_ns.borrow_mut().saturating_record(taken.0);
                }
                continue;
            }
            let text = explained(seat.coordinator.context(), failure);
            let kind = W::TRANSACTIONS[W::kind(&input)];
            seat.desk.left.borrow_mut().failures.push(format!("{kind}: {text}"));
            break;
        }
        if let Some(start) = start {
            let taken = seat.coordinator.context().port.observed() - start;
            seat.desk.latency_ns.borrow_mut().saturating_record(taken.0);
        }
        seat.desk.finished(W::kind(&input));
        if record {
            signals.recorded.fetch_add(1, Ordering::Relaxed);
        }
    }
    seat.stands = false;
}

/// The interval at which a pausing coroutine checks whether the phase has stopped.
const LOOK_UP: Nanos = Nanos(10_000_000);

/// Waits for `pause`, unless the phase stops earlier; returns whether the phase goes on.
#[cold]
async fn wait<W: Workload>(seat: &Worker<'_, W>, pause: Nanos, signals: &Signals) -> bool {
    let port = &seat.coordinator.context().port;
    let until = port.now() + pause;
    while signals.stage() != STOP {
        let left = until.0.saturating_sub(port.now().0);
        if left == 0 {
            return true;
        }
        port.sleep(Nanos(left.min(LOOK_UP.0))).await;
    }
    false
}

/// The state of one coroutine. When this state is dropped, the coroutine's results are added to the shared results.
pub(crate) struct Worker<'a, W: Workload> {
    coordinator: Coordinator,
    tally: W::Tally,
    desk: &'a WorkerShared<W::Tally>,
    /// Whether the coroutine is still in a transaction.
    stands: bool,
}

impl<'a, W: Workload> Worker<'a, W> {
    pub(crate) fn new(coordinator: Coordinator, desk: &'a WorkerShared<W::Tally>) -> Worker<'a, W> {
        Worker { coordinator, tally: W::Tally::default(), desk, stands: true }
    }
}

impl<W: Workload> Drop for Worker<'_, W> {
    fn drop(&mut self) {
        let mut left = self.desk.left.borrow_mut();
        left.tallies.push(std::mem::take(&mut self.tally));
        left.history.extend(self.coordinator.take_history());
        if self.stands {
            let ms = self.desk.patience.0 / 1_000_000;
            left.failures.push(format!("a transaction had not ended {ms} ms after its phase"));
        }
    }
}

/// The state that coroutines share: the coroutines of one thread, or of a whole simulated cluster.
pub(crate) struct WorkerShared<T> {
    mix: Vec<Cell<u64>>,
    /// The number of transactions that were aborted in all tries that their coordinator makes.
    given_up: Cell<u64>,
    pub(crate) latency_ns: RefCell<Histogram<u64>>,
    /// The latencies of transactions that were aborted in all tries.
    pub(crate) dropped_ns: RefCell<Histogram<u64>>,
    pub(crate) left: RefCell<Left<T>>,
    /// Out of this number of transactions, the coroutines measure the latency of one.
    timed_one_in: u64,
    /// If a transaction has not ended this long after the end of its phase, the run reports that the transaction
    /// never ends.
    pub(crate) patience: Nanos,
}

impl<T> WorkerShared<T> {
    pub(crate) fn new(kinds: usize, timed_one_in: u64, patience: Nanos) -> WorkerShared<T> {
        let left = Left { tallies: Vec::new(), history: Vec::new(), failures: Vec::new() };
        WorkerShared {
            mix: vec![Cell::new(0); kinds],
            given_up: Cell::new(0),
            latency_ns: RefCell::new(histogram()),
            dropped_ns: RefCell::new(histogram()),
            left: RefCell::new(left),
            timed_one_in,
            patience,
        }
    }

    #[inline]
    fn finished(&self, kind: usize) {
        self.mix[kind].set(self.mix[kind].get() + 1);
    }

    /// The number of coroutines that have handed over their results.
    pub(crate) fn has_left(&self) -> usize {
        self.left.borrow().tallies.len()
    }

    /// The number of transactions so far whose tries were all aborted.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.get()
    }

    /// The number of transactions finished so far, by kind.
    pub(crate) fn mix(&self) -> Vec<u64> {
        self.mix.iter().map(Cell::get).collect()
    }
}
