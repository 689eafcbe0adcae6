//! Runs in which memory nodes and compute nodes die, while transactions run and other threads repair the cluster.
//!
//! Invariant: a run depends only on its scene and seed. Coordinators of three compute nodes run transactions. One
//! thread of each node maintains the copies, and another thread recovers dead nodes. The test does not poll the
//! coroutines of a dead node until the end. At the end, all nodes learn how their transactions ended.

use super::history;
use super::mix::{self, Mix};
use super::weak::{RETRY, WeakFabric};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tarn_check::{Isolation, Report, check};
use tarn_engine::admin::inspect::{self, Audit};
use tarn_engine::admin::last_writes::LastWrites;
use tarn_engine::admin::repair::{Repaired, repair};
use tarn_engine::recovery::reconfigure::{Changed, Terms, change};
use tarn_engine::recovery::{self, Pace};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::Context;
use tarn_engine::site::metrics::Tally;
use tarn_engine::steps::recorder::decisions;
use tarn_fabric::address::{GroupId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, TaskId};
use tarn_store::history::{RecordedTxn, enter};
use tarn_store::ids::{Explanation, Failure, Resolution, TxnId};
use tarn_store::placement::replica_groups::ReplicaGroups;

pub const NODES: u16 = 3;
pub const COORDINATORS: usize = 2;
/// The maximum number of steps of a run. After this number of steps the test expects no more progress.
pub const STEPS_MAX: u64 = 6_000_000;
/// The length of readers' leases, for protocols with leases. A lease lasts as long as some rounds.
const READ_LEASE_NS: u32 = 60;
pub const PACE: Pace = Pace { blocks: 6, pause_ns: 40, look_every_ns: 150, ..Pace::UNPACED };
pub const TERMS: Terms = Terms { patience_ns: 30_000, look_every_ns: 40 };

/// The node that dies, and the time when it is expelled.
#[derive(Clone, Copy, Debug)]
pub enum Death {
    Memory(u16),
    /// This compute node is expelled immediately.
    Compute(u16),
    /// This compute node is expelled only when its lease lapses, much later.
    Silent(u16),
}

/// The moment of a death, counted in turns of the scheduler.
#[derive(Clone, Copy, Debug)]
pub enum When {
    Turn(u64),
    /// The node dies this many turns after a copy began to join.
    Joining(u64),
    /// The node dies when this compute node sends its data for the n-th time.
    Writing(u16, u64),
    /// The node dies this many turns after the previous death.
    After(u64),
}

/// The number of turns between the death of a silent node and its expulsion.
pub const LEASE: u64 = 15_000;
/// The number of transactions that each living node runs after the repair. The next constant is the maximum number of
/// tries of each transaction.
const PROBES: u64 = 6;
const PROBE_TRIES_MAX: u32 = 50;

#[derive(Clone, Debug)]
pub struct Scene {
    pub protocol: &'static str,
    pub mix: Mix,
    pub count: u64,
    pub memory_nodes: usize,
    pub replicas: usize,
    pub spares: u16,
    pub deaths: Vec<(When, Death)>,
    pub rotation: Rotation,
}

/// How primaries move between nodes while no node dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// The primaries do not move.
    None,
    /// The primaries move between nodes all the time. Each move happens while no transaction runs.
    Quiet,
    /// The primaries move all the time, even while transactions run: a planted bug.
    Hasty,
}

/// The results of a run.
pub struct Outcome {
    pub report: Report,
    pub audit: Audit,
    /// A list of errors: contradictions, records that differ from their last write, and transactions that failed.
    pub wrong: Vec<String>,
    pub tally: Tally,
    pub whole: bool,
    /// Whether all nodes are primary of the same number of groups, with a difference of at most one.
    pub even: bool,
    pub rotations: u64,
    pub ended: bool,
}

impl Outcome {
    #[track_caller]
    pub fn assert_sound(&self, seed: u64, scene: &Scene) {
        let (report, audit) = (&self.report, &self.audit);
        assert!(self.ended, "seed {seed}: it never ended; {scene:?}");
        assert!(report.is_accepted(), "seed {seed}: {report}; {scene:?}");
        assert!(audit.is_clean(), "seed {seed}: {audit}; {scene:?}");
        assert!(self.wrong.is_empty(), "seed {seed}: {:?}; {scene:?}", self.wrong);
        assert!(self.whole, "seed {seed}: fewer copies than at first; {scene:?}");
        let rotates = scene.rotation != Rotation::None;
        assert!(self.even || rotates, "seed {seed}: primaries are not spread; {scene:?}");
    }

