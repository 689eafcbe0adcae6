//! Asks the processor to bring a line into its cache.
//!
//! Invariant: a hint. It changes nothing that a program can see but its speed; at full size the
//! simulated memory is gigabytes, and without it every verb waits twice for this machine's memory. It
//! is the only `unsafe` code of the crate.

/// Brings the line of `items[index]`, if there is one.
#[inline(always)]
#[allow(unsafe_code, reason = "the instruction takes an address")]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    let Some(item) = items.get(index) else { return };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and `item` is a valid address, though the
    // instruction accepts any: it neither faults nor writes.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = item;
}
