//! The local backend: memory nodes are mapped memory, compute nodes are threads of this machine.
//!
//! Invariant: it keeps the contract of [`crate::round`] and is stronger where the hardware gives it
//! for free: verbs of a round take effect in the order in which they were added. A round is
//! *posted* by prefetching its lines (see `ahead`) and *completed* by executing its verbs, so that sibling
//! coroutines run while the lines travel: what hides a network's latency hides DRAM's.
//!
//! A completion means that every other thread can see the effect: a round that wrote ends in a full
//! fence, unless it is [`Round::followed`]. Revoking a compute node's access is acknowledged only
//! when none of its threads is inside a round (see [`quiesce`]).

mod affinity;
mod ahead;
mod mailbox;
mod memory;
mod pages;
pub mod probe;
pub mod quiesce;
mod region;

pub use affinity::pin_to_core;
pub use memory::NodeMemory;
pub use pages::{Backing, Mapping, Pages};
pub use region::{LineAtomicity, Region, StuckStripe};

use crate::address::{GROUP_BYTES_MAX, GROUPS_MAX, GroupId, NodeId, NodeSlot, Target};
use crate::backend::{Backend, Caps, Cost, Detached, Endpoint, Posted};
use crate::clock::{ClockInterval, Nanos};
use crate::error::FabricError;
use crate::port::Port;
use crate::round::{Round, Verb, VerbKind};
use ahead::Ahead;
use mailbox::{Mailboxes, Receiver, Sender};
use quiesce::{Faults, ThreadGate};
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::Poll;
use std::time::Instant;

/// The shape of a local cluster.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Copies of every group: 1 + the number of crashes survived.
    pub replicas: usize,
    /// Size of one replica group's memory at one node, in bytes; pages come when touched.
    pub group_bytes: u64,
    /// What memory to ask for.
    pub backing: Backing,
    /// How lines are kept atomic.
    pub atomicity: LineAtomicity,
    /// Whether a posted round's lines are fetched ahead; off only to measure what that is worth.
    pub prefetch: bool,
}

impl Default for LocalConfig {
    fn default() -> LocalConfig {
        LocalConfig {
            memory_nodes: 1,
            replicas: 1,
            group_bytes: 64 << 20,
            backing: Backing::Auto,
            atomicity: LineAtomicity::Striped { bits: 16 },
            prefetch: true,
        }
    }
}

/// A cluster in this process: the memory nodes, and what their compute nodes share.
pub struct LocalFabric {
    nodes: Vec<NodeMemory>,
    groups: Vec<Vec<NodeSlot>>,
    faults: Faults,
    mailboxes: Mailboxes,
    started: Instant,
    prefetch: bool,
}

