//! The local backend: memory nodes are mapped memory, and compute nodes are threads of this machine.
//!
//! Invariant: this backend keeps the contract of [`crate::round`]. All verbs of a round take effect in the order in
//! which they were added. The contract does not demand this order, but the hardware gives it without cost. A round is
//! *posted* by prefetching its lines (see `ahead`) and *completed* by executing its verbs. So other coroutines of the
//! thread run while the lines are fetched. The method that hides the latency of a network thus also hides the latency
//! of DRAM. A caller may also access the same memory without a round, by loads and stores ([`DirectMemory`]).
//! Accesses by loads and stores have the same order and the same checks as rounds.
//!
//! When a round is complete, every other thread can see its effect. To make its effect visible, a round that wrote
//! ends with a full fence, unless it is [`Round::followed`]. The revocation of a compute node's access is
//! acknowledged only when none of that node's threads is inside a round (see [`quiesce`]).

mod affinity;
mod ahead;
mod copy;
mod direct_memory;
mod execute;
mod hold;
mod image;
mod lease_clock;
mod mailbox;
mod memory;
mod pages;
#[cfg_attr(not(feature = "preempt"), doc(hidden))]
pub mod preempt;
pub mod probe;
pub mod quiesce;
mod region;
mod run;
mod sync;
mod words;
mod write_epoch;

pub use affinity::pin_to_core;
pub use direct_memory::{DirectMemory, Travel, Visit};
pub use hold::Hold;
pub use image::{Image, processor_time};
pub use memory::NodeMemory;
pub use pages::{Backing, Mapping, Pages};
pub use region::{LineAtomicity, Region, StuckStripe};
pub use words::{Words, fetch_to_write};
pub use write_epoch::EpochSnapshot;

/// The parts that only a model of the backend's own synchronisation needs.
#[cfg(loom)]
pub mod modelled {
    pub use super::mailbox::{Mailboxes, Receiver, Sender};
    pub use super::sync::{Site, plant};
    pub use super::write_epoch::WriteEpoch;
    use super::{Region, Round};

    /// Executes a round whose verbs all access `region`. Returns whether no other writer has disturbed any of the
    /// verbs.
    pub fn run(region: &Region<'_>, round: &mut Round) -> bool {
        let (verbs, buffer) = round.parts_mut();
        let count = verbs.len();
        region.run(verbs, buffer, false).0 == count
    }
}

use crate::address::{GROUP_BYTES_MAX, GROUPS_MAX, GroupId, NodeId, NodeSlot};
use crate::backend::{Backend, Caps, Cost, Detached, Endpoint, Posted};
use crate::clock::{ClockInterval, Nanos};
use crate::error::FabricError;
use crate::port::Port;
use crate::round::Round;
use crate::window::{Closed, Drift, Wait, Window};
use mailbox::{Mailboxes, Receiver, Sender};
use quiesce::Faults;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use sync::full_fence;
use write_epoch::WriteEpoch;

/// The configuration of a local cluster.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// The number of memory nodes that hold groups at the start.
    pub memory_nodes: usize,
    /// The number of copies of every group. The number of copies is one more than the number of node crashes that a
    /// group survives.
    pub replicas: usize,
    /// The number of additional, empty memory nodes. Each of them has room for a copy of every group, and can replace
    /// a dead node. A node that died can return only as one of these nodes, with another slot.
    pub spare_nodes: usize,
    /// The size of one replica group's memory at one node in bytes. The operating system allocates each page at the
    /// first access.
    pub group_bytes: u64,
    /// The kind of memory to request from the operating system.
    pub backing: Backing,
    /// The method that keeps READs and WRITEs of lines atomic.
    pub atomicity: LineAtomicity,
    /// Whether a posted round's lines are prefetched. Callers switch this option off only to measure the gain.
    pub prefetch: bool,
    /// Whether threads may access memory by loads and stores ([`DirectMemory`]) as well as by rounds. Callers switch
    /// this option off only to compare the two methods.
    pub near: bool,
}

impl Default for LocalConfig {
    fn default() -> LocalConfig {
        LocalConfig {
            memory_nodes: 1,
            replicas: 1,
            spare_nodes: 0,
            group_bytes: 64 << 20,
            backing: Backing::Auto,
            atomicity: LineAtomicity::Striped { bits: 16 },
            prefetch: true,
            near: true,
        }
    }
}

/// A cluster in this process: the memory nodes, and the state that all compute nodes of the process share.
pub struct LocalFabric {
    nodes: Vec<NodeMemory>,
    groups: Vec<Vec<NodeSlot>>,
    faults: Faults,
    mailboxes: Mailboxes,
    stillness: WriteEpoch,
    started: Instant,
    prefetch: bool,
    near: bool,
}