    pub fn is_sound(&self) -> bool {
        self.ended && self.report.is_accepted() && self.audit.is_clean() && self.wrong.is_empty()
    }
}

/// The state that the coroutines of a run share, and the results that they store.
#[derive(Default)]
pub struct Desk {
    history: RefCell<Vec<RecordedTxn>>,
    settled: RefCell<Vec<(TxnId, Resolution)>>,
    /// The failures that no death explains.
    failures: RefCell<Vec<String>>,
    stop: Cell<bool>,
    /// For each compute node, the number of coordinators that have not ended.
    running: Cell<[usize; NODES as usize]>,
    rotations: Cell<u64>,
}

impl Desk {
    fn end(&self, slot: u16) {
        let mut running = self.running.get();
        running[usize::from(slot)] -= 1;
        self.running.set(running);
    }

    fn note(&self, settled: &[(TxnId, Resolution)]) {
        self.settled.borrow_mut().extend(settled);
    }
}

/// Runs a coordinator's transactions. The function returns early once the coordinator's node is expelled.
pub async fn coordinate(mut by: Coordinator, mix: Mix, count: u64, desk: &Desk) {
    let cx = Rc::clone(by.context());
    by.record_history();
    for number in 0..count {
        let plan = mix.plan(by.rng());
        let value = rand::RngExt::random::<u64>(by.rng()) ^ number;
        let result = by.transact(async |tx| plan.run(tx, value).await).await;
        let Err(failure) = result else { continue };
        if !is_explained(failure) {
            desk.failures.borrow_mut().push(format!("a transaction failed: {failure}"));
        }
        if let Some(Explanation::Unknown(id)) = cx.explanation(failure) {
            while by.resolve(id).await.is_err() && is_member(&cx) {
                cx.port.sleep(Nanos(100)).await;
            }
        }
        let goes_on = failure != Failure::Usage && is_member(&cx);
        if !goes_on {
            break;
        }
    }
    desk.history.borrow_mut().extend(by.take_history());
    desk.end(cx.node.id.slot.0);
}

/// Whether a death may be the reason for a failure.
fn is_explained(failure: Failure) -> bool {
    let ours = [Failure::Fabric, Failure::CommitUnknown, Failure::DeadlineExceeded];
    ours.contains(&failure) || failure == Failure::user_abort()
}

/// Checks that each living coordinator commits after the repair.
async fn probe(mut by: Coordinator, mix: Mix, desk: &Desk, left: &Cell<usize>) {
    let cx = Rc::clone(by.context());
    by.record_history();
    for number in 0..PROBES {
        let plan = mix::Plan { gives_up: false, ..mix.plan(by.rng()) };
        let mut tries = 0;
        while let Err(failure) = by.transact(async |tx| plan.run(tx, number).await).await {
            tries += 1;
            if failure != Failure::Fabric || tries == PROBE_TRIES_MAX {
                let node = cx.node.id;
                let text = format!("all is mended, and a transaction of {node} fails: {failure}");
                desk.failures.borrow_mut().push(text);
                break;
            }
            cx.port.sleep(Nanos(500)).await;
        }
    }
    desk.history.borrow_mut().extend(by.take_history());
    left.set(left.get() - 1);
}

fn is_member(cx: &Context) -> bool {
    cx.database().membership.is_member(cx.node.id)
}

