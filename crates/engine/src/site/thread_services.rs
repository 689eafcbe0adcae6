//! One thread's state for locks: its calls, the locks that it must still release, and the nodes on whose grants its
//! transactions rely.
//!
//! Invariants: a thread repeats the release of a lock on another node until that node has received the release. The
//! thread declares that it relies on no lock of a dead node only when this is true and stays true. From then on, a
//! transaction that relies on such locks gets no commit timestamp
//! ([`crate::transaction::lock_set::LockSet::secure`]). Transactions that already have a commit timestamp are
//! counted. The refusal and the count happen on this thread, between two polls.

use crate::cluster::membership::Standing;
use crate::services::lock::service::register;
use crate::services::lock::watch::looked_after;
use crate::services::shard_drain::Periods;
use crate::services::{Directory, NodeServices, Transport};
use crate::transaction::lock_set::{Closing, LockSet};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use tarn_fabric::address::NodeId;
use tarn_fabric::port::Port;
use tarn_fabric::rpc::Rpc;
use tarn_store::ids::ViewNumber;
use tarn_store::placement::shard_map::ShardId;

/// Another compute node of this process, from which the thread requests locks directly.
pub(crate) struct Peer {
    pub(crate) id: NodeId,
    pub(crate) services: Weak<NodeServices>,
    /// The first cache line of that node's lock table. That lock table may no longer exist.
    pub(crate) locks: *const u8,
}

/// A thread's state for locks; see the module's text.
pub struct ThreadServices {
    pub(crate) node: Arc<NodeServices>,
    pub(crate) thread: u16,
    pub(crate) rpc: OnceCell<Rpc>,
    /// Work that continues after its transaction has ended.
    pub(crate) closing: RefCell<Vec<Closing>>,
    /// Empty lock sets that are kept for reuse, because their vectors have capacity already.
    pub(crate) spare: RefCell<Vec<LockSet>>,
    /// The periods in which the thread's transactions began to take locks of their own node.
    pub(crate) periods: Periods,
    /// The other nodes from which the thread has requested locks without a message.
    pub(crate) peers: RefCell<Vec<Peer>>,
    /// For each other node, the number of secured transactions that rely on its grants.
    pub(crate) resting: RefCell<BTreeMap<NodeId, u32>>,
    /// The membership view whose dead nodes the thread has handled.
    pub(crate) view: Cell<ViewNumber>,
    /// Whether the thread still has work for dead nodes that no new membership view announces.
    pub(crate) watches: Cell<bool>,
    /// The dead incarnations on whose locks no transaction of this thread relies.
    pub(crate) acked: RefCell<BTreeSet<NodeId>>,
    /// The number of coordinators of the thread.
    pub(crate) coordinators: Cell<u32>,
}

impl ThreadServices {
    /// Creates the state of a thread of `node`.
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

    /// Counts a transaction that is about to commit and relies on grants of these nodes.
    pub(crate) fn rest_on(&self, owners: &[NodeId]) {
        let mut resting = self.resting.borrow_mut();
        owners.iter().for_each(|owner| *resting.entry(*owner).or_default() += 1);
    }

    /// Removes the transaction from these counts, because its locks are released.
    pub(crate) fn rest_no_more(&self, owners: &[NodeId]) {
        let mut resting = self.resting.borrow_mut();
        for owner in owners {
            let count = resting.get_mut(owner).expect("the transaction rested on this owner");
            *count -= 1;
            if *count == 0 {
                resting.remove(owner);
            }
        }
    }

    /// Returns the services of another node of this process, if that node is a member. The thread calls the directory
    /// once for each incarnation.
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

    /// The cache line of a lock in the table of the shard's owner, if the thread knows the owner. The result is only
    /// a hint.
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

    /// Whether a transaction of this thread relies on grants of other nodes, or any work continues after its
    /// transaction.
    pub(crate) fn rests_on_others(&self) -> bool {
        !self.resting.borrow().is_empty() || !self.is_idle()
    }

    /// Whether the thread has no work that continues after its transaction.
    pub fn is_idle(&self) -> bool {
        self.closing.borrow().is_empty()
    }

    /// Handles other nodes' deaths. The function drops the locks that recovered incarnations held at this node. For
    /// each dead incarnation, the function also declares that no transaction of this thread relies on the
    /// incarnation's locks, once this is true.
    pub(crate) fn look_after_lives(&self, port: &Port) {
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
    /// If a thread ends while it relies on grants of other nodes, it never declares that it relies on no lock of a
    /// dead node.
    fn drop(&mut self) {
        if !self.rests_on_others() {
            self.node.leave(self.thread);
        } else {
            self.node.stop_running(self.thread);
        }
    }
}
