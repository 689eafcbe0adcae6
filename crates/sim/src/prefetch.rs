//! Prefetching: asks the processor to load a line of memory into its cache.
//!
//! Invariant: a prefetch is a hint. The only effect of a prefetch is on the speed of the program. The
//! simulated memory of a full-size database has gigabytes. Without prefetching, every verb would wait
//! twice for the memory of the machine that runs the simulation.

/// Prefetches the line of `items[index]`. If there is no such item, the call has no effect on the program.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    prefetch_address(items.as_ptr().wrapping_add(index).cast());
}

/// Prefetches the lines of the `bytes` bytes from `start` on. The contents of these bytes do not
/// matter.
#[inline(always)]
pub(crate) fn prefetch_range(start: *const u8, bytes: usize) {
    let mut at = 0;
    // The loop may prefetch up to three lines beyond the last byte, which does no harm.
    while at < bytes {
        for line in 0..4 {
            prefetch_address(start.wrapping_add(at + line * 64).cast());
        }
        at += 256;
    }
}

#[inline(always)]
#[allow(unsafe_code, reason = "the instruction takes an address")]
fn prefetch_address(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the prefetch instruction. The instruction accepts any address,
    // and neither faults nor writes.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