impl LocalFabric {
    /// Makes the memory nodes. There is one replica group per memory node; replica `i` of group
    /// `g` lives on node `(g + i) mod memory_nodes`, replica 0 being the primary.
    ///
    /// # Errors
    /// A shape that cannot be (the field is named), or the operating system's refusal.
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
        let slot = |index: usize| NodeSlot((index % nodes) as u16);
        let groups: Vec<Vec<NodeSlot>> =
            (0..nodes).map(|group| (group..group + replicas).map(slot).collect()).collect();
        let memories = (0..nodes).map(|node| {
            let hosted: Vec<(GroupId, u64)> = (0..nodes)
                .filter(|&group| groups[group].contains(&slot(node)))
                .map(|group| (GroupId(group as u16), config.group_bytes))
                .collect();
            NodeMemory::create(&hosted, config.backing, config.atomicity)
        });
        Ok(Arc::new(LocalFabric {
            nodes: memories.collect::<io::Result<_>>()?,
            groups: groups.clone(),
            faults: Faults::new(nodes),
            mailboxes: Mailboxes::default(),
            started: Instant::now(),
            prefetch: config.prefetch,
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
    fabric: Arc<LocalFabric>,
    node: NodeId,
    thread: u16,
    gate: Arc<ThreadGate>,
    /// Whether a followed round wrote and nothing has fenced since: done before the next READ.
    unfenced: Cell<bool>,
    /// By node × groups + group; rebuilt when a fault was declared.
    regions: RefCell<Vec<Region<'static>>>,
    group_count: usize,
    faults_seen: Cell<u32>,
    fenced: Cell<bool>,
    ahead: RefCell<Ahead>,
    sender: RefCell<Sender>,
    receiver: RefCell<Receiver>,
}

impl Drop for LocalBackend {
    fn drop(&mut self) {
        self.fabric.mailboxes.unregister(self.receiver.get_mut());
    }
}

impl LocalBackend {
    fn new(fabric: Arc<LocalFabric>, node: NodeId, thread: u16) -> LocalBackend {
        let gate = fabric.faults.register(node);
        let endpoint = Endpoint { node: node.slot, thread };
        let (sender, receiver) = fabric.mailboxes.register(endpoint);
        let group_count = fabric.groups.len();
        let backend = LocalBackend {
            fabric,
            node,
            thread,
            gate,
            unfenced: Cell::new(false),
            regions: RefCell::default(),
            group_count,
            faults_seen: Cell::new(u32::MAX),
            fenced: Cell::new(false),
            ahead: RefCell::new(Ahead::new()),
            sender: RefCell::new(sender),
            receiver: RefCell::new(receiver),
        };
        backend.look_at_faults();
        backend
    }

    #[cold]
    fn look_at_faults(&self) {
        let faults = &self.fabric.faults;
        self.faults_seen.set(faults.epoch());
        self.fenced.set(faults.is_fenced(self.node));
        let mut regions = Vec::new();
        for (index, memory) in self.fabric.nodes.iter().enumerate() {
            let down = self.fenced.get() || faults.is_down(NodeSlot(index as u16));
            let count = self.group_count;
            let views = if down { vec![Region::empty(); count] } else { memory.regions(count) };
            // SAFETY: `fabric` owns the memory; this backend holds it as long as the views.
            regions.extend(views.into_iter().map(|view| unsafe { view.unbound() }));
        }
        *self.regions.borrow_mut() = regions;
    }

    #[inline]
    fn index(&self, target: Target) -> usize {
        usize::from(target.node().0) * self.group_count + usize::from(target.address().group().0)
    }

    #[cold]
    fn stopped(&self, target: Target, stop: Stop) -> Box<FabricError> {
        match stop {
            Stop::Outside => self.refusal(target),
            Stop::Stuck => Box::new(FabricError::TornLine(target)),
        }
    }

    #[cold]
    fn refusal(&self, target: Target) -> Box<FabricError> {
        Box::new(self.why_refused(target))
    }

    fn why_refused(&self, target: Target) -> FabricError {
        if self.fenced.get() {
            FabricError::Fenced
        } else if usize::from(target.node().0) >= self.fabric.nodes.len()
            || self.fabric.faults.is_down(target.node())
        {
            FabricError::NodeDown(target.node())
        } else {
            FabricError::OutOfBounds(target)
        }
    }

    #[inline(always)]
    fn prefetch(&self, round: &Round) {
        let (regions, mut ahead) = (self.regions.borrow(), self.ahead.borrow_mut());
        for verb in round.verbs() {
            if let Some(region) = regions.get(self.index(verb.target)) {
                let offset = verb.target.address().offset_bytes();
                let to_write = !verb.is(VerbKind::Read);
                ahead.add(region.run(offset, verb.len_bytes() as u64, to_write));
            }
        }
        ahead.posted();
    }

    /// Executes the round's verbs in order; a failure is boxed, so that success is a register.
    fn execute(&self, round: &mut Round) -> Result<(), Box<FabricError>> {
        let _inside = self.gate.enter();
        if self.fabric.faults.epoch() != self.faults_seen.get() {
            self.look_at_faults();
        }
        let regions = self.regions.borrow();
        let followed = round.is_followed();
        let (verbs, buffer) = round.parts_mut();
        let mut wrote = self.unfenced.get();
        let mut outcome = Ok(());
        let mut next = 0;
        while let Some(verb) = verbs.get_mut(next) {
            let Some(region) = regions.get(self.index(verb.target)) else {
                outcome = Err(self.refusal(verb.target));
                break;
            };
            if verb.is(VerbKind::Read) {
                if std::mem::take(&mut wrote) {
                    // A processor may load before its earlier stores are seen; the contract's READ
                    // comes after the WRITE of its batch.
                    fence(Ordering::SeqCst);
                }
                match read_run(*region, &verbs[next..], buffer) {
                    Ok(done) => next += done,
                    Err((done, stop)) => {
                        outcome = Err(self.stopped(verbs[next + done].target, stop));
                        break;
                    }
                }
                continue;
            }
            let offset = verb.target.address().offset_bytes();
            if !region.contains(offset, verb.len_bytes() as u64) {
                outcome = Err(self.refusal(verb.target));
                break;
            }
            if verb.is(VerbKind::Write) {
                wrote = true;
                if let Err(StuckStripe) = write(region, offset, verb, buffer) {
                    outcome = Err(self.stopped(verb.target, Stop::Stuck));
                    break;
                }
            } else {
                wrote = FENCE_AFTER_ATOMICS;
                atomic(region, offset, verb, buffer);
            }
            next += 1;
        }
        // Whatever this thread does next pays the debt: a READ and the end of a round fence, an
        // atomic is a fence, another followed round carries it on.
        self.unfenced.set(wrote && followed);
        if wrote && !followed {
            fence(Ordering::SeqCst);
        }
        outcome
    }
}

/// Why a verb was not executed.
enum Stop {
    Outside,
    Stuck,
}

/// Executes READs of one region from the front on; returns how many. A round's READs are as a rule
/// many and to one region, whose fields stay in registers here.
///
/// # Errors
/// Which verb was stopped, and why.
#[inline(always)]
fn read_run(region: Region, verbs: &[Verb], buffer: &mut [u64]) -> Result<usize, (usize, Stop)> {
    let first = verbs[0].target;
    for (index, verb) in verbs.iter().enumerate() {
        if !verb.is(VerbKind::Read) || !verb.target.is_beside(first) {
            return Ok(index);
        }
        let offset = verb.target.address().offset_bytes();
        if !region.contains(offset, verb.len_bytes() as u64) {
            return Err((index, Stop::Outside));
        }
        if let Err(StuckStripe) = read(&region, offset, verb, buffer) {
            return Err((index, Stop::Stuck));
        }
    }
    Ok(verbs.len())
}

#[inline(always)]
fn atomic(region: &Region, offset: u64, verb: &mut Verb, buffer: &[u64]) {
    if verb.is(VerbKind::CompareAndSwap) {
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        let word = region.word(offset);
        verb.value = word
            .compare_exchange(verb.expected, verb.value, order.0, order.1)
            .unwrap_or_else(|found| found);
    } else {
        rarer_atomic(region, offset, verb, buffer);
    }
}

/// Atomics of x86-64 are full fences themselves.
const FENCE_AFTER_ATOMICS: bool = cfg!(not(target_arch = "x86_64"));

#[inline(always)]
fn read(region: &Region, offset: u64, verb: &Verb, buffer: &mut [u64]) -> Result<(), StuckStripe> {
    let (at, len) = (verb.buffer().0 as usize, verb.len_bytes());
    if (offset | at as u64 | len as u64).is_multiple_of(8) {
        return region.read_words(offset, &mut buffer[at / 8..(at + len) / 8]);
    }
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(buffer);
    region.read_bytes(offset, &mut bytes[at..at + len])
}

#[inline(always)]
fn write(region: &Region, offset: u64, verb: &Verb, buffer: &[u64]) -> Result<(), StuckStripe> {
    let (at, len) = (verb.buffer().0 as usize, verb.len_bytes());
    if (offset | at as u64 | len as u64).is_multiple_of(8) {
        let words = &buffer[at / 8..(at + len) / 8];
        return region.write_words(offset, words, !verb.has(Verb::PRIVATE));
    }
    let bytes: &[u8] = bytemuck::cast_slice(buffer);
    region.write(offset, &bytes[at..at + len])
}

#[inline(never)]
fn rarer_atomic(region: &Region, offset: u64, verb: &mut Verb, buffer: &[u64]) {
    let word = region.word(offset);
    if verb.is(VerbKind::FetchAndAdd) {
        verb.value = word.fetch_add(verb.expected, Ordering::SeqCst);
        return;
    }
    let at = verb.buffer().0 as usize / 8;
    let (compare_mask, swap_mask) = (buffer[at], buffer[at + 1]);
    let swap = |old: u64| {
        let equal = old & compare_mask == verb.expected & compare_mask;
        equal.then_some((old & !swap_mask) | (verb.value & swap_mask))
    };
    let order = (Ordering::SeqCst, Ordering::SeqCst);
    let outcome = word.fetch_update(order.0, order.1, swap);
    verb.value = outcome.unwrap_or_else(|found| {
        fence(Ordering::SeqCst); // nothing was swapped, so nothing has fenced
        found
    });
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
        Caps { masked_cas: true, datagram_bytes_max: mailbox::DATAGRAM_BYTES_MAX }
    }

    fn node(&self) -> NodeId {
        self.node
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { node: self.node.slot, thread: self.thread }
    }

    #[inline]
    fn post(&self, round: &mut Round) -> Posted {
        if round.is_hot() {
            return Posted::Done(unboxed(self.execute(round)));
        }
        if self.fabric.prefetch {
            self.prefetch(round);
        }
        Posted::InFlight
    }

    #[inline]
    fn complete(&self, round: &mut Round) -> Poll<Result<(), FabricError>> {
        self.ahead.borrow_mut().ended();
        Poll::Ready(unboxed(self.execute(round)))
    }

    fn abandon(&self, _: &mut Round) {
        self.ahead.borrow_mut().ended();
        // Nothing of the round has happened: verbs are executed on completion.
    }

    fn post_detached(&self, round: &mut Round) -> Result<Detached, FabricError> {
        unboxed(self.execute(round)).map(|()| Detached(0))
    }

    fn detached(&self, _: Detached) -> Poll<Result<(), FabricError>> {
        Poll::Ready(Ok(()))
    }

    #[expect(clippy::disallowed_methods, reason = "the real backend's clock")]
    fn now(&self) -> Nanos {
        Nanos(Instant::now().duration_since(self.fabric.started).as_nanos() as u64)
    }

    fn clock(&self) -> ClockInterval {
        let now = self.now();
        ClockInterval { earliest: now, latest: now }
    }

    fn charge(&self, _: Cost) {}

    fn send(&self, to: Endpoint, bytes: &[u8]) -> Result<(), FabricError> {
        self.sender.borrow_mut().send(&self.fabric.mailboxes, to, bytes)
    }

    fn receive(&self, budget: usize, sink: &mut dyn FnMut(Endpoint, &[u8])) -> usize {
        if self.unfenced.replace(false) {
            fence(Ordering::SeqCst);
        }
        self.receiver.borrow_mut().receive(budget, sink)
    }
}