impl LocalFabric {
    /// Creates the memory nodes. The number of replica groups equals the number of memory nodes. Replica `i` of group
    /// `g` is on node `(g + i) mod memory_nodes`, and replica 0 is the primary.
    ///
    /// # Errors
    /// An error that names the field if the configuration is not possible, or the operating system's error.
    #[expect(clippy::disallowed_methods, reason = "the real backend's clock starts here")]
    pub fn new(config: &LocalConfig) -> io::Result<Arc<LocalFabric>> {
        let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let (nodes, replicas) = (config.memory_nodes, config.replicas);
        if nodes == 0 || nodes > GROUPS_MAX {
            return invalid(format!("memory_nodes = {nodes}; allowed: 1 to {GROUPS_MAX}"));
        }
        if replicas == 0 || replicas > nodes {
            return invalid(format!("replicas = {replicas}; allowed: 1 to memory_nodes ({nodes})"));
        }
        if config.group_bytes == 0 || config.group_bytes > GROUP_BYTES_MAX {
            let bytes = config.group_bytes;
            return invalid(format!("group_bytes = {bytes}; allowed: 1 to {GROUP_BYTES_MAX}"));
        }
        let all_nodes = nodes + config.spare_nodes;
        if all_nodes > usize::from(u16::MAX) {
            let (spares, most) = (config.spare_nodes, usize::from(u16::MAX) - nodes);
            return invalid(format!("spare_nodes = {spares}; allowed: 0 to {most}"));
        }
        let slot = |index: usize| NodeSlot((index % nodes) as u16);
        let groups: Vec<Vec<NodeSlot>> =
            (0..nodes).map(|group| (group..group + replicas).map(slot).collect()).collect();
        let memories = (0..all_nodes).map(|node| {
            let hosted: Vec<(GroupId, u64)> = (0..nodes)
                .filter(|&group| node >= nodes || groups[group].contains(&slot(node)))
                .map(|group| (GroupId(group as u16), config.group_bytes))
                .collect();
            NodeMemory::create(&hosted, config.backing, config.atomicity)
        });
        Ok(Arc::new(LocalFabric {
            nodes: memories.collect::<io::Result<_>>()?,
            groups: groups.clone(),
            faults: Faults::new(all_nodes),
            mailboxes: Mailboxes::default(),
            stillness: WriteEpoch::default(),
            started: Instant::now(),
            prefetch: config.prefetch,
            near: config.near,
        }))
    }

    /// Returns the memory nodes of each replica group, with the primary first.
    pub fn groups(&self) -> &[Vec<NodeSlot>] {
        &self.groups
    }

    /// Returns the memory of a memory node.
    pub fn node(&self, slot: NodeSlot) -> &NodeMemory {
        &self.nodes[usize::from(slot.0)]
    }

    /// Whether the memory of all nodes is private to this process, so that an [`Image`] contains it.
    pub fn is_private(&self) -> bool {
        self.nodes.iter().all(|node| node.pages().is_private())
    }

    /// Creates a port for a thread. The thread that will use the port must call this function. `thread` is the number
    /// of the thread on its compute node.
    pub fn port(self: &Arc<Self>, node: NodeId, thread: u16, seed: u64) -> Port {
        Port::new(Box::new(LocalBackend::new(Arc::clone(self), node, thread)), seed)
    }

    /// Kills a memory node. Rounds that access the node then end in `NodeDown`. The function returns when no earlier
    /// round is accessing the node any more.
    pub fn fail_node(&self, slot: NodeSlot) {
        self.faults.fail_node(slot);
    }

    /// Revokes a compute node's access to every memory node. Later rounds of the compute node end in `Fenced`. The
    /// function returns when all earlier rounds of that node have ended.
    pub fn fence(&self, node: NodeId) {
        self.faults.fence(node);
    }
}

/// The local backend of one thread.
struct LocalBackend {
    hold: Hold,
    thread: u16,
    sender: RefCell<Sender>,
    receiver: RefCell<Receiver>,
}

impl Drop for LocalBackend {
    fn drop(&mut self) {
        self.hold.fabric.mailboxes.unregister(self.receiver.get_mut());
    }
}

impl LocalBackend {
    fn new(fabric: Arc<LocalFabric>, node: NodeId, thread: u16) -> LocalBackend {
        let endpoint = Endpoint { node: node.slot, thread };
        let (sender, receiver) = fabric.mailboxes.register(endpoint);
        LocalBackend {
            hold: Hold::new(fabric, node),
            thread,
            sender: RefCell::new(sender),
            receiver: RefCell::new(receiver),
        }
    }
}