pub fn run(scene: &Scene, seed: u64) -> Outcome {
    let shape_of = if scene.mix.scans_in > 0 { mix::ordered_shape } else { mix::shape };
    let shape = shape_of(scene.memory_nodes, scene.replicas, "corrected");
    let shape = shape.protocol(scene.protocol).leasing_reads(READ_LEASE_NS);
    let fabric = WeakFabric::with_spares(&shape, seed, scene.spares);
    let database = &fabric.database;
    for spare in 0..scene.spares {
        database.configurations.add_spare(NodeSlot(scene.memory_nodes as u16 + spare));
    }
    let (desk, probes) = (Desk::default(), Cell::new(0));
    desk.running.set([COORDINATORS; NODES as usize]);
    let retry = Retry { deadline: Some(Nanos(90_000)), ..RETRY };
    let first: Vec<Rc<Context>> = (0..NODES).map(|slot| fabric.context(slot, 16)).collect();
    let mut executor = Executor::numbered();
    let (mut tasks, mut contexts) = (Vec::new(), Vec::new());
    for (slot, cx) in first.iter().enumerate() {
        for coordinator in 0..COORDINATORS {
            let number = (slot * COORDINATORS + coordinator) as u32;
            let by = mix::coordinator(cx, number, retry, seed % 64);
            tasks.push((slot, executor.spawn(coordinate(by, scene.mix, scene.count, &desk))));
        }
        let keepers = [1, 2].map(|thread| fabric.thread(&cx.node, thread, 0));
        contexts.extend(keepers.iter().map(Rc::clone).chain([Rc::clone(cx)]));
        let [repairer, recoverer] = keepers;
        tasks.push((slot, executor.spawn(keep_copies(repairer, &desk))));
        tasks.push((slot, executor.spawn(keep_lives(recoverer, &desk))));
        if scene.rotation != Rotation::None {
            let rotator = fabric.thread(&cx.node, 3, 0);
            contexts.push(Rc::clone(&rotator));
            tasks.push((slot, executor.spawn(rotate(rotator, scene.rotation, &desk))));
        }
    }
    let mut dead = [false; NODES as usize];
    let phases = database.protocol.info().phases;
    let write = phases.iter().position(|name| *name == "write").expect("data are sent in a phase");
    let (mut turns, mut joining_since, died_at) = (0, None, Cell::new(None::<u64>));
    let mut deaths = scene.deaths.clone();
    let ended = loop {
        turns += 1;
        if joining_since.is_none() && database.configurations.open().groups.is_joining() {
            joining_since = Some(turns);
        }
        let is_due = |when: When| match when {
            When::Turn(turn) => turn <= turns,
            When::Joining(later) => joining_since.is_some_and(|since| since + later <= turns),
            When::Writing(slot, count) => {
                let metrics = &first[usize::from(slot)].metrics;
                let has_ended = desk.running.get()[usize::from(slot)] == 0;
                let writes = metrics.snapshot().phases[write] >= count;
                (writes || has_ended) && fabric.draw(12) == 0
            }
            When::After(later) => died_at.get().is_some_and(|since| since + later <= turns),
        };
        let next = |deaths: &[(When, Death)]| {
            let mut due = deaths.iter().enumerate().filter(|(_, (when, _))| is_due(*when));
            let in_turn = |at: usize, when| at == 0 || !matches!(when, When::After(_));
            due.find(|(at, (when, _))| in_turn(*at, *when)).map(|(at, _)| at)
        };
        while let Some(at) = next(&deaths) {
            died_at.set(Some(turns));
            match deaths.remove(at).1 {
                Death::Memory(node) => fabric.fail_node(NodeSlot(node)),
                Death::Compute(slot) => {
                    dead[usize::from(slot)] = true;
                    database.membership.expel(first[usize::from(slot)].node.id);
                }
                Death::Silent(slot) => {
                    dead[usize::from(slot)] = true;
                    deaths.push((When::Turn(turns + LEASE), Death::Compute(slot)));
                }
            }
        }
        let running =
            (0..usize::from(NODES)).any(|slot| !dead[slot] && desk.running.get()[slot] > 0);
        if !running && deaths.is_empty() && is_whole(&fabric, scene) {
            break true;
        }
        if turns > STEPS_MAX {
            let configurations = &database.configurations;
            let late = configurations.late(&*database.membership);
            println!(
                "seed {seed}: running {:?}, {:?} open, {:?} announced, late {late:?}, unrecovered {:?}",
                desk.running.get(),
                configurations.open(),
                configurations.announced(),
                database.membership.unrecovered()
            );
            break false;
        }
        (0..fabric.draw(6)).for_each(|_| fabric.step());
        let (slot, task) = tasks[fabric.draw(tasks.len())];
        if !dead[slot] {
            executor.poll(task);
        }
    };
    if ended {
        for (slot, cx) in
            first.iter().enumerate().filter(|(slot, cx)| !dead[*slot] && is_member(cx))
        {
            let by = Coordinator::new(Rc::clone(cx), (slot * COORDINATORS) as u32, retry);
            probes.set(probes.get() + 1);
            tasks.push((slot, executor.spawn(probe(by, scene.mix, &desk, &probes))));
        }
        let mut turns = 0;
        while probes.get() > 0 && turns < STEPS_MAX {
            turns += 1;
            (0..fabric.draw(6)).for_each(|_| fabric.step());
            let (slot, task) = tasks[fabric.draw(tasks.len())];
            if !dead[slot] {
                executor.poll(task);
            }
        }
    }
    let ended = ended && probes.get() == 0;
    desk.stop.set(true);
    // The dead nodes now learn that they are dead, so that the test can record the transactions that they had begun.
    let mut polls = 0;
    while executor.live() > 0 && polls < 400_000 {
        polls += 1;
        (0..3).for_each(|_| fabric.step());
        executor.poll(TaskId(polls % tasks.len()));
    }
    let left = executor.live();
    drop(executor);
    (0..2_000).for_each(|_| fabric.step());
    let cx = fabric.context(NODES, 0);
    fabric.block_on(recovery::sweep(&cx, PACE)).unwrap();
    let audit = fabric.block_on(inspect::audit(&cx)).unwrap();
    let mut tally = Tally::default();
    contexts.iter().for_each(|cx| tally.add(&cx.metrics.snapshot()));
    // The errors include outcomes that dead recovering nodes reached but did not report.
    let mut wrong = desk.failures.take();
    let decided = decisions(desk.settled.take(), contexts.iter().map(|cx| &**cx));
    let mut recorded = desk.history.take();
    wrong.extend(enter(&mut recorded, decided, |_| true).contradictions);
    let differing = LastWrites::of(&recorded, &[]).differing(&cx);
    wrong.extend(fabric.block_on(differing).unwrap());
    let history = history(database, recorded);
    let report = check(&history, Isolation::StrictSerializable);
    let whole = is_whole(&fabric, scene);
    let open = database.configurations.open();
    let even = open.groups == open.groups.balanced();
    let rotations = desk.rotations.get();
    Outcome { report, audit, wrong, tally, whole, even, rotations, ended: ended && left == 0 }
}

