//! Runs an outage: starts the nodes, crashes some of them, and restarts them.
//!
//! Invariant: a transaction counts only if its caller has learned that the transaction is committed.

use super::books::{Account, Books};
use super::judge::{Known, judge};
use super::report::{Event, Outage};
use super::stage::Stage;
use super::{Plan, Shape};
use crate::harness::error::RunError;
use crate::harness::mortal::Lives;
use crate::harness::{in_words, rest};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tarn::cluster::OpenError;
use tarn_engine::admin::repair::{Repaired, repair};
use tarn_engine::recovery::reconfigure::Terms;
use tarn_engine::recovery::{self, Pace, Share};
use tarn_engine::requests::serve;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::{ComputeNode, Context, admission_gate};
use tarn_fabric::address::{GroupId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_sim::scheduler::Ended;
use tarn_store::ids::{Explanation, Failure, Resolution};
use tarn_workloads::{Untold, Workload};

/// The virtual time between two checks of the cluster by the driver.
const SLICE: Nanos = Nanos(20_000);
/// If a transaction has not ended this long after the end of the run, the run reports that the transaction never
/// ends.
const PATIENCE: Nanos = Nanos(100_000_000);
/// The membership service learns of a dead node from the lapsed lease, or, without leases, from the crash itself. So
/// the patience in these terms concerns only members that hang. Under load, a thread may need milliseconds to end its
/// last try, and the service must not treat this thread as hanging.
const TERMS: Terms = Terms { patience_ns: 20_000_000, look_every_ns: 1_000 };
const LOOK_EVERY_NS: u64 = 10_000;

fn pace(shape: &Shape) -> Pace {
    let [sweep_share, copy_share] =
        [shape.sweep_share_percent, shape.copy_share_percent].map(Share::percent);
    Pace { sweep_share, copy_share, look_every_ns: LOOK_EVERY_NS, ..Pace::default() }
}

/// The state that all coroutines of an outage share.
struct Desk {
    stop: Cell<bool>,
    /// The number of acknowledged transactions in each interval.
    counts: RefCell<Vec<u64>>,
    interval_ns: u64,
    /// The time at which the phase began.
    start: Cell<Nanos>,
    events: RefCell<Vec<Event>>,
    failures: RefCell<Vec<String>>,
}

impl Desk {
    fn count(&self, now: Nanos) {
        let at = ((now - self.start.get()).0 / self.interval_ns) as usize;
        if let Some(count) = self.counts.borrow_mut().get_mut(at) {
            *count += 1;
        }
    }

    fn event(&self, now: Nanos, what: String) {
        let at_ms = (now - self.start.get()).0 as f64 / 1e6;
        self.events.borrow_mut().push(Event { at_ms, what });
    }
}

/// The nodes that take part in an outage, with their coordinators.
struct Cast<W: Workload> {
    workload: Rc<W>,
    books: Books<W>,
    desk: Rc<Desk>,
    shape: Shape,
    /// Whether the latest incarnation of each slot is dead.
    dead: RefCell<Vec<Rc<Cell<bool>>>>,
}

impl<W: Workload + 'static> Cast<W> {
    /// Starts an incarnation of a compute node: its coordinators, and its coroutines for leases,
    /// recovery and copies.
    fn bring(
        &self,
        stage: &Stage,
        lives: &mut Lives<'static>,
        node: &Arc<ComputeNode>,
    ) -> Result<(), OpenError> {
        let (shape, slot) = (&self.shape, usize::from(node.id.slot.0));
        let is_dead = Rc::new(Cell::new(false));
        self.dead.borrow_mut()[slot] = Rc::clone(&is_dead);
        for thread in 0..shape.threads {
            let cx = stage.thread(node, thread)?;
            for coroutine in 0..shape.coroutines {
                let number = (slot * shape.threads + thread) * shape.coroutines + coroutine;
                let by = Coordinator::new(Rc::clone(&cx), number as u32, Retry::default());
                let (workload, desk) = (Rc::clone(&self.workload), Rc::clone(&self.desk));
                let body = coordinate(workload, by, desk, self.books.open());
                lives.spawn(&is_dead, &cx, body);
            }
            self.serve(lives, &is_dead, &cx);
        }
        let keeper = stage.thread(node, shape.threads)?;
        let own = || (Rc::clone(&keeper), Rc::clone(&self.desk));
        let (cx, desk) = own();
        lives.spawn(&is_dead, &keeper, async move {
            admission_gate::keep(&cx, || desk.stop.get()).await;
        });
        lives.spawn(&is_dead, &keeper, keep_lives(own(), pace(shape)));
        self.serve(lives, &is_dead, &keeper);
        lives.spawn(&is_dead, &keeper, keep_copies(own(), pace(shape)));
        Ok(())
    }

    fn serve(&self, lives: &mut Lives<'static>, is_dead: &Rc<Cell<bool>>, cx: &Rc<Context>) {
        let desk = Rc::clone(&self.desk);
        lives.serve(is_dead, cx, move || desk.stop.get());
    }
}