#[inline(always)]
fn unboxed(result: Result<(), Box<FabricError>>) -> Result<(), FabricError> {
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err(*error),
    }
}

impl Backend for LocalBackend {
    fn caps(&self) -> Caps {
        let datagram_bytes_max = mailbox::DATAGRAM_BYTES_MAX;
        Caps { masked_cas: true, datagram_bytes_max, ends_when_dropped: true }
    }

    fn node(&self) -> NodeId {
        self.hold.node
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { node: self.hold.node.slot, thread: self.thread }
    }

    #[inline]
    fn post(&self, round: &mut Round) -> Posted {
        if round.is_hot() {
            return Posted::Done(unboxed(self.hold.execute(round)));
        }
        self.hold.set_out(round);
        Posted::InFlight
    }

    #[inline]
    fn warm(&self, round: &Round) -> bool {
        if self.hold.prefetch {
            self.hold.set_out(round);
        }
        self.hold.prefetch
    }

    #[inline]
    fn warmed(&self) {
        self.hold.ended();
    }

    #[inline]
    fn complete(&self, round: &mut Round) -> Poll<Result<(), FabricError>> {
        self.hold.ended();
        Poll::Ready(unboxed(self.hold.execute(round)))
    }

    #[inline]
    fn near(&self) -> Option<&Hold> {
        self.hold.is_near.then_some(&self.hold)
    }

    fn abandon(&self, _: &mut Round) {
        self.hold.ended();
        // No verb of the round has been executed or will be: the backend executes verbs in `complete`. The backend
        // executes the verbs of a hot round in `post`, so no caller waits for a hot round.
    }

    fn post_detached(&self, round: &mut Round) -> Result<Detached, FabricError> {
        unboxed(self.hold.execute(round)).map(|()| Detached(0))
    }

    fn detached(&self, _: Detached) -> Poll<Result<(), FabricError>> {
        Poll::Ready(Ok(()))
    }

    /// Revokes the access to all memory nodes together, because all of them are in this process.
    fn revoke(&self, whom: NodeId, at: NodeSlot) -> Result<Detached, FabricError> {
        if self.hold.fabric.faults.is_fenced(self.hold.node) {
            return Err(FabricError::Fenced);
        }
        if self.hold.fabric.faults.is_down(at) {
            return Err(FabricError::NodeDown(at));
        }
        // The request is carried out even if another node has already made it, because that node's request may still
        // wait for rounds to end.
        self.hold.fabric.faults.fence(whom);
        Ok(Detached(0))
    }

    #[expect(clippy::disallowed_methods, reason = "the real backend's clock")]
    fn now(&self) -> Nanos {
        Nanos(Instant::now().duration_since(self.hold.fabric.started).as_nanos() as u64)
    }

    fn clock(&self) -> ClockInterval {
        let now = self.now();
        ClockInterval { earliest: now, latest: now }
    }

    /// All compute nodes are threads of one machine and read the same clock.
    fn drift(&self) -> Drift {
        Drift::ONE_CLOCK
    }

    /// In this backend, a READ consists of loads and a WRITE consists of stores. The lease clock keeps the four calls
    /// for windows and waits in order with the accesses before and after them.
    fn open_window(&self) -> Poll<Window> {
        Poll::Ready(self.hold.lease_clock.open_window())
    }

    fn close_window(&self, window: Window, lease: Nanos) -> Poll<Closed> {
        Poll::Ready(self.hold.lease_clock.close_window(window, lease))
    }

    fn begin_wait(&self) -> Poll<Wait> {
        Poll::Ready(self.hold.lease_clock.begin_wait())
    }

    fn end_wait(&self, wait: Wait, length: Nanos) -> Poll<()> {
        match self.hold.lease_clock.has_ended(wait, length) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn announce_writes(&self) {
        self.hold.fabric.stillness.raise();
    }

    fn charge(&self, _: Cost) {}

    fn charges(&self) -> bool {
        false
    }

    fn send(&self, to: Endpoint, bytes: &[u8]) -> Result<(), FabricError> {
        self.sender.borrow_mut().send(&self.hold.fabric.mailboxes, to, bytes)
    }

    fn receive(&self, budget: usize, sink: &mut dyn FnMut(Endpoint, &[u8])) -> usize {
        if self.hold.unfenced.replace(false) {
            full_fence();
        }
        self.receiver.borrow_mut().receive(budget, sink)
    }
}