pub async fn keep_copies(cx: Rc<Context>, desk: &Desk) {
    let report = |repaired| {
        if let Repaired::Recovered(_, recovery) = repaired {
            desk.note(&recovery.settled);
        }
    };
    let _ = repair(&cx, TERMS, PACE, || desk.stop.get(), report).await;
}

pub async fn keep_lives(cx: Rc<Context>, desk: &Desk) {
    let report = |_, recovery: &recovery::Recovery| desk.note(&recovery.settled);
    let _ = recovery::attend(&cx, PACE, || desk.stop.get(), report).await;
}

/// Makes the next member of each group its primary, again and again, except while a copy joins.
async fn rotate(cx: Rc<Context>, how: Rotation, desk: &Desk) {
    let database = cx.database();
    let configurations = &database.configurations;
    let next = |map: &ReplicaGroups| {
        let groups = (0..map.count() as u16).map(GroupId);
        let turn = |map: ReplicaGroups, group| {
            let second = map.members(group).get(1).copied();
            second.map_or_else(|| map.clone(), |node| map.with_primary(group, node))
        };
        (!map.is_joining()).then(|| groups.fold(map.clone(), turn))
    };
    while !desk.stop.get() && is_member(&cx) {
        cx.port.sleep(Nanos(5_000)).await;
        if configurations.open().groups.is_joining() {
            continue; // a copier starts again whenever a configuration is opened
        }
        let opened = match how {
            Rotation::Hasty => {
                let map = next(&configurations.open().groups);
                let (me, membership) = (cx.node.id, &*database.membership);
                let by = (membership, me, membership.view());
                let change = configurations.announce(me, membership);
                change.zip(map).is_some_and(|(change, map)| configurations.finish(change, map, by))
            }
            _ => {
                let tell = &mut |_, recovery: &recovery::Recovery| desk.note(&recovery.settled);
                let changed = change(&cx, TERMS, tell, next).await;
                matches!(changed, Ok(Changed::Opened { .. }))
            }
        };
        desk.rotations.set(desk.rotations.get() + u64::from(opened));
    }
}

/// Whether every group has its original number of members, and no change, repair or recovery is under way.
pub fn is_whole(fabric: &WeakFabric, scene: &Scene) -> bool {
    let database = &fabric.database;
    let open = database.configurations.open();
    let full = (0..open.groups.count() as u16)
        .all(|group| open.groups.members(GroupId(group)).len() == scene.replicas);
    let nodes = open.groups.nodes();
    let killed = |&(_, death): &(When, Death)| match death {
        Death::Memory(node) => nodes.contains(&NodeSlot(node)),
        Death::Compute(_) | Death::Silent(_) => false,
    };
    full && !open.groups.is_joining()
        && !scene.deaths.iter().any(killed)
        && database.configurations.dead().is_empty()
        && database.configurations.announced() == open.number
        && database.membership.unrecovered().is_empty()
}
