//! Declared faults, and the proof that no thread is still inside when they are acknowledged.
//!
//! Invariant: when [`Faults::fence`] or [`Faults::fail_node`] returns, no verb that started before
//! it is still running, and none that starts later reaches the memory.
//!
//! Each thread announces with two plain stores that it is inside a round, so that the data path has
//! no extra atomic instruction. The declarer pays instead, with `membarrier(2)`, an asymmetric
//! fence (Desnoyers et al., "User-Level Implementations of Read-Copy Update", TPDS 2012). Where the
//! kernel lacks it, threads fall back to a full fence a round.

use super::sync::{
    AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, Site, fence, fence_of, order, yield_now,
};
use crate::address::{NodeId, NodeSlot};
use std::sync::Arc;
use std::sync::atomic::compiler_fence;

/// Whether a thread is inside a round: odd inside, even outside.
#[derive(Default)]
pub struct ThreadGate {
    turns: crossbeam_utils::CachePadded<AtomicU64>,
    symmetric: bool,
    node: Option<NodeId>,
}

impl ThreadGate {
    /// Enters; leaves when the guard is dropped. Only the owning thread calls this.
    ///
    /// # Panics
    /// If it is inside already: it would show as outside, and memory could go under it. Our bug.
    #[inline]
    pub fn enter(&self) -> Inside<'_> {
        let turns = self.turns.load(Ordering::Relaxed);
        assert!(turns.is_multiple_of(2), "a round or a visit began within a visit");
        self.turns.store(turns + 1, Ordering::Relaxed);
        if self.symmetric {
            fence_of(Site::GateEntered, Ordering::SeqCst);
        } else {
            compiler_fence(std::sync::atomic::Ordering::SeqCst);
        }
        Inside { gate: self, turns }
    }
}

/// The thread is inside a round while this lives.
pub struct Inside<'a> {
    gate: &'a ThreadGate,
    turns: u64,
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.turns.store(self.turns + 2, order(Site::GateLeft, Ordering::Release));
    }
}

/// Lives of compute nodes, for ever: one bit for each life. So memory is bounded by the number of
/// possible lives, and a lookup does not take longer the more there are.
#[derive(Default)]
struct Lives {
    /// By slot, then 64 incarnations a word; as long as the largest incarnation that was added
    /// needs.
    words: Vec<Vec<u64>>,
}

impl Lives {
    fn place(NodeId { slot, incarnation }: NodeId) -> (usize, usize, u64) {
        let life = usize::from(incarnation.0);
        (usize::from(slot.0), life / 64, 1 << (life % 64))
    }

    fn contains(&self, node: NodeId) -> bool {
        let (slot, word, bit) = Lives::place(node);
        let word = self.words.get(slot).and_then(|words| words.get(word));
        word.is_some_and(|word| word & bit != 0)
    }

    /// Adds a life; returns whether it is new.
    fn insert(&mut self, node: NodeId) -> bool {
        let (slot, word, bit) = Lives::place(node);
        if self.words.len() <= slot {
            self.words.resize(slot + 1, Vec::new());
        }
        let words = &mut self.words[slot];
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        let is_new = words[word] & bit == 0;
        words[word] |= bit;
        is_new
    }
}

/// The faults declared so far, and the threads that must notice them.
pub struct Faults {
    epoch: AtomicU32,
    down: Vec<AtomicBool>,
    fenced: Mutex<Lives>,
    gates: Mutex<Vec<Arc<ThreadGate>>>,
    asymmetric: bool,
}

impl Faults {
    /// No faults among `nodes` memory nodes.
    pub fn new(nodes: usize) -> Faults {
        Faults {
            epoch: AtomicU32::new(0),
            down: (0..nodes).map(|_| AtomicBool::new(false)).collect(),
            fenced: Mutex::default(),
            gates: Mutex::default(),
            asymmetric: barrier_register(),
        }
    }

    /// Changes with every declared fault.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether a memory node is down.
    pub fn is_down(&self, slot: NodeSlot) -> bool {
        self.down.get(usize::from(slot.0)).is_none_or(|down| down.load(Ordering::Acquire))
    }

    /// Whether a compute node's access is revoked.
    pub fn is_fenced(&self, node: NodeId) -> bool {
        self.fenced.lock().expect("no panic under this lock").contains(node)
    }

    /// A new thread's gate.
    pub fn register(&self, node: NodeId) -> Arc<ThreadGate> {
        let gate = Arc::new(ThreadGate {
            turns: Default::default(),
            symmetric: !self.asymmetric,
            node: Some(node),
        });
        let mut gates = self.gates.lock().expect("no panic under this lock");
        gates.retain(|gate| Arc::strong_count(gate) > 1);
        gates.push(Arc::clone(&gate));
        gate
    }

    /// Declares a memory node dead, and waits until no round is inside it.
    pub fn fail_node(&self, slot: NodeSlot) {
        self.down[usize::from(slot.0)].store(true, Ordering::SeqCst);
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.drain(|_| true);
    }

    /// Revokes a compute node's access, and waits until its rounds have drained.
    pub fn fence(&self, node: NodeId) {
        let mut fenced = self.fenced.lock().expect("no panic under this lock");
        if fenced.insert(node) {
            self.epoch.fetch_add(1, Ordering::SeqCst);
        }
        drop(fenced);
        self.drain(|other| other == node);
    }

    fn drain(&self, concerns: impl Fn(NodeId) -> bool) {
        barrier(self.asymmetric);
        let gates = self.gates.lock().expect("no panic under this lock").clone();
        for gate in gates.iter().filter(|gate| gate.node.is_some_and(&concerns)) {
            let entered = gate.turns.load(Ordering::Acquire);
            if entered.is_multiple_of(2) {
                continue;
            }
            while gate.turns.load(Ordering::Acquire) == entered {
                yield_now();
            }
        }
    }
}

fn barrier(asymmetric: bool) {
    if asymmetric {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
    fence(Ordering::SeqCst);
}

fn barrier_register() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    if cfg!(loom) {
        return false; // a model has no kernel: gates fence for themselves
    }
    // SAFETY: the call takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::address::Incarnation;

    /// Adds every life of one slot and the last life of the last slot, twice: each takes one bit.
    #[test]
    fn the_list_of_lives_has_at_most_one_entry_a_possible_life() {
        let life = |slot, incarnation| NodeId {
            slot: NodeSlot(slot),
            incarnation: Incarnation(incarnation),
        };
        let mut lives = Lives::default();
        for round in 0..3 {
            for incarnation in 0..4096 {
                assert_eq!(lives.insert(life(3, incarnation)), round == 0);
            }
            assert_eq!(lives.insert(life(1023, 4095)), round == 0);
        }
        assert!(lives.contains(life(3, 4095)) && lives.contains(life(1023, 4095)));
        assert!(!lives.contains(life(2, 1)) && !lives.contains(life(3, 4096)));
        assert!(!lives.contains(life(1023, 1)) && !lives.contains(life(1024, 1)));
        let words: usize = lives.words.iter().map(Vec::len).sum();
        assert_eq!(words, 2 * 4096 / 64);
    }
}
