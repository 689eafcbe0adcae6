//! One seed: draws, builds, loads, runs, judges.
//!
//! Invariant: a function of subject and seed. A panic of the engine or the simulator is a finding like
//! any other: the run ends there, and its digest is that of the trace until then.

use super::cluster::Cluster;
use super::drawn::{Drawn, Fault};
use super::faults::{self, Answer, Dead};
use super::judge::{self, Evidence, Finding, FindingKind};
use super::messages::{self, Calls};
use super::mixture::{self, Mixture};
use super::{Subject, panics};
use crate::bench::history::history_of;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tarn_check::History;
use tarn_engine::context::{ComputeNode, Context};
use tarn_engine::coordinator::{Coordinator, Retry};
use tarn_engine::history::RecordedTxn;
use tarn_engine::metrics::Tally;
use tarn_engine::outcome::{AbortReason, Resolution, TxnId, UsageError};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_sim::scheduler::{Ended, Scheduler};
use tarn_workloads::{Settings, Workload, with_workload};

/// If nothing has committed for so long, nothing ever will.
const PATIENCE: Nanos = Nanos(100_000_000);
/// How long a transaction is tried beside a fault: the dead may have kept locks.
const DEADLINE: Nanos = Nanos(2_000_000);

/// Transactions whose outcome was unknown at first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Settled {
    /// Resolved as committed.
    pub committed: u64,
    /// Resolved as aborted.
    pub aborted: u64,
}

impl Settled {
    pub(super) fn count(&mut self, resolution: Resolution) {
        match resolution {
            Resolution::Committed => self.committed += 1,
            Resolution::Aborted => self.aborted += 1,
        }
    }
}

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The seed.
    pub seed: u64,
    /// Of the trace: equal for equal runs, and only for those.
    pub digest: u64,
    /// What the coordinators did.
    pub tally: Tally,
    /// Events that happened: verbs, completions, messages.
    pub events: u64,
    /// Virtual time that passed.
    pub passed: Nanos,
    /// What died.
    pub fault: Fault,
    /// Transactions whose outcome was unknown at first.
    pub settled: Settled,
    /// Transactions that were given up beside a fault.
    pub deadlines_missed: u64,
    /// Calls beside the transactions.
    pub calls: Calls,
    /// What is wrong, if anything.
    pub finding: Option<Finding>,
    /// What its transactions read and wrote; empty if the run ended in a panic.
    pub history: History,
}

impl Ran {
    /// The share of tries that the protocol aborted; the callers' own are not counted.
    pub fn conflict_rate(&self) -> f64 {
        let aborted = self.tally.aborted() - self.tally.aborts[AbortReason::User as usize];
        let tries = self.tally.aborted() + self.tally.committed;
        aborted as f64 / tries.max(1) as f64
    }
}

/// What coroutines leave behind.
#[derive(Default)]
pub(super) struct Left<T> {
    pub(super) history: Vec<RecordedTxn>,
    pub(super) tally: T,
    pub(super) failures: Vec<String>,
    pub(super) in_doubt: Vec<(TxnId, u32)>,
    pub(super) answers: Vec<Answer>,
    pub(super) settled: Settled,
    pub(super) deadlines_missed: u64,
    pub(super) calls: Calls,
    /// Compute nodes of coordinators that have ended.
    ended: Vec<NodeSlot>,
}

/// Where they leave it.
#[derive(Default)]
pub(super) struct Desk<T> {
    pub(super) left: RefCell<Left<T>>,
}

impl<T> Desk<T> {
    /// Coordinators of a compute node that have ended.
    pub(super) fn ended_of(&self, slot: NodeSlot) -> u32 {
        self.left.borrow().ended.iter().filter(|ended| **ended == slot).count() as u32
    }
}

/// Runs a seed.
///
/// # Errors
/// Names what cannot be: a protocol, a variant, a workload.
pub fn run_seed(subject: &Subject, seed: u64) -> Result<Ran, UsageError> {
    let drawn = Drawn::of(seed, subject.workload.as_deref());
    if drawn.workload == mixture::NAME {
        return run_workload(&Mixture::of(&drawn.mix, drawn.zipf)?, subject, &drawn, seed);
    }
    let settings = Settings {
        profile: drawn.mix_profile.map(str::to_owned),
        records: Some(drawn.records),
        zipf: Some(drawn.zipf),
    };
    with_workload!(&drawn.workload, W => run_workload(&W::new(&settings)?, subject, &drawn, seed))?
}

fn run_workload<W: Workload>(
    workload: &W,
    subject: &Subject,
    drawn: &Drawn,
    seed: u64,
) -> Result<Ran, UsageError> {
    let cluster = Cluster::new(workload, subject, drawn, seed)?;
    let mut ran = Ran {
        seed,
        digest: 0,
        tally: Tally::default(),
        events: 0,
        passed: Nanos(0),
        fault: drawn.fault,
        settled: Settled::default(),
        deadlines_missed: 0,
        calls: Calls::default(),
        finding: None,
        history: History::default(),
    };
    let whole = panics::catch(|| {
        if let Err(text) = cluster.load(workload) {
            return Ok(Some(Finding { kind: FindingKind::Failure, text }));
        }
        trial(workload, &cluster, drawn, &mut ran)
    });
    ran.finding = match whole {
        Ok(finding) => finding?,
        Err(text) => Some(Finding { kind: FindingKind::Panic, text }),
    };
    ran.digest = cluster.fabric.digest();
    ran.events = cluster.fabric.usage().events();
    ran.passed = cluster.fabric.now();
    Ok(ran)
}

