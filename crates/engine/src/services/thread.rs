//! What one thread does for locks: its calls, what it still has to give up, and whom it answers.
//!
//! Invariants: whatever a thread holds elsewhere it goes on giving up until the other side has it. It says that
//! nothing of it rests on locks of a dead node only when that is so and stays so: a transaction that has not
//! taken its commit timestamp by then is refused one ([`crate::lock::set::LockSet::secure`]), the others are
//! counted. Both are decided on this thread, between two polls.

use super::{Directory, NodeServices, Transport};
use crate::context::Context;
use crate::lock::closing::Closing;
use crate::lock::service::register;
use crate::lock::set::LockSet;
use crate::lock::watched::looked_after;
use crate::membership::Standing;
use crate::resharding::drain::Periods;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use tarn_fabric::address::NodeId;
use tarn_fabric::port::Port;
use tarn_fabric::rpc::{Peer as Called, Rpc};
use tarn_store::ids::{Explanation, Failure, ViewNumber};
use tarn_store::placement::shard_map::ShardId;

/// Datagrams that a thread takes at a time.
const DATAGRAMS_A_POLL: usize = 64;

/// Another node of this process, as a thread that asks it for locks knows it.
struct Peer {
    id: NodeId,
    services: Weak<NodeServices>,
    /// The first line of its lock table, which may be gone.
    locks: *const u8,
}

/// See the module's text.
pub struct ThreadServices {
    node: Arc<NodeServices>,
    thread: u16,
    rpc: OnceCell<Rpc>,
    /// What still runs of transactions that have ended.
    pub(crate) closing: RefCell<Vec<Closing>>,
    /// Empty sets, with their room.
    pub(crate) spare: RefCell<Vec<LockSet>>,
    /// When its transactions began to lock what is its own node's.
    pub(crate) periods: Periods,
    /// Whom it has asked for locks without a message.
    peers: RefCell<Vec<Peer>>,
    /// How many secured transactions rest on grants of each node.
    resting: RefCell<BTreeMap<NodeId, u32>>,
    /// The view that it has looked after.
    view: Cell<ViewNumber>,
    /// Whether there is something to look after that comes with no new view.
    watches: Cell<bool>,
    /// Lives whose locks nothing rests on here.
    acked: RefCell<BTreeSet<NodeId>>,
    /// Coordinators that there are.
    coordinators: Cell<u32>,
}

impl ThreadServices {
    /// Those of a thread of `node`.
    pub(crate) fn new(node: &Arc<NodeServices>, port: &Port, thread: u16) -> ThreadServices {
        let rpc = OnceCell::new();
        if node.transport() == Transport::Rpc {
            let its = rpc.get_or_init(|| Rpc::new(port.clone(), node.options().rpc));
            register(its, node);
        }
        node.enter(thread);
        ThreadServices {
            node: Arc::clone(node),
            thread,
            rpc,
            closing: RefCell::default(),
            spare: RefCell::default(),
            periods: Periods::default(),
            peers: RefCell::default(),
            resting: RefCell::default(),
            view: Cell::new(ViewNumber(0)),
            watches: Cell::new(false),
            acked: RefCell::default(),
            coordinators: Cell::new(0),
        }
    }

    /// A transaction that is about to commit rests on grants of these nodes.
    pub(crate) fn rest_on(&self, owners: &[NodeId]) {
        let mut resting = self.resting.borrow_mut();
        owners.iter().for_each(|owner| *resting.entry(*owner).or_default() += 1);
    }

    /// Its locks are given up.
    pub(crate) fn rest_no_more(&self, owners: &[NodeId]) {
        let mut resting = self.resting.borrow_mut();
        for owner in owners {
            let count = resting.get_mut(owner).expect("it rested on it");
            *count -= 1;
            if *count == 0 {
                resting.remove(owner);
            }
        }
    }

