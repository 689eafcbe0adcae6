//! Atomics, fences, locks and turns of the local backend, so that its own synchronisation can be modelled.
//!
//! Invariant: in an ordinary build this is the standard library and nothing else. Built with
//! `--cfg loom` the same code runs on loom's types, which try every interleaving and every value that a
//! weaker machine may show (Norris and Demsky, "CDSChecker", OOPSLA 2013, whose method loom uses).
//! Each ordering or fence between one thread's accesses and another's is named by a [`Site`], so
//! that a model can take it away and prove that it would have noticed.
//!
//! Two things are not in loom: `membarrier(2)` (gates then fence for themselves, as on kernels
//! without it), and copies by vector instructions (a copy is words without any order: weaker than
//! the real one).

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(super) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(super) use std::sync::{Mutex, MutexGuard};

/// The purpose of an ordering or a fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is explained where it is used")]
pub enum Site {
    /// A reader sees the words of a WRITE whose even stripe it has seen.
    StripeRead,
    /// A reader looks at the stripe again after the words, not before.
    StripeReadAgain,
    /// A writer's words come after the odd stripe.
    StripeTaken,
    /// A writer's words come before the even stripe.
    StripeReleased,
    /// A thread looks for faults after it has said that it is inside.
    GateEntered,
    /// A thread's actions inside come before it has left.
    GateLeft,
    /// A datagram's bytes come before its announcement.
    TailPublished,
    /// A datagram's bytes are read after its announcement.
    TailSeen,
    /// A datagram's bytes are read before its room is given back.
    HeadPublished,
    /// Room is written to after it was given back.
    HeadSeen,
    /// A reader that sees that a writer is about to write sees the locks that the writer took
    /// before.
    StillnessEnded,
    /// A writer's writes come after its announcement.
    StillnessEndedBefore,
    /// A reader looks at locks after it has read the write epoch.
    StillnessSeen,
    /// A reader reads the write epoch again after it has looked at everything else.
    StillnessSeenAgain,
}

#[cfg(loom)]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Site>> = const { std::cell::Cell::new(None) };
}

/// A planted bug: from now on this site orders nothing, in models that this thread runs.
#[cfg(loom)]
pub fn plant(site: Option<Site>) {
    PLANTED.set(site);
}

/// The ordering of a site.
#[inline(always)]
pub(super) fn order(_site: Site, right: Ordering) -> Ordering {
    #[cfg(loom)]
    if PLANTED.get() == Some(_site) {
        return Ordering::Relaxed;
    }
    right
}

/// The fence of a site.
#[inline(always)]
pub(super) fn fence_of(_site: Site, right: Ordering) {
    #[cfg(loom)]
    if PLANTED.get() == Some(_site) {
        return;
    }
    fence(right);
}

/// A fence.
#[inline(always)]
pub(super) fn fence(order: Ordering) {
    #[cfg(not(loom))]
    std::sync::atomic::fence(order);
    #[cfg(loom)]
    loom::sync::atomic::fence(order);
}

/// A full fence for ordinary memory: no access before it is seen after it. On x86-64 a locked
/// instruction is such a fence. It costs a fraction of `mfence`, which also waits for kinds of
/// memory that are not used here.
#[inline(always)]
pub(super) fn full_fence() {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    {
        let mut word = 0u32;
        // SAFETY: the word is this function's own; to the compiler the assembly may touch any memory, so that nothing is moved
        // across it.
        unsafe {
            std::arch::asm!("lock or dword ptr [{word}], 0", word = in(reg) &raw mut word, options(nostack));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    fence(Ordering::SeqCst);
}

/// Keeps all later instructions behind the readings of the clock before it.
#[inline(always)]
pub(super) fn clock_fence() {
    // The counter of time is no memory, so a fence of memory does not hold it: `lfence` waits for
    // all instructions.
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: every x86-64 processor has the instruction, and it changes nothing. To the compiler
    // it may touch any memory, so that nothing is moved across it.
    unsafe {
        std::arch::asm!("lfence", options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    full_fence();
}

/// Lets another thread run.
pub(super) fn yield_now() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// The word at `offset_bytes`, a multiple of 8. A modelled word is larger than a real one.
#[inline(always)]
pub(super) fn word_at(words: *const AtomicU64, offset_bytes: u64) -> *const AtomicU64 {
    #[cfg(not(loom))]
    let word = words.wrapping_byte_add(offset_bytes as usize);
    #[cfg(loom)]
    let word = words.wrapping_add(offset_bytes as usize / 8);
    word
}

/// The accesses to the words of a ring of plain memory: watched in a model, nothing otherwise.
pub(super) struct Watch {
    #[cfg(loom)]
    words: Vec<loom::cell::UnsafeCell<()>>,
}

impl Watch {
    /// A watch over this many words.
    pub(super) fn new(_words: u64) -> Watch {
        Watch {
            #[cfg(loom)]
            words: (0.._words).map(|_| loom::cell::UnsafeCell::new(())).collect(),
        }
    }

    /// The words at these positions are about to be written.
    #[inline(always)]
    pub(super) fn writes(&self, _positions: std::ops::Range<u64>) {
        #[cfg(loom)]
        for position in _positions {
            self.words[position as usize % self.words.len()].with_mut(|_| ());
        }
    }

    /// The words at these positions are about to be read.
    #[inline(always)]
    pub(super) fn reads(&self, _positions: std::ops::Range<u64>) {
        #[cfg(loom)]
        for position in _positions {
            self.words[position as usize % self.words.len()].with(|_| ());
        }
    }
}
