//! Seeded schedules in which compute nodes die, or are declared dead while they still run, and other nodes recover
//! them.
//!
//! Invariant: a schedule depends only on shape, mix and seed. Node 0 is killed, or is declared dead while it still
//! runs, and is expelled later. Node 3 recovers node 0, and may itself be killed or declared dead at any moment. Then
//! node 4 recovers nodes 0 and 3. As soon as node 0 is expelled, a coordinator of node 5 begins under a dead
//! coordinator's number. Indexes grow during the whole schedule. The test never polls or drops a killed coroutine
//! again.

use super::mix::{self, Mix};
use super::weak::{RETRY, WeakFabric};
use super::{Shape, history};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Waiting, Waker};
use tarn_check::{Isolation, check};
use tarn_engine::admin::inspect;
use tarn_engine::admin::last_writes::LastWrites;
use tarn_engine::recovery::{self, Attempt, Pace};
use tarn_engine::session::coordinator::Retry;
use tarn_engine::site::Context;
use tarn_engine::site::metrics::Tally;
use tarn_engine::transaction::HistorySink;
use tarn_fabric::clock::Nanos;
use tarn_store::history::{RecordedTxn, enter};

const WORKERS: u16 = 3;
const FIRST_RECOVERER: u16 = 3;
const SECOND_RECOVERER: u16 = 4;
const LATE: u16 = 5;
const TRANSACTIONS: u64 = 10;
/// The maximum number of turns. If a schedule takes more turns, the test reports that the schedule hangs.
const TURNS_MAX: u64 = 400_000;

/// The sums of the results of all schedules.
#[derive(Default, Debug)]
pub struct Found {
    pub committed: u64,
    pub aborted: u64,
    /// The number of in-doubt transactions that had written nothing.
    pub nothing_written: u64,
    pub deadlines_missed: u64,
    pub tally: Tally,
}

struct Task<'a> {
    slot: u16,
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    done: bool,
}

/// The nodes whose coroutines the test does not poll any more.
#[derive(Default)]
struct Killed(RefCell<Vec<u16>>);

impl Killed {
    fn has(&self, slot: u16) -> bool {
        self.0.borrow().contains(&slot)
    }
}

struct Schedule {
    fabric: WeakFabric,
    contexts: Vec<Rc<Context>>,
    sinks: Vec<HistorySink>,
    missed: Cell<u64>,
    recovered: Cell<u64>,
}

impl Schedule {
    fn worker(&self, number: u32, slot: u16, mix: Mix, seed: u64) -> Task<'_> {
        let cx = &self.contexts[usize::from(slot)];
        let retry = Retry { deadline: Some(Nanos(60_000)), ..RETRY };
        let mut by = mix::coordinator(cx, number, retry, seed);
        by.record_history_in(Rc::clone(&self.sinks[usize::from(slot)]));
        let future = Box::pin(async move {
            let ended = mix::run(&mut by, mix, TRANSACTIONS).await;
            if ended == Err(tarn_store::ids::Failure::DeadlineExceeded) {
                self.missed.set(self.missed.get() + 1);
            }
        });
        Task { slot, future, done: false }
    }

    /// Recovers dead nodes until `wanted` incarnations have been recovered, by this node or by other nodes.
    fn recoverer(&self, slot: u16, wanted: u64) -> Task<'_> {
        let cx = Rc::clone(&self.contexts[usize::from(slot)]);
        let future = Box::pin(async move {
            while self.recovered.get() < wanted {
                for dead in cx.database().membership.unrecovered() {
                    match recovery::recover(&cx, dead).await {
                        Ok(Attempt::Recovered(_)) => self.recovered.set(self.recovered.get() + 1),
                        Ok(_) => {}
                        Err(_) => return, // this node itself is fenced
                    }
                }
                cx.port.sleep(Nanos(20)).await;
            }
            let pace = Pace { blocks: 2, pause_ns: 5, ..Pace::UNPACED };
            let _ = recovery::sweep(&cx, pace).await;
        });
        Task { slot, future, done: false }
    }
}

