//! Copies of words between a region and a round's buffer, while other threads use the region.
//!
//! Invariant: the words of a line are read, and written, in ascending order, each of them whole.
//! The caller finds out whether another thread wrote meanwhile.

#[cfg(not(loom))]
use super::preempt::{is_armed, point};
use super::sync::{AtomicU64, Ordering};

/// Copies `len_bytes`, a multiple of 8, out of shared memory.
///
/// # Safety
/// Both sides are valid for `len_bytes`; others use `from` through atomics only, and `to` not at all.
#[inline(always)]
pub(super) unsafe fn copy_out(from: *const AtomicU64, to: *mut u64, len_bytes: usize) {
    #[cfg(not(loom))]
    // SAFETY: this function's contract; an exclusive word is a word that no other thread uses.
    unsafe {
        copy_words::<true>(from, to.cast(), len_bytes)
    };
    #[cfg(loom)]
    for index in 0..len_bytes / 8 {
        // SAFETY: this function's contract.
        unsafe { *to.add(index) = (*from.add(index)).load(Ordering::Relaxed) };
    }
}

/// Copies `len_bytes`, a multiple of 8, into shared memory.
///
/// # Safety
/// Both sides are valid for `len_bytes`; others use `to` through atomics only, and do not write `from`.
#[inline(always)]
pub(super) unsafe fn copy_in(from: *const u64, to: *const AtomicU64, len_bytes: usize) {
    #[cfg(not(loom))]
    // SAFETY: this function's contract.
    unsafe {
        copy_words::<false>(from.cast(), to, len_bytes)
    };
    #[cfg(loom)]
    for index in 0..len_bytes / 8 {
        // SAFETY: this function's contract.
        unsafe { (*to.add(index)).store(*from.add(index), Ordering::Relaxed) };
    }
}

/// Copies `len_bytes`, a multiple of 8.
///
/// # Safety
/// Both sides are valid for `len_bytes`; others use `to` through atomics only. If `SHARED`, others
/// use `from` through atomics only, and it may be written. Otherwise it is not written meanwhile,
/// and may be borrowed: no atomic is made of it.
#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_words<const SHARED: bool>(
    from: *const AtomicU64,
    to: *const AtomicU64,
    len_bytes: usize,
) {
    let (mut from, mut to, mut left) = (from, to, len_bytes);
    if left == 16 {
        // LOCK and VERSION, as a rule.
        // SAFETY: two words (this function's contract).
        unsafe {
            copy_word::<SHARED>(from, to);
            copy_word::<SHARED>(from.add(1), to.add(1));
        }
        return;
    }
    // SAFETY: no more than `left` bytes are taken at any step (this function's contract).
    unsafe {
        while is_armed() && left > 8 {
            copy_word::<SHARED>(from, to);
            point();
            (from, to, left) = (from.add(1), to.add(1), left - 8);
        }
        while left >= 64 {
            copy_line::<SHARED>(from, to);
            (from, to, left) = (from.add(8), to.add(8), left - 64);
        }
        if left >= 32 {
            copy_half::<SHARED>(from, to);
            (from, to, left) = (from.add(4), to.add(4), left - 32);
        }
        while left > 0 {
            copy_word::<SHARED>(from, to);
            (from, to, left) = (from.add(1), to.add(1), left - 8);
        }
    }
}

/// Copies a word, before all words that are copied later.
///
/// # Safety
/// The same as for [`copy_words`], for one word.
#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_word<const SHARED: bool>(from: *const AtomicU64, to: *const AtomicU64) {
    // SAFETY: this function's contract. A borrowed word is read as it is: a reference to an atomic
    // would say that it may change.
    unsafe {
        let word = match SHARED {
            true => (*from).load(Ordering::Acquire),
            false => from.cast::<u64>().read(),
        };
        (*to).store(word, Ordering::Release);
    }
}

/// Copies a line's worth of words. In assembly, because the compiler does not join atomic accesses
/// and may not tear plain ones. Loads and stores of x86-64 are in order, and an aligned one of 16
/// bytes is a single access where there is AVX.
///
/// # Safety
/// The same as for [`copy_words`], for eight words.
#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_line<const SHARED: bool>(from: *const AtomicU64, to: *const AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: `from` and `to` are valid for 64 bytes (this function's contract); SSE2 is part of
    // x86-64; any interleaving of the loads and stores with those of other processors yields some
    // bytes, which is all that is promised.
    unsafe {
        std::arch::asm!(
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movdqu [{to}], {a}",
            "movdqu [{to} + 16], {b}",
            "movdqu [{to} + 32], {c}",
            "movdqu [{to} + 48], {d}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for index in 0..8 {
        // SAFETY: as above: eight words.
        unsafe { copy_word::<SHARED>(from.add(index), to.add(index)) };
    }
}

/// Like [`copy_line`], for half as many words.
///
/// # Safety
/// The same as for [`copy_words`], for four words.
#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_half<const SHARED: bool>(from: *const AtomicU64, to: *const AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as in `copy_line`, for 32 bytes.
    unsafe {
        std::arch::asm!(
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu [{to}], {a}",
            "movdqu [{to} + 16], {b}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for index in 0..4 {
        // SAFETY: as above: four words.
        unsafe { copy_word::<SHARED>(from.add(index), to.add(index)) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Copies every length, so that each way of copying is taken. A borrowed source must stay
    /// borrowed, which Miri checks.
    #[test]
    fn words_copied_in_from_borrowed_memory_come_out_unchanged() {
        let given: Vec<u64> = (1..=27).collect();
        for words in 0..=given.len() {
            let shared: Vec<AtomicU64> = given.iter().map(|_| AtomicU64::new(0)).collect();
            let (given, mut taken) = (&given[..words], vec![0; words]);
            // SAFETY: both have the same length, and no other thread uses them.
            unsafe { copy_in(given.as_ptr(), shared.as_ptr(), words * 8) };
            // SAFETY: likewise.
            unsafe { copy_out(shared.as_ptr(), taken.as_mut_ptr(), words * 8) };
            assert_eq!(given, taken);
            assert!(shared[words..].iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }
}