    /// What another node of this process keeps, if it is a member. The directory is asked once a life.
    pub(crate) fn peer(&self, directory: &Directory, node: NodeId) -> Option<Arc<NodeServices>> {
        if let Some(peer) = self.peers.borrow().iter().find(|peer| peer.id == node) {
            return peer.services.upgrade().filter(|it| it.membership.is_member(node));
        }
        let found = directory.find(node)?;
        let (services, locks) = (Arc::downgrade(&found), found.locks.line(0));
        let mut peers = self.peers.borrow_mut();
        peers.retain(|peer| peer.services.strong_count() > 0);
        peers.push(Peer { id: node, services, locks });
        Some(found)
    }

    /// Where a lock's line is, as far as it is known whose it is: a hint.
    #[inline(always)]
    pub(crate) fn lock_line(&self, shard: ShardId, hash: u64) -> *const u8 {
        let node = &*self.node;
        if node.shards.is_served(shard, node.serving) {
            return node.locks.line(hash);
        }
        let owner = node.shards.entry(shard).map(|entry| entry.owner);
        let peers = self.peers.borrow();
        let peer = peers.iter().find(|peer| Some(peer.id) == owner);
        peer.map_or(std::ptr::from_ref(node).cast(), |peer| node.locks.line_in(peer.locks, hash))
    }

    /// Whether something of it rests on grants of others, or still runs.
    pub(crate) fn rests_on_others(&self) -> bool {
        !self.resting.borrow().is_empty() || !self.is_idle()
    }

    /// Whether nothing runs on after its transaction.
    pub fn is_idle(&self) -> bool {
        self.closing.borrow().is_empty()
    }

    /// Does what follows from other nodes' deaths: gives up what the recovered had locked here, and says of
    /// which of the dead nothing rests here any more.
    fn look_after_lives(&self, port: &Port) {
        let membership = &*self.node.membership;
        let view = membership.view();
        if view == self.view.get() && !self.watches.get() {
            return;
        }
        let is_recovered = |life| membership.standing(life) == Standing::Recovered;
        let mut dropped = Vec::new();
        let mut watches = self.node.drop_recovered(is_recovered, &mut dropped);
        looked_after(port, &self.node, &dropped);
        for dead in membership.ended() {
            if dead == self.node.id || self.acked.borrow().contains(&dead) {
                continue;
            }
            if self.resting.borrow().contains_key(&dead) {
                watches = true;
                continue;
            }
            self.acked.borrow_mut().insert(dead);
            self.node.ack_lost(dead, self.thread);
        }
        self.view.set(view);
        self.watches.set(watches);
    }
}

impl Drop for ThreadServices {
    /// A thread that goes while something rests on grants of others never says that nothing does.
    fn drop(&mut self) {
        if !self.rests_on_others() {
            self.node.leave(self.thread);
        } else {
            self.node.stop_running(self.thread);
        }
    }
}

impl Context {
    /// What its node keeps for others.
    ///
    /// # Panics
    /// If the protocol needs none, or the driver made none: our bug.
    #[inline]
    pub fn node_services(&self) -> &NodeServices {
        self.node.services.as_ref().expect("a node of a protocol with locks has services")
    }

    /// What its thread does for locks.
    ///
    /// # Panics
    /// As [`Context::node_services`].
    #[inline]
    pub fn thread_services(&self) -> &ThreadServices {
        self.services.as_ref().expect("a node of a protocol with locks has services")
    }

    /// Whether the thread keeps locks for others.
    #[inline]
    pub fn has_services(&self) -> bool {
        self.services.is_some()
    }

    /// Whether the thread has anything to [`Context::serve`] while others run.
    pub fn answers(&self) -> bool {
        self.has_services() || self.readers.as_ref().is_some_and(|its| its.has_messages())
    }

    /// The thread's calls: made when they are first asked for, since they take all datagrams of its port.
    pub fn rpc(&self) -> &Rpc {
        let services = self.thread_services();
        services.rpc.get_or_init(|| Rpc::new(self.port.clone(), services.node.options().rpc))
    }

