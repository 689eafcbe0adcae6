//! Faults that are declared while threads run. A fault is acknowledged only when no thread is still inside a round
//! that began before the fault.
//!
//! Invariant: when [`Faults::fence`] or [`Faults::fail_node`] returns, no verb that started before the call is still
//! running, and no verb that starts later accesses the memory.
//!
//! Each thread announces with two plain stores that it is inside a round, so a round needs no additional atomic
//! instruction. The thread that declares a fault executes the asymmetric fence `membarrier(2)` instead (Desnoyers et
//! al., "User-Level Implementations of Read-Copy Update", TPDS 2012). If the kernel does not have `membarrier(2)`,
//! threads execute a full fence in each round.

use super::sync::{
    AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, Site, fence, fence_of, order, yield_now,
};
use crate::address::{NodeId, NodeSlot};
use std::sync::Arc;
use std::sync::atomic::compiler_fence;

/// A number that says whether a thread is inside a round. This number is odd while the thread is inside a round, and
/// even while it is outside.
#[derive(Default)]
pub struct ThreadGate {
    turns: crossbeam_utils::CachePadded<AtomicU64>,
    symmetric: bool,
    node: Option<NodeId>,
}

impl ThreadGate {
    /// Makes the thread enter its gate. The thread leaves the gate when the guard is dropped. Only the thread that
    /// owns the gate may call this function.
    ///
    /// # Panics
    /// If the thread is already inside (a bug of Tarn). A second entry would make the gate look as if the thread was
    /// outside, so its memory could be unmapped during its round.
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

/// The guard of a gate. The thread is inside a round until the guard is dropped.
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

/// A set of incarnations of compute nodes, with one bit for each incarnation. Incarnations are never removed from the
/// set. The number of possible incarnations limits the memory, and the time of a lookup does not grow with the set.
#[derive(Default)]
struct Lives {
    /// For each slot, words of 64 bits, with one bit per incarnation. The list of a slot is as long as its largest
    /// added incarnation needs.
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

    /// Adds an incarnation of a node. Returns whether the incarnation is new in the set.
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
    /// Creates a state in which none of `nodes` memory nodes has a fault.
    pub fn new(nodes: usize) -> Faults {
        Faults {
            epoch: AtomicU32::new(0),
            down: (0..nodes).map(|_| AtomicBool::new(false)).collect(),
            fenced: Mutex::default(),
            gates: Mutex::default(),
            asymmetric: barrier_register(),
        }
    }

    /// Returns a number that changes with every declared fault.
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

    /// Creates and registers the gate of a new thread.
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

    /// Declares a memory node dead, and waits until no round is accessing it.
    pub fn fail_node(&self, slot: NodeSlot) {
        self.down[usize::from(slot.0)].store(true, Ordering::SeqCst);
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.drain(|_| true);
    }

    /// Revokes a compute node's access, and waits until all rounds of that node have ended.
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
        return false; // a model has no kernel, so each gate executes its own fence
    }
    // SAFETY: the call takes three integers and accesses no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::address::Incarnation;

    /// Adds every incarnation of one slot, and the last incarnation of the last slot, twice. The test checks that
    /// each incarnation takes only one bit.
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
