//! The local backend: memory nodes are mapped memory, compute nodes are threads of this machine.
//!
//! Invariant: it keeps the contract of [`crate::round`], and is stronger where the hardware allows
//! it for free: verbs of a round take effect in the order in which they were added. A round is
//! *posted* by prefetching its lines (see `ahead`) and *completed* by executing its verbs. So
//! sibling coroutines run while the lines travel: the method that hides a network's latency hides
//! DRAM's. A caller may also reach the same memory without a round, by loads and stores
//! ([`DirectMemory`]), with the same order and the same checks.
//!
//! A completion means that every other thread can see the effect: a round that wrote ends in a full
//! fence, unless it is [`Round::followed`]. Revoking a compute node's access is acknowledged only
//! when none of its threads is inside a round (see [`quiesce`]).

mod affinity;
mod ahead;
mod copy;
mod direct_memory;
mod execute;
mod hold;
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

    /// Executes a round whose verbs all go to `region`. Returns whether each was executed without a
    /// writer in the way.
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

/// The shape of a local cluster.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Copies of every group: 1 + the number of crashes survived.
    pub replicas: usize,
    /// Empty memory nodes beside `memory_nodes`, each with room for a copy of every group: they
    /// take the place of dead nodes. A node that died comes back as one of them, under a slot of
    /// its own.
    pub spare_nodes: usize,
    /// Size of one replica group's memory at one node, in bytes; pages come when touched.
    pub group_bytes: u64,
    /// The kind of memory to ask for.
    pub backing: Backing,
    /// How lines are kept atomic.
    pub atomicity: LineAtomicity,
    /// Whether a posted round's lines are fetched ahead; off only to measure the gain.
    pub prefetch: bool,
    /// Whether memory is reached by loads and stores as well ([`DirectMemory`]), and not by rounds
    /// alone; off only to compare the two.
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

/// A cluster in this process: the memory nodes, and the state that their compute nodes share.
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
    /// Makes the memory nodes. There is one replica group per memory node; replica `i` of group
    /// `g` lives on node `(g + i) mod memory_nodes`, replica 0 being the primary.
    ///
    /// # Errors
    /// A shape that is not possible (the field is named), or the operating system's refusal.
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

    /// The nodes of each replica group, primary first.
    pub fn groups(&self) -> &[Vec<NodeSlot>] {
        &self.groups
    }

    /// A memory node's memory.
    pub fn node(&self, slot: NodeSlot) -> &NodeMemory {
        &self.nodes[usize::from(slot.0)]
    }

    /// A thread's port. Call it on the thread that will use it; `thread` numbers the threads of
    /// one compute node.
    pub fn port(self: &Arc<Self>, node: NodeId, thread: u16, seed: u64) -> Port {
        Port::new(Box::new(LocalBackend::new(Arc::clone(self), node, thread)), seed)
    }

    /// Kills a memory node: rounds that reach it end in `NodeDown`. Returns when no round is
    /// inside it any more.
    pub fn fail_node(&self, slot: NodeSlot) {
        self.faults.fail_node(slot);
    }

    /// Revokes a compute node's access at every memory node; its rounds end in `Fenced`. Returns
    /// when all its in-flight writes have drained.
    pub fn fence(&self, node: NodeId) {
        self.faults.fence(node);
    }
}

/// One thread's local backend.
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
        // No verb of the round has been executed or will be: verbs are executed in `complete`, and
        // those of a hot round in `post`, which leaves nothing to wait for.
    }

    fn post_detached(&self, round: &mut Round) -> Result<Detached, FabricError> {
        unboxed(self.hold.execute(round)).map(|()| Detached(0))
    }

    fn detached(&self, _: Detached) -> Poll<Result<(), FabricError>> {
        Poll::Ready(Ok(()))
    }

    /// Access is revoked at all memory nodes at once: they are this process.
    fn revoke(&self, whom: NodeId, at: NodeSlot) -> Result<Detached, FabricError> {
        if self.hold.fabric.faults.is_fenced(self.hold.node) {
            return Err(FabricError::Fenced);
        }
        if self.hold.fabric.faults.is_down(at) {
            return Err(FabricError::NodeDown(at));
        }
        // Also if another node has asked already: its request may still wait for rounds to end.
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

    /// Compute nodes are threads of one machine, with one clock.
    fn drift(&self) -> Drift {
        Drift::ONE_CLOCK
    }

    /// A READ is loads here, a WRITE is stores. The clock keeps the order of the four calls with
    /// the accesses before and behind them.
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
