//! The atomics, fences, locks and yields that the local backend uses, in a form that allows a model of the backend's
//! synchronisation.
//!
//! Invariant: in an ordinary build, these types and functions are those of the standard library. If the crate is
//! built with `--cfg loom`, the same code runs on loom's types. Loom tries every interleaving, and every value that a
//! machine with a weaker memory order may return (Norris and Demsky, "CDSChecker", OOPSLA 2013, whose method loom
//! uses). A [`Site`] names each ordering or fence between the accesses of two threads. So a model can remove one
//! ordering and prove that the model then fails.
//!
//! Loom does not model two parts. Loom has no `membarrier(2)`, so each gate executes its own fence, as on kernels
//! without this call. Loom also has no vector instructions, so a copy accesses words without any order, which is
//! weaker than the real copy.

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
    /// If a reader has seen the even stripe of a WRITE, it sees the words of this WRITE.
    StripeRead,
    /// A reader reads the stripe again only after it has read the words.
    StripeReadAgain,
    /// A writer writes its words after it has made the stripe odd.
    StripeTaken,
    /// A writer writes its words before it makes the stripe even.
    StripeReleased,
    /// A thread checks for faults after it has announced that it is inside a round.
    GateEntered,
    /// A thread's actions inside a round come before the announcement that it has left.
    GateLeft,
    /// A sender writes a datagram's bytes before it publishes `tail`.
    TailPublished,
    /// A receiver reads a datagram's bytes after it has read the new `tail`.
    TailSeen,
    /// A receiver reads a datagram's bytes before it publishes `head`, which releases the datagram's room.
    HeadPublished,
    /// A sender writes into released room only after it has read the new `head`.
    HeadSeen,
    /// If a reader sees a writer's announcement, it also sees the locks that the writer took before.
    StillnessEnded,
    /// A writer writes only after its announcement.
    StillnessEndedBefore,
    /// A reader reads locks after it has read the write epoch.
    StillnessSeen,
    /// A reader reads the write epoch again after all its other reads.
    StillnessSeenAgain,
}

#[cfg(loom)]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Site>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug: in models that this thread runs from now on, this site has no ordering.
#[cfg(loom)]
pub fn plant(site: Option<Site>) {
    PLANTED.set(site);
}

/// Returns the memory ordering of a site.
#[inline(always)]
pub(super) fn order(_site: Site, right: Ordering) -> Ordering {
    #[cfg(loom)]
    if PLANTED.get() == Some(_site) {
        return Ordering::Relaxed;
    }
    right
}

/// Executes the fence of a site.
#[inline(always)]
pub(super) fn fence_of(_site: Site, right: Ordering) {
    #[cfg(loom)]
    if PLANTED.get() == Some(_site) {
        return;
    }
    fence(right);
}

/// Executes a fence with this ordering.
#[inline(always)]
pub(super) fn fence(order: Ordering) {
    #[cfg(not(loom))]
    std::sync::atomic::fence(order);
    #[cfg(loom)]
    loom::sync::atomic::fence(order);
}

/// Executes a full fence for ordinary memory: all accesses before the fence take effect before all accesses after it.
/// On x86-64, a locked instruction is a full fence. A locked instruction costs a fraction of `mfence`, which also
/// waits for kinds of memory that Tarn does not use.
#[inline(always)]
pub(super) fn full_fence() {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    {
        let mut word = 0u32;
        // SAFETY: only this function uses the word. The compiler must assume that the assembly accesses any memory,
        // so it moves no access across the assembly.
        unsafe {
            std::arch::asm!("lock or dword ptr [{word}], 0", word = in(reg) &raw mut word, options(nostack));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    fence(Ordering::SeqCst);
}

/// Makes all later instructions wait until the earlier readings of the clock are complete.
#[inline(always)]
pub(super) fn clock_fence() {
    // The time-stamp counter is not memory, so a memory fence does not order its readings. `lfence` waits for all
    // earlier instructions.
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: every x86-64 processor has this instruction, and it changes no data. The compiler must assume that it
    // accesses any memory, so it moves no access across the instruction.
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

/// Returns a pointer to the word at `offset_bytes`, which is a multiple of 8. A word in a model takes more bytes than
/// a real word.
#[inline(always)]
pub(super) fn word_at(words: *const AtomicU64, offset_bytes: u64) -> *const AtomicU64 {
    #[cfg(not(loom))]
    let word = words.wrapping_byte_add(offset_bytes as usize);
    #[cfg(loom)]
    let word = words.wrapping_add(offset_bytes as usize / 8);
    word
}

/// Watches the accesses to the words of a ring of plain memory in a model. In an ordinary build, it does nothing.
pub(super) struct Watch {
    #[cfg(loom)]
    words: Vec<loom::cell::UnsafeCell<()>>,
}

impl Watch {
    /// Creates a watch over this number of words.
    pub(super) fn new(_words: u64) -> Watch {
        Watch {
            #[cfg(loom)]
            words: (0.._words).map(|_| loom::cell::UnsafeCell::new(())).collect(),
        }
    }

    /// Notes that the caller will now write the words at these positions.
    #[inline(always)]
    pub(super) fn writes(&self, _positions: std::ops::Range<u64>) {
        #[cfg(loom)]
        for position in _positions {
            self.words[position as usize % self.words.len()].with_mut(|_| ());
        }
    }

    /// Notes that the caller will now read the words at these positions.
    #[inline(always)]
    pub(super) fn reads(&self, _positions: std::ops::Range<u64>) {
        #[cfg(loom)]
        for position in _positions {
            self.words[position as usize % self.words.len()].with(|_| ());
        }
    }
}
