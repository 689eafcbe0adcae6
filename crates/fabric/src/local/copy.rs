//! Copies of words between a region and a round's buffer, while other threads use the region.
//!
//! Invariant: a copy reads and writes the words of a line in ascending order, and accesses each word atomically. The
//! caller must check whether another thread wrote the words during the copy.

#[cfg(not(loom))]
use super::preempt::{is_armed, point};
use super::sync::{AtomicU64, Ordering};

/// Copies `len_bytes`, a multiple of 8, out of shared memory.
///
/// # Safety
/// Both pointers are valid for `len_bytes` bytes. Other threads access `from` only through atomics, and do not access
/// `to`.
#[inline(always)]
pub(super) unsafe fn copy_out(from: *const AtomicU64, to: *mut u64, len_bytes: usize) {
    #[cfg(not(loom))]
    // SAFETY: the caller guarantees the conditions under `Safety` of this function. No other thread uses the
    // destination words.
    unsafe {
        copy_words::<true>(from, to.cast(), len_bytes)
    };
    #[cfg(loom)]
    for index in 0..len_bytes / 8 {
        // SAFETY: the caller guarantees the conditions under `Safety` of this function.
        unsafe { *to.add(index) = (*from.add(index)).load(Ordering::Relaxed) };
    }
}

/// Copies `len_bytes`, a multiple of 8, into shared memory.
///
/// # Safety
/// Both pointers are valid for `len_bytes` bytes. Other threads access `to` only through atomics, and do not write
/// `from`.
#[inline(always)]
pub(super) unsafe fn copy_in(from: *const u64, to: *const AtomicU64, len_bytes: usize) {
    #[cfg(not(loom))]
    // SAFETY: the caller guarantees the conditions under `Safety` of this function.
    unsafe {
        copy_words::<false>(from.cast(), to, len_bytes)
    };
    #[cfg(loom)]
    for index in 0..len_bytes / 8 {
        // SAFETY: the caller guarantees the conditions under `Safety` of this function.
        unsafe { (*to.add(index)).store(*from.add(index), Ordering::Relaxed) };
    }
}

/// Copies `len_bytes`, a multiple of 8.
///
/// # Safety
/// Both pointers are valid for `len_bytes` bytes. Other threads access `to` only through atomics. If `SHARED` is
/// true, other threads access `from` only through atomics, and may write it. If `SHARED` is false, no thread writes
/// `from` during the copy. If `SHARED` is false, `from` may be borrowed memory, and the function makes no reference
/// to an atomic from it.
#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_words<const SHARED: bool>(
    from: *const AtomicU64,
    to: *const AtomicU64,
    len_bytes: usize,
) {
    let (mut from, mut to, mut left) = (from, to, len_bytes);
    if left == 16 {
        // A copy of two words is usually a copy of LOCK and VERSION. SAFETY: both pointers are valid for two words,
        // by this function's contract.
        unsafe {
            copy_word::<SHARED>(from, to);
            copy_word::<SHARED>(from.add(1), to.add(1));
        }
        return;
    }
    // SAFETY: no step copies more than `left` bytes, for which the pointers are valid by this function's contract.
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
/// The same conditions as for [`copy_words`], for one word.
#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_word<const SHARED: bool>(from: *const AtomicU64, to: *const AtomicU64) {
    // SAFETY: the caller guarantees the conditions under `Safety` of this function. A borrowed word is read by a
    // plain load, because a reference to an atomic would tell the compiler that the word may change.
    unsafe {
        let word = match SHARED {
            true => (*from).load(Ordering::Acquire),
            false => from.cast::<u64>().read(),
        };
        (*to).store(word, Ordering::Release);
    }
}

/// Copies the eight words of a line. The function uses assembly, because the compiler does not merge several atomic
/// accesses into one wide access, and plain accesses would be a data race. Loads and stores of x86-64 are in order.
/// On processors with AVX, an aligned load or store of 16 bytes is a single access.
///
/// # Safety The same conditions as for [`copy_words`], for eight words.
#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_line<const SHARED: bool>(from: *const AtomicU64, to: *const AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: `from` and `to` are valid for 64 bytes (this function's contract); SSE2 is part of x86-64. The loads
    // and stores may interleave in any way with the accesses of other processors. If they interleave, the result is a
    // mixture of bytes, and this function does not prevent such a mixture.
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
        // SAFETY: as above, the pointers are valid for eight words.
        unsafe { copy_word::<SHARED>(from.add(index), to.add(index)) };
    }
}

/// Does the same as [`copy_line`], for half the number of words.
///
/// # Safety The same conditions as for [`copy_words`], for four words.
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
        // SAFETY: as above, the pointers are valid for four words.
        unsafe { copy_word::<SHARED>(from.add(index), to.add(index)) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Copies words of every length, so that the test runs each branch of the copy. Miri checks that a borrowed
    /// source is used only as borrowed memory.
    #[test]
    fn words_copied_in_from_borrowed_memory_come_out_unchanged() {
        let given: Vec<u64> = (1..=27).collect();
        for words in 0..=given.len() {
            let shared: Vec<AtomicU64> = given.iter().map(|_| AtomicU64::new(0)).collect();
            let (given, mut taken) = (&given[..words], vec![0; words]);
            // SAFETY: both buffers have the same length, and no other thread uses them.
            unsafe { copy_in(given.as_ptr(), shared.as_ptr(), words * 8) };
            // SAFETY: as above, for the copy in the other direction.
            unsafe { copy_out(shared.as_ptr(), taken.as_mut_ptr(), words * 8) };
            assert_eq!(given, taken);
            assert!(shared[words..].iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }
}
