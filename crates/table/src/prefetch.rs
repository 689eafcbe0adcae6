//! Hints to the processor: load a cache line that will be needed soon.
//!
//! Invariant: a hint has no effect on the program's results, so any address is allowed.

/// Asks for a line that will be read.
#[inline(always)]
pub(crate) fn read<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction reads nothing and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the instruction reads nothing and never faults.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Asks for a line that will be written.
#[inline(always)]
pub(crate) fn write<T>(address: *const T) {
    // The intrinsic with `_MM_HINT_ET0` becomes a hint for a read, unless the program is compiled for newer processors.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction reads nothing and never faults. Processors without it treat it as a hint without effect.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the instruction reads nothing and never faults.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
