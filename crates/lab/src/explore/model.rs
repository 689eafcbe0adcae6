//! Turns a litmus into the explorer's model. The model loads the memory, builds the coroutines and checks the
//! coroutines' results.
//!
//! Invariant: an execution begins with its own desk, database and contexts. Only the loaded memory passes from one
//! execution to the next, and the explorer restores this memory before each execution.

use super::beside;
use super::cluster::{Cluster, SEED};
use super::coordinate::Part;
use super::desk::Desk;
use super::litmus::Crew;
use super::recovery::{self, Keeper};
use super::script::{Content, Contents};
use super::shape::Shape;
use super::watch::watched;
use super::{judge, oracle};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use tarn_check::Isolation;
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_sim::explore::{Actor, End, ExploreFabric, FaultBudget, Model, Trigger};

/// The number of the first thread that repairs the configuration after the death of a memory node.
/// Threads that recover compute nodes have smaller numbers.
const MENDERS: u16 = 8;

type Coroutine = Pin<Box<dyn Future<Output = ()>>>;

/// The keepers: coroutines that wait for the loss of a node and then repair the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Care {
    /// Whether compute nodes may be lost, so that a keeper (a coroutine that repairs the cluster) must
    /// recover them.
    pub recovers: bool,
    /// Whether memory nodes that have copies may be lost, so that a keeper must promote these copies.
    pub repairs: bool,
    /// Whether the keeper may be lost as well, so that the model has two keepers.
    pub has_deputy: bool,
    /// The number of tries that each transaction has beyond the number in the litmus. Each transaction gets one more
    /// try for each memory node that the execution may lose.
    pub more_tries: u32,
}

impl Care {
    /// Returns the keepers that an execution with these possible faults needs.
    pub fn of(faults: &FaultBudget, shape: Shape, crashes: u32) -> Care {
        let recovers = faults.compute + faults.zombie > 0;
        let repairs = faults.memory > 0 && shape.replicas > 1;
        let more_tries = if repairs { faults.memory } else { 0 };
        Care { recovers, repairs, has_deputy: recovers && crashes > 1, more_tries }
    }
}

/// The explorer's model of a litmus.
pub struct LitmusModel {
    cluster: Rc<Cluster>,
    care: Care,
    watched: Cell<bool>,
    desk: RefCell<Rc<Desk>>,
    /// The number of final states that were judged and in which a fault had happened.
    broken: Cell<u64>,
    /// The contents of the records in final states in which no fault had happened.
    reached: RefCell<BTreeSet<Vec<Content>>>,
}

/// The objects that all coroutines of one execution share.
struct Stage<'a> {
    fabric: &'a ExploreFabric,
    desk: &'a Rc<Desk>,
    nodes: Vec<Arc<ComputeNode>>,
    actors: Vec<Actor>,
}

impl LitmusModel {
    /// Creates the model of this cluster.
    pub fn new(cluster: Cluster, care: Care) -> LitmusModel {
        LitmusModel {
            cluster: Rc::new(cluster),
            care,
            watched: Cell::new(false),
            desk: RefCell::default(),
            broken: Cell::new(0),
            reached: RefCell::default(),
        }
    }

    /// Returns the number of final states that were judged and in which a fault had happened.
    pub fn broken(&self) -> u64 {
        self.broken.get()
    }

    /// Returns the missing results: results that some order of the litmus's transactions gives, but that no final
    /// state without a fault had. If a coordinator of the litmus waits for the death of another one, no result counts
    /// as missing. Under snapshot isolation, the explorer must also reach a result that no order gives, if snapshots
    /// give such a result. A variant in which the explorer never finds write skew does not have the isolation that it
    /// claims. (A protocol may still lock ordered indexes under snapshot isolation.)
    pub fn not_reached(&self) -> Vec<String> {
        let litmus = &self.cluster.litmus;
        if litmus.coordinators.iter().any(|crew| crew.succeeds.is_some()) {
            return Vec::new();
        }
        let (reached, names) = (self.reached.borrow(), &litmus.records);
        let shown = |contents: &Vec<Content>| Contents { names, contents }.to_string();
        let serial = oracle::results(litmus, Isolation::StrictSerializable);
        let missed = serial.iter().filter(|it| !reached.contains(*it));
        let mut missed: Vec<String> = missed.map(shown).collect();
        let mut skewed = oracle::results(litmus, self.cluster.isolation);
        skewed.retain(|it| !serial.contains(it));
        let is_missed = !skewed.is_empty() && !skewed.iter().any(|it| reached.contains(it));
        if is_missed && litmus.ordered.is_none() {
            let any: Vec<String> = skewed.iter().map(shown).collect();
            missed.push(format!("a skew of snapshots ({})", any.join(" or ")));
        }
        missed
    }

    /// Returns the small database of the litmus.
    pub fn cluster(&self) -> &Rc<Cluster> {
        &self.cluster
    }

    /// Returns the desk with the results of the last execution.
    pub fn desk(&self) -> Rc<Desk> {
        Rc::clone(&self.desk.borrow())
    }