async fn coordinate<W: Workload>(
    workload: Rc<W>,
    mut by: Coordinator,
    desk: Rc<Desk>,
    account: Rc<Account<W>>,
) {
    let cx = Rc::clone(by.context());
    let (mut rng, mut tally) = (cx.port.rng(), W::Tally::default());
    while !desk.stop.get() {
        let input = account.begin(workload.draw(&mut rng));
        let result = workload.run(&mut by, &input, &mut tally).await;
        let now = cx.port.observed();
        let ended = result.map_err(|failure| (failure, cx.explanation(failure)));
        if let Err((_, Some(Explanation::Unknown(id)))) = ended {
            // If the node crashes while this call waits, the transaction stays in doubt.
            let resolved = by.resolve(id).await;
            let untold = match resolved {
                Ok(Resolution::Committed) => Untold::Committed,
                Ok(Resolution::Aborted) => Untold::Aborted,
                Err(_) => Untold::Unknown,
            };
            workload.untold(&input, untold, &mut tally);
            account.end(&tally);
            if untold == Untold::Committed {
                desk.count(cx.port.observed());
            }
            continue;
        }
        account.end(&tally);
        match ended {
            Ok(()) => desk.count(now),
            Err((Failure::Fabric, _)) if !cx.database().membership.is_member(cx.node.id) => return,
            Err((Failure::Fabric, _)) => cx.port.sleep(Nanos(5_000)).await,
            Err((failure, explanation)) => {
                desk.failures.borrow_mut().push(in_words(failure, explanation));
                return;
            }
        }
    }
}

async fn keep_lives((cx, desk): (Rc<Context>, Rc<Desk>), pace: Pace) {
    let report = |dead, recovery: &recovery::Recovery| {
        let settled = recovery.settled.len();
        desk.event(cx.port.observed(), format!("{dead} recovered ({settled} logs settled)"));
    };
    let _ = recovery::attend(&cx, pace, || desk.stop.get(), report).await;
}

async fn keep_copies((cx, desk): (Rc<Context>, Rc<Desk>), pace: Pace) {
    let report = |repaired| {
        let what = match repaired {
            Repaired::Changed { number, frozen_ns } => {
                format!("configuration {} opened, frozen for {frozen_ns} ns", number.0)
            }
            Repaired::Joined { number, frozen_ns, copied } => format!(
                "configuration {} opened, frozen for {frozen_ns} ns: copies complete, {} units, {} \
                 looked at again, {} bytes written",
                number.0, copied.units, copied.again, copied.bytes
            ),
            Repaired::Recovered(dead, recovery) => {
                format!("{dead} recovered ({} logs settled)", recovery.settled.len())
            }
        };
        desk.event(cx.port.observed(), what);
    };
    let _ = repair(&cx, TERMS, pace, || desk.stop.get(), report).await;
}

