//! A litmus as the explorer's model: loads the memory, builds the coroutines, judges what they left.
//!
//! Invariant: an execution begins with a desk, a database and contexts of its own: nothing of one reaches
//! the next but the memory that was loaded, which the explorer restores.

use super::cluster::{Cluster, seed};
use super::coordinate::Part;
use super::desk::Desk;
use super::litmus::Crew;
use super::watch::Watched;
use super::{judge, recovery};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use tarn_engine::context::{ComputeNode, Context};
use tarn_fabric::address::NodeId;
use tarn_sim::explore::{Actor, End, ExploreFabric, Model, Trigger};

/// See the module's text.
pub struct LitmusModel {
    cluster: Rc<Cluster>,
    /// Whether a compute node may be lost: then somebody waits to recover it.
    recovers: bool,
    watched: Cell<bool>,
    desk: RefCell<Rc<Desk>>,
}

impl LitmusModel {
    /// Of this cluster; `recovers`: a compute node may be lost.
    pub fn new(cluster: Cluster, recovers: bool) -> LitmusModel {
        let desk = RefCell::default();
        LitmusModel { cluster: Rc::new(cluster), recovers, watched: Cell::new(false), desk }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Rc<Cluster> {
        &self.cluster
    }

    /// What the last execution left.
    pub fn desk(&self) -> Rc<Desk> {
        Rc::clone(&self.desk.borrow())
    }

    /// From now on executions say in which phases rounds were posted.
    pub fn watch(&self) {
        self.watched.set(true);
    }

    /// Names of the actors, in order.
    pub fn actor_names(&self) -> Vec<String> {
        let crews = self.cluster.litmus().coordinators.iter().enumerate();
        let coordinators = crews.map(|(at, crew)| coordinator_name(at, crew.node));
        coordinators.chain(self.mortal().into_iter().map(recovery_name)).collect()
    }

    fn actor(
        &self,
        desk: &Rc<Desk>,
        (cx, name, index): (&Rc<Context>, String, usize),
        coroutine: impl Future<Output = ()> + 'static,
    ) -> Actor {
        let (node, thread) = (cx.node.id, cx.port.endpoint().thread);
        if !self.watched.get() {
            return Actor::new(name, node, thread, coroutine);
        }
        let (cx, desk) = (Rc::clone(cx), Rc::clone(desk));
        let inner = Box::pin(coroutine);
        Actor::new(
            name,
            node,
            thread,
            Watched { inner, cx, desk, actor: index, last: String::new() },
        )
    }

    /// With what the litmus says of its beginning and of its end.
    fn fated(&self, actor: Actor, crew: &Crew) -> Actor {
        let litmus = self.cluster.litmus();
        let actor = match litmus.mortal.contains(&crew.node) {
            true => actor,
            false => actor.spared(),
        };
        match crew.succeeds {
            None => actor,
            Some(of) => actor.after(Trigger::Lost(self.cluster.node(litmus.coordinators[of].node))),
        }
    }

    /// Compute nodes that may be lost.
    fn mortal(&self) -> Vec<NodeId> {
        let nodes = self.cluster.litmus().mortal.iter().map(|slot| self.cluster.node(*slot));
        if self.recovers { nodes.collect() } else { Vec::new() }
    }
}

fn coordinator_name(number: usize, node: u16) -> String {
    format!("coordinator {number}, node {node}")
}

fn recovery_name(dead: NodeId) -> String {
    format!("recovery of node {}", dead.slot.0)
}

impl Model for LitmusModel {
    fn load(&self, fabric: &ExploreFabric) {
        let database = self.cluster.database(&fabric.groups());
        let steward = self.cluster.steward();
        let node = self.cluster.join(&database, steward);
        let cx = self.cluster.context(&node, fabric.port(steward, 0, seed()), 0, false);
        self.cluster.load(&cx);
    }

    fn build(&self, fabric: &ExploreFabric) -> Vec<Actor> {
        let litmus = self.cluster.litmus();
        let crews = &litmus.coordinators;
        let desk = Rc::new(Desk::new(crews.iter().map(|crew| crew.transactions.len()).sum()));
        *self.desk.borrow_mut() = Rc::clone(&desk);
        let database = self.cluster.database(&fabric.groups());
        let nodes: Vec<Arc<ComputeNode>> = (0..self.cluster.compute_nodes() as u16)
            .map(|slot| self.cluster.join(&database, self.cluster.node(slot)))
            .collect();
        let (mut actors, mut first) = (Vec::new(), 0);
        for (number, crew) in crews.iter().enumerate() {
            let node = &nodes[usize::from(crew.node)];
            let thread =
                crews[..number].iter().filter(|other| other.node == crew.node).count() as u16;
            let port = fabric.port(node.id, thread, seed());
            let cx = self.cluster.context(node, port, thread, crew.remembers);
            desk.has(&cx);
            let (cluster, fabric, sink) = (Rc::clone(&self.cluster), fabric.clone(), desk.sink());
            let part = Part { cluster, fabric, desk: Rc::clone(&desk), number, first, sink };
            let name = coordinator_name(number, crew.node);
            let actor = self.actor(&desk, (&cx, name, number), part.run(Rc::clone(&cx)));
            actors.push(self.fated(actor, crew));
            first += crew.transactions.len();
        }
        if self.recovers {
            let (cluster, database) = (Rc::clone(&self.cluster), Arc::clone(&database));
            fabric.share(move || recovery::digest(&cluster, &database));
        }
        for (thread, dead) in self.mortal().into_iter().enumerate() {
            let (node, thread) = (&nodes[nodes.len() - 1], thread as u16);
            let port = fabric.port(node.id, thread, seed());
            let cx = self.cluster.context(node, port, thread, false);
            desk.has(&cx);
            let coroutine = recovery::recover(Rc::clone(&cx), dead, Rc::clone(&desk));
            let name = recovery_name(dead);
            let actor = self.actor(&desk, (&cx, name, actors.len()), coroutine);
            actors.push(actor.after(Trigger::Lost(dead)).spared());
        }
        actors
    }

    fn judge(&self, end: &End<'_>) -> Result<(), String> {
        judge::judge(&self.cluster, &self.desk(), end)
    }
}