/// Runs one schedule of the given shape, mix and seed.
pub fn run(shape: &Shape, mix: Mix, seed: u64, found: &mut Found) -> Result<(), String> {
    let fabric = WeakFabric::new(shape, seed);
    let contexts: Vec<_> =
        (0..=LATE).map(|slot| fabric.context(slot, fabric.draw(2) * 16)).collect();
    let sinks = contexts.iter().map(|_| HistorySink::default()).collect();
    let (missed, recovered) = (Cell::new(0), Cell::new(0));
    let schedule = Schedule { fabric, contexts, sinks, missed, recovered };
    let (fabric, contexts) = (&schedule.fabric, &schedule.contexts);
    let membership = &fabric.database.membership;
    let mut tasks: Vec<Task<'_>> = (0..2 * u32::from(WORKERS))
        .map(|number| schedule.worker(number, number as u16 / 2, mix, seed))
        .collect();
    let killed = Killed::default();
    let dies_at = 1 + fabric.draw(2_500) as u64;
    let expelled_at = dies_at + fabric.draw(300) as u64;
    let (kills, second_dies) = (fabric.draw(2) == 0, fabric.draw(2) == 0);
    let second_dies_at = expelled_at + fabric.draw(150) as u64;
    let second_expelled_at = second_dies_at + fabric.draw(100) as u64;
    let second_is_killed = fabric.draw(2) == 0;
    let mut turn = 0;
    while turn <= second_expelled_at || tasks.iter().any(|it| !it.done && !killed.has(it.slot)) {
        turn += 1;
        if turn == dies_at && kills {
            killed.0.borrow_mut().push(0);
        }
        if turn == expelled_at {
            membership.expel(contexts[0].node.id);
            let wanted = 1 + u64::from(second_dies);
            tasks.push(schedule.recoverer(FIRST_RECOVERER, wanted));
            tasks.push(schedule.worker(0, LATE, mix, seed));
        }
        if turn == second_dies_at && second_dies && second_is_killed {
            killed.0.borrow_mut().push(FIRST_RECOVERER);
        }
        if turn == second_expelled_at && second_dies {
            membership.expel(contexts[usize::from(FIRST_RECOVERER)].node.id);
            tasks.push(schedule.recoverer(SECOND_RECOVERER, 2));
        }
        (0..fabric.draw(6)).for_each(|_| fabric.step());
        let chosen = fabric.draw(tasks.len());
        let task = &mut tasks[chosen];
        if !task.done && !killed.has(task.slot) {
            let mut waiting = Waiting::from_waker(Waker::noop());
            task.done = task.future.as_mut().poll(&mut waiting).is_ready();
        }
        if turn > TURNS_MAX {
            std::mem::forget(tasks);
            return Err(format!("seed {seed}, {mix:?}: it does not end"));
        }
    }
    std::mem::forget(tasks); // no code of a killed coroutine may run, not even its drop code
    (0..2_000).for_each(|_| fabric.step());
    let verdict = judge(&schedule, mix, seed, found);
    schedule.fabric.end();
    verdict
}

fn judge(schedule: &Schedule, mix: Mix, seed: u64, found: &mut Found) -> Result<(), String> {
    let Schedule { fabric, contexts, sinks, .. } = schedule;
    let last = &contexts[usize::from(SECOND_RECOVERER)];
    let refuse = |text: String| Err(format!("seed {seed}, {mix:?}: {text}"));
    let left = fabric.database.membership.unrecovered();
    if !left.is_empty() {
        return refuse(format!("not recovered: {left:?}"));
    }
    fabric.block_on(recovery::sweep(last, Pace::UNPACED)).map_err(|it| it.to_string())?;
    contexts.iter().for_each(|cx| found.tally.add(&cx.metrics.snapshot()));
    found.deadlines_missed += schedule.missed.get();
    let mut recorded: Vec<RecordedTxn> = sinks.iter().flat_map(|sink| sink.take()).collect();
    // No memory node dies in these schedules. So transactions of expelled nodes end in the same ways as other
    // transactions.
    let decided = contexts.iter().flat_map(|cx| cx.decisions());
    let entered = enter(&mut recorded, decided, |_| true);
    found.committed += entered.committed;
    found.aborted += entered.undone + entered.nothing_written;
    found.nothing_written += entered.nothing_written;
    if let Some(text) = entered.contradictions.into_iter().next() {
        return refuse(text);
    }
    let differing = LastWrites::of(&recorded, &[]).differing(last);
    if let Some(text) = fabric.block_on(differing).map_err(|it| it.to_string())? {
        return refuse(text);
    }
    let audit = fabric.block_on(inspect::audit(last)).map_err(|it| it.to_string())?;
    let report = check(&history(&fabric.database, recorded), Isolation::StrictSerializable);
    match report.is_accepted() && audit.is_clean() {
        true => Ok(()),
        false => refuse(format!("{report}{audit}")),
    }
}
