//! The atomics of this crate: the standard library's, or loom's in a model.
//!
//! Invariant: no other file of the crate names an atomic type of the standard library or of loom. So a model runs the
//! same code as a program.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// The rounds that an operation spins before it gives its processor to another thread.
#[cfg(not(loom))]
const SPINS_MAX: u32 = 64;

/// Waits a short time for another thread. The caller counts its rounds in `round`.
#[cold]
pub(crate) fn wait_a_moment(round: &mut u32) {
    *round += 1;
    #[cfg(not(loom))]
    if *round < SPINS_MAX {
        std::hint::spin_loop();
        return;
    }
    give_way();
}

/// Gives the processor to another thread.
pub(crate) fn give_way() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}
