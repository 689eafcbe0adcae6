//! Runs one seed: it starts the coordinators, causes the faults, and starts the keepers, which recover dead nodes.
//!
//! Invariant: the code of this module acts only between steps of virtual time, so the seed determines its actions. A
//! run ends when every coordinator of the living nodes has ended and the keepers have repaired everything. A run that
//! does not end in time is an error.

use super::cluster::Cluster;
use super::coverage::{Deaths, Kind};
use super::desk::Desk;
use super::drawn::{Drawn, is_asked_for};
use super::faults::{self, Event, PACE, is_mended};
use super::life::{Life, PhaseCell, watched};
use super::work::coordinate;
use super::{messages, moves, probe, read_leases};
use crate::harness::mortal::Lives;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use tarn_engine::cluster::membership::Membership as _;
use tarn_engine::recovery;
use tarn_engine::requests::read_lease::manager::LeaseKeeper;
use tarn_engine::requests::serve;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::metrics::Tally;
use tarn_engine::site::{ComputeNode, Context};
use tarn_engine::steps::recorder::decisions;
use tarn_engine::transaction::HistorySink;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_sim::scheduler::Ended;
use tarn_store::history::RecordedTxn;
use tarn_store::ids::{Resolution, TxnId, UsageError};
use tarn_workloads::Workload;

/// The longest time without a commit. If no transaction has committed for this long, the run is stuck.
const PATIENCE: Nanos = Nanos(100_000_000);
/// How long a coordinator tries a transaction again, as long as a fault may be the cause of its failure.
const DEADLINE: Nanos = Nanos(2_000_000);
/// The time between two checks of the cluster while faults may happen.
const STEP: Nanos = Nanos(20_000);
/// The number of the keepers' thread. The keepers' thread follows the threads of coordinators and of
/// calls.
const KEEPER: u16 = 2;
/// The number of the thread that manages readers' leases. The thread follows the keepers' thread.
const LEASE_KEEPER: u16 = 3;

/// The results of a run.
pub(super) struct Played {
    pub(super) history: Vec<RecordedTxn>,
    pub(super) decisions: Vec<(TxnId, Resolution)>,
    pub(super) tally: Tally,
    pub(super) deaths: Deaths,
    /// The reason why the run did not end, if it did not end.
    pub(super) stuck: Option<String>,
}

/// One incarnation of a compute node.
pub(super) struct Member {
    pub(super) life: Rc<Life>,
    pub(super) slot: usize,
    pub(super) node: Arc<ComputeNode>,
    /// The context of the first thread of this incarnation.
    cx: Rc<Context>,
}

/// A run of one seed.
pub(super) struct Play<'a, W: Workload> {
    workload: &'a W,
    pub(super) cluster: &'a Cluster,
    pub(super) drawn: &'a Drawn,
    desk: &'a Desk<W::Tally>,
    lives: Lives<'a>,
    pub(super) contexts: Vec<Rc<Context>>,
    sinks: Vec<HistorySink>,
    pub(super) members: Vec<Member>,
    pub(super) restarted: BTreeSet<NodeId>,
    /// The coordinator numbers that coordinators of another node have taken over.
    pub(super) taken: BTreeSet<u32>,
    pub(super) deaths: Deaths,
    /// The compute node that is never lost (the standby), and the context of one of its threads.
    standby: Option<(Arc<ComputeNode>, Rc<Context>)>,
}

impl<'a, W: Workload> Play<'a, W> {
    /// Prepares the run of one seed.
    ///
    /// # Errors
    /// The error names the value that cannot be used.
    pub(super) fn new(
        workload: &'a W,
        cluster: &'a Cluster,
        drawn: &'a Drawn,
        desk: &'a Desk<W::Tally>,
    ) -> Result<Self, UsageError> {
        let mut play = Play {
            workload,
            cluster,
            drawn,
            desk,
            lives: Lives::new(&cluster.fabric),
            contexts: Vec::new(),
            sinks: Vec::new(),
            members: Vec::new(),
            restarted: BTreeSet::new(),
            taken: BTreeSet::new(),
            deaths: Deaths::default(),
            standby: None,
        };
        for slot in 0..drawn.compute_nodes {
            play.begin_life(slot)?;
        }
        let owners: Vec<_> = play.members.iter().map(|member| member.life.id).collect();
        serve::share_out(&cluster.database, &owners);
        if drawn.has_faults() {
            play.begin_standby()?;
        }
        let ends = (play.members[0].life.id, play.members[drawn.compute_nodes - 1].life.id);
        messages::spawn(&mut play.lives.scheduler, cluster, ends, drawn, desk);
        Ok(play)
    }