    /// Whom to ask for locks of another node, in an ordered session.
    pub(crate) fn lock_peer(&self, owner: NodeId) -> (&Rpc, Called) {
        let (services, rpc) = (self.thread_services(), self.rpc());
        let thread = services.thread % services.node.options().threads;
        let peer = Called { node: owner, thread };
        // What cannot be ordered cannot be called either, and the call says so.
        let _ = rpc.order(peer);
        (rpc, peer)
    }

    /// Answers who asks this thread, goes on with what still runs of transactions that have ended, looks after
    /// the dead and the shards. Whoever waits for a lock calls it, and [`run`] between everybody's turns.
    pub fn serve(&self) {
        if let Some(readers) = &self.readers {
            readers.serve(&self.port);
        }
        let Some(services) = &self.services else { return };
        if let Some(rpc) = services.rpc.get() {
            while rpc.poll(DATAGRAMS_A_POLL) == DATAGRAMS_A_POLL {}
        }
        self.advance_closing();
        if services.node.transport() != Transport::Own {
            self.refresh_view();
            services.periods.advance(&services.node.drains, services.thread);
        }
        services.look_after_lives(&self.port);
    }

    /// Whether any shard has ever had an owner: whoever is told that a shard has none asks before it tries again.
    ///
    /// # Errors
    /// `Usage`, if not: nobody will ever grant a lock.
    #[cold]
    pub(crate) fn check_shards(&self) -> Result<(), Failure> {
        if self.database().membership.is_shared_out() {
            return Ok(());
        }
        let allowed = "shards that were shared out (`services::share_out`) before transactions run";
        Err(self.explain(Explanation::usage("shards", "without owners", allowed)))
    }

    /// A coordinator of the thread has come.
    pub(crate) fn coordinator_comes(&self) {
        if let Some(services) = &self.services {
            services.coordinators.set(services.coordinators.get() + 1);
        }
    }

    /// It has gone.
    pub(crate) fn coordinator_goes(&self) {
        if let Some(services) = &self.services {
            services.coordinators.set(services.coordinators.get() - 1);
        }
    }

    /// Whether the thread has coordinators: if not, nothing of it asks for locks any more.
    pub fn has_coordinators(&self) -> bool {
        self.services.as_ref().is_some_and(|services| services.coordinators.get() > 0)
    }
}

/// Waits until nothing of this thread runs on after its transaction: locks are given up.
pub async fn settle(cx: &Context) {
    while cx.has_services() && cx.advance_closing() > 0 {
        cx.serve();
        cx.port.yield_now().await;
    }
    settle_closed(cx).await;
}

/// Settles transactions whose last writes ended in an error, and others that nobody else of the thread would. What
/// cannot be settled yet is tried again the next time.
async fn settle_closed(cx: &Context) {
    if cx.has_left_doubts() && cx.database().membership.is_member(cx.node.id) {
        let _ = cx.settle_left().await;
    }
}

/// A thread's service: one coroutine of each thread runs this beside its coordinators. It ends when `stop` says
/// that the thread begins no transaction any more, what it holds is given up, and no other thread of a member
/// runs that may still ask it for locks.
pub async fn run(cx: &Context, stop: impl Fn() -> bool) {
    let Some(services) = &cx.services else { return answer(cx, stop).await };
    services.node.start_running(services.thread);
    while !stop() || !services.is_idle() {
        cx.serve();
        settle_closed(cx).await;
        cx.port.yield_now().await;
    }
    settle_closed(cx).await;
    services.node.stop_running(services.thread);
    let is_asked = matches!(services.node.transport(), Transport::Rpc | Transport::Near);
    while is_asked && cx.database().directory.is_any_running() {
        cx.serve();
        cx.port.yield_now().await;
    }
    // What the last messages asked for.
    cx.serve();
}

/// The service of a thread that has nothing to keep and is asked all the same: whoever asks it later waits as long as he would have
/// without.
async fn answer(cx: &Context, stop: impl Fn() -> bool) {
    while cx.answers() && !stop() {
        cx.serve();
        cx.port.yield_now().await;
    }
}