/// Runs a workload through an outage; the function calls `progress` with the elapsed part of the run, in thousandths.
///
/// # Errors
/// Fails if the plan cannot be run, or if a step of the run fails.
pub fn run<W: Workload + 'static>(
    workload: W,
    plan: &Plan,
    progress: &dyn Fn(u64),
) -> Result<Outage, RunError> {
    run_and_meddle(workload, plan, progress, &|_| {})
}

/// Runs like [`run`], but calls `meddle`, which changes the memory before the judge checks it.
pub(super) fn run_and_meddle<W: Workload + 'static>(
    workload: W,
    plan: &Plan,
    progress: &dyn Fn(u64),
    meddle: &dyn Fn(&Rc<Context>),
) -> Result<Outage, RunError> {
    plan.validate()?;
    let stage = Stage::new(&workload, plan)?;
    load(&workload, &stage)?;
    let shape = plan.shape.clone();
    let interval_ns = (shape.interval_ms * 1e6) as u64;
    let intervals = (shape.virtual_ms / shape.interval_ms + 1e-6) as usize;
    let dead = (0..shape.compute_nodes).map(|_| Rc::default()).collect();
    let desk = Rc::new(Desk {
        stop: Cell::new(false),
        counts: RefCell::new(vec![0; intervals]),
        interval_ns,
        start: Cell::new(stage.fabric.now()),
        events: RefCell::default(),
        failures: RefCell::default(),
    });
    let records = workload.records();
    let cast = Cast {
        workload: Rc::new(workload),
        books: Books::default(),
        desk: Rc::clone(&desk),
        shape,
        dead: RefCell::new(dead),
    };
    let mut lives = Lives::new(&stage.fabric);
    let all_ended = play(&cast, &stage, &mut lives, progress)?;
    let Lives { mut scheduler, graveyard } = lives;
    if all_ended {
        scheduler.drain();
    }
    let is_swept = is_mended(&cast, &stage);
    drop(scheduler);
    let cx = stage.thread(&stage.join_any(cast.shape.compute_nodes)?, 0)?;
    meddle(&cx);
    let (tally, unknown) = cast.books.close(&cast.workload);
    let (copies, failures) = (copies(&stage), desk.failures.take());
    let known = Known { tally, unknown, is_swept, copies, all_ended, failures };
    let checks = judge(&*cast.workload, &cx, known)?;
    let outage = Outage::new::<W>(plan, records, desk.counts.take(), desk.events.take(), checks);
    drop(graveyard);
    Ok(outage)
}

/// Returns the number of members of the smallest replica group.
fn copies(stage: &Stage) -> usize {
    let groups = stage.database.groups();
    let members = (0..groups.count() as u16).map(|group| groups.members(GroupId(group)).len());
    members.min().unwrap_or(0)
}

fn load<W: Workload>(workload: &W, stage: &Stage) -> Result<(), RunError> {
    let node = stage.join(0)?;
    let cx = stage.thread(&node, 0)?;
    let loaded = rest::load(workload, &cx, rest::ALL, &|_| {});
    loaded.map_err(|failure| RunError::Failed(format!("loading: {failure}")))?;
    stage.database.membership.leave(node.id);
    Ok(())
}