    /// Lets the node of a slot join and starts its coordinators. The coordinators have the same numbers
    /// as in the slot's earlier incarnations.
    pub(super) fn begin_life(&mut self, slot: usize) -> Result<(), UsageError> {
        let node = self.cluster.join(slot as u16)?;
        let life = Life::new(node.id, &self.cluster.fabric);
        let at = self.contexts.len();
        for thread in 0..self.drawn.threads {
            let cx = self.cluster.context(&node, thread as u16)?;
            cx.growth.enable(self.drawn.growth);
            for coroutine in 0..self.drawn.coroutines {
                let number = self.first_number(slot, thread) + coroutine as u32;
                if !self.taken.contains(&number) {
                    self.begin_coordinator(&life, &cx, number);
                }
            }
            self.serve(&life, &cx);
            self.contexts.push(cx);
        }
        if self.drawn.has_faults() {
            let cx = self.cluster.context(&node, self.drawn.threads as u16 + KEEPER)?;
            self.keep(&life, cx);
        }
        let cx = Rc::clone(&self.contexts[at]);
        self.move_shards(&life, &cx);
        self.change_read_leases(&life, &cx);
        self.keep_read_leases(&life, &node)?;
        self.members.push(Member { life, slot, node, cx });
        Ok(())
    }

    fn move_shards(&mut self, life: &Rc<Life>, cx: &Rc<Context>) {
        let Some(moving) = self.drawn.moving.filter(|_| cx.has_services()) else { return };
        let moves = moves::keep_moving(Rc::clone(cx), (moving, self.cluster.seed()), self.desk);
        self.lives.spawn(&life.is_dead, cx, moves);
    }

    fn change_read_leases(&mut self, life: &Rc<Life>, cx: &Rc<Context>) {
        let Some(leases) = self.drawn.read_leases else { return };
        let changes =
            read_leases::keep_changing(Rc::clone(cx), (leases, self.cluster.seed()), self.desk);
        self.lives.spawn(&life.is_dead, cx, changes);
    }

    /// Starts the manager of readers' leases on a separate thread, which has its own messages.
    fn keep_read_leases(
        &mut self,
        life: &Rc<Life>,
        node: &Arc<ComputeNode>,
    ) -> Result<(), UsageError> {
        if self.drawn.read_leases.is_none_or(|leases| leases.adjust_every_ns == 0) {
            return Ok(());
        }
        let cx = self.cluster.context(node, self.drawn.threads as u16 + LEASE_KEEPER)?;
        let Some(keeper) = LeaseKeeper::apart(Rc::clone(&cx), messages::config()) else {
            return Ok(());
        };
        let desk = self.desk;
        self.lives.spawn(&life.is_dead, &cx, async move {
            keeper.run(|| desk.left.borrow().at_work > 0).await;
        });
        self.contexts.push(cx);
        Ok(())
    }

    /// Returns the number of the first coordinator that runs on this thread of this slot.
    pub(super) fn first_number(&self, slot: usize, thread: usize) -> u32 {
        ((slot * self.drawn.threads + thread) * self.drawn.coroutines) as u32
    }

    /// Starts the standby: the compute node that is never lost and only recovers other nodes.
    fn begin_standby(&mut self) -> Result<(), UsageError> {
        let slot = faults::standby(self.drawn);
        let node = self.cluster.join(slot.0)?;
        let cx = self.cluster.context(&node, 0)?;
        self.standby = Some((Arc::clone(&node), Rc::clone(&cx)));
        let life = Life::new(node.id, &self.cluster.fabric);
        self.keep(&life, cx);
        // The standby may inherit shards. If it does, each thread of another node sends its requests for these shards
        // to the standby's thread of the same number.
        let threads = if node.services().is_some() { self.drawn.threads as u16 } else { 1 };
        for thread in 1..threads {
            let cx = self.cluster.context(&node, thread)?;
            self.serve(&life, &cx);
            self.contexts.push(cx);
        }
        Ok(())
    }

    fn keep(&mut self, life: &Rc<Life>, cx: Rc<Context>) {
        faults::spawn_keepers(&mut self.lives, (&cx, life), self.drawn, self.desk);
        self.serve(life, &cx);
        self.contexts.push(cx);
    }

