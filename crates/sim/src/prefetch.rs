//! Asks the processor to bring a line into its cache.
//!
//! Invariant: a hint. It changes nothing that a program can see but its speed; at full size the
//! simulated memory is gigabytes, and without it every verb waits twice for this machine's memory.

/// Brings the line of `items[index]`, if there is one.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    if let Some(item) = items.get(index) {
        prefetch_address(std::ptr::from_ref(item).cast());
    }
}

/// Brings the first and the last line of some bytes of `words`: most transfers have no others, and of a
/// long one the processor notices by itself what is wanted.
#[inline(always)]
pub(crate) fn prefetch_bytes(words: &[u64], at: usize, len: usize) {
    let start: *const i8 = words.as_ptr().cast();
    prefetch_address(start.wrapping_add(at));
    if at % 64 + len > 64 {
        prefetch_address(start.wrapping_add(at + len - 1));
    }
}

/// Brings the lines of `bytes` from `start` on, whatever they are.
#[inline(always)]
pub(crate) fn prefetch_range(start: *const u8, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        prefetch_address(start.wrapping_add(at).cast());
        at += 64;
    }
}

#[inline(always)]
#[allow(unsafe_code, reason = "the instruction takes an address")]
fn prefetch_address(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it accepts any address, and neither faults
    // nor writes.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