    /// Makes all later executions record the phases in which rounds were posted.
    pub fn watch(&self) {
        self.watched.set(true);
    }

    /// Returns the names of the actors, in order.
    pub fn actor_names(&self) -> Vec<String> {
        let crews = self.cluster.litmus.coordinators.iter().enumerate();
        let coordinators = crews.map(|(at, crew)| coordinator_name(at, crew.node));
        coordinators.chain(self.tasks().iter().map(|task| self.task_name(task))).collect()
    }

    fn actor(
        &self,
        desk: &Rc<Desk>,
        (cx, name, index): (&Rc<Context>, String, usize),
        coroutine: impl Future<Output = ()> + 'static,
    ) -> Actor {
        let (node, thread) = (cx.node.id, cx.port.endpoint().thread);
        let inner: Coroutine = match cx.has_services() {
            true => Box::pin(beside::serving(&self.cluster, cx, coroutine)),
            false => Box::pin(coroutine),
        };
        if !self.watched.get() {
            return Actor::new(name, node, thread, inner);
        }
        let told = (Rc::clone(cx), Rc::clone(desk), index);
        Actor::new(name, node, thread, watched(inner, told))
    }

    /// Creates all compute nodes of one execution, by slot.
    fn nodes(&self, database: &Arc<Database>) -> Vec<Arc<ComputeNode>> {
        let slots = 0..self.cluster.compute_nodes() as u16;
        slots.map(|slot| self.cluster.join(database, self.cluster.node(slot))).collect()
    }

    /// Tells the explorer that the local state of the litmus's compute nodes is a part of the explored state. The
    /// steward and the deputy never receive lock requests, so their local state is omitted.
    fn keep(&self, fabric: &ExploreFabric, nodes: &[Arc<ComputeNode>]) {
        let count = usize::from(self.cluster.litmus.compute_nodes());
        let keeps = |node: &Arc<ComputeNode>| node.services().is_some() || node.readers().is_some();
        for node in nodes[..count].iter().filter(|node| keeps(node)) {
            let (its, cluster) = (Arc::clone(node), Rc::clone(&self.cluster));
            fabric.keep(node.id, move || {
                beside::digest(&its, &cluster.shards).expect("it keeps something")
            });
        }
    }

    /// Returns the actor with its conditions: when it starts, and whether faults may hit it, as the litmus says.
    fn fated(&self, actor: Actor, crew: &Crew) -> Actor {
        let litmus = &self.cluster.litmus;
        let actor = match litmus.mortal.contains(&crew.node) {
            true => actor,
            false => actor.spared(),
        };
        match crew.succeeds {
            None => actor,
            Some(of) => actor.after(Trigger::Lost(self.cluster.node(litmus.coordinators[of].node))),
        }
    }

    /// Lists the tasks of keepers. Each task names a node that may be lost, and the keeper that repairs this loss.
    fn tasks(&self) -> Vec<Task> {
        let Care { recovers, repairs, has_deputy, .. } = self.care;
        let cluster = &self.cluster;
        let mut tasks = Vec::new();
        let (deputy, steward) = (cluster.deputy(), cluster.steward());
        let mut keepers = vec![(steward, has_deputy.then_some(deputy))];
        if has_deputy {
            keepers.insert(0, (deputy, None));
        }
        for (by, after) in keepers {
            let mortal = cluster.litmus.mortal.iter().map(|slot| cluster.node(*slot));
            let mut threads = 0..;
            let mut add = |lost, first: u16| {
                let thread = first + threads.next().expect("threads without end");
                tasks.push(Task {
                    by,
                    thread,
                    after: after.filter(|it| Trigger::Lost(*it) != lost),
                    lost,
                });
            };
            if recovers {
                mortal.for_each(|dead| add(Trigger::Lost(dead), 0));
            }
            if recovers && after.is_some() {
                add(Trigger::Lost(deputy), 0);
            }
            if repairs {
                let nodes = cluster.shape.memory_nodes + cluster.shape.spares;
                (0..nodes as u16)
                    .for_each(|node| add(Trigger::MemoryLost(NodeSlot(node)), MENDERS));
            }
        }
        tasks
    }

    fn task_name(&self, task: &Task) -> String {
        let by = match (self.care.has_deputy, task.by == self.cluster.deputy()) {
            (false, _) => "",
            (true, true) => ", first",
            (true, false) => ", second",
        };
        match task.lost {
            Trigger::Lost(node) => format!("recovery of node {}{by}", node.slot.0),
            Trigger::MemoryLost(node) => format!("mending of M{}{by}", node.0),
        }
    }