    /// If nodes send requests to each other under this protocol, lets the thread answer these requests as long as any
    /// coordinator runs. In a run with faults the thread answers until the end of the run, because the probes at the
    /// end also send requests.
    pub(super) fn serve(&mut self, life: &Rc<Life>, cx: &Rc<Context>) {
        let (desk, has_faults) = (self.desk, self.drawn.has_faults());
        self.lives.serve(&life.is_dead, cx, move || !has_faults || desk.is_over.get());
    }

    pub(super) fn begin_coordinator(&mut self, life: &Rc<Life>, cx: &Rc<Context>, number: u32) {
        let deadline = self.drawn.has_faults().then_some(DEADLINE);
        let by = Coordinator::new(Rc::clone(cx), number, Retry { deadline, ..Retry::default() });
        let sink = HistorySink::default();
        self.sinks.push(Rc::clone(&sink));
        let phase = life.coordinator();
        self.desk.left.borrow_mut().at_work += 1;
        let drawn = (self.drawn, &self.cluster.fabric);
        let work = coordinate(self.workload, (by, sink), drawn, self.desk);
        let at_end = (Rc::clone(life), PhaseCell::clone(&phase), self.desk);
        let work = async move {
            work.await;
            let (life, phase, desk) = at_end;
            life.end(&phase);
            desk.left.borrow_mut().at_work -= 1;
        };
        self.lives.spawn(&life.is_dead, cx, watched((life, cx, &phase), work));
    }

    /// Runs the seed to its end.
    ///
    /// # Errors
    /// Fails if a slot has used up its incarnation numbers.
    pub(super) fn run(mut self) -> Result<Played, UsageError> {
        let stuck = match self.drawn.has_faults() {
            true => self.run_with_faults()?,
            false => self.run_on(),
        };
        if stuck.is_none() {
            self.lives.scheduler.drain();
        }
        let stuck = stuck.or_else(|| moves::left_closed(&self.cluster.database));
        drop(self.lives.scheduler);
        self.lives.graveyard.take().clear();
        let mut tally = Tally::default();
        self.contexts.iter().for_each(|cx| tally.add(&cx.metrics.snapshot()));
        Ok(Played {
            history: self.sinks.iter().flat_map(|sink| sink.take()).collect(),
            decisions: decisions(Vec::new(), self.contexts.iter().map(|cx| &**cx)),
            tally,
            deaths: self.deaths,
            stuck,
        })
    }

    fn committed(&self) -> u64 {
        self.contexts.iter().map(|cx| cx.metrics.snapshot().committed).sum()
    }

    /// Runs until all coroutines have ended. Returns the reason why the run is stuck, if it is stuck.
    fn run_on(&mut self) -> Option<String> {
        loop {
            let before = self.committed();
            let until = self.cluster.fabric.now() + PATIENCE;
            if self.lives.scheduler.run_until(until) == Ended::Finished {
                return None;
            }
            if self.committed() == before {
                let ms = PATIENCE.0 / 1_000_000;
                return Some(format!("transactions had not ended {ms} ms after the last commit"));
            }
        }
    }

    /// Runs step by step, until the coordinators of living nodes have ended and the cluster is
    /// repaired.
    fn run_with_faults(&mut self) -> Result<Option<String>, UsageError> {
        let mut events = faults::events(&self.drawn.faults).into_iter().peekable();
        let (mut committed, mut moved_at) = (0, Nanos(0));
        loop {
            let now = self.cluster.fabric.now();
            let until = (now + STEP).min(events.peek().map_or(Nanos(u64::MAX), |(at, _)| *at));
            self.lives.scheduler.run_until(until.max(now));
            let now = self.cluster.fabric.now();
            while let Some((_, event)) = events.next_if(|(at, _)| *at <= now) {
                self.happen(event);
            }
            self.let_leases_lapse(now);
            let has_restarted = self.restart()?;
            let is_at_work = self.desk.left.borrow().at_work > 0;
            if !is_at_work && events.peek().is_none() && !has_restarted && self.is_mended() {
                break;
            }
            if self.committed() > committed || events.peek().is_some() {
                (committed, moved_at) = (self.committed(), now);
            }
            if now > moved_at + self.patience() {
                return Ok(Some(self.why_stuck()));
            }
        }
        if let Some(stuck) = self.probe() {
            return Ok(Some(stuck));
        }
        self.desk.is_over.set(true);
        if let Some(stuck) = self.run_on() {
            return Ok(Some(stuck));
        }
        self.sweep_at_last()
    }

    /// Returns the longest time without a commit after which the run is stuck. Large workloads get more time, because
    /// the keepers need more time to copy and to sweep large tables than the few records of a mixture.
    fn patience(&self) -> Nanos {
        let is_large = is_asked_for(&self.drawn.workload);
        if is_large { Nanos(PATIENCE.0 * 50) } else { PATIENCE }
    }