/// A cluster's threads, node by node.
struct Crew {
    nodes: Vec<Arc<ComputeNode>>,
    threads: Vec<Rc<Context>>,
}

impl Crew {
    fn join(cluster: &Cluster, drawn: &Drawn) -> Result<Crew, UsageError> {
        let slots = 0..drawn.compute_nodes as u16;
        let nodes: Vec<Arc<ComputeNode>> =
            slots.map(|slot| cluster.join(slot)).collect::<Result<_, _>>()?;
        let mut threads = Vec::new();
        for node in &nodes {
            for thread in 0..drawn.threads as u16 {
                let cx = cluster.context(node, thread)?;
                cx.growth.enable(drawn.growth);
                threads.push(cx);
            }
        }
        Ok(Crew { nodes, threads })
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.threads.iter().for_each(|cx| tally.add(&cx.metrics.snapshot()));
        tally
    }
}

fn trial<W: Workload>(
    workload: &W,
    cluster: &Cluster,
    drawn: &Drawn,
    ran: &mut Ran,
) -> Result<Option<Finding>, UsageError> {
    let crew = Crew::join(cluster, drawn)?;
    let desk = Desk::<W::Tally>::default();
    let mut scheduler = Scheduler::new(&cluster.fabric);
    for (index, cx) in crew.threads.iter().enumerate() {
        for coroutine in 0..drawn.coroutines {
            let number = (index * drawn.coroutines + coroutine) as u32;
            let coordinator = coordinate(workload, Rc::clone(cx), number, drawn, &desk);
            scheduler.spawn(&cx.port, coordinator);
        }
    }
    let ends = (crew.nodes[0].id, crew.nodes[crew.nodes.len() - 1].id);
    messages::spawn(&mut scheduler, cluster, ends, drawn, &desk);
    let dead = let_it_die(cluster, &crew, drawn, &mut scheduler, &desk);
    let has_ended = run_to_the_end(&mut scheduler, cluster, &crew);
    drop(scheduler);
    ran.tally = crew.tally();
    let mut left = desk.left.take();
    ran.settled = left.settled;
    ran.deadlines_missed = left.deadlines_missed;
    ran.calls = left.calls;
    left.failures.extend(faults::enter(&mut left.history, &left.answers));
    if !has_ended {
        let ms = PATIENCE.0 / 1_000_000;
        left.failures.push(format!("transactions had not ended {ms} ms after the last commit"));
    }
    let Left { history, tally, failures, .. } = left;
    ran.history = history_of(BTreeMap::new(), &workload.schemas(), &history);
    let evidence = Evidence { recorded: &ran.history, history, tally, failures, dead };
    judge::judge(cluster, workload, drawn, evidence)
}

/// Runs until the fault, and lets it happen. What dies with a compute node, somebody settles.
fn let_it_die<'a, T>(
    cluster: &Cluster,
    crew: &Crew,
    drawn: &Drawn,
    scheduler: &mut Scheduler<'a>,
    desk: &'a Desk<T>,
) -> Option<Dead> {
    match drawn.fault {
        Fault::None => None,
        Fault::MemoryNode { slot, at_ns } => {
            scheduler.run_until(Nanos(at_ns));
            cluster.fabric.fail_node(NodeSlot(slot));
            None
        }
        Fault::ComputeNode { slot, at_ns } => {
            let count = drawn.threads * drawn.coroutines;
            let node = crew.nodes[usize::from(slot)].id;
            let (first, count) = ((usize::from(slot) * count) as u32, count as u32);
            let dead = Dead { node, first, count };
            let survivor = (usize::from(slot) + 1) % drawn.compute_nodes * drawn.threads;
            let cx = Rc::clone(&crew.threads[survivor]);
            let port = cx.port.clone();
            let number = drawn.coordinators() as u32;
            scheduler.run_until(Nanos(at_ns));
            cluster.fabric.fence(node);
            scheduler.spawn(&port, faults::settle_dead(cx, number, dead, desk));
            Some(dead)
        }
    }
}

/// Whether all transactions ended; then nothing is on its way any more.
fn run_to_the_end(scheduler: &mut Scheduler<'_>, cluster: &Cluster, crew: &Crew) -> bool {
    loop {
        let before = crew.tally().committed;
        if scheduler.run_until(cluster.fabric.now() + PATIENCE) == Ended::Finished {
            scheduler.drain();
            return true;
        }
        if crew.tally().committed == before {
            return false;
        }
    }
}

/// One coordinator's transactions.
async fn coordinate<W: Workload>(
    workload: &W,
    cx: Rc<Context>,
    number: u32,
    drawn: &Drawn,
    desk: &Desk<W::Tally>,
) {
    let deadline = (drawn.fault != Fault::None).then_some(DEADLINE);
    let slot = cx.node.id.slot;
    let mut rng = cx.port.rng();
    let mut by = Coordinator::new(cx, number, Retry { deadline, ..Retry::default() });
    by.record_history();
    let (mut tally, mut ends) = (W::Tally::default(), 0);
    for _ in 0..drawn.transactions {
        let input = workload.draw(&mut rng);
        if let Err(failure) = workload.run(&mut by, &input, &mut tally).await
            && !faults::go_on_after(failure, &mut by, number, (desk, &mut ends)).await
        {
            break;
        }
    }
    let mut left = desk.left.borrow_mut();
    left.history.extend(by.take_history());
    W::merge(&mut left.tally, tally);
    left.ended.push(slot);
}