/// Executes the whole plan: the run before the crash, the crash, the restart of machines, and the end of the run.
/// Returns whether every coroutine of the live nodes ended.
fn play<W: Workload + 'static>(
    cast: &Cast<W>,
    stage: &Stage,
    lives: &mut Lives<'static>,
    progress: &dyn Fn(u64),
) -> Result<bool, RunError> {
    let (shape, desk) = (&cast.shape, &cast.desk);
    let mut owners = Vec::new();
    for slot in 0..shape.compute_nodes as u16 {
        let node = stage.join(slot)?;
        owners.push(node.id);
        cast.bring(stage, lives, &node)?;
    }
    serve::share_out(&stage.database, &owners);
    let start = desk.start.get();
    let at = |ms: f64| start + Nanos((ms * 1e6) as u64);
    let (crash_at, end) = (at(shape.crash_at_ms), at(shape.virtual_ms));
    let restart_at = at(shape.crash_at_ms + shape.restart_ms);
    let (mut to_crash, mut is_unswept) = (true, false);
    let crashing = shape.compute_nodes - shape.crash_compute..shape.compute_nodes;
    let mut to_restart: Vec<u16> = crashing.map(|slot| slot as u16).collect();
    // If the recovery of a crashed node is not complete at the end of the run, the function first completes this
    // recovery. The memory is checked afterwards.
    let is_due = |now: Nanos| now < end || now < end + PATIENCE && !is_mended(cast, stage);
    while is_due(stage.fabric.now()) {
        let now = stage.fabric.now();
        let next = if now < end { (now + SLICE).min(end) } else { now + SLICE };
        lives.scheduler.run_until(if to_crash { next.min(crash_at) } else { next });
        let now = stage.fabric.now();
        progress(((now - start).0 * 1_000 / (end - start).0.max(1)).min(1_000));
        for lapsed in stage.membership.tick(now) {
            desk.event(now, format!("the lease of {lapsed} has lapsed"));
            stage.database.membership.expel(lapsed);
        }
        if std::mem::replace(&mut is_unswept, stage.database.sweeps.is_due()) && !is_unswept {
            desk.event(now, "sweep over: the dead have left no lock".into());
        }
        if to_crash && now >= crash_at {
            to_crash = false;
            crash(cast, stage, now);
        }
        if !to_crash && now >= restart_at && now <= end {
            let mut later = Vec::new();
            for slot in std::mem::take(&mut to_restart) {
                if !stage.is_free(slot) {
                    later.push(slot);
                    continue;
                }
                let node = stage.join(slot)?;
                desk.event(now, format!("{} has joined", node.id));
                cast.bring(stage, lives, &node)?;
            }
            to_restart = later;
        }
    }
    desk.stop.set(true);
    Ok(lives.scheduler.run_until(stage.fabric.now() + PATIENCE) == Ended::Finished)
}

/// Returns whether all repairs are complete. When all repairs are complete, the dead nodes are expelled and
/// recovered, their locks are removed, and their shards are open. In addition, the spares hold the lost copies, as
/// far as the cluster has spares.
fn is_mended<W: Workload>(cast: &Cast<W>, stage: &Stage) -> bool {
    let shape = &cast.shape;
    let lost = shape.crash_memory.saturating_sub(shape.spare_nodes);
    let is_noticed =
        |slot: usize| !cast.dead.borrow()[slot].get() || stage.members_of(slot as u16).is_empty();
    let lives = |node: NodeSlot| usize::from(node.0) >= shape.crash_memory;
    (0..shape.compute_nodes).all(is_noticed)
        && !stage.database.sweeps.is_due()
        && rest::is_mended(&stage.database, lives, |_| shape.replicas - lost)
}

fn crash<W: Workload>(cast: &Cast<W>, stage: &Stage, now: Nanos) {
    let (shape, desk) = (&cast.shape, &cast.desk);
    for node in 0..shape.crash_memory {
        desk.event(now, format!("memory node {node} crashes"));
        stage.fabric.fail_node(NodeSlot(node as u16));
    }
    for slot in shape.compute_nodes - shape.crash_compute..shape.compute_nodes {
        desk.event(now, format!("compute node {slot} crashes"));
        cast.dead.borrow()[slot].set(true);
        if shape.lease_ms == 0.0 {
            let lives = stage.members_of(slot as u16);
            lives.into_iter().for_each(|life| _ = stage.database.membership.expel(life));
        }
    }
}