    /// Returns the incarnations that are members and whose threads still run.
    pub(super) fn living(&self) -> impl Iterator<Item = &Member> {
        let service = &self.cluster.service;
        self.members.iter().filter(|it| !it.life.has_stopped() && service.is_member(it.life.id))
    }

    /// Checks on each living node whether transactions still work. The check uses coordinator numbers
    /// whose coordinators have ended.
    fn probe(&mut self) -> Option<String> {
        let records = probe::records(self.cluster);
        let living = self.living().map(|it| (Rc::clone(&it.cx), self.first_number(it.slot, 0)));
        let mut all: Vec<(Rc<Context>, u32)> = living.collect();
        if all.is_empty() {
            all.extend(self.standby.as_ref().map(|(_, cx)| (Rc::clone(cx), 0)));
        }
        self.desk.probes.set(all.len());
        for (cx, number) in all {
            let retry = Retry { deadline: Some(DEADLINE), ..Retry::default() };
            let mut by = Coordinator::new(Rc::clone(&cx), number, retry);
            let sink = HistorySink::default();
            self.sinks.push(Rc::clone(&sink));
            by.record_history_in(sink);
            self.lives.scheduler.spawn(&cx.port, probe::probe(by, records.clone(), self.desk));
        }
        let end = self.cluster.fabric.now() + PATIENCE;
        while self.desk.probes.get() > 0 {
            let now = self.cluster.fabric.now();
            if now >= end {
                return Some("all is mended, and a transaction does not end".into());
            }
            self.lives.scheduler.run_until(now + STEP);
        }
        None
    }

    fn sweep_at_last(&mut self) -> Result<Option<String>, UsageError> {
        // If a transaction had written nothing, its lock may stay until another transaction meets the lock. So the
        // sweep at this point must remove the locks that no transaction has met. The sweep runs on a new thread,
        // because an older thread may not know the last change of the configuration.
        let (node, _) = self.standby.as_ref().expect("it looks after faults");
        let cx = self.cluster.context(node, 1)?;
        let port = cx.port.clone();
        let swept = Rc::new(Cell::new(None));
        let told = Rc::clone(&swept);
        self.lives.scheduler.spawn(&port, async move {
            told.set(Some(recovery::sweep(&cx, PACE).await.err()));
        });
        let until = self.cluster.fabric.now() + self.patience();
        let ended = self.lives.scheduler.run_until(until);
        Ok(match swept.get() {
            Some(failure) => failure.map(|failure| format!("the last sweep: {failure}")),
            None => Some(format!("the last sweep does not end: {ended:?}")),
        })
    }

    fn is_mended(&self) -> bool {
        self.standby.as_ref().is_none_or(|(_, cx)| is_mended(cx, self.drawn))
    }

    fn why_stuck(&self) -> String {
        let at_work = self.desk.left.borrow().at_work;
        let database = &self.cluster.database;
        let open = database.configurations.open();
        format!(
            "{} ms after the last commit: {at_work} coordinators at work; not recovered: {:?}; shards \
             not open of {:?}; dead memory nodes in the map: {:?}; {open:?}, announced {:?}",
            self.patience().0 / 1_000_000,
            database.membership.unrecovered(),
            database.membership.bereaved(),
            database.configurations.dead(),
            database.configurations.announced(),
        )
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::MemoryNode(slot) => {
                let living: Vec<Rc<Life>> =
                    self.living().map(|member| Rc::clone(&member.life)).collect();
                living.iter().for_each(|life| self.deaths.count(Kind::MemoryNode, life.phases()));
                self.cluster.fabric.fail_node(NodeSlot(slot));
            }
            Event::Stops(slot) => {
                let Some(life) = self.life_of(slot) else { return };
                self.deaths.count(Kind::Crash, life.phases());
                let at_work = life.coordinators();
                life.is_dead.set(true);
                self.desk.left.borrow_mut().at_work -= at_work;
            }
            Event::Expelled(slot) => {
                let Some(life) = self.life_of(slot) else { return };
                self.expel(&life);
            }
            // The membership lease of the stopped node may have lapsed earlier, and the node's slot may already have
            // another incarnation.
            Event::Noticed(slot) => {
                let has_stopped = |life: &Rc<Life>| life.has_stopped();
                let Some(life) = self.life_of(slot).filter(has_stopped) else { return };
                self.expel(&life);
            }
        }
    }
}