    fn add_coordinators(&self, stage: &mut Stage<'_>) {
        let (desk, mut first) = (stage.desk, 0);
        let crews = &self.cluster.litmus.coordinators;
        for (number, crew) in crews.iter().enumerate() {
            let node = &stage.nodes[usize::from(crew.node)];
            let thread =
                crews[..number].iter().filter(|other| other.node == crew.node).count() as u16;
            let port = stage.fabric.port(node.id, thread, SEED);
            let cx = self.cluster.context(node, port, thread, crew.remembers);
            desk.left.borrow_mut().contexts.push(Rc::clone(&cx));
            let (cluster, fabric) = (Rc::clone(&self.cluster), stage.fabric.clone());
            let tries = self.cluster.litmus.tries + self.care.more_tries;
            let (desk, sink) = (Rc::clone(desk), desk.sink());
            let part = Part { cluster, fabric, desk, number, first, sink, tries };
            let name = coordinator_name(number, crew.node);
            let actor = self.actor(stage.desk, (&cx, name, number), part.run(Rc::clone(&cx)));
            stage.actors.push(self.fated(actor, crew));
            first += crew.transactions.len();
        }
    }

    fn add_keepers(&self, stage: &mut Stage<'_>) {
        for task in self.tasks() {
            let node = &stage.nodes[usize::from(task.by.slot.0)];
            let port = stage.fabric.port(node.id, task.thread, SEED);
            let cx = self.cluster.context(node, port, task.thread, false);
            stage.desk.left.borrow_mut().contexts.push(Rc::clone(&cx));
            let desk = Rc::clone(stage.desk);
            let keeper = Keeper { cx: Rc::clone(&cx), after: task.after, desk };
            let coroutine: Coroutine = match task.lost {
                Trigger::Lost(dead) => Box::pin(keeper.recover(dead)),
                Trigger::MemoryLost(_) => Box::pin(keeper.repair()),
            };
            let name = self.task_name(&task);
            let at = stage.actors.len();
            let actor = self.actor(stage.desk, (&cx, name, at), coroutine).after(task.lost);
            let is_steward = task.by == self.cluster.steward();
            stage.actors.push(if is_steward { actor.spared() } else { actor });
        }
    }
}

/// A task of a keeper, which the keeper begins when a node is lost.
#[derive(Clone, Copy, Debug)]
struct Task {
    by: NodeId,
    thread: u16,
    /// The node whose keeper has the same task with priority, until that node is lost.
    after: Option<NodeId>,
    lost: Trigger,
}

fn coordinator_name(number: usize, node: u16) -> String {
    format!("coordinator {number}, node {node}")
}

impl Model for LitmusModel {
    fn load(&self, fabric: &ExploreFabric) {
        let (database, _) = self.cluster.database(&fabric.groups());
        // All nodes are created, because every node with locks receives lock requests. The coordinator
        // that gives a tree its shape also sends such requests.
        let nodes = self.nodes(&database);
        let steward = self.cluster.steward();
        let node = &nodes[usize::from(steward.slot.0)];
        if let Some(services) = node.services() {
            services.shards.refresh(&*database.membership);
        }
        let cx = self.cluster.context(node, fabric.port(steward, 0, SEED), 0, false);
        self.cluster.load(&cx);
    }

    fn build(&self, fabric: &ExploreFabric) -> Vec<Actor> {
        let crews = &self.cluster.litmus.coordinators;
        let desk = Rc::new(Desk::new(crews.iter().map(|crew| crew.transactions.len()).sum()));
        *self.desk.borrow_mut() = Rc::clone(&desk);
        let (database, service) = self.cluster.database(&fabric.groups());
        let nodes = self.nodes(&database);
        let (of_desk, of_crews) = (Rc::clone(&desk), Rc::clone(&self.cluster));
        fabric.remains(move |node| {
            let crews = of_crews.litmus.coordinators.iter().enumerate();
            let mine: Vec<usize> =
                crews.filter(|(_, crew)| crew.node == node.slot.0).map(|(at, _)| at).collect();
            of_desk.digest_of(node, &mine)
        });
        self.keep(fabric, &nodes);
        let mut stage = Stage { fabric, desk: &desk, nodes, actors: Vec::new() };
        self.add_coordinators(&mut stage);
        self.add_keepers(&mut stage);
        let Care { recovers, repairs, .. } = self.care;
        if recovers || repairs {
            let (cluster, database) = (Rc::clone(&self.cluster), Arc::clone(&database));
            fabric.share(move || recovery::digest(&cluster, &database));
        }
        if repairs {
            // The database is told that a coroutine repairs the configuration for as long as the execution lasts. So
            // a coordinator that meets a dead node waits for the next configuration, even if the repair has not
            // started yet.
            std::mem::forget(database.configurations.begin_repairing());
        }
        if repairs || self.care.has_deputy {
            let keepers = [self.cluster.deputy(), self.cluster.steward()];
            fabric.share_with(&keepers, move || recovery::keepers_digest(&database, &service));
        }
        stage.actors
    }

    fn judge(&self, end: &End<'_>) -> Result<(), String> {
        let has_broken = !end.summary.faults.is_empty();
        self.broken.set(self.broken.get() + u64::from(has_broken));
        let contents = judge::judge(&self.cluster, self.care.repairs, &self.desk(), end)?;
        if !has_broken {
            self.reached.borrow_mut().extend(contents);
        }
        Ok(())
    }
}
